"""The paper's experiments: all trainings, datasets and offline RL."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax.random as jr

from farflung.bounds.ceilings import ceiling
from farflung.config import SCHEDULES, Explore, Reproduce
from farflung.data.q_learning import goals_of, untrained_success
from farflung.runs import interrupts
from farflung.runs.files import locked, open_collection
from farflung.runs.run import Run, final_values
from farflung.studies.reproduce.claims import KINDS, Cell, Findings
from farflung.studies.reproduce.datasets import Collected, collect
from farflung.studies.suite import SuiteStatus, compiling_threads, train_all
from farflung.worlds.named import make_tabular_world

_CEILING_SECONDS = 20


@dataclass(frozen=True)
class Reproduction:
    """The results of `farflung reproduce`."""

    config: Reproduce
    runs: Mapping[str, Mapping[Cell, Run]]
    """The trained teams and single agents, by schedule."""
    findings: Mapping[str, Findings]
    """The measurements, by schedule."""


def reproduce(
    config: Reproduce,
    out: str | Path,
    *,
    force: bool = False,
    on_progress: Callable[[SuiteStatus], None] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> Reproduction:
    """Trains all runs that are not yet in the folder `out`, saves each run there, and measures all of them.

    Args:
        force: delete the results in the folder if another version or other settings wrote them.
        on_note: called with a message about each unusable run in the folder; such a run is trained again.
    """
    out, report, note = Path(out), on_progress or (lambda _: None), on_note or (lambda _: None)
    contents = {"farflung": version("farflung"), "updates": config.updates, "seeds": list(config.seed_values)}
    open_collection(out, contents, force=force)
    with locked(out):
        return _reproduce(config, out, report, note)


def _reproduce(
    config: Reproduce, out: Path, report: Callable[[SuiteStatus], None], note: Callable[[str], None]
) -> Reproduction:
    worlds = {name: make_tabular_world(name) for name in config.worlds}
    cells = [Cell(world, agents, kind) for world in worlds for kind in KINDS[:2] for agents in config.agents]
    groups = [
        {_folder(schedule, cell): _explore_config(config, schedule, cell) for schedule in config.schedules} for cell in cells
    ]
    places = {_folder(schedule, cell): (schedule, cell) for cell in cells for schedule in config.schedules}
    # The pool measures the random policy while teams train, and then the trained policies.
    with compiling_threads() as pool:
        try:
            training = train_all(groups, worlds, out, pool, report, note, is_brief=config.quick)
            random = [pool.submit(collect, config, {}, name, "random", world) for name, world in worlds.items()]
            ceilings = {
                (name, agents): pool.submit(ceiling, world, agents, time_limit=_CEILING_SECONDS)
                for name, world in worlds.items()
                for agents in config.agents
            }
            chance = {name: pool.submit(untrained_success, jr.key(0), world, goals_of(world)) for name, world in worlds.items()}
            runs: dict[str, dict[Cell, Run]] = {schedule: {} for schedule in config.schedules}
            collecting: dict[tuple[str, str, str], Future[dict[Cell, Collected]]] = {}
            for folder, run in training:
                schedule, cell = places[folder]
                name, _, kind = cell
                runs[schedule][cell] = run
                own = {each: run for each, run in runs[schedule].items() if (each.world, each.kind) == (name, kind)}
                if len(own) == len(config.agents):  # all team sizes are trained
                    collecting[schedule, name, kind] = pool.submit(collect, config, own, name, kind, worlds[name])
            report(SuiteStatus(1, 1, "datasets and offline RL"))
            bounds = {key: bound.result() for key, bound in ceilings.items()}
            by_chance = {name: float(rate.result()) for name, rate in chance.items()}
            findings = {}
            for schedule in config.schedules:
                interrupts.check()
                runs[schedule] = {cell: runs[schedule][cell] for cell in cells}  # independent of the order of training
                parts = [collecting[schedule, name, kind] for name in worlds for kind in KINDS[:2]]
                data = {cell: value for part in (*parts, *random) for cell, value in part.result().items()}
                final = {cell: final_values(run.updates, run.metrics) for cell, run in runs[schedule].items()}
                measured: Any = {name: {cell: getattr(own, name) for cell, own in data.items()} for name in Collected._fields}
                findings[schedule] = Findings(final=final, ceilings=bounds, untrained_success=by_chance, **measured)
        finally:
            pool.shutdown(cancel_futures=True)
    return Reproduction(config, runs, findings)


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


def _folder(schedule: str, cell: Cell) -> str:
    return f"runs/{schedule}/{cell.world}-{cell.agents}-{cell.kind}"
