"""One copy of an environment. Worker processes import this module, so it must not import JAX."""

import multiprocessing
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from farflung.worlds.hosted.modules import OwnModules, forget_safe_path, own_modules

Make = Callable[[], gymnasium.Env[Any, Any]]
Observe = tuple[str, ...] | Callable[[gymnasium.Env[Any, Any], Any], Any]
"""Names of attributes, or a function of the environment and its observation."""
PIXELS = "pixels"
"""The name under which the environment's rendered frames are observed."""
PLACE = "agent_pos"
"""MiniGrid's name of an agent's column and row."""
FAILURES = (Exception, SystemExit)
"""What counts as a failure of an environment: it may raise anything, and `sys.exit` must not end farflung."""
NUMBERS = "numbers"
"""The only entry of a copy's infos: a tuple of the names and values of all numbers in the environment's own."""
MOST_INFO_NUMBERS = 64
"""Infos with more numbers, such as images, are not recorded."""
_NAME = re.compile(r"[\w ():+-]*\w[\w ():+-]*")
_MOST_LEVELS, _MOST_CHARACTERS = 4, 100


@dataclass(frozen=True)
class Copy:
    """Makes one copy of an environment, in this process or in a worker."""

    make: Make
    observe: Observe | None
    features: Observe | None
    number: int
    has_infos: bool = False
    """Whether the numbers in the environment's infos are passed on."""
    own_modules: OwnModules | None = field(default_factory=own_modules)
    """Finds the modules that the user has named, in a worker too."""

    def __call__(self) -> gymnasium.Env[Any, Any]:
        if multiprocessing.parent_process() is not None:
            for number in (signal.SIGINT, signal.SIGTERM):  # the parent process handles these
                signal.signal(number, signal.SIG_IGN)
            forget_safe_path()
            if self.own_modules is not None:
                sys.meta_path.append(self.own_modules)
        try:
            environment = watched(self.make(), self.observe, self.features)
        except FAILURES as error:
            raise CopyError.of(self.number, error) from error
        return NumberedErrors(environment, self.number, has_infos=self.has_infos)


class CopyError(Exception):
    """An error in a copy, as text: a worker can send it even if the original exception cannot be pickled."""

    number = -1
    """The number of the copy, if it runs in this process."""

    @classmethod
    def of(cls, number: int, error: BaseException) -> "CopyError":
        found = cls(f"{type(error).__name__}: {error}")
        found.number = number
        return found


class NumberedErrors(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds the number of the copy to its errors, and passes on nothing of infos but numbers, which have a bounded size."""

    def __init__(self, env: gymnasium.Env[Any, Any], number: int, *, has_infos: bool) -> None:
        super().__init__(env)
        self._number, self._has_infos = number, has_infos
        self._step = env.step

    def step(self, action: Any) -> Any:
        try:
            *outcome, info = self._step(action)
            return *outcome, self._passed_on(info)
        except FAILURES as error:
            raise CopyError.of(self._number, error) from error

    def reset(self, **options: Any) -> Any:
        try:
            observation, info = self.env.reset(**options)
            return observation, self._passed_on(info)
        except FAILURES as error:
            raise CopyError.of(self._number, error) from error

    def _passed_on(self, info: Mapping[str, Any]) -> dict[str, Any]:
        return {NUMBERS: tuple(numbers_in(info))} if self._has_infos else {}

    def close(self) -> None:
        try:
            super().close()
        finally:
            parent = multiprocessing.parent_process()
            if parent is not None and not parent.is_alive():
                os._exit(1)  # without a parent, Gymnasium's worker would print its error to the terminal


def numbers_in(info: Mapping[str, Any], outer: str = "", levels: int = _MOST_LEVELS) -> Iterator[tuple[str, np.ndarray]]:
    """The numbers of an info by name, as 64-bit floats: a number or a vector each; `outer:inner` in a dictionary inside."""
    for key, value in info.items():
        name = re.sub("[./]", ":", f"{outer}{key}")  # in Arrow and HDF5, a point or a slash leads to an inner column
        if isinstance(value, Mapping):
            if levels > 1:
                yield from numbers_in(value, f"{name}:", levels - 1)
        elif is_info_name(name) and isinstance(value, bool | int | float | np.generic | np.ndarray):
            array = np.asarray(value)
            if array.dtype.kind in "biuf" and 0 < array.size <= MOST_INFO_NUMBERS:
                yield name, array.astype(np.float64).reshape(-1 if array.ndim else ())


def is_info_name(name: str) -> bool:
    """Whether every format can store an info under this name."""
    return len(name) <= _MOST_CHARACTERS and _NAME.fullmatch(name) is not None


def watched(environment: gymnasium.Env[Any, Any], observe: Observe | None, features: Observe | None) -> gymnasium.Env[Any, Any]:
    """The environment with the observations, and the features beside them, that a user has chosen."""
    seen = environment if observe is None else ObserveWrapper(environment, observe)
    return seen if features is None else FeaturesWrapper(seen, features)


class ObserveWrapper(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Replaces the observation by entries of its dictionary, attributes of the environment, or the result of a function."""

    def __init__(self, env: gymnasium.Env[Any, Any], observe: Observe) -> None:
        super().__init__(env)
        self._observe = observe
        seen = env.reset(seed=0)[0]
        first = _watched(env, observe, seen)
        self.sizes = {} if callable(observe) else {name: np.size(_named(env, name, seen)) for name in observe}
        """How many numbers each name gives."""
        self.observation_space = _space_of(env, observe, first)
        self._dtype = self.observation_space.dtype

    def observation(self, observation: Any) -> np.ndarray:
        return _watched(self.env, self._observe, observation).astype(self._dtype, copy=False)


class FeaturesWrapper(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Observations are pairs: the observation, and features that policies don't see."""

    def __init__(self, env: gymnasium.Env[Any, Any], features: Observe) -> None:
        super().__init__(env)
        self._features = features
        first = _watched(env, features, env.reset(seed=0)[0])
        self._space = _space_of(env, features, first.reshape(-1))
        self.observation_space = spaces.Tuple((env.observation_space, self._space))

    def observation(self, observation: Any) -> tuple[Any, np.ndarray]:
        return observation, _watched(self.env, self._features, observation).reshape(-1).astype(self._space.dtype)


def _watched(env: gymnasium.Env[Any, Any], watch: Observe, observation: Any) -> np.ndarray:
    if callable(watch):
        return np.atleast_1d(np.asarray(watch(env, observation)))
    found = [np.asarray(_named(env, name, observation)) for name in watch]
    if len(found) == 1 and _is_image(found[0]):
        return found[0]
    numbers = np.concatenate([each.reshape(-1) for each in found])
    return numbers.astype(float) if any(map(_is_image, found)) else numbers  # whole numbers would be a table of frames


def _is_image(array: np.ndarray) -> bool:
    return array.dtype == np.uint8 and array.ndim in (2, 3)


def _named(env: gymnasium.Env[Any, Any], name: str, observation: Any) -> Any:
    if isinstance(observation, dict) and name in observation:
        return observation[name]
    if name == PIXELS:
        frame = env.render()
        if not isinstance(frame, np.ndarray):
            raise ValueError(f"{PIXELS} needs frames: make the environment with render_mode='rgb_array'")
        return frame
    try:
        return env.get_wrapper_attr(name)
    except AttributeError:
        keys = f", and its observations no entry: these are {', '.join(observation)}" if isinstance(observation, dict) else ""
        raise ValueError(f"{type(env.unwrapped).__name__} has no attribute {name!r} to observe{keys}") from None


def _space_of(env: gymnasium.Env[Any, Any], watch: Observe, first: np.ndarray) -> spaces.Box:
    """The space of what is watched, with bounds where they are known: of images, and of MiniGrid's places."""
    if not (np.issubdtype(first.dtype, np.integer) or np.issubdtype(first.dtype, np.floating) or first.dtype == bool):
        raise ValueError(f"observe must give numbers, not {first.dtype}")
    if _is_image(first):
        return spaces.Box(0, 255, first.shape, np.uint8)
    if np.issubdtype(first.dtype, np.floating):
        return spaces.Box(-np.inf, np.inf, first.shape, np.float64)
    ends = np.iinfo(np.int64)
    low, high = np.full(first.shape, ends.min), np.full(first.shape, ends.max)
    sizes = [size - 1 for side in ("width", "height") if isinstance(size := getattr(env.unwrapped, side, None), int)]
    if isinstance(watch, tuple) and watch[0] == PLACE and len(sizes) == 2:
        low.reshape(-1)[:2], high.reshape(-1)[:2] = 0, sizes
    return spaces.Box(low, high, dtype=np.int64)
