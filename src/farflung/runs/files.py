"""Atomic files, locks, and folders that never mix the results of different settings."""

import contextlib
import csv
import io
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from matplotlib.figure import Figure

from farflung.config.reading import check_version, file_size, read_object

FORMAT_VERSION = 3
LOCK = "lock"
"""The lock file of a folder, which names the process that holds the lock."""
_COLLECTION = "contents.json"


def to_json(value: Any, indent: int | None = None) -> str:
    """JSON with null for numbers that are not finite, which JSON cannot express."""

    def finite(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: finite(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [finite(item) for item in value]
        return None if isinstance(value, float) and not np.isfinite(value) else value

    return json.dumps(finite(value), indent=indent, allow_nan=False)


def to_csv(rows: Iterable[Sequence[object]], line_end: str = "\n") -> str:
    """A table as CSV; the first row holds the column names. A text that a spreadsheet would compute begins with a quote."""
    text = io.StringIO()
    csv.writer(text, lineterminator=line_end).writerows(map(_literal, row) for row in rows)
    return text.getvalue()


def _literal(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


@contextlib.contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turns an OSError into a ValueError of one line that names the path."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"cannot write to {path}: {error.strerror or error}") from None


def open_collection(path: Path, contents: dict[str, Any], *, force: bool = False) -> None:
    """Creates a folder for many results of the same settings, or opens one that was created with these settings.

    The folder records `contents`, so that results of another version or other settings are never added to it. With `force`,
    a folder of other contents is emptied first.
    """
    path = path.absolute()
    wanted = json.loads(json.dumps(contents))  # as it is read back: no tuples
    with write_errors(path):
        if path.is_dir() and any(path.iterdir()):
            if not (path / _COLLECTION).is_file():
                raise ValueError(f"{path} is not empty and holds no results: choose another directory")
            try:
                found = read_object(path / _COLLECTION)
                check_version(found.pop("format_version", None), FORMAT_VERSION, found.get("farflung"))
                if found == wanted:
                    return
                keys = sorted(key for key in wanted.keys() | found.keys() if found.get(key) != wanted.get(key))
                described = "with " + ", ".join(f"{key} {found.get(key)} instead of {wanted.get(key)}" for key in keys)
            except ValueError as error:
                described = f"that cannot be read ({error})"
            if not force:
                raise ValueError(f"{path} holds results {described}: choose another directory, or discard them with --force")
            with locked(path):
                shutil.rmtree(path)
        path.mkdir(parents=True, exist_ok=True)
        header = {"format_version": FORMAT_VERSION, **wanted}
        write_atomically(path / _COLLECTION, json.dumps(header, indent=2) + "\n")


def archive(arrays: Mapping[str, Any]) -> bytes:
    """NumPy's compressed archive of the arrays that are not None."""
    file = io.BytesIO()
    given = {name: np.asarray(value) for name, value in arrays.items() if value is not None}
    np.savez_compressed(file, allow_pickle=False, **given)
    return file.getvalue()


def write_results(folder: Path, results: Mapping[str, Any]) -> None:
    """Writes JSON files, CSV files of rows and NumPy archives, by the suffixes of their names; figures have no suffix."""
    for name, result in results.items():
        if name.endswith(".json"):
            write_atomically(folder / name, to_json(result, indent=2) + "\n")
        elif name.endswith(".csv"):
            write_atomically(folder / name, to_csv(result))
        elif name.endswith(".npz"):
            write_atomically(folder / name, archive(result))
        else:
            save_figure(result, folder / name)


@contextlib.contextmanager
def open_results(path: Path, command: str, settings: dict[str, Any], *, force: bool = False) -> Iterator[None]:
    """A folder for the results of one command, where `write_results` overwrites results of the same settings.

    A new folder is removed again if the command writes nothing.
    """
    was_there = path.exists()
    open_collection(path, {"farflung": version("farflung"), "command": command, **settings}, force=force)
    try:
        with write_errors(path):
            yield
    finally:
        if not was_there and [child.name for child in path.iterdir()] == [_COLLECTION]:
            shutil.rmtree(path)


def is_results_of(path: Path, command: str) -> bool:
    """Whether a folder holds the results of a command."""
    try:
        return read_object(path / _COLLECTION).get("command") == command
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def new_folder(parent: Path, name: str) -> Iterator[Path]:
    """A new folder in `parent`, with a number after its name if the name is taken; removed again if it stays empty."""
    number, is_new_parent = 1, not parent.exists()
    while True:
        path = parent / (name if number == 1 else f"{name}-{number}")
        with write_errors(path):
            try:
                path.mkdir(parents=True)
                break
            except FileExistsError:
                number += 1
    try:
        yield path
    finally:
        for folder in (path, parent) if is_new_parent else (path,):
            with contextlib.suppress(OSError):
                folder.rmdir()  # fails unless it is empty


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a file that appears under its name only when it is complete and on the disk."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o666 & ~umask())
        Path(name).replace(path)
        sync(path.parent)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def append(path: Path, content: bytes, num_bytes: int) -> None:
    """Cuts a file to its first `num_bytes` and appends to them, all of the content or nothing."""
    with path.open("ab") as file:
        file.truncate(num_bytes)
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            file.truncate(num_bytes)
            raise


def sync(path: Path) -> None:
    """Flushes a file, or the entries of a folder, to the disk; Windows cannot do that for a path."""
    if os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def locked(folder: Path, what: Path | None = None) -> Iterator[None]:
    """Exclusive lock on a folder; a second process gets a ValueError that names `what`, by default the folder, and the first.

    A killed process holds no lock.
    """
    path = folder / LOCK
    own: list[os.stat_result] = []

    def sign(handle: int) -> None:
        own.append(os.fstat(handle))
        with contextlib.suppress(OSError):  # a full disk
            os.truncate(handle, 0)
            # After a blank: on Windows no other process can read the first byte, which is the locked one.
            os.write(handle, f" process {os.getpid()} on {socket.gethostname()}\n".encode())

    # The short timeout allows for a retry if the previous holder removes the file in the same moment.
    lock = FileLock(path, timeout=0.1, thread_local=False, on_acquired=sign)
    with write_errors(what or folder):
        try:
            lock.acquire()
        except Timeout:
            raise ValueError(f"{what or folder} is in use by {_holder(path)}") from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # the folder may be gone or read-only; without a holder the file locks nothing
            if os.path.samestat(own[0], path.lstat()):  # otherwise the folder is a new one, with the lock of another holder
                path.unlink()
        lock.release()


def _holder(path: Path) -> str:
    """The process that holds a lock, as far as its file can be read."""
    with contextlib.suppress(OSError, ValueError):
        file_size(path)  # raises ValueError unless it is a regular file
        with path.open("rb", buffering=0) as file:
            file.seek(1)
            if words := file.read(64).decode(errors="replace").split():
                return " ".join(words)
    return "another process"


def save_figure(figure: Figure, path: Path) -> None:
    """Saves a figure as PNG and SVG; the layout is computed once for both."""
    formats: dict[str, dict[str, Any]] = {".png": {"dpi": 150}, ".svg": {"metadata": {"Date": None}}}
    for suffix, options in formats.items():
        file = io.BytesIO()
        figure.savefig(file, format=suffix[1:], **options)
        write_atomically(path.with_suffix(suffix), file.getvalue())
        figure.set_layout_engine("none")


def umask() -> int:
    """The process's file mode creation mask."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
