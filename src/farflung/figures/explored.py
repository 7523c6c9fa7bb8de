"""What a run of `farflung explore` has learnt."""

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.colors import Normalize
from matplotlib.figure import Figure, SubFigure

from farflung.figures.curves import ceiling_label, draw_ceiling, draw_curve
from farflung.figures.maps import draw_on_map, is_wide
from farflung.figures.paths import draw_team
from farflung.figures.style import BLUE, GREY, LEGEND, STYLE, VISITS, plain
from farflung.runs.run import Run, typical_seed
from farflung.training.metrics import occupancy

_MOST_AGENTS_SHOWN = 12


def explored(run: Run) -> Figure:
    """The learning curves of a run, and on a map where the team and each of its agents go."""
    with mpl.rc_context(STYLE):
        if run.world.projection is not None and run.paths is not None:
            figure = Figure(figsize=(14, 5), layout="constrained")
            left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(1, 3)).flat
            _learning_curves(left, left.subplots(len(_labels(run)), 1, sharex=True), run)
            draw_team(right, run)
        elif run.world.positions is None:
            figure = Figure(figsize=(4.5 * len(_labels(run)), 3.8), layout="constrained")
            _learning_curves(figure, figure.subplots(1, len(_labels(run))), run)
        else:
            figure = Figure(figsize=(12, 6 if is_wide(run.world) else 5), layout="constrained")
            left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(1, 1.9)).flat
            _learning_curves(left, left.subplots(2, 1, sharex=True), run)
            _occupancy_maps(right, run)
        num_agents = run.config.agents
        kind = f"one policy, {num_agents} trajectories" if run.config.single else f"{num_agents} agent{'s' * (num_agents > 1)}"
        figure.suptitle(f"{plain(run.config.world)}, {kind}, horizon {run.world.horizon}", fontweight="bold")
    return figure


def _learning_curves(figure: Figure | SubFigure, axes: np.ndarray, run: Run) -> None:
    num_seeds = len(run.config.seeds)
    ceilings = _ceilings(run)
    for axis, (name, label) in zip(axes, _labels(run).items(), strict=True):
        mean_label = f"mean of {num_seeds} seeds" if num_seeds > 1 else "1 seed"
        draw_curve(axis, run, name, color=BLUE, label=mean_label, band="95% confidence")
        if "random" in run.summary:
            axis.axhline(run.summary["random"][name], color=GREY, ls="--", label="random actions")
        if name in ceilings:
            draw_ceiling(axis, ceilings[name], label=ceiling_label(run.summary["ceiling"]["exact"]))
        axis.set_ylabel(label)
        axis.grid(alpha=0.25)
    for axis in axes if axes[0].get_subplotspec().get_gridspec().nrows == 1 else axes[-1:]:
        axis.set_xlabel("policy updates")
    is_narrow = figure.bbox.width < 4 * figure.dpi
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower center", **(LEGEND | ({"ncols": 2} if is_narrow else {}))
    )


def _labels(run: Run) -> dict[str, str]:
    """The metrics that are drawn, and what they are called on an axis."""
    if run.world.projection is None:
        return {"normalized_entropy": "state entropy / log(states)", "support": "distinct states visited"}
    labels = {"normalized_entropy": "cell entropy\n/ log(cells)", "support": "cells visited"}
    if run.metrics.particle_entropy is not None:
        labels["particle_entropy"] = f"k-NN entropy\n(nats, k = {run.world.projection.neighbours})"
    return labels


def _ceilings(run: Run) -> dict[str, float]:
    """What no team exceeds, of each metric for which that is known."""
    if "ceiling" not in run.summary:
        return {}
    ceilings = {"normalized_entropy": run.summary["ceiling"]["normalized_bound"]}
    if np.isfinite(run.world.free_area):
        ceilings["particle_entropy"] = float(np.log(run.world.free_area))
    return ceilings


def _occupancy_maps(figure: SubFigure, run: Run) -> None:
    seed = typical_seed(run)
    visits = _visits(run, seed)
    num_agents = len(visits)
    if num_agents == 1:
        _team_map(figure, run, visits[0], f"where the policy is (seed {seed})")
        return
    wide = is_wide(run.world)
    if wide:
        parts = figure.subfigures(2, 1, squeeze=False, height_ratios=(1, 1.1))
    else:
        parts = figure.subfigures(1, 2, squeeze=False, width_ratios=(1, 1.1))
    team_figure, agents_figure = parts.flat
    _team_map(team_figure, run, visits.mean(axis=0), f"where the team is (seed {seed})")

    shown = min(num_agents, _MOST_AGENTS_SHOWN)
    num_columns = -(-shown // 2) if wide else min(shown, 2 + (shown > 6))
    grid = agents_figure.subplots(-(-shown // num_columns), num_columns, squeeze=False)
    norm = Normalize(0, float(visits[:shown].max()))
    for agent, axis in enumerate(grid.flat):
        if agent >= shown:
            axis.set_axis_off()
            continue
        image = draw_on_map(axis, run.world, visits[agent], norm)
        axis.set_title(f"agent {agent + 1}", fontsize=8)
    agents_figure.colorbar(image, ax=grid, location="bottom", shrink=0.6, label=VISITS, aspect=30)
    if shown < num_agents:
        agents_figure.suptitle(f"the first {shown} of {num_agents} agents", fontsize=8)


def _visits(run: Run, seed: int) -> Float[np.ndarray, "agent state"]:
    if run.host_statistics is not None:
        return run.host_statistics.visits[run.config.seeds.index(seed)]
    return np.asarray(occupancy(run.table, run.team(seed).policies))


def _team_map(figure: SubFigure, run: Run, visits: Float[np.ndarray, " state"], title: str) -> None:
    axis = figure.subplots()
    image = draw_on_map(axis, run.world, visits)
    axis.set_title(title)
    figure.colorbar(image, ax=axis, location="bottom", shrink=0.6, label=VISITS, aspect=30)
