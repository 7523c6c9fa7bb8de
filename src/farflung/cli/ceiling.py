"""`farflung ceiling`."""

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from farflung.cli import terminal
from farflung.cli.terminal import Output, progress_bar
from farflung.config import CeilingOptions, check_world

if TYPE_CHECKING:
    from farflung.bounds.ceilings import Ceiling
    from farflung.worlds.tabular import TabularMDP

_SECONDS_FOR_INFINITE_TRIALS = 8.0


@dataclass(frozen=True)
class CeilingOutput(Output):
    """Where the results go, and what is printed."""

    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: nothing is written)")] = None
    """Directory for the numbers and a picture of the best team that was found."""
    force: bool = False
    """Replace other results in that directory."""


def ceiling(config: CeilingOptions, output: CeilingOutput) -> Callable[[], int]:
    """Bound the entropy that any team can reach in a world, with a certificate."""

    def run() -> int:
        check_world(config.world)
        from farflung.bounds.ceilings import ceiling as bound_team
        from farflung.bounds.ceilings import infinite_trials_optimum
        from farflung.runs.files import open_results, to_json
        from farflung.worlds.named import make_tabular_world

        world = make_tabular_world(config.world, horizon=config.horizon, slip=config.slip)
        if output.out is not None:  # better before the work than after
            with open_results(output.out, "ceiling", dataclasses.asdict(config), force=output.force):
                pass
        began = time.perf_counter()
        with progress_bar(output.quiet) as show:

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
        if output.out is not None:
            _save(output.out, output.force, config, summary, world, found)
        if output.json:
            print(to_json(summary))
        elif not output.quiet:
            _print(summary, output.out)
        return 0

    return run


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


def _print(summary: dict[str, Any], out: Path | None) -> None:
    from rich.table import Table

    walks = summary["agents"] * summary["trajectories"]
    table = Table(
        title=f"{summary['world']}: what no policies exceed, horizon {summary['horizon']}, {summary['states']} states"
    )
    for name in ("", "nats", "/ log(states)", "", "time"):
        table.add_column(name, justify="left" if not name else "right")
    kind = "exact, by integer program" if summary["exact"] else f"upper bound, by {summary['method']}"
    rows = ((f"entropy of {walks} trajectories", summary, kind), ("max H(d), infinitely many", summary["infinite_trials"], ""))
    for name, found, what in rows:
        what = what or f"within {found['bound'] - found['value']:.1e} nats"
        table.add_row(name, f"{found['bound']:.4f}", f"{found['normalized_bound']:.4f}", what, f"{found['seconds']:.1f} s")
    console = terminal.console()
    console.print(table)
    if out is None:
        console.print("--out DIR saves the numbers and a picture of the best team that was found")
    else:
        console.print(f"saved in {out}: see {out / 'ceiling.png'}", soft_wrap=True)
