"""A training that is under way, on disk: what it takes to go on with it, whatever happens to the process."""

import contextlib
import csv
import dataclasses
import hashlib
import io
import json
import shutil
import time
import warnings
import zlib
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from farflung.config import Explore
from farflung.environments import World
from farflung.files import FORMAT_VERSION, LOCK, append, locked, write_atomically
from farflung.hosting.stepped import SteppedWorld
from farflung.hosting.world import HostedWorld
from farflung.metrics import Metrics
from farflung.progress import Counted, Progress, Standing
from farflung.run_files import read_config, write_header
from farflung.runs import UNFINISHED
from farflung.untrusted import check_version, file_size, member, parse_object, read_arrays, read_object, told_in_one_line
from farflung.world_files import world_from_arrays, world_from_bytes, world_to_bytes

MINUTES = 2.0
"""Between two checkpoints, unless something else is asked for."""
_NUM_KEPT = 3
_STEPPING = ("copies", "workers", "timeout")
_CONFIG, _WORLD, _METRICS = "config.json", "world.npz", "metrics.csv"


class CheckpointWarning(RuntimeWarning):
    """A checkpoint could not be written or read."""


class Records:
    """What a training has recorded: the latest in memory, all that came before in a file that grows, if there is one."""

    def __init__(self, seeds: Sequence[int], path: Path | None = None, num_bytes: int = 0, checksum: int = 0) -> None:
        """
        Args:
            num_bytes: of the file that count; what comes after them is cut off.
            checksum: of these, by CRC-32.
        """
        self._seeds, self._path, self.num_bytes, self.checksum = tuple(seeds), path, num_bytes, checksum
        self._latest: list[tuple[np.ndarray, np.ndarray, Metrics]] = []
        self.shown: tuple[float, float] | tuple[None, None] = (None, None)
        """The normalised entropy and the support as last added, averaged over the seeds."""

    def __bool__(self) -> bool:
        return bool(self._latest) or self.num_bytes > 0

    def add(self, updates: Int[np.ndarray, " record"], steps: Int[np.ndarray, " record"], metrics: Metrics) -> None:
        if len(updates):
            self._latest.append((updates, steps, metrics))
            self.shown = (float(np.mean(metrics.normalized_entropy[:, -1])), float(np.mean(metrics.support[:, -1])))

    def flush(self) -> None:
        """Writes what is in memory to the file; if that fails, it stays in memory."""
        if self._path is None or not self._latest:
            return
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if self.num_bytes == 0:
            writer.writerow(["seed", "update", "steps", *self._latest[0][2].columns])
        for updates, steps, metrics in self._latest:
            table = np.stack(list(metrics.columns.values()), axis=-1)
            for record, (update, taken) in enumerate(zip(updates.tolist(), steps.tolist(), strict=True)):
                rows = zip(self._seeds, table[:, record].tolist(), strict=True)
                writer.writerows([seed, update, taken, *values] for seed, values in rows)
        added = text.getvalue().encode()
        append(self._path, added, self.num_bytes)
        self.num_bytes, self.checksum = self.num_bytes + len(added), zlib.crc32(added, self.checksum)
        self._latest.clear()

    def table(self) -> tuple[Int[np.ndarray, " record"], Int[np.ndarray, " record"], Metrics]:
        """The updates that were recorded, the steps that a seed's team had taken by then, and the metrics [seed, record]."""
        parts = [] if self.num_bytes == 0 else [self._read()]
        updates, steps, metrics = zip(*parts, *self._latest, strict=True)
        return np.concatenate(updates), np.concatenate(steps), Metrics.joined(metrics)

    def _read(self) -> tuple[np.ndarray, np.ndarray, Metrics]:
        assert self._path is not None
        file_size(self._path)  # raises ValueError if it is no file
        with self._path.open("rb") as file:
            content = file.read(self.num_bytes)
        if len(content) < self.num_bytes or zlib.crc32(content) != self.checksum:
            raise ValueError(f"{self._path} is damaged")
        names, *lines = content.decode().splitlines()
        table = np.loadtxt(lines, delimiter=",", ndmin=2).reshape(-1, len(self._seeds), names.count(",") + 1)
        columns = np.moveaxis(table[..., 3:], -1, 0).astype(np.float32)
        return table[:, 0, 1].astype(np.int64), table[:, 0, 2].astype(np.int64), Metrics(*columns.transpose(0, 2, 1))


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Where a training stood when it was last kept."""

    standing: Standing
    records: Records
    seconds: float
    """That it had trained for."""
    world: World | None
    """With the states that were met by then, where only these are known."""


@dataclasses.dataclass
class Keeper:
    """Keeps a training in the folder of its run from time to time."""

    out: Path
    config: Explore
    world: World
    minutes: float = MINUTES
    num_updates: int | None = None
    """After how many updates a checkpoint is due whatever the time."""
    _kept: tuple[int, float] = (0, 0.0)
    _has_failed: bool = False
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

    def new_records(self) -> Records:
        return Records(self.config.seeds, self.folder / _METRICS)

    def is_due(self, progress: Progress) -> bool:
        """Time is that of a clock that nobody can set."""
        update, moment = self._kept
        by_count = self.num_updates is not None and progress.update - update >= self.num_updates
        return progress.update > update and (by_count or time.monotonic() - moment >= 60 * self.minutes)

    def keep(self, progress: Progress, records: Records, seconds: float) -> None:
        """Writes a checkpoint and drops the oldest; a full disk is told, and training goes on."""
        self._kept = (progress.update, time.monotonic())
        try:
            records.flush()
            content = _to_bytes(progress.standing, records, seconds, self.world)
            name = f"checkpoint-{progress.update:010d}-{_digest(content)}.npz"
            write_atomically(self.folder / name, content)
            for old in _checkpoints(self.folder)[_NUM_KEPT:]:
                old.unlink(missing_ok=True)
        except OSError as error:
            if not self._has_failed:
                message = f"the checkpoint of update {progress.update} could not be written: {error.strerror or error}"
                warnings.warn(f"{message}; training goes on", CheckpointWarning, stacklevel=2)
            self._has_failed = True

    def latest(self) -> Checkpoint | None:
        """The last checkpoint that can be read; of those that are damaged it is told."""
        for path in _checkpoints(self.folder):
            try:
                with told_in_one_line(f"{path} is skipped"):
                    found = _read(member(self.folder, path.name), self)
            except ValueError as error:
                warnings.warn(str(error), CheckpointWarning, stacklevel=2)
                continue
            self._kept = (found.standing.update, time.monotonic())
            return found
        return None

    @property
    def has_checkpoints(self) -> bool:
        return bool(_checkpoints(self.folder))

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
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
def keeping(out: Path, config: Explore, world: World, minutes: float = MINUTES, updates: int | None = None) -> Iterator[Keeper]:
    """Keeps a new training in the folder of its run; an earlier one that was not finished is discarded."""
    keeper = Keeper(out, config, world, minutes, updates)
    is_new = not out.exists()
    try:
        keeper.folder.mkdir(parents=True, exist_ok=True)
        with locked(keeper.folder, out):
            for old in keeper.folder.iterdir():
                if old.name != LOCK:
                    shutil.rmtree(old) if old.is_dir() else old.unlink()
            write_atomically(keeper.folder / _WORLD, world_to_bytes(world))
            stepping = {name: getattr(world, name) for name in _STEPPING} if isinstance(world, SteppedWorld) else {}
            write_atomically(keeper.folder / _CONFIG, write_header(config, version("farflung"), stepping=stepping))
            try:
                yield keeper
            finally:
                if not keeper.has_checkpoints:
                    keeper.discard()
                    with contextlib.suppress(OSError):
                        if is_new:
                            out.rmdir()
    except OSError as error:
        raise ValueError(f"cannot write to {out}: {error.strerror or error}") from None


@contextlib.contextmanager
def kept(out: Path, world: World | None = None, minutes: float = MINUTES, updates: int | None = None) -> Iterator[Keeper]:
    """A training that was not finished, to go on with it.

    Args:
        world: that of the run, where only the program that began it can make it again.
    """
    folder = out / UNFINISHED
    if not (folder / _CONFIG).is_file():
        why = "is finished" if (out / _CONFIG).is_file() else "holds no training that was cut short"
        raise ValueError(f"{out} {why}: there is nothing to go on with")
    with locked(folder, out):
        with told_in_one_line(f"{out} holds no training that can be gone on with"):
            header = read_object(member(folder, _CONFIG))
            config = read_config(header)
            world = world_from_arrays(read_arrays(member(folder, _WORLD))) if world is None else world
            if isinstance(world, SteppedWorld):
                world = world.made(**_stepping(header))
        yield Keeper(out, config, world, minutes, updates)


def _stepping(header: dict[str, Any]) -> dict[str, Any]:
    """How the world was stepped."""
    found = dict(header["stepping"])
    if found.keys() != set(_STEPPING):
        raise ValueError(f"its stepping has {', '.join(found)} instead of {', '.join(_STEPPING)}")
    return found


def _checkpoints(folder: Path) -> list[Path]:
    """The latest first: by their numbers, since clocks may be set."""
    return sorted(folder.glob("checkpoint-*.npz"), reverse=True)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _to_bytes(standing: Standing, records: Records, seconds: float, world: World) -> bytes:
    about = {
        "format_version": FORMAT_VERSION,
        "farflung": version("farflung"),
        "update": standing.update,
        "seconds": seconds,
        "metrics": {"bytes": records.num_bytes, "crc32": records.checksum},
        "num_leaves": len(standing.leaves),
    }
    arrays: dict[str, Any] = {f"leaf{number}": leaf for number, leaf in enumerate(standing.leaves)}
    if standing.counted is not None:
        about["num_steps"] = standing.counted.num_steps
        arrays |= {name: getattr(standing.counted, name) for name in ("visits", "features")}
    if isinstance(world, HostedWorld):
        arrays["world"] = np.frombuffer(world_to_bytes(world), np.uint8)
    file = io.BytesIO()
    given = {name: array for name, array in arrays.items() if array is not None}
    np.savez(file, allow_pickle=False, about=np.array(json.dumps(about)), **given)
    return file.getvalue()


def _read(path: Path, keeper: Keeper) -> Checkpoint:
    file_size(path)  # raises ValueError if it is no file
    content = path.read_bytes()
    if _digest(content) != path.stem.rpartition("-")[2]:
        raise ValueError("it is damaged")
    arrays = read_arrays(content)
    about = parse_object(str(arrays["about"]))
    check_version(about["format_version"], FORMAT_VERSION, about["farflung"])
    leaves = [arrays[f"leaf{number}"] for number in range(about["num_leaves"])]
    world = world_from_bytes(arrays["world"].tobytes()) if "world" in arrays else None
    nothing = np.zeros(0, np.int64)
    counted = Counted(nothing, arrays["visits"], about["num_steps"], arrays.get("features")) if "visits" in arrays else None
    records = Records(keeper.config.seeds, keeper.folder / _METRICS, about["metrics"]["bytes"], about["metrics"]["crc32"])
    if records:
        records.table()  # raises ValueError if it is damaged
    return Checkpoint(Standing(about["update"], leaves, counted), records, about["seconds"], world)
