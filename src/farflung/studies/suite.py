"""Many trainings in one folder: some compile while others train, and each run is saved when it is finished."""

import contextlib
import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax

from farflung.config import Explore
from farflung.config.reading import member
from farflung.figures.style import team_label
from farflung.numerics.arrays import runs_on_cpu
from farflung.runs import interrupts
from farflung.runs.destinations import claimed
from farflung.runs.run import Run, discard_run, load_run, save_run, steps_per_update
from farflung.studies.trials import Status, Trials, algorithm_of, begin, finish
from farflung.studies.view import page_of
from farflung.worlds.named import make_tabular_world
from farflung.worlds.tabular import TabularMDP

_MOST_COMPILING = 12
_NEEDED = {"is_interrupted", "environment_steps", "seconds", "compile_seconds", "device"}

Group = Mapping[str, Explore]
"""Configs that differ only in numbers and train side by side, by the path of their runs in the folder."""


class SuiteStatus(NamedTuple):
    """The progress of the whole suite, in environment steps."""

    steps: int
    num_steps: int
    what: str


@contextlib.contextmanager
def compiling_threads() -> Iterator[ThreadPoolExecutor]:
    """A pool that compiles a few programs at a time, so that the first is ready soon; an error cancels those that wait."""
    with ThreadPoolExecutor(max_workers=min(_MOST_COMPILING, os.cpu_count() or 1)) as pool:
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)


Elsewhere = Callable[[Sequence[Group], Path], None]
"""Trains groups in other processes, which save the runs in a folder that this process sees too."""


def train_here(out: str, groups: Sequence[Group], on_progress: Callable[[SuiteStatus], None] | None = None) -> dict[str, str]:
    """A job: trains all configs whose runs are not yet in the folder `out`, and saves them there."""
    worlds = {name: make_tabular_world(name) for name in {config.world for group in groups for config in group.values()}}
    with interrupts.stoppable(), compiling_threads() as pool:
        for _ in train_all(groups, worlds, Path(out), pool, on_progress or (lambda _: None), lambda _: None):
            interrupts.check()
    return {}


def train_all(
    groups: Sequence[Group],
    worlds: Mapping[str, TabularMDP],
    out: Path,
    pool: Executor,
    on_progress: Callable[[SuiteStatus], None],
    on_note: Callable[[str], None],
) -> Iterator[tuple[str, Run]]:
    """Trains all configs whose runs are not yet in the folder `out`, and yields the path and run of each config.

    Groups that need the same program train side by side; the first compiled program trains first. On a GPU, where compiling
    takes longer than training, a map with and a map without slip share a program.

    Args:
        pool: compiles the programs.
        on_note: called with a message about each unusable run in the folder; such a run is trained again.
    """
    wanted = {name: config for group in groups for name, config in group.items()}
    loaded = _load_finished(wanted, out, on_note)
    steps = {
        name: config.updates * len(config.seeds) * steps_per_update(config, worlds[config.world])
        for name, config in wanted.items()
    }
    num_steps = sum(steps.values())
    num_successors = _num_successors(worlds, is_shared=not runs_on_cpu())
    together: dict[Hashable, dict[str, Explore]] = {}
    for group in groups:
        if missing := {name: config for name, config in group.items() if name not in loaded}:
            together.setdefault(_program(list(missing.values()), worlds, num_successors), {}).update(missing)

    def compile_trials(configs: Sequence[Explore]) -> Trials:
        return begin(configs, [worlds[config.world] for config in configs], num_successors[configs[0].world])

    compiling = {pool.submit(compile_trials, list(group.values())): group for group in together.values()}

    def training() -> Iterator[tuple[str, Run]]:
        yield from loaded.items()
        done = sum(steps[name] for name in loaded)
        saving: list[Future[None]] = []
        with ThreadPoolExecutor(1) as disk:  # saves finished runs while others train
            while compiling:
                on_progress(SuiteStatus(done, num_steps, _title(list(next(iter(compiling.values())).values()))))
                wait(compiling, return_when=FIRST_COMPLETED)
                interrupts.check()
                trials = next(each for each in compiling if each.done())
                group = compiling.pop(trials)
                configs = list(group.values())
                num_own = sum(steps[name] for name in group)
                report = partial(_report, on_progress, done, num_steps, num_own // configs[0].updates, _title(configs))
                trained = finish(trials.result(), report)
                if trained[0].summary["is_interrupted"]:
                    raise interrupts.Stopped
                for saved in saving:
                    saved.result()
                saving = [disk.submit(_save, run, out / name) for name, run in zip(group, trained, strict=True)]
                done += num_own
                yield from zip(group, trained, strict=True)
            for saved in saving:
                saved.result()

    return training()


def _save(run: Run, folder: Path) -> None:
    save_run(run, folder, force=True, page=page_of(run, folder, has_picture=False))


def _load_finished(wanted: Group, out: Path, note: Callable[[str], None]) -> dict[str, Run]:
    """The finished runs in the folder; unusable runs are deleted."""
    runs = {}
    for name, config in wanted.items():
        folder = member(out, name)
        if not folder.exists():
            continue
        try:
            with claimed(folder) as place:  # finishes or cleans up what a killed process has left
                if not place.others():
                    continue
            run = load_run(folder)
            if run.config == config and run.summary.keys() >= _NEEDED and not run.summary["is_interrupted"]:
                runs[name] = run
                continue
            problem = f"{folder} has different settings"
        except ValueError as error:
            problem = str(error)
        note(f"{problem}; the run is trained again")
        discard_run(folder)
    return runs


def _program(configs: Sequence[Explore], worlds: Mapping[str, TabularMDP], num_successors: Mapping[str, int]) -> Hashable:
    """A key that is equal for groups that can train side by side."""
    config, world = configs[0], worlds[configs[0].world]
    schedule = (config.seeds, config.updates, config.log_every, config.stop_when_flat)
    structure = jax.tree.structure(algorithm_of(configs, world))
    return structure, _shape(world), num_successors[config.world], schedule


def _shape(world: TabularMDP) -> tuple[int, ...]:
    return world.num_states, world.num_actions, world.horizon, len(world.start_states)


def _num_successors(worlds: Mapping[str, TabularMDP], is_shared: bool) -> dict[str, int]:
    """The number of successors that each world is padded to: worlds of equal shape get the same one if they share a program."""
    if not is_shared:
        return {name: world.num_successors for name, world in worlds.items()}
    alike = {name: [other for other in worlds.values() if _shape(other) == _shape(world)] for name, world in worlds.items()}
    return {name: max(world.num_successors for world in group) for name, group in alike.items()}


def _report(
    on_progress: Callable[[SuiteStatus], None], done: int, num_steps: int, per_update: int, what: str, status: Status
) -> None:
    on_progress(SuiteStatus(done + status.update * per_update, num_steps, what))


def _title(configs: Sequence[Explore]) -> str:
    worlds = " and ".join(dict.fromkeys(config.world for config in configs))
    return f"{worlds}, {team_label(configs[0])}"
