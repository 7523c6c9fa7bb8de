"""The page of an ablation, with its figures and numbers as files beside it."""

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from farflung.config import CREDITS, PAPER_WORLDS, PRESETS
from farflung.figures.curves import as_line, draw_curve
from farflung.figures.pages import VERDICT_CLASSES, Chart, Plot, Row, Table, Value, versions, write_page
from farflung.figures.style import BLUE, GREEN, GREY, ORANGE, RED, STYLE
from farflung.runs.destinations import Destination
from farflung.runs.run import PAGE, final_values
from farflung.runs.statistics import Difference, mean_and_interval, mean_difference
from farflung.studies.ablate.experiment import (
    BASELINES,
    COMBINED,
    DEFAULTS,
    LEARNING_RATES,
    PARTS,
    STAGES,
    Ablation,
    Pair,
    Setting,
    folder_of,
    objective_name,
)

_NEVER = "never"
_NARROWEST = 6.8
"""The width in inches that a legend needs, whatever the number of worlds."""
_COLORS = dict(zip(CREDITS, (GREY, ORANGE, GREEN, BLUE), strict=True)) | {COMBINED: "#0b2f57"}
_OBJECTIVE_METRICS = {
    "entropy": "entropy of the team's states (of the ceiling)",
    "individual_entropy": "own entropy of an agent",
    "diversity": "diversity (skills)",
    "trajectory_entropy": "entropy of trajectories",
}
"""The metrics that objectives maximise, in nats."""
_Comparisons = Mapping[tuple[Setting, str], Difference]
"""By how many percentage points of the ceiling the defaults' team is above each baseline."""


def write_ablation(ablation: Ablation, out: str | Path | Destination, began: float) -> dict[str, Any]:
    """Writes `index.html`, `figures/` and `data/` into the folder `out` and returns a summary.

    Args:
        began: when the work behind the page began, by `time.perf_counter()`.
    """
    comparisons = {
        (setting, baseline): mean_difference(
            ablation.outcome(setting, DEFAULTS).percentages, ablation.outcome(setting, baseline).percentages
        )
        for setting in ablation.settings
        for baseline in BASELINES
    }
    values, tables = _values(ablation, comparisons), _tables(ablation, comparisons)
    summary = write_page("ablate.html.j2", values, _plots(ablation), tables, out, began)
    variants = ("paper", DEFAULTS, *BASELINES)
    rows = [
        {
            "world": setting.world,
            "agents": setting.agents,
            **{name: float(ablation.outcome(setting, name).percentages.mean()) for name in variants},
            "times_fewer_steps": ablation.times_fewer(setting, DEFAULTS),
        }
        for setting in ablation.settings
    ]
    return summary | {"settings": rows}


def is_ordered(variances: Mapping[str, float]) -> bool:
    """Whether each credit's gradient varies less than that of the credit before."""
    return all(variances[first] > variances[second] for first, second in itertools.pairwise(CREDITS))


def _values(ablation: Ablation, comparisons: _Comparisons) -> dict[str, Any]:
    """The values that the template of the page shows."""
    times_fewer = [ablation.times_fewer(setting, DEFAULTS) for setting in ablation.settings]
    rates = "; ".join(f"{name} {', '.join(f'{rate:g}' for rate in tried)}" for name, tried in LEARNING_RATES.items())
    return {
        "config": ablation.config,
        "times_fewer": [times for times in times_fewer if times is not None],
        "num_ordered": sum(is_ordered(found) for found in ablation.variances.values()),
        "num_variances": len(ablation.variances),
        "verdicts": [difference.verdict for difference in comparisons.values()],
        "learning_rates": rates,
        "stages": ", ".join(STAGES),
        "summary": _summary_table(ablation),
        "steps": [_step_table(ablation, setting) for setting in ablation.settings],
        "percentages": _percentage_table(ablation),
        "parts": _part_table(ablation),
        "variances": _variance_table(ablation),
        "together": _together_table(ablation, comparisons),
        "objectives": _objective_table(ablation),
        "settings": _settings(ablation),
    }


def _summary_table(ablation: Ablation) -> Table:
    rows = []
    for setting in ablation.settings:
        paper, own = ablation.outcome(setting, "paper"), ablation.outcome(setting, DEFAULTS)
        times = ablation.times_fewer(setting, DEFAULTS)
        cells = (
            ("paper", f"{paper.percentages.mean():.2f}%"),
            (DEFAULTS, f"{own.percentages.mean():.2f}%"),
            ("paper", f"{ablation.paper_steps[setting]:,}"),
            (DEFAULTS, _or_never(own.steps_to_paper)),
            (DEFAULTS, "" if times is None else f"{times:,.0f} x"),
        )
        rows.append((str(setting), [_linked(text, setting, variant) if text else "" for variant, text in cells]))
    ends = ("final, paper's preset", "final, defaults")
    return Table(("setting", *ends, "steps, paper's preset", "steps, defaults to the same entropy", "fewer"), rows)


def _step_table(ablation: Ablation, setting: Setting) -> Table:
    def cell(variant: str) -> Value:
        outcome, times = ablation.outcome(setting, variant), ablation.times_fewer(setting, variant)
        fewer = "" if times is None else f" ({times:,.0f} x fewer)"
        steps = (outcome.steps_to_paper, outcome.steps_to_95, outcome.steps_to_99)
        to_paper, to_95, to_99 = map(_or_never, steps)
        return _linked(f"{to_paper}{fewer} · {to_95} · {to_99}", setting, variant)

    optimizers = ablation.config.optimizers
    rows = [
        (credit, [cell(ablation.best(Pair(credit, optimizer))) for optimizer in optimizers])
        for credit in ablation.config.credits
    ]
    caption = f"{setting}: the paper's preset takes {ablation.paper_steps[setting]:,} steps"
    return Table(("credit", *optimizers), rows, caption)


def _percentage_table(ablation: Ablation) -> Table:
    rows: list[Row] = []
    for pair, rate in ablation.rates.items():
        best = ablation.best(pair)
        percentages = [_linked(_percent(ablation, setting, best), setting, best) for setting in ablation.settings]
        rows.append((f"{pair.credit}, {pair.optimizer}", [f"{rate:g}", *percentages]))
    return Table(("credit and optimiser", "learning rate", *map(str, ablation.settings)), rows)


def _part_table(ablation: Ablation) -> Table:
    def text(setting: Setting, variant: str) -> str:
        steps, run = ablation.outcome(setting, variant).steps_to_paper, ablation.runs[setting, variant]
        updates = _NEVER if steps is None else f"{steps * int(run.updates[-1]) // int(run.steps[-1])} updates"
        return f"{_percent(ablation, setting, variant)} · {updates}"

    variants = (DEFAULTS, *PARTS)
    rows = [
        (variant, [_linked(text(setting, variant), setting, variant) for setting in ablation.settings]) for variant in variants
    ]
    return Table(("", *map(str, ablation.settings)), rows)


def _variance_table(ablation: Ablation) -> Table:
    columns = [*CREDITS, COMBINED]
    rows: list[Row] = []
    for (setting, stage), found in ablation.variances.items():
        verdict = ("yes", "holds") if is_ordered(found) else ("no", "fails")
        numbers = [_linked(f"{found[credit]:.3g}", setting, DEFAULTS) for credit in columns]
        rows.append((f"{setting}, {stage}", [*numbers, Value(*verdict, link=_page_of(setting, DEFAULTS))]))
    return Table(("setting and stage", *columns, "falls from left to right"), rows)


def _together_table(ablation: Ablation, comparisons: _Comparisons) -> Table:
    def value(difference: Difference, setting: Setting) -> Value:
        interval = f" ({difference.low:+.2f} to {difference.high:+.2f})" if np.isfinite(difference.low) else ""
        text, style = f"{difference.value:+.2f}{interval}, {difference.verdict}", VERDICT_CLASSES[difference.verdict]
        return Value(text, style, link=_page_of(setting, DEFAULTS))

    rows: list[Row] = []
    for setting in ablation.settings:
        percentages = [_linked(_percent(ablation, setting, each), setting, each) for each in (DEFAULTS, *BASELINES)]
        rows.append((str(setting), [*percentages, *(value(comparisons[setting, baseline], setting) for baseline in BASELINES)]))
    head = ("setting", "team", "one policy", "independent agents", "team above one policy", "team above independent agents")
    return Table(head, rows)


def _objective_table(ablation: Ablation) -> Table:
    """What each objective gives by all of them: the final metrics, as means over the seeds."""
    rows: list[Row] = []
    for setting in ablation.settings:
        for objective, variant in _objectives(ablation):
            found = {name: values.mean() for name, values in _final(ablation, setting, variant).items()}
            texts = [f"{found[name]:.3f}" for name in _OBJECTIVE_METRICS]
            texts[0] = f"{texts[0]} ({ablation.outcome(setting, variant).percentages.mean():.1f}%)"
            rows.append((f"{setting}: {objective}", [_linked(text, setting, variant) for text in texts]))
    return Table(("maximised", *_OBJECTIVE_METRICS.values()), rows)


def _objectives(ablation: Ablation) -> list[tuple[str, str]]:
    """The objectives, with the names of their variants."""
    return [("state", DEFAULTS), *((each, objective_name(each)) for each in ablation.config.objectives)]


def _final(ablation: Ablation, setting: Setting, variant: str) -> dict[str, np.ndarray]:
    run = ablation.runs[setting, variant]
    return {name: values for name, values in final_values(run.updates, run.metrics).items() if name in _OBJECTIVE_METRICS}


def _settings(ablation: Ablation) -> dict[str, str]:
    config = ablation.config
    first = ablation.runs[ablation.settings[0], DEFAULTS]
    presets = {
        f"preset {name}": ", ".join(f"{key} {value}" for key, value in preset.items()) for name, preset in PRESETS.items()
    }
    return {
        "worlds": ", ".join(config.worlds),
        "agents (m)": ", ".join(map(str, config.agents)),
        "batch size (B)": str(first.config.batch_size),
        "updates (N)": f"{config.updates:,}; the paper's preset {config.paper_updates:,}",
        "seeds": ", ".join(map(str, config.seed_values)),
        **presets,
        "final values": "mean over the last 1% of updates",
        "device": first.summary["device"],
        "versions": versions(),
    }


def _percent(ablation: Ablation, setting: Setting, variant: str) -> str:
    percentages = ablation.outcome(setting, variant).percentages
    return f"{percentages.mean():.2f}% ({percentages.min():.1f})"


def _linked(text: str, setting: Setting, variant: str) -> Value:
    """A cell that leads to the page of a run."""
    return Value(text, "", link=_page_of(setting, variant))


def _page_of(setting: Setting, variant: str) -> str:
    return f"{folder_of(setting, variant)}/{PAGE}"


def _or_never(steps: int | None) -> str:
    return _NEVER if steps is None else f"{steps:,}"


def _plots(ablation: Ablation) -> dict[str, Plot]:
    most = max(ablation.config.agents)
    seeds = f"over {ablation.config.seeds} seeds"
    worlds = len([world for world in PAPER_WORLDS if world in ablation.config.worlds])
    return {
        "curves": Plot(
            f"Entropy by environment steps, {most} agents",
            f"Each credit with {_shown_optimizer(ablation)} at its best learning rate, and the paper's preset, in "
            f"{worlds} worlds. Mean and 95% confidence interval {seeds}. The axis of steps is logarithmic.",
            partial(_credit_curves, ablation, most),
            charts=[_credit_chart(ablation, setting) for setting in ablation.settings if setting.agents == most],
        ),
        "variance": Plot(
            f"Variance of the gradient, {most} agents",
            f"Variance of one batch's gradient, for the same teams and batches. Mean {seeds}. The axis is logarithmic.",
            partial(_gradient_variance, ablation, most),
        ),
        "together": Plot(
            "Agents trained together, as one policy, or independently",
            f"All with causal credit and Adam. Mean and 95% confidence interval {seeds}.",
            partial(_together_or_not, ablation),
        ),
    }


def _tables(ablation: Ablation, comparisons: _Comparisons) -> dict[str, list[Sequence[object]]]:
    """The CSV files beside the page: by name, a row of column names and then the values."""
    setting_names, variant_names = ("world", "agents"), ("variant", "optimizer", "learning_rate")
    step_names = ("steps_to_paper", "times_fewer", "steps_to_95", "steps_to_99")
    tables: dict[str, list[Sequence[object]]] = {
        "percentages": [(*setting_names, *variant_names, "seed", "percent_of_ceiling")],
        "steps": [(*setting_names, *variant_names, *step_names)],
        "variances": [(*setting_names, "stage", "credit", "variance")],
        "together": [(*setting_names, "above", "difference", "low", "high", "verdict")],
    }
    variants = {pair: (ablation.best(pair), rate) for pair, rate in ablation.rates.items()}
    named = {Pair(name, ""): (name, None) for name in ("paper", DEFAULTS, *PARTS, *BASELINES)}
    for setting in ablation.settings:
        for pair, (variant, rate) in {**variants, **named}.items():
            row = (*setting, *pair, rate)
            outcome = ablation.outcome(setting, variant)
            percentages = zip(ablation.config.seed_values, outcome.percentages.tolist(), strict=True)
            tables["percentages"] += [(*row, seed, percent) for seed, percent in percentages]
            times_fewer = ablation.times_fewer(setting, variant)
            tables["steps"].append((*row, outcome.steps_to_paper, times_fewer, outcome.steps_to_95, outcome.steps_to_99))
    for (setting, stage), found in ablation.variances.items():
        tables["variances"] += [(*setting, stage, credit, variance) for credit, variance in found.items()]
    tables["objectives"] = [
        (*setting_names, "objective", "metric", "seed", "value"),
        *(
            (*setting, objective, metric, seed, value)
            for setting in ablation.settings
            for objective, variant in _objectives(ablation)
            for metric, values in _final(ablation, setting, variant).items()
            for seed, value in zip(ablation.config.seed_values, values.tolist(), strict=True)
        ),
    ]
    tables["together"] += [(*setting, name, *found, found.verdict) for (setting, name), found in comparisons.items()]
    return tables


@mpl.rc_context(STYLE)
def _credit_curves(ablation: Ablation, agents: int) -> Figure:
    """Entropy against environment steps, for each credit with one optimiser and for the paper's preset."""
    settings = [setting for setting in ablation.settings if setting.agents == agents]
    columns = min(2, len(settings))
    rows = -(-len(settings) // columns)
    figure = Figure(figsize=(max(4.8 * columns + 0.6, _NARROWEST), 3.1 * rows + 0.8), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis in axes[len(settings) :]:
        axis.set_visible(False)
    for axis, setting in zip(axes, settings, strict=False):
        _draw_curves(axis, ablation, setting)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False, fontsize=8)
    return figure


def _credit_chart(ablation: Ablation, setting: Setting) -> Chart:
    """The panel of a setting in `_credit_curves`, to be read with the pointer."""
    line = partial(as_line, metric="normalized_entropy", over="steps")
    lines = [line(ablation.runs[setting, "paper"], title="the paper's preset (total, SGD)", color=RED, dash="6 3")]
    for credit in ablation.config.credits:
        run = ablation.runs[setting, ablation.best(Pair(credit, _shown_optimizer(ablation)))]
        lines.append(line(run, title=f"{credit}, {_shown_optimizer(ablation)}", color=_COLORS[credit]))
    level = {"title": "ceiling", "value": ablation.ceilings[setting].normalized_bound, "dash": "2 3"}
    across = "environment steps of one team (logarithmic)"
    return Chart(f"{setting}: entropy / log(states)", lines, [level], across, "steps", scale="log")


def _shown_optimizer(ablation: Ablation) -> str:
    return "adam" if "adam" in ablation.config.optimizers else ablation.config.optimizers[0]


def _draw_curves(axis: Axes, ablation: Ablation, setting: Setting) -> None:
    paper = ablation.runs[setting, "paper"]
    level = float(final_values(paper.updates, paper.metrics)["normalized_entropy"].mean())
    draw = partial(draw_curve, axis, metric="normalized_entropy", over="steps", lw=1.4, alpha=0.15)
    draw(paper, color=RED, ls="--", label="the paper's preset (total, SGD)")
    for credit in ablation.config.credits:
        run = ablation.runs[setting, ablation.best(Pair(credit, _shown_optimizer(ablation)))]
        draw(run, color=_COLORS[credit], label=f"{credit}, {_shown_optimizer(ablation)}")
    axis.axhline(level, color=RED, lw=0.8, alpha=0.6, label="where the paper's preset ends")
    axis.axhline(ablation.ceilings[setting].normalized_bound, color="black", ls=":", lw=1.2, label="ceiling: no team is higher")
    axis.set_xscale("log")
    axis.set(title=str(setting), xlabel="environment steps of one team", ylabel="entropy / log(states)")
    axis.grid(alpha=0.25)


@mpl.rc_context(STYLE)
def _gradient_variance(ablation: Ablation, agents: int) -> Figure:
    """The variance of one batch's gradient for each credit at three stages of training."""
    settings = [setting for setting in ablation.settings if setting.agents == agents]
    shown = [*CREDITS, COMBINED]
    figure = Figure(figsize=(max(2.9 * len(settings) + 0.8, _NARROWEST), 3.4), layout="constrained")
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
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=5, frameon=False, fontsize=8)
    return figure


@mpl.rc_context(STYLE)
def _together_or_not(ablation: Ablation) -> Figure:
    """The final entropy of a team, a single policy and independent agents, in percent of the ceiling."""
    looks = ("trained together", BLUE), ("one policy", ORANGE), ("each for itself", GREEN)
    figure = Figure(figsize=(max(1.05 * len(ablation.settings) + 2.4, _NARROWEST), 3.4), layout="constrained")
    axis = figure.subplots()
    lowest = 100.0
    for number, (variant, (label, color)) in enumerate(zip((DEFAULTS, *BASELINES), looks, strict=True)):
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
