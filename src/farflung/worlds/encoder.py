"""Networks that read observations: convolutions for images, and a fixed random encoder in whose space entropy is measured."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

SIZE = 16
"""Numbers in an encoding: with two grid cells in each, coverage is counted on 65,536 cells."""
_CHANNELS = (16, 32)
_SMALL, _LARGE, _LEFT = 2, 4, 4
_LARGE_SIDE = 32
_HIDDEN = 64

Image = tuple[int, int, int]
"""Rows, columns and channels of an image, whose numbers an observation holds row by row."""


class Convolutions(eqx.Module):
    """Convolutions until an image is at most 4 x 4 places large; kernels don't overlap, so each is one matrix product."""

    layers: tuple[eqx.nn.Linear, ...]
    image: Image = eqx.field(static=True)

    def __call__(self, pixels: Float[Array, "*batch pixel"]) -> Float[Array, "*batch number"]:
        *batch, _ = pixels.shape
        found = pixels.reshape(*batch, *self.image)
        for layer, kernel in zip(self.layers, _kernels(self.image), strict=True):
            rows, columns, channels = found.shape[-3:]
            beyond = [(0, 0)] * len(batch) + [(0, -rows % kernel), (0, -columns % kernel), (0, 0)]
            found = jnp.pad(found, beyond)
            rows, columns = found.shape[-3] // kernel, found.shape[-2] // kernel
            found = found.reshape(*batch, rows, kernel, columns, kernel, channels)
            found = jnp.moveaxis(found, -4, -3).reshape(*batch, rows, columns, -1)
            found = jax.nn.relu(linear(layer, found))
        return found.reshape(*batch, -1)


def convolutions(key: PRNGKeyArray, image: Image) -> tuple[Convolutions, int]:
    """Convolutions with random weights, and how many numbers they give."""
    kernels = _kernels(image)
    (rows, columns, channels), layers = image, []
    for number, (kernel, layer_key) in enumerate(zip(kernels, jr.split(key, max(1, len(kernels))), strict=False)):
        more = _CHANNELS[min(number, len(_CHANNELS) - 1)]
        layers.append(eqx.nn.Linear(kernel**2 * channels, more, key=layer_key))
        rows, columns, channels = -(-rows // kernel), -(-columns // kernel), more
    return Convolutions(tuple(layers), image), rows * columns * channels


class Encoder(eqx.Module):
    """A fixed random network, as in RE3 (Seo et al., 2021): observations that look alike have encodings near each other."""

    convolutions: Convolutions | None
    layers: tuple[eqx.nn.Linear, ...]
    center: tuple[float, ...] = eqx.field(static=True)
    scale: tuple[float, ...] = eqx.field(static=True)

    def __call__(self, observations: Float[Array, "*batch observation"]) -> Float[Array, "*batch encoding"]:
        last = (1,) * (observations.ndim - 1) + (-1,)
        center, scale = (np.asarray(each, np.float32).reshape(last) for each in (self.center, self.scale))
        with jax.default_matmul_precision("highest"):
            found = (observations - center) / scale
            if self.convolutions is not None:
                found = self.convolutions(found)
            for layer in self.layers[:-1]:
                found = jax.nn.relu(linear(layer, found))
            return linear(self.layers[-1], found)


def random_encoder(center: Sequence[float], scale: Sequence[float], image: Image | None) -> Encoder:
    """The encoder of observations with these ranges: always the same, so that a file need not hold it."""
    first_key, *keys = jr.split(jr.key(0, impl="threefry2x32"), 3)
    seen, size = (None, len(center)) if image is None else convolutions(first_key, image)
    sizes = (size, SIZE) if image is not None else (size, _HIDDEN, SIZE)
    layers = [eqx.nn.Linear(a, b, key=key) for a, b, key in zip(sizes[:-1], sizes[1:], keys, strict=False)]
    return Encoder(seen, tuple(layers), tuple(center), tuple(scale))


def linear(layer: eqx.nn.Linear, inputs: Float[Array, "*batch a"]) -> Float[Array, "*batch b"]:
    """The layer's affine map of vectors along the last axis."""
    assert layer.bias is not None
    return inputs @ layer.weight.T + layer.bias.reshape((1,) * (inputs.ndim - 1) + (-1,))


def _kernels(image: Image) -> list[int]:
    side, kernels = max(image[:2]), []
    while side > _LEFT:
        kernels.append(_LARGE if side > _LARGE_SIDE else _SMALL)
        side = -(-side // kernels[-1])
    return kernels
