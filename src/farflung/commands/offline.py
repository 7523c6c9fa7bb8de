"""`farflung offline`."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from farflung.commands import terminal
from farflung.commands.terminal import Output, progress_bar
from farflung.config import OfflineLearning

if TYPE_CHECKING:
    from farflung.experiments.offline import Reached

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
    """Learn from a dataset to reach every state, by offline Q-learning, and see which ones are reached."""

    def run() -> int:
        terminal.use_all_cores()
        from farflung.experiments.offline import learn_offline  # JAX with it
        from farflung.figures.reached import reached
        from farflung.files import open_results, to_json

        settings = dataclasses.asdict(config)
        name = Path(config.dataset).name.removesuffix(".npz").removesuffix(".parquet")
        out = output.out or Path(f"offline-{name}")
        with open_results(out, "offline", settings, force=output.force) as results:
            with progress_bar(output.quiet) as show:
                found = learn_offline(**settings, on_progress=lambda done, total: show(name, done, total, "goals"))
            summary = _summary(config, found)
            results.write("summary.json", to_json(summary, indent=2))
            results.write_table("goals.csv", [_COLUMNS, *_rows(found)])
            results.draw("goals", reached(found, name))
        if not output.quiet:
            _print(config, found, summary, out, is_on_stderr=output.json)
        if output.json:
            print(to_json(summary))
        return 0

    return run


_COLUMNS = ("observation", "row", "column", "success", "interval", "random_actions")


def _rows(found: "Reached") -> list[tuple[Any, ...]]:
    """For each goal, the easiest first: the mean success rate and the half-width of its 95% interval."""
    import numpy as np

    from farflung.statistics import mean_and_interval

    mean, half_width = mean_and_interval(found.success)
    random, _ = mean_and_interval(found.random_success)
    intervals = [None] * len(mean) if half_width is None else half_width.tolist()
    positions = [(None, None)] * len(mean)
    if found.world.positions is not None:
        positions = np.asarray(found.world.positions)[found.goals].tolist()
    labels = np.asarray(found.world.labels)[found.goals].tolist()
    columns = zip(labels, positions, mean.tolist(), intervals, random.tolist(), strict=True)
    rows = [(label, *position, *rates) for label, position, *rates in columns]
    return sorted(rows, key=lambda row: -row[3])


def _summary(config: OfflineLearning, found: "Reached") -> dict[str, Any]:
    from farflung.statistics import mean_and_interval

    summary = {
        "farflung": version("farflung"),
        **dataclasses.asdict(config),
        "transitions": found.num_transitions,
        "goals": len(found.goals),
        "untrained_success": found.untrained,
    }
    for name, success in (("success", found.success), ("random_actions_success", found.random_success)):
        mean, half_width = mean_and_interval(success.mean(axis=1))
        summary[name] = {"mean": float(mean), "interval": None if half_width is None else float(half_width)}
    return summary


def _print(config: OfflineLearning, found: "Reached", summary: dict[str, Any], out: Path, is_on_stderr: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{config.dataset}: how often Q-learning from {found.num_transitions:,} transitions reaches each goal")
    is_map = found.world.positions is not None
    for name in ("goal (row, column)" if is_map else "goal", "success", "95% CI", "random actions"):
        table.add_column(name, justify="right")
    rows = _rows(found)
    shown = rows if len(rows) <= _MOST_ROWS else [*rows[:_ROWS_AT_ENDS], None, *rows[-_ROWS_AT_ENDS:]]
    for row in shown:
        if row is None:
            table.add_row("...", "", "", "")
            continue
        label, y, x, mean, interval, random = row
        table.add_row(f"({y}, {x})" if is_map else str(label), f"{mean:.3f}", _interval(interval), f"{random:.3f}")
    table.add_section()
    whole = summary["success"]
    table.add_row(
        f"all {len(rows)} goals",
        f"{whole['mean']:.3f}",
        _interval(whole["interval"]),
        f"{summary['random_actions_success']['mean']:.3f}",
    )
    console = Console(stderr=is_on_stderr)
    console.print(table)
    console.print(
        f"seeds: {len(config.seeds)}; random actions: a dataset of as many episodes; without data: {found.untrained:.3f}"
    )
    console.print(f"saved in {out}: see {out / 'goals.png'}", soft_wrap=True)


def _interval(half_width: float | None) -> str:
    return "" if half_width is None else f"± {half_width:.3f}"
