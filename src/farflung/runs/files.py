"""Files that appear whole or not at all, and folders that never mix what does not belong together."""

import contextlib
import csv
import io
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

try:
    import fcntl
except ImportError:  # Windows has other locks
    fcntl = None  # type: ignore[assignment]

from farflung.config.reading import check_version, read_object

FORMAT_VERSION = 3
LOCK = "lock"
"""The file in a folder that says who works there."""
_COLLECTION = "contents.json"


def to_json(value: Any, indent: int | None = None) -> str:
    """JSON in which numbers that are not finite are null, as JSON has no others."""

    def finite(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: finite(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [finite(item) for item in value]
        return None if isinstance(value, float) and not np.isfinite(value) else value

    return json.dumps(finite(value), indent=indent, allow_nan=False)


def open_collection(path: Path, contents: dict[str, Any], *, force: bool = False) -> None:
    """Makes `path` a folder for many runs of one kind, or finds it to be that already.

    What belongs together is described by `contents`, which is kept in the folder: nothing of another version or with other
    settings is ever mixed in. With `force` such a folder is emptied.
    """
    path = path.absolute()
    wanted = json.loads(json.dumps(contents))  # as it is read back: no tuples
    try:
        if path.is_dir() and any(path.iterdir()):
            if not (path / _COLLECTION).is_file():
                raise ValueError(f"{path} is not empty and holds no results: choose another directory")
            try:
                found = read_object(path / _COLLECTION)
                check_version(found.pop("format_version", None), FORMAT_VERSION, found.get("farflung"))
                if found == wanted:
                    return
                described = _differences(found, wanted)
            except ValueError as error:
                described = f"that cannot be read ({error})"
            if not force:
                raise ValueError(f"{path} holds results {described}: choose another directory, or discard them with --force")
            with locked(path):
                shutil.rmtree(path)
        path.mkdir(parents=True, exist_ok=True)
        header = {"format_version": FORMAT_VERSION, **wanted}
        write_atomically(path / _COLLECTION, json.dumps(header, indent=2) + "\n")
    except OSError as error:
        raise ValueError(f"cannot write to {path}: {error.strerror or error}") from None


def to_csv(rows: Iterable[Sequence[object]]) -> str:
    """The text of a table, the column names first."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


class Results(NamedTuple):
    """A folder that one command writes its results into."""

    path: Path

    def write(self, name: str, text: str) -> None:
        write_atomically(self.path / name, text if text.endswith("\n") else text + "\n")

    def write_table(self, name: str, rows: Iterable[Sequence[object]]) -> None:
        """As CSV, the column names first."""
        self.write(name, to_csv(rows))

    def write_arrays(self, name: str, **arrays: Any) -> None:
        """As NumPy's compressed archive."""
        file = io.BytesIO()
        np.savez_compressed(file, allow_pickle=False, **{key: np.asarray(value) for key, value in arrays.items()})
        write_atomically(self.path / name, file.getvalue())

    def draw(self, name: str, figure: Figure) -> None:
        """As PNG and SVG."""
        save_figure(figure, self.path / name)


@contextlib.contextmanager
def open_results(path: Path, command: str, settings: dict[str, Any], *, force: bool = False) -> Iterator[Results]:
    """A folder for the results of one command with these settings; those of the same settings are written over.

    If nothing comes of it, a folder that was made for it disappears again.
    """
    was_there = path.exists()
    open_collection(path, {"farflung": version("farflung"), "command": command, **settings}, force=force)
    try:
        yield Results(path)
    except OSError as error:
        raise ValueError(f"cannot write to {path}: {error.strerror or error}") from None
    finally:
        if not was_there and [child.name for child in path.iterdir()] == [_COLLECTION]:
            shutil.rmtree(path)


@contextlib.contextmanager
def new_folder(parent: Path, name: str) -> Iterator[Path]:
    """A folder in `parent` that no other process can take meanwhile, with a number after its name if that is taken.

    If nothing comes of it, it disappears again.
    """
    number, is_new_parent = 1, not parent.exists()
    while True:
        path = parent / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir(parents=True)
            break
        except FileExistsError:
            number += 1
        except OSError as error:
            raise ValueError(f"cannot write to {path}: {error.strerror or error}") from None
    try:
        yield path
    finally:
        for folder in (path, parent) if is_new_parent else (path,):
            with contextlib.suppress(OSError):
                folder.rmdir()  # only if it is empty


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a file that appears under its name only when it is complete, and on the disk, whatever happens."""
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
    """Adds to the first `num_bytes` of a file, after which it is cut off; what cannot be added whole is not added."""
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
    """Has a file, or what a folder lists, reach the disk, where the system can do that."""
    if os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def locked(folder: Path, what: Path | None = None) -> Iterator[None]:
    """No other process works in the folder meanwhile: who tries is told so. The lock of one that dies is gone with it.

    Args:
        what: as which it is known to whoever is told, if not by its own name.
    """
    path = folder / LOCK
    if fcntl is None:
        yield
        return
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise ValueError(f"cannot write to {what or folder}: {error.strerror or error}") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(handle, 64).decode(errors="replace").strip()
            os.close(handle)
            raise ValueError(f"{what or folder} is in use by {owner or 'another process'}") from None
        if _is_at(path, handle):  # or else its owner has just removed it
            break
        os.close(handle)
    try:
        with contextlib.suppress(OSError):  # a full disk
            os.truncate(handle, 0)
            os.write(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        yield
    finally:
        with contextlib.suppress(OSError):  # a folder that has become read-only; without its owner the file locks nothing
            if _is_at(path, handle):  # or else the folder was made anew, and this is the lock of somebody else
                path.unlink()
        os.close(handle)


def _is_at(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except OSError:
        return False


def save_figure(figure: Figure, path: Path) -> None:
    """Saves a figure as PNG and SVG under one name; it is laid out once, not for each format."""
    _save_as(figure, path.with_suffix(".png"), dpi=150)
    figure.set_layout_engine("none")
    _save_as(figure, path.with_suffix(".svg"), metadata={"Date": None})


def _save_as(figure: Figure, path: Path, **options: Any) -> None:
    file = io.BytesIO()
    figure.savefig(file, format=path.suffix[1:], **options)
    write_atomically(path, file.getvalue())


def _differences(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    return "with " + ", ".join(
        f"{key} {found.get(key)} instead of {wanted.get(key)}"
        for key in sorted(wanted.keys() | found.keys())
        if found.get(key) != wanted.get(key)
    )


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
