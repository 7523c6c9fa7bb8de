"""Checkpoints of an unfinished training, from which `farflung resume` continues after any kind of stop."""

import contextlib
import hashlib
import io
import json
import math
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from farflung.config import Explore
from farflung.config.checks import whole_number
from farflung.config.reading import check_version, member, parse_object, read_arrays, read_bytes, read_object, reading
from farflung.runs import run
from farflung.runs.destinations import CONFIG, UNFINISHED, Destination, claimed
from farflung.runs.files import FORMAT_VERSION, write_atomically, write_errors
from farflung.runs.metrics_table import MetricsTable
from farflung.runs.run import METRICS, WORLD, world_to_bytes
from farflung.training.processes import LostError
from farflung.training.progress import NO_MOMENTS, HostStatistics, Moments, TrainingState
from farflung.worlds.world import World

MINUTES = 2.0
"""The default time between two checkpoints."""
_NUM_CHECKPOINTS = 3


class CheckpointWarning(RuntimeWarning):
    """A checkpoint could not be written or read."""


@dataclass(frozen=True)
class Checkpoint:
    """Everything that a training needs to continue."""

    training_state: TrainingState
    records: MetricsTable
    seconds: float
    """Training time so far."""
    world: World | None
    """A host-stepped world with the states that were numbered so far; None for worlds whose file is enough."""
    moments: Moments = NO_MOMENTS


@dataclass
class Checkpointer:
    """Writes and reads the checkpoints of one training, in the directory of its run."""

    place: Destination
    config: Explore
    world: World
    minutes: float = MINUTES
    num_updates: int | None = None
    """A checkpoint is due after this many updates, even if `minutes` have not passed."""
    has_started: bool = field(init=False, default=False)
    """Whether the training has started, if there was a checkpoint from that."""
    _last_update: int = field(init=False, default=0)
    _last_time: float = field(init=False, default_factory=time.monotonic)
    _has_failed: bool = field(init=False, default=False)
    _unreadable: frozenset[Path] = field(init=False, default=frozenset())
    _files_before: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self._files_before = self._files()

    @property
    def folder(self) -> Path:
        return self.place.unfinished

    def check_alone(self) -> None:
        """Raises ValueError if a file, such as a logger's, has been added to the run's directory."""
        for name in sorted(self._files() - self._files_before):
            where = f"{self.place.name}, the directory of the run"
            raise ValueError(f"{name} has appeared in {where}: choose another directory for logs")

    def _files(self) -> frozenset[str]:
        return frozenset(path.name for path in self.place.folder.iterdir() if path.name != UNFINISHED)

    def new_metrics_table(self) -> MetricsTable:
        return MetricsTable(self.config.seeds, self.folder / METRICS)

    def is_due(self, update: int) -> bool:
        """Whether to write a checkpoint after an update, by a clock that changes of the system's time don't affect."""
        num_new = update - self._last_update
        is_count_reached = self.num_updates is not None and num_new >= self.num_updates
        return num_new > 0 and (is_count_reached or time.monotonic() - self._last_time >= 60 * self.minutes)

    def write(self, state: TrainingState, records: MetricsTable, seconds: float, moments: Moments = NO_MOMENTS) -> None:
        """Writes a checkpoint and removes the oldest. If the disk is full, it warns once and training continues."""
        self._last_update, self._last_time = state.update, time.monotonic()
        try:
            records.flush()
            content = _to_bytes(state, records, moments, seconds, self.world)
            write_atomically(self.folder / f"checkpoint-{state.update:010d}-{_sha256(content)[:16]}.npz", content)
            readable = [path for path in _checkpoints(self.folder) if path not in self._unreadable]
            for old in {*readable[_NUM_CHECKPOINTS:], *self._unreadable}:
                old.unlink(missing_ok=True)
            self._unreadable = frozenset()
        except OSError as error:
            if not self._has_failed:
                message = f"the checkpoint of update {state.update} could not be written: {error.strerror or error}"
                warnings.warn(f"{message}; training continues", CheckpointWarning, stacklevel=2)
            self._has_failed = True

    def latest(self) -> Checkpoint | None:
        """The last readable checkpoint, or None if there is no checkpoint; warns of each damaged one.

        Raises ValueError if all are damaged, since training from the start needs the user's consent.
        """
        for path in _checkpoints(self.folder):
            try:
                with reading(f"{path} is skipped", path, self.folder / METRICS):
                    checkpoint = _read(member(self.folder, path.name), self)
            except ValueError as error:
                warnings.warn(str(error), CheckpointWarning, stacklevel=2)
                self._unreadable |= {path}
                continue
            self._last_update, self._last_time = checkpoint.training_state.update, time.monotonic()
            return checkpoint
        if self._unreadable:
            raise ValueError(f"no checkpoint of {self.place.name} can be read: start the training again with --force")
        return None

    @contextlib.contextmanager
    def resume_hint(self) -> Iterator[None]:
        """Adds a hint to errors: how to resume from the last checkpoint, if there is one and it can be used."""
        try:
            yield
        except ValueError as error:
            if not (self.has_started and _checkpoints(self.folder)):
                raise
            kind = LostError if isinstance(error, LostError) else ValueError
            raise kind(f"{error}; continue from the last checkpoint with farflung resume {self.place.name}") from error


@contextlib.contextmanager
def new_checkpoints(
    out: str | Path | Destination,
    config: Explore,
    world: World,
    minutes: float = MINUTES,
    updates: int | None = None,
    *,
    force: bool = False,
    may_continue: bool = False,
) -> Iterator[Checkpointer]:
    """The checkpointer of a training that starts.

    Args:
        force: discard an earlier training or replace an earlier run.
        may_continue: continue an earlier training of the same settings and the same world.
    """
    with claimed(out) as place:
        content = world_to_bytes(world)
        header = run.write_header(config, version("farflung"), stepping=world.stepping, sha256={WORLD: _sha256(content)})
        with write_errors(place.name):
            is_same = place.is_begun and (place.unfinished / CONFIG).read_bytes() == header.encode()
            if force or not (may_continue and is_same):
                run.check_destination(place, force)
                place.discard()
                write_atomically(place.unfinished / WORLD, content)
                write_atomically(place.unfinished / CONFIG, header)
        checkpointer = Checkpointer(place, config, world, minutes, updates)
        try:
            yield checkpointer
        finally:
            if not _checkpoints(place.unfinished):
                place.discard()


@contextlib.contextmanager
def open_checkpoints(
    out: Path, world: World | None = None, minutes: float = MINUTES, updates: int | None = None
) -> Iterator[Checkpointer]:
    """The checkpointer of an unfinished training, to resume it.

    Args:
        world: the world of the run; needed only if it cannot be made from its file, such as one defined by your own program.
    """
    unusable = f"{str(out)[:200]} cannot be resumed"
    with reading(unusable):
        is_unfinished = (out / UNFINISHED).is_dir()
    with claimed(out) if is_unfinished else contextlib.nullcontext() as place:
        if place is None or not place.is_begun:
            found = "is finished" if (out / CONFIG).is_file() else "holds no unfinished training"
            raise ValueError(f"{out} {found}: there is nothing to resume")
        folder = place.unfinished
        with reading(unusable, folder / CONFIG, folder / WORLD):
            header = read_object(member(folder, CONFIG))
            config = run.read_config(header)
            run.check_files(header, folder)
            if world is None:
                world = run.world_from(member(folder, WORLD))
            elif not world.is_hosted and "sha256" in header and _sha256(world_to_bytes(world)) != header["sha256"][WORLD]:
                raise ValueError("its training was started in another world")
            stepping = dict(header["stepping"])
            if stepping.keys() - ({"launcher"} if world.is_hosted else set()) != world.stepping.keys() - {"launcher"}:
                raise ValueError(f"its stepping has {', '.join(stepping)} instead of {', '.join(world.stepping)}")
            world = world.with_environment(**stepping)
        yield Checkpointer(place, config, world, minutes, updates)


def _checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a folder, latest first: by update, since file times depend on the clock."""
    return sorted(folder.glob("checkpoint-*.npz"), reverse=True)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _to_bytes(training_state: TrainingState, records: MetricsTable, moments: Moments, seconds: float, world: World) -> bytes:
    about = {
        "format_version": FORMAT_VERSION,
        "farflung": version("farflung"),
        "update": training_state.update,
        "seconds": seconds,
        "metrics": {"bytes": records.num_bytes, "crc32": records.checksum},
        "num_leaves": len(training_state.leaves),
    }
    arrays: dict[str, Any] = {f"leaf{number}": leaf for number, leaf in enumerate(training_state.leaves)}
    arrays |= {"moments": moments.updates, "shown": moments.shown}
    if (statistics := training_state.host_statistics) is not None:
        about["num_steps"] = statistics.num_steps
        arrays |= {"visits": statistics.visits, "features": statistics.features}
    if world.is_hosted and world.projection is None:  # it numbers states as they are met
        arrays["world"] = np.frombuffer(world_to_bytes(world), np.uint8)
    file = io.BytesIO()
    given = {name: array for name, array in arrays.items() if array is not None}
    np.savez(file, allow_pickle=False, about=np.array(json.dumps(about)), **given)
    return file.getvalue()


def _read(path: Path, checkpointer: Checkpointer) -> Checkpoint:
    content = read_bytes(path)
    if _sha256(content)[:16] != path.stem.rpartition("-")[2]:
        raise ValueError("it is damaged")
    config, arrays = checkpointer.config, read_arrays(content)
    about = parse_object(str(arrays["about"]))
    check_version(about["format_version"], FORMAT_VERSION, about["farflung"])
    update = whole_number("its update", about["update"], config.updates)
    leaves = [arrays[f"leaf{number}"] for number in range(whole_number("num_leaves", about["num_leaves"]))]
    for leaf in leaves:
        if leaf.shape[:1] != (len(config.seeds),) or (leaf.dtype.kind == "f" and not np.isfinite(leaf).all()):
            raise ValueError("it has the wrong number of seeds, or values that are not finite")
    world = run.world_from(arrays["world"].tobytes()) if "world" in arrays else None
    host_statistics = _host_statistics(arrays, about, checkpointer, world) if checkpointer.world.is_hosted else None
    seconds, num_bytes, checksum = about["seconds"], about["metrics"]["bytes"], about["metrics"]["crc32"]
    if not (isinstance(seconds, int | float) and 0 <= seconds < math.inf and isinstance(num_bytes, int) and num_bytes >= 0):
        raise ValueError("its seconds and bytes must be numbers from 0 on")
    records = MetricsTable(config.seeds, checkpointer.folder / METRICS, num_bytes, checksum)
    if records:
        records.table(num_updates=update)  # raises ValueError if it is damaged
    moments = Moments(arrays["moments"], arrays["shown"]) if "moments" in arrays else NO_MOMENTS
    run.check_moments(moments.updates, update)
    if moments.shown.shape[:2] != (len(moments.updates), len(config.seeds) if len(moments.updates) else 0):
        raise ValueError("its moments don't have episodes of each seed")
    for played in moments.shown:
        run.check_episodes(played[0], config, world or checkpointer.world)
    return Checkpoint(TrainingState(update, leaves, host_statistics), records, seconds, world, moments)


def _host_statistics(
    arrays: Mapping[str, np.ndarray], about: Mapping[str, Any], checkpointer: Checkpointer, world: World | None
) -> HostStatistics:
    """The statistics of a host-stepped world; `world` is the one in the checkpoint, which has the states that were met."""
    visits, features, config = arrays["visits"], arrays.get("features"), checkpointer.config
    run.check_visits(visits, config)
    if (projection := checkpointer.world.projection) is None:
        if world is None or not world.is_hosted or world.projection is not None or visits.shape[-1] > world.num_states:
            raise ValueError("it lacks the states that were met")
    elif features is not None:
        expected = (len(config.seeds), config.num_policies, len(projection.features))
        if features.ndim != 6 or features.dtype.kind != "f" or tuple(features.shape[axis] for axis in (0, 2, 5)) != expected:
            raise ValueError(f"its features cannot be an array {features.shape} of {features.dtype}")
    num_steps = whole_number("num_steps", about["num_steps"], most=2**63 - 1)
    return HostStatistics(np.zeros(0, np.int64), visits, num_steps, features)
