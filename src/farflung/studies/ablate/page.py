"""The text of the page about an ablation: pure functions from results to HTML."""

import itertools
import platform
from collections.abc import Mapping, Sequence
from html import escape
from importlib.metadata import version

import numpy as np

from farflung.config import CREDITS, PRESETS
from farflung.figures.pages import Picture, Section, Value, definition_table, document, figure_section, value_table
from farflung.runs.statistics import Difference, mean_difference
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
)

_NEVER = "never"
_KINDS = {"holds": "holds", "undecided": "undecided", "does not hold": "fails"}


def ablation_page(ablation: Ablation, pictures: Sequence[Picture], seconds: float) -> str:
    config = ablation.config
    sections = [
        Section("summary", "Summary", _summary(ablation, seconds)),
        *map(figure_section, pictures),
        Section("steps", "Environment steps until the paper's final entropy", _steps(ablation)),
        Section("percentages", "Percentage of the ceiling", _percentages(ablation)),
        Section("parts", "What each part of the defaults contributes", _parts(ablation)),
        Section("variances", "Variance of the gradient", _variances(ablation)),
        Section("together", "Does training together still pay?", _together(ablation)),
        Section("settings", "Settings", _settings(ablation)),
    ]
    return document(
        "farflung: what credit and optimiser are worth",
        "What credit and optimiser are worth",
        f"Every credit with every optimiser, and each part of the defaults left out in turn, by farflung "
        f"{escape(version('farflung'))}.",
        sections,
        f"{config.updates:,} updates and {config.seeds} seeds are too few for conclusions." if config.quick else "",
    )


def is_ordered(variances: Mapping[str, float]) -> bool:
    """Whether each credit's gradient varies less than that of the one before."""
    values = [variances[credit] for credit in CREDITS]
    return all(first > second for first, second in itertools.pairwise(values))


def comparisons(ablation: Ablation) -> dict[tuple[Setting, str], Difference]:
    """By how many points of the ceiling's percentage the defaults' team is above each baseline."""
    return {
        (setting, baseline): mean_difference(
            ablation.outcome(setting, DEFAULTS).percentages, ablation.outcome(setting, baseline).percentages
        )
        for setting in ablation.settings
        for baseline in BASELINES
    }


def _summary(ablation: Ablation, seconds: float) -> str:
    config = ablation.config
    fewer = {setting: ablation.times_fewer(setting, DEFAULTS) for setting in ablation.settings}
    reached = [value for value in fewer.values() if value is not None]
    most = f"{min(reached):,.0f} to {max(reached):,.0f} times" if reached else "no"
    ordered = sum(is_ordered(found) for found in ablation.variances.values())
    verdicts = [difference.verdict for difference in comparisons(ablation).values()]
    rows = []
    for setting in ablation.settings:
        paper, own = ablation.outcome(setting, "paper"), ablation.outcome(setting, DEFAULTS)
        times = fewer[setting]
        rows.append(
            (
                str(setting),
                [
                    Value(f"{paper.percentages.mean():.2f}%"),
                    Value(f"{own.percentages.mean():.2f}%"),
                    Value(f"{ablation.paper_steps[setting]:,}"),
                    Value(_NEVER if own.steps_to_paper is None else f"{own.steps_to_paper:,}"),
                    Value("" if times is None else f"{times:,.0f} x"),
                ],
            )
        )
    head = (
        "setting",
        "paper's end",
        "defaults' end",
        "steps, paper",
        "steps until the defaults are there",
        "fewer",
    )
    return (
        f"<p>With the defaults of <code>farflung explore</code> (causal credit, Adam), a team needs {most} fewer environment "
        f"steps than the paper's preset to reach what that has after {config.paper_updates:,} updates. Percentages are of the "
        f"ceiling that no team exceeds, after {config.updates:,} updates; means over {config.seeds} seeds.</p>"
        f"{value_table(head, rows)}"
        f"<p>The gradient's variance falls from total to leave_one_out to difference to causal in {ordered} of "
        f"{len(ablation.variances)} settings and stages. A team that is trained together is above a single policy and above "
        f"independent agents, all with the same estimator, in {verdicts.count('holds')} of {len(verdicts)} comparisons "
        f"({verdicts.count('undecided')} undecided). This page took {seconds:.0f} seconds.</p>"
    )


def _steps(ablation: Ablation) -> str:
    tables = []
    for setting in ablation.settings:

        def text(credit: str, optimizer: str, setting: Setting = setting) -> Value:
            variant = ablation.best(Pair(credit, optimizer))
            outcome, times = ablation.outcome(setting, variant), ablation.times_fewer(setting, variant)
            steps = [_NEVER if each is None else f"{each:,}" for each in outcome[1:]]
            fewer = "" if times is None else f" ({times:,.0f} x fewer)"
            return Value(f"{steps[0]}{fewer} · {steps[1]} · {steps[2]}")

        optimizers = ablation.config.optimizers
        rows = [(credit, [text(credit, optimizer) for optimizer in optimizers]) for credit in ablation.config.credits]
        paper = f"{setting}: the paper's preset spends {ablation.paper_steps[setting]:,}"
        tables.append(value_table(("credit", *optimizers), rows, paper))
    return (
        "<p>Environment steps of one team until the mean entropy over the seeds reaches what the paper's preset has at its "
        "end · 95% of the ceiling · 99% of it. In the -stoc worlds the ceiling is an upper bound that nothing may reach.</p>"
        + "".join(tables)
    )


def _percentages(ablation: Ablation) -> str:
    rows = [
        (
            f"{pair.credit}, {pair.optimizer}",
            [
                Value(f"{rate:g}"),
                *(Value(_percent(ablation, setting, ablation.best(pair))) for setting in ablation.settings),
            ],
        )
        for pair, rate in ablation.rates.items()
    ]
    rates = "; ".join(f"{name} {', '.join(f'{rate:g}' for rate in tried)}" for name, tried in LEARNING_RATES.items())
    return (
        f"<p>After {ablation.config.updates:,} updates; mean over seeds, and the lowest seed. Everything but credit, optimiser "
        f"and learning rate is as in the defaults. Of the learning rates that were tried ({escape(rates)}), the one that "
        "serves best on average over the settings is shown.</p>"
        + value_table(("credit and optimiser", "learning rate", *map(str, ablation.settings)), rows)
    )


def _parts(ablation: Ablation) -> str:
    def updates(setting: Setting, variant: str) -> str:
        steps = ablation.outcome(setting, variant).steps_to_paper
        run = ablation.runs[setting, variant]
        return _NEVER if steps is None else f"{steps * int(run.updates[-1]) // int(run.steps[-1])} updates"

    rows = [
        (
            variant,
            [Value(f"{_percent(ablation, setting, variant)} · {updates(setting, variant)}") for setting in ablation.settings],
        )
        for variant in (DEFAULTS, *PARTS)
    ]
    return (
        "<p>Percentage of the ceiling at the end (mean over seeds, and the lowest seed) · updates until the paper's final "
        "entropy.</p>" + value_table(("", *map(str, ablation.settings)), rows)
    )


def _variances(ablation: Ablation) -> str:
    columns = [*CREDITS, COMBINED]
    rows = [
        (
            f"{setting}, {stage}",
            [Value(f"{found[credit]:.3g}") for credit in columns]
            + [Value("yes", "holds") if is_ordered(found) else Value("no", "fails")],
        )
        for (setting, stage), found in ablation.variances.items()
    ]
    return (
        "<p>The trace of the covariance of one batch's gradient, for the teams that the defaults train: at the start, halfway "
        f"and at the end ({', '.join(STAGES)}). All credits see the same {ablation.config.batches} batches of each seed's "
        "team.</p>" + value_table(("setting and stage", *columns, "falls from left to right"), rows)
    )


def _together(ablation: Ablation) -> str:
    found = comparisons(ablation)

    def text(setting: Setting, baseline: str) -> Value:
        difference = found[setting, baseline]
        interval = f" ({difference.low:+.2f} to {difference.high:+.2f})" if np.isfinite(difference.low) else ""
        return Value(f"{difference.value:+.2f}{interval}, {difference.verdict}", _KINDS[difference.verdict])

    rows = [
        (
            str(setting),
            [
                Value(_percent(ablation, setting, DEFAULTS)),
                *(Value(_percent(ablation, setting, baseline)) for baseline in BASELINES),
                *(text(setting, baseline) for baseline in BASELINES),
            ],
        )
        for setting in ablation.settings
    ]
    head = ("setting", "team", "one policy", "independent agents", "team above one policy", "team above independent agents")
    return (
        "<p>The paper's claim, with everybody trained by the best estimator: a team trained together, one policy that plays as "
        "many trajectories, and agents trained each for its own entropy alone, whose states are then pooled. Percentages of "
        "the ceiling, and differences in points with 95% bootstrap intervals over seeds.</p>" + value_table(head, rows)
    )


def _settings(ablation: Ablation) -> str:
    config = ablation.config
    first = ablation.runs[ablation.settings[0], DEFAULTS]
    presets = {
        f"preset {name}": ", ".join(f"{key} {value}" for key, value in preset.items()) for name, preset in PRESETS.items()
    }
    rows = {
        "worlds": ", ".join(config.worlds),
        "agents (m)": ", ".join(map(str, config.agents)),
        "batch size (B)": str(first.config.batch_size),
        "updates (N)": f"{config.updates:,}; the paper's preset {config.paper_updates:,}",
        "seeds": ", ".join(map(str, config.seed_values)),
        **presets,
        "final values": "mean over the last 1% of updates",
        "device": first.summary["device"],
        "versions": ", ".join(f"{name} {version(name)}" for name in ("farflung", "jax", "numpy", "scipy"))
        + f", Python {platform.python_version()}",
    }
    return (
        definition_table(rows) + "<p>The numbers are in <code>data/</code>, the figures in <code>figures/</code>, "
        "the trained runs in <code>runs/</code>.</p>"
    )


def _percent(ablation: Ablation, setting: Setting, variant: str) -> str:
    percentages = ablation.outcome(setting, variant).percentages
    return f"{percentages.mean():.2f}% ({percentages.min():.1f})"
