"""Gridworlds from maps drawn as text, and the two maps of the paper."""

from collections.abc import Sequence

import numpy as np

from farflung.config.checks import check_slip
from farflung.worlds.tabular import TabularMDP, tabular_mdp

ROOM = """
....###....
....###....
.....S.....
....###....
....###....
"""
"""The paper's Room, as text."""

MAZE = """
#...######
#...######
###.###...
..#.#####.
..#.#####.
......S...
..#.#####.
###.#####.
#...###...
#...######
"""
"""The paper's Maze, as text."""

WALL, FREE, START, GOAL = "#", ".", "S", "G"
MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))
"""The change of row and column by each action: left, down, right, up."""

Cell = tuple[int, int]


def gridworld(
    text: str,
    *,
    slip: float = 0.0,
    horizon: int | None = None,
    starts: Sequence[Cell] | None = None,
    goals: Sequence[Cell] | None = None,
) -> TabularMDP:
    """A world drawn as a map: `#` wall, `.` free, `S` start (several: uniform over them), `G` goal.

    A step into a wall or off the map leaves the agent where it is. Reaching a goal gives reward 1; goals are absorbing.

    >>> corridor = gridworld("S..")
    >>> corridor.num_states, corridor.horizon
    (3, 2)

    Args:
        slip: probability that one of the other three actions is executed instead of the chosen one.
        horizon: number of actions in an episode (default: enough to reach the farthest cell).
        starts: (row, column) of the start cells (default: the cells marked `S`).
        goals: (row, column) of the goal cells (default: the cells marked `G`).
    """
    check_slip(slip)
    cells = parse_map(text)
    rows, columns = cells.shape
    is_wall = cells == WALL
    is_start = cells == START if starts is None else _chosen(is_wall, starts, "start")
    is_goal = cells == GOAL if goals is None else _chosen(is_wall, goals, "goal")
    if not is_start.any():
        raise ValueError(f"the map has no start: mark at least one cell with '{START}'")
    if (is_start & is_goal).any():
        raise ValueError("a start cell cannot be a goal: an episode would end before its first action")

    here = np.arange(cells.size).reshape(cells.shape)
    padded = np.pad(here, 1, constant_values=-1)
    targets = []
    for down, right in MOVES:
        there = padded[1 + down : 1 + down + rows, 1 + right : 1 + right + columns]
        is_blocked = (there < 0) | is_wall.reshape(-1)[there]
        targets.append(np.where(is_blocked | is_goal, here, there).reshape(-1))
    moved = np.stack(targets, axis=-1)

    num_actions = len(MOVES)
    successors = np.broadcast_to(moved[:, None, :], (cells.size, num_actions, num_actions))
    outcome = np.where(np.eye(num_actions, dtype=bool), 1 - slip, slip / (num_actions - 1))
    arrives = is_goal.reshape(-1)[successors] & ~is_goal.reshape(-1)[:, None, None]
    return tabular_mdp(
        successors,
        np.broadcast_to(outcome, successors.shape),
        is_start.reshape(-1) / is_start.sum(),
        horizon,
        rewards=arrives.astype(np.float64),
        positions=np.stack(np.unravel_index(here.reshape(-1), cells.shape), axis=-1),
    )


def parse_map(text: str) -> np.ndarray:
    """The characters of a map, one per cell; raises ValueError if the text is not a map."""
    lines = text.strip("\r\n").splitlines()
    if not lines or not any(lines):
        raise ValueError("the map is empty")
    widths = [len(line) for line in lines]
    if len(set(widths)) > 1:
        row = next(row for row, width in enumerate(widths) if width != widths[0])
        raise ValueError(f"the map is ragged: line {row + 1} has {widths[row]} cells, line 1 has {widths[0]}")
    cells = np.array([list(line) for line in lines])
    unknown = ~np.isin(cells, [WALL, FREE, START, GOAL])
    if unknown.any():
        row, column = np.argwhere(unknown)[0]
        character = str(cells[row, column])
        raise ValueError(f"unknown character {character!r} in line {row + 1}, column {column + 1} of the map: use # . S G")
    return cells


def _chosen(is_wall: np.ndarray, chosen: Sequence[Cell], name: str) -> np.ndarray:
    mask = np.zeros_like(is_wall)
    for row, column in chosen:
        if not (0 <= row < is_wall.shape[0] and 0 <= column < is_wall.shape[1]):
            raise ValueError(f"the {name} ({row}, {column}) is off the map of {is_wall.shape[0]} x {is_wall.shape[1]} cells")
        if is_wall[row, column]:
            raise ValueError(f"the {name} ({row}, {column}) is in a wall")
        mask[row, column] = True
    return mask
