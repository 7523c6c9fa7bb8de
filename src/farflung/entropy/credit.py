"""How the team's entropy becomes a weight for each action.

The policy gradient is the mean over the batch of the sum of weight times score over all actions. The trajectories of a batch
element are independent given the policies, so whatever does not depend on an action, given the state that it was taken in, may
be subtracted from its weight: the expected gradient stays the same, and its variance falls.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from farflung.entropy.counts import Entropy
from farflung.numerics.arrays import mean_of_others

Weights = Float[Array, "batch #agent #trajectory #time"]
States = Int[Array, "batch agent trajectory times"] | Float[Array, "batch agent trajectory times observation"]
Credit = Callable[[Entropy, States], Weights]


def total(entropy: Entropy, states: States) -> Weights:
    """The paper's: every action weighs the entropy of all that the team has visited in its batch element."""
    return jax.vmap(entropy.value)(states)[:, None, None, None]


def leave_one_out(entropy: Entropy, states: States) -> Weights:
    """That entropy compared with the mean of the other batch elements."""
    return _centred(total(entropy, states), states)


def difference(entropy: Entropy, states: States) -> Weights:
    """What the action's own trajectory adds to the entropy of all the others, compared with other batch elements."""
    return _centred(jnp.sum(jax.vmap(entropy.gains)(states), axis=-1, keepdims=True), states)


def causal(entropy: Entropy, states: States) -> Weights:
    """What the states after the action add, given all the others and the own past, compared with other batch elements."""
    gains = jax.vmap(entropy.gains)(states)
    return _centred(jax.lax.cumsum(gains[..., 1:], axis=gains.ndim - 1, reverse=True), states)


CREDITS: dict[str, Credit] = {"total": total, "leave_one_out": leave_one_out, "difference": difference, "causal": causal}


def recombined(credit: Credit, num_combinations: int) -> Credit:
    """A credit averaged over several ways to make teams of the same trajectories, at no cost in environment steps.

    In combination r the j-th trajectory of a team comes r j batch elements later. Each combination is a batch of independent
    teams like the original one, so each is unbiased, and so is their mean, which varies less.
    """

    def weights(entropy: Entropy, states: States) -> Weights:
        batch_size, num_agents, num_trajectories = states.shape[:3]
        slot = jnp.arange(num_agents * num_trajectories).reshape(1, num_agents, num_trajectories)
        element = jnp.arange(batch_size).reshape(-1, 1, 1)

        def shifted(table: Array, shift: Array) -> Array:
            origin = (element + shift * slot) % batch_size
            return jnp.take_along_axis(table, jnp.expand_dims(origin, tuple(range(3, table.ndim))), axis=0)

        def add(total: Array, shift: Array) -> tuple[Array, None]:
            return total + shifted(credit(entropy, shifted(states, shift)), -shift), None

        shape = jax.eval_shape(lambda states: credit(entropy, states), states).shape
        total, _ = jax.lax.scan(add, jnp.zeros(shape), jnp.arange(num_combinations))
        return total / num_combinations

    return weights


def independent(credit: Credit) -> Credit:
    """The credit that each agent gets if it is trained for its own entropy, as if it were alone."""

    def weights(entropy: Entropy, states: States) -> Weights:
        alone = jax.vmap(lambda own: credit(entropy, own[:, None]), in_axes=1, out_axes=1)(states)
        return jnp.squeeze(alone, axis=2)

    return weights


def _centred(weights: Weights, states: States) -> Weights:
    """Compared with the mean of the same agent's weights at the same time in the other batch elements."""
    # Counts give entropies of less than 32 nats; that of vectors depends on their units and has no bound.
    return weights - mean_of_others(weights, pooled_axis=2, is_below_32=jnp.issubdtype(states.dtype, jnp.integer))
