"""Policy gradient for parallel state entropy: Algorithm 1 of the paper."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from farflung.algorithms.optimizers import optimizer
from farflung.config import NEURAL_OPTIMIZERS, OPTIMIZERS
from farflung.config.checks import check_learning, check_name, whole_number
from farflung.entropy.credit import CREDITS, independent, recombined
from farflung.policies import Networks, TabularSoftmax, Team, log_probabilities, neural_team, softmax_team
from farflung.policies.rollout import Faults, Trajectories, acted_in, no_faults, play
from farflung.worlds.world import CompiledWorld


class PGPSEState(NamedTuple):
    team: Team
    optimizer_state: optax.OptState
    num_updates: Int[Array, ""]
    faults: Faults | None = None
    """What went wrong in worlds whose states are vectors."""


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
    """Whether a table of logits has a part for each time."""
    networks: Networks | None = eqx.field(static=True, default=None)
    """The policies of agents in a world whose states are vectors; else they are tables."""
    init_scale: Float[ArrayLike, "*seed"] = 1.0
    """The first logits are drawn uniformly from (-init_scale, init_scale); for networks a factor on the heads' weights."""
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
        if self.networks is not None and self.optimizer not in NEURAL_OPTIMIZERS:
            raise ValueError(f"{self.optimizer} steps are for tables: networks learn with {' or '.join(NEURAL_OPTIMIZERS)}")

    def init(self, key: PRNGKeyArray, environment: Any) -> PGPSEState:
        if self.networks is not None:
            networks = neural_team(key, environment, self.num_agents, self.networks, scale=self.init_scale)
            return PGPSEState(networks, self._optimizer().init(networks), jnp.int32(0), no_faults())
        team = softmax_team(key, environment, self.num_agents, scale=self.init_scale, is_time_dependent=self.is_time_dependent)
        return PGPSEState(team, self._optimizer().init(team), jnp.int32(0))

    def sample(self, key: PRNGKeyArray, environment: CompiledWorld, state: PGPSEState) -> Trajectories:
        """The batch of trajectories that an update learns from."""
        return play(key, state.team, environment, self.batch_size, self.num_trajectories)

    def learn(self, environment: Any, state: PGPSEState, trajectories: Trajectories) -> PGPSEState:
        """A step of the optimiser uphill, or several with the same batch."""
        weights = self.weights(environment, trajectories.states)

        def step(number: Int[ArrayLike, ""], latest: PGPSEState) -> PGPSEState:
            reweighted = (
                weights if self.steps_per_batch == 1 else self._reweighted(weights, state.team, latest.team, trajectories)
            )
            return self._step(latest, trajectories, reweighted)

        latest = step(0, state) if self.steps_per_batch == 1 else jax.lax.fori_loop(0, self.steps_per_batch, step, state)
        faults = (
            None
            if state.faults is None or trajectories.broken is None
            else state.faults.after(state.num_updates + 1, trajectories.broken)
        )
        return latest._replace(num_updates=state.num_updates + 1, faults=faults)

    def gradient(self, environment: Any, team: Any, trajectories: Trajectories) -> Any:
        r"""$\frac{1}{B} \sum_b \sum_{k, t} w\, \nabla \log \pi_{\theta_i}(a_t \mid s_t)$ for each agent i."""
        weights = self.weights(environment, trajectories.states)
        return team.gradient(acted_in(trajectories), trajectories.actions, weights)

    def weights(self, environment: Any, states: Array) -> Float[Array, "batch agent #trajectory #time"]:
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
        team, acted = state.team, acted_in(trajectories)
        bonus = None
        if self.entropy_bonus is not None:
            decayed = jnp.asarray(self.entropy_bonus) * jnp.asarray(self.bonus_decay) ** state.num_updates
            bonus = decayed / math.prod(acted.shape[:4])
        descent = jax.tree.map(jnp.negative, team.gradient(acted, trajectories.actions, weights, bonus))
        visits = team.visits_by_agent(acted) / self.batch_size if isinstance(team, TabularSoftmax) else None
        steps, optimizer_state = self._optimizer().update(descent, state.optimizer_state, team, visits=visits)
        return state._replace(team=optax.apply_updates(team, steps), optimizer_state=optimizer_state)

    def _reweighted(
        self, weights: Float[Array, "batch agent #trajectory #time"], old: Team, new: Team, trajectories: Trajectories
    ) -> Float[Array, "batch agent trajectory time"]:
        """Importance weights for actions that the old team took; none for those that are already far more, or less, likely."""
        acted, actions = acted_in(trajectories), trajectories.actions
        ratio = jnp.exp(log_probabilities(new, acted, actions) - log_probabilities(old, acted, actions))
        is_far = jnp.where(weights > 0, ratio > 1 + self.clip, ratio < 1 - self.clip)
        return jnp.where(is_far, 0.0, weights * ratio)

    def _optimizer(self) -> optax.GradientTransformationExtraArgs:
        def learning_rate(count: Int[Array, ""]) -> Float[Array, ""]:
            return jnp.asarray(self.learning_rate) * jnp.asarray(self.decay) ** (count // self.steps_per_batch)

        return optimizer(self.optimizer, learning_rate)
