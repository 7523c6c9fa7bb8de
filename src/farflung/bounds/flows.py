"""A tabular world unrolled over time: reachable states, and the policy that earns most where visits are paid."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int

from farflung.worlds.tabular import TabularMDP, reachable_states

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True)
class Flows:
    """The dynamics of a tabular world in double precision, as certified bounds need it."""

    successors: Int[np.ndarray, "state action successor"]
    probabilities: Float[np.ndarray, "state action successor"]
    start: Float[np.ndarray, " state"]
    horizon: int

    @property
    def num_states(self) -> int:
        return len(self.start)

    @property
    def num_actions(self) -> int:
        return self.successors.shape[1]

    @property
    def is_deterministic(self) -> bool:
        return self.successors.shape[2] == 1 and int(np.count_nonzero(self.start)) == 1

    @cached_property
    def kernel(self) -> "csr_array":
        """The transition probabilities as a sparse matrix [state x action, state]."""
        from scipy.sparse import csr_array  # takes a while, and a kept ceiling doesn't need it

        num_rows, num_successors = self.num_states * self.num_actions, self.successors.shape[2]
        ends = np.arange(num_rows + 1) * num_successors
        shape = (num_rows, self.num_states)
        return csr_array((self.probabilities.ravel(), self.successors.ravel(), ends), shape=shape)

    @cached_property
    def is_within_reach(self) -> Bool[np.ndarray, "times state"]:
        """Which states an agent can be in at each of the times 0 to `horizon`."""
        reached = [self.start > 0]
        for _ in range(self.horizon):
            following = np.zeros(self.num_states, dtype=bool)
            following[self.successors[reached[-1]][self.probabilities[reached[-1]] > 0]] = True
            reached.append(following)
        return np.array(reached)

    @cached_property
    def most_visits(self) -> Int[np.ndarray, " state"]:
        """The largest number of visits of one agent to each state; 0 for unreachable states."""
        states, distances = reachable_states(self.successors, self.probabilities, self.start)
        visits = np.zeros(self.num_states, dtype=np.int64)
        visits[states] = np.maximum(self.horizon + 1 - distances, 0)
        return visits

    @property
    def is_reachable(self) -> Bool[np.ndarray, " state"]:
        """Which states an agent can visit within the horizon."""
        return self.most_visits > 0

    def best_response(self, prices: Float[np.ndarray, " state"]) -> tuple[float, Float[np.ndarray, " state"]]:
        """The most that an agent can earn if each visit pays the state's price, and the expected visits that earn it.

        Backward induction finds the policy; forward propagation gives its visits.
        """
        values, choices = prices, []
        for _ in range(self.horizon):
            of_actions = (self.kernel @ values).reshape(self.num_states, self.num_actions)
            choices.append(of_actions.argmax(axis=1).astype(np.int16))
            values = prices + of_actions.max(axis=1)
        states = np.arange(self.num_states)
        distribution, visits = self.start, self.start.copy()
        for choice in reversed(choices):
            flow = distribution[:, None] * self.probabilities[states, choice]
            distribution = np.bincount(self.successors[states, choice].ravel(), flow.ravel(), self.num_states)
            visits += distribution
        return float(self.start @ values), visits

    def uniform_visits(self) -> Float[np.ndarray, " state"]:
        """The expected visits of an agent that acts uniformly at random."""
        distribution, visits = self.start, self.start.copy()
        for _ in range(self.horizon):
            distribution = self.kernel.T @ np.repeat(distribution / self.num_actions, self.num_actions)
            visits += distribution
        return visits


def flows_of(world: TabularMDP) -> Flows:
    """The dynamics of a world, with probabilities that sum to one in double precision."""
    successors = np.asarray(world.successors)
    probabilities = np.diff(np.asarray(world.cumulative_probability, dtype=np.float64), axis=-1, prepend=0.0)
    shares = np.diff(np.asarray(world.start_cumulative_probability, dtype=np.float64), prepend=0.0)
    start = np.bincount(np.asarray(world.start_states), shares / shares.sum(), world.num_states)
    return Flows(successors, probabilities / probabilities.sum(axis=-1, keepdims=True), start, world.horizon)
