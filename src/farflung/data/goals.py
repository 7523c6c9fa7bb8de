"""Relabelling: the same episodes for another task, which is a goal or a reward function."""

import dataclasses
import json
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from farflung.config.checks import check_positive
from farflung.data.episodes import Dataset, Source, cut
from farflung.data.sources import point_maze_of
from farflung.worlds.as_gymnasium.point import place_in
from farflung.worlds.point_maze import POINT_MAZE
from farflung.worlds.projection import Projection

Reward = Callable[[np.ndarray, np.ndarray, np.ndarray], ArrayLike]
"""A function from the observations, actions and next observations of many steps to the reward of each step."""

Place = Sequence[int] | Sequence[float]
"""A goal as a user gives it."""


def relabel(
    dataset: Dataset,
    *,
    goal: int | Place | None = None,
    radius: float | None = None,
    reward: Reward | None = None,
) -> Dataset:
    """The same episodes for another task.

    Args:
        goal: an observation, or, if observations are vectors, a point of the projection's features; reaching the goal pays 1
            and ends the episode, every other step pays 0.
        radius: distance within which a vector has reached the goal, in units of the projection's scale; in a point maze by
            default the size of a step.
        reward: a function that gives the reward of each step; the episodes keep their lengths.
    """
    if (goal is None) == (reward is None):
        raise ValueError("relabel takes either a goal or a reward, not both or none")
    if reward is not None:
        steps = dataset.steps()
        found = np.asarray(reward(steps.observations, steps.actions, steps.next_observations), np.float64)
        if found.shape != steps.rewards.shape:
            raise ValueError(
                f"the reward function must return {len(steps.rewards)} numbers, one for each step, not {found.shape}"
            )
        if not np.isfinite(found).all():
            raise ValueError(f"the reward function must return finite numbers, not {found[~np.isfinite(found)][0]}")
        rewards = np.zeros_like(dataset.rewards)
        rewards[dataset.is_step] = found
        return dataclasses.replace(dataset, rewards=rewards)
    assert goal is not None
    if dataset.has_vectors:
        place, radius = _place(dataset.source, goal, radius)
        assert dataset.source.projection is not None
        arrives = distances(dataset.source.projection, dataset.observations[:, 1:], place) <= np.float32(radius)
        source, aim = dataset.source, {"goal": place.tolist(), "goal_radius": radius}
        if source.environment is not None and (made := json.loads(source.environment))["id"] == POINT_MAZE:
            made["kwargs"].update(aim)
            source = dataclasses.replace(source, environment=json.dumps(made))
    else:
        if radius is not None:
            raise ValueError("a radius needs observations that are vectors, and these are numbers: leave it out")
        source, aim = dataset.source, {"goal": _checked_number(dataset.source, goal)}
        arrives = dataset.observations[:, 1:] == aim["goal"]
    source = dataclasses.replace(source, metadata={**source.metadata, **aim})
    rewards = (arrives & dataset.is_step).astype(np.float32)
    return cut(dataclasses.replace(dataset, rewards=rewards, source=source), arrives)


def observation_at(source: Source, goal: Place) -> int:
    """The observation that a user gives as its number, or as a row and a column of the map."""
    if len(goal) == 1:
        return _checked_number(source, goal[0])
    if len(goal) != 2:
        raise ValueError(f"a goal is a row and a column, or one observation, not {len(goal)} numbers")
    world = None if source.world is None else source.world.table
    if world is None or world.positions is None:
        raise ValueError("this world has no map: give the goal as one observation instead of a row and a column")
    (found,) = np.nonzero((np.asarray(world.positions) == np.asarray(goal)).all(axis=1))
    if not len(found):
        raise ValueError(f"the goal ({goal[0]:g}, {goal[1]:g}) is no cell that can be reached from the start")
    return int(world.labels[int(found[0])])


def distances(
    projection: Projection, observations: Float[np.ndarray, "*axes observation"], place: Float[np.ndarray, " feature"]
) -> Float[np.ndarray, "*axes"]:
    """The distance of vectors from a place; each feature is in units of its scale, and angles are points on a circle."""
    apart = np.array(projection.project(jnp.asarray(observations))) - place
    angles = list(projection.angles)
    apart[..., angles] = 2 * np.sin(apart[..., angles] / 2)
    return np.linalg.norm(apart / np.asarray(projection.scale, np.float32), axis=-1)


def _checked_number(source: Source, goal: int | float | Place) -> int:
    if isinstance(goal, Sequence) or goal not in range(source.num_observations):
        raise ValueError(f"a goal is an observation from 0 to {source.num_observations - 1}, not {goal}")
    return int(goal)


def _place(source: Source, goal: int | float | Place, radius: float | None) -> tuple[Float[np.ndarray, " feature"], float]:
    """The goal's point and radius, checked."""
    if source.projection is None:
        raise ValueError("the dataset has no projection, so a goal has no features: relabel with a reward function instead")
    names, low, high = source.projection.names, source.projection.low, source.projection.high
    if maze := point_maze_of(source.world):
        place = place_in(maze, goal if isinstance(goal, Sequence) else (goal,))
        radius = maze.step_size if radius is None else radius
    else:
        place = np.atleast_1d(np.asarray(goal, np.float32))
        if place.shape != (len(names),) or not ((low <= place) & (place <= high)).all():
            raise ValueError(f"a goal is {' and '.join(names)} in {low} to {high}, not {goal}")
    if radius is None:
        raise ValueError("a goal needs a radius within which it is reached: give one, in units of the projection's scale")
    check_positive("the goal's radius", radius)
    return place, float(radius)
