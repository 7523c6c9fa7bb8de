"""Wrappers that give an environment another task: a goal, or a reward function."""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from farflung.config.imports import import_object
from farflung.worlds.projection import read_projection

Env = gymnasium.Env[Any, Any]


def as_in_dataset(env: Env, observation: Any) -> np.ndarray:
    """An observation as datasets have it: a number or a vector; a dictionary is a vector of all its numbers."""
    space = env.observation_space
    return np.array(gymnasium.spaces.flatten(space, observation) if isinstance(space, gymnasium.spaces.Dict) else observation)


class ReachGoal(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Reaching the goal gives reward 1 and ends the episode; all other rewards are 0.

    Args:
        goal: an observation or, if observations are vectors, a point in the space of the projection's features.
        goal_radius: distance at which a vector has reached the goal.
        projection: the fields of the `Projection` in whose features the goal is given.
    """

    def __init__(
        self,
        env: Env,
        goal: int | Sequence[float],
        goal_radius: float | None = None,
        projection: Mapping[str, Any] | None = None,
    ) -> None:
        RecordConstructorArgs.__init__(self, goal=goal, goal_radius=goal_radius, projection=projection)
        super().__init__(env)
        self.goal, self.goal_radius = goal, goal_radius
        self._projection = (
            None if projection is None else read_projection(projection, gymnasium.spaces.flatdim(env.observation_space))
        )

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, _, is_terminated, is_truncated, info = self.env.step(action)
        is_reached = self._is_reached(observation)
        return observation, float(is_reached), is_terminated or is_reached, is_truncated, info

    def _is_reached(self, observation: Any) -> bool:
        if self._projection is None:
            return bool(observation == self.goal)
        seen, place = as_in_dataset(self.env, observation).astype(np.float32), np.asarray(self.goal, np.float32)
        return bool(self._projection.distances(seen, place) <= np.float32(self.goal_radius))


class PaidBy(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Rewards are those of a function of observations, actions and next observations, each with one row per step.

    Args:
        reward: MODULE:FUNCTION.
    """

    def __init__(self, env: Env, reward: str) -> None:
        RecordConstructorArgs.__init__(self, reward=reward)
        super().__init__(env)
        self._reward = import_object(reward, "reward")

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**options)
        self._before = as_in_dataset(self.env, observation)
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, _, is_terminated, is_truncated, info = self.env.step(action)
        before, self._before = self._before, as_in_dataset(self.env, observation)
        rows = (before[None], np.asarray(action)[None], self._before[None])
        return observation, float(np.asarray(self._reward(*rows)).item()), is_terminated, is_truncated, info
