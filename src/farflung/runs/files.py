"""Files: JSON, CSV, archives of arrays and figures, atomic writing, new folders."""

import contextlib
import csv
import io
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT_VERSION = 4


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
def write_errors(path: str | Path) -> Iterator[None]:
    """Turns an OSError into a ValueError of one line that names the path."""
    try:
        yield
    except BrokenPipeError:  # the reader of the output has gone
        raise
    except OSError as error:
        raise ValueError(f"cannot write to {path}: {error.strerror or error}") from None


def archive(arrays: Mapping[str, Any]) -> bytes:
    """NumPy's compressed archive of the arrays that are not None."""
    file = io.BytesIO()
    given = {name: np.asarray(value) for name, value in arrays.items() if value is not None}
    np.savez_compressed(file, allow_pickle=False, **given)
    return file.getvalue()


def write_results(folder: Path, results: Mapping[str, Any]) -> None:
    """Writes JSON files, CSV files of rows and NumPy archives, by the suffixes of their names; figures have no suffix.

    A page is a function that returns its HTML, given the folder with what was written before it.
    """
    for name, result in results.items():
        if name.endswith(".json"):
            (folder / name).write_text(to_json(result, indent=2) + "\n", encoding="utf-8")
        elif name.endswith(".csv"):
            (folder / name).write_bytes(to_csv(result).encode())
        elif name.endswith(".npz"):
            (folder / name).write_bytes(archive(result))
        elif name.endswith(".html"):
            (folder / name).write_text(result(folder), encoding="utf-8")
        else:
            save_figure(result, folder / name)


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


def own_folder(folder: Path) -> None:
    """Makes a folder that no other user can write to; raises ValueError if there is one of another user, or a link."""
    if not os.path.lexists(folder):
        folder.mkdir(mode=stat.S_IRWXU)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        why = "is a link or a file" if found.st_uid == os.getuid() else "belongs to another user"
        raise ValueError(f"{folder} {why}, and programs would be read from there: choose an output directory of your own")


def write_atomically(path: Path, content: str | bytes, *, is_lasting: bool = True) -> None:
    """Writes a file that appears under its name only when it is complete and, if it must last, on the disk."""
    with complete_file(path, is_lasting=is_lasting) as new:
        new.write_bytes(content.encode() if isinstance(content, str) else content)


def add_file(path: Path, content: bytes) -> None:
    """Writes a file of results at once, in a folder that may be new."""
    with write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)


@contextlib.contextmanager
def complete_file(path: Path, *, is_lasting: bool = True) -> Iterator[Path]:
    """A hidden file to write, which takes the name `path` when it is complete and, if it must last, on the disk."""
    new = path.with_name(f".{path.name}")
    try:
        yield new
        if is_lasting:
            sync(new)
        new.replace(path)
        if is_lasting:
            sync(path.parent)
    finally:
        new.unlink(missing_ok=True)


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


def save_figure(figure: "Figure", path: Path, formats: Sequence[str] = ("png", "svg")) -> None:
    """Saves a figure as PNG and SVG, with the same bytes whenever it is drawn; the layout is computed once for both."""
    import matplotlib as mpl

    options: dict[str, dict[str, Any]] = {"png": {"dpi": 150}, "svg": {"metadata": {"Date": None}}}
    for name in formats:
        file = io.BytesIO()
        with mpl.rc_context({"svg.hashsalt": "farflung"}):  # otherwise names in an SVG are random
            figure.savefig(file, format=name, **options[name])
        content = file.getvalue() if name != "svg" else _with_numbered_ids(file.getvalue())
        path.with_name(f"{path.name}.{name}").write_bytes(content)
        figure.set_layout_engine(None)  # without one, matplotlib doesn't draw once more to compute the layout


def _with_numbered_ids(svg: bytes) -> bytes:
    """An SVG whose ids are numbers in order of appearance; matplotlib's are hashes of numbers whose last bits may differ."""
    numbers: dict[bytes, bytes] = {}

    def number(found: re.Match[bytes]) -> bytes:
        return numbers.setdefault(found[0], b"%s%d" % (found[1], len(numbers)))

    return re.sub(rb'(?<=[#"])([a-z]+)[0-9a-f]{10}(?=[")])', number, svg)
