"""Episodes for another task: a goal to arrive at, or any reward for steps."""

import dataclasses
import json
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from farflung.config.checks import check_positive
from farflung.data.episodes import Dataset, Source, cut
from farflung.worlds.as_gymnasium.point import place_in
from farflung.worlds.point_maze import POINT_MAZE
from farflung.worlds.projection import Projection

Reward = Callable[[np.ndarray, np.ndarray, np.ndarray], ArrayLike]
"""What steps pay: a function of the observations, the actions and the next observations of many steps at once."""

Place = Sequence[int] | Sequence[float]


def relabel(
    dataset: Dataset,
    *,
    goal: int | Place | None = None,
    radius: float | None = None,
    reward: Reward | None = None,
) -> Dataset:
    """The same episodes for another task.

    Args:
        goal: an observation, or where these are vectors a point of the projection's features; to arrive there pays 1 and ends
            the episode, everything else pays 0.
        radius: how near a vector must come, in units of the projection's scale; in a point maze by default a step's size.
        reward: what steps pay; the episodes stay as they are.
    """
    if (goal is None) == (reward is None):
        raise ValueError("relabel takes either a goal or a reward")
    if reward is not None:
        return _paid(dataset, reward)
    assert goal is not None
    if dataset.has_vectors:
        place, radius = _place(dataset.source, goal, radius)
        assert dataset.source.projection is not None
        arrives = distances(dataset.source.projection, dataset.observations[:, 1:], place) <= np.float32(radius)
        source = _with_place(dataset.source, place.tolist(), radius)
    else:
        if radius is not None:
            raise ValueError("a radius is for observations that are vectors: others are the goal or not")
        number = _checked_number(dataset.source, goal)
        arrives = dataset.observations[:, 1:] == number
        source = dataclasses.replace(dataset.source, metadata={**dataset.source.metadata, "goal": number})
    paid = (arrives & dataset.is_step).astype(np.float32)
    return cut(dataclasses.replace(dataset, rewards=paid, source=source), arrives)


def observation_at(source: Source, goal: Place) -> int:
    """The observation that a user means by its number, or by a row and a column of the map."""
    if len(goal) == 1:
        return _checked_number(source, goal[0])
    if len(goal) != 2:
        raise ValueError(f"a goal is a row and a column, or one observation, not {len(goal)} numbers")
    if source.world is None or source.world.table is None or source.world.positions is None:
        raise ValueError("this world is no map: give the goal as one observation instead of a row and a column")
    (found,) = np.nonzero((np.asarray(source.world.positions) == np.asarray(goal)).all(axis=1))
    if not len(found):
        raise ValueError(f"the goal ({goal[0]:g}, {goal[1]:g}) is no cell that can be reached from the start")
    return int(source.world.labels[int(found[0])])


def distances(
    projection: Projection, observations: Float[np.ndarray, "*axes observation"], place: Float[np.ndarray, " feature"]
) -> Float[np.ndarray, "*axes"]:
    """How far vectors are from a place, each feature in units of its scale, angles as points on a circle."""
    apart = np.array(projection.project(jnp.asarray(observations))) - place
    angles = list(projection.angles)
    apart[..., angles] = 2 * np.sin(apart[..., angles] / 2)
    return np.linalg.norm(apart / np.asarray(projection.scale, np.float32), axis=-1)


def _paid(dataset: Dataset, reward: Reward) -> Dataset:
    steps = dataset.steps()
    found = np.asarray(reward(steps.observations, steps.actions, steps.next_observations), np.float64)
    if found.shape != steps.rewards.shape:
        raise ValueError(f"the reward function must return {len(steps.rewards)} numbers, one for each step, not {found.shape}")
    rewards = np.zeros(dataset.rewards.shape, dataset.rewards.dtype)
    rewards[dataset.is_step] = found
    return dataclasses.replace(dataset, rewards=rewards)


def _checked_number(source: Source, goal: int | float | Place) -> int:
    if isinstance(goal, Sequence) or goal not in range(source.num_observations):
        raise ValueError(f"a goal is an observation from 0 to {source.num_observations - 1}, not {goal}")
    return int(goal)


def _place(source: Source, goal: int | float | Place, radius: float | None) -> tuple[Float[np.ndarray, " feature"], float]:
    """Where a goal is and how near one must come, if there is such a place."""
    if source.projection is None:
        raise ValueError("nothing says which features of these observations a goal is given in: relabel with a reward")
    names, low, high = source.projection.names, source.projection.low, source.projection.high
    if source.world is not None and source.world.starts:
        place = place_in(source.world, goal if isinstance(goal, Sequence) else (goal,))
        radius = source.world.step_size if radius is None else radius
    else:
        place = np.atleast_1d(np.asarray(goal, np.float32))
        if place.shape != (len(names),) or not ((low <= place) & (place <= high)).all():
            raise ValueError(f"a goal is {' and '.join(names)} in {low} to {high}, not {goal}")
    if radius is None:
        raise ValueError("how near is it to have arrived? Give a radius for the goal, in units of the projection's scale")
    check_positive("the goal's radius", radius)
    return place, float(radius)


def _with_place(source: Source, place: list[float], radius: float) -> Source:
    """The source with a goal, and with an environment that pays for it where we have one."""
    environment = None if source.environment is None else json.loads(source.environment)
    if environment is not None and environment["id"] == POINT_MAZE:
        environment["kwargs"].update(goal=place, goal_radius=radius)
    return dataclasses.replace(
        source,
        environment=None if environment is None else json.dumps(environment),
        metadata={**source.metadata, "goal": place, "goal_radius": radius},
    )
