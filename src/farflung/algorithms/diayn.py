"""Skills by a learned discriminator, as in DIAYN (Eysenbach et al., "Diversity is all you need", ICLR 2019)."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from farflung.algorithms.pgpse import PGPSE, PGPSEState, pgpse
from farflung.config import Explore
from farflung.entropy.credit import Credit
from farflung.entropy.objective import Objective, States
from farflung.numerics.arrays import log_softmax
from farflung.policies.rollout import Trajectories

_WIDTH = 32
_RATE_OF_TABLES, _RATE_OF_NETWORKS = 0.3, 0.01


class Discriminator(eqx.Module):
    """The log odds of each agent, given a state: a table, or a network of the projection's features."""

    layers: tuple[Float[Array, "..."], ...]
    center: tuple[float, ...] = eqx.field(static=True)
    scale: tuple[float, ...] = eqx.field(static=True)

    def log_probabilities(self, states: Array) -> Float[Array, "*axes agent"]:
        """Of numbered states, or of features."""
        if len(self.layers) == 1:
            return log_softmax(jnp.take(self.layers[0], states, axis=0, mode="clip"))
        flat = states.reshape(-1, states.shape[-1])
        hidden = jnp.nan_to_num((flat - np.array(self.center, np.float32)[None]) / np.array(self.scale, np.float32)[None])
        *inner, last = (self.layers[number : number + 2] for number in range(0, len(self.layers), 2))
        with jax.default_matmul_precision("highest"):
            for weights, bias in inner:
                hidden = jnp.tanh(hidden @ weights + bias[None])
            outputs = hidden @ last[0] + last[1][None]
        return log_softmax(outputs).reshape(*states.shape[:-1], -1)


class DIAYNState(NamedTuple):
    learner: PGPSEState
    discriminator: Discriminator
    optimizer_state: optax.OptState

    @property
    def team(self) -> Any:
        return self.learner.team


class DIAYN(eqx.Module):
    r"""PGPSE on the reward $\log q(i \mid s) + \log m$ of each state; the discriminator q learns to tell the agents apart.

    The mean reward is a lower bound of the mutual information $I(i; s)$ of agent and state, for any q, and equal to it for the
    best q. The bonus for the policies' entropy is PGPSE's.

    >>> import farflung
    >>> algorithm = DIAYN(farflung.PGPSE(num_agents=2, batch_size=4, credit="causal"))
    >>> *_, last = farflung.train(algorithm, farflung.make_world("room-det"), seeds=(0,), num_updates=3)
    >>> last.team.num_agents
    2
    """

    learner: PGPSE
    steps: int = eqx.field(static=True, default=10)
    """Steps of the discriminator per batch."""
    learning_rate: Float[ArrayLike, ""] | None = eqx.field(default=None)
    """Of the discriminator (default: 0.3 for a table, 0.01 for a network)."""

    @property
    def batch_size(self) -> int:
        return self.learner.batch_size

    @property
    def num_trajectories(self) -> int:
        return self.learner.num_trajectories

    def init(self, key: PRNGKeyArray, world: Any) -> DIAYNState:
        team_key, own_key = jr.split(key)
        discriminator = _discriminator(own_key, world, self.learner.num_agents)
        return DIAYNState(self.learner.init(team_key, world), discriminator, self._optimizer(world).init(discriminator))

    def learn(self, world: Any, state: DIAYNState, trajectories: Trajectories) -> DIAYNState:
        """The discriminator learns from the batch first; the team then learns from its judgement."""
        discriminator, optimizer_state = self.teach(world, state, trajectories.states)
        learner = self.learner.learn(world, state.learner, trajectories, told_apart(world, discriminator))
        return DIAYNState(learner, discriminator, optimizer_state)

    def teach(self, world: Any, state: DIAYNState, states: Array) -> tuple[Discriminator, optax.OptState]:
        """The discriminator after `steps` on a batch of states, and the state of its optimiser."""
        features, is_real = _features(world, states)

        def step(_: Int[Array, ""], now: tuple[Discriminator, Any]) -> tuple[Discriminator, Any]:
            gradient = jax.grad(_loss)(now[0], features, is_real)
            change, optimizer_state = self._optimizer(world).update(gradient, now[1])
            return optax.apply_updates(now[0], change), optimizer_state

        return jax.lax.fori_loop(0, self.steps, step, (state.discriminator, state.optimizer_state))

    def _optimizer(self, world: Any) -> optax.GradientTransformation:
        default = _RATE_OF_TABLES if world.projection is None else _RATE_OF_NETWORKS
        return optax.adam(jnp.asarray(default if self.learning_rate is None else self.learning_rate))


def diayn(config: Explore, world: Any, credit: Credit | None = None) -> DIAYN:
    """The algorithm with the settings of a config."""
    if config.num_policies < 2:
        raise ValueError("diayn tells agents apart: it needs at least 2 policies")
    return DIAYN(pgpse(config, world, credit=credit))


def told_apart(world: Any, discriminator: Discriminator) -> Objective:
    """The mean log odds with which a discriminator tells the agent of each state, above chance."""

    def rewards(states: States) -> tuple[Float[Array, "agent trajectory times"], Array]:
        features, is_real = _features(world, states)
        of_own = _of_own(discriminator.log_probabilities(features), axis=0)
        return jnp.where(is_real, of_own + jnp.log(states.shape[0]), 0.0), jnp.maximum(jnp.sum(is_real), 1)

    def value(states: States) -> Float[Array, ""]:
        found, number = rewards(states)
        return jnp.sum(found) / number

    def gains(states: States) -> Float[Array, "agent trajectory times"]:
        found, _ = rewards(states)
        return found / found.size  # not by the number of states in episodes, which depends on the actions

    return Objective(value, gains)


def _loss(discriminator: Discriminator, features: Array, is_real: Array) -> Float[Array, ""]:
    of_own = _of_own(discriminator.log_probabilities(features), axis=1)
    return -jnp.sum(jnp.where(is_real, of_own, 0.0)) / jnp.maximum(jnp.sum(is_real), 1)


def _of_own(log_probabilities: Float[Array, "*axes agent"], axis: int) -> Float[Array, "*axes"]:
    """The log probability of the agent to whom each state belongs, where `axis` is that of the agents."""
    num_agents = log_probabilities.shape[-1]
    shape = [num_agents if each == axis else 1 for each in range(log_probabilities.ndim - 1)]
    own = jnp.broadcast_to(jnp.arange(num_agents).reshape(shape), log_probabilities.shape[:-1])
    return jnp.take_along_axis(log_probabilities, own[..., None], axis=-1)[..., 0]


def _features(world: Any, states: Array) -> tuple[Array, Array]:
    """What the discriminator sees of each state, and whether it lies within an episode."""
    if world.projection is None:
        return states, states < world.num_states
    is_real = jnp.all(jnp.isfinite(states), axis=-1)
    return world.projection.project(states), is_real


def _discriminator(key: PRNGKeyArray, world: Any, num_agents: int) -> Discriminator:
    if world.projection is None:
        return Discriminator((jnp.zeros((world.num_table_rows, num_agents)),), (), ())
    low, high = np.array(world.projection.low), np.array(world.projection.high)
    sizes = (len(low), _WIDTH, _WIDTH, num_agents)
    layers: list[Array] = []
    for layer_key, before, after in zip(jr.split(key, len(sizes) - 1), sizes[:-1], sizes[1:], strict=True):
        layers += [jr.normal(layer_key, (before, after)) / np.sqrt(before), jnp.zeros(after)]
    return Discriminator(tuple(layers), tuple(((low + high) / 2).tolist()), tuple(((high - low) / 2).tolist()))
