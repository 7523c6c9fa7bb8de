"""An ablation as one self-contained HTML page, with its figures and numbers as files beside it."""

import time
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from farflung.config import PAPER_WORLDS
from farflung.studies.ablate import figures
from farflung.studies.ablate.experiment import BASELINES, DEFAULTS, PARTS, Ablation, Pair
from farflung.studies.ablate.page import ablation_page, comparisons
from farflung.studies.reproduce.report import Figures, write_page


def write_ablation(ablation: Ablation, out: Path, began: float) -> dict[str, Any]:
    """Writes `index.html`, `figures/` and `data/` into the folder `out` and returns a summary.

    Args:
        began: when the work behind it began, by `time.perf_counter()`.
    """
    seconds = write_page(
        out,
        _figures(ablation),
        _tables(ablation),
        lambda pictures: ablation_page(ablation, pictures, time.perf_counter() - began),
        began,
    )
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
    return {
        "farflung": version("farflung"),
        "page": str(out / "index.html"),
        "seconds": seconds,
        "preview": ablation.config.quick,
        "seeds": list(ablation.config.seed_values),
        "settings": rows,
    }


def _figures(ablation: Ablation) -> Figures:
    most = max(ablation.config.agents)
    seeds = f"over {ablation.config.seeds} seeds"
    worlds = len([world for world in PAPER_WORLDS if world in ablation.config.worlds])
    return {
        "curves": (
            f"Entropy against environment steps, {most} agents",
            f"Mean and 95% confidence interval {seeds}; each credit with {figures.shown_optimizer(ablation)} at the learning "
            f"rate that serves it best, "
            f"and the paper's preset, in {worlds} worlds. The axis of steps is logarithmic.",
            partial(figures.credit_curves, ablation, most),
        ),
        "variance": (
            f"How much the gradient varies, {most} agents",
            f"Variance of one batch's gradient for the same teams and batches; mean {seeds}. The axis is logarithmic.",
            partial(figures.gradient_variance, ablation, most),
        ),
        "together": (
            "Trained together, as one policy, or each for itself",
            f"All with causal credit and Adam; mean and 95% confidence interval {seeds}.",
            partial(figures.together_or_not, ablation),
        ),
    }


def _tables(ablation: Ablation) -> dict[str, list[Sequence[object]]]:
    variants = {pair: (ablation.best(pair), rate) for pair, rate in ablation.rates.items()}
    named = {Pair(name, ""): (name, None) for name in ("paper", DEFAULTS, *PARTS, *BASELINES)}
    outcomes: list[Sequence[object]] = [
        ("world", "agents", "variant", "optimizer", "learning_rate", "seed", "percent_of_ceiling")
    ]
    steps: list[Sequence[object]] = [
        (
            "world",
            "agents",
            "variant",
            "optimizer",
            "learning_rate",
            "steps_to_paper",
            "times_fewer",
            "steps_to_95",
            "steps_to_99",
        )
    ]
    for setting in ablation.settings:
        for pair, (variant, rate) in {**variants, **named}.items():
            row = (*setting, pair.credit, pair.optimizer, rate)
            outcome = ablation.outcome(setting, variant)
            outcomes += [
                (*row, seed, percent)
                for seed, percent in zip(ablation.config.seed_values, outcome.percentages.tolist(), strict=True)
            ]
            steps.append((*row, outcome.steps_to_paper, ablation.times_fewer(setting, variant), *outcome[2:]))
    variances: list[Sequence[object]] = [("world", "agents", "stage", "credit", "variance")]
    for (setting, stage), found in ablation.variances.items():
        variances += [(*setting, stage, credit, variance) for credit, variance in found.items()]
    together: list[Sequence[object]] = [("world", "agents", "above", "difference", "low", "high", "verdict")]
    together += [(*setting, name, *found, found.verdict) for (setting, name), found in comparisons(ablation).items()]
    return {"percentages": outcomes, "steps": steps, "variances": variances, "together": together}
