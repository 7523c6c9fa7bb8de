"""Credit: how the team's objective, such as the entropy of its states, becomes a weight for each action.

The policy gradient is the mean over the batch of the sum of weight times score over all actions. The trajectories of a batch
element are independent given the policies. So a baseline that does not depend on an action, given its state, can be subtracted
from the action's weight: the expected gradient stays the same, and its variance falls.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from farflung.entropy.objective import Objective
from farflung.numerics.arrays import mean_of_others

Weights = Float[Array, "batch #agent #trajectory #time"]
States = Int[Array, "batch agent trajectory times"] | Float[Array, "batch agent trajectory times observation"]
Credit = Callable[[Objective, States], Weights]


def total(objective: Objective, states: States) -> Weights:
    """The paper's credit: every action's weight is the value, such as the entropy, of its batch element."""
    return jax.vmap(objective.value)(states)[:, None, None, None]


def leave_one_out(objective: Objective, states: States) -> Weights:
    """The objective's value minus the mean of the other batch elements."""
    return _centred(objective, total(objective, states))


def difference(objective: Objective, states: States) -> Weights:
    """The contribution of the action's trajectory, given all others, minus the mean of the other batch elements."""
    return _centred(objective, jnp.sum(jax.vmap(objective.gains)(states), axis=-1, keepdims=True))


def causal(objective: Objective, states: States) -> Weights:
    """The contribution of the states after the action, given all others and their own past, minus the other elements' mean."""
    gains = jax.vmap(objective.gains)(states)
    return _centred(objective, jax.lax.cumsum(gains[..., 1:], axis=gains.ndim - 1, reverse=True))


CREDITS: dict[str, Credit] = {"total": total, "leave_one_out": leave_one_out, "difference": difference, "causal": causal}


def recombined(credit: Credit, num_combinations: int, first_agent: int | Int[Array, ""] = 0) -> Credit:
    """A credit averaged over several regroupings of the batch into teams, without more environment steps.

    In combination r the j-th trajectory of a team comes r j batch elements later. Each combination is a batch of independent
    teams like the original one, so each is unbiased, and so is their mean, which has a lower variance.

    Args:
        first_agent: the number of the first agent whose states are here, where agents are spread over devices.
    """

    def weights(objective: Objective, states: States) -> Weights:
        batch_size, num_agents, num_trajectories = states.shape[:3]
        slot = jnp.arange(num_agents * num_trajectories).reshape(1, num_agents, num_trajectories)
        slot = slot + first_agent * num_trajectories
        element = jnp.arange(batch_size).reshape(-1, 1, 1)

        def shifted(table: Array, shift: Array) -> Array:
            origin = (element + shift * slot) % batch_size
            return jnp.take_along_axis(table, jnp.expand_dims(origin, tuple(range(3, table.ndim))), axis=0)

        def add(total: Array, shift: Array) -> tuple[Array, None]:
            return total + shifted(credit(objective, shifted(states, shift)), -shift), None

        shape = jax.eval_shape(lambda states: credit(objective, states), states).shape
        total, _ = jax.lax.scan(add, jnp.zeros(shape), jnp.arange(num_combinations))
        return total / num_combinations

    return weights


def independent(credit: Credit) -> Credit:
    """A credit for each agent's own objective, as if it were alone."""

    def weights(objective: Objective, states: States) -> Weights:
        alone = jax.vmap(lambda own: credit(objective, own[:, None]), in_axes=1, out_axes=1)(states)
        return jnp.squeeze(alone, axis=2)

    return weights


def _centred(objective: Objective, weights: Weights) -> Weights:
    """The weights minus the mean of the same agent's weights at the same time in the other batch elements."""
    return weights - mean_of_others(weights, pooled_axis=2, is_below_32=objective.is_below_32)
