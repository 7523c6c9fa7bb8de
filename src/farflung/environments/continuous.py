"""What worlds have in common whose states are vectors of real numbers."""

import abc
import json
import math
import operator
from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from farflung.checks import whole_number
from farflung.entropy import Entropy, ragged_plug_in
from farflung.environments.environment import Environment
from farflung.environments.walls import Rectangle
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


class ContinuousWorld(Environment):
    """A world of which an agent sees a vector of real numbers; its own state may be any pytree.

    Episodes may end early: from then on, what is recorded is not a number.
    """

    recipe: eqx.AbstractVar[str]
    """What `make_continuous` makes the same world from, as JSON; empty if only its author can."""
    projection: eqx.AbstractVar[Projection]
    actions: eqx.AbstractVar[Choices | Bounds]
    observation_center: eqx.AbstractVar[tuple[float, ...]]
    """Of the range of each number that an agent sees: what networks are given is centred and scaled."""
    observation_scale: eqx.AbstractVar[tuple[float, ...]]
    walls: eqx.AbstractVar[tuple[Rectangle, ...]]
    """For pictures, where the projection is a plane."""

    @abc.abstractmethod
    def observe(self, state: PyTree[Array]) -> Float[Array, " observation"]:
        """What an agent sees of a state, and what the projection is of."""

    @abc.abstractmethod
    def is_over(self, state: PyTree[Array]) -> Bool[Array, ""]:
        """Whether an episode ends when it reaches a state, before its `horizon`."""

    @property
    def may_end_early(self) -> bool:
        """Whether `is_over` is ever true."""
        return False

    @property
    def free_area(self) -> float:
        """The area, or volume, of all that the features can be, in their units: its logarithm bounds their entropy."""
        return math.inf

    @property
    def is_free(self) -> Bool[np.ndarray, " cell"]:
        """Which cells of the grid can be reached, as far as that is known."""
        return np.ones(self.projection.num_cells, bool)

    @property
    def num_free_cells(self) -> int:
        return int(self.is_free.sum())

    @property
    def num_states(self) -> int:
        """Where states are vectors, the cells that can be reached are counted instead."""
        return self.num_free_cells

    @property
    def num_actions(self) -> int:
        """The number of choices, or of numbers in a vector."""
        return self.actions.num if isinstance(self.actions, Choices) else self.actions.size

    @property
    def observation_size(self) -> int:
        return len(self.observation_center)

    @property
    def entropy(self) -> Entropy:
        return self.projection.entropy(is_ragged=self.may_end_early)


def whole_bins(bins: Any, num_features: int = 2) -> tuple[int, ...]:
    """How many cells the grid has along each feature, if that is what was given."""
    numbers = () if isinstance(bins, str) or not isinstance(bins, Iterable) else tuple(bins)
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


def write_recipe(**options: Any) -> str:
    return json.dumps(options, separators=(",", ":"))
