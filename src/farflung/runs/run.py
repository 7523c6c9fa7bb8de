"""A training run on disk: open formats, written whole or not at all, and read back to the same objects."""

import contextlib
import csv
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from matplotlib.figure import Figure

from farflung.config import Explore
from farflung.config.reading import member, one_line_errors, read_arrays, read_object
from farflung.policies.acting import TrainedTeam
from farflung.runs.contents import (
    check_files,
    checked_paths,
    counts_of,
    digests_of,
    read_config,
    read_metrics,
    read_summary,
    read_versioned,
    write_header,
)
from farflung.runs.files import FORMAT_VERSION, save_figure, sync, to_json, umask
from farflung.runs.interrupts import uninterrupted
from farflung.runs.teams import team_from_arrays, team_to_arrays
from farflung.runs.worlds import world_from_arrays, world_to_bytes
from farflung.training.metrics import Metrics
from farflung.training.progress import HostStatistics, last_percent
from farflung.worlds.tabular import TabularMDP
from farflung.worlds.world import World

_CONFIG, _METRICS, _POLICIES, _WORLD, _SUMMARY = "config.json", "metrics.csv", "policies.npz", "world.npz", "summary.json"
_PATHS = "paths.npz"
UNFINISHED = "unfinished"
"""The folder in that of a run that is there as long as its training may go on."""
_FILES = {_CONFIG, _METRICS, _POLICIES, _WORLD, _PATHS, _SUMMARY, "figure.png", "figure.svg", "film.gif"}


class Paths(NamedTuple):
    """Where the agents of one trained team went in a few episodes each."""

    seed: int | Int[np.ndarray, ""]
    """Of the team whose final entropy is the median."""
    features: Float[np.ndarray, "element agent trajectory times feature"]
    """The features of the world's projection; not a number after an episode's end."""


@dataclass(frozen=True)
class Run:
    """What a training run leaves behind."""

    config: Explore
    world: World
    updates: Int[np.ndarray, " record"]
    """The updates that were recorded."""
    metrics: Metrics
    """NumPy arrays [seed, record]."""
    policies: Any
    """A `TabularSoftmax`, or where states are vectors a `NeuralPolicy`, with leading seed and agent axes."""
    summary: dict[str, Any]
    """What `summary.json` holds."""
    host_statistics: HostStatistics | None = None
    """For a world that was stepped on the host."""
    paths: Paths | None = None
    """For a world whose states are vectors."""

    @property
    def table(self) -> TabularMDP:
        """The world, where its dynamics are known."""
        if self.world.table is None:
            raise ValueError(f"{self.config.world} has no transition table: its dynamics are not known")
        return self.world.table

    @property
    def steps(self) -> Int[np.ndarray, " record"]:
        """The environment steps of one seed's team up to each record."""
        if self.host_statistics is not None:
            return self.host_statistics.steps
        return self.updates.astype(np.int64) * steps_per_update(self.config, self.world)

    @property
    def is_spaced(self) -> Bool[np.ndarray, " record"]:
        """Which records make up a curve: not every one of the last 1%, which lie side by side."""
        return (self.updates < last_percent(int(self.updates[-1]))) | (self.updates == self.updates[-1])

    def team(self, seed: int) -> TrainedTeam:
        """The team that was trained with one of the seeds, ready to act: `run.team(seed).agent(i).act(key, observation)`."""
        if seed not in self.config.seeds:
            raise ValueError(f"seed {seed} is not one of the run's: {', '.join(map(str, self.config.seeds))}")
        row = self.config.seeds.index(seed)
        return TrainedTeam(jax.tree.map(lambda leaf: leaf[row], self.policies), self.world)


def steps_per_update(config: Explore, world: World) -> int:
    """The environment steps that the team of one seed takes for one update: B m K T."""
    return config.batch_size * config.agents * config.trajectories * world.horizon


def final_values(updates: Int[np.ndarray, " record"], metrics: Metrics) -> dict[str, Float[np.ndarray, " seed"]]:
    """Each metric of each seed, averaged over the last 1% of the updates."""
    is_last = updates >= last_percent(int(updates[-1]))
    return {name: np.asarray(values)[:, is_last].mean(axis=1, dtype=np.float64) for name, values in metrics.columns.items()}


def typical_seed(run: Run) -> int:
    """The seed whose final entropy is the median one."""
    final = final_values(run.updates, run.metrics)["entropy"]
    return run.config.seeds[int(np.argsort(final)[(len(final) - 1) // 2])]


def check_destination(path: Path, force: bool) -> None:
    """Raises ValueError unless a run can be saved at `path`: better before the training than after."""
    try:
        if (path / UNFINISHED).is_symlink():
            raise ValueError(f"{path / UNFINISHED} is a link, and nothing is written where it leads")
        is_unfinished = (path / UNFINISHED / _CONFIG).is_file()
        if path.is_dir() and (is_unfinished or any(child.name != UNFINISHED for child in path.iterdir())):
            if not is_unfinished and not _is_run(path):
                raise ValueError(f"{path} is not empty and holds no run: choose another directory")
            if is_unfinished and not force:
                raise ValueError(
                    f"{path} holds a training that was cut short: go on with farflung explore --resume {path}, "
                    "or discard it with --force"
                )
            if not force:
                raise ValueError(f"{path} already holds a run: choose another directory, or replace it with --force")
            others = [child.name for child in path.iterdir() if child.name not in {*_FILES, UNFINISHED}]
            if others and not is_unfinished:  # or else nothing but its own files is touched
                raise ValueError(f"{path} holds more than a run ({others[0]}), so it is not replaced: choose another directory")
            if not is_unfinished and path.resolve() == Path.cwd():
                raise ValueError("the current directory cannot be replaced: choose another one")
        elif path.exists() and not path.is_dir():
            raise ValueError(f"{path} is a file, not a directory")
        parent = next(parent for parent in path.absolute().parents if parent.exists())
        with tempfile.TemporaryDirectory(dir=parent):
            pass
    except OSError as error:
        raise ValueError(f"cannot write to {path}: {error.strerror or error}") from None


def save_run(run: Run, path: str | Path, *, force: bool = False, figures: Mapping[str, Figure] | None = None) -> None:
    """Writes a run and its figures as a directory, which appears under its name only when it is complete."""
    path = Path(path)
    check_destination(path, force)
    place = path.resolve()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        within = place / UNFINISHED if (place / UNFINISHED).is_dir() else place.parent
        staging = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=within))
        staging.chmod(0o777 & ~umask())
        try:
            _write(run, staging, figures or {})
            with uninterrupted():
                _put_in_place(staging, place)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        raise ValueError(f"cannot write to {path}: {error.strerror or error}") from None


def discard_run(path: Path) -> None:
    """Removes a run of a collection, whatever state it is in."""
    try:
        shutil.rmtree(path)
    except OSError as error:
        raise ValueError(f"cannot remove {path}: {error.strerror or error}") from None


def load_run(path: str | Path, *, world: World | None = None) -> Run:
    """Reads back what `save_run` has written.

    Args:
        world: that of the run, where only the program that made it can make it again.
    """
    path = Path(path)
    if (path / UNFINISHED).is_dir() and not (path / _CONFIG).exists():
        raise ValueError(f"{path} is not complete: its training was cut short, and farflung explore --resume {path} goes on")
    with one_line_errors(f"{path} is not a run that can be read"):
        header = read_object(member(path, _CONFIG))
        config = read_config(header)
        check_files(header, path)
        summary = read_summary(read_object(member(path, _SUMMARY)))
        updates, metrics = read_metrics(member(path, _METRICS), config)
        world = world_from_arrays(read_arrays(member(path, _WORLD))) if world is None else world
        learnt = read_versioned(member(path, _POLICIES))
        team = team_from_arrays(learnt, config, world)
        host_statistics = counts_of(learnt, config, len(updates))
        has_paths = (path / _PATHS).exists()
        paths = Paths(**checked_paths(read_versioned(member(path, _PATHS)), config, world)) if has_paths else None
    return Run(config, world, updates, metrics, team, summary, host_statistics, paths)


def _write(run: Run, directory: Path, figures: Mapping[str, Figure]) -> None:
    summary = {**run.summary, "format_version": FORMAT_VERSION}
    (directory / _SUMMARY).write_text(to_json(summary, indent=2) + "\n", encoding="utf-8")
    _write_metrics(run, directory / _METRICS)
    (directory / _WORLD).write_bytes(world_to_bytes(run.world))
    _write_arrays(directory / _POLICIES, team_to_arrays(run.policies) | _counted(run))
    if run.paths is not None:
        _write_arrays(directory / _PATHS, run.paths._asdict())
    header = write_header(run.config, run.summary["farflung"], sha256=digests_of(directory))
    (directory / _CONFIG).write_text(header, encoding="utf-8")
    for name, figure in figures.items():
        save_figure(figure, directory / name)
    for file in directory.iterdir():
        sync(file)


def _write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    given = {name: np.asarray(value) for name, value in arrays.items() if value is not None}
    np.savez_compressed(path, allow_pickle=False, format_version=np.array(FORMAT_VERSION), **given)


def _counted(run: Run) -> dict[str, Any]:
    """But for the paths, which have a file of their own."""
    return {} if run.host_statistics is None else run.host_statistics._replace(features=None)._asdict()


def _write_metrics(run: Run, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["seed", "update", "steps", *run.metrics.columns])
        for row, seed in enumerate(run.config.seeds):
            columns = [values[row].tolist() for values in run.metrics.columns.values()]
            writer.writerows(
                [seed, update, steps, *values]
                for update, steps, *values in zip(run.updates.tolist(), run.steps.tolist(), *columns, strict=True)
            )


def _is_run(path: Path) -> bool:
    try:
        header = read_object(path / _CONFIG)
    except (OSError, ValueError):
        return False
    return {"format_version", "farflung", "config"} <= header.keys()


def _put_in_place(staging: Path, path: Path) -> None:
    if not path.exists():
        staging.rename(path)
        return
    if not any(path.iterdir()) or (path / UNFINISHED).is_dir():
        # The directory stays, as somebody may be in it; the config, by which a run is known, goes first and comes last.
        new = sorted((file.name for file in staging.iterdir()), key=_CONFIG.__eq__)
        for name in (_CONFIG, *_FILES.difference(new)):
            (path / name).unlink(missing_ok=True)
        for name in new:
            (staging / name).replace(path / name)
        sync(path)
        return
    check_destination(path, force=True)
    old = Path(tempfile.mkdtemp(prefix=f".{path.name}-replaced-", dir=path.parent))
    path.rename(old / path.name)
    try:
        staging.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            (old / path.name).rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)
