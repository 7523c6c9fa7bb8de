"""How agents choose their actions; a team is one pytree with the policies of all its agents."""

from typing import Any

import jax
from jaxtyping import Array, Float

from farflung.policies.neural import Networks, NeuralPolicy, Outlook, UniformPolicy, neural_team
from farflung.policies.tabular import TabularSoftmax, softmax_team, uniform_team

Team = TabularSoftmax | NeuralPolicy


def log_probabilities(team: Team, states: Array, actions: Array) -> Float[Array, "batch agent trajectory time"]:
    r"""$\log \pi_i(a \mid s)$ of what each agent did."""
    of_one: Any = type(team).log_probability
    return jax.vmap(of_one, (team.axes, 1, 1), out_axes=1)(team, states, actions)


def policy_entropies(team: Team | UniformPolicy, states: Array) -> Float[Array, "batch agent trajectory time"]:
    """The entropy of each agent's actions in the states that it acted in, in nats."""
    of_one: Any = type(team).entropy
    return jax.vmap(of_one, (team.axes, 1), out_axes=1)(team, states)


__all__ = [
    "Networks",
    "NeuralPolicy",
    "Outlook",
    "TabularSoftmax",
    "Team",
    "UniformPolicy",
    "log_probabilities",
    "neural_team",
    "policy_entropies",
    "softmax_team",
    "uniform_team",
]
