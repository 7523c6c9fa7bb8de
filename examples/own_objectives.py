"""Three objectives of your own: a target distribution, weighted states, and Rényi entropy, each with its ceiling."""

import jax.numpy as jnp

import farflung

TARGET = jnp.arange(1, 44) / 946  # the share of visits that each of the Room's 43 states is to get
WEIGHTS = jnp.where(jnp.arange(43) < 20, 3.0, 1.0)  # the first states count three times


def _log(shares):
    return jnp.log(jnp.where(shares > 0, shares, 1.0))


# Minus the KL divergence from the target, a sum of weighted entropies, and Rényi's entropy of order 1/2: all are concave.
# The first two are sums over the states, so their ceilings are those of the finite team.
towards_target = farflung.Utility(lambda shares: -jnp.sum(shares * (_log(shares) - jnp.log(TARGET))), is_separable=True)
weighted_states = farflung.Utility(lambda shares: -jnp.sum(WEIGHTS * shares * _log(shares)), is_separable=True)
renyi = farflung.Utility(lambda shares: 2 * jnp.log(jnp.sum(jnp.sqrt(shares))))

if __name__ == "__main__":
    for name, objective in {"target": towards_target, "weighted": weighted_states, "Rényi": renyi}.items():
        run = farflung.explore("room-det", agents=4, objective=objective, updates=100, seeds=(0,))
        found = run.summary["objective"]
        print(f"{name}: {run.summary['final']['objective'][0]:.2f} of at most {found['bound']:.2f}, by {found['method']}")
