"""What is recorded of a team while it learns."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from farflung.entropy import decompose, entropy_of_counts, shannon
from farflung.policies import TabularSoftmax
from farflung.rollout import Trajectories
from farflung.tables import count_by_index


class Metrics(NamedTuple):
    """Measured on the batch of one update; entropies in nats."""

    entropy: Float[Array, ""]
    """of all states that the team visits in one batch element, averaged over the batch"""
    normalized_entropy: Float[Array, ""]
    """that in units of the log of the number of states"""
    support: Float[Array, ""]
    """the number of distinct states visited in one batch element, averaged over the batch"""
    mixture_entropy: Float[Array, ""]
    """of the mean of the agents' state distributions, each pooled over the batch"""
    individual_entropy: Float[Array, ""]
    """the mean entropy of the agents' own state distributions"""
    diversity: Float[Array, ""]
    """the mean KL divergence of the agents' state distributions from their mixture"""
    policy_entropy: Float[Array, ""]
    """the mean entropy of the policies in the states that they acted in"""


def measure(team: TabularSoftmax, trajectories: Trajectories, num_states: int) -> Metrics:
    """The metrics of a batch of trajectories of a team."""
    states = trajectories.states
    counts = jax.vmap(count_by_index, (0, None))(states, num_states)
    entropy = jnp.mean(entropy_of_counts(counts, states[0].size))
    pooled = jax.vmap(count_by_index, (1, None))(states, num_states)
    distributions = pooled / (states.size // states.shape[1])
    individual_entropy, diversity = decompose(distributions)
    policy_entropy = jax.vmap(TabularSoftmax.entropy, (0, 1))(team, states[..., :-1])
    return Metrics(
        entropy=entropy,
        normalized_entropy=entropy / jnp.log(num_states),
        support=jnp.mean(jnp.sum(counts > 0, axis=-1)),
        mixture_entropy=shannon(jnp.mean(distributions, axis=0)),
        individual_entropy=individual_entropy,
        diversity=diversity,
        policy_entropy=jnp.mean(policy_entropy),
    )
