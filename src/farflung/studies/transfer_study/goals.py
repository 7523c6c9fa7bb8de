"""The worlds of a transfer study, and the goals in them that no exploration has seen."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from farflung.algorithms.task import Goal
from farflung.data.maze_goals import spread_goals
from farflung.worlds.gridworld import gridworld
from farflung.worlds.named import make_world
from farflung.worlds.tabular import reachable_states

CORRIDORS = """
....#....#....
.##...##...##.
....#....#....
#.####.#####.#
....#....#....
.##....S...##.
....#....#....
#.#####.####.#
....#....#....
.##...##...##.
....#....#....
"""
DOOR_KEY = """
######
#....#
#.#..#
#S#..#
#.#..#
######
"""
"""The cells of layout 1 of XLand-MiniGrid's DoorKey-6x6: the door is in the second column of the first row that is free, and
the key in the cell below the start."""
_DOOR_KEY_NAME = "xminigrid:MiniGrid-DoorKey-6x6"
_HORIZONS = {"maze-stoc": 20, "point-maze": 80, "door-key": 60}
"""Longer episodes in both mazes, whose own leave no time to go astray on the way to the farthest cell; shorter ones than
DoorKey's 200."""
_LEAST_BEST = 0.9


class StudyWorld(NamedTuple):
    """A world of the study."""

    name: str
    """What `farflung.make_world` calls it, if it knows it."""
    world: Any
    goals: np.ndarray
    """States, or rows of two features and a radius."""
    num_cells: int
    """The cells of MAP-Elites' grid that can be reached."""

    @property
    def is_neural(self) -> bool:
        return self.world.projection is not None

    @property
    def places(self) -> Float[np.ndarray, "goal 2"]:
        """The goals on the plane of MAP-Elites' grid."""
        return self.goals[:, :2] if self.is_neural else np.asarray(self.world.positions, np.float32)[self.goals]


def make_study_world(name: str, num_goals: int) -> StudyWorld:
    """A world of the study with its goals, which are not near the start and the same in every run."""
    if name == "door-key":
        world: Any = make_world(_DOOR_KEY_NAME, horizon=_HORIZONS[name])
        cells = gridworld(DOOR_KEY, horizon=1)
        return StudyWorld(_DOOR_KEY_NAME, world, _behind_the_door(world, cells, num_goals), cells.num_states)
    is_named = name != "corridors"
    world = make_world(name, horizon=_HORIZONS.get(name)) if is_named else gridworld(CORRIDORS, slip=0.1, horizon=30)
    if world.projection is None:
        # No command knows the corridors by name.
        return StudyWorld(name if is_named else f"custom:{name}", world, _states(world, num_goals), world.num_states)
    return StudyWorld(name, world, _points(world, num_goals), int(world.is_free.sum()))


def task_of(goal: ArrayLike) -> Goal:
    """The task of reaching a goal."""
    numbers = np.asarray(goal)
    if numbers.ndim == 0:
        return Goal(numbers.astype(np.int32))
    return Goal(numbers[:2].astype(np.float32), numbers[2].astype(np.float32))


def _states(world: Any, number: int) -> np.ndarray:
    """States that the best policy reaches with a probability of at least 0.9, in the farther half."""
    apart = moves_from_start(world)
    can_be_solved = best_success(world) >= _LEAST_BEST
    return _drawn(np.flatnonzero(can_be_solved & (apart >= 0.5 * apart[can_be_solved].max())), number)


def _points(world: Any, number: int) -> np.ndarray:
    """Points that are spread over a maze, in the farther half."""
    places, radius = spread_goals(world, 5 * number)
    start = np.array(world.starts).reshape(-1, 2, 2).mean(axis=(0, 2))
    apart = np.linalg.norm(places - start, axis=1)
    rows = _drawn(np.flatnonzero(apart >= np.median(apart)), number)
    return np.column_stack([places[rows], np.full(len(rows), radius)]).astype(np.float32)


def _behind_the_door(world: Any, cells: Any, number: int) -> np.ndarray:
    """Cells at least two moves from the start, most of them behind the door; columns before rows, as the world's features."""
    drawn = _drawn(np.flatnonzero(moves_from_start(cells) >= 2), number)
    places = np.asarray(cells.positions)[drawn][:, ::-1]
    return np.column_stack([places, np.full(len(places), 0.5 / max(world.projection.scale))]).astype(np.float32)


def _drawn(candidates: np.ndarray, number: int) -> np.ndarray:
    return np.sort(np.random.default_rng(0).choice(candidates, min(number, len(candidates)), replace=False))


def best_success(world: Any) -> Float[np.ndarray, " goal"]:
    """The largest probability with which any policy reaches each state within an episode, by dynamic programming."""
    successors, probabilities = np.asarray(world.successors), np.asarray(world.probabilities, np.float64)
    reached = np.eye(world.num_states)  # [goal, state]
    for _ in range(world.horizon):
        ahead = np.sum(probabilities * reached[:, successors], axis=-1).max(axis=-1)
        reached = np.maximum(ahead, np.eye(world.num_states))
    return reached @ np.asarray(world.start_distribution)


def moves_from_start(world: Any) -> Int[np.ndarray, " state"]:
    """The least number of actions from a start to each state; all states of a map can be reached."""
    tables = (world.successors, world.probabilities, world.start_distribution)
    return reachable_states(*map(np.asarray, tables))[1]
