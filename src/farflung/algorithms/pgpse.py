"""Policy gradient for parallel state entropy (PGPSE): Algorithm 1 of the paper, and its refinements."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from farflung.algorithms.optimizers import optimizer
from farflung.config import NEURAL_OPTIMIZERS, OPTIMIZERS, Explore
from farflung.config.checks import check_learning, check_name, whole_number
from farflung.config.options import OBJECTIVE
from farflung.entropy.credit import CREDITS, Credit, independent, recombined
from farflung.entropy.named import named_objective
from farflung.entropy.objective import Objective, ObjectiveIn
from farflung.numerics import spread
from farflung.policies import Networks, TabularSoftmax, log_probabilities, networks_of, neural_team, softmax_team
from farflung.policies.rollout import Trajectories, acted_in

_MOST_LOGITS = 2_000_000


class PGPSEState(NamedTuple):
    team: Any
    optimizer_state: optax.OptState
    num_updates: Int[Array, ""]


def traced_number(value: Any) -> Any:
    """A setting as a float, which is traced, so that changing it compiles nothing; arrays stay as they are."""
    return float(value) if isinstance(value, int) else value


class PGPSE(eqx.Module):
    """Gradient ascent on the expected entropy of the states that the team visits together, or on another objective.

    The paper's single agent is `num_agents=1` with as many trajectories as the team has agents.

    >>> import farflung
    >>> algorithm = farflung.PGPSE(num_agents=2, batch_size=4, credit="causal", optimizer="adam")
    >>> *_, last = farflung.train(algorithm, farflung.make_world("room-det"), seeds=(0,), num_updates=3)
    >>> last.team.logits.shape  # [seed, agent, state, action]
    (1, 2, 43, 4)
    """

    num_agents: int = eqx.field(static=True)
    num_trajectories: int = eqx.field(static=True, default=1)
    batch_size: int = eqx.field(static=True, default=40)
    optimizer: str = eqx.field(static=True, default="sgd")
    learning_rate: Float[ArrayLike, ""] = eqx.field(default=0.15, converter=traced_number)
    """Step size; for `trust-region` the KL divergence of a step."""
    decay: Float[ArrayLike, ""] = eqx.field(default=1.0, converter=traced_number)
    """Factor on the learning rate after each update."""
    trajectory_weight: Float[ArrayLike, ""] = eqx.field(default=1.0, converter=traced_number)
    """Factor on the sum over an agent's trajectories: 1 sums them, 1 / num_trajectories averages them."""
    credit: str | Credit = eqx.field(static=True, default="total")
    """How the objective becomes a weight for each action: a name, or a function as in `entropy/credit.py`."""
    num_combinations: int = eqx.field(static=True, default=1)
    """Number of regroupings of the batch into teams over which the credit is averaged."""
    is_independent: bool = eqx.field(static=True, default=False)
    """Whether each agent is trained for its own entropy alone."""
    is_time_dependent: bool = eqx.field(static=True, default=False)
    """Whether a table of logits has a part for each time."""
    networks: Networks | None = eqx.field(static=True, default=None)
    """The policies where observations are vectors; None for tables."""
    init_scale: Float[ArrayLike, ""] = eqx.field(default=1.0, converter=traced_number)
    """The first logits are drawn uniformly from (-init_scale, init_scale); for networks a factor on the heads' weights."""
    entropy_bonus: Float[ArrayLike, ""] | None = eqx.field(default=None, converter=traced_number)
    """Weight of the mean entropy of the policies themselves, against early determinism."""
    bonus_decay: Float[ArrayLike, ""] = eqx.field(default=1.0, converter=traced_number)
    """Factor on that weight after each update."""
    steps_per_batch: int = eqx.field(static=True, default=1)
    """Optimiser steps per batch, with importance weights after the first."""
    clip: Float[ArrayLike, ""] = eqx.field(default=0.2, converter=traced_number)
    """How far the probability of an action may move within a batch, relative to what it was, before the action is ignored."""
    objective: ObjectiveIn | None = eqx.field(static=True, default=None)
    """What to maximise, as a function of the world and the team, such as a `Utility`; None for the entropy of the states."""
    mesh_axis: str | None = eqx.field(static=True, default=None)
    """The axis of the mesh along which the agents are spread over devices, in which `learn` sees some of them; None for all."""

    def __check_init__(self) -> None:
        for name in ("num_agents", "num_trajectories", "batch_size", "num_combinations", "steps_per_batch"):
            whole_number(name, getattr(self, name))
        check_learning(self)
        check_name("optimizer", self.optimizer, OPTIMIZERS)
        if not callable(self.credit):
            check_name("credit", self.credit, tuple(CREDITS))
        if self.networks is not None and self.optimizer not in NEURAL_OPTIMIZERS:
            raise ValueError(f"{self.optimizer} steps are for tables: networks learn with {' or '.join(NEURAL_OPTIMIZERS)}")

    def init(self, key: PRNGKeyArray, world: Any) -> PGPSEState:
        team: Any
        if self.networks is not None:
            team = neural_team(key, world, self.num_agents, self.networks, scale=self.init_scale)
        else:
            team = softmax_team(key, world, self.num_agents, scale=self.init_scale, is_time_dependent=self.is_time_dependent)
        return PGPSEState(team, self._optimizer().init(team), jnp.int32(0))

    def learn(
        self, world: Any, state: PGPSEState, trajectories: Trajectories, objective: Objective | None = None
    ) -> PGPSEState:
        """One optimiser step uphill, or several with the same batch.

        Args:
            objective: instead of the algorithm's, for one that is learned as well.
        """
        weights = self.weights(world, trajectories.states, state.team, objective)
        if trajectories.acting is not None:  # after an episode's end nobody acts
            weights = jnp.where(trajectories.acting < world.num_states, weights, 0.0)
        if self.steps_per_batch == 1:
            latest = self._step(state, trajectories, weights)
        else:

            def step(_: Int[Array, ""], latest: PGPSEState) -> PGPSEState:
                return self._step(latest, trajectories, self._reweighted(weights, state.team, latest.team, trajectories))

            latest = jax.lax.fori_loop(0, self.steps_per_batch, step, state)
        return latest._replace(num_updates=state.num_updates + 1)

    def weights(
        self, world: Any, states: Array, team: Any, objective: Objective | None = None
    ) -> Float[Array, "batch agent #trajectory #time"]:
        """The weight of each action's score: its credit, divided by the batch size, times the weight of a trajectory."""
        (batch_size, num_agents), axis = states.shape[:2], self.mesh_axis
        if objective is None:
            objective = world.entropy if self.objective is None else self.objective(world, spread.gathered_team(team, axis))
        first, seen, is_exchanged = spread.first_of(axis, num_agents), states, False
        if axis is not None and not self.is_independent:
            if objective.across is not None and not callable(self.credit):
                objective = objective.across(axis)
            else:
                first, seen, is_exchanged = 0, spread.gathered(states, axis, 1), True
        weights = jnp.asarray(self._credit(first)(objective, seen))
        if is_exchanged and weights.ndim > 1 and weights.shape[1] > 1:
            weights = spread.own_part(weights, axis, 1)
        shape = (*states.shape[:3], states.shape[3] - 1)
        if weights.ndim != len(shape) or any(size not in (1, most) for size, most in zip(weights.shape, shape, strict=True)):
            raise ValueError(f"a credit gives each action a weight, an array of the shape {shape}, not {weights.shape}")
        weights = weights / batch_size * jnp.asarray(self.trajectory_weight)
        return jnp.broadcast_to(weights, (batch_size, num_agents, *weights.shape[2:]))

    def _credit(self, first_agent: int | Int[Array, ""]) -> Credit:
        credit = self.credit if callable(self.credit) else CREDITS[self.credit]
        if self.is_independent:
            credit = independent(credit)
        return credit if self.num_combinations == 1 else recombined(credit, self.num_combinations, first_agent)

    def gradient(self, world: Any, team: Any, trajectories: Trajectories) -> Any:
        r"""$\frac{1}{B} \sum_b \sum_{k, t} w\, \nabla \log \pi_{\theta_i}(a_t \mid s_t)$ for each agent i."""
        return team.gradient(acted_in(trajectories), trajectories.actions, self.weights(world, trajectories.states, team))

    def _step(self, state: PGPSEState, trajectories: Trajectories, weights: Float[Array, "batch agent #k #t"]) -> PGPSEState:
        team, acted = state.team, acted_in(trajectories)
        bonus = None
        if self.entropy_bonus is not None:
            decayed = jnp.asarray(self.entropy_bonus) * jnp.asarray(self.bonus_decay) ** state.num_updates
            bonus = decayed / (math.prod(acted.shape[:4]) * spread.num_parts(self.mesh_axis))
        gradient = spread.summed_if_shared(team.gradient(acted, trajectories.actions, weights, bonus), self.mesh_axis)
        descent = jax.tree.map(jnp.negative, gradient)
        visits = team.visits_by_agent(acted) / self.batch_size if isinstance(team, TabularSoftmax) else None
        steps, optimizer_state = self._optimizer().update(descent, state.optimizer_state, team, visits=visits)
        return state._replace(team=optax.apply_updates(team, steps), optimizer_state=optimizer_state)

    def _reweighted(
        self, weights: Float[Array, "batch agent #trajectory #time"], old: Any, new: Any, trajectories: Trajectories
    ) -> Float[Array, "batch agent trajectory time"]:
        """Importance weights for actions of the old team; zero for actions whose probability has moved beyond the clip."""
        acted, actions = acted_in(trajectories), trajectories.actions
        ratio = jnp.exp(log_probabilities(new, acted, actions) - log_probabilities(old, acted, actions))
        is_far = jnp.where(weights > 0, ratio > 1 + self.clip, ratio < 1 - self.clip)
        return jnp.where(is_far, 0.0, weights * ratio)

    def _optimizer(self) -> optax.GradientTransformationExtraArgs:
        def learning_rate(count: Int[Array, ""]) -> Float[Array, ""]:
            return jnp.asarray(self.learning_rate) * jnp.asarray(self.decay) ** (count // self.steps_per_batch)

        return optimizer(self.optimizer, learning_rate, self.mesh_axis)


def pgpse(config: Explore, world: Any, *, credit: Credit | None = None, objective: ObjectiveIn | None = None) -> PGPSE:
    """The algorithm that a config asks for in a world.

    Args:
        credit: instead of the config's.
        objective: instead of the config's.
    """
    if objective is None and config.objective != OBJECTIVE:
        objective = named_objective(config.objective)
    return PGPSE(
        num_agents=config.num_policies,
        num_trajectories=config.trajectories_per_policy,
        batch_size=config.batch_size,
        optimizer=config.optimizer,
        learning_rate=config.learning_rate,
        decay=config.decay,
        trajectory_weight=1.0 if config.over_trajectories == "sum" else 1 / config.trajectories_per_policy,
        credit=config.credit if credit is None else credit,
        num_combinations=config.combinations,
        is_independent=config.independent,
        is_time_dependent=_is_time_dependent(config, world),
        networks=networks_of(config) if config.is_neural else None,
        init_scale=config.init_scale,
        entropy_bonus=config.entropy_bonus or None,
        bonus_decay=config.bonus_decay,
        steps_per_batch=config.steps_per_batch,
        clip=config.clip,
        objective=objective,
    )


def side_by_side(algorithms: Sequence[PGPSE]) -> Sequence[PGPSE]:
    """Algorithms that share a program: if one has an entropy bonus, the others get one of zero."""
    if all(each.entropy_bonus is None for each in algorithms):
        return algorithms
    with_bonus = lambda each: eqx.tree_at(lambda one: one.entropy_bonus, each, 0.0, is_leaf=lambda leaf: leaf is None)  # noqa: E731
    return [with_bonus(each) if each.entropy_bonus is None else each for each in algorithms]


def _is_time_dependent(config: Explore, world: Any) -> bool:
    """Whether the policies get a table for each time: if asked for, or with `auto` where that is sure to stay small."""
    if world.projection is not None:
        return False
    num_logits = config.num_policies * world.horizon * world.num_states * world.num_actions
    is_small = num_logits <= _MOST_LOGITS and world.knows_all_states
    return config.policy == "time-dependent" or (config.policy == "auto" and is_small)
