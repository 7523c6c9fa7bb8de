"""Figures of offline RL: the goals that it reaches with a dataset, or the returns that it gets."""

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PatchCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Circle, Rectangle

from farflung.data.offline import Reached
from farflung.data.rewards import Learned
from farflung.figures.maps import draw_on_map
from farflung.figures.planes import is_wide, plane_of
from farflung.figures.style import BLUE, GREEN, GREY, GRID_LINE, ORANGE, START_MARK, STYLE, WALL, plain
from farflung.runs.statistics import wilson_interval

_NAMES = ("the dataset", "random actions, as many episodes")


@mpl.rc_context(STYLE)
def reached(found: Reached, name: str) -> Figure:
    """The success rate of each goal, on the map or in the maze if there is one, and sorted."""
    world, is_maze = found.world, found.radius is not None
    if world.positions is None and not is_maze:
        figure = Figure(figsize=(7, 4), layout="constrained")
        _sorted(figure, found)
    else:
        figure = Figure(figsize=(11, 4.3), layout="constrained")
        maps, curves = figure.subfigures(1, 2, squeeze=False, width_ratios=(1.9, 1)).flat
        axes = maps.subplots(*((2, 1) if is_wide(world) else (1, 2)))
        for axis, title, success in zip(axes, _NAMES, (found.success, found.random_success), strict=True):
            image = draw_goals(axis, found, success.mean(axis=0))
            axis.set_title(f"{title}: mean {success.mean():.2f}", fontsize=9)
        maps.colorbar(image, ax=axes, location="bottom", shrink=0.5, aspect=40, label="success rate")
        _sorted(curves, found)
    transitions = f"{found.num_transitions:,} transitions"
    how = "implicit Q-learning" if is_maze else "Q-learning"
    figure.suptitle(f"goals reached by {how} from {plain(name)} ({transitions})", fontweight="bold")
    return figure


@mpl.rc_context(STYLE)
def earned(found: Learned, name: str) -> Figure:
    """The return of each test episode by seed, beside those of the dataset and of random actions."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axis = figure.subplots()
    columns = {f"seed {seed}": row for seed, row in zip(found.config.seeds, found.returns, strict=True)}
    columns |= {"dataset": found.data_returns, "random": found.random_returns}
    for place, (label, values) in enumerate(columns.items()):
        color = {"dataset": GREY, "random": ORANGE}.get(label, BLUE)
        spread = np.linspace(-0.15, 0.15, len(values)) if len(values) > 1 else np.zeros(1)
        axis.plot(place + spread, values, "o", ms=3, color=color, alpha=min(1.0, 30 / len(values)), mew=0)
        axis.plot([place - 0.25, place + 0.25], [values.mean()] * 2, color=color, lw=2.5)
    if found.reference is not None:
        axis.axhline(found.reference, color=GREEN, ls="--", label="reference")
        figure.legend(loc="outside lower center", frameon=False, fontsize=8)
    axis.set_xticks(range(len(columns)), list(columns))
    axis.set(ylabel="return of an episode; the bars are means")
    axis.grid(alpha=0.25, axis="y")
    score = "" if found.scores is None else f": score {found.scores.mean():.2f}"
    figure.suptitle(f"{found.config.method} from {plain(name)} in {plain(found.environment)}{score}", fontweight="bold")
    return figure


def draw_goals(axis: Axes, found: Reached, success: Float[np.ndarray, " goal"]) -> ScalarMappable:
    """Colours each goal by its success rate: a cell of a map, or in a maze a disc with the goal's radius."""
    norm = Normalize(0, 1)
    if found.radius is None:
        values = np.full(found.world.num_states, np.nan)
        cells = np.asarray(found.world.positions)[found.goals]
        _, cell, num_goals = np.unique(cells, axis=0, return_inverse=True, return_counts=True)
        values[found.goals] = success / num_goals[cell]  # a cell shows the mean of its goals
        return draw_on_map(axis, found.world, values, norm)
    plane = plane_of(found.world)
    (left, bottom), (right, top) = plane.low, plane.high
    discs = PatchCollection([Circle(goal, found.radius) for goal in found.goals], cmap="Blues", norm=norm, ec=GRID_LINE)
    discs.set_array(success)
    axis.add_collection(discs)
    for x0, x1, y0, y1 in found.world.walls:
        axis.add_patch(Rectangle((x0, y0), x1 - x0, y1 - y0, fc=WALL, ec=WALL, lw=2))
    for x0, x1, y0, y1 in found.world.starts:
        axis.text((x0 + x1) / 2, (y0 + y1) / 2, "S", color=START_MARK, ha="center", va="center", fontweight="bold")
    axis.add_patch(Rectangle((left, bottom), right - left, top - bottom, fill=False, ec=WALL, lw=2))
    axis.set(xlim=(left, right), ylim=(bottom, top), xticks=[], yticks=[], aspect="equal")
    return discs


def _sorted(figure: Figure | SubFigure, found: Reached) -> None:
    axis = figure.subplots()
    for title, success, color in zip(_NAMES, (found.success, found.random_success), (BLUE, ORANGE), strict=True):
        ordered = np.sort(success, axis=1)[:, ::-1]
        places = np.arange(1, ordered.shape[1] + 1)
        axis.plot(places, ordered.mean(axis=0), color=color, label=title)
        if (interval := wilson_interval(ordered)) is not None:
            axis.fill_between(places, *interval, color=color, alpha=0.2, lw=0)
    axis.axhline(found.untrained, color=GREY, ls="--", label="without data")
    axis.set(xlabel="goals, best first", ylabel="success rate", ylim=(-0.02, 1.02))
    axis.grid(alpha=0.25)
    figure.legend(loc="outside lower center", frameon=False, fontsize=8)
