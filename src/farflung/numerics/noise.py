"""Many random numbers at once."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.extend.random import threefry_2x32
from jaxtyping import Array, Complex64, Float, PRNGKeyArray, UInt

from farflung.numerics.arrays import runs_on_cpu

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


class Part(NamedTuple):
    """Of which larger array an array is a part: equally long along all axes but one."""

    axis: int
    first: Any
    """Where the part begins along that axis."""
    size: int
    """How long the larger array is along that axis."""


def uniforms(key: PRNGKeyArray, shape: tuple[int, ...], part: Part | None = None) -> Float[Array, "..."]:
    """Uniform numbers in [0, 1), multiples of $2^{-24}$.

    `jax.random.uniform` uses a whole Threefry block for each number; half a block makes training on a CPU much faster.

    Args:
        part: if given, the numbers are a part of those of a larger array, and only they are made.
    """
    if part is not None:
        return _as_uniforms(_bits_of(key, shape, part))
    bits = threefry_2x32(jr.key_data(key), jnp.arange(int(np.prod(shape)), dtype=jnp.uint32))
    return _as_uniforms(bits).reshape(shape)


def uniform_rows(key: PRNGKeyArray, shape: tuple[int, ...], part: Part | None = None) -> Callable[..., Float[Array, "..."]]:
    """The numbers of `uniforms` as a function of the first row, the row after it (0), and how many rows that can be (1).

    On a CPU, rows that are read within a loop are made in half the time.
    """
    if shape[0] % 2 or not runs_on_cpu():
        rows = uniforms(key, shape, part)
        return lambda first, index=0, num=1: rows[first + index]
    half, size = shape[0] // 2, int(np.prod(shape[1:]))
    if part is None:
        blocks, num_blocks = jax.lax.iota(jnp.uint32, half * size), half * size
    else:
        blocks, num = _positions((half, *shape[1:]), part)
        blocks, num_blocks = blocks.reshape(-1), num
    # Both numbers of a block in one array: XLA would compute the blocks twice to give two.
    bits = _threefry(jr.key_data(key), blocks, blocks + np.uint32(num_blocks))
    pairs = jax.lax.complex(*map(_as_uniforms, bits))

    def pair(number: Any) -> Complex64[Array, "..."]:
        return jax.lax.dynamic_slice_in_dim(pairs, number * size, size).reshape(shape[1:])

    def row(first: int, index: Any = 0, num: int = 1) -> Float[Array, "..."]:
        if first + num <= half:
            return pair(first + index).real
        if first >= half:
            return pair(first - half + index).imag
        both = pair((first + index) % half)
        return jnp.where(first + index < half, both.real, both.imag)

    return row


def _positions(shape: tuple[int, ...], part: Part) -> tuple[UInt[Array, "..."], int]:
    """Where the numbers of a part lie in the larger array, counted row by row, and how many that array has."""
    whole = (*shape[: part.axis], part.size, *shape[part.axis + 1 :])
    position = jnp.zeros((1,) * len(shape), jnp.uint32)
    for axis in range(len(shape)):
        along = jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
        if axis == part.axis:
            along += jnp.asarray(part.first, jnp.uint32)
        position = position + along * np.uint32(np.prod(whole[axis + 1 :], dtype=np.int64))
    return position, int(np.prod(whole))


def _bits_of(key: PRNGKeyArray, shape: tuple[int, ...], part: Part) -> UInt[Array, "..."]:
    """The bits that `threefry_2x32` has for a part of a larger array; it pairs the first half of that array with the second."""
    position, num = _positions(shape, part)
    half = (num + 1) // 2
    is_second = position >= half
    block = jnp.where(is_second, position - np.uint32(half), position)
    partner = block + np.uint32(half)
    if num % 2:  # the last block lacks its second number
        partner = jnp.where(partner == num, 0, partner)
    first, second = _threefry(jr.key_data(key), block, partner)
    return jnp.where(is_second, second, first)


def _threefry(
    key: UInt[Array, " 2"], first: UInt[Array, "*shape"], second: UInt[Array, "*shape"]
) -> tuple[UInt[Array, "*shape"], UInt[Array, "*shape"]]:
    """Both halves of the bits of `threefry_2x32`, without its loop, which takes twice as long on a CPU."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ _PARITY)
    first, second = first + keys[0], second + keys[1]
    for number in range(5):
        for rotation in _ROTATIONS[number % 2]:
            first += second
            second = (second << rotation | second >> (32 - rotation)) ^ first
        first += keys[(number + 1) % 3]
        second += keys[(number + 2) % 3] + np.uint32(number + 1)
    return first, second


def _as_uniforms(bits: UInt[Array, "*shape"]) -> Float[Array, "*shape"]:
    return (bits >> 8).astype(jnp.float32) * jnp.float32(2.0**-24)
