"""What worlds have in common whose states are vectors of real numbers."""

import abc
import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from farflung.entropy import Entropy, ragged_plug_in
from farflung.environments.environment import Environment
from farflung.particles import particles


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
    """Which numbers of an observation the entropy is about, and the grid on which the coverage of their range is counted."""

    features: tuple[int, ...] = eqx.field(static=True)
    """Where in an observation they stand."""
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

    @property
    def num_cells(self) -> int:
        return math.prod(self.bins)

    @property
    def entropy(self) -> Entropy:
        """An estimate from observations, of which those that are not finite, after an episode's end, don't count."""
        if self.neighbours == 0:
            counts = ragged_plug_in(self.num_cells)
            return Entropy(lambda states: counts.value(self.cells(states)), lambda states: counts.gains(self.cells(states)))
        nearest = particles(self.neighbours, scale=self.scale)
        return Entropy(lambda states: nearest.value(self.project(states)), lambda states: nearest.gains(self.project(states)))

    def project(self, states: Float[Array, "*axes observation"]) -> Float[Array, "*axes feature"]:
        return states[..., np.array(self.features)]

    def cells(self, states: Float[Array, "*axes observation"]) -> Int[Array, "*axes"]:
        """The cell of the grid that each state lies in, numbered row by row; after an episode's end `num_cells`."""
        low, high = np.array(self.low, np.float32), np.array(self.high, np.float32)
        bins = np.array(self.bins, np.float32)
        features = self.project(states)
        is_real = jnp.all(jnp.isfinite(states), axis=-1)
        places = jnp.where(is_real[..., None], (features - low) / (high - low) * bins, 0.0)
        whole = jnp.clip(jnp.floor(places), 0, bins - 1).astype(jnp.int32)
        strides = np.cumprod((1, *self.bins[:0:-1]))[::-1].astype(np.int32)
        return jnp.where(is_real, jnp.sum(whole * strides, axis=-1), self.num_cells)


Rectangle = tuple[float, float, float, float]
"""Where it begins and ends in the first feature, then in the second."""


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
    def observation_size(self) -> int:
        return len(self.observation_center)

    @property
    def num_cells(self) -> int:
        """Cells of the projection's grid that can be visited, as far as is known."""
        return self.projection.num_cells

    @property
    def entropy(self) -> Entropy:
        return self.projection.entropy
