"""A training run, and its directory on disk: open formats, written atomically, read back to the same objects."""

import contextlib
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

from farflung.algorithms import Algorithm
from farflung.config import Explore
from farflung.config.reading import member, one_line_errors, read_object
from farflung.policies.acting import TrainedTeam
from farflung.runs import contents
from farflung.runs.contents import CONFIG, METRICS, PATHS, POLICIES, SUMMARY, WORLD
from farflung.runs.files import FORMAT_VERSION, save_figure, sync, to_json, umask, write_errors
from farflung.runs.interrupts import uninterrupted
from farflung.runs.metrics_table import read_table, write_table
from farflung.training.metrics import Metrics
from farflung.training.progress import HostStatistics, last_percent
from farflung.worlds.tabular import TabularMDP
from farflung.worlds.world import World

UNFINISHED = "unfinished"
"""The folder of checkpoints in the directory of a run whose training is not finished."""
_FILES = {CONFIG, METRICS, POLICIES, WORLD, PATHS, SUMMARY, "figure.png", "figure.svg", "film.gif"}


class Paths(NamedTuple):
    """The paths of one trained team in a few episodes of each agent."""

    seed: int | Int[np.ndarray, ""]
    """The seed of the team, whose final entropy is the median."""
    features: Float[np.ndarray, "element agent trajectory times feature"]
    """The features of the world's projection; NaN after the end of an episode."""


@dataclass(frozen=True)
class Run:
    """The result of a training: settings, world, metrics, trained policies and a summary."""

    config: Explore
    world: World
    updates: Int[np.ndarray, " record"]
    """The updates that were recorded."""
    metrics: Metrics
    """NumPy arrays [seed, record]."""
    policies: Any
    """A `TabularSoftmax`, or where states are vectors a `NeuralPolicy`, with leading seed and agent axes."""
    summary: dict[str, Any]
    """The content of `summary.json`."""
    host_statistics: HostStatistics | None = None
    """Statistics of a host-stepped world."""
    paths: Paths | None = None
    """Only where states are vectors."""

    def __repr__(self) -> str:
        entropy = final_values(self.updates, self.metrics)["entropy"].mean()
        about = f"{self.config.agents} agents, {len(self.config.seeds)} seeds, {self.updates[-1]:,} updates"
        return f"<Run in {self.config.world}: {about}, final entropy {entropy:.4f} nats>"

    @property
    def table(self) -> TabularMDP:
        """The world with its transition table; raises ValueError if it has none."""
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
        """Which records to draw in a curve: all but the dense ones of the last 1%, of which only the very last."""
        return (self.updates < last_percent(int(self.updates[-1]))) | (self.updates == self.updates[-1])

    def team(self, seed: int) -> TrainedTeam:
        """The team of one seed, ready to act: `run.team(seed).agent(i).act(key, observation)`."""
        if seed not in self.config.seeds:
            raise ValueError(f"seed {seed} is not one of the run's: {', '.join(map(str, self.config.seeds))}")
        row = self.config.seeds.index(seed)
        return TrainedTeam(jax.tree.map(lambda leaf: leaf[row], self.policies), self.world)


def steps_per_update(config: Explore, world: World) -> int:
    """The environment steps of one seed's team in one update: B m K T."""
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
    """Raises ValueError unless a run can be saved at `path`, so that a training does not start in vain."""
    with write_errors(path):
        if (path / UNFINISHED).is_symlink():
            raise ValueError(f"{path / UNFINISHED} is a symbolic link, which is never followed: choose another directory")
        if path.exists() and not path.is_dir():
            raise ValueError(f"{path} is a file, not a directory")
        names = {child.name for child in path.iterdir()} - {UNFINISHED} if path.exists() else set()
        if (path / UNFINISHED / CONFIG).is_file():  # other files may lie beside it: saving replaces only those of a run
            if not force:
                advice = f"finish it with farflung resume {path}, or discard it with --force"
                raise ValueError(f"{path} holds an unfinished training: {advice}")
        elif names:
            if not _is_run(path):
                raise ValueError(f"{path} is not empty and holds no run: choose another directory")
            if not force:
                raise ValueError(f"{path} already holds a run: choose another directory, or replace it with --force")
            if others := sorted(names - _FILES):
                raise ValueError(f"{path} holds more than a run ({others[0]}), so it is not replaced: choose another directory")
            if path.resolve() == Path.cwd():
                raise ValueError("the current directory cannot be replaced: choose another one")
        parent = next(parent for parent in path.absolute().parents if parent.exists())
        with tempfile.TemporaryDirectory(dir=parent):
            pass


def save_run(run: Run, path: str | Path, *, force: bool = False, figures: Mapping[str, Figure] | None = None) -> None:
    """Writes a run and its figures as a directory, which appears under its name only when it is complete."""
    path = Path(path)
    check_destination(path, force)
    place = path.resolve()
    with write_errors(path):
        place.parent.mkdir(parents=True, exist_ok=True)
        within = place / UNFINISHED if (place / UNFINISHED).is_dir() else place.parent
        staging = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=within))
        staging.chmod(0o777 & ~umask())
        try:
            _write(run, staging, figures or {})
            with uninterrupted():
                _move_into_place(staging, place)
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def discard_run(path: Path) -> None:
    """Removes the directory of a run, whatever state it is in."""
    try:
        shutil.rmtree(path)
    except OSError as error:
        raise ValueError(f"cannot remove {path}: {error.strerror or error}") from None


def load_run(path: str | Path, *, world: World | None = None, algorithm: Algorithm | None = None) -> Run:
    """Reads a run that `save_run` has written.

    Args:
        world: the world of the run; needed only if it cannot be made from its file, such as one defined by your own program.
        algorithm: the algorithm of the run, if it is not one of farflung's: it knows the shape of its team.
    """
    path = Path(path)
    if (path / UNFINISHED).is_dir() and not (path / CONFIG).exists():
        raise ValueError(f"{path} holds an unfinished training: finish it with farflung resume {path}")
    with one_line_errors(f"{path} is not a run that can be read"):
        header = read_object(member(path, CONFIG))
        config = contents.read_config(header)
        contents.check_files(header, path)
        summary = contents.read_summary(read_object(member(path, SUMMARY)))
        updates, _, metrics = read_table(member(path, METRICS), config.seeds, config.updates)
        world = contents.world_from(member(path, WORLD)) if world is None else world
        arrays = contents.read_versioned(member(path, POLICIES))
        policies = contents.team_from_arrays(arrays, config, world, algorithm)
        host_statistics = contents.read_host_statistics(arrays, config, len(updates))
        paths = None
        if (path / PATHS).exists():
            played = contents.read_versioned(member(path, PATHS))
            contents.check_paths(played, config, world)
            paths = Paths(played["seed"], played["features"])
    return Run(config, world, updates, metrics, policies, summary, host_statistics, paths)


def _write(run: Run, directory: Path, figures: Mapping[str, Figure]) -> None:
    summary = {**run.summary, "format_version": FORMAT_VERSION}
    (directory / SUMMARY).write_text(to_json(summary, indent=2) + "\n", encoding="utf-8")
    write_table(directory / METRICS, run.config.seeds, run.updates, run.steps, run.metrics)
    (directory / WORLD).write_bytes(contents.world_to_bytes(run.world))
    # The features of host-stepped episodes are in the file of the paths.
    statistics = {} if run.host_statistics is None else run.host_statistics._replace(features=None)._asdict()
    team = contents.team_to_arrays(run.policies)
    (directory / POLICIES).write_bytes(contents.versioned_archive(team | statistics))
    if run.paths is not None:
        (directory / PATHS).write_bytes(contents.versioned_archive(run.paths._asdict()))
    checksums = {path.name: contents.digest(path) for path in sorted(directory.iterdir())}
    (directory / CONFIG).write_text(
        contents.write_header(run.config, run.summary["farflung"], sha256=checksums), encoding="utf-8"
    )
    for name, figure in figures.items():
        save_figure(figure, directory / name)
    for file in directory.iterdir():
        sync(file)


def _is_run(path: Path) -> bool:
    try:
        header = read_object(path / CONFIG)
    except (OSError, ValueError):
        return False
    return {"format_version", "farflung", "config"} <= header.keys()


def _move_into_place(staging: Path, path: Path) -> None:
    if not path.exists():
        staging.rename(path)
        return
    if not any(path.iterdir()) or (path / UNFINISHED).is_dir():
        # The directory stays, since it may be a process's current one. The config, which marks a run as complete, is removed
        # first and comes last.
        new = sorted((file.name for file in staging.iterdir()), key=CONFIG.__eq__)
        for name in (CONFIG, *_FILES.difference(new)):
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
