"""Many copies of a gridworld as one Gymnasium vector environment, which steps all of them at once."""

from collections.abc import Sequence
from typing import Any, ClassVar, SupportsIndex

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool, Float, Int, Integer
from numpy.typing import ArrayLike

from farflung.config.checks import whole_number
from farflung.worlds.as_gymnasium.grid import PathLike, make_board
from farflung.worlds.as_gymnasium.rendering import Picture, check_render_mode, warn_of_no_render_mode

_BLOCK = 32
_UNLIMITED = -1


class GridVectorEnv(VectorEnv[Any, Any, Any]):
    """Copies of `GridEnv`, each of which behaves exactly as a `GridEnv` with the same seed.

    Args:
        num_envs: number of copies.
        map, stochastic, slip, goal: as in `GridEnv`, for all copies.
        render_mode: `rgb_array` or `ansi`.
        max_episode_steps: number of actions after which an episode is truncated; -1 or None for no limit.
        autoreset_mode: whether a copy whose episode has ended is reset in the next step, in the same step, or by you.
    """

    paper_map: ClassVar[str | None] = None

    def __init__(
        self,
        num_envs: int = 1,
        map: str | PathLike | None = None,  # noqa: A002
        *,
        stochastic: bool = False,
        slip: float | None = None,
        goal: Sequence[SupportsIndex] | None = None,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    ) -> None:
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {"render_modes": ["rgb_array", "ansi"], "render_fps": 4, "autoreset_mode": self.autoreset_mode}
        check_render_mode(self, render_mode)
        self.num_envs = whole_number("num_envs", num_envs)
        is_limited = max_episode_steps is not None and max_episode_steps != _UNLIMITED
        self._limit = whole_number("max_episode_steps", max_episode_steps) if is_limited else np.inf
        self.board = make_board(self.paper_map, map, stochastic=stochastic, slip=slip, goal=goal)
        self.world, self._tables = self.board.world, self.board.tables
        self.single_observation_space = gymnasium.spaces.Discrete(self.world.num_states)
        self.single_action_space = gymnasium.spaces.Discrete(self.world.num_actions)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._streams = _Streams(self.num_envs)
        self._is_started = False
        self._states = np.zeros(self.num_envs, np.int64)
        self._num_steps = np.zeros(self.num_envs, np.int64)
        self._has_ended = np.zeros(self.num_envs, bool)

    @property
    def np_random_seed(self) -> tuple[int | None, ...]:  # type: ignore[override]
        """The seed of each copy; None if it has none yet."""
        return tuple(self._streams.seeds)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Int[np.ndarray, " copy"], dict[str, Any]]:
        """Starts new episodes in all copies, or in those selected by `options["reset_mask"]`.

        Args:
            seed: one seed per copy, or the seed of the first copy, from which the others count up.
        """
        seeds, chosen = self._seeds(seed), self._chosen(options)
        self._streams.seed(np.flatnonzero(chosen), seeds)
        self._start(chosen)
        self._is_started = True
        return self._states.copy(), self._info(chosen)

    def step(self, actions: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        actions = self._checked(actions)
        if not self._is_started:
            raise ResetNeeded("reset the copies before their first step")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._has_ended.any():
            num_ended = np.count_nonzero(self._has_ended)
            raise ResetNeeded(f"the episodes of {num_ended} copies have ended: reset them with options['reset_mask']")
        waiting = self._has_ended
        moving = np.flatnonzero(~waiting)
        rewards = np.zeros(self.num_envs)
        rewards[moving] = self._move(moving, actions[moving])
        self._start(waiting)
        is_terminated = self.board.is_goal[self._states]
        is_truncated = self._num_steps >= self._limit
        self._has_ended = is_terminated | is_truncated
        infos: dict[str, Any] = {}
        if self.autoreset_mode is AutoresetMode.SAME_STEP and self._has_ended.any():
            ended = self._has_ended
            final_states = np.full(self.num_envs, None)
            final_states[ended] = self._states[ended]
            infos = {"final_obs": final_states, "final_info": self._info(ended)}
            infos |= {"_final_obs": ended, "_final_info": ended.copy()}
            self._start(ended)
        return self._states.copy(), rewards, is_terminated, is_truncated, infos | self._info(np.ones(self.num_envs, bool))

    def render(self) -> tuple[str | Picture, ...] | None:
        if self.render_mode is None:
            warn_of_no_render_mode()
            return None
        draw = self.board.text if self.render_mode == "ansi" else self.board.picture
        return tuple(draw(state) for state in self._states)

    def _move(
        self, copies: Int[np.ndarray, " moving"], actions: Integer[np.ndarray, " moving"]
    ) -> Float[np.ndarray, " moving"]:
        row = (self._states[copies], actions)
        outcomes = np.zeros(len(copies), np.int64)
        if self._tables.num_step_uniforms:
            outcomes = _pick(self._tables.cumulative_probability[row], self._streams.draw(copies))
        self._states[copies] = self._tables.successors[(*row, outcomes)]
        self._num_steps[copies] += 1
        return self._tables.rewards[(*row, outcomes)]

    def _start(self, chosen: Bool[np.ndarray, " copy"]) -> None:
        copies = np.flatnonzero(chosen)
        starts = np.zeros(len(copies), np.int64)
        if self._tables.num_reset_uniforms:
            starts = _pick(self._tables.start_cumulative_probability, self._streams.draw(copies))
        self._states[copies] = self._tables.start_states[starts]
        self._num_steps[copies] = 0
        self._has_ended = self._has_ended & ~chosen

    def _info(self, chosen: Bool[np.ndarray, " copy"]) -> dict[str, Any]:
        positions = np.where(chosen[:, None], self._tables.positions[self._states], 0)
        return {"position": positions, "_position": chosen.copy()}

    def _seeds(self, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
        if seed is None:
            return [None] * self.num_envs
        seeds = range(seed, seed + self.num_envs) if isinstance(seed, int) else seed
        if len(seeds) != self.num_envs:
            raise ValueError(f"{self.num_envs} copies need {self.num_envs} seeds, not {len(seeds)}")
        return seeds

    def _chosen(self, options: dict[str, Any] | None) -> Bool[np.ndarray, " copy"]:
        chosen = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        if not isinstance(chosen, np.ndarray) or chosen.dtype != bool or chosen.shape != (self.num_envs,) or not chosen.any():
            raise ValueError(f"reset_mask is an array of {self.num_envs} booleans, at least one of them True, not {chosen!r}")
        if not self._is_started and not chosen.all():
            raise ResetNeeded("the first reset must be of all copies")
        return chosen

    def _checked(self, actions: ArrayLike) -> Integer[np.ndarray, " copy"]:
        array = np.asarray(actions)
        if array.shape != (self.num_envs,) or not np.issubdtype(array.dtype, np.integer):
            raise ValueError(f"{self.num_envs} copies need {self.num_envs} whole numbers as actions, not {actions!r}")
        if array.min() < 0 or array.max() >= self._tables.num_actions:
            raise ValueError(f"an action is 0 (left), 1 (down), 2 (right) or 3 (up), not {array.min()} to {array.max()}")
        return array


class RoomVectorEnv(GridVectorEnv):
    """Copies of the paper's Room, or of another map."""

    paper_map = "room"


class MazeVectorEnv(GridVectorEnv):
    """Copies of the paper's Maze, or of another map."""

    paper_map = "maze"


class _Streams:
    """Uniform numbers from one generator per copy, drawn in blocks but in the order of single draws."""

    def __init__(self, num_copies: int) -> None:
        self.seeds: list[int | None] = [None] * num_copies
        self._generators: list[np.random.Generator | None] = [None] * num_copies
        self._numbers = np.empty((num_copies, _BLOCK))
        self._num_used = np.full(num_copies, _BLOCK)

    def seed(self, copies: Int[np.ndarray, " chosen"], seeds: Sequence[int | None]) -> None:
        """Gives a new generator to each copy that has a new seed, or no generator yet."""
        for copy in copies.tolist():
            if seeds[copy] is not None or self._generators[copy] is None:
                self._generators[copy], self.seeds[copy] = seeding.np_random(seeds[copy])
                self._num_used[copy] = _BLOCK

    def draw(self, copies: Int[np.ndarray, " chosen"]) -> Float[np.ndarray, " chosen"]:
        """The next number of each of the copies."""
        for copy in copies[self._num_used[copies] == _BLOCK].tolist():
            self._generators[copy].random(out=self._numbers[copy])
            self._num_used[copy] = 0
        numbers = self._numbers[copies, self._num_used[copies]]
        self._num_used[copies] += 1
        return numbers


def _pick(cumulative: Float[np.ndarray, "*copies outcome"], uniforms: Float[np.ndarray, " copy"]) -> Int[np.ndarray, " copy"]:
    return np.sum(uniforms[:, None] >= cumulative[..., :-1], axis=-1)
