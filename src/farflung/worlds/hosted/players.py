"""Who plays in the copies of a simulator, and what is kept of that."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from farflung.worlds.hosted.indexing import StateIndex

OVER = -1
"""The state after an episode has ended."""


@runtime_checkable
class Player(Protocol):
    """Who plays episodes: what is kept of each observation, and which action follows."""

    horizon: int

    def blank(self, num_episodes: int) -> tuple[np.ndarray, np.ndarray]:
        """States [episode, times, ...] and actions [episode, time, ...] to be filled in; states as they are after an end."""

    def see(self, observations: Any) -> np.ndarray:
        """What is kept of the observations of all copies."""

    def is_sound(self, seen: np.ndarray) -> Bool[np.ndarray, " copy"]:
        """Whether that can be learnt from."""

    def act(
        self, seen: np.ndarray, episodes: Int[np.ndarray, " copy"], times: Int[np.ndarray, " copy"]
    ) -> tuple[np.ndarray, np.ndarray]:
        """An action for each copy, as it is kept and as the simulator is told, in the given episode (-1 for none) and time."""


class Episodes(NamedTuple):
    """What was played, one row for each episode."""

    states: Int[np.ndarray, "episode times"] | Float[np.ndarray, "episode times observation"]
    """`OVER`, or where they are vectors not a number, after an early end."""
    actions: Int[np.ndarray, "episode time"] | Float[np.ndarray, "episode time action"]
    rewards: Float[np.ndarray, "episode time"]
    is_terminated: Bool[np.ndarray, " episode"]
    """Whether the simulator itself ended it, and not a limit on its length."""
    broken: Int[np.ndarray, " episode"]
    """The step after which the simulator gave a state that is not finite, which ended it; 0 if none."""


class TablePlayer:
    """Plays by tables: each action is where a uniform number falls among cumulative probabilities.

    A state that is not in the tables yet is treated as their last one.
    """

    def __init__(
        self,
        index: StateIndex,
        actions: np.ndarray,
        thresholds: Float[np.ndarray, "policy step row action"],
        policies: Int[np.ndarray, " episode"],
        noise: Float[np.ndarray, "episode time"],
    ) -> None:
        """
        Args:
            actions: what the simulator takes for the number of each.
            thresholds: with a time axis of length 1 if they are always the same.
            policies: whose policy plays an episode.
        """
        self.horizon = noise.shape[1]
        self._index, self._actions, self._noise = index, actions, noise
        num_times, self._num_rows, num_actions = thresholds.shape[1:]
        self._table = np.ascontiguousarray(thresholds[..., :-1]).reshape(-1, num_actions - 1)
        self._first_rows = policies * (num_times * self._num_rows)
        self._rows_per_step = self._num_rows if num_times > 1 else 0

    def blank(self, num_episodes: int) -> tuple[np.ndarray, np.ndarray]:
        return np.full((num_episodes, self.horizon + 1), OVER, np.int32), np.zeros((num_episodes, self.horizon), np.int32)

    def see(self, observations: Any) -> np.ndarray:
        return self._index(observations)

    def is_sound(self, seen: np.ndarray) -> Bool[np.ndarray, " copy"]:
        return np.ones(len(seen), bool)

    def act(self, seen: np.ndarray, episodes: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = self._first_rows[episodes] + times * self._rows_per_step + np.minimum(seen, self._num_rows - 1)
        chosen = np.count_nonzero(self._noise[episodes, times, None] >= self._table[rows], axis=1)
        return chosen, self._actions[chosen]
