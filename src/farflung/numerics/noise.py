"""Many random numbers at once."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.extend.random import threefry_2x32
from jaxtyping import Array, Complex64, Float, PRNGKeyArray, UInt

from farflung.numerics.arrays import runs_on_cpu

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


def uniforms(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Uniform numbers in [0, 1), multiples of $2^{-24}$.

    `jax.random.uniform` uses a whole Threefry block for each number; half a block makes training on a CPU much faster.
    """
    bits = threefry_2x32(jr.key_data(key), jnp.arange(int(np.prod(shape)), dtype=jnp.uint32))
    return _as_uniforms(bits).reshape(shape)


def uniform_rows(key: PRNGKeyArray, shape: tuple[int, ...]) -> Callable[..., Float[Array, "..."]]:
    """The numbers of `uniforms` as a function of the first row, the row after it (0), and how many rows that can be (1).

    On a CPU, rows that are read within a loop are made in half the time.
    """
    if shape[0] % 2 or not runs_on_cpu():
        rows = uniforms(key, shape)
        return lambda first, index=0, num=1: rows[first + index]
    half, size = shape[0] // 2, int(np.prod(shape[1:]))
    # Both numbers of a block in one array: XLA would compute the blocks twice to give two.
    pairs = jax.lax.complex(*map(_as_uniforms, _threefry(jr.key_data(key), half * size)))

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


def _threefry(key: UInt[Array, " 2"], num_blocks: int) -> tuple[UInt[Array, " block"], UInt[Array, " block"]]:
    """Both halves of the bits of `threefry_2x32`, without its loop, which takes twice as long on a CPU."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ _PARITY)
    first = jax.lax.iota(jnp.uint32, num_blocks)
    first, second = first + keys[0], first + np.uint32(num_blocks) + keys[1]
    for number in range(5):
        for rotation in _ROTATIONS[number % 2]:
            first += second
            second = (second << rotation | second >> (32 - rotation)) ^ first
        first += keys[(number + 1) % 3]
        second += keys[(number + 2) % 3] + np.uint32(number + 1)
    return first, second


def _as_uniforms(bits: UInt[Array, " number"]) -> Float[Array, " number"]:
    return (bits >> 8).astype(jnp.float32) * jnp.float32(2.0**-24)
