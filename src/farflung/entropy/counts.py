"""Entropies of the states that a team visits, from counts."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from farflung.entropy.objective import Objective
from farflung.numerics.arrays import count_by_index, later_occurrences, lookup
from farflung.numerics.spread import num_parts

_FRACTION_BITS = 26


def plug_in(num_states: int, mesh_axis: str | None = None) -> Objective:
    r"""The entropy of the empirical state distribution $d_n$, in nats.

    Its expectation never exceeds $\mathcal{H}(d_\pi)$ (Jensen), and n samples reach at most $\log n$.

    Args:
        mesh_axis: the axis of the mesh along which the agents are spread, if the states are those of some of them; devices then
            exchange their counts.

    >>> import jax.numpy as jnp
    >>> round(float(plug_in(4).value(jnp.array([[[0, 1, 0, 1]]]))), 4)  # log 2
    0.6931
    """

    def team_counts(states: Int[Array, "agent trajectory times"]) -> Int[Array, " state"]:
        counts = count_by_index(states, num_states)
        return counts if mesh_axis is None else jax.lax.psum(counts, mesh_axis)

    def value(states: Int[Array, "agent trajectory times"]) -> Float[Array, ""]:
        return entropy_of_counts(team_counts(states), states.size * num_parts(mesh_axis))

    def gains(states: Int[Array, "agent trajectory times"]) -> Float[Array, "agent trajectory times"]:
        counts = lookup(team_counts(states), states) - later_occurrences(states, num_states)
        return lookup(jnp.asarray(gain_of_count(states.size * num_parts(mesh_axis))), counts)

    return Objective(value, gains, is_below_32=True, across=functools.partial(plug_in, num_states))


def ragged_plug_in(num_states: int) -> Objective:
    r"""The entropy of the empirical state distribution of episodes that may have ended early.

    The state `num_states` stands for all times after an episode's end and doesn't count. The number of samples depends on
    the actions, so a gain is the entropy of the samples after a visit minus that of the samples before it.

    >>> round(float(ragged_plug_in(4).value(jnp.array([[[0, 1, 4, 4]]]))), 4)  # log 2
    0.6931
    """

    def value(states: Int[Array, "agent trajectory times"]) -> Float[Array, ""]:
        counts = count_by_index(states, num_states + 1)[:num_states]
        return _entropy(jnp.sum(_weighted_log(counts)), jnp.sum(counts))

    def gains(states: Int[Array, "agent trajectory times"]) -> Float[Array, "agent trajectory times"]:
        is_real = states < num_states
        all_counts = count_by_index(states, num_states + 1)
        counts = lookup(all_counts, states) - later_occurrences(states, num_states + 1)
        steps = jnp.where(is_real, _weighted_log(counts) - _weighted_log(counts - 1), 0.0)
        later = jax.lax.cumsum(steps, axis=steps.ndim - 1, reverse=True)
        length = jnp.sum(is_real, axis=-1, keepdims=True)
        time = jax.lax.broadcasted_iota(jnp.int32, states.shape, states.ndim - 1)
        before = jnp.minimum(time, length) + jnp.sum(length) - length
        whole = jnp.sum(_weighted_log(all_counts[:num_states]))
        reached = _entropy(whole - (later - steps), before + 1) - _entropy(whole - later, before)
        return jnp.where(is_real, reached, 0.0)

    return Objective(value, gains, is_below_32=True)


def _entropy(sum_of_weighted_logs: Float[Array, "*axes"], num_samples: Int[Array, "*axes"]) -> Float[Array, "*axes"]:
    r"""$\log n - \frac1n \sum_s c_s \log c_s$, zero without samples."""
    n = jnp.maximum(num_samples, 1)
    return jnp.where(num_samples > 0, jnp.log(n) - sum_of_weighted_logs / n, 0.0)


def _weighted_log(counts: Int[Array, "*axes"]) -> Float[Array, "*axes"]:
    return counts * jnp.log(jnp.maximum(counts, 1))


def entropy_of_counts(counts: Int[Array, "*axes state"], num_samples: int) -> Float[Array, "*axes"]:
    r"""$-\sum_s \frac{c_s}{n} \log \frac{c_s}{n}$ for counts that add up to n, bit-identical for any order of summation."""
    terms = lookup(jnp.asarray(_fixed_point_terms(num_samples)), counts)
    return jnp.sum(terms, axis=-1).astype(jnp.float32) * 2.0**-_FRACTION_BITS


@functools.cache
def _fixed_point_terms(num_samples: int) -> Int[np.ndarray, " count"]:
    share = np.arange(num_samples + 1) / num_samples
    terms = -share * np.log(np.maximum(share, 1 / num_samples))
    return np.round(terms * 2.0**_FRACTION_BITS).astype(np.int32)


@functools.cache
def gain_of_count(num_samples: int) -> Float[np.ndarray, " count"]:
    r"""$h(c) - h(c - 1)$ with $h(c) = -\frac{c}{n} \log \frac{c}{n}$.

    h is rounded so that any consecutive gains add up without error, in any order: no such sum exceeds log n.
    """
    share = np.arange(num_samples + 1) / num_samples
    unit = 2.0 ** (np.ceil(np.log2(np.log(num_samples + 1))) - 23)
    terms = np.round(-share * np.log(np.maximum(share, 1 / num_samples)) / unit) * unit
    return np.diff(terms, prepend=0).astype(np.float32)


def shannon(distribution: Float[Array, "*axes state"]) -> Float[Array, "*axes"]:
    r"""$\mathcal{H}(d) = -\sum_s d(s) \log d(s)$, in nats."""
    return -jnp.sum(distribution * jnp.log(jnp.where(distribution > 0, distribution, 1.0)), axis=-1)


def decompose(distributions: Float[Array, "agent state"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    r"""The two parts of the entropy of a team's mixture: the agents' mean entropy and their diversity.

    $\mathcal{H}(\bar d) = \frac1m \sum_i \mathcal{H}(d_i) + \frac1m \sum_i D_{KL}(d_i \| \bar d)$ (section 4 of the paper).
    """
    mixture = jnp.mean(distributions, axis=0, keepdims=True)
    log_ratio = jnp.log(jnp.where(distributions > 0, distributions, 1.0)) - jnp.log(jnp.where(mixture > 0, mixture, 1.0))
    diversity = jnp.mean(jnp.sum(jnp.where(distributions > 0, distributions * log_ratio, 0.0), axis=-1))
    return jnp.mean(shannon(distributions)), diversity
