"""Credit: how the team's entropy becomes a weight for each action.

The policy gradient is the mean over the batch of the sum of weight times score over all actions. The trajectories of a batch
element are independent given the policies. So a baseline that does not depend on an action, given its state, can be subtracted
from the action's weight: the expected gradient stays the same, and its variance falls.
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
    """The paper's credit: every action's weight is the entropy of the states that the team visits in its batch element."""
    return jax.vmap(entropy.value)(states)[:, None, None, None]


def leave_one_out(entropy: Entropy, states: States) -> Weights:
    """The team's entropy minus the mean of the other batch elements."""
    return _centred(total(entropy, states), states)


def difference(entropy: Entropy, states: States) -> Weights:
    """The contribution of the action's trajectory, given all others, minus the mean of the other batch elements."""
    return _centred(jnp.sum(jax.vmap(entropy.gains)(states), axis=-1, keepdims=True), states)


def causal(entropy: Entropy, states: States) -> Weights:
    """The contribution of the states after the action, given all others and their own past, minus the other elements' mean."""
    gains = jax.vmap(entropy.gains)(states)
    return _centred(jax.lax.cumsum(gains[..., 1:], axis=gains.ndim - 1, reverse=True), states)


CREDITS: dict[str, Credit] = {"total": total, "leave_one_out": leave_one_out, "difference": difference, "causal": causal}


def recombined(credit: Credit, num_combinations: int) -> Credit:
    """A credit averaged over several regroupings of the batch into teams, without more environment steps.

    In combination r the j-th trajectory of a team comes r j batch elements later. Each combination is a batch of independent
    teams like the original one, so each is unbiased, and so is their mean, which has a lower variance.
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
    """A credit for each agent's own entropy, as if it were alone."""

    def weights(entropy: Entropy, states: States) -> Weights:
        alone = jax.vmap(lambda own: credit(entropy, own[:, None]), in_axes=1, out_axes=1)(states)
        return jnp.squeeze(alone, axis=2)

    return weights


def _centred(weights: Weights, states: States) -> Weights:
    """The weights minus the mean of the same agent's weights at the same time in the other batch elements."""
    # Entropies of counts are below 32 nats; those of vectors depend on the units and have no bound.
    return weights - mean_of_others(weights, pooled_axis=2, is_below_32=jnp.issubdtype(states.dtype, jnp.integer))
