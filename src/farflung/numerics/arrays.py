"""Gathers and sums by index that are fast under any number of vmaps, and bit-identical for any order of summation."""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float, Int, Num, Shaped

_LARGEST_INDEX = 2**31 - 1
_MOST_UNROLLED = 16
_MOST_COMPARED = 64


@custom_vmap
def _gather(table: Array, index: Array) -> Array:
    return table.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)


@_gather.def_vmap
def _gather_batched(size: int, in_batched: list[bool], table: Array, index: Array) -> tuple[Array, bool]:
    # A batch of tables becomes one long table: XLA's one-dimensional gathers are up to twice as fast as batched ones.
    if in_batched[0]:
        if table.size > _LARGEST_INDEX:
            return jax.vmap(_gather.fun, (0, 0 if in_batched[1] else None))(table, index), True
        index = _offset(size, in_batched[1], index, table.shape[1])
        table = table.reshape(-1)
    return _gather(table, index), True


@functools.cache
def _scatter_add(num_rows: int) -> Callable[[Array, Array], Array]:
    @custom_vmap
    def scatter_add(index: Array, values: Array) -> Array:
        if not runs_on_cpu():
            # On a GPU, rollouts store time, the last axis, outermost in memory: moving it first avoids a transpose.
            index, values = (jnp.moveaxis(array, -1, 0) for array in (index, values))
        values = jnp.broadcast_to(values, index.shape)
        return jnp.zeros(num_rows, values.dtype).at[index].add(values, mode="promise_in_bounds", wrap_negative_indices=False)

    @scatter_add.def_vmap
    def scatter_add_batched(size: int, in_batched: list[bool], index: Array, values: Array) -> tuple[Array, bool]:
        if size * num_rows > _LARGEST_INDEX:
            return jax.vmap(scatter_add.fun, [0 if batched else None for batched in in_batched])(index, values), True
        index = _offset(size, in_batched[0], index, num_rows)
        values = values if in_batched[1] else values[None]
        return _scatter_add(size * num_rows)(index, values).reshape(size, num_rows), True

    return scatter_add


def _offset(size: int, is_batched: bool, index: Array, num_rows: int) -> Array:
    index = index if is_batched else jnp.broadcast_to(index, (size, *index.shape))
    first_row = jnp.arange(size, dtype=index.dtype) * num_rows
    return index + first_row.reshape(size, *(1,) * (index.ndim - 1))


def lookup(table: Shaped[Array, " row"], index: Int[Array, "*shape"]) -> Shaped[Array, "*shape"]:
    """The table's entries at `index`, which must lie within the table."""
    return _gather(table, index)


def count_by_index(index: Int[Array, "*shape"], num_rows: int) -> Int[Array, " {num_rows}"]:
    """The number of times each row occurs in `index`."""
    return _scatter_add(num_rows)(index, jnp.ones((1,) * index.ndim, jnp.int32))


def later_occurrences(index: Int[Array, "*axes time"], num_rows: int) -> Int[Array, "*axes time"]:
    """How often each entry, a number below `num_rows`, occurs again later along the last axis."""
    num_times = index.shape[-1]
    if num_times <= _MOST_COMPARED:
        later = np.triu(np.ones((num_times, num_times), bool), 1).reshape(*(1,) * (index.ndim - 1), num_times, num_times)
        return jnp.sum((index[..., :, None] == index[..., None, :]) & later, axis=-1, dtype=jnp.int32)
    time = jax.lax.broadcasted_iota(jnp.int32, index.shape, index.ndim - 1)
    if num_rows * num_times <= _LARGEST_INDEX:  # one number for row and time sorts several times faster than two
        row, when = jnp.divmod(jax.lax.sort(index * num_times + time, is_stable=False), num_times)
    else:
        row, when = jax.lax.sort((index, time), num_keys=1, is_stable=True)
    # Sorted like this, a row's occurrences follow one another in time: as many are left as there are up to the row's last.
    is_last = jnp.concatenate([row[..., 1:] != row[..., :-1], jnp.ones_like(row[..., :1], bool)], axis=-1)
    last = jax.lax.cummin(jnp.where(is_last, time, num_times), axis=index.ndim - 1, reverse=True)
    series = jnp.arange(index.size // num_times, dtype=jnp.int32).reshape(*index.shape[:-1], 1)
    return _scatter_add(index.size)(series * num_times + when, last - time).reshape(index.shape)


def sum_by_index(index: Int[Array, "*shape"], values: Float[Array, "*#shape"], num_rows: int) -> Float[Array, " {num_rows}"]:
    """The sum of the values at each row.

    A GPU adds in no fixed order, and floating-point sums depend on the order; integer sums don't. So the values are added as
    fixed-point numbers whose unit is at most $2^{-16}$ of the largest value, finer than the precision of a float32 sum.
    """
    headroom = 30 - int(index.size).bit_length()
    num_limbs = 1 if headroom >= 16 else 2
    largest = jnp.max(jnp.abs(values))
    _, exponent = jnp.frexp(largest)
    scale = headroom - jnp.maximum(exponent, -80)
    total = largest * 0  # NaN and infinity have no fixed-point form; this makes the sum NaN
    for _ in range(num_limbs):
        digits = jnp.round(values * jnp.ldexp(jnp.float32(1), scale))
        unit = jnp.ldexp(jnp.float32(1), -scale)
        total += _scatter_add(num_rows)(index, digits.astype(jnp.int32)).astype(jnp.float32) * unit
        values = values - digits * unit
        scale = scale + headroom
    return total


def exact_sum(values: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
    """The sum over an axis, bit-identical in any order: a chain of additions if the axis is short, else in fixed point."""
    if values.shape[axis] <= _MOST_UNROLLED:
        return functools.reduce(
            jnp.add, [jax.lax.index_in_dim(values, i, axis, keepdims=False) for i in range(values.shape[axis])]
        )
    _, exponent = jnp.frexp(jnp.max(jnp.abs(values), axis=axis, keepdims=True))
    scale = 30 - int(values.shape[axis]).bit_length() - jnp.maximum(exponent, -80)
    digits = jnp.round(values * jnp.ldexp(jnp.float32(1), scale)).astype(jnp.int32)
    return jnp.sum(digits, axis=axis).astype(jnp.float32) * jnp.ldexp(jnp.float32(1), -jnp.squeeze(scale, axis))


def mean_of_others(values: Float[Array, "row *axes"], pooled_axis: int, *, is_below_32: bool = True) -> Float[Array, "row ..."]:
    """For each row, the mean over all other rows and `pooled_axis`; zero for a single row.

    In fixed point, so that the mean is exactly independent of the row itself.

    Args:
        is_below_32: whether all magnitudes are below 32; if not, the largest one sets the rounding.
    """
    num_rows, num_pooled = values.shape[0], values.shape[pooled_axis]
    if num_rows == 1:
        return jnp.zeros_like(values)
    unit: Any = 2.0 ** (int(num_rows * num_pooled).bit_length() + 5 - 30)
    if not is_below_32:
        _, exponent = jnp.frexp(jnp.max(jnp.abs(values)))
        unit = unit * jnp.ldexp(jnp.float32(1), jnp.maximum(exponent - 5, 0))
    digits = jnp.sum(jnp.round(values / unit).astype(jnp.int32), axis=pooled_axis, keepdims=True)
    others = jnp.sum(digits, axis=0, keepdims=True) - digits
    return others.astype(jnp.float32) * (unit / ((num_rows - 1) * num_pooled))


def inverse_cdf(
    cumulative: Float[Array, " entry"], row: Int[Array, ""], num_outcomes: int, uniform: Float[Array, ""]
) -> Int[Array, ""]:
    """The outcome that a uniform number in [0, 1) picks from one row of a flat table of cumulative probabilities."""
    first = row * num_outcomes
    if num_outcomes <= _MOST_UNROLLED and not runs_on_cpu():
        # A GPU fuses this with the gathers; a CPU is faster with the single gather below. The results are equal.
        passed = [(uniform >= lookup(cumulative, first + i)).astype(jnp.int32) for i in range(num_outcomes - 1)]
        return functools.reduce(jnp.add, passed)
    thresholds = lookup(cumulative, first + jnp.arange(num_outcomes - 1, dtype=jnp.int32))
    return jnp.sum(uniform >= thresholds, dtype=jnp.int32)


def log_softmax(logits: Float[Array, "*axes outcome"]) -> Float[Array, "*axes outcome"]:
    """The logarithm of the softmax over the last axis.

    Sums over few outcomes are chains of additions, here and below: XLA splits a reduction differently depending on the
    surrounding computation, which changes its last bits.
    """
    is_narrow = logits.shape[-1] <= _MOST_UNROLLED
    largest = functools.reduce(jnp.maximum, _columns(logits)) if is_narrow else jnp.max(logits, axis=-1)
    shifted = logits - largest[..., None]
    return shifted - jnp.log(ordered_sum(jnp.exp(shifted)))[..., None]


def ordered_sum(values: Float[Array, "*axes outcome"]) -> Float[Array, "*axes"]:
    if values.shape[-1] > _MOST_UNROLLED:
        return jnp.sum(values, axis=-1)
    return functools.reduce(jnp.add, _columns(values))


def cumulative_sum(probabilities: Float[Array, "*axes outcome"]) -> Float[Array, "*axes outcome"]:
    if probabilities.shape[-1] > _MOST_UNROLLED:
        return jnp.cumsum(probabilities, axis=-1)
    return jnp.stack(list(itertools.accumulate(_columns(probabilities), jnp.add)), axis=-1)


def _columns(table: Array) -> list[Array]:
    return [table[..., column] for column in range(table.shape[-1])]


def runs_on_cpu() -> bool:
    return jax.default_backend() == "cpu"


def flat(table: Num[Array, "..."]) -> Num[Array, " entry"]:
    return table.reshape(-1)
