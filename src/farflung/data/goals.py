"""Relabelling: the same episodes for another task, which is a goal or a reward function."""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from jaxtyping import Float
from numpy.typing import ArrayLike

from farflung.config.checks import check_positive
from farflung.config.imports import import_object, name_of
from farflung.config.reading import reason, where_raised
from farflung.data.episodes import Dataset, Source, cut
from farflung.data.sources import WRAPPERS, installed, spec_to_json, wrapped
from farflung.worlds.as_gymnasium.point import place_in
from farflung.worlds.as_gymnasium.tasks import PaidBy, ReachGoal
from farflung.worlds.point_maze import POINT_MAZE

_MAPS = ("farflung/Room-v0", "farflung/Maze-v0", "farflung/Grid-v0")
_TASK = ("goal", "goal_radius", "reward")

Reward = Callable[[np.ndarray, np.ndarray, np.ndarray], ArrayLike]
"""A function from the observations, actions and next observations of many steps to the reward of each step."""

Place = Sequence[int] | Sequence[float]
"""A goal as a user gives it."""


def relabel(
    dataset: Dataset,
    *,
    goal: int | Place | None = None,
    goal_radius: float | None = None,
    reward: Reward | str | None = None,
) -> Dataset:
    """The same episodes for another task; the environment that is recovered from the dataset has the same task.

    Args:
        goal: an observation, or its row and column in a map; if observations are vectors, a point of the projection's
            features. Reaching the goal pays 1 and ends the episode, every other step pays 0.
        goal_radius: distance within which a vector has reached the goal, in units of the projection's scale; in a point maze
            by default the size of a step.
        reward: a function that gives the reward of each step, or its MODULE:NAME; the episodes keep their lengths. The
            environment keeps its own rewards if Python cannot import the function again, as with a lambda.
    """
    if (goal is None) == (reward is None):
        raise ValueError("relabel takes either a goal or a reward, not both or none")
    if reward is not None:
        return _paid_by(dataset, reward)
    assert goal is not None
    source = dataset.source
    if dataset.has_vectors:
        place, radius = place_at(source, goal, goal_radius)
        assert source.projection is not None
        arrives = np.asarray(source.projection.distances(dataset.observations[:, 1:], place)) <= np.float32(radius)
        aim: dict[str, Any] = {"goal": place.tolist(), "goal_radius": radius}
    else:
        if goal_radius is not None:
            raise ValueError("goal_radius needs observations that are vectors, and these are numbers: leave it out")
        aim = {"goal": observation_at(source, goal)}
        arrives = dataset.observations[:, 1:] == aim["goal"]
    about = {name: value for name, value in source.metadata.items() if name not in _TASK}
    source = dataclasses.replace(source, metadata=about | aim, environment=_with_goal(source, aim))
    rewards = (arrives & dataset.is_step).astype(np.float32)
    return cut(dataclasses.replace(dataset, rewards=rewards, source=source), arrives)


def _paid_by(dataset: Dataset, reward: Reward | str) -> Dataset:
    name, function = (reward, import_object(reward, "reward")) if isinstance(reward, str) else (name_of(reward), reward)
    steps, source = dataset.steps(), dataset.source
    try:
        found = np.asarray(function(steps.observations, steps.actions, steps.next_observations), np.float64)
    except Exception as error:  # it may raise anything
        raise ValueError(f"the reward function {name} fails: {where_raised(error)}: {reason(error)}") from error
    if found.shape != steps.rewards.shape:
        raise ValueError(f"the reward function must return {len(steps.rewards)} numbers, one for each step, not {found.shape}")
    if not np.isfinite(found).all():
        raise ValueError(f"the reward function must return finite numbers, and {np.count_nonzero(~np.isfinite(found))} are not")
    rewards = np.zeros_like(dataset.rewards)
    rewards[dataset.is_step] = found
    environment = source.environment
    if environment is not None and not name.startswith("custom:"):
        environment = wrapped(_without_task(environment), PaidBy, reward=name)
    source = dataclasses.replace(source, metadata={**source.metadata, "reward": name}, environment=environment)
    return dataclasses.replace(dataset, rewards=rewards, source=source)


def _with_goal(source: Source, aim: dict[str, Any]) -> str | None:
    """The specification of the environment with the goal: as its own option if it has one, or else by a wrapper."""
    if source.environment is None:
        return None
    plain = _without_task(source.environment)
    spec = installed(EnvSpec.from_json(plain))  # the file may name any program
    made = json.loads((None if spec is None else spec_to_json(spec)) or plain)
    if made["id"] == POINT_MAZE:
        made["kwargs"].update(aim)
        return json.dumps(made)
    world = None if source.world is None else source.world.table
    if (
        spec is not None
        and made["id"] in _MAPS
        and world is not None
        and world.positions is not None
        and not np.asarray(world.rewards).any()
    ):
        (state,) = np.flatnonzero(np.asarray(world.labels) == aim["goal"])
        with_option = {**made, "kwargs": {**made["kwargs"], "goal": np.asarray(world.positions)[state].tolist()}}
        with contextlib.suppress(ValueError):  # the goal may be the only start
            environment: Any = gymnasium.make(EnvSpec.from_json(json.dumps(with_option))).unwrapped
            # Where states can be reached only through the goal, the environment has fewer, with other numbers.
            if np.array_equal(environment.world.positions, world.positions):
                return json.dumps(with_option)
    if source.projection is not None:
        aim = {**aim, "projection": dataclasses.asdict(source.projection)}
    return wrapped(json.dumps(made), ReachGoal, **aim)


def _without_task(environment: str) -> str:
    """The specification without the wrapper of an earlier task."""
    made = json.loads(environment)
    made["additional_wrappers"] = [each for each in made["additional_wrappers"] if each["entry_point"] not in WRAPPERS]
    return json.dumps(made)


def observation_at(source: Source, goal: int | Place) -> int:
    """The observation that a user gives as its number, or as a row and a column of the map."""
    if not isinstance(goal, Sequence):
        return _checked_number(source, goal)
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


def _checked_number(source: Source, goal: int | float) -> int:
    if goal not in range(source.num_observations):
        raise ValueError(f"a goal is an observation from 0 to {source.num_observations - 1}, not {goal}")
    return int(goal)


def place_at(source: Source, goal: int | float | Place, radius: float | None) -> tuple[Float[np.ndarray, " feature"], float]:
    """The goal's point and radius, checked."""
    if source.projection is None:
        raise ValueError("the dataset has no projection, so a goal has no features: relabel with a reward function instead")
    names, low, high = source.projection.names, source.projection.low, source.projection.high
    if source.world is not None and (maze := source.world.maze) is not None:
        place = place_in(maze, goal if isinstance(goal, Sequence) else (goal,))
        radius = maze.step_size if radius is None else radius
    else:
        place = np.atleast_1d(np.asarray(goal, np.float32))
        if place.shape != (len(names),) or not ((low <= place) & (place <= high)).all():
            raise ValueError(f"a goal is {' and '.join(names)} in {low} to {high}, not {goal}")
    if radius is None:
        units = ", ".join(f"{scale:g} of {name}" for name, scale in zip(names, source.projection.scale, strict=True))
        raise ValueError(f"a goal needs a goal_radius within which it is reached: give one, where 1 stands for {units}")
    check_positive("goal_radius", radius)
    return place, float(radius)
