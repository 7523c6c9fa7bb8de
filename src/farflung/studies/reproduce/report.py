"""The page of a reproduction, with its figures and numbers as files beside it."""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from matplotlib.figure import Figure

from farflung.data.q_learning import PAPER, goals_of
from farflung.figures.pages import VERDICT_CLASSES, Plot, Table, Value, versions, write_page
from farflung.runs.destinations import Destination
from farflung.runs.run import PAGE, Run
from farflung.runs.statistics import mean_and_interval
from farflung.studies.concentration.experiment import as_distributions
from farflung.studies.concentration.figures import concentrated, probability_chart
from farflung.studies.reproduce import figures
from farflung.studies.reproduce.claims import EPSILON, Cell, Claim, Findings, Training, claims, lead, rounds_saved
from farflung.studies.reproduce.experiment import Reproduction, folder_of
from farflung.studies.reproduce.theorems import vacuous_below

_RATES = {"code": "constant 0.15", "text": "0.1 · 0.999ᵘ"}
_SCHEDULES = {"code": "constant 0.15 (the paper's code)", "text": "0.1, times 0.999 after each update (the paper's text)"}
_ENDS_HIGHER = "parallel agents end with a higher entropy than a single agent"
_ESTIMATORS = {"sum": "sum over trajectories (Algorithm 1 and the code)", "mean": "mean over trajectories (Section 5)"}
_Claims = Mapping[Training, Sequence[Claim]]
"""The decided claims, by training."""


class _Section(NamedTuple):
    """A part of the page: figures, and beside them the claims that they support."""

    id: str
    title: str
    text: str
    plots: Mapping[str, tuple[str, str]]
    """Title and caption of each figure, by name."""
    data: Sequence[str]
    """The CSV files with the numbers."""


def write_report(
    reproduction: Reproduction, out: str | Path | Destination, began: float, executor: Executor | None = None
) -> dict[str, Any]:
    """Writes `index.html`, `figures/` and `data/` into the folder `out` and returns a summary.

    Args:
        began: when the work behind the page began, by `time.perf_counter()`.
        executor: draws the figures in parallel.
    """
    decided = {training: claims(found, reproduction.theorems) for training, found in reproduction.findings.items()}
    sections = list(_sections(reproduction))
    plots = _plots(reproduction, sections)
    values = _values(reproduction, decided) | {"sections": list(_shown(sections, plots, decided))}
    summary = write_page("reproduce.html.j2", values, plots, _tables(reproduction, decided), out, began, executor)
    verdicts = {str(training): _count_verdicts(found) for training, found in decided.items()}
    return summary | {"updates": reproduction.config.updates, "claims": verdicts}


def training_name(training: Training) -> str:
    """A short name: the learning rate, and what the single agent's gradient does."""
    return f"{_RATES[training.schedule]}, {training.estimator}"


def _values(reproduction: Reproduction, decided: _Claims) -> dict[str, Any]:
    """The values that the template of the page shows."""
    trained = [*reproduction.runs.values(), reproduction.independent]
    runs = list({id(run): run for own in trained for run in own.values()}.values())
    # Runs that were trained side by side have the same timings, to the last digit.
    timings = {(run.summary["seconds"], run.summary["compile_seconds"]) for run in runs}
    training_seconds, compile_seconds = (sum(column) for column in zip(*timings, strict=True))
    return {
        "config": reproduction.config,
        "preview": _preview(reproduction),
        "num_runs": len(runs),
        "environment_steps": sum(run.summary["environment_steps"] for run in runs),
        "training_seconds": training_seconds,
        "compile_seconds": compile_seconds,
        "trainings": [{"id": str(training), "name": training_name(training)} for training in decided],
        "answer": _answer(reproduction, decided),
        "verdicts": _verdict_table(decided),
        "num_claims": _num_claims(decided),
        "chance": next(iter(reproduction.findings.values())).untrained_success,
        "leads": {str(training): _lead_table(found, training) for training, found in reproduction.findings.items()},
        "ceilings": _ceiling_table(reproduction),
        "settings": _settings(reproduction, runs[0]),
    }


def _preview(reproduction: Reproduction) -> str:
    config = reproduction.config
    worlds, sizes = " and ".join(config.worlds), " and ".join(map(str, config.agents))
    as_full = f"trained as for the full page ({config.updates:,} updates, {config.seeds} seeds)"
    kinds = f"{len(reproduction.findings)} of the full page's 4 combinations of learning rate and estimator"
    return f"Preview: {worlds} with m = {sizes} only, {kinds}, {as_full}."


def _answer(reproduction: Reproduction, decided: _Claims) -> dict[str, Any]:
    """The numbers of the paragraph that opens the page."""
    findings = reproduction.findings

    def held(statement: str, training: Training) -> tuple[int, int, int]:
        verdicts = Counter(claim.verdict for claim in decided[training] if claim.statement.startswith(statement))
        return verdicts["holds"], sum(verdicts.values()), verdicts["does not hold"]

    first = next(iter(findings))
    leads = [lead(findings[first], world, agents) for world in findings[first].worlds for agents in findings[first].agents]
    overtaken = [each.ahead_from for each in leads if each.largest_deficit > 0 and each.ahead_from is not None]
    most = len(next(iter(findings[first].growth.values()))[0]) // findings[first].agents[0]
    rounds = [
        float(2 ** np.mean(np.log2(rounds_saved(findings[first], world, agents))))
        for world in findings[first].worlds
        for agents in findings[first].agents
    ]
    ends_higher = {each: held(_ENDS_HIGHER, each) for each in findings}
    decaying = ends_higher.get(Training("text", "sum"), (0, 0, 0))
    return {
        "headline": _headline(ends_higher),
        "larger_steps_win": decaying[2] > decaying[0],
        "entropy": _schedule_table(ends_higher, _anchors(decided)[_ENDS_HIGHER]),
        "offline": held("offline RL reaches more goals with parallel agents' data than with a single", first),
        "early": held("parallel agents have the higher entropy on average over the first tenth", first),
        "diverse": held("parallel agents are more diverse than independently", first),
        "lower_entropy": held("a distribution of lower entropy", first),
        "overtaken": (min(overtaken), max(overtaken)) if overtaken else None,
        "deficit": max(each.largest_deficit for each in leads),
        "rounds": [f"{number:.1f}" if number < most else f"more than {most}" for number in (min(rounds), max(rounds))],
        "first": training_name(first),
    }


def _headline(held: Mapping[Training, tuple[int, int, int]]) -> str:
    """The answer to the paper's question; for each training: in how many settings the claim holds, of how many, against it."""

    def holds(trainings: Sequence[Training]) -> bool:
        return bool(trainings) and all(held[each][0] > max(held[each][1] / 2, held[each][2]) for each in trainings)

    if holds(list(held)):
        return "Yes."
    if holds([each for each in held if each.estimator == "mean"]):
        return "Yes, if both take steps of the same size."
    if any(holds([each]) for each in held):
        return "It depends on how they are trained."
    return "Not in most of these settings."


def _anchors(decided: _Claims) -> dict[str, str]:
    """The id of the numbers of each claim on the page."""
    statements = dict.fromkeys(claim.statement for found in decided.values() for claim in found)
    return {statement: f"claim-{number}" for number, statement in enumerate(statements, start=1)}


def _schedule_table(held: Mapping[Training, tuple[int, int, int]], anchor: str) -> Table:
    """Learning rate × estimator: in how many settings a claim holds, with a link to its numbers."""
    schedules, estimators = (dict.fromkeys(column) for column in zip(*held, strict=True))
    rows = []
    for schedule in schedules:
        cells = []
        for estimator in estimators:
            holds, total, against = held[Training(schedule, estimator)]
            style = "fails" if against > holds else "holds" if holds > total / 2 else "undecided"
            notes = (f"single ahead in {against}",) if against else ()
            cells.append(Value(f"{holds} of {total}", style, notes, f"#{anchor}"))
        rows.append((f"learning rate {_SCHEDULES[schedule]}", cells))
    return Table(["", *(_ESTIMATORS[estimator] for estimator in estimators)], rows)


def _verdict_table(decided: _Claims) -> Table:
    counts = [_count_verdicts(found) for found in decided.values()]
    first, anchors = next(iter(decided.values())), _anchors(decided)
    figure_of = {claim.statement: claim.figure for claim in first}
    rows = []
    for statement in counts[0]:
        cells: list[str | Value] = []
        for own in counts:
            if statement not in own:
                cells.append("not measured")
                continue
            verdicts, total = own[statement], sum(own[statement].values())
            text = f"{verdicts['holds']} of {total}"
            worst = verdicts["does not hold"]
            style = "fails" if worst > verdicts["holds"] else "holds" if verdicts["holds"] > total / 2 else "undecided"
            cells.append(Value(text, style, (f"{worst} against",) if worst else (), f"#{anchors[statement]}"))
        rows.append((_capital(statement), cells))
    links = [f"#{_section_of(figure_of[statement])}" for statement in counts[0]]
    return Table(["claim", *(training_name(training) for training in decided)], rows, links=links)


def _num_claims(decided: _Claims) -> dict[str, int]:
    """How many verdicts there are, how many of them Holm's correction leaves undecided, and how many hang on the training."""
    every = [claim for found in decided.values() for claim in found]
    by_setting: dict[tuple[str, ...], list[str]] = {}
    for claim in every:
        by_setting.setdefault((claim.statement, claim.world, claim.agents), []).append(claim.verdict)
    pairs = list(by_setting.values())
    return {
        "settings": len(pairs),
        "same": sum(len(set(verdicts)) == 1 for verdicts in pairs),
        "opposite": sum({"holds", "does not hold"} <= set(verdicts) for verdicts in pairs),
        "verdicts": len(every),
        "undone": sum(claim.verdict != claim.difference.verdict for claim in every),
    }


def _count_verdicts(found: Sequence[Claim]) -> dict[str, dict[str, int]]:
    """In how many settings each claim has which verdict."""
    counts: dict[str, Counter[str]] = {}
    for claim in found:
        counts.setdefault(claim.statement, Counter(dict.fromkeys(VERDICT_CLASSES, 0)))[claim.verdict] += 1
    return {statement: dict(verdicts) for statement, verdicts in counts.items()}


def _shown(sections: Sequence[_Section], plots: Mapping[str, Plot], decided: _Claims) -> Iterator[dict[str, Any]]:
    """Each section with the names of its figures and its claims, by training."""
    anchors = _anchors(decided)
    for section in sections:
        pictures = [
            {
                "title": title,
                "caption": caption,
                "by_training": {str(training): f"figure-{_plot_name(name, training, plots)}" for training in decided},
            }
            for name, (title, caption) in section.plots.items()
        ]
        statements = dict.fromkeys(
            claim.statement for found in decided.values() for claim in found if _section_of(claim.figure) == section.id
        )
        shown = [_claim(statement, decided) | {"id": anchors[statement]} for statement in statements]
        yield section._asdict() | {"pictures": pictures, "claims": shown}


def _claim(statement: str, decided: _Claims) -> dict[str, Any]:
    """A claim with a table of differences for each training."""
    tables, held = {}, {}
    for training, found in decided.items():
        own = [claim for claim in found if claim.statement == statement]
        if not own:
            tables[str(training)], held[str(training)] = Table([], []), "not measured"
            continue
        first = own[0]
        columns = dict.fromkeys(claim.agents for claim in own)
        head = ["", *(f"m = {agents}" if agents[:1].isdigit() else agents or "difference" for agents in columns)]
        worlds = dict.fromkeys(claim.world for claim in own)
        rows = [(world, [_value(claim, training) for claim in own if claim.world == world]) for world in worlds]
        tables[str(training)] = Table(head, rows)
        verdicts = Counter(claim.verdict for claim in own)
        against = f", against it in {verdicts['does not hold']}" if verdicts["does not hold"] else ""
        held[str(training)] = f"holds in {verdicts['holds']} of {len(own)}{against}"
    return {"statement": _capital(statement), "where": first.where, "unit": first.unit, "tables": tables, "held": held}


def _value(claim: Claim, training: Training) -> Value:
    value, low, high, p_value = claim.difference
    if low == high:
        notes: tuple[str, ...] = ("computed exactly",)
    elif not np.isfinite(low):
        notes = ("one seed",)
    else:
        notes = (f"{low:+.3f} to {high:+.3f}", f"p {_p(p_value)}, Holm {_p(claim.p_holm)}")
    # A claim about several team sizes, or about a theorem, belongs to no run.
    link = _page_of(training, Cell(claim.world, int(claim.agents), claim.kind)) if claim.agents.isdigit() else ""
    return Value(f"{value:+.3f}", VERDICT_CLASSES[claim.verdict], (*notes, claim.verdict), link)


def _page_of(training: Training, cell: Cell) -> str:
    """Where the page of a run is."""
    return f"{folder_of(training, cell)}/{PAGE}"


def _p(p_value: float) -> str:
    return "< .001" if p_value < 0.001 else f"{p_value:.3f}"


def _lead_table(findings: Findings, training: Training) -> Table:
    rows = []
    for world in findings.worlds:
        found = [lead(findings, world, agents) for agents in findings.agents]
        texts = ["never ahead for good" if each.ahead_from is None else f"from update {each.ahead_from:,} on" for each in found]
        deficits = [f"behind by up to {each.largest_deficit:.3f}" if each.largest_deficit else "never behind" for each in found]
        pages = [_page_of(training, Cell(world, agents, "team")) for agents in findings.agents]
        cells = zip(texts, deficits, pages, strict=True)
        rows.append((world, [Value(text, "", (more,), page) for text, more, page in cells]))
    return Table(["", *(f"m = {agents}" for agents in findings.agents)], rows)


def _ceiling_table(reproduction: Reproduction) -> Table:
    rows = []
    for (world, agents), ceiling in next(iter(reproduction.findings.values())).ceilings.items():
        shown = _page_of(next(iter(reproduction.findings)), Cell(world, agents, "team"))  # with the ceiling in its curves
        kind = "exact" if ceiling.exact else "upper bound"
        cells: list[str | Value] = [Value(text, "", link=shown) for text in (f"{ceiling.normalized_bound:.4f}", kind)]
        for training, findings in reproduction.findings.items():
            for cell in (Cell(world, agents, kind) for kind in ("team", "single")):
                percentage = f"{findings.percent_of_ceiling(cell).mean():.1f}%"
                cells.append(Value(percentage, "", link=_page_of(training, cell)))
        rows.append((f"{world}, m\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{agents}", cells))
    head = ["setting", "ceiling, in units of log 43", "kind of ceiling"]
    groups = [training_name(training) for training in reproduction.findings]
    return Table(head, rows, groups=groups, columns=["parallel", "single"])


def _settings(reproduction: Reproduction, first: Run) -> dict[str, str]:
    config = reproduction.config
    num_datasets = next(iter(next(iter(reproduction.findings.values())).dataset_entropy.values())).shape[1]
    return {
        "worlds": ", ".join(config.worlds),
        "agents (m)": ", ".join(map(str, config.agents)),
        "trajectories per agent (K)": "1; for the single agent K' = m",
        "batch size (B)": str(first.config.batch_size),
        "updates (N)": f"{config.updates:,}",
        "learning rate": "; ".join(_SCHEDULES[schedule] for schedule in config.schedules),
        "gradient of the single agent": "; ".join(_ESTIMATORS[estimator] for estimator in config.estimators),
        "seeds": ", ".join(map(str, config.seed_values)),
        "final values": "mean over the last 1% of updates",
        "datasets": f"{num_datasets} per seed, with one trajectory per agent; {config.datasets} of them for offline RL",
        "offline Q-learning": f"{PAPER.num_batches} minibatches of {PAPER.batch_size}, learning rate {PAPER.learning_rate}, "
        f"discount {PAPER.discount}; {PAPER.num_episodes} greedy episodes of at most {PAPER.max_steps} steps per goal",
        "device": first.summary["device"],
        "versions": versions(),
    }


def _sections(reproduction: Reproduction) -> Iterator[_Section]:
    """The sections with figures, in the order of the page."""
    config = reproduction.config
    findings = next(iter(reproduction.findings.values()))
    agents, most = findings.agents, findings.agents[-1]
    ends = [agents[0], agents[-1]] if len(agents) > 1 else agents
    sampled = figures.deterministic(findings.worlds)[-1]
    seeds = f"Mean and 95% confidence interval (Student's t) over {config.seeds} seeds."
    typical = "The figure shows the seed with the median final entropy."
    curves = {
        "learning-curves": (
            f"Entropy and support during training, {' and '.join(map(str, ends))} agents (Figure 1)",
            "Solid: parallel agents. Dashed: one policy that plays as many trajectories. Dotted: the ceiling, which no "
            f"policies exceed; exact in the -det worlds. {seeds}",
        )
    }
    if others := [number for number in agents if number not in ends]:
        curves["learning-curves-others"] = (
            f"The same for {' and '.join(map(str, others))} agents (Figure 7)",
            f"Solid, dashed and dotted as above. {seeds}",
        )
    yield _Section(
        "learning",
        "Do parallel agents explore more?",
        "The single agent plays as many trajectories as the team has agents. If its gradient sums over them, as in the paper's "
        "Algorithm 1 and code, its steps are m times as large as with the mean of the paper's Section 5. Agents that play one "
        "trajectory each are not affected.",
        curves,
        ("final", "curves", "claims"),
    )
    yield _Section(
        "speed-up",
        "Does specialisation surpass m-fold parallel sampling?",
        "The question of the abstract. In a round, each of m agents plays one trajectory. m copies of one policy collect m "
        "times as many samples per round as one agent alone; specialised agents collect as many as the copies, but others. "
        "The red line leads from the entropy of the team's first round to the round in which copies of the single agent "
        "reach it.",
        {
            "parallel-sampling": (
                f"Entropy of a growing dataset, {most} agents",
                "After training; averaged over seeds and datasets.",
            )
        },
        ("growth", "claims"),
    )
    yield _Section(
        "datasets",
        "Are the collected datasets better?",
        "The trained policies collect one trajectory per agent.",
        {
            "dataset-entropy": (
                "Entropy of the collected datasets (Figure 2)",
                f"Each point is a dataset, with eight of each seed's shown. {seeds}",
            )
        },
        ("datasets", "claims"),
    )
    yield _Section(
        "offline",
        "Does offline RL profit?",
        f"Tabular Q-learning on datasets of {most} trajectories, relabelled for each goal. Mean over seeds and "
        "datasets. Without data "
        "(all Q-values zero), these shares of the goals are reached: "
        + ", ".join(f"{world} {rate:.3f}" for world, rate in findings.untrained_success.items())
        + ".",
        {
            "offline-success": ("Success rate for each goal (Figure 3)", "Goals are sorted by their success rate."),
            "goal-reachability": ("The same success rates on the map (Figure 9)", "Darker goals are reached more often."),
        },
        ("offline", "claims"),
    )
    maps = {
        f"policies-{world}": (
            f"Policies of a single agent and of {most} parallel agents, {world} (Figure 10)",
            f"The most likely action in each state that the agent visits; darker means more deterministic. {typical}",
        )
        for world in figures.deterministic(findings.worlds)[:2]
    }
    yield _Section(
        "specialisation",
        "Do the agents specialise?",
        "Entropies and diversities are exact: measured on samples, diversity is biased upwards, and even copies of one "
        "policy would "
        "seem diverse. Untrained agents have random logits, as before training; independently trained agents maximise "
        "the entropy "
        "of their own states.",
        {
            "decomposition": (
                "The entropy of the mixture and its two parts (Section 4)",
                "Pale: the mean entropy of the agents' own distributions. Dark: their diversity, the mean KL "
                "divergence from the "
                "mixture. Mean over seeds.",
            ),
            "occupancy": (
                "State occupancy (Figure 8)",
                f"The exact distribution of the visited states under the trained policies. {typical}",
            ),
            **maps,
        },
        ("decomposition", "claims"),
    )
    mixture = as_distributions(findings.occupancy[Cell(sampled, most, "team")])[0].mean(axis=0)
    yield _Section(
        "samples",
        "Do lower entropies need fewer samples? (Theorem 4.1)",
        f"With 43 states Theorem 4.1 says nothing below {_rounded(vacuous_below(mixture, EPSILON))} samples (here for "
        f"ε = {EPSILON:g} and "
        f"the team in {sampled}): its bound is 1. So it is judged with two states, one of them rare, where the bound "
        "is below 1 and the "
        "event still happens; its probability is computed exactly.",
        {
            "samples": (
                "The samples that show an entropy, against the entropy",
                "Independent samples of the state distributions; of a team, equally many of each agent. One point per seed.",
            ),
            "concentration": (
                f"Samples needed to estimate the entropy, {sampled} (Theorem 4.1)",
                f"Samples from the state distribution of {most} trained agents, from that of each agent, and from that "
                "of the single "
                "agent. Mean over seeds.",
            ),
        },
        ("samples", "theorem", "claims"),
    )
    rate = reproduction.theorems.convergence
    floors = rate.floors
    yield _Section(
        "frank-wolfe",
        "Does Parallel Frank-Wolfe converge N times faster?",
        f"The theorem promises a gap that falls with 1/N. In {rate.world} with a step of {rate.step_size:g}, N = "
        f"{rate.agents} agents that plan on "
        f"the same mixture settle at {floors['together']:.2g} nats, as one agent does ({floors['one agent']:.2g}): "
        "nothing is gained per "
        f"parallel round. Planning in turn reaches {floors['in turn']:.2g}, but its plans are made one after the "
        "other, and one agent with an "
        f"N-th of the step reaches {floors['one agent, small steps']:.2g} with as many plans: nothing is gained per "
        "plan either.",
        {
            "convergence": (
                "The duality gap per parallel round and per plan",
                "The gap bounds the distance from the largest smoothed entropy. Agents that plan in turn wait for each other.",
            )
        },
        ("convergence", "claims"),
    )
    yield _Section(
        "worlds",
        "The worlds, and a figure of the proof",
        "In the -stoc worlds, another action than the chosen one is executed with probability 0.2.",
        {
            "environments": (
                "The paper's two maps (Figures 5 and 6)",
                "S: the start. G: the goal of the sparse-reward variant; the paper does not give the Maze's. "
                "Exploration has no goal.",
            ),
            "entropy-variance": (
                "Entropy and variance of a Bernoulli variable (Figure 4)",
                "The ratio in the proof of Theorem 4.1 is smallest at p = 1/2.",
            ),
        },
        (),
    )


def _section_of(figure: str) -> str:
    """The section that has a claim's figure."""
    return {
        "learning-curves": "learning",
        "parallel-sampling": "speed-up",
        "dataset-entropy": "datasets",
        "offline-success": "offline",
        "decomposition": "specialisation",
        "policies": "specialisation",
        "samples": "samples",
        "concentration": "samples",
        "convergence": "frank-wolfe",
    }[figure]


def _plot_name(name: str, training: Training, plots: Mapping[str, Plot]) -> str:
    """The name of a figure under a training; some figures are the same under all."""
    return name if name in plots else f"{name}-{training}"


def _plots(reproduction: Reproduction, sections: Sequence[_Section]) -> dict[str, Plot]:
    """The figures by name; those that depend on the training once for each, with the first training's first."""
    texts = {name: text for section in sections for name, text in section.plots.items()}
    first = next(iter(reproduction.findings.values()))
    agents, most = first.agents, first.agents[-1]
    ends = [agents[0], agents[-1]] if len(agents) > 1 else agents
    others = [number for number in agents if number not in ends]
    sampled = figures.deterministic(first.worlds)[-1]
    plots: dict[str, Plot] = {}
    for training, findings in reproduction.findings.items():
        runs = {}
        for cell, run in reproduction.runs[training].items():
            team, world = jax.tree.map(np.asarray, (run.policies, run.world))  # another process cannot draw JAX arrays
            runs[cell] = dataclasses.replace(run, policies=team, world=world)
        worlds = {cell.world: run.table for cell, run in runs.items()}
        goals = {name: np.asarray(goals_of(world)) for name, world in worlds.items()}
        drawings: dict[str, Callable[[], Figure]] = {
            "learning-curves": partial(figures.learning_curves, runs, findings, ends),
            "learning-curves-others": partial(figures.learning_curves, runs, findings, others),
            "parallel-sampling": partial(figures.parallel_sampling, findings, most),
            "dataset-entropy": partial(figures.dataset_entropies, findings),
            "offline-success": partial(figures.goal_success_sorted, findings, most),
            "goal-reachability": partial(figures.goal_success_maps, findings, worlds, goals, most),
            "decomposition": partial(figures.decomposition, findings),
            "occupancy": partial(figures.occupancies, runs, findings, most),
            "samples": partial(figures.samples_by_entropy, findings),
        }
        for world in figures.deterministic(findings.worlds)[:2]:
            drawings[f"policies-{world}"] = partial(figures.policies, runs, findings, world, most)
        formats = ("png", "svg") if findings is first else ("svg",)
        charts = {
            name: figures.learning_charts(runs, findings, shown)
            for name, shown in (("learning-curves", ends), ("learning-curves-others", others))
        }
        charts["parallel-sampling"] = figures.sampling_charts(findings, most)
        plots |= {
            f"{name}-{training}": Plot(*texts[name], draw, formats, charts.get(name, ()))
            for name, draw in drawings.items()
            if name in texts
        }
    samples = figures.measured_concentration(first, sampled, most)
    shared: dict[str, Callable[[], Figure]] = {
        "concentration": partial(concentrated, samples),
        "convergence": partial(figures.convergence, reproduction.theorems.convergence),
        "environments": partial(figures.environments, worlds),
        "entropy-variance": figures.entropy_and_variance,
    }
    convergence = figures.convergence_charts(reproduction.theorems.convergence)
    charts = {"concentration": [probability_chart(samples)], "convergence": convergence}
    return plots | {name: Plot(*texts[name], draw, charts=charts.get(name, ())) for name, draw in shared.items()}


def _tables(reproduction: Reproduction, decided: _Claims) -> dict[str, list[Sequence[object]]]:
    """The CSV files beside the page: by name, a row of column names and then the values."""
    seeds = reproduction.config.seed_values
    trained, setting = ("schedule", "estimator"), ("schedule", "estimator", "world", "agents")
    cell_names = (*setting, "kind")
    bound_names = ("bound", "normalized_bound", "exact", "method", "team_percent", "single_percent")
    timing_names = ("environment_steps", "seconds", "compile_seconds")
    numbers = ("difference", "low", "high", "p_value", "p_holm", "unit", "verdict", "verdict_uncorrected")
    tables: dict[str, list[Sequence[object]]] = {
        "claims": [(*trained, "claim", "where", "world", "agents", *numbers)],
        "final": [(*cell_names, "seed", "metric", "value")],
        "curves": [(*cell_names, "update", "normalized_entropy", "half_width", "support", "support_half_width")],
        "ceilings": [(*setting, *bound_names)],
        "datasets": [(*cell_names, "seed", "dataset", "normalized_entropy")],
        "growth": [(*cell_names, "seed", "trajectories", "normalized_entropy")],
        "offline": [(*cell_names, "seed", "goal", "success_rate")],
        "decomposition": [(*cell_names, "seed", "mixture", "individual", "diversity")],
        "samples": [(*cell_names, "seed", "samples_needed", "samples_needed_alone")],
        "timings": [(*cell_names, *timing_names)],
    }
    for training, found in decided.items():
        tables["claims"] += [
            (
                *training,
                c.statement,
                c.where,
                c.world,
                c.agents,
                *c.difference,
                c.p_holm,
                c.unit,
                c.verdict,
                c.difference.verdict,
            )
            for c in found
        ]
    for training, findings in reproduction.findings.items():
        runs = reproduction.runs[training]
        for cell, metrics in findings.final.items():
            tables["final"] += [
                (*training, *cell, seed, name, value)
                for name, values in metrics.items()
                for seed, value in zip(seeds, values.tolist(), strict=True)
            ]
        for cell, run in runs.items():
            columns: list[Any] = [run.updates[run.is_spaced].tolist()]
            for metric in (run.metrics.normalized_entropy, run.metrics.support):
                mean, half_width = mean_and_interval(np.asarray(metric)[:, run.is_spaced])
                columns += [mean.tolist(), np.zeros_like(mean).tolist() if half_width is None else half_width.tolist()]
            tables["curves"] += [(*training, *cell, *row) for row in zip(*columns, strict=True)]
            tables["timings"].append((*training, *cell, *(run.summary[name] for name in timing_names)))
        for (name, agents), ceiling in findings.ceilings.items():
            percent = [findings.percent_of_ceiling(Cell(name, agents, kind)).mean() for kind in ("team", "single")]
            bound = (ceiling.bound, ceiling.normalized_bound, ceiling.exact, ceiling.method)
            tables["ceilings"].append((*training, name, agents, *bound, *percent))
        for table, by_cell in (("datasets", findings.dataset_entropy), ("growth", findings.growth)):
            for cell, entropies in by_cell.items():
                tables[table] += [
                    (*training, *cell, seed, number, value)
                    for seed, row in zip(seeds, entropies.tolist(), strict=True)
                    for number, value in enumerate(row, start=int(table == "growth"))
                ]
        for cell, rates in findings.success.items():
            world = runs[Cell(cell.world, cell.agents, "team")].table
            labels = np.asarray(world.labels)[np.asarray(goals_of(world))].tolist()
            tables["offline"] += [
                (*training, *cell, seed, goal, rate)
                for seed, row in zip(seeds, rates.tolist(), strict=True)
                for goal, rate in zip(labels, row, strict=True)
            ]
        for cell, parts in findings.decompositions.items():
            tables["decomposition"] += [(*training, *cell, seed, *part) for seed, part in zip(seeds, parts, strict=True)]
        for cell in runs:
            columns = [seeds, findings.samples_needed[cell].tolist(), findings.samples_needed_alone[cell].tolist()]
            tables["samples"] += [(*training, *cell, *row) for row in zip(*columns, strict=True)]
    checks = reproduction.theorems
    tables["theorem"] = [type(checks.deviations[0])._fields, *checks.deviations]
    tables["convergence"] = [
        ("way", "iteration", "gap"),
        *((way, number, gap) for way, gaps in checks.convergence.gaps.items() for number, gap in enumerate(gaps.tolist(), 1)),
    ]
    return tables


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _rounded(number: int) -> str:
    """A number in words of one digit: "some 20,000,000"."""
    size = 10 ** int(math.log10(number))
    return f"some {size * round(number / size):,}"
