"""`farflung offline`."""

import dataclasses
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from farflung.cli import terminal
from farflung.cli.terminal import Printing, out_option, print_saved, progress_bar, switch, table
from farflung.config import OfflineLearning

if TYPE_CHECKING:
    from rich.console import Console

    from farflung.data.offline import Reached

_MOST_ROWS = 60
_ROWS_AT_ENDS = 15


def offline(
    config: OfflineLearning,
    printing: Printing,
    out: Annotated[
        Path | None, out_option("Directory for the numbers and the heat map.", "offline-NAME, of the dataset")
    ] = None,
    force: Annotated[bool, switch("Replace results with other settings that are in the output directory.")] = False,
) -> int:
    """Learn from a dataset to reach every state, and report which states are reached."""
    terminal.use_all_cores()
    from farflung.data.offline import learn_offline  # imports JAX
    from farflung.figures.reached import reached
    from farflung.runs.files import open_results, write_results

    settings = dataclasses.asdict(config)
    name = Path(config.dataset).name.removesuffix(".npz").removesuffix(".parquet")
    out = out or Path(f"offline-{name}")
    with open_results(out, "offline", settings, force=force):
        with progress_bar(printing.quiet) as show:
            found = learn_offline(**settings, on_progress=lambda done, total: show(name, done, total, "goals"))
        summary = _summary(found)
        names = ("observation", "row", "column") if found.radius is None else ("x", "y")
        rows = [(*where, *rates) for where, *rates in _rows(found)]
        table_of_goals = [(*names, "success", "interval", "random_actions"), *rows]
        write_results(out, {"summary.json": summary, "goals.csv": table_of_goals, "goals": reached(found, name)})
    printing.report(summary, partial(_print, found, summary, out), beside_json=True)
    return 0


def _places(found: "Reached") -> list[tuple[Any, ...]]:
    """The position of each goal: observation, row and column, or x and y."""
    import numpy as np

    world = found.world.table
    if world is None:
        return [(round(x, 4), round(y, 4)) for x, y in found.goals.tolist()]
    labels = np.asarray(world.labels)[found.goals].tolist()
    positions = [(None, None)] * len(labels)
    if world.positions is not None:
        positions = np.asarray(world.positions)[found.goals].tolist()
    return [(label, *position) for label, position in zip(labels, positions, strict=True)]


def _rows(found: "Reached") -> list[tuple[Any, ...]]:
    """For each goal, from the easiest to the hardest: position, mean success rate, half-width of its 95% interval, and the mean
    success rate of learning from random actions."""
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


def _print(found: "Reached", summary: dict[str, Any], out: Path, console: "Console") -> None:
    config, is_maze = found.config, found.radius is not None
    how = "implicit Q-learning" if is_maze else "Q-learning"
    rows = _rows(found)
    is_map = rows[0][0][-1] is not None
    goal = "goal (x, y)" if is_maze else "goal (row, column)" if is_map else "goal"
    title = f"{config.dataset}: how often {how} from {found.num_transitions:,} transitions reaches each goal"
    shown = table(title, goal, "success", "95% CI", "random actions", left=())
    for row in rows if len(rows) <= _MOST_ROWS else [*rows[:_ROWS_AT_ENDS], None, *rows[-_ROWS_AT_ENDS:]]:
        if row is None:
            shown.add_row("...", "", "", "")
            continue
        where, mean, interval, random = row
        label = f"({where[-2]:g}, {where[-1]:g})" if is_map else str(where[0])
        shown.add_row(label, f"{mean:.3f}", _interval(interval), f"{random:.3f}")
    shown.add_section()
    whole = summary["success"]
    shown.add_row(
        f"all {len(rows)} goals",
        f"{whole['mean']:.3f}",
        _interval(whole["interval"]),
        f"{summary['random_actions_success']['mean']:.3f}",
    )
    console.print(shown)
    console.print(
        f"seeds: {len(config.seeds)}; random actions: a dataset of as many episodes; without data: {found.untrained:.3f}"
    )
    print_saved(console, out, "goals.png")


def _interval(half_width: float | None) -> str:
    return "" if half_width is None else f"± {half_width:.3f}"
