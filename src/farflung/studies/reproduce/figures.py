"""The figures of `farflung reproduce`."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from jaxtyping import Float, Int
from matplotlib.colors import Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from scipy import special

from farflung.config import Concentration
from farflung.figures.curves import as_line, draw_ceiling, draw_curve
from farflung.figures.maps import draw_on_map, draw_policy
from farflung.figures.pages import Chart
from farflung.figures.style import BLUE, GREEN, GREY, ORANGE, RED, STYLE, VISITS
from farflung.runs.run import Run, typical_seed
from farflung.runs.statistics import mean_and_interval
from farflung.studies.concentration.experiment import Concentrated, as_distributions, measure_concentration
from farflung.studies.reproduce.claims import DELTA, EPSILON, Cell, Findings
from farflung.studies.reproduce.theorems import ConvergenceCheck
from farflung.worlds.tabular import TabularMDP, reachable_states

Runs = Mapping[Cell, Run]
_SIZES = {2: ORANGE, 4: GREEN, 6: BLUE}
"""The colour of a team size, the same in all figures."""
_STRIDE = 2
_MOST_POINTS = 8
_LEAST_GAP = 1e-9
"""In nats: rounding hides smaller duality gaps."""
_GOALS = {"room": (4, 0)}
"""The goal in the paper's figures of the environments; the paper does not say where the Maze's is."""


@mpl.rc_context(STYLE)
def environments(worlds: Mapping[str, TabularMDP]) -> Figure:
    """The maps, with the distance of each cell from the start, and the paper's goal where it is known."""
    families = {name.split("-")[0]: world for name, world in worlds.items()}
    figure = Figure(figsize=(4.5 * len(families), 3.2), layout="constrained")
    axes = figure.subplots(1, len(families), squeeze=False)[0]
    for axis, (name, world) in zip(axes, families.items(), strict=True):
        tables = (world.successors, world.probabilities, world.start_distribution)
        _, distances = reachable_states(*(np.asarray(table) for table in tables))
        image = draw_on_map(axis, world, distances.astype(float))
        if name in _GOALS:
            row, column = _GOALS[name]
            axis.text(column, row, "G", color=RED, ha="center", va="center", fontsize=8, fontweight="bold")
        axis.set_title(f"{name.capitalize()}: {world.num_states} states, horizon {world.horizon}")
    figure.colorbar(image, ax=axes, label="steps from the start (S)", shrink=0.8)
    return figure


@mpl.rc_context(STYLE)
def learning_curves(runs: Runs, findings: Findings, agents: Sequence[int]) -> Figure:
    """Entropy and support against updates: teams solid, single agents (as many trajectories) dashed, ceilings dotted."""
    worlds = list(dict.fromkeys(cell.world for cell in runs))
    figure = Figure(figsize=(3 * max(2, len(worlds)), 5.2), layout="constrained")
    rows = figure.subplots(2, len(worlds), sharex=True, sharey="row", squeeze=False)
    for column, world in enumerate(worlds):
        rows[0, column].set_title(world)
        rows[1, column].set_xlabel("policy updates")
        for axis, metric in zip(rows[:, column], ("normalized_entropy", "support"), strict=True):
            axis.grid(alpha=0.25)
            for number, color in _colored(agents):
                draw_curve(axis, runs[Cell(world, number, "team")], metric, color=color, stride=_STRIDE)
                draw_curve(axis, runs[Cell(world, number, "single")], metric, color=color, stride=_STRIDE, ls="--")
                if metric == "normalized_entropy":
                    draw_ceiling(axis, findings.ceilings[world, number].normalized_bound, color=color)
    rows[0, 0].set_ylabel("state entropy / log(states)")
    rows[1, 0].set_ylabel("distinct states visited")
    handles = []
    for number, color in _colored(agents):
        handles.append(Line2D([], [], color=color, label=f"{number} agents"))
        handles.append(Line2D([], [], color=color, ls="--", label=f"1 agent, {number} trajectories"))
        handles.append(Line2D([], [], color=color, ls=":", label=f"ceiling for {number}"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(agents), frameon=False)
    return figure


def learning_charts(runs: Runs, findings: Findings, agents: Sequence[int]) -> list[Chart]:
    """The panels of `learning_curves`, to be read with the pointer."""
    labels = {"normalized_entropy": "state entropy / log(states)", "support": "distinct states visited"}
    charts = []
    for metric, label in labels.items():
        for world in dict.fromkeys(cell.world for cell in runs):
            lines, levels = [], []
            for number, color in _colored(agents):
                names = {"team": (f"{number} agents", "none"), "single": (f"1 agent, {number} trajectories", "6 3")}
                for kind, (name, dash) in names.items():
                    run = runs[Cell(world, number, kind)]
                    lines.append(as_line(run, metric, name, color=to_hex(color), stride=_STRIDE, dash=dash))
                if metric == "normalized_entropy":
                    bound = findings.ceilings[world, number].normalized_bound
                    levels.append({"title": f"ceiling for {number}", "value": bound, "dash": "2 3", "color": to_hex(color)})
            charts.append(Chart(f"{world}: {label}", lines, levels))
    return charts


@mpl.rc_context(STYLE)
def dataset_entropies(findings: Findings) -> Figure:
    """The entropy of datasets of m trajectories: a point per dataset, with mean and 95% interval over seeds."""
    figure = Figure(figsize=(3 * max(2, len(findings.worlds)), 3.2), layout="constrained")
    axes = figure.subplots(1, len(findings.worlds), sharey=True, squeeze=False)[0]
    for axis, world in zip(axes, findings.worlds, strict=True):
        for place, (agents, size_color) in enumerate(_colored(findings.agents)):
            for offset, kind in zip((-0.27, 0, 0.27), ("team", "single", "random"), strict=True):
                values = findings.dataset_entropy[Cell(world, agents, kind)]
                mean, half_width = mean_and_interval(values.mean(axis=1))
                color, x = GREY if kind == "random" else size_color, place + offset
                face = "white" if kind == "single" else color
                shown = values[:, :_MOST_POINTS]
                spread = np.linspace(-0.1, -0.02, shown.size)
                axis.plot(x + spread, shown.flat, "o", ms=2.5, color=color, alpha=0.3, mew=0)
                axis.errorbar(x + 0.06, mean, half_width, fmt="s", ms=4.5, color=color, mfc=face, capsize=2)
        axis.set_xticks(range(len(findings.agents)), [str(agents) for agents in findings.agents])
        axis.set_xlabel("trajectories in the dataset (m)")
        axis.set_title(world)
        axis.grid(alpha=0.25, axis="y")
    axes[0].set_ylabel("dataset entropy / log(states)")
    labels = {"m parallel agents": ("black", "black"), "1 agent": ("black", "white"), "random policy": (GREY, GREY)}
    handles = [Line2D([], [], color=c, mfc=face, marker="s", ls="", label=name) for name, (c, face) in labels.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


@mpl.rc_context(STYLE)
def goal_success_sorted(findings: Findings, agents: int) -> Figure:
    """The success rate of offline Q-learning for each goal, sorted."""
    worlds = deterministic(findings.worlds)
    figure = Figure(figsize=(9, 1.9 * len(worlds) + 0.8), layout="constrained")
    rows = figure.subplots(len(worlds), 3, sharex=True, sharey=True, squeeze=False)
    ((_, color),) = _colored([agents])
    looks: dict[str, dict[str, Any]] = {
        "team": {"color": color},
        "single": {"fc": "white", "ec": color, "hatch": "////", "lw": 0.6},
        "random": {"color": GREY},
    }
    for row, world in zip(rows, worlds, strict=True):
        for axis, (kind, look) in zip(row, looks.items(), strict=True):
            success = findings.success[Cell(world, agents, kind)].mean(axis=0)
            axis.bar(np.arange(1, len(success) + 1), np.sort(success)[::-1], width=1, **look)
            axis.set_title(f"{world}, {_data_name(kind, agents)}: mean {success.mean():.2f}", fontsize=9)
            axis.set_ylim(0, 1)
        row[0].set_ylabel("success rate")
    for axis in rows[-1]:
        axis.set_xlabel("goals, best first")
    return figure


@mpl.rc_context(STYLE)
def goal_success_maps(
    findings: Findings, worlds: Mapping[str, TabularMDP], goals: Mapping[str, np.ndarray], agents: int
) -> Figure:
    """The success rate of offline Q-learning for each goal, on the map."""
    figure = Figure(figsize=(10, sum(3.1 if _is_tall(name) else 1.9 for name in worlds) + 0.3), layout="constrained")
    heights = [1.7 if _is_tall(name) else 1 for name in worlds]
    rows = figure.subplots(len(worlds), 3, squeeze=False, height_ratios=heights)
    for row, name in zip(rows, worlds, strict=True):
        for axis, kind in zip(row, ("team", "single", "random"), strict=True):
            values = np.full(worlds[name].num_states, np.nan)
            values[goals[name]] = findings.success[Cell(name, agents, kind)].mean(axis=0)
            image = draw_on_map(axis, worlds[name], values, Normalize(0, 1))
            axis.set_title(f"{name}, {_data_name(kind, agents)}", fontsize=9)
    figure.colorbar(image, ax=rows, label="success rate", shrink=0.5)
    return figure


@mpl.rc_context(STYLE)
def parallel_sampling(findings: Findings, agents: int) -> Figure:
    """The entropy of growing datasets against rounds: of specialised agents, of one policy on as many copies, and alone."""
    figure = Figure(figsize=(3 * max(2, len(findings.worlds)), 3.3), layout="constrained")
    axes = figure.subplots(1, len(findings.worlds), sharey=True, squeeze=False)[0]
    ((_, color),) = _colored([agents])
    for axis, world in zip(axes, findings.worlds, strict=True):
        team, single = (findings.growth[Cell(world, agents, kind)].mean(axis=0) for kind in ("team", "single"))
        by_round = single[agents - 1 :: agents]
        rounds = np.arange(1, len(by_round) + 1)
        axis.plot(rounds, team[agents - 1 :: agents], "o-", ms=3.5, color=color)
        axis.plot(rounds, by_round, "o--", ms=3.5, color=color, mfc="white")
        axis.plot(rounds, single[: len(rounds)], color=GREY, ls=":", lw=1.8)
        target = team[agents - 1]
        is_reached = bool(by_round.max() >= target)
        last = float(np.interp(target, np.maximum.accumulate(by_round), rounds)) if is_reached else rounds[-1]
        axis.hlines(target, 1, last, color=RED, lw=1)
        text = f"{last:.1f} rounds" if is_reached else f"more than {rounds[-1]} rounds"
        axis.text(0.98, 0.04, f"copies need {text}", color=RED, fontsize=8, ha="right", transform=axis.transAxes)
        axis.set(title=world, xlabel="rounds", xticks=[1, *range(2, len(rounds) + 1, 2)])
        axis.grid(alpha=0.25)
    axes[0].set_ylabel("dataset entropy / log(states)")
    copies = f"one policy on {agents} copies: as many samples"
    handles = [
        Line2D([], [], color=color, marker="o", ms=3.5, label=f"{agents} specialised agents"),
        Line2D([], [], color=color, ls="--", marker="o", mfc="white", ms=3.5, label=copies),
        Line2D([], [], color=GREY, ls=":", lw=1.8, label=f"one policy alone: {agents} times fewer samples"),
        Line2D([], [], color=RED, lw=1, label="from the team's first round to the same entropy"),
    ]
    num_columns = 2 if len(findings.worlds) <= 2 else 4
    figure.legend(handles=handles, loc="outside lower center", ncols=num_columns, frameon=False, fontsize=8)
    return figure


def sampling_charts(findings: Findings, agents: int) -> list[Chart]:
    """The panels of `parallel_sampling`, to be read with the pointer."""
    charts = []
    ((_, color),) = _colored([agents])
    for world in findings.worlds:
        team, single = (findings.growth[Cell(world, agents, kind)].mean(axis=0) for kind in ("team", "single"))
        by_round = {
            f"{agents} specialised agents": (team[agents - 1 :: agents], to_hex(color), "none"),
            f"one policy on {agents} copies": (single[agents - 1 :: agents], to_hex(color), "6 3"),
            "one policy alone": (single[: len(single) // agents], GREY, "2 3"),
        }
        lines = [
            {"title": title, "xs": np.arange(1, len(values) + 1), "ys": values, "color": shade, "dash": dash}
            for title, (values, shade, dash) in by_round.items()
        ]
        charts.append(Chart(f"{world}: dataset entropy / log(states)", lines, across="rounds", unit="rounds", scale="cut"))
    return charts


@mpl.rc_context(STYLE)
def decomposition(findings: Findings) -> Figure:
    """The entropy of the mixture as the agents' mean entropy plus their diversity."""
    figure = Figure(figsize=(3 * max(2, len(findings.worlds)), 3.4), layout="constrained")
    axes = figure.subplots(1, len(findings.worlds), sharey=True, squeeze=False)[0]
    kinds = {"team": "trained together", "independent": "independently", "untrained": "untrained", "single": "one policy"}
    for axis, world in zip(axes, findings.worlds, strict=True):
        for place, (agents, color) in enumerate(_colored(findings.agents)):
            for number, kind in enumerate(kinds):
                found = findings.decompositions.get(Cell(world, agents, kind))
                if found is None:  # independent agents are trained under one learning rate only
                    continue
                individual, diversity = (
                    np.mean([getattr(each, part) for each in found]) for part in ("individual", "diversity")
                )
                x = place * (len(kinds) + 1) + number
                axis.bar(x, individual, color=color, alpha=0.35, width=0.85)
                axis.bar(x, diversity, bottom=individual, color=color, width=0.85)
        centres = np.arange(len(findings.agents)) * (len(kinds) + 1)
        places = [centre + number for centre in centres for number in range(len(kinds))]
        axis.set_xticks(places, list(kinds.values()) * len(centres), rotation=90, fontsize=6.5)
        axis.set_title(world)
        axis.grid(alpha=0.25, axis="y")
    axes[0].set_ylabel("entropy of the mixture, in nats")
    handles = [Patch(color=color, label=f"m = {agents}") for agents, color in _colored(findings.agents)]
    handles += [Patch(color="black", alpha=0.35, label="the agents' own entropy"), Patch(color="black", label="diversity")]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False)
    return figure


@mpl.rc_context(STYLE)
def samples_by_entropy(findings: Findings) -> Figure:
    """The number of samples that show an entropy, against that entropy."""
    figure = Figure(figsize=(3 * max(2, len(findings.worlds)), 3.4), layout="constrained")
    axes = figure.subplots(1, len(findings.worlds), sharey=True, squeeze=False)[0]
    for axis, world in zip(axes, findings.worlds, strict=True):
        for agents, color in _colored(findings.agents):
            team, single = (Cell(world, agents, kind) for kind in ("team", "single"))
            for cell, needed, part, marker, face in (
                (team, findings.samples_needed_alone, "individual", "o", color),
                (team, findings.samples_needed, "mixture", "s", color),
                (single, findings.samples_needed, "mixture", "D", "white"),
            ):
                entropies = [getattr(each, part) for each in findings.decompositions[cell]]
                axis.semilogy(entropies, needed[cell], marker, ms=4, color=color, mfc=face, ls="")
        num_states = findings.occupancy[team].shape[-1]
        axis.semilogy(np.log(num_states), findings.samples_needed_uniform, "*", ms=11, color=RED)
        axis.set(title=world, xlabel="entropy, in nats")
        axis.grid(alpha=0.25, which="both")
    axes[0].set_ylabel(f"samples until within {EPSILON:g} nats ({100 * (1 - DELTA):g}%)")
    handles = [
        Line2D([], [], color=color, marker="s", ls="", label=f"m = {agents}") for agents, color in _colored(findings.agents)
    ]
    looks = {"one agent of a team": ("o", "black"), "team": ("s", "black"), "single agent": ("D", "white")}
    handles += [Line2D([], [], color="black", mfc=face, marker=m, ls="", label=name) for name, (m, face) in looks.items()]
    handles.append(Line2D([], [], color=RED, marker="*", ms=9, ls="", label="uniform distribution"))
    figure.legend(handles=handles, loc="outside lower center", ncols=7, frameon=False, fontsize=8)
    return figure


def measured_concentration(findings: Findings, world: str, agents: int) -> Concentrated:
    """Theorem 4.1 and a sharper bound against simulation."""
    team, single = (as_distributions(findings.occupancy[Cell(world, agents, kind)]) for kind in ("team", "single"))
    return measure_concentration(Concentration(world, agents=agents, draws=150), team, single)


class _Way(NamedTuple):
    """One way to plan: its gaps, how it is drawn, and what an iteration costs."""

    label: str
    color: str
    style: str
    iterations: Int[np.ndarray, " shown"]
    gaps: Float[np.ndarray, " shown"]
    rounds: int
    """Parallel rounds per iteration: planning in turn cannot be done in parallel."""
    plans: int


def _ways(check: ConvergenceCheck, number: int) -> list[_Way]:
    """All ways, at so many iterations at the most."""
    agents = check.agents
    looks = {
        "one agent": ("one agent", GREY, "-", 1, 1),
        "together": (f"{agents} agents together (Algorithm 2)", ORANGE, "--", 1, agents),
        "in turn": (f"{agents} agents in turn", BLUE, "-", agents, agents),
        "one agent, small steps": (f"one agent, 1/{agents} of the step", GREEN, "--", 1, 1),
    }
    ways = []
    for way, gaps in check.gaps.items():
        label, color, style, rounds, plans = looks[way]
        iterations = np.unique(np.geomspace(1, len(gaps), number).astype(int))
        ways.append(_Way(label, color, style, iterations, gaps[iterations - 1], rounds, plans))
    return ways


def convergence_charts(check: ConvergenceCheck) -> list[Chart]:
    """The panels of `convergence`, to be read with the pointer; gaps as powers of ten, since the vertical axis is linear."""
    charts = []
    for across, cost in (("parallel rounds of planning", "rounds"), ("plans", "plans")):
        lines = [
            {
                "title": way.label,
                "xs": way.iterations * getattr(way, cost),
                "ys": np.log10(np.maximum(way.gaps, _LEAST_GAP)),
                "color": way.color,
                "dash": "none" if way.style == "-" else "6 3",
            }
            for way in _ways(check, 60)
        ]
        charts.append(Chart(f"log10 of the duality gap in nats, by {cost}", lines, across=across, unit=cost, scale="log"))
    return charts


@mpl.rc_context(STYLE)
def convergence(check: ConvergenceCheck) -> Figure:
    """The duality gap of Parallel Frank-Wolfe, per parallel round and per plan."""
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    by_round, by_plan = figure.subplots(1, 2, sharey=True)
    for way in _ways(check, 300):
        look = {"color": way.color, "ls": way.style, "lw": 1.2}
        by_round.loglog(way.iterations * way.rounds, way.gaps, label=way.label, **look)
        by_plan.loglog(way.iterations * way.plans, way.gaps, **look)
    by_round.set(xlabel="parallel rounds of planning", ylabel="duality gap, in nats")
    by_plan.set(xlabel="plans")
    for axis in (by_round, by_plan):
        axis.grid(alpha=0.25)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure


@mpl.rc_context(STYLE)
def occupancies(runs: Runs, findings: Findings, agents: int) -> Figure:
    """The visits of a team and of a single agent, in the Maze if it was trained."""
    worlds = list(dict.fromkeys(cell.world for cell in runs))
    names = [world for world in worlds if _is_tall(world)] or worlds[:2]
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
def policies(runs: Runs, findings: Findings, world: str, agents: int) -> Figure:
    """The most likely action of each policy as arrows; darker arrows are more likely."""
    columns = min(4, agents + 1)
    num_rows = -(-(agents + 1) // columns)
    is_tall = _is_tall(world)
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
def entropy_and_variance() -> Figure:
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


def deterministic(worlds: Sequence[str]) -> list[str]:
    return [world for world in worlds if world.endswith("-det")] or list(worlds)


def _is_tall(world: str) -> bool:
    return world.startswith("maze")


def _colored(agents: Sequence[int]) -> list[tuple[int, str]]:
    """Team sizes with their colours."""
    return [(number, _SIZES.get(number, f"C{3 + number % 7}")) for number in agents]


def _data_name(kind: str, agents: int) -> str:
    return {"team": f"{agents} agents", "single": "1 agent", "random": "random policy"}[kind]
