"""Every kind of world that farflung has, and how a file tells them apart."""

from collections.abc import Callable, Mapping

import numpy as np

from farflung.worlds.hosted.tables import HostedTable
from farflung.worlds.hosted.vectors import HostedVectors
from farflung.worlds.jax_world import JaxWorld
from farflung.worlds.named_vectors import read_recipe
from farflung.worlds.tabular import TabularMDP
from farflung.worlds.world import World

KINDS: dict[str, Callable[[Mapping[str, np.ndarray]], World]] = {
    "successors": TabularMDP.from_arrays,
    "recipe": read_recipe,
    "hosted": HostedTable.from_arrays,
    "vectors": HostedVectors.from_arrays,
    "jax": JaxWorld.from_arrays,
}
"""For each kind: an array that only its files have, and a function that reads the arrays of such a file."""


def read_world(arrays: Mapping[str, np.ndarray]) -> World:
    """The world whose `to_arrays` a file holds; every value is checked, as anyone may have written the file."""
    for name, read in KINDS.items():
        if name in arrays:
            return read(arrays)
    raise ValueError(f"unknown kind of world: none of farflung's has the arrays {', '.join(map(repr, sorted(arrays)))}")
