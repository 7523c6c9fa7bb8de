"""How much a credit's estimate of the gradient varies from batch to batch."""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PRNGKeyArray

from farflung.algorithms.pgpse import PGPSE
from farflung.policies import TabularSoftmax
from farflung.policies.rollout import play
from farflung.worlds.tabular import TabularMDP


@partial(jax.jit, static_argnums=4)
def gradient_variances(
    key: PRNGKeyArray, algorithms: Sequence[PGPSE], team: TabularSoftmax, world: TabularMDP, num_batches: int
) -> Float[Array, " algorithm"]:
    r"""The trace of the covariance of each algorithm's gradient for one team, $\sum_j \mathrm{Var}(\hat g_j)$.

    All algorithms see the same batches, and must agree in their sizes.
    """

    def gradients(key: Key[Array, ""]) -> list[Float[Array, "..."]]:
        batch = play(key, team, world, algorithms[0].batch_size, algorithms[0].num_trajectories)
        return [algorithm.gradient(world, team, batch).logits for algorithm in algorithms]

    found = jax.lax.map(gradients, jr.split(key, num_batches))
    return jnp.stack([jnp.sum(jnp.var(each, axis=0, ddof=1)) for each in found])
