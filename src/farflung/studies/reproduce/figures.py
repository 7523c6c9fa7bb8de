"""The figures of `farflung reproduce`, in the order of the paper."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy import special

from farflung.figures.curves import draw_ceiling, draw_curve
from farflung.figures.maps import draw_on_map, draw_policy
from farflung.figures.style import BLUE, GREEN, GREY, ORANGE, STYLE, VISITS
from farflung.runs.run import Run, typical_seed
from farflung.runs.statistics import mean_and_interval
from farflung.studies.reproduce.claims import Cell, Findings
from farflung.worlds.tabular import TabularMDP, reachable_states

Runs = Mapping[Cell, Run]
_COLORS = (ORANGE, GREEN, BLUE)
_KINDS = {"team": BLUE, "single": ORANGE, "random": GREY}


@mpl.rc_context(STYLE)
def worlds_drawn(worlds: Mapping[str, TabularMDP]) -> Figure:
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
def learning_curves(runs: Runs, findings: Findings, agents: Sequence[int]) -> Figure:
    """Entropy and support against updates: teams solid, single agents (as many trajectories) dashed, ceilings dotted."""
    worlds = _worlds(runs)
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
def dataset_entropies(findings: Findings) -> Figure:
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
def goal_success_sorted(findings: Findings, agents: int) -> Figure:
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
def goal_success_maps(
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
def occupancies(runs: Runs, findings: Findings, agents: int) -> Figure:
    """The visits of a team and of a single agent, in the Maze if it was trained."""
    names = [world for world in _worlds(runs) if world.startswith("maze")] or _worlds(runs)[:2]
    figure = Figure(figsize=(3.4 * 2 + 1, 3.2 * len(names)), layout="constrained")
    rows = figure.subplots(len(names), 2, squeeze=False)
    visits = {}
    for name in names:
        for kind in ("team", "single"):
            cell = Cell(name, agents, kind)
            visits[name, kind] = findings.occupancy[cell][_typical_row(runs[cell])].mean(axis=0)
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
    is_tall = world.startswith("maze")
    figure = Figure(figsize=(2.9 * columns, (2.9 if is_tall else 1.7) * num_rows + 0.7), layout="constrained")
    axes = figure.subplots(num_rows, columns, squeeze=False).flat
    tables = []
    for name, kind in (("single agent", "single"), ("parallel agent", "team")):
        cell = Cell(world, agents, kind)
        run, row = runs[cell], _typical_row(runs[cell])
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


def _typical_row(run: Run) -> int:
    return run.config.seeds.index(typical_seed(run))


def _worlds(runs: Runs) -> list[str]:
    return list(dict.fromkeys(cell.world for cell in runs))


def _deterministic(worlds: Sequence[str]) -> list[str]:
    return [world for world in worlds if world.endswith("-det")] or list(worlds)


def _colors(agents: Sequence[int]) -> Sequence[str]:
    return _COLORS[3 - len(agents) :] if len(agents) <= 3 else [f"C{number}" for number in range(len(agents))]


def _data_name(kind: str, agents: int) -> str:
    return {"team": f"{agents} agents", "single": "1 agent", "random": "random policy"}[kind]
