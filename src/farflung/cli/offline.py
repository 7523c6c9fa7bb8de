"""`farflung offline`."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from farflung.cli import terminal
from farflung.cli.terminal import Output, progress_bar
from farflung.config import OfflineLearning

if TYPE_CHECKING:
    from farflung.data.offline import Reached

_MOST_ROWS = 60
_ROWS_AT_ENDS = 15


@dataclass(frozen=True)
class OfflineOutput(Output):
    """Where the results go, and what is printed."""

    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: offline- and its name)")] = None
    """Directory for the numbers and the heat map."""
    force: bool = False
    """Discard results with other settings that are in that directory."""


def offline(config: OfflineLearning, output: OfflineOutput) -> Callable[[], int]:
    """Learn from a dataset to reach every state, and see which ones are reached."""

    def run() -> int:
        terminal.use_all_cores()
        from farflung.data.offline import learn_offline  # JAX with it
        from farflung.figures.reached import reached
        from farflung.runs.files import open_results, to_json

        settings = dataclasses.asdict(config)
        name = Path(config.dataset).name.removesuffix(".npz").removesuffix(".parquet")
        out = output.out or Path(f"offline-{name}")
        with open_results(out, "offline", settings, force=output.force) as results:
            with progress_bar(output.quiet) as show:
                found = learn_offline(**settings, on_progress=lambda done, total: show(name, done, total, "goals"))
            summary = _summary(found)
            results.write("summary.json", to_json(summary, indent=2))
            results.write_table(
                "goals.csv", [(*_place_names(found), *_COLUMNS), *((*where, *rates) for where, *rates in _rows(found))]
            )
            results.draw("goals", reached(found, name))
        if not output.quiet:
            _print(found, summary, out, is_on_stderr=output.json)
        if output.json:
            print(to_json(summary))
        return 0

    return run


_COLUMNS = ("success", "interval", "random_actions")


def _place_names(found: "Reached") -> tuple[str, ...]:
    return ("observation", "row", "column") if found.radius is None else ("x", "y")


def _places(found: "Reached") -> list[tuple[Any, ...]]:
    """What is known of where each goal is, under these names."""
    import numpy as np

    if found.world.table is None:
        return [(round(x, 4), round(y, 4)) for x, y in found.goals.tolist()]
    labels = np.asarray(found.world.labels)[found.goals].tolist()
    positions = [(None, None)] * len(labels)
    if found.world.positions is not None:
        positions = np.asarray(found.world.positions)[found.goals].tolist()
    return [(label, *position) for label, position in zip(labels, positions, strict=True)]


def _rows(found: "Reached") -> list[tuple[Any, ...]]:
    """For each goal, the easiest first: where it is, the mean success rate and the half-width of its 95% interval."""
    from farflung.runs.statistics import mean_and_interval

    mean, half_width = mean_and_interval(found.success)
    random, _ = mean_and_interval(found.random_success)
    intervals = [None] * len(mean) if half_width is None else half_width.tolist()
    rows = zip(_places(found), mean.tolist(), intervals, random.tolist(), strict=True)
    return sorted(rows, key=lambda row: -row[1])


def _summary(found: "Reached") -> dict[str, Any]:
    from farflung.runs.statistics import mean_and_interval

    summary = {
        "farflung": version("farflung"),
        **dataclasses.asdict(found.config),
        "transitions": found.num_transitions,
        "goals": len(found.goals),
        "goal_radius": found.radius,
        "untrained_success": found.untrained,
    }
    for name, success in (("success", found.success), ("random_actions_success", found.random_success)):
        mean, half_width = mean_and_interval(success.mean(axis=1))
        summary[name] = {"mean": float(mean), "interval": None if half_width is None else float(half_width)}
    return summary


def _print(found: "Reached", summary: dict[str, Any], out: Path, is_on_stderr: bool) -> None:
    from rich.table import Table

    config, is_maze = found.config, found.radius is not None
    how = "implicit Q-learning" if is_maze else "Q-learning"
    table = Table(title=f"{config.dataset}: how often {how} from {found.num_transitions:,} transitions reaches each goal")
    rows = _rows(found)
    is_map = rows[0][0][-1] is not None
    goal = "goal (x, y)" if is_maze else "goal (row, column)" if is_map else "goal"
    for name in (goal, "success", "95% CI", "random actions"):
        table.add_column(name, justify="right")
    shown = rows if len(rows) <= _MOST_ROWS else [*rows[:_ROWS_AT_ENDS], None, *rows[-_ROWS_AT_ENDS:]]
    for row in shown:
        if row is None:
            table.add_row("...", "", "", "")
            continue
        where, mean, interval, random = row
        label = f"({where[-2]:g}, {where[-1]:g})" if is_map else str(where[0])
        table.add_row(label, f"{mean:.3f}", _interval(interval), f"{random:.3f}")
    table.add_section()
    whole = summary["success"]
    table.add_row(
        f"all {len(rows)} goals",
        f"{whole['mean']:.3f}",
        _interval(whole["interval"]),
        f"{summary['random_actions_success']['mean']:.3f}",
    )
    console = terminal.console(stderr=is_on_stderr)
    console.print(table)
    console.print(
        f"seeds: {len(config.seeds)}; random actions: a dataset of as many episodes; without data: {found.untrained:.3f}"
    )
    console.print(f"saved in {out}: see {out / 'goals.png'}", soft_wrap=True)


def _interval(half_width: float | None) -> str:
    return "" if half_width is None else f"± {half_width:.3f}"
