"""Policy gradient for parallel state entropy: Algorithm 1 of the paper."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from farflung.algorithms.optimizers import optimizer
from farflung.checks import check_learning, check_name, whole_number
from farflung.config import OPTIMIZERS
from farflung.credit import CREDITS, independent, recombined
from farflung.environments import Outline, TabularMDP
from farflung.policies import TabularSoftmax, softmax_team
from farflung.rollout import Trajectories, play


class PGPSEState(NamedTuple):
    team: TabularSoftmax
    optimizer_state: optax.OptState
    num_updates: Int[Array, ""]


class PGPSE(eqx.Module):
    """Gradient ascent on the expected entropy of the states that the team visits together.

    The paper's single agent is `num_agents=1` with as many trajectories as the team has agents. What is not static is a number,
    or an array with one for each seed.
    """

    num_agents: int = eqx.field(static=True)
    num_trajectories: int = eqx.field(static=True, default=1)
    batch_size: int = eqx.field(static=True, default=40)
    optimizer: str = eqx.field(static=True, default="sgd")
    learning_rate: Float[ArrayLike, "*seed"] = 0.15
    """The step size; for `trust-region` the KL divergence of a step."""
    decay: Float[ArrayLike, "*seed"] = 1.0
    """Factor on the learning rate after each update."""
    credit: str = eqx.field(static=True, default="total")
    num_combinations: int = eqx.field(static=True, default=1)
    """Ways to make teams of the batch's trajectories that the credit is averaged over."""
    is_independent: bool = eqx.field(static=True, default=False)
    """Whether each agent is trained for its own entropy alone."""
    is_time_dependent: bool = eqx.field(static=True, default=False)
    init_scale: Float[ArrayLike, "*seed"] = 1.0
    """The first logits are drawn uniformly from (-init_scale, init_scale)."""
    entropy_bonus: Float[ArrayLike, "*seed"] | None = None
    """Weight of the mean entropy of the policies themselves, against early determinism."""
    bonus_decay: Float[ArrayLike, "*seed"] = 1.0
    """Factor on that weight after each update."""
    steps_per_batch: int = eqx.field(static=True, default=1)
    """Steps that are made with one batch, with importance weights."""
    clip: Float[ArrayLike, "*seed"] = 0.2
    """How far an action's probability may move in them before the action no longer counts, relative to what it was."""

    def __check_init__(self) -> None:
        for name in ("num_agents", "num_trajectories", "batch_size", "num_combinations", "steps_per_batch"):
            whole_number(name, getattr(self, name))
        check_learning(self)
        check_name("optimizer", self.optimizer, OPTIMIZERS)
        check_name("credit", self.credit, tuple(CREDITS))

    def init(self, key: PRNGKeyArray, environment: Outline) -> PGPSEState:
        team = softmax_team(key, environment, self.num_agents, scale=self.init_scale, is_time_dependent=self.is_time_dependent)
        return PGPSEState(team, self._optimizer().init(team), jnp.int32(0))

    def sample(self, key: PRNGKeyArray, environment: TabularMDP, state: PGPSEState) -> Trajectories:
        """The batch of trajectories that an update learns from."""
        return play(key, state.team, environment, self.batch_size, self.num_trajectories)

    def learn(self, environment: Outline, state: PGPSEState, trajectories: Trajectories) -> PGPSEState:
        """A step of the optimiser uphill, or several with the same batch."""
        weights = self.weights(environment, trajectories.states)

        def step(number: Int[ArrayLike, ""], latest: PGPSEState) -> PGPSEState:
            reweighted = (
                weights if self.steps_per_batch == 1 else self._reweighted(weights, state.team, latest.team, trajectories)
            )
            return self._step(latest, trajectories, reweighted)

        latest = step(0, state) if self.steps_per_batch == 1 else jax.lax.fori_loop(0, self.steps_per_batch, step, state)
        return latest._replace(num_updates=state.num_updates + 1)

    def gradient(self, environment: Outline, team: TabularSoftmax, trajectories: Trajectories) -> TabularSoftmax:
        r"""$\frac{1}{B} \sum_b \sum_{k, t} w\, \nabla \log \pi_{\theta_i}(a_t \mid s_t)$ for each agent i."""
        return _score(team, trajectories, self.weights(environment, trajectories.states))

    def weights(
        self, environment: Outline, states: Int[Array, "batch agent trajectory times"]
    ) -> Float[Array, "batch agent #trajectory #time"]:
        """The weight of each action's score: its credit, divided by the batch size."""
        credit = CREDITS[self.credit]
        if self.is_independent:
            credit = independent(credit)
        if self.num_combinations > 1:
            credit = recombined(credit, self.num_combinations)
        batch_size, num_agents = states.shape[:2]
        weights = credit(environment.entropy, states) / batch_size
        return jnp.broadcast_to(weights, (batch_size, num_agents, *weights.shape[2:]))

    def _step(self, state: PGPSEState, trajectories: Trajectories, weights: Float[Array, "batch agent #k #t"]) -> PGPSEState:
        gradient = _score(state.team, trajectories, weights)
        visits = jax.vmap(TabularSoftmax.visits, (0, 1))(state.team, trajectories.states[..., :-1]) / self.batch_size
        if self.entropy_bonus is not None:
            num_actions = trajectories.actions[0].size
            bonus = jnp.asarray(self.entropy_bonus) * jnp.asarray(self.bonus_decay) ** state.num_updates / num_actions
            own = bonus * visits[..., None] * state.team.entropy_score()
            gradient = dataclasses.replace(gradient, logits=gradient.logits + own)
        descent = jax.tree.map(jnp.negative, gradient)
        steps, optimizer_state = self._optimizer().update(descent, state.optimizer_state, state.team, visits=visits)
        return PGPSEState(optax.apply_updates(state.team, steps), optimizer_state, state.num_updates)

    def _reweighted(
        self,
        weights: Float[Array, "batch agent #trajectory #time"],
        old: TabularSoftmax,
        new: TabularSoftmax,
        trajectories: Trajectories,
    ) -> Float[Array, "batch agent trajectory time"]:
        """Importance weights for actions that the old team took; none for those that are already far more, or less, likely."""
        log_probability = jax.vmap(TabularSoftmax.log_probability, (0, 1, 1), out_axes=1)
        acted, actions = trajectories.states[..., :-1], trajectories.actions
        ratio = jnp.exp(log_probability(new, acted, actions) - log_probability(old, acted, actions))
        is_far = jnp.where(weights > 0, ratio > 1 + self.clip, ratio < 1 - self.clip)
        return jnp.where(is_far, 0.0, weights * ratio)

    def _optimizer(self) -> optax.GradientTransformationExtraArgs:
        def learning_rate(count: Int[Array, ""]) -> Float[Array, ""]:
            return jnp.asarray(self.learning_rate) * jnp.asarray(self.decay) ** (count // self.steps_per_batch)

        return optimizer(self.optimizer, learning_rate)


def _score(
    team: TabularSoftmax, trajectories: Trajectories, weights: Float[Array, "batch agent #trajectory #time"]
) -> TabularSoftmax:
    states, actions = trajectories
    return jax.vmap(TabularSoftmax.score, (0, 1, 1, 1))(team, states[..., :-1], actions, weights)
