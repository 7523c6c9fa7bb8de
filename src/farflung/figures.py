"""Results as matplotlib figures: pure functions, nothing is shown or saved here."""

from typing import Any

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage
from scipy import stats

from farflung.environments import TabularMDP
from farflung.metrics import occupancy
from farflung.runs import Run, final_values

_TEAM_COLOR, _RANDOM_COLOR, _WALL_COLOR = "#2563a8", "#8a8a8a", "#5f6368"
_MOST_AGENTS_SHOWN = 12
_LEGEND = {"ncols": 3, "frameon": False, "fontsize": 8, "handlelength": 1.5, "columnspacing": 1.2}
_VISITS = "expected share of visits"
_STYLE: dict[Any, Any] = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "farflung"}


def explored(run: Run) -> Figure:
    """The learning curves of a run, and on a map where the team and each of its agents go."""
    with mpl.rc_context(_STYLE):
        if run.world.positions is None:
            figure = Figure(figsize=(9, 3.8), layout="constrained")
            _learning_curves(figure, figure.subplots(1, 2), run)
        else:
            figure = Figure(figsize=(12, 6 if _is_wide(run.world) else 5), layout="constrained")
            left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(1, 1.9)).flat
            _learning_curves(left, left.subplots(2, 1, sharex=True), run)
            _occupancy_maps(right, run)
        kind = f"one policy, {run.config.agents} trajectories" if run.config.single else f"{run.config.agents} agents"
        figure.suptitle(f"{run.config.world}, {kind}, horizon {run.world.horizon}", fontweight="bold")
    return figure


def mean_and_interval(
    values: Float[np.ndarray, "seed *axes"],
) -> tuple[Float[np.ndarray, "*axes"], Float[np.ndarray, "*axes"] | None]:
    """The mean over the seeds and the half-width of its 95% confidence interval (Student's t); None with a single seed."""
    mean = np.asarray(values.mean(axis=0, dtype=np.float64))
    if len(values) < 2:
        return mean, None
    return mean, np.asarray(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values.astype(np.float64), axis=0))


def _learning_curves(figure: Figure | SubFigure, axes: np.ndarray, run: Run) -> None:
    num_seeds = len(run.config.seeds)
    for axis, name, label in (
        (axes[0], "normalized_entropy", "state entropy / log(states)"),
        (axes[1], "support", "distinct states visited"),
    ):
        mean, half_width = mean_and_interval(getattr(run.metrics, name))
        axis.plot(run.updates, mean, color=_TEAM_COLOR, label=f"mean of {num_seeds} seeds" if num_seeds > 1 else "1 seed")
        if half_width is not None:
            band = (mean - half_width, mean + half_width)
            axis.fill_between(run.updates, *band, color=_TEAM_COLOR, alpha=0.2, lw=0, label="95% confidence")
        axis.axhline(run.summary["random"][name], color=_RANDOM_COLOR, ls="--", label="random actions")
        axis.set_ylabel(label)
        axis.grid(alpha=0.25)
    for axis in axes if axes[0].get_subplotspec().get_gridspec().nrows == 1 else axes[1:]:
        axis.set_xlabel("policy updates")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", **_LEGEND)


def _occupancy_maps(figure: SubFigure, run: Run) -> None:
    seed = _typical_seed(run)
    visits = np.asarray(occupancy(run.world, run.team_of(seed)))
    num_agents = len(visits)
    if num_agents == 1:
        _team_map(figure, run, visits[0], f"where the policy is (seed {seed})")
        return
    is_wide = _is_wide(run.world)
    if is_wide:
        parts = figure.subfigures(2, 1, squeeze=False, height_ratios=(1, 1.1))
    else:
        parts = figure.subfigures(1, 2, squeeze=False, width_ratios=(1, 1.1))
    team_figure, agents_figure = parts.flat
    _team_map(team_figure, run, visits.mean(axis=0), f"where the team is (seed {seed})")

    shown = min(num_agents, _MOST_AGENTS_SHOWN)
    num_columns = -(-shown // 2) if is_wide else min(shown, 2 + (shown > 6))
    grid = agents_figure.subplots(-(-shown // num_columns), num_columns, squeeze=False)
    norm = Normalize(0, float(visits[:shown].max()))
    for agent, axis in enumerate(grid.flat):
        if agent >= shown:
            axis.set_axis_off()
            continue
        image = draw_on_map(axis, run.world, visits[agent], norm)
        axis.set_title(f"agent {agent + 1}", fontsize=8)
    agents_figure.colorbar(image, ax=grid, location="bottom", shrink=0.6, label=_VISITS, aspect=30)
    if shown < num_agents:
        agents_figure.suptitle(f"the first {shown} of {num_agents} agents", fontsize=8)


def _team_map(figure: SubFigure, run: Run, visits: Float[np.ndarray, " state"], title: str) -> None:
    axis = figure.subplots()
    image = draw_on_map(axis, run.world, visits)
    axis.set_title(title)
    figure.colorbar(image, ax=axis, location="bottom", shrink=0.6, label=_VISITS, aspect=30)


def _is_wide(world: TabularMDP) -> bool:
    rows, columns = np.asarray(world.positions).max(axis=0) + 1
    return bool(columns > 1.5 * rows)


def _typical_seed(run: Run) -> int:
    """The seed whose final entropy is the median one."""
    final = final_values(run.updates, run.metrics)["entropy"]
    return run.config.seeds[int(np.argsort(final)[(len(final) - 1) // 2])]


def draw_on_map(axis: Axes, world: TabularMDP, values: Float[np.ndarray, " state"], norm: Normalize | None = None) -> AxesImage:
    """Colours each cell of a map by its state's value; walls and what cannot be reached are grey, the start is marked."""
    assert world.positions is not None
    positions = np.asarray(world.positions)
    grid = np.full(positions.max(axis=0) + 1, np.nan)
    grid[*positions.T] = values
    axis.set_facecolor(_WALL_COLOR)
    rows, columns = grid.shape
    axis.add_patch(mpl.patches.Rectangle((-0.5, -0.5), columns, rows, color=_WALL_COLOR, zorder=0))
    image = axis.imshow(grid, cmap="Blues", norm=norm or Normalize(0, float(np.nanmax(grid))))
    if max(rows, columns) <= 40:
        for row, column in positions[np.asarray(world.start_states)]:
            axis.text(column, row, "S", color="#e8590c", ha="center", va="center", fontsize=8, fontweight="bold")
    axis.set_xticks([])
    axis.set_yticks([])
    if max(rows, columns) <= 40:
        axis.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
        axis.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
        axis.grid(which="minor", color="#d9d9d9", lw=0.4)
        axis.tick_params(which="minor", length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)
    return image
