"""Where agents go in a plane: their ways, and how they cover it."""

from collections.abc import Sequence
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection, QuadMesh
from matplotlib.colors import ListedColormap, Normalize, PowerNorm, to_rgba_array
from matplotlib.figure import SubFigure
from matplotlib.patches import Rectangle as Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from farflung.figures.style import BLUE, START_MARK, WALL, plain
from farflung.runs.run import Run
from farflung.worlds.walls import Pair, Rectangle
from farflung.worlds.world import World

_AGENTS = (*mpl.color_sequences["tab10"], "black", "#c9a400")
OUT_OF_REACH = "#c9ccd1"
_MOST_POINTS = 2500
"""Where paths have more of them, lines are thinner."""


class Plane(NamedTuple):
    """The rectangle that agents are drawn in, divided into the cells that they are to cover."""

    names: tuple[str, str]
    low: Pair
    high: Pair
    is_free: Bool[np.ndarray, "column row"]
    """Which cells can be reached, as far as that is known."""
    walls: tuple[Rectangle, ...] = ()
    angles: tuple[int, ...] = ()
    """Which axes come round, so that no line joins one end to the other."""
    is_to_scale: bool = True
    """Whether both axes have the same unit."""

    @property
    def edges(self) -> tuple[Float[np.ndarray, " _"], Float[np.ndarray, " _"]]:
        """Where the cells begin and end along each axis."""
        return (
            np.linspace(self.low[0], self.high[0], self.is_free.shape[0] + 1),
            np.linspace(self.low[1], self.high[1], self.is_free.shape[1] + 1),
        )

    def visits(self, points: Float[np.ndarray, "*axes 2"]) -> Int[np.ndarray, "column row"]:
        """How many of the points lie in each cell; those that are not finite, after an episode's end, in none."""
        cells = cells_of(points, self.low, self.high, self.is_free.shape)
        return np.bincount(cells[cells >= 0], minlength=self.is_free.size).reshape(self.is_free.shape)


def cells_of(
    features: Float[np.ndarray, "*axes feature"], low: Sequence[float], high: Sequence[float], bins: Sequence[int]
) -> Int[np.ndarray, "*axes"]:
    """The cell of a grid that each state lies in, numbered as a projection does; -1 after an episode's end."""
    is_real = np.isfinite(features).all(axis=-1)
    share = (np.where(is_real[..., None], features, low) - np.asarray(low)) / np.subtract(high, low)
    places = np.clip(np.floor(share * bins), 0, np.subtract(bins, 1)).astype(np.int64)
    return np.where(is_real, np.ravel_multi_index(tuple(np.moveaxis(places, -1, 0)), tuple(bins)), -1)


def plane_of(world: World) -> Plane:
    """The first two features of a world; of a world with only one, that feature over time."""
    projection = world.projection
    assert projection is not None
    if len(projection.names) == 1:
        low, high = (0.0, projection.low[0]), (float(world.horizon), projection.high[0])
        is_free, angles = world.is_free.reshape(1, -1), tuple(1 for _ in projection.angles)
        return Plane(("step", projection.names[0]), low, high, is_free, angles=angles, is_to_scale=False)
    first, second, *others = projection.names
    low, high = ((ends[0], ends[1]) for ends in (projection.low, projection.high))
    is_free = np.asarray(world.is_free.reshape(*projection.bins[:2], -1).any(axis=-1))
    angles = tuple(angle for angle in projection.angles if angle < 2)
    has_one_unit = first.partition("(")[2] == second.partition("(")[2] and projection.scale[0] == projection.scale[1]
    names = (first + (f"; not shown: {', '.join(others)}" if others else ""), second)
    return Plane(names, low, high, is_free, world.walls, angles, is_to_scale=has_one_unit and not angles)


def plane_of_map(world: World) -> Plane:
    """A map of cells, each of which is a unit square, with the lowest row at the bottom."""
    columns, rows = cells_on_map(world).max(axis=0) + 1
    is_free = np.zeros((columns, rows), bool)
    is_free[*cells_on_map(world).T] = True
    return Plane(("", ""), (0.0, 0.0), (float(columns), float(rows)), is_free)


def cells_on_map(world: World) -> Int[np.ndarray, "state 2"]:
    """The column of each state, and its row counted from below."""
    rows, columns = np.asarray(world.positions).T
    return np.stack([columns, rows.max() - rows], axis=-1)


def points_of(features: Float[np.ndarray, "*axes times feature"]) -> Float[np.ndarray, "*axes times 2"]:
    """Where in its plane each state of a continuous world is drawn."""
    if features.shape[-1] > 1:
        return features[..., :2]
    times = np.arange(features.shape[-2], dtype=features.dtype)[:, None]
    return np.concatenate([np.broadcast_to(times, features.shape), features], axis=-1)


def by_agent(paths: Float[np.ndarray, "agent trajectory times 2"]) -> tuple[str, Float[np.ndarray, "who path times 2"]]:
    """What a colour stands for, and the paths of each: of one policy, each trajectory has its own colour."""
    return ("agent", paths) if len(paths) > 1 or paths.shape[1] == 1 else ("trajectory", paths.swapaxes(0, 1))


def colors_of(num: int) -> Float[np.ndarray, "{num} 4"]:
    """As many colours: such as can be told apart or, if they are too many, those of a scale."""
    return to_rgba_array(_AGENTS[:num]) if num <= len(_AGENTS) else np.asarray(_scale(num)(np.arange(num)))


def draw_plane(axis: Axes, plane: Plane) -> None:
    """The walls, the border and the names of the axes."""
    for left, right, bottom, top in plane.walls:
        axis.add_patch(Patch((left, bottom), right - left, top - bottom, fc=WALL, ec=WALL, lw=1.5, zorder=2.5))
    (left, bottom), (right, top) = plane.low, plane.high
    axis.set(xlim=(left, right), ylim=(bottom, top), xlabel=plain(plane.names[0]), ylabel=plain(plane.names[1]))
    axis.set_aspect("equal" if plane.is_to_scale else "auto")
    axis.spines[:].set_visible(True)
    if not any(plane.names):
        axis.set(xticks=[], yticks=[])


def draw_world(axis: Axes, world: World) -> None:
    """The plane of a world without anybody in it; where episodes begin is marked, if it is a maze."""
    plane = plane_of(world)
    draw_plane(axis, plane)
    axis.pcolormesh(*plane.edges, plane.is_free.T, cmap=ListedColormap([OUT_OF_REACH, "white"]), vmin=0, vmax=1)
    for left, right, bottom, top in world.starts:
        axis.add_patch(Patch((left, bottom), right - left, top - bottom, fc="none", ec=START_MARK, lw=1))
        middle = ((left + right) / 2, (bottom + top) / 2)
        axis.text(*middle, "S", color=START_MARK, ha="center", va="center", fontsize=8, fontweight="bold")


def draw_paths(axis: Axes, plane: Plane, paths: Float[np.ndarray, "agent trajectory times 2"]) -> None:
    """The way of each agent in its own colour, from a ring to a dot."""
    draw_plane(axis, plane)
    what, groups = by_agent(paths)
    look = {"lw": 0.6 if groups.size > 2 * _MOST_POINTS else 1.1, "alpha": 0.75, "zorder": 2}
    for number, (group, color) in enumerate(zip(groups, colors_of(len(groups)), strict=True)):
        lines = axis.add_collection(LineCollection(_broken(group, plane), color=color, **look), autolim=False)
        lines.set_label(f"{what} {number + 1}")
        ends = np.concatenate([path[np.isfinite(path).all(axis=-1)][-1:] for path in group])
        axis.plot(*ends.T, "o", color=color, ms=4, mec="white", mew=0.4, zorder=4)
    starts = np.unique(groups[:, :, 0].reshape(-1, 2), axis=0)
    size = 6 if len(starts) <= len(_AGENTS) else 3
    axis.plot(*starts.T, "o", mfc="white", mec="black", ms=size, mew=1.2, zorder=4.5, label="start")
    fit(axis, plane, paths)


def is_jump(paths: Float[np.ndarray, "path times 2"], plane: Plane) -> Bool[np.ndarray, "path steps"]:
    """Which steps lead over the end of an angle's range to its other end."""
    half = np.subtract(plane.high, plane.low) / 2
    return np.asarray((np.abs(np.diff(paths, axis=1)) > half)[..., list(plane.angles)].any(axis=-1))


def _broken(paths: Float[np.ndarray, "path times 2"], plane: Plane) -> list[Float[np.ndarray, "_ 2"]]:
    """The paths, with a gap at each jump."""
    jumps = is_jump(paths, plane)
    return [np.insert(path, np.flatnonzero(its) + 1, np.nan, axis=0) for path, its in zip(paths, jumps, strict=True)]


def draw_coverage(axis: Axes, plane: Plane, points: Float[np.ndarray, "*axes 2"]) -> QuadMesh:
    """The share of visits in each cell; cells that cannot be reached are grey."""
    draw_plane(axis, plane)
    visits = plane.visits(points)
    shares = np.where(plane.is_free | (visits > 0), visits / visits.sum(), np.nan)
    axis.add_patch(Patch(plane.low, *np.subtract(plane.high, plane.low), color=OUT_OF_REACH, zorder=0))
    # Where all begin, there are many more visits than elsewhere: the root leaves differences to be seen.
    norm = PowerNorm(0.5, 0, float(np.nanmax(shares)))
    return axis.pcolormesh(*plane.edges, shares.T, cmap="Blues", norm=norm)


def draw_team(figure: SubFigure, run: Run) -> None:
    """One episode of a trained team in a continuous world, and how its visits are spread in several."""
    assert run.world.projection is not None
    assert run.paths is not None
    plane, points = plane_of(run.world), points_of(run.paths.features)
    ways, coverage = figure.subplots(1, 2)
    draw_paths(ways, plane, points[0])
    what, groups = by_agent(points[0])
    ways.set_title(f"where {'each' if len(groups) > 1 else 'the'} {what} goes (seed {run.paths.seed})")
    if len(groups) > len(_AGENTS):
        scale = ScalarMappable(Normalize(0.5, len(groups) + 0.5), _scale(len(groups)))
        figure.colorbar(scale, cax=_beside(ways), label=what, ticks=MaxNLocator(integer=True))
        ways.legend(handles=ways.lines[-1:], loc="lower right", fontsize=8, handlelength=1.2)
    else:
        legend = ways.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize=8, handlelength=1.2)
        for line in legend.get_lines()[:-1]:
            line.set_linewidth(2)
    title = f"where the {'policy' if points.shape[1] == 1 else 'team'} is, in {len(points)} repetitions"
    if len(run.world.projection.names) == 1:
        _draw_histogram(coverage, plane, points, title)
        return
    image = draw_coverage(coverage, plane, points)
    coverage.set_title(title)
    figure.colorbar(
        image, cax=_beside(coverage), label="share of visits", format=PercentFormatter(1), ticks=MaxNLocator(5, min_n_ticks=2)
    )


def _beside(axis: Axes) -> Axes:
    """Room for a scale that is as high as the axes, whatever their shape."""
    return axis.inset_axes((1.03, 0, 0.035, 1))


def _draw_histogram(axis: Axes, plane: Plane, points: Float[np.ndarray, "*axes 2"], title: str) -> None:
    visits = plane.visits(points)[0]
    axis.stairs(visits / visits.sum(), plane.edges[1], fill=True, color=BLUE)
    axis.set(xlabel=plain(plane.names[1]), ylabel="share of visits", title=title)
    axis.yaxis.set_major_formatter(PercentFormatter(1))


def fit(axis: Axes, plane: Plane, paths: Float[np.ndarray, "*axes 2"]) -> None:
    """Has nothing end at the border of the grid that goes on beyond it."""
    places = paths.reshape(-1, 2)
    low, high = np.nanmin(places, axis=0), np.nanmax(places, axis=0)
    margin = 0.02 * np.subtract(plane.high, plane.low)
    (left, bottom), (right, top) = np.minimum(plane.low, low) - margin, np.maximum(plane.high, high) + margin
    axis.set(xlim=(left, right), ylim=(bottom, top))


def _scale(num: int) -> ListedColormap:
    return ListedColormap(mpl.colormaps["turbo"](np.linspace(0, 1, num)))
