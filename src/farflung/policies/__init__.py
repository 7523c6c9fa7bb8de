"""How agents choose their actions.

A team is not a class: it is one policy whose arrays have a leading agent axis, except for what all agents share.
"""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
from jaxtyping import Array, Float

from farflung.policies.neural import EpsilonPolicy as EpsilonPolicy
from farflung.policies.neural import Networks as Networks
from farflung.policies.neural import NeuralPolicy as NeuralPolicy
from farflung.policies.neural import UniformPolicy as UniformPolicy
from farflung.policies.neural import networks_of as networks_of
from farflung.policies.neural import neural_team as neural_team
from farflung.policies.tabular import TabularSoftmax as TabularSoftmax
from farflung.policies.tabular import softmax_team as softmax_team
from farflung.policies.tabular import uniform_team as uniform_team


@runtime_checkable
class Team(Protocol):
    """What a training asks of a team's policies: a pytree, such as an `equinox.Module`.

    Where states are numbered, the policies are a `TabularSoftmax`.
    """

    num_agents: int
    num_uniforms: int
    """Uniform numbers that one action takes."""
    axes: Any
    """The agent axis of each array, as `vmap` takes it: 0, or a team with 0, or None for what is shared, in place of arrays."""

    def sampler(self) -> Callable[[Array, Array, Array], Array]:
        """For one agent: a function of uniform numbers, time and state (or observation) that draws an action."""

    def executed(self, actions: Array) -> Array:
        """What the world executes for drawn actions, such as actions squashed into their bounds."""

    def log_probability(self, states: Array, actions: Array) -> Array:
        """For one agent: the log probability, or log density, of drawn actions."""

    def entropy(self, states: Array) -> Array:
        """For one agent: the entropy of the actions in each state, in nats."""


def log_probabilities(team: Any, states: Array, actions: Array) -> Float[Array, "batch agent trajectory time"]:
    r"""$\log \pi_i(a \mid s)$ of each agent's actions."""
    of_one: Any = type(team).log_probability
    return jax.vmap(of_one, (team.axes, 1, 1), out_axes=1)(team, states, actions)


def policy_entropies(team: Any, states: Array) -> Float[Array, "batch agent trajectory time"]:
    """The entropy of each agent's actions in the states that it acted in, in nats."""
    of_one: Any = type(team).entropy
    return jax.vmap(of_one, (team.axes, 1), out_axes=1)(team, states)
