"""The figure of `farflung concentration`."""

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from farflung.bounds import theorems as theory
from farflung.figures.pages import Chart
from farflung.figures.style import BLUE, GREEN, GREY, ORANGE, RED, STYLE, plain
from farflung.studies.concentration.experiment import Concentrated

_DASHES, _DOTS = "6 3", "2 3"
_STYLES = {"none": "-", _DASHES: "--", _DOTS: ":"}
"""Lines as charts have them, and as matplotlib has them."""
_SHARPER, _PAPERS = "sharper bound, any distribution", "Theorem 4.1, the team"


@mpl.rc_context(STYLE)
def concentrated(found: Concentrated) -> Figure:
    """The probability that the samples' entropy is more than ε too low, and the samples that each ε takes."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_probabilities(left, found)
    draw_needed(right, found)
    figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    what = "trajectories of " if found.config.objective == "trajectory" else ""
    figure.suptitle(f"{plain(found.config.world)}, {what}{found.config.agents} agents against one", fontweight="bold")
    return figure


def draw_probabilities(axis: Axes, found: Concentrated) -> None:
    """Draws the measured probability and both bounds against the number of samples, for the ε nearest to 0.1."""
    epsilon, lines = _probabilities(found)
    for line in lines:
        width = 2 if line["dash"] == _DOTS else None
        axis.semilogx(line["xs"], line["ys"], color=line["color"], ls=_STYLES[line["dash"]], lw=width)
    axis.set(xlabel="samples (n)", ylabel=f"probability of H(d) - H(d_n) > {epsilon:g}", ylim=(-0.02, 1.04))
    axis.grid(alpha=0.25)


def probability_chart(found: Concentrated) -> Chart:
    """What `draw_probabilities` draws, to be read with the pointer."""
    epsilon, lines = _probabilities(found)
    title = f"probability that the samples' entropy is more than {epsilon:g} nats too low"
    return Chart(title, lines, across="samples (logarithmic)", unit="samples", scale="log")


def _probabilities(found: Concentrated) -> tuple[float, list[dict[str, Any]]]:
    """The ε nearest to 0.1, and the probabilities as lines of a `Chart`."""
    row = int(np.argmin(np.abs(np.array(found.config.epsilons) - 0.1)))
    epsilon = found.config.epsilons[row]
    most = 10 * max(needed[row].theorem for needed in found.needed.values())
    grid = np.unique(np.geomspace(2, most, 400).astype(np.int64))
    sharper = [theory.sharper_deviation_probability(len(found.example), int(number), epsilon) for number in grid]
    papers = [theory.deviation_probability(found.example, int(number), epsilon) for number in grid]
    measured = [
        (f"{name}, measured", found.num_samples, found.probabilities[kind][row], color, "none")
        for kind, (name, color) in _kinds(found).items()
    ]
    bounds = [(_SHARPER, grid, sharper, GREY, _DASHES), (_PAPERS, grid, papers, RED, _DOTS)]
    lines = [
        {"title": title, "xs": np.asarray(xs), "ys": np.asarray(ys), "color": color, "dash": dash}
        for title, xs, ys, color, dash in (*measured, *bounds)
    ]
    return epsilon, lines


def draw_needed(axis: Axes, found: Concentrated) -> None:
    """Draws the number of samples that each ε takes."""
    epsilons = found.config.epsilons
    for kind, (name, color) in _kinds(found).items():
        measured = [needed.measured for needed in found.needed[kind]]
        axis.loglog(epsilons, measured, "o-", ms=4, color=color, label=f"{name}, measured")
    _, sharper, theorem = zip(*found.needed["team"], strict=True)
    axis.loglog(epsilons, sharper, "s--", ms=4, color=GREY, label=_SHARPER)
    axis.loglog(epsilons, theorem, "d:", ms=5, color=RED, label=_PAPERS)
    axis.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axis.minorticks_off()
    axis.set(xlabel="ε, in nats", ylabel=f"samples needed, with probability {1 - found.config.delta:g}")
    axis.grid(alpha=0.25)


def _kinds(found: Concentrated) -> dict[str, tuple[str, str]]:
    return {
        "team": (f"team of {found.config.agents}", BLUE),
        "agent": ("one of its agents alone", GREEN),
        "single": ("single agent", ORANGE),
    }
