"""The figures of `farflung ablate`."""

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from farflung.config import CREDITS
from farflung.figures.style import BLUE, GREEN, GREY, ORANGE, RED, STYLE
from farflung.runs.run import Run, final_values
from farflung.runs.statistics import mean_and_interval
from farflung.studies.ablate.experiment import BASELINES, COMBINED, DEFAULTS, STAGES, Ablation, Pair, Setting

_COLORS = dict(zip(CREDITS, (GREY, ORANGE, GREEN, BLUE), strict=True)) | {COMBINED: "#0b2f57"}


@mpl.rc_context(STYLE)
def credit_curves(ablation: Ablation, agents: int) -> Figure:
    """Entropy against environment steps, for each credit with one optimiser and for the paper's preset."""
    settings = [setting for setting in ablation.settings if setting.agents == agents]
    columns = min(2, len(settings))
    rows = -(-len(settings) // columns)
    figure = Figure(figsize=(4.8 * columns + 0.6, 3.1 * rows + 0.8), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis in axes[len(settings) :]:
        axis.set_visible(False)
    for axis, setting in zip(axes, settings, strict=False):
        _draw_curves(axis, ablation, setting)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False, fontsize=8)
    return figure


def shown_optimizer(ablation: Ablation) -> str:
    return "adam" if "adam" in ablation.config.optimizers else ablation.config.optimizers[0]


def _draw_curves(axis: Axes, ablation: Ablation, setting: Setting) -> None:
    paper = ablation.runs[setting, "paper"]
    level = float(final_values(paper.updates, paper.metrics)["normalized_entropy"].mean())
    bound = ablation.ceilings[setting]
    _draw_curve(axis, paper, RED, "the paper's preset (total, SGD)", "--")
    for credit in ablation.config.credits:
        run = ablation.runs[setting, ablation.best(Pair(credit, shown_optimizer(ablation)))]
        _draw_curve(axis, run, _COLORS[credit], f"{credit}, {shown_optimizer(ablation)}")
    axis.axhline(level, color=RED, lw=0.8, alpha=0.6, label="where the paper's preset ends")
    axis.axhline(bound.normalized_bound, color="black", ls=":", lw=1.2, label="ceiling: no team is higher")
    axis.set_xscale("log")
    axis.set(title=str(setting), xlabel="environment steps of one team", ylabel="entropy / log(states)")
    axis.grid(alpha=0.25)


def _draw_curve(axis: Axes, run: Run, color: str, label: str, style: str = "-") -> None:
    mean, half_width = mean_and_interval(np.asarray(run.metrics.normalized_entropy)[:, run.is_spaced])
    steps = run.steps[run.is_spaced]
    axis.plot(steps, mean, color=color, ls=style, lw=1.4, label=label)
    if half_width is not None:
        axis.fill_between(steps, mean - half_width, mean + half_width, color=color, alpha=0.15, lw=0)


@mpl.rc_context(STYLE)
def gradient_variance(ablation: Ablation, agents: int) -> Figure:
    """The variance of one batch's gradient for each credit at three stages of training."""
    settings = [setting for setting in ablation.settings if setting.agents == agents]
    shown = [*CREDITS, COMBINED]
    figure = Figure(figsize=(2.9 * len(settings) + 0.8, 3.4), layout="constrained")
    axes = figure.subplots(1, len(settings), sharey=True, squeeze=False)[0]
    width = 0.8 / len(shown)
    for axis, setting in zip(axes, settings, strict=True):
        for number, credit in enumerate(shown):
            heights = [ablation.variances[setting, stage][credit] for stage in STAGES]
            places = np.arange(len(STAGES)) + (number - (len(shown) - 1) / 2) * width
            axis.bar(places, heights, width, color=_COLORS[credit], label=credit)
        axis.set_yscale("log")
        axis.set_xticks(range(len(STAGES)), STAGES)
        axis.set(title=str(setting), xlabel="stage of training")
        axis.grid(alpha=0.25, axis="y")
    axes[0].set_ylabel("variance of the gradient (trace)")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5, frameon=False, fontsize=8)
    return figure


@mpl.rc_context(STYLE)
def together_or_not(ablation: Ablation) -> Figure:
    """The final entropy of a team, a single policy and independent agents, in percent of the ceiling."""
    kinds = {DEFAULTS: ("trained together", BLUE), "single": ("one policy", ORANGE), "independent": ("each for itself", GREEN)}
    assert set(kinds) == {DEFAULTS, *BASELINES}
    figure = Figure(figsize=(1.05 * len(ablation.settings) + 2.4, 3.4), layout="constrained")
    axis = figure.subplots()
    lowest = 100.0
    for number, (variant, (label, color)) in enumerate(kinds.items()):
        outcomes = [mean_and_interval(ablation.outcome(setting, variant).percentages) for setting in ablation.settings]
        means = np.array([float(mean) for mean, _ in outcomes])
        errors = np.array([0.0 if half_width is None else float(half_width) for _, half_width in outcomes])
        lowest = min(lowest, float(np.min(means - errors)))
        places = np.arange(len(ablation.settings)) + (number - 1) * 0.26
        axis.bar(places, means, 0.24, yerr=errors, color=color, label=label, capsize=2, error_kw={"lw": 1})
    axis.set_xticks(range(len(ablation.settings)), [f"{setting.world}\nm = {setting.agents}" for setting in ablation.settings])
    axis.set_ylim(max(0.0, 5 * np.floor(lowest / 5) - 5), 101)
    axis.set_ylabel("% of the ceiling (axis is cut)")
    axis.grid(alpha=0.25, axis="y")
    figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=8)
    return figure
