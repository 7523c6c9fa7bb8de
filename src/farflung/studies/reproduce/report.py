"""A reproduction as one self-contained HTML page, with its figures and numbers as files beside it."""

import dataclasses
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

from farflung.config import Concentration
from farflung.config.reading import member
from farflung.data.q_learning import goals_of
from farflung.figures.pages import Picture
from farflung.runs.files import save_figure, to_csv, write_atomically
from farflung.runs.run import Run
from farflung.studies.concentration.experiment import as_distributions, measure_concentration
from farflung.studies.concentration.figures import concentrated
from farflung.studies.reproduce import figures as paper
from farflung.studies.reproduce.claims import Cell, Claim, Findings, claims
from farflung.studies.reproduce.experiment import Reproduction
from farflung.studies.reproduce.page import count_verdicts, page

Figures = dict[str, tuple[str, str, Callable[[], Figure]]]
"""Name, title, caption and maker of each figure of a page."""


def write_report(reproduction: Reproduction, out: Path, began: float, executor: Executor | None = None) -> dict[str, Any]:
    """Writes `index.html`, `figures/` and `data/` into the folder `out` and returns a summary.

    Args:
        began: when the work behind it began, by `time.perf_counter()`.
        executor: draws the figures side by side; without one they are drawn one after the other.
    """
    by_schedule = {schedule: list(claims(findings)) for schedule, findings in reproduction.findings.items()}
    seconds = write_page(
        out,
        _figures(reproduction),
        _tables(reproduction, by_schedule),
        lambda pictures: page(reproduction, by_schedule, pictures, time.perf_counter() - began),
        began,
        executor,
    )
    return {
        "farflung": version("farflung"),
        "page": str(out / "index.html"),
        "seconds": seconds,
        "preview": reproduction.config.quick,
        "seeds": list(reproduction.config.seed_values),
        "updates": reproduction.config.updates,
        "claims": {schedule: count_verdicts(found) for schedule, found in by_schedule.items()},
    }


def write_page(
    out: Path,
    figures: Figures,
    tables: Mapping[str, Sequence[Sequence[object]]],
    text: Callable[[Sequence[Picture]], str],
    began: float,
    executor: Executor | None = None,
) -> float:
    """Writes the figures, the tables and then the page that shows them, and returns the seconds since the work began."""
    try:
        pictures = _save_figures(figures, out / "figures", executor)
        data = member(out, "data")
        data.mkdir(exist_ok=True)
        for name, rows in tables.items():
            write_atomically(data / f"{name}.csv", to_csv(rows))
        write_atomically(out / "index.html", text(pictures))
    except OSError as error:
        raise ValueError(f"cannot write to {out}: {error.strerror or error}") from None
    return time.perf_counter() - began


def _figures(reproduction: Reproduction) -> Figures:
    """Name, title, caption and maker of each figure, in the paper's order."""
    schedule = reproduction.config.schedules[0]
    runs = {cell: _on_host(run) for cell, run in reproduction.runs[schedule].items()}
    findings = reproduction.findings[schedule]
    worlds = {cell.world: run.table for cell, run in runs.items()}
    goals = {name: np.asarray(goals_of(world)) for name, world in worlds.items()}
    agents = findings.agents
    ends = [agents[0], agents[-1]] if len(agents) > 1 else agents
    most = agents[-1]
    sampled = next((name for name in reversed(worlds) if name.endswith("-det")), next(iter(worlds)))
    seeds = f"Mean and 95% confidence interval (Student's t) over {reproduction.config.seeds} seeds."
    typical = "The seed with the median final entropy is shown."
    figures: Figures = {
        "worlds": (
            "The worlds",
            "The paper's two maps. In the -stoc versions another action is taken than the chosen one with probability 0.2.",
            partial(paper.worlds_drawn, worlds),
        ),
        "learning-curves": (
            f"Entropy and support while learning, {' and '.join(map(str, ends))} agents (Figure 1)",
            "Solid: parallel agents. Dashed: one policy that plays as many trajectories. Dotted: what no policies exceed, "
            f"exact in the -det worlds. {seeds}",
            partial(paper.learning_curves, runs, findings, ends),
        ),
        "dataset-entropy": (
            "Entropy of the collected datasets (Figure 2)",
            "One trajectory per agent from the trained policies. Points are datasets, "
            f"{reproduction.config.datasets} for each seed. {seeds}",
            partial(paper.dataset_entropies, findings),
        ),
        "offline-success": (
            "Offline RL: success for each goal (Figure 3)",
            f"Tabular Q-learning on the datasets of {most} trajectories, relabelled for each goal in turn; mean over seeds "
            "and datasets.",
            partial(paper.goal_success_sorted, findings, most),
        ),
        "entropy-variance": (
            "Entropy and variance of a Bernoulli variable (Figure 4)",
            "The ratio in the proof of Theorem 4.1: smallest at p = 1/2.",
            paper.entropy_and_variance,
        ),
        "learning-curves-all": (
            f"Entropy and support while learning, {', '.join(map(str, agents))} agents (Figure 7)",
            f"As Figure 1, with all team sizes. {seeds}",
            partial(paper.learning_curves, runs, findings, agents),
        ),
        "occupancy": (
            "Where the agents go (Figure 8)",
            f"The exact distribution of the visited states under the trained policies. {typical}",
            partial(paper.occupancies, runs, findings, most),
        ),
        "goal-reachability": (
            "Offline RL: which goals are reached (Figure 9)",
            f"The success rates of Figure 3 on the map. Datasets of {most} trajectories; mean over seeds and datasets.",
            partial(paper.goal_success_maps, findings, worlds, goals, most),
        ),
    }
    for world in [name for name in worlds if name.endswith("-det")] or list(worlds)[:1]:
        figures[f"policies-{world}"] = (
            f"Policies of a single agent and of {most} parallel ones, {world} (Figure 10)",
            f"The likeliest action wherever the agent goes; the darker, the more deterministic. {typical}",
            partial(paper.policies, runs, findings, world, most),
        )
    figures["concentration"] = (
        f"How many samples show the entropy, {sampled} (Theorem 4.1)",
        f"Samples from the state distributions of {most} trained agents, of each of them, and of the single agent; mean over "
        "seeds.",
        partial(_concentration, findings, sampled, most),
    )
    if len(agents) < 3:
        del figures["learning-curves-all"]
    return figures


def _concentration(findings: Findings, world: str, agents: int) -> Figure:
    team, single = (as_distributions(findings.occupancy[Cell(world, agents, kind)]) for kind in ("team", "single"))
    return concentrated(measure_concentration(Concentration(world, agents=agents, draws=150), team, single))


def _save_figures(figures: Figures, folder: Path, executor: Executor | None) -> list[Picture]:
    """Saves each figure as PNG and SVG and returns name, title, caption and SVG; the folder is replaced as a whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    pictures = []
    fresh = folder.parent / f".{folder.name}"
    shutil.rmtree(fresh, ignore_errors=True)  # of somebody who was killed
    fresh.mkdir()
    try:
        jobs = [make for *_, make in figures.values()], [fresh / name for name in figures]
        for _ in executor.map(_draw, *jobs) if executor is not None else map(_draw, *jobs):
            pass
        for name, (title, caption, _) in figures.items():
            pictures.append(Picture(name, title, caption, (fresh / f"{name}.svg").read_bytes()))
        if folder.exists():
            shutil.rmtree(folder)
        fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return pictures


def _draw(make: Callable[[], Figure], path: Path) -> None:
    save_figure(make(), path)


def _on_host(run: Run) -> Run:
    """The same without arrays that live on a device, so that another process can draw it."""
    team, world = jax.tree.map(np.asarray, (run.policies, run.world))
    return dataclasses.replace(run, policies=team, world=world)


def _tables(reproduction: Reproduction, by_schedule: Mapping[str, Sequence[Claim]]) -> dict[str, list[Sequence[object]]]:
    seeds = reproduction.config.seed_values
    final: list[Sequence[object]] = [("schedule", "world", "agents", "kind", "seed", "metric", "value")]
    data: list[Sequence[object]] = [("schedule", "world", "agents", "kind", "seed", "dataset", "normalized_entropy")]
    success: list[Sequence[object]] = [("schedule", "world", "agents", "kind", "seed", "goal", "success_rate")]
    timings: list[Sequence[object]] = [
        ("schedule", "world", "agents", "kind", "environment_steps", "seconds", "compile_seconds")
    ]
    ceilings: list[Sequence[object]] = [
        ("schedule", "world", "agents", "bound", "normalized_bound", "exact", "method", "team_percent", "single_percent")
    ]
    needed: list[Sequence[object]] = [("schedule", "world", "agents", "kind", "seed", "samples_needed", "samples_needed_alone")]
    decided: list[Sequence[object]] = [
        ("schedule", "claim", "where", "world", "agents", "difference", "low", "high", "unit", "verdict")
    ]
    for schedule, findings in reproduction.findings.items():
        for cell, metrics in findings.final.items():
            final += [
                (schedule, *cell, seed, name, value)
                for name, values in metrics.items()
                for seed, value in zip(seeds, values.tolist(), strict=True)
            ]
        for cell, entropies in findings.dataset_entropy.items():
            data += [
                (schedule, *cell, seed, number, value)
                for seed, row in zip(seeds, entropies.tolist(), strict=True)
                for number, value in enumerate(row)
            ]
        for (name, agents), found in findings.ceilings.items():
            percent = [findings.percent_of_ceiling(Cell(name, agents, kind)).mean() for kind in ("team", "single")]
            bound = (found.bound, found.normalized_bound, found.exact, found.method)
            ceilings.append((schedule, name, agents, *bound, *percent))
        for cell, together in findings.samples_needed.items():
            columns = (seeds, together.tolist(), findings.samples_needed_alone[cell].tolist())
            needed += [(schedule, *cell, *row) for row in zip(*columns, strict=True)]
        for cell, rates in findings.success.items():
            world = reproduction.runs[schedule][Cell(cell.world, cell.agents, "team")].table
            labels = np.asarray(world.labels)[np.asarray(goals_of(world))].tolist()
            success += [
                (schedule, *cell, seed, goal, rate)
                for seed, row in zip(seeds, rates.tolist(), strict=True)
                for goal, rate in zip(labels, row, strict=True)
            ]
    for schedule, runs in reproduction.runs.items():
        for cell, run in runs.items():
            summary = [run.summary[key] for key in ("environment_steps", "seconds", "compile_seconds")]
            timings.append((schedule, *cell, *summary))
    for schedule, own in by_schedule.items():
        decided += [
            (schedule, c.statement, c.where, c.world, c.agents, *c.difference, c.unit, c.difference.verdict) for c in own
        ]
    return {
        "claims": decided,
        "final": final,
        "ceilings": ceilings,
        "datasets": data,
        "offline": success,
        "samples": needed,
        "timings": timings,
    }
