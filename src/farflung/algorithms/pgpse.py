"""Policy gradient for parallel state entropy: Algorithm 1 of the paper."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from farflung.checks import check_learning_rate, check_name, whole_number
from farflung.config import OPTIMIZERS
from farflung.credit import CREDITS
from farflung.entropy import plug_in
from farflung.environments import TabularMDP
from farflung.policies import TabularSoftmax, softmax_team
from farflung.rollout import Trajectories, play


class PGPSEState(NamedTuple):
    team: TabularSoftmax
    optimizer_state: optax.OptState


class PGPSE(eqx.Module):
    """Gradient ascent on the expected entropy of the states that the team visits together.

    The paper's single agent is `num_agents=1` with as many trajectories as the team has agents. The learning rate and its decay
    per update are numbers, or arrays with one for each seed.
    """

    num_agents: int = eqx.field(static=True)
    num_trajectories: int = eqx.field(static=True, default=1)
    batch_size: int = eqx.field(static=True, default=40)
    optimizer: str = eqx.field(static=True, default="sgd")
    learning_rate: Float[ArrayLike, "*seed"] = 0.15
    decay: Float[ArrayLike, "*seed"] = 1.0
    credit: str = eqx.field(static=True, default="total")
    is_time_dependent: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        for name in ("num_agents", "num_trajectories", "batch_size"):
            whole_number(name, getattr(self, name))
        check_learning_rate(self.learning_rate, self.decay)
        check_name("optimizer", self.optimizer, OPTIMIZERS)
        check_name("credit", self.credit, tuple(CREDITS))

    def init(self, key: PRNGKeyArray, environment: TabularMDP) -> PGPSEState:
        team = softmax_team(key, environment, self.num_agents, is_time_dependent=self.is_time_dependent)
        return PGPSEState(team, self._gradient_transformation().init(team))

    def sample(self, key: PRNGKeyArray, environment: TabularMDP, state: PGPSEState) -> Trajectories:
        """The batch of trajectories that an update learns from."""
        return play(key, state.team, environment, self.batch_size, self.num_trajectories)

    def learn(self, environment: TabularMDP, state: PGPSEState, trajectories: Trajectories) -> PGPSEState:
        """One step of the optimiser uphill."""
        descent = jax.tree.map(jnp.negative, self.gradient(environment, state.team, trajectories))
        updates, optimizer_state = self._gradient_transformation().update(descent, state.optimizer_state, state.team)
        return PGPSEState(optax.apply_updates(state.team, updates), optimizer_state)

    def gradient(self, environment: TabularMDP, team: TabularSoftmax, trajectories: Trajectories) -> TabularSoftmax:
        r"""$\frac{1}{B} \sum_b \sum_{k, t} w\, \nabla \log \pi_{\theta_i}(a_t \mid s_t)$ for each agent i."""
        states, actions = trajectories
        batch_size, num_agents = states.shape[:2]
        weights = CREDITS[self.credit](plug_in(environment.num_states), states) / batch_size
        by_agent = jnp.broadcast_to(weights, (batch_size, num_agents, *weights.shape[2:]))
        return jax.vmap(TabularSoftmax.score, (0, 1, 1, 1))(team, states[..., :-1], actions, by_agent)

    def _gradient_transformation(self) -> optax.GradientTransformation:
        def learning_rate(count: Int[Array, ""]) -> Float[Array, ""]:
            return jnp.asarray(self.learning_rate) * jnp.asarray(self.decay) ** count

        return {"sgd": optax.sgd, "adam": optax.adam}[self.optimizer](learning_rate)
