"""The figure of `farflung frank-wolfe`."""

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from farflung.figures.style import BLUE, GREEN, GREY, ORANGE, RED, STYLE, plain
from farflung.studies.frank_wolfe.experiment import WAYS, Convergence

_COLORS = {"together": ORANGE, "estimated": GREEN, "in-turn": BLUE, "alone": GREY}


@mpl.rc_context(STYLE)
def converging(convergence: Convergence) -> Figure:
    """The gap of the run; then the gaps of teams of several sizes, and their final levels against the theorem's 1/N."""
    has_comparison = bool(convergence.comparison)
    figure = Figure(figsize=(11, 7) if has_comparison else (6, 3.6), layout="constrained")
    axes = list(figure.subplots(2, 2).flat) if has_comparison else [figure.subplots()]
    _draw_run(axes[0], convergence)
    if has_comparison:
        _draw_sizes(axes[1], convergence, "together")
        _draw_sizes(axes[3], convergence, "in-turn")
        _draw_floors(axes[2], convergence)
    for axis in axes:
        axis.set_ylabel("duality gap, in nats")
        axis.legend(frameon=False, fontsize=8)
        axis.grid(alpha=0.25)
    figure.suptitle(f"Parallel Frank-Wolfe, {plain(convergence.config.world)}", fontweight="bold")
    return figure


def _draw_run(axis: Axes, convergence: Convergence) -> None:
    config, found = convergence.config, convergence.found
    axis.loglog(np.arange(1, len(found.gaps) + 1), np.maximum(found.gaps, 1e-9), color=BLUE, lw=1)
    axis.axhline(config.tolerance, color=RED, ls=":", label=f"tolerance, {config.tolerance:g} nats")
    step = "best step" if convergence.algorithm.step_size is None else f"step {convergence.algorithm.step_size:.2g}"
    axis.set_title(f"{config.agents} agents, {WAYS[config.plan]}, {step}", fontsize=9)
    axis.set_xlabel("iterations")


def _draw_sizes(axis: Axes, convergence: Convergence, way: str) -> None:
    series = convergence.comparison[way]
    colors = mpl.colormaps["viridis"](np.linspace(0.85, 0, len(series.agents)))
    styles = ["-", "--", "-.", ":"]
    for number, (agents, gaps, color) in enumerate(zip(series.agents, series.gaps, colors, strict=True)):
        # Dashes distinguish curves that coincide.
        style = styles[number % 4] if way == "together" else "-"
        axis.loglog(np.arange(1, len(gaps) + 1), np.maximum(gaps, 1e-9), color=color, lw=1.2, ls=style, label=f"N = {agents}")
    axis.set_title(f"{WAYS[way]}: {series.verdict}", fontsize=9)
    axis.set_xlabel("iterations")


def _draw_floors(axis: Axes, convergence: Convergence) -> None:
    for way, series in convergence.comparison.items():
        label = f"{WAYS[way]}: N^{series.exponent:.2f}"
        style = "s--" if way == "alone" else "o-"
        axis.loglog(series.agents, series.floors, style, color=_COLORS[way], ms=5, label=label)
    reference = convergence.comparison["in-turn"]
    agents = np.array(reference.agents, dtype=float)
    axis.loglog(agents, reference.floors[0] * agents[0] / agents, color=RED, ls=":", label="the theorem's rate: 1/N")
    axis.set_xticks(agents, [f"{number:g}" for number in agents])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_title(f"what the gap settles at with a constant step of {convergence.config.compare_step:g}", fontsize=9)
    axis.set_xlabel("agents (N)")
