"""The figure and the page of `farflung compare`."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from farflung.figures.pages import Chart, Picture, Table, Value, render
from farflung.figures.style import BLUE, GREEN, GREY, ORANGE, RED, STYLE, plain
from farflung.studies.compare.comparison import Comparison, Estimate

_TITLES = {"iqm": "IQM", "median": "median", "mean": "mean", "optimality_gap": "optimality gap"}
_COLORS = (BLUE, ORANGE, GREEN, RED, GREY, "#0b2f57")
_DASHES = {"-": "none", "--": "6 3", "-.": "8 3 2 3", ":": "2 3"}
"""Dashes in matplotlib, and in SVG."""


@mpl.rc_context(STYLE)
def compared(comparison: Comparison) -> Figure:
    """Aggregates, performance profiles, probabilities of improvement and sample efficiency of the algorithms."""
    looks = {name: {"color": color, "ls": dashes} for name, color, dashes in _looks(comparison)}
    measures = list(next(iter(comparison.aggregates.values())))
    heights = (0.9 + 0.3 * len(looks), max(3.2, 0.8 + 0.4 * len(comparison.improvements)))
    longest = max(map(len, looks))
    figure = Figure(figsize=(11 + 0.08 * longest, sum(heights) + 0.8), layout="constrained")
    # Two subfigures: long names in the lower row then don't narrow the panels of the upper row.
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=heights)[:, 0]
    for axis, measure in zip(above.subplots(1, len(measures), sharey=True), measures, strict=True):
        _draw_estimates(axis, {name: found[measure] for name, found in comparison.aggregates.items()}, looks)
        axis.set(title=_TITLES[measure], xlabel="less is better" if measure == "optimality_gap" else metric_label(comparison))
    profile, improvement, *others = below.subplots(1, 3 if comparison.curves else 2)
    for name, look in looks.items():
        _draw_band(profile, comparison.thresholds, comparison.profiles[name], look, name)
    profile.set(title="performance profile", xlabel=f"{metric_label(comparison)} (τ)", ylabel="share of runs above τ")
    for efficiency in others:
        for name, look in looks.items():
            _draw_band(efficiency, comparison.steps[name], comparison.curves[name], look, name)
        efficiency.set(title="sample efficiency", xlabel="environment steps of one team", xscale="log")
        efficiency.xaxis.set_minor_formatter(NullFormatter())
        efficiency.set_ylabel(f"IQM of {metric_label(comparison)}")
    pairs = {f"{better}\nover {worse}": (better, worse) for better, worse in comparison.improvements}
    found = {label: comparison.improvements[pair] for label, pair in pairs.items()}
    _draw_estimates(improvement, found, {label: looks[better] for label, (better, _) in pairs.items()})
    improvement.axvline(0.5, color="black", ls=":", lw=1)
    improvement.set(xlim=(-0.03, 1.03), xlabel="probability", title="probability of improvement")
    for axis in figure.get_axes():
        axis.grid(alpha=0.25)
    num_columns = max(1, min(len(looks), 160 // (longest + 8)))
    figure.legend(*profile.get_legend_handles_labels(), loc="outside lower center", ncols=num_columns, frameon=False)
    tasks = " · ".join(comparison.tasks) if len(comparison.tasks) <= 4 else f"{len(comparison.tasks)} tasks"
    figure.suptitle(f"{plain(tasks)}, with 95% intervals over seeds", fontweight="bold")
    return figure


def comparison_page(
    comparison: Comparison, svg: bytes, pages: Mapping[tuple[str, str], Sequence[str]], files: Sequence[str] = ()
) -> str:
    """The HTML of a comparison: tables, the figure, and its curves to be read with the pointer.

    Args:
        svg: the figure.
        pages: where the pages of an algorithm's runs on a task are.
        files: names of files beside the page, to link to.
    """
    measures = [_TITLES[measure] for measure in next(iter(comparison.aggregates.values()))]
    decimals = 2 if comparison.metric in ("percent_of_ceiling", "support", "return") else 3

    def value(found: Estimate, *algorithms: str) -> Value:
        """An estimate that leads to the page of the only run behind it, or to the table of all runs."""
        runs = [link for (name, _), links in pages.items() if name in algorithms for link in links]
        link = "" if not runs else runs[0] if len(runs) == len(algorithms) == 1 else "#tasks"
        return Value(f"{found.value:.{decimals}f}", "", (f"{found.low:.{decimals}f} to {found.high:.{decimals}f}",), link)

    scores = [(name, [value(one, name) for one in found.values()]) for name, found in comparison.aggregates.items()]
    improvements = [(" over ".join(pair), [value(found, *pair)]) for pair, found in comparison.improvements.items()]
    tasks = []
    for name, array in comparison.scores.items():
        ends = [(own.mean(), f"{own.min():.{decimals}f} to {own.max():.{decimals}f}") for own in array.T]
        cells = []
        for task, (mean, spread) in zip(comparison.tasks, ends, strict=True):
            links = pages.get((name, task), ())
            more = tuple((f"run {number}", link) for number, link in enumerate(links, 1)) if len(links) > 1 else ()
            cells.append(Value(f"{mean:.{decimals}f}", "", (spread,), next(iter(links), ""), more))
        tasks.append((name, cells))
    caption = f"The share of runs above each score{', and learning curves' * bool(comparison.curves)}, with 95% intervals."
    return render(
        "compare.html.j2",
        version=version("farflung"),
        metric=metric_label(comparison).capitalize(),
        pictures=[Picture("figure-comparison", "Profiles and curves", caption, svg, list(_charts(comparison)))],
        scores=Table(["algorithm", *measures], scores),
        improvements=Table(["algorithms", "probability"], improvements),
        tasks=Table(["algorithm", *comparison.tasks], tasks),
        left_out=comparison.left_out,
        files=files,
    )


def _charts(comparison: Comparison) -> Iterator[Chart]:
    label, looks = metric_label(comparison), list(_looks(comparison))

    def line(name: str, places: Any, found: Estimate, color: str, dashes: str) -> dict[str, Any]:
        band = {"ys": found.value, "low": found.low, "high": found.high}
        return {"title": name, "xs": places, **band, "color": color, "dash": _DASHES[dashes]}

    lines = [line(name, comparison.thresholds, comparison.profiles[name], *look) for name, *look in looks]
    yield Chart("Performance profile: share of runs above a score", lines, (), label, label, "above", "cut")
    if comparison.curves:
        lines = [line(name, np.round(comparison.steps[name]), comparison.curves[name], *look) for name, *look in looks]
        across = "environment steps of one team (logarithmic)"
        yield Chart(f"Sample efficiency: IQM of {label}", lines, (), across, "steps", scale="log")


def _looks(comparison: Comparison) -> Iterator[tuple[str, str, str]]:
    """The colour and the dashes of each algorithm; dashes distinguish them in grey print, too."""
    return zip(comparison.scores, itertools.cycle(_COLORS), itertools.cycle(_DASHES), strict=False)


def metric_label(comparison: Comparison) -> str:
    return "% of the ceiling" if comparison.metric == "percent_of_ceiling" else comparison.metric.replace("_", " ")


def _draw_estimates(axis: Axes, found: dict[str, Estimate], looks: dict[str, dict[str, Any]]) -> None:
    for place, (name, each) in enumerate(found.items()):
        axis.plot([each.low, each.high], [place, place], color=looks[name]["color"], lw=7, alpha=0.35, solid_capstyle="butt")
        axis.plot(each.value, place, "|", color=looks[name]["color"], ms=13, mew=2.5)
    axis.set_yticks(range(len(found)), list(map(plain, found)))
    axis.set_ylim(len(found) - 0.5, -0.5)


def _draw_band(axis: Axes, places: Any, found: Estimate, look: dict[str, Any], label: str) -> None:
    axis.plot(places, found.value, lw=1.6, label=plain(label), **look)
    axis.fill_between(places, found.low, found.high, color=look["color"], alpha=0.15, lw=0)
