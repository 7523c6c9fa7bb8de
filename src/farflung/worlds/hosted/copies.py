"""One copy of an environment. Worker processes import this module, so it must not import JAX."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from farflung.worlds.hosted.modules import OwnModules, forget_safe_path, own_modules

Make = Callable[[], gymnasium.Env[Any, Any]]
Observe = tuple[str, ...] | Callable[[gymnasium.Env[Any, Any], Any], Any]
"""Names of attributes, or a function of the environment and its observation."""
FAILURES = (Exception, SystemExit)
"""What counts as a failure of an environment: it may raise anything, and `sys.exit` must not end farflung."""


@dataclass(frozen=True)
class Copy:
    """Makes one copy of an environment, in this process or in a worker."""

    make: Make
    observe: Observe | None
    number: int
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
            environment = self.make()
            if self.observe is not None:
                environment = ObserveWrapper(environment, self.observe)
        except FAILURES as error:
            raise CopyError.of(self.number, error) from error
        return NumberedErrors(environment, self.number)


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
    """Adds the number of the copy to its errors."""

    def __init__(self, env: gymnasium.Env[Any, Any], number: int) -> None:
        super().__init__(env)
        self._number = number
        self._step = env.step

    def step(self, action: Any) -> Any:
        try:
            return self._step(action)
        except FAILURES as error:
            raise CopyError.of(self._number, error) from error

    def reset(self, **options: Any) -> Any:
        try:
            return self.env.reset(**options)
        except FAILURES as error:
            raise CopyError.of(self._number, error) from error

    def close(self) -> None:
        try:
            super().close()
        finally:
            parent = multiprocessing.parent_process()
            if parent is not None and not parent.is_alive():
                os._exit(1)  # without a parent, Gymnasium's worker would print its error to the terminal


class ObserveWrapper(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Replaces the observation by attributes of the environment, or by the result of a function."""

    _dtype: Any = None

    def __init__(self, env: gymnasium.Env[Any, Any], observe: Observe) -> None:
        super().__init__(env)
        self._observe = observe
        first = self.observation(env.reset(seed=0)[0])
        if not (np.issubdtype(first.dtype, np.integer) or np.issubdtype(first.dtype, np.floating) or first.dtype == bool):
            raise ValueError(f"observe must give numbers, not {first.dtype}")
        is_real = np.issubdtype(first.dtype, np.floating)
        self._dtype = np.float64 if is_real else np.int64
        low, high = (-np.inf, np.inf) if is_real else (np.iinfo(np.int64).min, np.iinfo(np.int64).max)
        self.observation_space = spaces.Box(low, high, first.shape, self._dtype)

    def observation(self, observation: Any) -> np.ndarray:
        if callable(self._observe):
            return np.atleast_1d(np.asarray(self._observe(self.env, observation), self._dtype))
        return np.concatenate([np.asarray(self._attribute(name), self._dtype).reshape(-1) for name in self._observe])

    def _attribute(self, name: str) -> Any:
        try:
            return self.env.get_wrapper_attr(name)
        except AttributeError:
            raise ValueError(f"{type(self.env.unwrapped).__name__} has no attribute {name!r} to observe") from None
