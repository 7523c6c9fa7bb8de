"""A JAX world of your own: a boat in a current, as three functions. `farflung explore own_jax_world:Boat` explores it too."""

import jax
import jax.numpy as jnp

import farflung


class Boat:
    horizon = 40
    actions = farflung.Box((-1.0, -1.0), (1.0, 1.0))
    names = ("x", "y")  # optional: what the numbers of an observation are called

    def reset(self, key):
        return jax.random.uniform(key, (2,), minval=-0.1, maxval=0.1)

    def step(self, key, state, action):
        current = jnp.array([0.05, 0.0]) + 0.02 * jax.random.normal(key, (2,))
        return jnp.clip(state + 0.1 * action + current, -1.0, 1.0)

    def observe(self, state):
        return state


if __name__ == "__main__":
    run = farflung.explore(Boat(), agents=4, updates=50, batch_size=8, seeds=(0,))
    visited, random = run.summary["final"]["support"][0], run.summary["random"]["support"]
    print(f"cells visited: {visited:.0f}, with random actions {random:.0f}")
