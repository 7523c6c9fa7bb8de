"""A world as the bytes of a file, and back."""

import io
from collections.abc import Mapping

import numpy as np

from farflung.config.reading import check_version, read_arrays
from farflung.runs.files import FORMAT_VERSION
from farflung.worlds.kinds import read_world
from farflung.worlds.world import World


def world_to_bytes(world: World) -> bytes:
    """A world as NumPy's compressed archive."""
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, format_version=np.array(FORMAT_VERSION), **world.to_arrays())
    return file.getvalue()


def world_from_bytes(archive: bytes) -> World:
    """The world that `world_to_bytes` was given."""
    return world_from_arrays(read_arrays(archive))


def world_from_arrays(arrays: Mapping[str, np.ndarray]) -> World:
    """The world in the arrays of such an archive."""
    arrays = dict(arrays)
    check_version(arrays.pop("format_version", None), FORMAT_VERSION)
    return read_world(arrays)
