"""Softmax policies with tables of logits, for worlds with finitely many states."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from farflung.numerics.arrays import (
    count_by_index,
    cumulative_sum,
    flat,
    inverse_cdf,
    log_softmax,
    lookup,
    ordered_sum,
    sum_by_index,
)
from farflung.numerics.noise import uniforms
from farflung.worlds.hosted.world import View
from farflung.worlds.world import World


class TabularSoftmax(eqx.Module):
    r"""$\pi_\theta(a \mid s) \propto e^{\theta_{s,a}}$, with one table for each time if `is_time_dependent`."""

    logits: Float[Array, "*axes state action"]
    is_time_dependent: bool = eqx.field(static=True, default=False)

    num_uniforms = 1
    axes = 0
    """The agent axis of a team's leaves, for `vmap`."""

    def __check_init__(self) -> None:
        if len(getattr(self.logits, "shape", ())) < 2:
            raise ValueError(f"logits must be an array [..., state, action], not {self.logits!r:.80}")

    @property
    def num_agents(self) -> int:
        """The number of agents of a team."""
        return self.logits.shape[-4 if self.is_time_dependent else -3]

    @property
    def num_actions(self) -> int:
        return self.logits.shape[-1]

    @property
    def num_times(self) -> int:
        """The number of tables of one policy: one, or one for each time."""
        return self.logits.shape[-3] if self.is_time_dependent else 1

    @property
    def probabilities(self) -> Float[Array, "*axes state action"]:
        return jnp.exp(log_softmax(self.logits))

    def softened(self, epsilon: float, temperature: float) -> "TabularSoftmax":
        r"""$(1 - \varepsilon) \, \pi^{1/\tau} / Z + \varepsilon / A$: a flatter policy that tries every action."""
        own = jnp.exp(log_softmax(self.logits / temperature))
        mixed = (1 - epsilon) * own + epsilon / self.num_actions
        return dataclasses.replace(self, logits=jnp.log(mixed) if epsilon else self.logits / temperature)

    def sampler(self) -> Callable[[Float[Array, " 1"], Int[Array, ""], Int[Array, ""]], Int[Array, ""]]:
        """A function of noise, time and state that samples an action; the cumulative probabilities are computed once.

        It is a pytree, so that those of a team can be made by `vmap` and used in a loop.
        """
        return _Sampler(flat(cumulative_sum(self.probabilities)), self.num_actions, self._num_rows)

    def sample_one(self, noise: Float[Array, " 1"], time: Int[Array, ""], state: Int[Array, ""]) -> Int[Array, ""]:
        """Samples one action, from one row of the table."""
        logits = self.logits.reshape(-1, self.num_actions)[self._row(jnp.minimum(time, self.num_times - 1), state)]
        thresholds = cumulative_sum(jnp.exp(log_softmax(logits)))
        return jnp.sum(noise[0] >= thresholds[:-1], dtype=jnp.int32)

    def executed(self, actions: Int[Array, "*batch"]) -> Int[Array, "*batch"]:
        """The actions that the world executes: unchanged."""
        return actions

    def score(
        self,
        states: Int[Array, "*batch time"],
        actions: Int[Array, "*batch time"],
        weights: Float[Array, "*#batch #time"],
    ) -> "TabularSoftmax":
        r"""The gradient of $\sum w \log \pi_\theta(a \mid s)$: $W_a - \pi(a) \sum_b W_b$, with $W_a$ the weight of action a."""
        entry = self._row(_times(states), states) * self.num_actions + actions
        weight = sum_by_index(entry, weights, self.logits.size).reshape(self.logits.shape)
        return dataclasses.replace(self, logits=weight - self.probabilities * ordered_sum(weight)[..., None])

    def visits(self, states: Int[Array, "*batch time"]) -> Int[Array, "*axes state"]:
        """The number of actions taken with each row of the table."""
        rows = self.logits.shape[:-1]
        return count_by_index(self._row(_times(states), states), int(np.prod(rows))).reshape(rows)

    def visits_by_agent(self, states: Int[Array, "batch agent trajectory time"]) -> Int[Array, "agent *axes state"]:
        """The number of actions that each agent of a team took with each row of its table."""
        return jax.vmap(TabularSoftmax.visits, (0, 1))(self, states)

    def log_probability(
        self, states: Int[Array, "*batch time"], actions: Int[Array, "*batch time"]
    ) -> Float[Array, "*batch time"]:
        r"""$\log \pi_\theta(a \mid s)$ of the actions taken."""
        return lookup(flat(log_softmax(self.logits)), self._row(_times(states), states) * self.num_actions + actions)

    def entropy(self, states: Int[Array, "*batch time"]) -> Float[Array, "*batch time"]:
        """The entropy of the action distribution in each of the states, in nats."""
        log_probabilities = log_softmax(self.logits)
        table = flat(-ordered_sum(jnp.exp(log_probabilities) * log_probabilities))
        return lookup(table, self._row(_times(states), states))

    def entropy_score(self) -> Float[Array, "*axes state action"]:
        r"""The gradient of each row's entropy $H_s$ in its logits: $-\pi(a) (\log \pi(a) + H_s)$."""
        log_probabilities = log_softmax(self.logits)
        probabilities = jnp.exp(log_probabilities)
        return -probabilities * (log_probabilities - ordered_sum(probabilities * log_probabilities)[..., None])

    def gradient(
        self,
        states: Int[Array, "batch agent trajectory time"],
        actions: Int[Array, "batch agent trajectory time"],
        weights: Float[Array, "batch agent #trajectory #time"],
        bonus: Float[ArrayLike, ""] | None = None,
    ) -> "TabularSoftmax":
        r"""A team's gradient of $\sum w \log \pi(a \mid s)$ plus `bonus` times the sum of the policies' entropies."""
        by_agent = jax.vmap(TabularSoftmax.score, (0, 1, 1, 1))(self, states, actions, weights)
        if bonus is None:
            return by_agent
        own = jnp.asarray(bonus) * self.visits_by_agent(states)[..., None] * self.entropy_score()
        return dataclasses.replace(by_agent, logits=by_agent.logits + own)

    def rows(self, states: Int[Array, "*batch time"]) -> Int[Array, "*batch time"]:
        """The row of `as_stationary` by which one acts in each of the states."""
        return self._row(_times(states), states)

    def as_stationary(self) -> "TabularSoftmax":
        """The same tables with one axis for times and states."""
        if not self.is_time_dependent:
            return self
        *axes, num_times, num_states, num_actions = self.logits.shape
        return TabularSoftmax(self.logits.reshape(*axes, num_times * num_states, num_actions))

    @property
    def _num_rows(self) -> int:
        """The rows between one time and the next."""
        return self.logits.shape[-2] if self.is_time_dependent else 0

    def _row(self, time: Int[Array, "*batch"], state: Int[Array, "*batch"]) -> Int[Array, "*batch"]:
        return time * self._num_rows + state if self.is_time_dependent else state


class _Sampler(eqx.Module):
    """Draws actions from cumulative probabilities."""

    cumulative: Float[Array, " entry"]
    num_actions: int = eqx.field(static=True)
    num_rows: int = eqx.field(static=True)
    """The rows between one time and the next."""

    def __call__(self, noise: Float[Array, " 1"], time: Int[Array, ""], state: Int[Array, ""]) -> Int[Array, ""]:
        row = time * self.num_rows + state if self.num_rows else state
        return inverse_cdf(self.cumulative, row, self.num_actions, noise[0])


def _times(states: Int[Array, "*batch time"]) -> Int[Array, "*batch time"]:
    return jax.lax.broadcasted_iota(jnp.int32, states.shape, states.ndim - 1)


def softmax_team(
    key: PRNGKeyArray,
    world: World | View,
    num_agents: int,
    *,
    scale: Float[ArrayLike, ""] = 1.0,
    is_time_dependent: bool = False,
) -> TabularSoftmax:
    """A team whose logits are drawn uniformly from (-scale, scale); the paper's from (-1, 1)."""
    logits = jnp.asarray(scale) * (2 * uniforms(key, _team_shape(world, num_agents, is_time_dependent)) - 1)
    return TabularSoftmax(logits, is_time_dependent)


def uniform_team(world: World | View, num_agents: int) -> TabularSoftmax:
    """A team that takes every action with equal probability: the paper's random baseline."""
    return TabularSoftmax(jnp.zeros(_team_shape(world, num_agents, is_time_dependent=False)))


def _team_shape(world: Any, num_agents: int, is_time_dependent: bool) -> tuple[int, ...]:
    times = (world.horizon,) if is_time_dependent else ()
    return (num_agents, *times, world.num_table_rows, world.num_actions)
