"""The whole paper: all trainings, datasets and offline RL."""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import jax.random as jr

from farflung.ceilings import Ceiling, ceiling
from farflung.config import SCHEDULES, Explore, Reproduce
from farflung.environments import TabularMDP, make_world
from farflung.experiments.claims import KINDS, Cell, Findings
from farflung.experiments.collecting import Collected, collect, untrained_success
from farflung.experiments.trials import Status, Trials, begin, finish
from farflung.files import open_collection
from farflung.offline import goals_of
from farflung.runs import Run, discard_run, final_values, load_run, save_run, steps_per_update
from farflung.tables import runs_on_cpu

_MOST_COMPILING = 12
_CEILING_SECONDS = 20


class SuiteStatus(NamedTuple):
    """How far the whole suite is, in environment steps."""

    steps: int
    num_steps: int
    what: str


@dataclass(frozen=True)
class Reproduction:
    """All that was found."""

    config: Reproduce
    runs: Mapping[str, Mapping[Cell, Run]]
    """The trained teams and single agents, by schedule."""
    findings: Mapping[str, Findings]
    """By schedule."""


def reproduce(
    config: Reproduce,
    out: str | Path,
    *,
    force: bool = False,
    on_progress: Callable[[SuiteStatus], None] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> Reproduction:
    """Trains what is not yet in the folder `out`, keeps each part there when it is finished, and measures everything.

    Args:
        force: discard what is in the folder if it comes from another version or other settings.
        on_note: told of parts in the folder that are damaged and therefore trained again.
    """
    out, tell, note = Path(out), on_progress or (lambda _: None), on_note or (lambda _: None)
    contents = {"farflung": version("farflung"), "updates": config.updates, "seeds": list(config.seed_values)}
    open_collection(out, contents, force=force)
    worlds = {name: make_world(name) for name in config.worlds}
    wanted = {
        (schedule, cell): _explore_config(config, schedule, cell)
        for cell in (Cell(world, agents, kind) for world in worlds for agents in config.agents for kind in KINDS[:2])
        for schedule in config.schedules
    }
    steps = {key: _num_steps(explore, worlds[explore.world]) for key, explore in wanted.items()}
    runs: dict[str, dict[Cell, Run]] = {schedule: {} for schedule in config.schedules}
    missing: dict[Cell, list[str]] = {}
    for (schedule, cell), explore in wanted.items():
        if (run := _kept(_folder(out, schedule, cell), explore, note)) is not None:
            runs[schedule][cell] = run
        else:
            missing.setdefault(cell, []).append(schedule)
    done = sum(steps[schedule, cell] for schedule, own in runs.items() for cell in own)
    num_steps = sum(steps.values())

    num_successors = _common_num_successors(worlds)

    def begun(cell: Cell) -> Trials:
        return begin([wanted[schedule, cell] for schedule in missing[cell]], worlds[cell.world], num_successors[cell.world])

    # A few compilations at a time, so that the first are ready soon. While a cell trains, with both schedules side by side, the
    # next are compiled, and so is what only needs the random policy. A cell whose program another has compiled begins at once.
    programs = {
        (_shape(worlds[cell.world]), num_successors[cell.world], cell.agents, cell.kind, len(schedules)): cell
        for cell, schedules in reversed(missing.items())
    }
    with ThreadPoolExecutor(max_workers=min(_MOST_COMPILING, os.cpu_count() or 1)) as pool:
        compiling = {cell: pool.submit(begun, cell) for cell in missing if cell in programs.values()}
        random = [pool.submit(collect, config, {}, name, "random", world) for name, world in worlds.items()]
        ceilings = {
            (name, agents): pool.submit(ceiling, world, agents, time_limit=_CEILING_SECONDS)
            for name, world in worlds.items()
            for agents in config.agents
        }
        chance = {name: pool.submit(untrained_success, jr.key(0), world, goals_of(world)) for name, world in worlds.items()}
        try:
            collecting: dict[str, list[Future[dict[Cell, Collected]]]] = {schedule: [] for schedule in config.schedules}
            for name, world in worlds.items():
                for cell, schedules in missing.items():
                    if cell.world != name:
                        continue
                    per_update = sum(steps[schedule, cell] for schedule in schedules) // config.updates
                    tell(SuiteStatus(done, num_steps, _name(cell)))
                    trials = compiling[cell].result() if cell in compiling else begun(cell)
                    trained = finish(trials, partial(_tell, tell, done, num_steps, per_update, _name(cell)))
                    if trained[0].summary["is_interrupted"]:
                        raise KeyboardInterrupt
                    for schedule, run in zip(schedules, trained, strict=True):
                        save_run(run, _folder(out, schedule, cell), force=True)
                        runs[schedule][cell] = run
                        done += steps[schedule, cell]
                for schedule in config.schedules:
                    own = {cell: run for cell, run in runs[schedule].items() if cell.world == name}
                    collecting[schedule] += [pool.submit(collect, config, own, name, kind, world) for kind in KINDS[:2]]
            tell(SuiteStatus(num_steps, num_steps, "datasets and offline RL"))
            bounds = {key: bound.result() for key, bound in ceilings.items()}
            by_chance = {name: float(rate.result()) for name, rate in chance.items()}
            findings = {}
            for schedule, parts in collecting.items():
                data = {cell: value for part in (*parts, *random) for cell, value in part.result().items()}
                findings[schedule] = _findings(runs[schedule], data, bounds, by_chance)
        finally:
            pool.shutdown(cancel_futures=True)
    ordered = {name: {cell: runs[name][cell] for schedule, cell in wanted if schedule == name} for name in config.schedules}
    return Reproduction(config, ordered, findings)


def _findings(
    runs: Mapping[Cell, Run],
    data: Mapping[Cell, Collected],
    ceilings: Mapping[tuple[str, int], Ceiling],
    untrained_success: Mapping[str, float],
) -> Findings:
    return Findings(
        final={cell: final_values(run.updates, run.metrics) for cell, run in runs.items()},
        occupancy={cell: collected.occupancy for cell, collected in data.items()},
        dataset_entropy={cell: collected.entropy for cell, collected in data.items()},
        success={cell: collected.success for cell, collected in data.items()},
        ceilings=ceilings,
        samples_needed={cell: collected.samples_needed for cell, collected in data.items()},
        samples_needed_alone={cell: collected.samples_needed_alone for cell, collected in data.items()},
        untrained_success=untrained_success,
    )


def _shape(world: TabularMDP) -> tuple[int, int, int]:
    return world.num_states, world.num_actions, world.horizon


def _common_num_successors(worlds: Mapping[str, TabularMDP]) -> dict[str, int]:
    """On a GPU, where compiling takes far longer than training, as many for a map with and without slip."""
    if runs_on_cpu():
        return {name: world.num_successors for name, world in worlds.items()}
    alike = {name: [other for other in worlds.values() if _shape(other) == _shape(world)] for name, world in worlds.items()}
    return {name: max(world.num_successors for world in group) for name, group in alike.items()}


def _explore_config(config: Reproduce, schedule: str, cell: Cell) -> Explore:
    learning_rate, decay = SCHEDULES[schedule]
    return Explore(
        cell.world,
        agents=cell.agents,
        single=cell.kind == "single",
        preset="paper",
        updates=config.updates,
        learning_rate=learning_rate,
        decay=decay,
        seeds=config.seed_values,
    )


def _kept(folder: Path, wanted: Explore, note: Callable[[str], None]) -> Run | None:
    if not folder.exists():
        return None
    try:
        run = load_run(folder)
        if run.config == wanted and not run.summary["is_interrupted"]:
            return run
        problem = f"{folder} has other settings than asked for"
    except ValueError as error:
        problem = str(error)
    note(f"{problem}; it is trained again")
    discard_run(folder)
    return None


def _num_steps(config: Explore, world: TabularMDP) -> int:
    return config.updates * len(config.seeds) * steps_per_update(config, world)


def _tell(tell: Callable[[SuiteStatus], None], done: int, num_steps: int, per_update: int, what: str, status: Status) -> None:
    tell(SuiteStatus(done + status.update * per_update, num_steps, what))


def _folder(out: Path, schedule: str, cell: Cell) -> Path:
    return out / "runs" / schedule / f"{cell.world}-{cell.agents}-{cell.kind}"


def _name(cell: Cell) -> str:
    return f"{cell.world}, {cell.agents} agents" if cell.kind == "team" else f"{cell.world}, 1 agent x {cell.agents}"
