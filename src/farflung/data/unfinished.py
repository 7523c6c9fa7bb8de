"""Parts of a dataset that outlive the process that plays them, so that another can go on."""

import contextlib
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from farflung.data.archives import load_dataset, save_dataset
from farflung.data.episodes import Dataset
from farflung.runs import interrupts
from farflung.runs.checkpoints import CheckpointWarning
from farflung.runs.files import locked, open_collection


@contextlib.contextmanager
def unfinished(folder: Path, about: Mapping[str, Any]) -> Iterator[Path]:
    """A folder for the parts of a dataset until it is complete; what is in it of another dataset is discarded.

    Args:
        about: all that the dataset depends on.
    """
    open_collection(folder, dict(about), force=True)
    with locked(folder):
        try:
            yield folder
        except BaseException:
            if not _path(folder, 0).exists():
                shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder, ignore_errors=True)


def kept(folder: Path, play: Callable[[int, Dataset | None], Iterator[Dataset]]) -> Iterator[Dataset]:
    """The parts that are in the folder, and then those that are played, each kept there before it is used.

    Args:
        play: the parts from a number on, after the one before it, which always are the same.
    """
    first, before = 0, None
    while (path := _path(folder, first)).exists():
        try:
            before = load_dataset(path)
        except ValueError as error:
            warnings.warn(f"{error}; it is played again", CheckpointWarning, stacklevel=2)
            break
        yield before
        first += 1
    for number, part in enumerate(play(first, before), first):
        with interrupts.uninterrupted():
            save_dataset(part, _path(folder, number), force=True)
        yield part


def _path(folder: Path, number: int) -> Path:
    return folder / f"part-{number:06d}.npz"
