"""Datasets of a trained team: any number of episodes, in parts of bounded size that survive an interruption."""

import contextlib
import dataclasses
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from farflung.config import Explore
from farflung.data.archives import load_dataset, save_dataset
from farflung.data.episodes import Dataset, joined
from farflung.data.goals import Place, observation_at, relabel
from farflung.data.playing import play_compiled, play_hosted, random_team
from farflung.data.sources import source_of
from farflung.runs import interrupts
from farflung.runs.checkpoints import CheckpointWarning
from farflung.runs.files import locked, open_collection
from farflung.runs.run import Run, typical_seed


def collect(
    run: Run,
    episodes: int,
    *,
    seed: int | None = None,
    random_seed: int = 0,
    goal: Place = (),
    goal_radius: float | None = None,
    random: bool = False,
) -> Dataset:
    """Plays episodes with the team of a run; observations and actions are those of the world's environment.

    Agent i modulo the number of agents plays episode i. A longer dataset begins with the episodes of a shorter one.

    Args:
        seed: the seed of the trained team that plays; by default the seed with the median final entropy.
        random_seed: seed of the noise in actions and world.
        goal: relabels the episodes with a goal: its row and column, or an observation; if states are vectors, a point of the
            projection's features.
        goal_radius: distance within which a vector has reached the goal; in a point maze by default the size of a step.
        random: play random actions instead of the team's.
    """
    return joined(
        collect_parts(run, episodes, seed=seed, random_seed=random_seed, goal=goal, goal_radius=goal_radius, random=random)
    )


def collect_parts(
    run: Run, episodes: int, *, goal: Place = (), goal_radius: float | None = None, **options: Any
) -> Iterator[Dataset]:
    """The dataset of `collect`, with the same options, in parts of bounded size; while one is used, the next is played."""
    return finish_parts(play_parts(run, episodes, goal, goal_radius, **options), goal, goal_radius)


def finish_parts(parts: Iterator[Dataset], goal: Place = (), goal_radius: float | None = None) -> Iterator[Dataset]:
    """Finishes parts whose states were numbered as they were met: each part gets the states of all parts, and the goal."""
    for part in parts:
        if not _may_grow(part):
            yield part
            continue
        all_parts = [part, *parts]  # only the last part knows the number of states
        for each in all_parts:
            yield _relabelled(dataclasses.replace(each, source=all_parts[-1].source), goal, goal_radius)


def play_parts(
    run: Run,
    episodes: int,
    goal: Place = (),
    goal_radius: float | None = None,
    *,
    seed: int | None = None,
    random_seed: int = 0,
    random: bool = False,
    first_part: int = 0,
    before: Dataset | None = None,
) -> Iterator[Dataset]:
    """Plays the parts of a dataset for `finish_parts`; a part does not depend on whether earlier parts are played.

    Args:
        first_part: the number of the first part to play.
        before: the part before it, needed if states are numbered as they are met.
    """
    seed = typical_seed(run) if seed is None else seed
    world, config = run.world, run.config
    team = random_team(world) if random else run.team(seed).policies
    metadata = {**_about(config, seed, is_random=random), "random_seed": random_seed}
    if goal_radius is not None and not goal:
        raise ValueError("a goal radius needs a goal: give both, or none")
    if world.is_hosted:
        parts = play_hosted(world, team, episodes, random_seed, metadata, first_part, before)
    else:
        parts = play_compiled(world, team, episodes, random_seed, source_of(run, metadata), first_part)
    return (part if _may_grow(part) else _relabelled(part, goal, goal_radius) for part in parts)


def _about(config: Explore, seed: int, *, is_random: bool) -> dict[str, Any]:
    if is_random:
        return {"algorithm": "random actions", "description": f"What random actions saw in {config.world}"}
    kind = "single" if config.single else "independent" if config.independent else "agents"
    players = "one agent" if config.single or config.agents == 1 else f"{config.agents} agents"
    return {
        "algorithm": "PGPSE",
        "description": f"What {players} saw that learnt to explore {config.world} without reward",
        "team": f"{Path(config.world).stem}-{config.agents}-{kind}/seed-{seed}",
        "config": config.as_json(),
    }


def _may_grow(part: Dataset) -> bool:
    """Whether later parts may have more states, because states are numbered as they are met."""
    return "features" in part.source.metadata


def _relabelled(part: Dataset, goal: Place, radius: float | None) -> Dataset:
    if not goal:
        return part
    return relabel(part, goal=goal if part.has_vectors else observation_at(part.source, goal), radius=radius)


@contextlib.contextmanager
def parts_folder(folder: Path, about: Mapping[str, Any]) -> Iterator[Path]:
    """A folder that holds the parts of a dataset until the dataset is complete; parts of another dataset are deleted.

    Args:
        about: everything that the dataset depends on.
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


def resumed_parts(folder: Path, play: Callable[[int, Dataset | None], Iterator[Dataset]]) -> Iterator[Dataset]:
    """The parts that the folder holds, then the parts that are played; each of these is saved there before it is used.

    Args:
        play: plays the parts from a number on, given the part before; a part must be the same each time.
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
