"""What worlds have in common whose states are vectors of real numbers."""

import abc
import json
import math
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from farflung.entropy.counts import Entropy
from farflung.worlds.projection import Box, Discrete, Projection
from farflung.worlds.walls import Rectangle
from farflung.worlds.world import Environment


class VectorWorld(Environment):
    """A world of which an agent sees a vector of real numbers; its own state may be any pytree.

    Episodes may end early: from then on, what is recorded is not a number.
    """

    recipe: eqx.AbstractVar[str]
    """What `make_vector_world` makes the same world from, as JSON; empty if only its author can."""
    projection: eqx.AbstractVar[Projection]
    actions: eqx.AbstractVar[Discrete | Box]
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
        return self.actions.num if isinstance(self.actions, Discrete) else self.actions.size

    @property
    def observation_size(self) -> int:
        return len(self.observation_center)

    @property
    def entropy(self) -> Entropy:
        return self.projection.entropy(is_ragged=self.may_end_early)


def write_recipe(**options: Any) -> str:
    return json.dumps(options, separators=(",", ":"))
