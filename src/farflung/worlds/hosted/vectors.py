"""Gymnasium environments whose observations are vectors of real numbers, as worlds that are stepped on the host."""

import contextlib
import dataclasses
import functools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium import spaces
from jaxtyping import Float, Shaped

from farflung.config.imports import check_installed, import_object
from farflung.config.reading import parse_object
from farflung.worlds.encoder import Encoder, Image
from farflung.worlds.hosted.copies import FAILURES, PLACE, FeaturesWrapper, ObserveWrapper, watched
from farflung.worlds.hosted.indexing import Part, actions_of, parts_of, unknown_actions
from farflung.worlds.hosted.layouts import layout_of
from farflung.worlds.hosted.world import HostedWorld, View, first_copy, from_id, read_hosted
from farflung.worlds.projection import (
    ENCODER,
    Actions,
    Box,
    Discrete,
    MultiDiscrete,
    Projection,
    chosen_numbers,
    describe_vectors,
    read_vector_fields,
    vector_fields,
)
from farflung.worlds.walls import Rectangle, layout_fields, read_layout

_RANDOM_STEPS = 300
_LONGEST_SIDE = 64
"""Images with more pixels along a side are made smaller, by means over squares of pixels."""
_PLACES = (f"{PLACE} 0", f"{PLACE} 1")
_LARGEST_WHOLE = 2.0**53
"""Larger bounds of whole numbers say nothing."""


@dataclass(frozen=True, eq=False, kw_only=True)
class HostedVectors(HostedWorld):
    """A world whose states are vectors, stepped on the host; make one with `hosted`, which checks its input.

    An episode has at most `horizon` actions; after an earlier end, recorded states are NaN.
    """

    projection: Projection
    actions: Actions
    observation_center: tuple[float, ...]
    observation_scale: tuple[float, ...]
    num_unseen: int = 0
    image: Image | None = None
    encoder: Encoder | None = None
    features_note: str = ""
    walls: tuple[Rectangle, ...] = ()
    shifting_walls: tuple[Rectangle, ...] = ()
    observation_space: Any = None
    """Of what copies give: observations, or pairs of these and features."""
    action_space: Any = None
    """Both spaces are None for a world read from disk."""

    @property
    def rows_point_down(self) -> bool:  # type: ignore[override]
        return self.projection.names[:2] == _PLACES

    def view(self) -> View:
        about = (self.projection, self.observation_center, self.observation_scale, self.image)
        return View(self.horizon, self.actions, self.num_states, *about)

    @property
    def num_states(self) -> int:
        return self.projection.num_cells

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Enough to look at results and teams, and to make the environment again if it has an id."""
        fields = {"name": self.name, "horizon": self.horizon, "settings": self.settings, "arguments": self.arguments}
        return {"vectors": np.array(json.dumps(fields | vector_fields(self) | layout_fields(self)))}

    @staticmethod
    def from_arrays(arrays: Mapping[str, np.ndarray]) -> "HostedVectors":
        """The world that `to_arrays` describes, without its environment."""
        fields = parse_object(str(arrays["vectors"]))
        return HostedVectors(**read_hosted(fields), **read_vector_fields(fields), **read_layout(fields))

    def remade(self, **stepping: Any) -> "HostedVectors":
        make = from_id(self.settings["environment"], self.settings["options"], self.horizon)
        observe, features = self.settings["observe"], self.settings.get("features")
        if isinstance(features, str):
            check_installed(features, f"the features {features}")
            features = import_object(features, "features")
        first = first_copy(make, self.name)
        env = watched(first, observe, features)
        made: dict[str, Any] = {"observation_space": env.observation_space, "action_space": env.action_space}
        with contextlib.suppress(Exception):  # an environment may raise anything
            first.close()
        return dataclasses.replace(self, make=make, observe=observe, features=features, **made, **stepping)

    def state_of(self, observation: Any) -> Float[np.ndarray, " observation"]:
        if self.observation_space is not None and self.observe is None:
            space = self.observation_space if self.features is None else self.observation_space[0]
            observation = _numbers(space, observation)
        return super().state_of(observation)

    def action_for_environment(self, action: np.ndarray) -> Any:
        return self.for_simulator(action[None])[0]

    def vectors(self, observations: Any) -> Float[np.ndarray, "copy observation"]:
        """The observations of all copies as new vectors."""
        with np.errstate(over="ignore"):  # numbers too large for float32 become infinite, which is reported later
            numbers = _numbers(self.observation_space, observations)
        if self.encoder is None:
            return numbers
        return np.concatenate([numbers, np.asarray(_encode(self.encoder, numbers))], axis=-1)

    @functools.cached_property
    def _choices(self) -> np.ndarray:
        return np.asarray(actions_of(self.action_space))

    def for_simulator(self, actions: np.ndarray) -> np.ndarray:
        """The environment's own actions for vectors within their bounds, or for action indices."""
        if isinstance(self.actions, Discrete):
            return self._choices[actions]
        if isinstance(self.actions, MultiDiscrete):
            (part,) = parts_of(self.action_space)
            return (part.low + actions.reshape(-1, *self.action_space.shape)).astype(self.action_space.dtype)
        return actions.reshape(-1, *self.action_space.shape).astype(self.action_space.dtype)


_encode = jax.jit(lambda encoder, numbers: encoder(numbers))


def extra_features(environment: gymnasium.Env[Any, Any], features: Any) -> tuple[str, ...] | Callable[..., Any] | None:
    """Which of the features that a user has chosen are no numbers of an observation: attributes, or a function's numbers."""
    if features is None or callable(features):
        return features
    if isinstance(features, str) and ":" in features:
        return import_object(features, "features")
    names = _names(environment)
    asked = [features] if isinstance(features, str) else np.atleast_1d(np.asarray(features, object)).tolist()
    if len(asked) == 1 and isinstance(asked[0], str) and ":" in asked[0]:
        return import_object(asked[0], "features")
    others = []
    for each in asked:
        try:
            _ = each == ENCODER or chosen_numbers((each,), names)
        except ValueError:
            has_attribute = isinstance(each, str) and not each.isdigit() and environment.has_wrapper_attr(each)
            if not has_attribute:
                raise
            others.append(each)
    return tuple(others) or None


def vector_world(environment: gymnasium.Env[Any, Any], grid: Mapping[str, Any], *, horizon: int, **about: Any) -> HostedVectors:
    """The world of an environment whose observations are vectors.

    The ranges of unbounded observations are measured with random actions, always the same.

    Args:
        environment: as `watched` makes it.
        grid: what a user has chosen of the projection, as `describe_vectors` takes it.
    """
    space, num_unseen, names = environment.observation_space, 0, _names(environment)
    parts = parts_of(space)
    features = grid["features"]
    if isinstance(environment, FeaturesWrapper):
        unseen, num_unseen = parts[-1], parts[-1].low.size
        is_function = callable(about["features"])
        names = _names(environment.env) + _names_of_attributes(environment, about["features"], num_unseen)
        features = names[-unseen.low.size :] if is_function else features
    begin = _numbers(space, environment.reset(seed=0)[0])
    if not np.isfinite(begin).all():
        number = int(np.argmin(np.isfinite(begin)))
        raise ValueError(f"the observation after reset is not finite: {names[number]} is {begin[number]}")
    has_image = any(part.is_image for part in parts)
    image = _reduced(parts[0]) if parts[0].is_image and len(parts) == (1 if num_unseen == 0 else 2) else None
    if image is not None:
        names = [f"pixel {number}" for number in range(np.prod(image))] + names[parts[0].low.size :]
    elif has_image and features is None:
        features = ENCODER
    ends = ("low", "high")
    first, last = (np.concatenate([_bounds(part, end) for part in parts]) for end in ends)
    is_whole = [not part.is_real for part in parts for _ in range(_size(part))]
    wander = functools.partial(_wander, environment, horizon)
    vectors = describe_vectors(
        names, first, last, wander, **{**grid, "features": features}, num_unseen=num_unseen, image=image, is_whole=is_whole
    )
    layout = layout_of(environment) if vectors["projection"].names[:2] == _PLACES else {}
    spaces_of: dict[str, Any] = {"observation_space": space, "action_space": environment.action_space}
    return HostedVectors(horizon=horizon, actions=_actions(environment.action_space), **spaces_of, **vectors, **layout, **about)


def _bounds(part: Part, end: str) -> Float[np.ndarray, " number"]:
    bounds = np.asarray(getattr(part, end), float).ravel()
    if part.is_image:
        return np.resize(bounds, _size(part))
    return bounds if part.is_real else np.where(abs(bounds) < _LARGEST_WHOLE, bounds, np.copysign(np.inf, bounds))


def _actions(space: spaces.Space[Any]) -> Actions:
    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        (part,) = parts_of(space)
        return MultiDiscrete(tuple((part.high - part.low + 1).ravel().tolist()))
    if not isinstance(space, spaces.Box):
        raise unknown_actions(space)
    if not np.issubdtype(space.dtype, np.floating):
        raise ValueError(f"actions must be vectors of real numbers, or finitely many, not {space}")
    low, high = space.low.reshape(-1), space.high.reshape(-1)
    if not (low < high).all():
        raise ValueError(f"each number of an action needs low below high, but the actions are {space}")
    return Box(tuple(map(float, low)), tuple(map(float, high)))


def _numbers(space: spaces.Space[Any], observations: Any) -> Float[np.ndarray, "*copy observation"]:
    """All numbers of an observation, or of each copy's, as one new vector; images are made smaller."""
    parts = parts_of(space)
    found = [_pixels(part, part.numbers(observations)) if part.is_image else part.numbers(observations) for part in parts]
    return np.concatenate(found, axis=-1, dtype=np.float32)


def _reduced(part: Part) -> Image:
    """The rows, columns and channels of an image after it was made smaller."""
    rows, columns, channels = (*part.low.shape, 1)[:3]
    side = _side(part)
    return -(-rows // side), -(-columns // side), channels


def _side(part: Part) -> int:
    return -(-max(part.low.shape[:2]) // _LONGEST_SIDE)


def _pixels(part: Part, numbers: np.ndarray) -> Shaped[np.ndarray, "*copy pixel"]:
    """The means over squares of pixels, so that no side of an image is longer than 64."""
    side = _side(part)
    if side == 1:
        return numbers
    *copies, _ = numbers.shape
    rows, columns, channels = (*part.low.shape, 1)[:3]
    images = numbers.reshape(*copies, rows, columns, channels)
    beyond = [(0, 0)] * len(copies) + [(0, -rows % side), (0, -columns % side), (0, 0)]
    images = np.pad(images, beyond, mode="edge")
    shape = (images.shape[-3] // side, side, images.shape[-2] // side, side, channels)
    return images.reshape(*copies, *shape).mean(axis=(-4, -2), dtype=np.float32).reshape(*copies, -1)


def _size(part: Part) -> int:
    return math.prod(_reduced(part)) if part.is_image else part.low.size


def _names_of_attributes(environment: gymnasium.Env[Any, Any], features: Any, number: int) -> list[str]:
    """A name for each feature that policies don't see."""
    if callable(features):
        return [f"feature {each}" for each in range(number)]
    sizes = {name: np.size(environment.get_wrapper_attr(name)) for name in features}
    return [f"{name} {each}" if size > 1 else name for name, size in sizes.items() for each in range(size)]


def _names(environment: gymnasium.Env[Any, Any]) -> list[str]:
    """A name for each number of an observation, more telling for MuJoCo's environments, dictionaries and attributes."""
    space = environment.observation_space
    sizes = {"observation": _size_of(space)}
    skipped = 0
    if isinstance(space, spaces.Dict):
        sizes = {key: _size_of(part) for key, part in space.spaces.items()}
    elif isinstance(environment, ObserveWrapper):
        sizes = environment.sizes or sizes
    else:
        structure = dict(getattr(environment.unwrapped, "observation_structure", {}))
        skipped = structure.pop("skipped_qpos", 0)
        if sum(structure.values()) == sizes["observation"]:
            sizes = structure
    first = {"qpos": skipped}
    return [f"{key} {first.get(key, 0) + number}" for key, size in sizes.items() for number in range(size)]


def _size_of(space: spaces.Space[Any]) -> int:
    return sum(_size(part) for part in parts_of(space))


def _wander(environment: gymnasium.Env[Any, Any], horizon: int) -> Float[np.ndarray, "state observation"]:
    """Observations with random actions."""
    space, seen, steps_left = environment.observation_space, [], 0
    environment.action_space.seed(0)
    try:
        for number in range(_RANDOM_STEPS):
            if steps_left == 0:
                observation, _ = environment.reset(seed=number)
                steps_left = horizon
            else:
                observation, _, terminated, truncated, _ = environment.step(environment.action_space.sample())
                steps_left = 0 if terminated or truncated else steps_left - 1
            seen.append(_numbers(space, observation).astype(float))
    except FAILURES as error:
        raise ValueError(
            f"the environment failed with random actions ({type(error).__name__}: {' '.join(str(error).split())})"
        ) from error
    finite = [numbers for numbers in seen if np.isfinite(numbers).all()]
    if not finite:
        raise ValueError("no observation with random actions is finite")
    return np.stack(finite)
