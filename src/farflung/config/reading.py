"""Files that others may have made: nothing is read before it is known what it is, and how much of it there will be."""

import contextlib
import io
import json
import math
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

MOST_BYTES_OF_TEXT = 2**26
"""Of a file of JSON."""
MOST_BYTES_OF_MAP = 2**22
MOST_BYTES_OF_TABLE = 2**30
"""Of a CSV file."""
MOST_BYTES_UNPACKED = 2**30
"""Of all arrays of a file, or a hundred times the file's own size if that is more."""
MOST_TIMES_UNPACKED = 100
MOST_ARRAYS = 1000
MOST_VALUES = 10**8
"""How many different observations or actions can be told apart by numbers."""

_NUMBERS = "biuf"
_LARGEST_HEADER = 10_000


@contextlib.contextmanager
def one_line_errors(what: str) -> Iterator[None]:
    """Makes a ValueError of one line of anything that goes wrong with a file: broken ones make their readers raise anything."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{what}: {reason(error)}") from error


def reason(error: Exception) -> str:
    """What an error says, in a few words."""
    if isinstance(error, KeyError):
        return f"it has no {error}"
    if isinstance(error, FileNotFoundError) and error.filename:
        return f"{Path(error.filename).name} is missing"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    lines = str(error).split("\n")
    return lines[0] or type(error).__name__


def member(directory: Path, name: str) -> Path:
    """A file or folder in a directory, if no link leads out of it."""
    path = directory / name
    if not path.resolve().is_relative_to(directory.resolve()):
        raise ValueError(f"{name} leads out of its directory")
    return path


def file_size(path: Path, most_bytes: int | None = None) -> int:
    """The size of a file in bytes, if it is a file, which a pipe is not, and no larger than that."""
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        raise ValueError(f"{path.name} is not a file")
    if most_bytes is not None and about.st_size > most_bytes:
        raise ValueError(f"{path.name} has {about.st_size:,} bytes, and no more than {most_bytes:,} are read")
    return about.st_size


def read_text(path: Path, most_bytes: int = MOST_BYTES_OF_TEXT) -> str:
    file_size(path, most_bytes)
    return path.read_text(encoding="utf-8-sig")


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        return parse_object(read_text(path))
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None


def parse_object(text: str) -> dict[str, Any]:
    """The JSON object that a text is."""
    if len(text) > MOST_BYTES_OF_TEXT:
        raise ValueError(f"it has {len(text):,} characters, and no more than {MOST_BYTES_OF_TEXT:,} are read")
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError(f"it is no JSON object but {type(found).__name__}")
    return found


def check_version(found: Any, known: int, writer: Any = None) -> int:
    """The version of a format, if it is one that this farflung knows.

    Args:
        found: None for files from before they said their version.
        writer: the version of farflung that wrote it, if that is known.
    """
    if found is None:
        return 1
    number = found.item() if isinstance(found, np.ndarray) and found.ndim == 0 else found
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ValueError(f"its format_version is a whole number from 1 on, not {str(found)[:40]!r}")
    if number > known:
        by = f", of farflung {str(writer)[:40]!r}" if writer is not None else ""
        raise ValueError(f"it has format {number}{by}, and this farflung reads up to {known}: pip install --upgrade farflung")
    return number


def check_unpacked(num_bytes: int, size: int) -> None:
    """Raises ValueError if what takes so many bytes on disk would take suspiciously many in memory."""
    most = max(MOST_BYTES_UNPACKED, MOST_TIMES_UNPACKED * size)
    if num_bytes > most:
        raise ValueError(f"it would take {num_bytes:,} bytes of memory, and no more than {most:,} are read from {size:,}")


def read_arrays(file: Path | bytes) -> dict[str, np.ndarray]:
    """The arrays of one of NumPy's archives: numbers and text, never objects, as to load these may run any program."""
    size = file_size(file) if isinstance(file, Path) else len(file)
    try:
        with zipfile.ZipFile(io.BytesIO(file) if isinstance(file, bytes) else file) as archive:
            members = archive.infolist()
            if len(members) > MOST_ARRAYS:
                raise ValueError(f"it holds {len(members):,} arrays, and no more than {MOST_ARRAYS:,} are read")
            check_unpacked(sum(each.file_size for each in members), size)
            names = [each.filename.removesuffix(".npy") for each in members]
            if len(set(names)) < len(names):
                raise ValueError("it holds two arrays of the same name")
            return {name: _read_array(archive, each) for name, each in zip(names, members, strict=True)}
    except (OSError, ValueError):
        raise
    except Exception as error:  # a broken archive makes zipfile raise anything
        raise ValueError(f"it is no archive of arrays: {reason(error)}") from None


def _read_array(archive: zipfile.ZipFile, about: zipfile.ZipInfo) -> np.ndarray:
    name = about.filename
    if about.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or not name.endswith(".npy"):
        raise ValueError(f"{name[:80]!r} is no array in it as NumPy writes them")
    with archive.open(about) as file:
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[np.lib.format.read_magic(file)]
        shape, _, dtype = read_header(file, max_header_size=_LARGEST_HEADER)
        is_text = dtype.kind == "U" and shape == ()
        if not (is_text or dtype.kind in _NUMBERS) or dtype.shape:
            raise ValueError(f"{name} holds neither numbers nor a text but {dtype}")
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != about.file_size - file.tell():
            raise ValueError(f"{name} is not complete: its header says {shape}")
    with archive.open(about) as file:
        return np.lib.format.read_array(file, allow_pickle=False, max_header_size=_LARGEST_HEADER)
