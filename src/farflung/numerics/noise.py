"""Many random numbers at once."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.extend.random import threefry_2x32
from jaxtyping import Array, Float, PRNGKeyArray


def uniforms(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Uniform numbers in [0, 1), multiples of $2^{-24}$.

    `jax.random.uniform` uses a whole Threefry block for each number; half a block makes training on a CPU much faster.
    """
    bits = threefry_2x32(jr.key_data(key), jnp.arange(int(np.prod(shape)), dtype=jnp.uint32))
    return (bits >> 8).astype(jnp.float32).reshape(shape) * jnp.float32(2.0**-24)
