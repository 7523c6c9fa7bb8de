"""A credit and an objective of your own: marginal gains without a baseline, of the columns of a map."""

import jax
import jax.numpy as jnp

import farflung


def without_baseline(objective, states):
    """The weight of each action: what the states after it add to the objective."""
    gains = jax.vmap(objective.gains)(states)  # [batch, agent, trajectory, time]
    return jax.lax.cumsum(gains[..., 1:], axis=gains.ndim - 1, reverse=True)


def of_columns(world):
    """The entropy of the columns that the team visits, whatever the rows."""
    column = jnp.asarray(world.positions)[:, 1]
    counts = farflung.plug_in(int(column.max()) + 1)
    return farflung.Objective(
        lambda states: counts.value(column[states]),
        lambda states: counts.gains(column[states]),
    )


if __name__ == "__main__":
    run = farflung.explore("room-det", agents=2, credit=without_baseline, objective=of_columns, updates=100, seeds=(0,))
    print("entropy / log(states):", run.summary["final"]["normalized_entropy"], "credit:", run.config.credit)
