"""`farflung ceiling`."""

import dataclasses
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from farflung.cli.terminal import Printing, out_option, progress_bar, switch, table
from farflung.config import CeilingOptions, check_world

if TYPE_CHECKING:
    from rich.console import Console

    from farflung.bounds.ceilings import Ceiling
    from farflung.worlds.tabular import TabularMDP

_SECONDS_FOR_INFINITE_TRIALS = 8.0


def ceiling(
    config: CeilingOptions,
    printing: Printing,
    out: Annotated[
        Path | None, out_option("Directory for the numbers and a picture of the best team found.", "nothing is written")
    ] = None,
    force: Annotated[bool, switch("Replace other results that are in the output directory.")] = False,
) -> int:
    """Compute an upper bound on the entropy that any team can reach in a world, with a certificate."""
    check_world(config.world)
    from farflung.bounds.ceilings import ceiling as bound_team
    from farflung.bounds.ceilings import infinite_trials_optimum
    from farflung.runs.files import open_results
    from farflung.worlds.named import make_tabular_world

    world = make_tabular_world(config.world, horizon=config.horizon, slip=config.slip)
    if out is not None:  # fail before the work, not after it
        with open_results(out, "ceiling", dataclasses.asdict(config), force=force):
            pass
    began = time.perf_counter()
    with progress_bar(printing.quiet) as show:

        def on_progress(value: float, bound: float) -> None:
            spent = min(int(time.perf_counter() - began), int(config.time_limit))
            show(config.world, spent, int(config.time_limit), f"at least {value:.4f}, at most {bound:.4f} nats")

        found = bound_team(
            world,
            config.agents,
            trajectories=config.trajectories,
            method=config.method,
            time_limit=config.time_limit,
            tolerance=config.tolerance,
            on_progress=on_progress,
        )
        left = min(_SECONDS_FOR_INFINITE_TRIALS, max(1.0, config.time_limit - (time.perf_counter() - began)))
        unlimited = infinite_trials_optimum(world, time_limit=left, on_progress=on_progress)
        show(config.world, 1, 1, f"at most {found.bound:.4f} nats")
    summary: dict[str, Any] = {
        "farflung": version("farflung"),
        "world": config.world,
        "states": world.num_states,
        "horizon": world.horizon,
        "agents": config.agents,
        "trajectories": config.trajectories,
        **found.as_json(),
        "infinite_trials": unlimited.as_json(),
    }
    if out is not None:
        _save(out, force, config, summary, world, found)
    printing.report(summary, partial(_print, summary, out))
    return 0


def _save(
    out: Path, force: bool, config: CeilingOptions, summary: dict[str, Any], world: "TabularMDP", found: "Ceiling"
) -> None:
    from farflung.figures.ceilings import best_team
    from farflung.runs.files import open_results, to_json

    with open_results(out, "ceiling", dataclasses.asdict(config), force=force) as results:
        results.write("ceiling.json", to_json(summary, indent=2))
        labels = world.labels.tolist()
        rows = [("state", "visits"), *zip(labels, found.visits.tolist(), strict=True)]
        results.write_table("visits.csv", rows)
        if found.trajectories is not None:
            walks = [[labels[state] for state in walk] for walk in found.trajectories.tolist()]
            steps = [(agent, step, state) for agent, walk in enumerate(walks) for step, state in enumerate(walk)]
            results.write_table("walks.csv", [("agent", "time", "state"), *steps])
        results.draw("ceiling", best_team(world, found))


def _print(summary: dict[str, Any], out: Path | None, console: "Console") -> None:
    walks = summary["agents"] * summary["trajectories"]
    title = f"{summary['world']}: what no policies exceed, horizon {summary['horizon']}, {summary['states']} states"
    rows = table(title, "", "nats", "/ log(states)", "", "time", left=(0, 3))
    infinite = summary["infinite_trials"]
    kind = "exact, by integer program" if summary["exact"] else f"upper bound, by {summary['method']}"
    within = f"within {infinite['bound'] - infinite['value']:.1e} nats"
    for name, found, what in (
        (f"entropy of {walks} trajectories", summary, kind),
        ("max H(d), infinitely many", infinite, within),
    ):
        rows.add_row(name, f"{found['bound']:.4f}", f"{found['normalized_bound']:.4f}", what, f"{found['seconds']:.1f} s")
    console.print(rows)
    if out is None:
        console.print("--out DIR saves the numbers and a picture of the best team that was found")
    else:
        console.print(f"saved in {out}: see {out / 'ceiling.png'}", soft_wrap=True)
