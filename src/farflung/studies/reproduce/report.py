"""The page of a reproduction, with its figures and numbers as files beside it."""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

from farflung.config import Concentration
from farflung.data.q_learning import PAPER, goals_of
from farflung.figures.pages import VERDICT_CLASSES, Plot, Table, Value, versions, write_page
from farflung.runs.run import Run
from farflung.studies.concentration.experiment import as_distributions, measure_concentration
from farflung.studies.concentration.figures import concentrated
from farflung.studies.reproduce import figures as paper
from farflung.studies.reproduce.claims import Cell, Claim, Findings, claims
from farflung.studies.reproduce.experiment import Reproduction

_SCHEDULE_NAMES = {"code": "constant 0.15 (the paper's code)", "text": "0.1, decaying by 0.999 per update (the paper's text)"}
_Claims = Mapping[str, Sequence[Claim]]
"""The decided claims, by learning-rate schedule."""


def write_report(reproduction: Reproduction, out: Path, began: float, executor: Executor | None = None) -> dict[str, Any]:
    """Writes `index.html`, `figures/` and `data/` into the folder `out` and returns a summary.

    Args:
        began: when the work behind the page began, by `time.perf_counter()`.
        executor: draws the figures in parallel.
    """
    by_schedule = {schedule: list(claims(findings)) for schedule, findings in reproduction.findings.items()}
    tables = _tables(reproduction, by_schedule)
    values = _values(reproduction, by_schedule)
    summary = write_page("reproduce.html.j2", values, _plots(reproduction), tables, out, began, executor)
    verdicts = {schedule: _count_verdicts(found) for schedule, found in by_schedule.items()}
    return summary | {"updates": reproduction.config.updates, "claims": verdicts}


def _values(reproduction: Reproduction, by_schedule: _Claims) -> dict[str, Any]:
    """The values that the template of the page shows."""
    runs = [run for own in reproduction.runs.values() for run in own.values()]
    # Runs that were trained side by side have the same timings, to the last digit.
    timings = {(run.summary["seconds"], run.summary["compile_seconds"]) for run in runs}
    training_seconds, compile_seconds = (sum(column) for column in zip(*timings, strict=True))
    return {
        "config": reproduction.config,
        "num_runs": len(runs),
        "environment_steps": sum(run.summary["environment_steps"] for run in runs),
        "training_seconds": training_seconds,
        "compile_seconds": compile_seconds,
        "agreement": _agreement(by_schedule),
        "verdicts": _verdict_table(by_schedule),
        "chance": next(iter(reproduction.findings.values())).untrained_success,
        "claims": list(_claim_sections(by_schedule)),
        "ceilings": _ceiling_table(reproduction),
        "settings": _settings(reproduction, runs[0]),
    }


def _agreement(by_schedule: _Claims) -> dict[str, int] | None:
    """In how many settings the paper's two learning rates lead to the same verdict; None with one learning rate."""
    if len(by_schedule) < 2:
        return None
    pairs = list(zip(*([claim.difference.verdict for claim in found] for found in by_schedule.values()), strict=True))
    return {
        "settings": len(pairs),
        "same": sum(code == text for code, text in pairs),
        "opposite": sum({code, text} == {"holds", "does not hold"} for code, text in pairs),
    }


def _verdict_table(by_schedule: _Claims) -> Table:
    counts = [_count_verdicts(found) for found in by_schedule.values()]
    rows = [
        (
            statement,
            [
                Value(str(number), VERDICT_CLASSES[verdict] if number else "none")
                for own in counts
                for verdict, number in own[statement].items()
            ],
        )
        for statement in counts[0]
    ]
    groups = [_SCHEDULE_NAMES[schedule] for schedule in by_schedule]
    return Table(["claim"], rows, groups=groups, columns=list(VERDICT_CLASSES))


def _count_verdicts(found: Sequence[Claim]) -> dict[str, dict[str, int]]:
    """In how many settings each claim has which verdict."""
    counts: dict[str, Counter[str]] = {}
    for claim in found:
        counts.setdefault(claim.statement, Counter(dict.fromkeys(VERDICT_CLASSES, 0)))[claim.difference.verdict] += 1
    return {statement: dict(verdicts) for statement, verdicts in counts.items()}


def _claim_sections(by_schedule: _Claims) -> Iterator[dict[str, Any]]:
    """Each claim with a table of differences for each learning rate."""
    for statement in dict.fromkeys(claim.statement for found in by_schedule.values() for claim in found):
        tables = []
        for schedule, found in by_schedule.items():
            own = [claim for claim in found if claim.statement == statement]
            head = ["world", *dict.fromkeys(f"m = {claim.agents}" for claim in own)]
            worlds = dict.fromkeys(claim.world for claim in own)
            rows = [(world, [_value(claim) for claim in own if claim.world == world]) for world in worlds]
            tables.append(Table(head, rows, f"learning rate {_SCHEDULE_NAMES[schedule]}"))
        first = next(claim for found in by_schedule.values() for claim in found if claim.statement == statement)
        yield {"statement": statement[0].upper() + statement[1:], "where": first.where, "unit": first.unit, "tables": tables}


def _value(claim: Claim) -> Value:
    value, low, high = claim.difference
    verdict = claim.difference.verdict
    interval = f"{low:+.3f} to {high:+.3f}" if np.isfinite(low) else "one seed"
    return Value(f"{value:+.3f}", VERDICT_CLASSES[verdict], (interval, verdict))


def _ceiling_table(reproduction: Reproduction) -> Table:
    rows = []
    for (world, agents), ceiling in next(iter(reproduction.findings.values())).ceilings.items():
        percentages = [
            findings.percent_of_ceiling(Cell(world, agents, kind)).mean()
            for findings in reproduction.findings.values()
            for kind in ("team", "single")
        ]
        texts = [f"{ceiling.normalized_bound:.4f}", "exact" if ceiling.exact else "upper bound"]
        texts += [f"{percentage:.1f}%" for percentage in percentages]
        rows.append((f"{world}, m\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{agents}", texts))
    head = ["setting", "ceiling, in units of log 43", "kind of ceiling"]
    groups = [_SCHEDULE_NAMES[schedule] for schedule in reproduction.findings]
    return Table(head, rows, groups=groups, columns=["parallel", "single"])


def _settings(reproduction: Reproduction, first: Run) -> dict[str, str]:
    config = reproduction.config
    return {
        "worlds": ", ".join(config.worlds),
        "agents (m)": ", ".join(map(str, config.agents)),
        "trajectories per agent (K)": "1; for the single agent K' = m",
        "batch size (B)": str(first.config.batch_size),
        "updates (N)": f"{config.updates:,}",
        "learning rate": "; ".join(_SCHEDULE_NAMES[schedule] for schedule in config.schedules),
        "seeds": ", ".join(map(str, config.seed_values)),
        "learning rate in the figures": _SCHEDULE_NAMES[config.schedules[0]],
        "final values": "mean over the last 1% of updates",
        "datasets": f"{config.datasets} per seed, with one trajectory per agent",
        "offline Q-learning": f"{PAPER.num_batches} minibatches of {PAPER.batch_size}, learning rate {PAPER.learning_rate}, "
        f"discount {PAPER.discount}; {PAPER.num_episodes} greedy episodes of at most {PAPER.max_steps} steps per goal",
        "device": first.summary["device"],
        "versions": versions(),
    }


def _plots(reproduction: Reproduction) -> dict[str, Plot]:
    """The figures by name, in the paper's order."""
    schedule = reproduction.config.schedules[0]
    runs = {cell: _on_host(run) for cell, run in reproduction.runs[schedule].items()}
    findings = reproduction.findings[schedule]
    worlds = {cell.world: run.table for cell, run in runs.items()}
    goals = {name: np.asarray(goals_of(world)) for name, world in worlds.items()}
    agents = findings.agents
    ends = [agents[0], agents[-1]] if len(agents) > 1 else agents
    most = agents[-1]
    deterministic = [name for name in worlds if name.endswith("-det")] or list(worlds)[:1]
    sampled = deterministic[-1]
    seeds = f"Mean and 95% confidence interval (Student's t) over {reproduction.config.seeds} seeds."
    typical = "The figure shows the seed with the median final entropy."
    plots = {
        "worlds": Plot(
            "The worlds",
            "The paper's two maps. In the -stoc worlds, another action than the chosen one is executed with probability 0.2.",
            partial(paper.worlds_drawn, worlds),
        ),
        "learning-curves": Plot(
            f"Entropy and support during training, {' and '.join(map(str, ends))} agents (Figure 1)",
            "Solid: parallel agents. Dashed: one policy that plays as many trajectories. Dotted: the ceiling, which no "
            f"policies exceed; exact in the -det worlds. {seeds}",
            partial(paper.learning_curves, runs, findings, ends),
        ),
        "dataset-entropy": Plot(
            "Entropy of the collected datasets (Figure 2)",
            "The trained policies collect one trajectory per agent. Each point is a dataset; each seed has "
            f"{reproduction.config.datasets}. {seeds}",
            partial(paper.dataset_entropies, findings),
        ),
        "offline-success": Plot(
            "Offline RL: success rate for each goal (Figure 3)",
            f"Tabular Q-learning on datasets of {most} trajectories, relabelled for each goal. Mean over seeds and datasets.",
            partial(paper.goal_success_sorted, findings, most),
        ),
        "entropy-variance": Plot(
            "Entropy and variance of a Bernoulli variable (Figure 4)",
            "The ratio in the proof of Theorem 4.1 is smallest at p = 1/2.",
            paper.entropy_and_variance,
        ),
        "learning-curves-all": Plot(
            f"Entropy and support during training, {', '.join(map(str, agents))} agents (Figure 7)",
            f"As Figure 1, with all team sizes. {seeds}",
            partial(paper.learning_curves, runs, findings, agents),
        ),
        "occupancy": Plot(
            "State occupancy (Figure 8)",
            f"The exact distribution of the visited states under the trained policies. {typical}",
            partial(paper.occupancies, runs, findings, most),
        ),
        "goal-reachability": Plot(
            "Offline RL: success rates on the map (Figure 9)",
            f"The success rates of Figure 3, for datasets of {most} trajectories. Mean over seeds and datasets.",
            partial(paper.goal_success_maps, findings, worlds, goals, most),
        ),
    }
    for world in deterministic:
        plots[f"policies-{world}"] = Plot(
            f"Policies of a single agent and of {most} parallel agents, {world} (Figure 10)",
            f"The most likely action in each state that the agent visits; darker means more deterministic. {typical}",
            partial(paper.policies, runs, findings, world, most),
        )
    plots["concentration"] = Plot(
        f"Samples needed to estimate the entropy, {sampled} (Theorem 4.1)",
        f"Samples from the state distribution of {most} trained agents, from that of each agent, and from that of the single "
        "agent. Mean over seeds.",
        partial(_concentration, findings, sampled, most),
    )
    if len(agents) < 3:
        del plots["learning-curves-all"]
    return plots


def _concentration(findings: Findings, world: str, agents: int) -> Figure:
    team, single = (as_distributions(findings.occupancy[Cell(world, agents, kind)]) for kind in ("team", "single"))
    return concentrated(measure_concentration(Concentration(world, agents=agents, draws=150), team, single))


def _on_host(run: Run) -> Run:
    """The run with NumPy arrays only, so that another process can draw it."""
    team, world = jax.tree.map(np.asarray, (run.policies, run.world))
    return dataclasses.replace(run, policies=team, world=world)


def _tables(reproduction: Reproduction, by_schedule: _Claims) -> dict[str, list[Sequence[object]]]:
    """The CSV files beside the page: by name, a row of column names and then the values."""
    seeds = reproduction.config.seed_values
    setting, cell_names = ("schedule", "world", "agents"), ("schedule", "world", "agents", "kind")
    bound_names = ("bound", "normalized_bound", "exact", "method", "team_percent", "single_percent")
    timing_names = ("environment_steps", "seconds", "compile_seconds")
    tables: dict[str, list[Sequence[object]]] = {
        "claims": [("schedule", "claim", "where", "world", "agents", "difference", "low", "high", "unit", "verdict")],
        "final": [(*cell_names, "seed", "metric", "value")],
        "ceilings": [(*setting, *bound_names)],
        "datasets": [(*cell_names, "seed", "dataset", "normalized_entropy")],
        "offline": [(*cell_names, "seed", "goal", "success_rate")],
        "samples": [(*cell_names, "seed", "samples_needed", "samples_needed_alone")],
        "timings": [(*cell_names, *timing_names)],
    }
    for schedule, found in by_schedule.items():
        tables["claims"] += [
            (schedule, c.statement, c.where, c.world, c.agents, *c.difference, c.unit, c.difference.verdict) for c in found
        ]
    for schedule, findings in reproduction.findings.items():
        for cell, metrics in findings.final.items():
            tables["final"] += [
                (schedule, *cell, seed, name, value)
                for name, values in metrics.items()
                for seed, value in zip(seeds, values.tolist(), strict=True)
            ]
        for (name, agents), ceiling in findings.ceilings.items():
            percent = [findings.percent_of_ceiling(Cell(name, agents, kind)).mean() for kind in ("team", "single")]
            bound = (ceiling.bound, ceiling.normalized_bound, ceiling.exact, ceiling.method)
            tables["ceilings"].append((schedule, name, agents, *bound, *percent))
        for cell, entropies in findings.dataset_entropy.items():
            tables["datasets"] += [
                (schedule, *cell, seed, number, value)
                for seed, row in zip(seeds, entropies.tolist(), strict=True)
                for number, value in enumerate(row)
            ]
        for cell, rates in findings.success.items():
            world = reproduction.runs[schedule][Cell(cell.world, cell.agents, "team")].table
            labels = np.asarray(world.labels)[np.asarray(goals_of(world))].tolist()
            tables["offline"] += [
                (schedule, *cell, seed, goal, rate)
                for seed, row in zip(seeds, rates.tolist(), strict=True)
                for goal, rate in zip(labels, row, strict=True)
            ]
        for cell, together in findings.samples_needed.items():
            columns = (seeds, together.tolist(), findings.samples_needed_alone[cell].tolist())
            tables["samples"] += [(schedule, *cell, *row) for row in zip(*columns, strict=True)]
    for schedule, runs in reproduction.runs.items():
        tables["timings"] += [(schedule, *cell, *(run.summary[name] for name in timing_names)) for cell, run in runs.items()]
    return tables
