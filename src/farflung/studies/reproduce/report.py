"""The page of a reproduction, with its figures and numbers as files beside it."""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import matplotlib as mpl
import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy import special

from farflung.config import Concentration
from farflung.data.q_learning import PAPER, goals_of
from farflung.figures.curves import draw_ceiling, draw_curve
from farflung.figures.maps import draw_on_map, draw_policy
from farflung.figures.pages import VERDICT_CLASSES, Plot, Table, Value, versions, write_page
from farflung.figures.style import BLUE, GREEN, GREY, ORANGE, STYLE, VISITS
from farflung.runs.destinations import Destination
from farflung.runs.run import Run, typical_seed
from farflung.runs.statistics import mean_and_interval
from farflung.studies.concentration.experiment import as_distributions, measure_concentration
from farflung.studies.concentration.figures import concentrated
from farflung.studies.reproduce.claims import Cell, Claim, Findings, claims
from farflung.studies.reproduce.experiment import Reproduction
from farflung.worlds.tabular import TabularMDP, reachable_states

_SCHEDULE_NAMES = {"code": "constant 0.15 (the paper's code)", "text": "0.1, decaying by 0.999 per update (the paper's text)"}
_COLORS = (ORANGE, GREEN, BLUE)
_KINDS = {"team": BLUE, "single": ORANGE, "random": GREY}
_Runs = Mapping[Cell, Run]
_Claims = Mapping[str, Sequence[Claim]]
"""The decided claims, by learning-rate schedule."""


def write_report(
    reproduction: Reproduction, out: str | Path | Destination, began: float, executor: Executor | None = None
) -> dict[str, Any]:
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
    rows = []
    for statement in counts[0]:
        verdicts = [each for own in counts for each in own[statement].items()]
        rows.append((statement, [Value(str(num), VERDICT_CLASSES[name] if num else "none") for name, num in verdicts]))
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
    runs = {}
    for cell, run in reproduction.runs[schedule].items():
        team, world = jax.tree.map(np.asarray, (run.policies, run.world))  # another process cannot draw JAX arrays
        runs[cell] = dataclasses.replace(run, policies=team, world=world)
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
            partial(_draw_worlds, worlds),
        ),
        "learning-curves": Plot(
            f"Entropy and support during training, {' and '.join(map(str, ends))} agents (Figure 1)",
            "Solid: parallel agents. Dashed: one policy that plays as many trajectories. Dotted: the ceiling, which no "
            f"policies exceed; exact in the -det worlds. {seeds}",
            partial(_draw_learning_curves, runs, findings, ends),
        ),
        "dataset-entropy": Plot(
            "Entropy of the collected datasets (Figure 2)",
            "The trained policies collect one trajectory per agent. Each point is a dataset; each seed has "
            f"{reproduction.config.datasets}. {seeds}",
            partial(_draw_dataset_entropies, findings),
        ),
        "offline-success": Plot(
            "Offline RL: success rate for each goal (Figure 3)",
            f"Tabular Q-learning on datasets of {most} trajectories, relabelled for each goal. Mean over seeds and datasets.",
            partial(_draw_goal_success_sorted, findings, most),
        ),
        "entropy-variance": Plot(
            "Entropy and variance of a Bernoulli variable (Figure 4)",
            "The ratio in the proof of Theorem 4.1 is smallest at p = 1/2.",
            _draw_entropy_and_variance,
        ),
        "learning-curves-all": Plot(
            f"Entropy and support during training, {', '.join(map(str, agents))} agents (Figure 7)",
            f"As Figure 1, with all team sizes. {seeds}",
            partial(_draw_learning_curves, runs, findings, agents),
        ),
        "occupancy": Plot(
            "State occupancy (Figure 8)",
            f"The exact distribution of the visited states under the trained policies. {typical}",
            partial(_draw_occupancies, runs, findings, most),
        ),
        "goal-reachability": Plot(
            "Offline RL: success rates on the map (Figure 9)",
            f"The success rates of Figure 3, for datasets of {most} trajectories. Mean over seeds and datasets.",
            partial(_draw_goal_success_maps, findings, worlds, goals, most),
        ),
    }
    for world in deterministic:
        plots[f"policies-{world}"] = Plot(
            f"Policies of a single agent and of {most} parallel agents, {world} (Figure 10)",
            f"The most likely action in each state that the agent visits; darker means more deterministic. {typical}",
            partial(_draw_policies, runs, findings, world, most),
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


@mpl.rc_context(STYLE)
def _draw_worlds(worlds: Mapping[str, TabularMDP]) -> Figure:
    """The maps, with the distance of each cell from the start."""
    families = {name.split("-")[0]: world for name, world in worlds.items()}
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.subplots(1, len(families), squeeze=False)[0]
    for axis, (name, world) in zip(axes, families.items(), strict=True):
        tables = (world.successors, world.probabilities, world.start_distribution)
        _, distances = reachable_states(*(np.asarray(table) for table in tables))
        image = draw_on_map(axis, world, distances.astype(float))
        axis.set_title(f"{name.capitalize()}: {world.num_states} states, horizon {world.horizon}")
    figure.colorbar(image, ax=axes, label="steps from the start (S)", shrink=0.8)
    return figure


@mpl.rc_context(STYLE)
def _draw_learning_curves(runs: _Runs, findings: Findings, agents: Sequence[int]) -> Figure:
    """Entropy and support against updates: teams solid, single agents (as many trajectories) dashed, ceilings dotted."""
    worlds = list(dict.fromkeys(cell.world for cell in runs))
    figure = Figure(figsize=(3 * max(2, len(worlds)), 5.2), layout="constrained")
    rows = figure.subplots(2, len(worlds), sharex=True, sharey="row", squeeze=False)
    for column, world in enumerate(worlds):
        rows[0, column].set_title(world)
        rows[1, column].set_xlabel("policy updates")
        for axis, metric in zip(rows[:, column], ("normalized_entropy", "support"), strict=True):
            axis.grid(alpha=0.25)
            for number, color in zip(agents, _colors(agents), strict=True):
                draw_curve(axis, runs[Cell(world, number, "team")], metric, color=color)
                draw_curve(axis, runs[Cell(world, number, "single")], metric, color=color, ls="--")
                if metric == "normalized_entropy":
                    draw_ceiling(axis, findings.ceilings[world, number].normalized_bound, color=color)
    rows[0, 0].set_ylabel("state entropy / log(states)")
    rows[1, 0].set_ylabel("distinct states visited")
    handles = []
    for number, color in zip(agents, _colors(agents), strict=True):
        handles.append(Line2D([], [], color=color, label=f"{number} agents"))
        handles.append(Line2D([], [], color=color, ls="--", label=f"1 agent, {number} trajectories"))
        handles.append(Line2D([], [], color=color, ls=":", label=f"ceiling for {number}"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(agents), frameon=False)
    return figure


@mpl.rc_context(STYLE)
def _draw_dataset_entropies(findings: Findings) -> Figure:
    """The entropy of datasets of m trajectories: a point per dataset, with mean and 95% interval over seeds."""
    figure = Figure(figsize=(3 * max(2, len(findings.worlds)), 3.2), layout="constrained")
    axes = figure.subplots(1, len(findings.worlds), sharey=True, squeeze=False)[0]
    for axis, world in zip(axes, findings.worlds, strict=True):
        for place, agents in enumerate(findings.agents):
            for offset, (kind, color) in zip((-0.27, 0, 0.27), _KINDS.items(), strict=True):
                values = findings.dataset_entropy[Cell(world, agents, kind)]
                mean, half_width = mean_and_interval(values.mean(axis=1))
                x = place + offset
                spread = np.linspace(-0.1, -0.02, values.size)
                axis.plot(x + spread, values.flat, "o", ms=2.5, color=color, alpha=0.3, mew=0)
                axis.errorbar(x + 0.06, mean, half_width, fmt="s", ms=4, color=color, capsize=2)
        axis.set_xticks(range(len(findings.agents)), [str(agents) for agents in findings.agents])
        axis.set_xlabel("trajectories in the dataset (m)")
        axis.set_title(world)
        axis.grid(alpha=0.25, axis="y")
    axes[0].set_ylabel("dataset entropy / log(states)")
    labels = {"team": "m parallel agents", "single": "1 agent", "random": "random policy"}
    handles = [Line2D([], [], color=color, marker="s", ls="", label=labels[kind]) for kind, color in _KINDS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


@mpl.rc_context(STYLE)
def _draw_goal_success_sorted(findings: Findings, agents: int) -> Figure:
    """The success rate of offline Q-learning for each goal, sorted."""
    worlds = _deterministic(findings.worlds)
    figure = Figure(figsize=(9, 1.9 * len(worlds) + 0.8), layout="constrained")
    rows = figure.subplots(len(worlds), 3, sharex=True, sharey=True, squeeze=False)
    for row, world in zip(rows, worlds, strict=True):
        for axis, (kind, color) in zip(row, _KINDS.items(), strict=True):
            success = findings.success[Cell(world, agents, kind)].mean(axis=0)
            axis.bar(np.arange(1, len(success) + 1), np.sort(success)[::-1], width=1, color=color)
            axis.set_title(f"{world}, {_data_name(kind, agents)}: mean {success.mean():.2f}", fontsize=9)
            axis.set_ylim(0, 1)
        row[0].set_ylabel("success rate")
    for axis in rows[-1]:
        axis.set_xlabel("goals, best first")
    return figure


@mpl.rc_context(STYLE)
def _draw_goal_success_maps(
    findings: Findings, worlds: Mapping[str, TabularMDP], goals: Mapping[str, np.ndarray], agents: int
) -> Figure:
    """The success rate of offline Q-learning for each goal, on the map."""
    names = _deterministic(findings.worlds)
    figure = Figure(figsize=(10, 2.3 * len(names) + 0.6), layout="constrained")
    rows = figure.subplots(len(names), 3, squeeze=False)
    for row, name in zip(rows, names, strict=True):
        for axis, kind in zip(row, _KINDS, strict=True):
            values = np.full(worlds[name].num_states, np.nan)
            values[goals[name]] = findings.success[Cell(name, agents, kind)].mean(axis=0)
            image = draw_on_map(axis, worlds[name], values, Normalize(0, 1))
            axis.set_title(f"{name}, {_data_name(kind, agents)}", fontsize=9)
    figure.colorbar(image, ax=rows, label="success rate", shrink=0.8)
    return figure


@mpl.rc_context(STYLE)
def _draw_occupancies(runs: _Runs, findings: Findings, agents: int) -> Figure:
    """The visits of a team and of a single agent, in the Maze if it was trained."""
    worlds = list(dict.fromkeys(cell.world for cell in runs))
    names = [world for world in worlds if world.startswith("maze")] or worlds[:2]
    figure = Figure(figsize=(3.4 * 2 + 1, 3.2 * len(names)), layout="constrained")
    rows = figure.subplots(len(names), 2, squeeze=False)
    visits = {}
    for name in names:
        for kind in ("team", "single"):
            cell = Cell(name, agents, kind)
            row = runs[cell].config.seeds.index(typical_seed(runs[cell]))
            visits[name, kind] = findings.occupancy[cell][row].mean(axis=0)
    norm = Normalize(0, float(max(values.max() for values in visits.values())))
    for row, name in zip(rows, names, strict=True):
        for axis, kind in zip(row, ("team", "single"), strict=True):
            image = draw_on_map(axis, runs[Cell(name, agents, kind)].table, visits[name, kind], norm)
            axis.set_title(f"{name}, {f'{agents} agents' if kind == 'team' else f'1 agent, {agents} trajectories'}")
    figure.colorbar(image, ax=rows, label=VISITS, shrink=0.7)
    return figure


@mpl.rc_context(STYLE)
def _draw_policies(runs: _Runs, findings: Findings, world: str, agents: int) -> Figure:
    """The most likely action of each policy as arrows; darker arrows are more likely."""
    columns = min(4, agents + 1)
    num_rows = -(-(agents + 1) // columns)
    is_tall = world.startswith("maze")
    figure = Figure(figsize=(2.9 * columns, (2.9 if is_tall else 1.7) * num_rows + 0.7), layout="constrained")
    axes = figure.subplots(num_rows, columns, squeeze=False).flat
    tables = []
    for name, kind in (("single agent", "single"), ("parallel agent", "team")):
        cell = Cell(world, agents, kind)
        run = runs[cell]
        row = run.config.seeds.index(typical_seed(run))
        probabilities = special.softmax(np.asarray(run.policies.logits[row]), axis=-1)
        tables += [(name, *table) for table in zip(probabilities, findings.occupancy[cell][row], strict=True)]
    for number, (axis, (name, probabilities, visits)) in enumerate(zip(axes, tables, strict=False)):
        image = draw_policy(axis, run.table, probabilities, visits)
        axis.set_title(f"{name} {number}" if number else name, fontsize=9)
    for axis in list(figure.axes)[len(tables) :]:
        axis.set_axis_off()
    figure.colorbar(image, ax=figure.axes[: len(tables)], label="probability of the likeliest action", shrink=0.6)
    figure.suptitle(world, fontweight="bold")
    return figure


@mpl.rc_context(STYLE)
def _draw_entropy_and_variance() -> Figure:
    """Entropy and variance of a Bernoulli variable, and their ratio (the figure in the proof of Theorem 4.1)."""
    share = np.linspace(0.01, 0.99, 400)
    entropy = -share * np.log2(share) - (1 - share) * np.log2(1 - share)
    variance = share * (1 - share)
    figure = Figure(figsize=(6.5, 3.4), layout="constrained")
    axis = figure.subplots()
    axis.plot(share, entropy, color=BLUE, label="entropy H(p), in bits")
    axis.plot(share, variance, color=ORANGE, ls="--", label="variance p (1 - p)")
    axis.plot(share, variance / entropy**2, color=GREY, ls=":", lw=2, label="variance / entropy²")
    axis.set(xlabel="p", ylabel="value", ylim=(0, 2))
    axis.grid(alpha=0.25)
    axis.legend(frameon=False)
    return figure


def _deterministic(worlds: Sequence[str]) -> list[str]:
    return [world for world in worlds if world.endswith("-det")] or list(worlds)


def _colors(agents: Sequence[int]) -> Sequence[str]:
    return _COLORS[3 - len(agents) :] if len(agents) <= 3 else [f"C{number}" for number in range(len(agents))]


def _data_name(kind: str, agents: int) -> str:
    return {"team": f"{agents} agents", "single": "1 agent", "random": "random policy"}[kind]
