"""All combinations of several settings: what a job of `farflung sweep` trains, and the table and figure of all runs."""

import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from farflung.algorithms import Algorithm
from farflung.algorithms.chosen import algorithm_for
from farflung.config import Explore
from farflung.figures.pages import Chart, Picture, Row, Table, Value, render
from farflung.figures.style import STYLE, plain
from farflung.runs import interrupts, program_cache
from farflung.runs.checkpoints import MINUTES, new_checkpoints
from farflung.runs.destinations import CONFIG, claimed
from farflung.runs.pooling import settings_but_seeds
from farflung.runs.run import Run, final_values, finished_run
from farflung.runs.statistics import mean_and_interval
from farflung.studies.explore import begun, one_per_seed, train_side_by_side
from farflung.studies.trials import Status
from farflung.training.progress import for_each_seed
from farflung.worlds.named import make_world
from farflung.worlds.world import World

RUNS = "runs"
"""The folder of a sweep in which the runs lie."""
_ADVICE = "remove it, or choose another output directory"
MEASURES = ("normalized_entropy", "percent_of_ceiling", "support", "diversity")
_FACTOR = 4
"""Between the lowest and the highest value of a setting, from which on its axis is logarithmic."""


def train_points(
    out: str,
    points: Mapping[str, Explore],
    world_options: Mapping[str, Any],
    on_progress: Callable[[Status], None] | None = None,
    *,
    checkpoint_minutes: float = MINUTES,
    checkpoint_updates: int | None = None,
) -> dict[str, str]:
    """Trains all configs whose runs are not finished, from their checkpoints if there are any; returns why runs failed.

    Configs that share a program train side by side. They must agree in their worlds.

    Args:
        out: the folder of the runs.
        points: the settings of each run, by its name.
        world_options: as `make_world` takes them.
    """
    program_cache.keep_programs()
    failures: dict[str, str] = {}
    with contextlib.ExitStack() as places, interrupts.stoppable():
        ready: dict[Any, list[Any]] = {}
        made: dict[Any, World] = {}
        for name, config in points.items():
            try:
                which = (config.world, config.horizon, config.slip)
                world = made.get(which) or make_world(which[0], horizon=which[1], slip=which[2], **world_options)
                if not world.is_hosted:
                    made[which] = world
                config = config.resolved(has_vectors=world.projection is not None, knows_all_states=world.knows_all_states)
                algorithms = one_per_seed(config, partial(_algorithm, world))
                place = places.enter_context(claimed(Path(out) / name))
                if finished_run(place, config, world) is not None:
                    continue
                if not place.is_begun and (place.folder / CONFIG).exists():
                    raise ValueError(f"{place.name} holds a run of other settings, or a damaged one: {_ADVICE}")
                intervals = (checkpoint_minutes, checkpoint_updates)
                checkpointer = places.enter_context(new_checkpoints(place, config, world, *intervals, may_continue=True))
                training = begun(config, world, algorithms, checkpointer)
            except ValueError as error:
                failures[name] = str(error)
                continue
            # Host-stepped worlds number states as they are met, and a flat curve is the mean of a run's own seeds.
            alone = name if world.is_hosted or config.stop_when_flat else ""
            rest = for_each_seed(algorithms, len(algorithms)).rest
            key = next((key for key in ready if key[:2] == (alone, training.stage) and eqx.tree_equal(key[2], rest)), None)
            ready.setdefault(key or (alone, training.stage, rest), []).append((name, world, training))
        waiting = deque(ready.values())
        while waiting:
            interrupts.check()
            (name, world, _), *others = together = waiting.popleft()
            try:
                runs = train_side_by_side([training for _, _, training in together], world, on_progress)
            except ValueError as error:
                if others:  # one of them failed before anything was recorded
                    waiting.extendleft([each] for each in reversed(together))
                else:
                    failures[name] = str(error)
                continue
            if any(run.summary["is_interrupted"] for run in runs):
                raise interrupts.Stopped
    return failures


def _algorithm(world: World, config: Explore) -> Algorithm:
    return algorithm_for(config, world, given=config.given)


@dataclass(frozen=True)
class Swept:
    """The runs of one combination of settings, with different seeds."""

    config: Explore
    """Of the first run."""
    runs: Sequence[Run]

    @property
    def seeds(self) -> list[int]:
        return [seed for run in self.runs for seed in run.config.seeds]

    def final(self, measure: str) -> Float[np.ndarray, " seed"]:
        """The final values of a measure, which is a metric or the percentage of the ceiling."""
        if measure == "percent_of_ceiling":
            return np.concatenate([run.summary["percent_of_ceiling"] for run in self.runs])
        return np.concatenate([final_values(run.updates, run.metrics)[measure] for run in self.runs])

    def label(self, names: Sequence[str]) -> tuple[str, ...]:
        """The values of these settings, in words."""
        return tuple(_words(getattr(self.config, name)) for name in names)


def _words(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def swept_runs(runs: Sequence[Run]) -> list[Swept]:
    """The runs of each combination of settings; those with different seeds are pooled."""
    alike: dict[Any, list[Run]] = {}
    for run in runs:
        alike.setdefault(settings_but_seeds(run.config), []).append(run)
    return [Swept(own[0].config, own) for own in alike.values()]


def table_of(found: Sequence[Swept], names: Sequence[str]) -> list[tuple[object, ...]]:
    """A table with a row per combination of settings and seed, and the final values."""
    rows = [
        (*(getattr(each.config, name) for name in names), seed, *values)
        for each in found
        for seed, *values in zip(each.seeds, *(each.final(measure).tolist() for measure in MEASURES), strict=True)
    ]
    return [(*names, "seed", *MEASURES), *rows]


def means_of(found: Sequence[Swept], names: Sequence[str]) -> list[dict[str, Any]]:
    """For each combination of settings its values, the number of seeds, and the mean and interval of each measure."""
    rows = []
    for each in found:
        row: dict[str, Any] = {name: getattr(each.config, name) for name in names} | {"seeds": len(each.seeds)}
        for measure in MEASURES:
            mean, half_width = mean_and_interval(each.final(measure))
            row[measure] = {"mean": float(mean), "half_width": None if half_width is None else float(half_width)}
        rows.append(row)
    return rows


class _Line(NamedTuple):
    """The final values of a measure in one world against one setting, where all other settings are the same."""

    text: str
    places: list[float]
    means: list[float]
    half_widths: list[float | None]
    color: str


@dataclass(frozen=True)
class _Panels:
    """What the figure of a sweep shows: a panel for each world, with lines against the setting with the most values."""

    across: str | None
    values: Sequence[Any]
    """Of the setting along the horizontal axis."""
    lines: Mapping[str, Sequence[_Line]]
    """By world."""

    @property
    def are_numbers(self) -> bool:
        return self.across is not None and _are_numbers(self.values)


def _panels(found: Sequence[Swept], names: Sequence[str], measure: str) -> _Panels:
    settings = [name for name in names if name != "world"]
    values = {name: list(dict.fromkeys(getattr(each.config, name) for each in found)) for name in settings}
    across = max(settings, key=lambda name: (_are_numbers(values[name]), len(values[name])), default=None)
    others = [name for name in settings if name != across]
    labels = list(dict.fromkeys(each.label(others) for each in found))
    colors = map(to_hex, mpl.colormaps["viridis"](np.linspace(0, 0.85, len(labels))))
    lines: dict[str, list[_Line]] = {each.config.world: [] for each in found}
    for (world, own_lines), (label, color) in product(lines.items(), list(zip(labels, colors, strict=True))):
        own = [each for each in found if each.config.world == world and each.label(others) == label]
        places = [0.0 if across is None else _place(getattr(each.config, across), values[across]) for each in own]
        measured = [mean_and_interval(own[number].final(measure)) for number in np.argsort(places)]
        text = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in zip(others, label, strict=True))
        widths = [None if width is None else float(width) for _, width in measured]
        if own:
            own_lines.append(_Line(text, sorted(places), [float(mean) for mean, _ in measured], widths, color))
    return _Panels(across, () if across is None else values[across], lines)


@mpl.rc_context(STYLE)
def sweep_figure(found: Sequence[Swept], names: Sequence[str], measure: str = MEASURES[0]) -> Figure:
    """The final value of a measure against the setting with the most values, with a line for each combination of the others."""
    panels = _panels(found, names, measure)
    across, values = panels.across, panels.values
    figure = Figure(figsize=(1.2 + 3.4 * len(panels.lines), 3.4), layout="constrained")
    axes = figure.subplots(1, len(panels.lines), squeeze=False).flat
    for axis, (world, lines) in zip(axes, panels.lines.items(), strict=True):
        for line in lines:
            drawn = np.array([line.places, line.means, [width or 0.0 for width in line.half_widths]])
            look: dict[str, Any] = {"marker": "o", "ms": 4, "lw": 1.4, "capsize": 2}
            axis.errorbar(*drawn, color=line.color, label=plain(line.text) or None, **look)
        if across is not None:
            axis.set_xlabel(across.replace("_", " "))
            if not panels.are_numbers:
                axis.set_xticks(range(len(values)), [plain(_words(value)) for value in values])
            elif min(values) > 0 and max(values) >= _FACTOR * min(values):
                axis.set_xscale("log")
                axis.set_xticks(values, [_words(value) for value in values], minor=False)
                axis.minorticks_off()
        axis.set_title(plain(world))
        axis.grid(alpha=0.25)
    figure.axes[0].set_ylabel(f"final {measure.replace('_', ' ')}")
    handles = figure.axes[0].get_legend_handles_labels()
    if handles[1]:
        figure.legend(*handles, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure


def sweep_page(
    found: Sequence[Swept], names: Sequence[str], svg: bytes, pages: Callable[[Run], str], failed: Mapping[str, str]
) -> str:
    """The HTML of a sweep: a table whose numbers lead to the pages of the runs, and the figure.

    Args:
        svg: the figure.
        pages: where the page of a run is.
        failed: why runs have failed, by their names.
    """
    rows: list[Row] = []
    for each, row in zip(found, means_of(found, names), strict=True):
        link, more = pages(each.runs[0]), len(each.runs) - 1
        notes = (f"the first of {more + 1} runs",) if more else ()
        cells = [
            Value(_decimals(measure, row[measure]["mean"]), "", _interval(measure, row[measure]) + notes, link=link)
            for measure in MEASURES
        ]
        first, *others = each.label(names) or (each.config.world,)
        rows.append((first, [*others, str(len(each.seeds)), *cells]))
    head = (*(map(_title, names) if names else ("world",)), "seeds", *map(_title, MEASURES))
    panels, measure = _panels(found, names, MEASURES[0]), _title(MEASURES[0])
    charts = [
        Chart(f"{world}: final {measure}", list(map(_chart_line, lines)), (), _title(panels.across), "", "at", _scale(panels))
        for world, lines in panels.lines.items()
        if panels.across is not None and panels.are_numbers
    ]
    caption = f"Final {measure}: the mean over the seeds, with 95% intervals."
    return render(
        "sweep.html.j2",
        version=version("farflung"),
        num_runs=sum(len(each.runs) for each in found),
        results=Table(head, rows),
        pictures=[Picture("figure-sweep", f"Final {measure}", caption, svg, charts)],
        failed=failed,
    )


def _chart_line(line: _Line) -> dict[str, Any]:
    drawn = {"title": line.text or "mean", "xs": line.places, "ys": line.means}  # the page has colours for the dark, too
    if None in line.half_widths:
        return drawn
    ends = [(mean - (width or 0.0), mean + (width or 0.0)) for mean, width in zip(line.means, line.half_widths, strict=True)]
    return {**drawn, "low": [low for low, _ in ends], "high": [high for _, high in ends]}


def _scale(panels: _Panels) -> str:
    is_wide = min(panels.values) > 0 and max(panels.values) >= _FACTOR * min(panels.values)
    return "log" if is_wide else "cut"


def _decimals(measure: str, value: float) -> str:
    return f"{value:.{2 if measure in ('percent_of_ceiling', 'support') else 4}f}"


def _interval(measure: str, found: Mapping[str, Any]) -> tuple[str, ...]:
    return () if found["half_width"] is None else (f"± {_decimals(measure, found['half_width'])}",)


def _title(name: str | None) -> str:
    return (name or "").replace("_", " ")


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _place(value: Any, values: Sequence[Any]) -> float:
    return float(value) if _are_numbers(values) else float(values.index(value))
