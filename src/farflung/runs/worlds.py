"""A world as the bytes of a file, and back: what a file says is checked as if a user had said it."""

import dataclasses
import io
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from farflung.config.checks import whole_number
from farflung.config.reading import MOST_VALUES, check_version, read_arrays
from farflung.runs.files import FORMAT_VERSION
from farflung.worlds.hosted.tables import HostedTable
from farflung.worlds.hosted.vectors import HostedVectors
from farflung.worlds.named import World
from farflung.worlds.named_vectors import make_vector_world
from farflung.worlds.projection import MOST_CELLS
from farflung.worlds.tabular import TabularMDP
from farflung.worlds.vectors import VectorWorld

_ROUNDING = 1e-4
_WHOLE, _REAL = np.integer, np.floating


def world_to_bytes(world: World) -> bytes:
    """A world as NumPy's compressed archive."""
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, format_version=np.array(FORMAT_VERSION), **_arrays_of(world))
    return file.getvalue()


def world_from_bytes(archive: bytes) -> World:
    """The world that `world_to_bytes` was given."""
    return world_from_arrays(read_arrays(archive))


def world_from_arrays(arrays: Mapping[str, np.ndarray]) -> World:
    """The world in the arrays of such an archive."""
    arrays = dict(arrays)
    check_version(arrays.pop("format_version", None), FORMAT_VERSION)
    if "hosted" in arrays:
        return HostedTable.from_arrays(**arrays)
    if "vectors" in arrays:
        return HostedVectors.from_arrays(**arrays)
    if "recipe" in arrays and not str(arrays["recipe"]):
        raise ValueError("its world has no recipe: give it, as load_run(path, world=...)")
    if "recipe" in arrays:
        return make_vector_world(str(arrays["recipe"]))
    return _table(arrays)


def _arrays_of(world: World) -> dict[str, np.ndarray]:
    if isinstance(world, HostedTable | HostedVectors):
        return world.to_arrays()
    if isinstance(world, VectorWorld):
        return {"recipe": np.array(world.recipe)}
    fields = {field.name: getattr(world, field.name) for field in dataclasses.fields(world)}
    return {name: np.asarray(value) for name, value in fields.items() if value is not None}


def _table(arrays: dict[str, np.ndarray]) -> TabularMDP:
    """A world of tables, of which compiled code reads whatever place they name: so each is looked at first."""
    unknown = arrays.keys() - {field.name for field in dataclasses.fields(TabularMDP)}
    if unknown:
        raise ValueError(f"a world has no {', '.join(map(repr, sorted(unknown)))}")
    shape = arrays["successors"].shape
    if len(shape) != 3 or 0 in shape or not 0 < arrays["start_states"].size <= shape[0]:
        raise ValueError(f"a world needs states, actions, successors and a start, not the shape {shape}")
    num_states, starts = shape[0], (arrays["start_states"].size,)
    tables: dict[str, Any] = {
        "successors": _checked(arrays, "successors", _WHOLE, shape, num_states),
        "cumulative_probability": _cumulative(arrays, "cumulative_probability", shape),
        "rewards": _checked(arrays, "rewards", _REAL, shape),
        "start_states": _checked(arrays, "start_states", _WHOLE, starts, num_states),
        "start_cumulative_probability": _cumulative(arrays, "start_cumulative_probability", starts),
        "labels": _checked(arrays, "labels", _WHOLE, (num_states,), MOST_VALUES),
        "positions": None,
    }
    if "positions" in arrays:
        positions = _checked(arrays, "positions", _WHOLE, (num_states, 2), MOST_CELLS)
        if np.prod(positions.max(axis=0) + 1.0) > MOST_CELLS:
            raise ValueError(f"positions lie on a map of more than {MOST_CELLS:,} cells")
        tables["positions"] = positions
    on_device: dict[str, Any] = {name: None if table is None else jnp.asarray(table) for name, table in tables.items()}
    return TabularMDP(**on_device, horizon=whole_number("horizon", arrays["horizon"].item()))


def _checked(arrays: Mapping[str, np.ndarray], name: str, kind: type, shape: tuple[int, ...], below: int = 1) -> np.ndarray:
    table = arrays[name]
    if table.shape != shape or not np.issubdtype(table.dtype, kind):
        raise ValueError(f"{name} has the shape {shape}, not {table.shape} of {table.dtype}")
    if kind is _WHOLE and not (table.min() >= 0 and table.max() < below):
        raise ValueError(f"{name} are whole numbers from 0 to {below - 1:,}")
    if not np.isfinite(table).all() or (kind is _REAL and np.abs(table).max() > np.finfo(np.float32).max):
        raise ValueError(f"{name} are finite numbers")
    return table.astype(np.int32 if kind is _WHOLE else np.float32)


def _cumulative(arrays: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...]) -> np.ndarray:
    table = _checked(arrays, name, _REAL, shape)
    if not (table.min() >= 0 and (np.diff(table, axis=-1) >= 0).all() and (np.abs(table[..., -1] - 1) < _ROUNDING).all()):
        raise ValueError(f"{name} must rise from 0 to 1")
    return table
