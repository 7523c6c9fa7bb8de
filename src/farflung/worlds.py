"""A world as arrays, and back."""

import dataclasses
import io
from typing import Any

import jax.numpy as jnp
import numpy as np

from farflung.environments import ContinuousWorld, TabularMDP, World, make_continuous
from farflung.hosting.vectors import VectorWorld
from farflung.hosting.world import HostedWorld


def world_to_bytes(world: World) -> bytes:
    """A world as NumPy's compressed archive."""
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **_arrays_of(world))
    return file.getvalue()


def world_from_bytes(archive: bytes) -> World:
    """The world that `world_to_bytes` was given."""
    return _world_of(arrays_in(archive))


def arrays_in(archive: bytes) -> dict[str, np.ndarray]:
    """All arrays of one of NumPy's archives."""
    with np.load(io.BytesIO(archive), allow_pickle=False) as arrays:
        return dict(arrays)


def _arrays_of(world: World) -> dict[str, np.ndarray]:
    if isinstance(world, HostedWorld | VectorWorld):
        return world.to_arrays()
    if isinstance(world, ContinuousWorld):
        return {"recipe": np.array(world.recipe)}
    fields = {field.name: getattr(world, field.name) for field in dataclasses.fields(world)}
    return {name: np.asarray(value) for name, value in fields.items() if value is not None}


def _world_of(arrays: dict[str, np.ndarray]) -> World:
    if "hosted" in arrays:
        return HostedWorld.from_arrays(**arrays)
    if "vectors" in arrays:
        return VectorWorld.from_arrays(**arrays)
    if "recipe" in arrays and not str(arrays["recipe"]):
        raise ValueError("its world has no recipe: give it, as load_run(path, world=...)")
    if "recipe" in arrays:
        return make_continuous(str(arrays["recipe"]))
    fields: dict[str, Any] = {name: jnp.asarray(array) for name, array in arrays.items() if name != "horizon"}
    return TabularMDP(**{"positions": None, **fields}, horizon=int(arrays["horizon"]))
