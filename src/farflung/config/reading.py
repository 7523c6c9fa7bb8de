"""Safe reading of files that anyone may have written: type and size are checked before the content is read.

Everything that is read together has one budget of memory, from which each reader takes what it is about to unpack.
"""

import contextlib
import io
import json
import math
import stat
import sysconfig
import traceback
import zipfile
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

MOST_BYTES_OF_TEXT = 2**26
"""The largest JSON file."""
MOST_BYTES_OF_MAP = 2**22
MOST_BYTES_OF_TABLE = 2**30
"""The largest CSV file."""
MOST_BYTES_UNPACKED = 2**30
"""The most memory for everything that is read together, unless 100 times its size on the disk is more."""
MOST_TIMES_UNPACKED = 100
MOST_ARRAYS = 1000
MOST_VALUES = 10**8
"""The largest number of different observations or actions."""

_NUMBERS = "biuf"
_LARGEST_HEADER = 10_000
_BYTES_PER_JSON_VALUE = 100
_BYTES_PER_OPTION = 4096
"""The most memory that an environment needs for a character of its options: FrozenLake, for each cell of its map."""
_BYTES_PER_BLOCK = 512


@dataclass
class _Budget:
    """The memory that may be used for what is read together."""

    size: int
    """The size on the disk."""
    spent: int = 0


_budget: ContextVar[_Budget | None] = ContextVar("_budget", default=None)


@contextlib.contextmanager
def budget(size: int) -> Iterator[None]:
    """Gives everything that is read in the block one budget of memory, by its size on the disk; a block inside has no other."""
    if _budget.get() is not None:
        yield
        return
    token = _budget.set(_Budget(size))
    try:
        yield
    finally:
        _budget.reset(token)


def spend(num_bytes: int) -> None:
    """Takes memory from the budget, if there is one, before it is used; raises ValueError if there is not so much left."""
    if (found := _budget.get()) is None:
        return
    found.spent += num_bytes
    most = max(MOST_BYTES_UNPACKED, MOST_TIMES_UNPACKED * found.size)
    if found.spent > most:
        taken = f"it would take {found.spent:,} bytes of memory"
        raise ValueError(f"{taken}, more than the limit of {most:,} for {found.size:,} bytes on the disk")


def spend_on_options(options: Any) -> None:
    """Takes the memory that an environment with these options needs, as far as it depends on their length."""
    spend(_BYTES_PER_OPTION * len(json.dumps(options)))


@contextlib.contextmanager
def reading(what: str, *paths: Path) -> Iterator[None]:
    """Reads files, or folders, of others with one budget; any error becomes a ValueError of one line."""
    with one_line_errors(what), budget(size_on_disk(paths)):
        yield


def size_on_disk(paths: Sequence[Path]) -> int:
    """The bytes that files, or all files of folders, occupy: a file with holes is longer than that."""
    stats = [each.lstat() for path in paths if path.is_dir() for each in path.rglob("*")]
    stats += [path.stat() for path in paths if path.is_file()]
    return sum(min(about.st_size, getattr(about, "st_blocks", about.st_size) * _BYTES_PER_BLOCK) for about in stats)


@contextlib.contextmanager
def one_line_errors(what: str) -> Iterator[None]:
    """Turns any error into a ValueError of one line, since readers of damaged files may raise anything."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{what}: {reason(error)}") from error


def reason(error: BaseException) -> str:
    """The message of an error in one line."""
    if isinstance(error, KeyError):
        return f"it has no {error}"
    if isinstance(error, FileNotFoundError) and error.filename:
        return f"{Path(error.filename).name} is missing"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    lines = str(error).split("\n")
    return lines[0] or type(error).__name__


def where_raised(error: BaseException) -> str:
    """The exception's type, and the line that raised it: the last one outside of Python's own modules."""
    python, frames = sysconfig.get_path("stdlib"), traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if not each.filename.startswith((python, "<")) or "site-packages" in each.filename]
    last = (own or frames)[-1]
    return f"{type(error).__name__} in line {last.lineno} of {Path(last.filename).name}"


def member(directory: Path, name: str) -> Path:
    """The path of a file or folder in a directory; raises ValueError if a link leads out of the directory."""
    path = directory / name
    try:
        is_inside = path.resolve().is_relative_to(directory.resolve())
    except (OSError, RuntimeError):  # a link to itself
        is_inside = False
    if not is_inside:
        raise ValueError(f"{name} leads out of its directory")
    return path


def file_size(path: Path, most_bytes: int | None = None) -> int:
    """The size of a file in bytes; raises ValueError unless it is a regular file of at most `most_bytes`."""
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        raise ValueError(f"{path.name} is not a file")
    if most_bytes is not None and about.st_size > most_bytes:
        raise ValueError(f"{path.name} has {about.st_size:,} bytes, more than the limit of {most_bytes:,}")
    return about.st_size


def read_bytes(path: Path, most_bytes: int | None = None) -> bytes:
    """The content of a regular file of at most `most_bytes`, within the budget."""
    size = file_size(path, most_bytes)
    with budget(size_on_disk([path])), path.open("rb") as file:
        spend(size)
        return file.read(size)  # not more, if it grows


def read_text(path: Path, most_bytes: int = MOST_BYTES_OF_TEXT) -> str:
    """The text of a regular file of at most `most_bytes`."""
    return read_bytes(path, most_bytes).decode("utf-8-sig")


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        return parse_object(read_text(path))
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None


def parse_object(text: str) -> dict[str, Any]:
    """The JSON object in a text."""
    if len(text) > MOST_BYTES_OF_TEXT:
        raise ValueError(f"it has {len(text):,} characters, more than the limit of {MOST_BYTES_OF_TEXT:,}")
    spend(len(text) + _BYTES_PER_JSON_VALUE * (text.count(",") + text.count(":")))
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError(f"it must be a JSON object, not {type(found).__name__}")
    return found


def check_version(found: Any, known: int, writer: Any = None) -> int:
    """The format version of a file, 1 if none is found; raises ValueError if this farflung, unlike the writer, is too old."""
    if found is None:
        return 1
    number = found.item() if isinstance(found, np.ndarray) and found.ndim == 0 else found
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ValueError(f"its format_version must be a whole number from 1 on, not {str(found)[:40]!r}")
    if number > known:
        by = f", of farflung {str(writer)[:40]!r}" if writer is not None else ""
        raise ValueError(f"it has format {number}{by}, and this farflung reads up to {known}: install a newer farflung")
    return number


def read_arrays(file: Path | bytes) -> dict[str, np.ndarray]:
    """The arrays of a NumPy archive: numbers and text, never objects, since loading an object can run any program."""
    if isinstance(file, bytes):
        with budget(len(file)):
            return _read_archive(io.BytesIO(file))
    size = file_size(file)
    with budget(size_on_disk([file])):
        spend(size)
        return _read_archive(file)


def _read_archive(file: Path | io.BytesIO) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if len(members) > MOST_ARRAYS:
                raise ValueError(f"it holds {len(members):,} arrays, more than the limit of {MOST_ARRAYS:,}")
            spend(sum(each.file_size for each in members))
            names = [each.filename.removesuffix(".npy") for each in members]
            if len(set(names)) < len(names):
                raise ValueError("it holds two arrays of the same name")
            return {name: _read_array(archive, each) for name, each in zip(names, members, strict=True)}
    except (OSError, ValueError):
        raise
    except Exception as error:  # a broken archive makes zipfile raise anything
        raise ValueError(f"it is not an archive of arrays: {reason(error)}") from None


def _read_array(archive: zipfile.ZipFile, about: zipfile.ZipInfo) -> np.ndarray:
    name = about.filename
    if about.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or not name.endswith(".npy"):
        raise ValueError(f"{name[:80]!r} is not an array as NumPy writes it")
    with archive.open(about) as file:
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[np.lib.format.read_magic(file)]
        shape, _, dtype = read_header(file, max_header_size=_LARGEST_HEADER)
        is_text = dtype.kind == "U" and shape == ()
        if not (is_text or dtype.kind in _NUMBERS) or dtype.shape:
            raise ValueError(f"{name} must hold numbers or a text, not {dtype}")
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != about.file_size - file.tell():
            raise ValueError(f"{name} is not complete: its header has the shape {shape}")
    with archive.open(about) as file:
        return np.lib.format.read_array(file, allow_pickle=False, max_header_size=_LARGEST_HEADER)
