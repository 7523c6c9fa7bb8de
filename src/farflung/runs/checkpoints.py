"""A training that is under way, on disk: what it takes to go on with it, whatever happens to the process."""

import contextlib
import dataclasses
import hashlib
import io
import json
import math
import shutil
import time
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from farflung.config import Explore
from farflung.config.checks import whole_number
from farflung.config.reading import check_version, file_size, member, one_line_errors, parse_object, read_arrays, read_object
from farflung.runs.contents import check_files, check_visits, read_config, write_header
from farflung.runs.files import FORMAT_VERSION, LOCK, locked, write_atomically
from farflung.runs.metrics_table import MetricsTable
from farflung.runs.run import UNFINISHED
from farflung.runs.worlds import world_from_arrays, world_from_bytes, world_to_bytes
from farflung.training.progress import HostStatistics, Progress, TrainingState
from farflung.worlds.world import World

MINUTES = 2.0
"""Between two checkpoints, unless something else is asked for."""
_NUM_KEPT = 3
_CONFIG, _WORLD, _METRICS = "config.json", "world.npz", "metrics.csv"


class CheckpointWarning(RuntimeWarning):
    """A checkpoint could not be written or read."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Where a training stood when it was last kept."""

    training_state: TrainingState
    records: MetricsTable
    seconds: float
    """That it had trained for."""
    world: World | None
    """With the states that were met by then, where only these are known."""


@dataclasses.dataclass
class Checkpointer:
    """Keeps a training in the folder of its run from time to time."""

    out: Path
    config: Explore
    world: World
    minutes: float = MINUTES
    num_updates: int | None = None
    """After how many updates a checkpoint is due whatever the time."""
    _kept: tuple[int, float] = (0, 0.0)
    _has_failed: bool = False
    _skipped: frozenset[Path] = frozenset()
    _beside: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self._kept, self._beside = (0, time.monotonic()), self._names()

    @property
    def folder(self) -> Path:
        return self.out / UNFINISHED

    def check_alone(self) -> None:
        """Raises ValueError if somebody, such as a logger, has put something into the run's directory by now."""
        for name in sorted(self._names() - self._beside):
            raise ValueError(f"{name} has appeared in {self.out}, where the run goes: choose another directory")

    def _names(self) -> frozenset[str]:
        return (
            frozenset(path.name for path in self.out.iterdir() if path.name != UNFINISHED) if self.out.is_dir() else frozenset()
        )

    def new_metrics_table(self) -> MetricsTable:
        return MetricsTable(self.config.seeds, self.folder / _METRICS)

    def is_due(self, progress: Progress) -> bool:
        """Time is that of a clock that nobody can set."""
        update, moment = self._kept
        by_count = self.num_updates is not None and progress.update - update >= self.num_updates
        return progress.update > update and (by_count or time.monotonic() - moment >= 60 * self.minutes)

    def write(self, progress: Progress, records: MetricsTable, seconds: float) -> None:
        """Writes a checkpoint and drops the oldest; a full disk is told, and training goes on."""
        self._kept = (progress.update, time.monotonic())
        try:
            records.flush()
            content = _to_bytes(progress.training_state, records, seconds, self.world)
            name = f"checkpoint-{progress.update:010d}-{_digest(content)}.npz"
            write_atomically(self.folder / name, content)
            useful = [path for path in _checkpoints(self.folder) if path not in self._skipped]
            for old in {*useful[_NUM_KEPT:], *self._skipped}:
                old.unlink(missing_ok=True)
            self._skipped = frozenset()
        except OSError as error:
            if not self._has_failed:
                message = f"the checkpoint of update {progress.update} could not be written: {error.strerror or error}"
                warnings.warn(f"{message}; training goes on", CheckpointWarning, stacklevel=2)
            self._has_failed = True

    def latest(self) -> Checkpoint | None:
        """The last checkpoint that can be read, if there is any at all; of those that are damaged it is told.

        If all of them are, it raises ValueError: who begins anew must have said so.
        """
        for path in _checkpoints(self.folder):
            try:
                with one_line_errors(f"{path} is skipped"):
                    found = _read(member(self.folder, path.name), self)
            except ValueError as error:
                warnings.warn(str(error), CheckpointWarning, stacklevel=2)
                self._skipped |= {path}
                continue
            self._kept = (found.training_state.update, time.monotonic())
            return found
        if self._skipped:
            raise ValueError(f"no checkpoint of {self.out} can be read; to begin anew, discard them with --force")
        return None

    @property
    def has_checkpoints(self) -> bool:
        return bool(_checkpoints(self.folder))

    @contextlib.contextmanager
    def resume_hint(self) -> Iterator[None]:
        """Has what goes wrong say as well that it can be gone on, if it can."""
        try:
            yield
        except ValueError as error:
            if not self.has_checkpoints:
                raise
            raise ValueError(f"{error}; what was learnt is kept, farflung explore --resume {self.out} goes on") from error

    def discard(self) -> None:
        """What is finished needs it no more; it ends with its config, should the rest survive."""
        (self.folder / _CONFIG).unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def new_checkpoints(
    out: Path, config: Explore, world: World, minutes: float = MINUTES, updates: int | None = None
) -> Iterator[Checkpointer]:
    """Keeps a new training in the folder of its run; an earlier one that was not finished is discarded."""
    checkpointer = Checkpointer(out, config, world, minutes, updates)
    is_new = not out.exists()
    try:
        checkpointer.folder.mkdir(parents=True, exist_ok=True)
        with locked(checkpointer.folder, out):
            for old in checkpointer.folder.iterdir():
                if old.name != LOCK:
                    shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
            content = world_to_bytes(world)
            write_atomically(checkpointer.folder / _WORLD, content)
            sums = {_WORLD: hashlib.sha256(content).hexdigest()}
            header = write_header(config, version("farflung"), stepping=world.stepping, sha256=sums)
            write_atomically(checkpointer.folder / _CONFIG, header)
            try:
                yield checkpointer
            finally:
                if not checkpointer.has_checkpoints:
                    checkpointer.discard()
                    with contextlib.suppress(OSError):
                        if is_new:
                            out.rmdir()
    except OSError as error:
        raise ValueError(f"cannot write to {out}: {error.strerror or error}") from None


@contextlib.contextmanager
def open_checkpoints(
    out: Path, world: World | None = None, minutes: float = MINUTES, updates: int | None = None
) -> Iterator[Checkpointer]:
    """A training that was not finished, to go on with it.

    Args:
        world: that of the run, where only the program that began it can make it again.
    """
    folder, unusable = out / UNFINISHED, f"{str(out)[:200]} holds no training that can be gone on with"
    with one_line_errors(unusable):
        has_begun, is_saved = (folder / _CONFIG).is_file(), (out / _CONFIG).is_file()
        if has_begun:
            _check_links(folder)
    if not has_begun:
        why = "is finished" if is_saved else "holds no training that was cut short"
        raise ValueError(f"{out} {why}: there is nothing to go on with")
    with locked(folder, out):
        with one_line_errors(unusable):
            header = read_object(member(folder, _CONFIG))
            config = read_config(header)
            check_files(header, folder)
            _check_same(world, header)
            world = world_from_arrays(read_arrays(member(folder, _WORLD))) if world is None else world
            world = world.with_environment(**_stepping(header, world))
        yield Checkpointer(out, config, world, minutes, updates)


def _check_links(folder: Path) -> None:
    """Raises ValueError if what is written in a folder would go elsewhere, or into a pipe."""
    for path in (folder, *folder.iterdir()):
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            raise ValueError(f"{path.name} is a link or a pipe")


def _check_same(world: World | None, header: dict[str, Any]) -> None:
    """Raises ValueError if a world is not the one that the training was begun in, as far as that can be told."""
    if world is None or world.is_hosted or "sha256" not in header:
        return
    if hashlib.sha256(world_to_bytes(world)).hexdigest() != header["sha256"][_WORLD]:
        raise ValueError("it was begun in another world")


def _stepping(header: dict[str, Any], world: World) -> dict[str, Any]:
    """How the world was stepped."""
    found = dict(header["stepping"])
    if found.keys() != world.stepping.keys():
        raise ValueError(f"its stepping has {', '.join(found)} instead of {', '.join(world.stepping)}")
    return found


def _checkpoints(folder: Path) -> list[Path]:
    """The latest first: by their numbers, since clocks may be set."""
    return sorted(folder.glob("checkpoint-*.npz"), reverse=True)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _to_bytes(training_state: TrainingState, records: MetricsTable, seconds: float, world: World) -> bytes:
    about = {
        "format_version": FORMAT_VERSION,
        "farflung": version("farflung"),
        "update": training_state.update,
        "seconds": seconds,
        "metrics": {"bytes": records.num_bytes, "crc32": records.checksum},
        "num_leaves": len(training_state.leaves),
    }
    arrays: dict[str, Any] = {f"leaf{number}": leaf for number, leaf in enumerate(training_state.leaves)}
    if training_state.host_statistics is not None:
        about["num_steps"] = training_state.host_statistics.num_steps
        arrays |= {name: getattr(training_state.host_statistics, name) for name in ("visits", "features")}
    if not world.knows_all_states or (world.table is None and world.projection is None):
        arrays["world"] = np.frombuffer(world_to_bytes(world), np.uint8)
    file = io.BytesIO()
    given = {name: array for name, array in arrays.items() if array is not None}
    np.savez(file, allow_pickle=False, about=np.array(json.dumps(about)), **given)
    return file.getvalue()


def _read(path: Path, checkpointer: Checkpointer) -> Checkpoint:
    file_size(path)  # raises ValueError if it is no file
    content = path.read_bytes()
    if _digest(content) != path.stem.rpartition("-")[2]:
        raise ValueError("it is damaged")
    arrays = read_arrays(content)
    about = parse_object(str(arrays["about"]))
    check_version(about["format_version"], FORMAT_VERSION, about["farflung"])
    update = whole_number("its update", about["update"], checkpointer.config.updates)
    leaves = [arrays[f"leaf{number}"] for number in range(whole_number("num_leaves", about["num_leaves"]))]
    for leaf in leaves:
        if leaf.shape[:1] != (len(checkpointer.config.seeds),) or (leaf.dtype.kind == "f" and not np.isfinite(leaf).all()):
            raise ValueError("it holds what no training leaves behind")
    world = world_from_bytes(arrays["world"].tobytes()) if "world" in arrays else None
    host_statistics = None
    if "visits" in arrays:
        check_visits(arrays["visits"], checkpointer.config)
        num_steps = whole_number("num_steps", about["num_steps"], most=math.inf)
        host_statistics = HostStatistics(np.zeros(0, np.int64), arrays["visits"], num_steps, arrays.get("features"))
    seconds, (num_bytes, checksum) = about["seconds"], (about["metrics"][name] for name in ("bytes", "crc32"))
    if not (isinstance(seconds, int | float) and 0 <= seconds < math.inf and isinstance(num_bytes, int) and num_bytes >= 0):
        raise ValueError("its seconds and bytes are numbers from 0 on")
    records = MetricsTable(checkpointer.config.seeds, checkpointer.folder / _METRICS, num_bytes, checksum)
    if records:
        updates, *_ = records.table()  # raises ValueError if it is damaged
        if updates[-1] > update or (np.diff(updates, prepend=0) < 1).any():
            raise ValueError("its records are of other updates")
    return Checkpoint(TrainingState(update, leaves, host_statistics), records, seconds, world)
