"""The figure of `farflung compare`."""

import itertools
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from farflung.figures.style import BLUE, GREEN, GREY, ORANGE, RED, STYLE, plain
from farflung.studies.compare.comparison import Comparison, Estimate

_TITLES = {"iqm": "IQM", "median": "median", "mean": "mean", "optimality_gap": "optimality gap"}
_COLORS = (BLUE, ORANGE, GREEN, RED, GREY, "#0b2f57")
_DASHES = ("-", "--", "-.", ":")


@mpl.rc_context(STYLE)
def compared(comparison: Comparison) -> Figure:
    """Aggregates, performance profiles, probabilities of improvement and sample efficiency of the algorithms."""
    # Dashes distinguish the algorithms in grey print, too.
    each = zip(comparison.scores, itertools.cycle(_COLORS), itertools.cycle(_DASHES), strict=False)
    looks = {name: {"color": color, "ls": dashes} for name, color, dashes in each}
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
