"""Many trainings in one folder: some are compiled while others train, and each is kept when it is finished."""

import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax

from farflung.config import Explore
from farflung.environments import TabularMDP
from farflung.experiments.trials import Status, Trials, algorithm_of, begin, finish
from farflung.runs import Run, discard_run, load_run, save_run, steps_per_update
from farflung.tables import runs_on_cpu

_MOST_COMPILING = 12

Group = Mapping[str, Explore]
"""Configs that differ in numbers alone and train side by side, each with the path of its run in the folder."""


class SuiteStatus(NamedTuple):
    """How far the whole suite is, in environment steps."""

    steps: int
    num_steps: int
    what: str


def compiling_threads() -> ThreadPoolExecutor:
    """A few compilations at a time, so that the first are ready soon."""
    return ThreadPoolExecutor(max_workers=min(_MOST_COMPILING, os.cpu_count() or 1))


def train_all(
    groups: Sequence[Group],
    worlds: Mapping[str, TabularMDP],
    out: Path,
    pool: Executor,
    on_progress: Callable[[SuiteStatus], None],
    on_note: Callable[[str], None],
) -> Iterator[dict[str, Run]]:
    """Has what is not yet in the folder `out` compiled by the pool; then trains it and yields the runs, group by group.

    A group whose program another one has compiled begins at once.

    Args:
        on_note: told of parts in the folder that are damaged and therefore trained again.
    """
    kept = [_kept(group, out, on_note) for group in groups]
    missing = [{name: group[name] for name in group if name not in runs} for group, runs in zip(groups, kept, strict=True)]
    steps = {name: _num_steps(config, worlds[config.world]) for group in groups for name, config in group.items()}
    done, num_steps = sum(steps[name] for runs in kept for name in runs), sum(steps.values())
    num_successors = _common_num_successors(worlds)

    def begun(group: Group) -> Trials:
        world = next(iter(group.values())).world
        return begin(list(group.values()), worlds[world], num_successors[world])

    compiling: dict[int, Future[Trials]] = {}
    known = set()
    for number, group in enumerate(missing):
        if group and (program := _program(list(group.values()), worlds, num_successors)) not in known:
            known.add(program)
            compiling[number] = pool.submit(begun, group)

    def training() -> Iterator[dict[str, Run]]:
        nonlocal done
        for number, (group, runs) in enumerate(zip(missing, kept, strict=True)):
            if group:
                config = next(iter(group.values()))
                tell = partial(
                    _tell, on_progress, done, num_steps, sum(steps[name] for name in group) // config.updates, _name(config)
                )
                on_progress(SuiteStatus(done, num_steps, _name(config)))
                trained = finish(compiling.pop(number).result() if number in compiling else begun(group), tell)
                if trained[0].summary["is_interrupted"]:
                    raise KeyboardInterrupt
                for name, run in zip(group, trained, strict=True):
                    save_run(run, out / name, force=True)
                    runs[name] = run
                    done += steps[name]
            yield {name: runs[name] for name in groups[number]}

    return training()


def _kept(group: Group, out: Path, note: Callable[[str], None]) -> dict[str, Run]:
    runs = {}
    for name, wanted in group.items():
        if not (out / name).exists():
            continue
        try:
            run = load_run(out / name)
            if run.config == wanted and not run.summary["is_interrupted"]:
                runs[name] = run
                continue
            problem = f"{out / name} has other settings than asked for"
        except ValueError as error:
            problem = str(error)
        note(f"{problem}; it is trained again")
        discard_run(out / name)
    return runs


def _program(configs: Sequence[Explore], worlds: Mapping[str, TabularMDP], num_successors: Mapping[str, int]) -> Hashable:
    """What decides which compiled code a group needs."""
    world = worlds[configs[0].world]
    leaves, structure = jax.tree.flatten(algorithm_of(configs, world))
    return structure, tuple(leaf.shape for leaf in leaves), _shape(world), num_successors[configs[0].world]


def _shape(world: TabularMDP) -> tuple[int, ...]:
    return world.num_states, world.num_actions, world.horizon, len(world.start_states)


def _common_num_successors(worlds: Mapping[str, TabularMDP]) -> dict[str, int]:
    """On a GPU, where compiling takes far longer than training, as many for a map with and without slip."""
    if runs_on_cpu():
        return {name: world.num_successors for name, world in worlds.items()}
    alike = {name: [other for other in worlds.values() if _shape(other) == _shape(world)] for name, world in worlds.items()}
    return {name: max(world.num_successors for world in group) for name, group in alike.items()}


def _num_steps(config: Explore, world: TabularMDP) -> int:
    return config.updates * len(config.seeds) * steps_per_update(config, world)


def _tell(
    on_progress: Callable[[SuiteStatus], None], done: int, num_steps: int, per_update: int, what: str, status: Status
) -> None:
    on_progress(SuiteStatus(done + status.update * per_update, num_steps, what))


def _name(config: Explore) -> str:
    return f"{config.world}, 1 agent x {config.agents}" if config.single else f"{config.world}, {config.agents} agents"
