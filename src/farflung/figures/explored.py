"""The figure of a run of `farflung explore`: learning curves beside the visits of the team."""

from typing import Any

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from farflung.figures import maps, planes
from farflung.figures.curves import draw_ceiling, draw_curve
from farflung.figures.style import BLUE, GREY, LEGEND, STYLE, VISITS, ceiling_label, plain, seeds_label, team_label
from farflung.runs.run import Run, typical_seed
from farflung.training.metrics import occupancy

_MOST_AGENTS_SHOWN = 12
_TIMES_AS_WIDE = 4.0


@mpl.rc_context(STYLE)
def explored(run: Run) -> Figure:
    """The learning curves of a run, and maps of the visits of the team and of each agent."""
    labels = _metric_labels(run)
    if run.world.projection is not None and run.paths is not None:
        figure = Figure(figsize=(14, 5), layout="constrained")
        left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(1, 3)).flat
        _draw_curves(left, left.subplots(len(labels), 1, sharex=True), run)
        _draw_paths_and_coverage(right, run)
    elif run.world.positions is None:
        figure = Figure(figsize=(4.5 * len(labels), 3.8), layout="constrained")
        _draw_curves(figure, figure.subplots(1, len(labels)), run)
    elif planes.is_wide(run.world, _TIMES_AS_WIDE):  # the maps get the whole width of the page
        figure = Figure(figsize=(12, 7.5), layout="constrained")
        top, bottom = figure.subfigures(2, 1, squeeze=False, height_ratios=(1, 1.9)).flat
        _draw_curves(top, top.subplots(1, 2), run)
        _draw_occupancies(bottom, run)
    else:
        figure = Figure(figsize=(12, 6 if planes.is_wide(run.world) else 5), layout="constrained")
        left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(1, 1.9)).flat
        _draw_curves(left, left.subplots(len(labels), 1, sharex=True), run)
        _draw_occupancies(right, run)
    title = f"{plain(run.config.world)}, {team_label(run.config)}, horizon {run.world.horizon}"
    figure.suptitle(title, fontweight="bold")
    return figure


def _draw_curves(figure: Figure | SubFigure, axes: np.ndarray, run: Run) -> None:
    ceilings = {}
    if "ceiling" in run.summary:
        ceilings["normalized_entropy"] = run.summary["ceiling"]["normalized_bound"]
        if np.isfinite(run.world.free_area):
            ceilings["particle_entropy"] = float(np.log(run.world.free_area))
    if "bound" in (about := run.summary.get("objective", {})):
        ceilings["objective"] = about["bound"]
    for axis, (metric, label) in zip(axes, _metric_labels(run).items(), strict=True):
        draw_curve(axis, run, metric, color=BLUE, label=seeds_label(len(run.config.seeds)), band="95% confidence")
        if metric in run.summary.get("random", {}):
            axis.axhline(run.summary["random"][metric], color=GREY, ls="--", label="random actions")
        if metric in ceilings:
            draw_ceiling(axis, ceilings[metric], label=ceiling_label(run.summary["ceiling"]["exact"]))
        axis.set_ylabel(label)
        axis.grid(alpha=0.25)
    for axis in axes if axes[0].get_subplotspec().get_gridspec().nrows == 1 else axes[-1:]:
        axis.set_xlabel("policy updates")
    look = LEGEND | ({"ncols": 2} if figure.bbox.width < 4 * figure.dpi else {})
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", **look)


def _metric_labels(run: Run) -> dict[str, str]:
    """The metrics that are drawn, with the labels of their axes."""
    name = f"return,\n{run.summary['transfer']['task']}" if "transfer" in run.summary else run.config.objective
    objective = {} if run.metrics.objective is None else {"objective": plain(name)}
    if run.world.projection is None:
        entropy = {"normalized_entropy": "state entropy / log(states)", "support": "distinct states visited"}
        return objective | entropy if "transfer" in run.summary else entropy | objective
    labels = objective | {"normalized_entropy": "cell entropy\n/ log(cells)", "support": "cells visited"}
    if run.metrics.particle_entropy is not None:
        labels["particle_entropy"] = f"k-NN entropy\n(nats, k = {run.world.projection.neighbours})"
    return labels


def _draw_occupancies(figure: SubFigure, run: Run) -> None:
    """Draws the visits of the team and of each agent on the map."""
    seed = typical_seed(run)
    if run.host_statistics is not None:
        visits = run.host_statistics.visits[run.config.seeds.index(seed)]
    else:
        visits = np.asarray(occupancy(run.table, run.team(seed).policies))
    num_agents = len(visits)
    if num_agents == 1:
        _draw_team_map(figure, run, visits[0], f"where the policy is (seed {seed})")
        return
    wide = planes.is_wide(run.world)
    shape: dict[str, Any] = {"nrows": 2, "height_ratios": (1, 1.1)} if wide else {"ncols": 2, "width_ratios": (1, 1.1)}
    team_figure, agents_figure = figure.subfigures(squeeze=False, **shape).flat
    _draw_team_map(team_figure, run, visits.mean(axis=0), f"where the team is (seed {seed})")

    shown = min(num_agents, _MOST_AGENTS_SHOWN)
    num_columns = -(-shown // 2) if wide else min(shown, 2 + (shown > 6))
    grid = agents_figure.subplots(-(-shown // num_columns), num_columns, squeeze=False)
    norm = Normalize(0, max(float(np.nanmax(maps.on_grid(run.world, own))) for own in visits[:shown]))
    for agent, axis in enumerate(grid.flat):
        if agent >= shown:
            axis.set_axis_off()
            continue
        image = maps.draw_on_map(axis, run.world, visits[agent], norm)
        axis.set_title(f"agent {agent + 1}", fontsize=8)
    agents_figure.colorbar(image, ax=grid, location="bottom", shrink=0.6, label=VISITS, aspect=30)
    if shown < num_agents:
        agents_figure.suptitle(f"the first {shown} of {num_agents} agents", fontsize=8)


def _draw_team_map(figure: SubFigure, run: Run, visits: Float[np.ndarray, " state"], title: str) -> None:
    axis = figure.subplots()
    image = maps.draw_on_map(axis, run.world, visits)
    maps.mark_goal(axis, run.world, run.summary.get("transfer", {}))
    axis.set_title(title)
    figure.colorbar(image, ax=axis, location="bottom", shrink=0.6, label=VISITS, aspect=30)


def _draw_paths_and_coverage(figure: SubFigure, run: Run) -> None:
    """Draws one episode of the team where states are vectors, and its visits over several episodes."""
    assert run.world.projection is not None
    assert run.paths is not None
    plane, points = planes.plane_of(run.world), planes.points_of(run.paths.features)
    ways, coverage = figure.subplots(1, 2)
    maps.draw_paths(ways, plane, points[0])
    maps.mark_goal(ways, run.world, run.summary.get("transfer", {}))
    meaning, groups = planes.by_color(points[0])
    ways.set_title(f"where {'each' if len(groups) > 1 else 'the'} {meaning} goes (seed {run.paths.seed})")
    if len(groups) > len(maps.AGENT_COLORS):
        scale = ScalarMappable(Normalize(0.5, len(groups) + 0.5), maps.color_scale(len(groups)))
        figure.colorbar(scale, cax=_beside(ways), label=meaning, ticks=MaxNLocator(integer=True))
        ways.legend(handles=ways.lines[-1:], loc="lower right", fontsize=8, handlelength=1.2)
    else:
        legend = ways.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize=8, handlelength=1.2)
        for line in legend.get_lines()[:-1]:
            line.set_linewidth(2)
    coverage.set_title(f"where the {'policy' if points.shape[1] == 1 else 'team'} is, in {len(points)} repetitions")
    if len(run.world.projection.names) == 1:
        visits = plane.visits(points)[0]
        coverage.stairs(visits / visits.sum(), plane.edges[1], fill=True, color=BLUE)
        coverage.set(xlabel=plain(plane.names[1]), ylabel="share of visits")
        coverage.yaxis.set_major_formatter(PercentFormatter(1))
        return
    image = maps.draw_coverage(coverage, plane, points)
    ticks = MaxNLocator(5, min_n_ticks=2)
    figure.colorbar(image, cax=_beside(coverage), label="share of visits", format=PercentFormatter(1), ticks=ticks)


def _beside(axis: Axes) -> Axes:
    """Space for a colour bar as high as the axes, whatever their aspect."""
    return axis.inset_axes((1.03, 0, 0.035, 1))
