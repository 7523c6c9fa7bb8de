"""Gridworlds as Gymnasium environments."""

import functools
import operator
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, SupportsIndex

import gymnasium
import numpy as np
from jaxtyping import Bool, Float, Int

from farflung.config import is_map_file
from farflung.config.checks import check_name
from farflung.worlds.as_gymnasium.rendering import Picture, Window, draw_agent, draw_map, draw_text
from farflung.worlds.gridworld import FREE, GOAL, START, WALL, Cell, gridworld, parse_map
from farflung.worlds.named import PAPER_MAPS, PAPER_SLIP, read_map
from farflung.worlds.tabular import TabularMDP

PathLike = os.PathLike[str]


@dataclass(frozen=True, eq=False)
class Board:
    """A map and its world as NumPy tables, so that a step needs no JAX."""

    world: TabularMDP
    cells: np.ndarray
    successors: Int[np.ndarray, "state action successor"]
    cumulative_probability: Float[np.ndarray, "state action successor"]
    rewards: Float[np.ndarray, "state action successor"]
    start_states: Int[np.ndarray, " start"]
    start_cumulative_probability: Float[np.ndarray, " start"]
    positions: Int[np.ndarray, "state 2"]
    is_goal: Bool[np.ndarray, " state"]

    @property
    def num_states(self) -> int:
        return len(self.successors)

    @property
    def num_actions(self) -> int:
        return self.successors.shape[1]

    @property
    def has_random_steps(self) -> bool:
        return self.successors.shape[2] > 1

    @property
    def has_random_starts(self) -> bool:
        return len(self.start_states) > 1

    def text(self, state: SupportsIndex) -> str:
        return draw_text(self.cells, self._cell(state))

    def picture(self, state: SupportsIndex) -> Picture:
        return draw_agent(self._background, self.cells, self._cell(state))

    def _cell(self, state: SupportsIndex) -> Cell:
        row, column = self.positions[state].tolist()
        return row, column

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
        goal = _cell(goal)
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
    try:
        return _board(text, None, slip, goal)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


@functools.lru_cache(maxsize=8)  # many copies of an environment share one board
def _board(text: str, horizon: int | None, slip: float, goal: Cell | None) -> Board:
    world = gridworld(text, slip=slip, horizon=horizon, goals=None if goal is None else [goal])
    cells, positions = parse_map(text), np.asarray(world.positions)
    if goal is not None:
        if goal not in map(tuple, positions.tolist()):
            raise ValueError(f"the goal {goal} cannot be reached from the start")
        cells[cells == GOAL] = FREE
        cells[goal] = GOAL
    successors, rewards = np.asarray(world.successors), np.asarray(world.rewards)
    is_goal = np.zeros(world.num_states, bool)
    is_goal[successors[rewards > 0]] = True
    return Board(
        world=world,
        cells=cells,
        successors=successors,
        cumulative_probability=np.asarray(world.cumulative_probability),
        rewards=rewards,
        start_states=np.asarray(world.start_states),
        start_cumulative_probability=np.asarray(world.start_cumulative_probability),
        positions=positions,
        is_goal=is_goal,
    )


def _cell(goal: Sequence[SupportsIndex]) -> Cell:
    try:
        row, column = map(operator.index, goal)
    except (TypeError, ValueError):
        raise ValueError(f"goal is a row and a column, not {goal!r}") from None
    return row, column


def warn_of_no_render_mode() -> None:
    gymnasium.logger.warn("render() does nothing without a render_mode: choose one when you make the environment")


class GridEnv(gymnasium.Env[Any, Any]):
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
        if render_mode is not None:
            check_name("render_mode", render_mode, self.metadata["render_modes"])
        self.render_mode = render_mode
        self.board = make_board(self.paper_map, map, stochastic=stochastic, slip=slip, goal=goal)
        self.observation_space = gymnasium.spaces.Discrete(self.board.num_states)
        self.action_space = gymnasium.spaces.Discrete(self.board.num_actions)
        self._window = Window("farflung", self.metadata["render_fps"]) if render_mode == "human" else None

    @property
    def world(self) -> TabularMDP:
        return self.board.world

    @functools.cached_property
    def P(self) -> dict[int, dict[int, list[tuple[float, int, float, bool]]]]:  # noqa: N802
        """Gymnasium's toy-text format: for each state and action, (probability, next state, reward, is terminated)."""
        board = self.board
        probabilities = np.diff(board.cumulative_probability.astype(np.float64), prepend=0.0)
        table = zip(probabilities, board.successors, board.rewards, board.is_goal[board.successors], strict=True)
        return {
            state: {
                action: [outcome for outcome in zip(*(row.tolist() for row in rows), strict=True) if outcome[0] > 0]
                for action, rows in enumerate(zip(*columns, strict=True))
            }
            for state, columns in enumerate(table)
        }

    @functools.cached_property
    def initial_state_distrib(self) -> Float[np.ndarray, " state"]:
        distribution = np.zeros(self.board.num_states)
        distribution[self.board.start_states] = np.diff(self.board.start_cumulative_probability.astype(np.float64), prepend=0.0)
        return distribution

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        start = self._pick(self.board.start_cumulative_probability) if self.board.has_random_starts else 0
        self.state = int(self.board.start_states[start])
        self._show()
        return self.state, self._info()

    def step(self, action: SupportsIndex) -> tuple[int, float, bool, bool, dict[str, Any]]:
        action = operator.index(action)
        if not 0 <= action < self.board.num_actions:
            raise ValueError(f"an action is 0 (left), 1 (down), 2 (right) or 3 (up), not {action}")
        row = (self.state, action)
        outcome = self._pick(self.board.cumulative_probability[row]) if self.board.has_random_steps else 0
        self.state = int(self.board.successors[row][outcome])
        self._show()
        reward, is_terminated = float(self.board.rewards[row][outcome]), bool(self.board.is_goal[self.state])
        return self.state, reward, is_terminated, False, self._info()

    def render(self) -> str | Picture | None:
        if self.render_mode is None:
            warn_of_no_render_mode()
            return None
        if self.render_mode == "human":
            self._show()
            return None
        return self.board.text(self.state) if self.render_mode == "ansi" else self.board.picture(self.state)

    def close(self) -> None:
        if self._window is not None:
            self._window.close()

    def _pick(self, cumulative: Float[np.ndarray, " outcome"]) -> int:
        return int(cumulative[:-1].searchsorted(self.np_random.random(), side="right"))

    def _info(self) -> dict[str, Any]:
        return {"position": self.board.positions[self.state].copy()}

    def _show(self) -> None:
        if self._window is not None:
            self._window.show(self.board.picture(self.state))


class RoomEnv(GridEnv):
    """The paper's Room, or another map."""

    paper_map = "room"


class MazeEnv(GridEnv):
    """The paper's Maze, or another map."""

    paper_map = "maze"
