"""What is made of states that are vectors: the features that an entropy is about, a grid over them; and what actions are."""

import math
import operator
from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from farflung.checks import whole_number
from farflung.entropy import Entropy, ragged_plug_in
from farflung.particles import particles

MOST_CELLS = 10_000_000


class Choices(eqx.Module):
    """Actions that are one of `num`."""

    num: int = eqx.field(static=True)


class Bounds(eqx.Module):
    """Actions that are vectors, each number between its bounds, which may be infinite."""

    low: tuple[float, ...] = eqx.field(static=True)
    high: tuple[float, ...] = eqx.field(static=True)

    @property
    def size(self) -> int:
        return len(self.low)


class Projection(eqx.Module):
    """Which numbers of an observation the entropy is about, and the grid on which the coverage of their range is counted.

    An angle comes round, and no jump from one end of its range to the other must part states that are near: so an agent sees
    its cosine and its sine, and distances are measured between these, while the grid and the pictures have the angle itself.
    """

    features: tuple[int, ...] = eqx.field(static=True)
    """Where in an observation they stand, an angle with its cosine; its sine comes next."""
    names: tuple[str, ...] = eqx.field(static=True)
    """What they are called, with their units."""
    low: tuple[float, ...] = eqx.field(static=True)
    """Where the grid begins; what lies outside of it counts for the cell at its edge."""
    high: tuple[float, ...] = eqx.field(static=True)
    bins: tuple[int, ...] = eqx.field(static=True)
    scale: tuple[float, ...] = eqx.field(static=True)
    """A typical difference in each feature, by which differences are divided before distances are measured."""
    neighbours: int = eqx.field(static=True, default=4)
    """The entropy comes from the distance to that neighbour of each state; with 0, from counts over the grid."""
    angles: tuple[int, ...] = eqx.field(static=True, default=())
    """Which of the features are angles, between $-\\pi$ and $\\pi$."""

    @property
    def num_cells(self) -> int:
        return math.prod(self.bins)

    def entropy(self, *, is_ragged: bool = False) -> Entropy:
        """An estimate from observations, of which those that are not finite, after an episode's end, don't count.

        Args:
            is_ragged: whether episodes may end early.
        """
        if self.neighbours == 0:
            counts = ragged_plug_in(self.num_cells)
            return Entropy(lambda states: counts.value(self.cells(states)), lambda states: counts.gains(self.cells(states)))
        nearest = particles(self.neighbours, scale=self.scale, angles=self.angles, is_ragged=is_ragged)
        return Entropy(lambda states: nearest.value(self.project(states)), lambda states: nearest.gains(self.project(states)))

    def project(self, states: Float[Array, "*axes observation"]) -> Float[Array, "*axes feature"]:
        """The features of each state, angles as such."""
        features = states[..., np.array(self.features)]
        for angle in self.angles:
            cosine, sine = features[..., angle], states[..., self.features[angle] + 1]
            features = features.at[..., angle].set(jnp.arctan2(sine, cosine))
        return features

    def cells(self, states: Float[Array, "*axes observation"]) -> Int[Array, "*axes"]:
        """The cell of the grid that each state lies in, numbered row by row; after an episode's end `num_cells`."""
        is_real = jnp.all(jnp.isfinite(states), axis=-1)
        features = jnp.where(is_real[..., None], self.project(states), 0.0)
        cells = jnp.zeros(is_real.shape, jnp.int32)
        for feature, (low, high, num) in enumerate(zip(self.low, self.high, self.bins, strict=True)):
            place = jnp.floor((features[..., feature] - low) / (high - low) * num)
            cells = cells * num + jnp.clip(place, 0, num - 1).astype(jnp.int32)
        return jnp.where(is_real, cells, self.num_cells)


def whole_bins(bins: Any, num_features: int = 2) -> tuple[int, ...]:
    """How many cells the grid has along each feature, if that is what was given: one number for all, or one for each."""
    numbers = () if isinstance(bins, str) or not isinstance(bins, Iterable) else tuple(bins)
    numbers = numbers * num_features if len(numbers) == 1 else numbers
    if len(numbers) != num_features:
        raise ValueError(f"bins has a whole number for each of the {num_features} features, not {bins!r}")
    numbers = tuple(whole_number("each number of bins", num) for num in numbers)
    if math.prod(numbers) > MOST_CELLS:
        raise ValueError(f"bins must make at most {MOST_CELLS:,} cells, not {math.prod(numbers):,}")
    return numbers


def whole_neighbours(neighbours: Any) -> int:
    """Which neighbour's distance the entropy comes from, or 0, if that is what was given."""
    try:
        number = operator.index(neighbours)
    except TypeError:
        number = -1
    if number < 0 or isinstance(neighbours, bool):
        raise ValueError(f"neighbours must be a whole number from 0 on, not {neighbours!r}")
    return number
