"""Choosing actions in the copies of an environment, and recording episodes."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from farflung.worlds.hosted.indexing import StateIndex

OVER = -1
"""The state recorded after an episode has ended."""


@runtime_checkable
class Player(Protocol):
    """Decides which state to record for each observation, and which action to take."""

    @property
    def horizon(self) -> int: ...

    def blank(self, num_episodes: int) -> tuple[np.ndarray, np.ndarray]:
        """States [episode, times, ...], filled with the state after an end, and actions [episode, time, ...]."""

    def see(self, observations: Any) -> np.ndarray:
        """The states to record for the observations of all copies."""

    def is_sound(self, seen: np.ndarray) -> Bool[np.ndarray, " copy"]:
        """Whether each state is finite."""

    def act(
        self, seen: np.ndarray, episodes: Int[np.ndarray, " copy"], times: Int[np.ndarray, " copy"]
    ) -> tuple[np.ndarray, np.ndarray]:
        """One action per copy, as recorded and as the environment takes it; the episode of an idle copy is -1."""


class Episodes(NamedTuple):
    """One row for each episode played."""

    states: Int[np.ndarray, "episode times"] | Float[np.ndarray, "episode times observation"]
    """After an early end: `OVER`, or NaN where states are vectors."""
    actions: Int[np.ndarray, "episode time"] | Float[np.ndarray, "episode time action"]
    rewards: Float[np.ndarray, "episode time"]
    is_terminated: Bool[np.ndarray, " episode"]
    """Whether the environment itself ended the episode, rather than a limit on its length."""
    broken: Int[np.ndarray, " episode"]
    """The step after which a state that is not finite ended the episode; 0 if none did."""
    seeds: Int[np.ndarray, " episode"] | None = None
    """The seed with which the environment was reset."""
    infos: Mapping[str, Float[np.ndarray, "episode times ..."]] = {}
    """Numbers in the environment's infos, by name, if they were asked for; NaN where the environment gave none."""


class TablePlayer:
    """Samples each action from a table of cumulative probabilities, with one uniform number.

    States discovered after the tables were made use the last row.
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
            actions: the environment's own action for each action index.
            thresholds: cumulative action probabilities; the time axis has length 1 if they don't depend on time.
            policies: index of the policy that plays each episode.
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
