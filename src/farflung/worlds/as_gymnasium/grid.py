"""Gridworlds as Gymnasium environments."""

import functools
import operator
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, SupportsIndex

import gymnasium
import jax
import numpy as np
from jaxtyping import Bool, Float

from farflung.config import is_map_file
from farflung.config.reading import one_line_errors
from farflung.worlds.as_gymnasium.rendering import DrawnEnv, Picture, draw_agent, draw_map, draw_text
from farflung.worlds.gridworld import FREE, GOAL, START, WALL, Cell, gridworld, parse_map
from farflung.worlds.named import PAPER_MAPS, PAPER_SLIP, read_map
from farflung.worlds.tabular import TabularMDP

PathLike = os.PathLike[str]


@dataclass(frozen=True, eq=False)
class Board:
    """A map and its world, so that a step needs no JAX."""

    world: TabularMDP
    cells: np.ndarray
    tables: Any
    """The world with NumPy arrays in place of JAX's."""
    is_goal: Bool[np.ndarray, " state"]

    def text(self, state: SupportsIndex) -> str:
        return draw_text(self.cells, tuple(self.tables.positions[state].tolist()))

    def picture(self, state: SupportsIndex) -> Picture:
        return draw_agent(self._background, self.cells, tuple(self.tables.positions[state].tolist()))

    @functools.cached_property
    def _background(self) -> Picture:
        return draw_map(self.cells)


def make_board(
    paper_map: str | None,
    chosen_map: str | PathLike | None,
    *,
    stochastic: bool,
    slip: float | None,
    goal: Sequence[SupportsIndex] | None,
) -> Board:
    """The board for the options of an environment."""
    if slip is None:
        slip = PAPER_SLIP["stoc" if stochastic else "det"]
    if goal is not None:
        try:
            row, column = map(operator.index, goal)
        except (TypeError, ValueError):
            raise ValueError(f"goal is a row and a column, not {goal!r}") from None
        goal = (row, column)
    if chosen_map is None:
        if paper_map is None:
            raise ValueError("a map is needed: give map, its text or the path of a file")
        return _board(*PAPER_MAPS[paper_map], slip, goal)
    name = os.fspath(chosen_map)
    if not is_map_file(name):
        if "\n" not in name and set(name) - {WALL, FREE, START, GOAL}:
            raise ValueError(f"{name!r} is neither the text of a map nor the path of a file")
        return _board(name, None, slip, goal)
    text = read_map(name)
    with one_line_errors(name):
        return _board(text, None, slip, goal)


@functools.lru_cache(maxsize=8)  # many copies of an environment share one board
def _board(text: str, horizon: int | None, slip: float, goal: Cell | None) -> Board:
    world = gridworld(text, slip=slip, horizon=horizon, goals=None if goal is None else [goal])
    cells, tables = parse_map(text), jax.tree.map(np.asarray, world)
    if goal is not None:
        if goal not in map(tuple, tables.positions.tolist()):
            raise ValueError(f"the goal {goal} cannot be reached from the start")
        cells[cells == GOAL] = FREE
        cells[goal] = GOAL
    is_goal = np.zeros(world.num_states, bool)
    is_goal[tables.successors[tables.rewards > 0]] = True
    return Board(world, cells, tables, is_goal)


class GridEnv(DrawnEnv):
    """A gridworld from a map: `#` wall, `.` free, `S` start (several: uniform over them), `G` goal.

    An observation is the index of a state of `world`; the actions are left, down, right and up; `info["position"]` is the row
    and the column. Reaching a goal gives reward 1 and ends the episode; all other rewards are 0.

    Args:
        map: the text of a map, or the path of a file (default: the paper's map).
        stochastic: whether another action than the chosen one is executed with the paper's probability of 0.2.
        slip: another value for that probability.
        goal: row and column of the goal (default: the cells marked `G`).
        render_mode: `human` (a window), `rgb_array` or `ansi` (text).
    """

    metadata = {"render_modes": ["human", "rgb_array", "ansi"], "render_fps": 4}  # noqa: RUF012
    paper_map: ClassVar[str | None] = None
    state: int

    def __init__(
        self,
        map: str | PathLike | None = None,  # noqa: A002
        *,
        stochastic: bool = False,
        slip: float | None = None,
        goal: Sequence[SupportsIndex] | None = None,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.board = make_board(self.paper_map, map, stochastic=stochastic, slip=slip, goal=goal)
        self.world = self.board.world
        self.observation_space = gymnasium.spaces.Discrete(self.world.num_states)
        self.action_space = gymnasium.spaces.Discrete(self.world.num_actions)

    @functools.cached_property
    def P(self) -> dict[int, dict[int, list[tuple[float, int, float, bool]]]]:  # noqa: N802
        """Gymnasium's toy-text format: for each state and action, (probability, next state, reward, is terminated)."""
        tables = self.board.tables
        probabilities = np.diff(np.asarray(tables.cumulative_probability, np.float64), prepend=0.0)
        table = zip(probabilities, tables.successors, tables.rewards, self.board.is_goal[tables.successors], strict=True)
        return {
            state: {
                action: [outcome for outcome in zip(*(row.tolist() for row in rows), strict=True) if outcome[0] > 0]
                for action, rows in enumerate(zip(*columns, strict=True))
            }
            for state, columns in enumerate(table)
        }

    @functools.cached_property
    def initial_state_distrib(self) -> Float[np.ndarray, " state"]:
        tables, distribution = self.board.tables, np.zeros(self.world.num_states)
        distribution[tables.start_states] = np.diff(np.asarray(tables.start_cumulative_probability, np.float64), prepend=0.0)
        return distribution

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        tables = self.board.tables
        start = self._pick(tables.start_cumulative_probability) if tables.num_reset_uniforms else 0
        self.state = int(tables.start_states[start])
        self._show()
        return self.state, self._info()

    def step(self, action: SupportsIndex) -> tuple[int, float, bool, bool, dict[str, Any]]:
        action, tables = operator.index(action), self.board.tables
        if not 0 <= action < tables.num_actions:
            raise ValueError(f"an action is 0 (left), 1 (down), 2 (right) or 3 (up), not {action}")
        row = (self.state, action)
        outcome = self._pick(tables.cumulative_probability[row]) if tables.num_step_uniforms else 0
        self.state = int(tables.successors[row][outcome])
        self._show()
        reward, is_terminated = float(tables.rewards[row][outcome]), bool(self.board.is_goal[self.state])
        return self.state, reward, is_terminated, False, self._info()

    def render(self) -> str | Picture | None:
        return self.board.text(self.state) if self.render_mode == "ansi" else super().render()

    def _picture(self) -> Picture:
        return self.board.picture(self.state)

    def _pick(self, cumulative: Any) -> int:
        return int(cumulative[:-1].searchsorted(self.np_random.random(), side="right"))

    def _info(self) -> dict[str, Any]:
        return {"position": self.board.tables.positions[self.state].copy()}


class RoomEnv(GridEnv):
    """The paper's Room, or another map."""

    paper_map = "room"


class MazeEnv(GridEnv):
    """The paper's Maze, or another map."""

    paper_map = "maze"
