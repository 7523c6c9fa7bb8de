"""Gymnasium environments whose observations are vectors of real numbers, as worlds that are stepped on the host."""

import contextlib
import dataclasses
import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import Float

from farflung.config.reading import parse_object
from farflung.worlds.hosted.copies import FAILURES, ObserveWrapper
from farflung.worlds.hosted.indexing import actions_of, parts_of
from farflung.worlds.hosted.world import HostedWorld, View, first_copy, from_id, read_hosted
from farflung.worlds.projection import Box, Discrete, Projection, describe_vectors, read_vector_fields, vector_fields

_RANDOM_STEPS = 300


@dataclass(frozen=True, eq=False, kw_only=True)
class HostedVectors(HostedWorld):
    """A world whose states are vectors, stepped on the host; make one with `hosted`, which checks its input.

    An episode has at most `horizon` actions; after an earlier end, recorded states are NaN.
    """

    projection: Projection
    actions: Discrete | Box
    observation_center: tuple[float, ...]
    observation_scale: tuple[float, ...]
    observation_space: Any = None
    action_space: Any = None
    """Both spaces are None for a world read from disk."""

    def view(self) -> View:
        about = (self.projection, self.observation_center, self.observation_scale)
        return View(self.horizon, self.actions, self.num_states, *about)

    @property
    def num_states(self) -> int:
        return self.projection.num_cells

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Enough to look at results and teams, and to make the environment again if it has an id."""
        fields = {"name": self.name, "horizon": self.horizon, "settings": self.settings}
        return {"vectors": np.array(json.dumps(fields | vector_fields(self)))}

    @staticmethod
    def from_arrays(arrays: Mapping[str, np.ndarray]) -> "HostedVectors":
        """The world that `to_arrays` describes, without its environment."""
        fields = parse_object(str(arrays["vectors"]))
        return HostedVectors(**read_hosted(fields), **read_vector_fields(fields))

    def remade(self, **stepping: Any) -> "HostedVectors":
        make = from_id(self.settings["environment"], self.settings["options"], self.horizon)
        observe = self.settings["observe"]
        first = first_copy(make, self.name)
        env = first if observe is None else ObserveWrapper(first, observe)
        made: dict[str, Any] = {"observation_space": env.observation_space, "action_space": env.action_space}
        with contextlib.suppress(Exception):  # an environment may raise anything
            first.close()
        return dataclasses.replace(self, make=make, observe=observe, **made, **stepping)

    def state_of(self, observation: Any) -> Float[np.ndarray, " observation"]:
        if self.observation_space is not None and self.observe is None:
            observation = _numbers(self.observation_space, observation)
        return super().state_of(observation)

    def action_for_environment(self, action: np.ndarray) -> Any:
        return self.for_simulator(action[None])[0]

    def vectors(self, observations: Any) -> Float[np.ndarray, "copy observation"]:
        """The observations of all copies as new vectors."""
        with np.errstate(over="ignore"):  # numbers too large for float32 become infinite, which is reported later
            return _numbers(self.observation_space, observations)

    @functools.cached_property
    def _choices(self) -> np.ndarray:
        return np.asarray(actions_of(self.action_space))

    def for_simulator(self, actions: np.ndarray) -> np.ndarray:
        """The environment's own actions for vectors within their bounds, or for action indices."""
        if isinstance(self.actions, Discrete):
            return self._choices[actions]
        return actions.reshape(-1, *self.action_space.shape).astype(self.action_space.dtype)


def vector_world(environment: gymnasium.Env[Any, Any], grid: Mapping[str, Any], *, horizon: int, **about: Any) -> HostedVectors:
    """The world of an environment whose observations are vectors.

    The ranges of unbounded observations are measured with random actions, always the same.

    Args:
        grid: what a user has chosen of the projection, as `describe_vectors` takes it.
    """
    space = environment.observation_space
    ends = ("low", "high")
    first, last = (np.concatenate([getattr(part, end).ravel() for part in parts_of(space)], dtype=float) for end in ends)
    wander = functools.partial(_wander, environment, horizon)
    return HostedVectors(
        horizon=horizon,
        actions=_actions(environment.action_space),
        observation_space=space,
        action_space=environment.action_space,
        **describe_vectors(_names(environment), first, last, wander, **grid),
        **about,
    )


def _actions(space: spaces.Space[Any]) -> Discrete | Box:
    if not isinstance(space, spaces.Box):
        return Discrete(len(actions_of(space)))
    if not np.issubdtype(space.dtype, np.floating):
        raise ValueError(f"actions must be vectors of real numbers, or finitely many, not {space}")
    low, high = space.low.reshape(-1), space.high.reshape(-1)
    if not (low < high).all():
        raise ValueError(f"each number of an action needs low below high, but the actions are {space}")
    return Box(tuple(map(float, low)), tuple(map(float, high)))


def _numbers(space: spaces.Space[Any], observations: Any) -> Float[np.ndarray, "*copy observation"]:
    """All numbers of an observation, or of each copy's, as one new vector."""
    return np.concatenate([part.numbers(observations) for part in parts_of(space)], axis=-1, dtype=np.float32)


def _size(space: spaces.Space[Any]) -> int:
    return sum(part.low.size for part in parts_of(space))


def _names(environment: gymnasium.Env[Any, Any]) -> list[str]:
    """A name for each number of an observation, more telling for MuJoCo's environments and for dictionaries."""
    space = environment.observation_space
    sizes = {"observation": _size(space)}
    skipped = 0
    if isinstance(space, spaces.Dict):
        sizes = {key: _size(part) for key, part in space.spaces.items()}
    elif not isinstance(environment, ObserveWrapper):
        structure = dict(getattr(environment.unwrapped, "observation_structure", {}))
        skipped = structure.pop("skipped_qpos", 0)
        if sum(structure.values()) == sizes["observation"]:
            sizes = structure
    first = {"qpos": skipped}
    return [f"{key} {first.get(key, 0) + number}" for key, size in sizes.items() for number in range(size)]


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
