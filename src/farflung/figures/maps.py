"""Worlds drawn in their plane, with visits, policies and paths."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, QuadMesh
from matplotlib.colors import ListedColormap, Normalize, PowerNorm, to_rgba_array
from matplotlib.image import AxesImage
from matplotlib.patches import Ellipse
from matplotlib.patches import Rectangle as Patch
from matplotlib.quiver import Quiver

from farflung.figures.planes import Plane, by_color, goal_area, is_jump, letters_on_map, plane_of, shape_of
from farflung.figures.style import GRID_LINE, START_MARK, WALL, plain
from farflung.worlds.gridworld import MOVES
from farflung.worlds.walls import Rectangle
from farflung.worlds.world import World

AGENT_COLORS = (*mpl.color_sequences["tab10"], "black", "#c9a400")
UNREACHABLE = "#c9ccd1"
_LARGEST_WITH_CELLS = 40
_LEAST_VISITS = 0.002
_MOST_POINTS = 2500
"""Paths with more points are drawn with thinner lines."""
_LETTER: dict[str, Any] = {"color": START_MARK, "ha": "center", "va": "center", "fontsize": 8, "fontweight": "bold"}


def draw_world(axis: Axes, world: World) -> None:
    """Draws an empty world: its cells or its plane, the walls, and an S where episodes begin."""
    if world.projection is None:
        draw_on_map(axis, world, np.full(world.num_states, np.nan), Normalize(0, 1))
        return
    plane = plane_of(world)
    draw_plane(axis, plane)
    axis.pcolormesh(*plane.edges, plane.is_free.T, cmap=ListedColormap([UNREACHABLE, "white"]), vmin=0, vmax=1)
    for left, right, bottom, top in world.starts:
        axis.add_patch(Patch((left, bottom), right - left, top - bottom, fc="none", ec=START_MARK, lw=1))
    draw_letters(axis, plane)


def draw_on_map(axis: Axes, world: World, values: Float[np.ndarray, " state"], norm: Normalize | None = None) -> AxesImage:
    """Colours each cell of a map by the sum of its states' values; walls and unreachable cells are grey.

    Start cells have an S, cells in which episodes end a G or, if nothing is gained there, an x.
    """
    grid = on_grid(world, values)
    rows, columns = grid.shape
    axis.add_patch(Patch((-0.5, -0.5), columns, rows, color=_beyond(world), zorder=0))
    axis.imshow(on_grid(world, np.zeros(world.num_states)), cmap=ListedColormap(["white"]))
    image = axis.imshow(grid, cmap="Blues", norm=norm or Normalize(0, float(np.nanmax(grid))))
    _draw_walls(axis, world.walls, world.shifting_walls)
    if max(rows, columns) <= _LARGEST_WITH_CELLS:
        for letter, (row, column) in letters_on_map(world):
            axis.text(column, row, letter, **_LETTER)
        axis.vlines(np.arange(columns + 1) - 0.5, -0.5, rows - 0.5, color=GRID_LINE, lw=0.4)
        axis.hlines(np.arange(rows + 1) - 0.5, -0.5, columns - 0.5, color=GRID_LINE, lw=0.4)
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(False)
    return image


def draw_policy(
    axis: Axes, world: World, probabilities: Float[np.ndarray, "state action"], visits: Float[np.ndarray, " state"]
) -> Quiver:
    """Draws the most likely action of each visited state as an arrow; darker arrows are more likely."""
    draw_world(axis, world)
    down, right = np.array(MOVES)[probabilities.argmax(axis=1)].T * 0.7
    rows, columns = np.asarray(world.positions).T
    seen = visits > _LEAST_VISITS
    arrows = np.stack([columns - right / 2, rows - down / 2, right, down, probabilities.max(axis=1)])[:, seen]
    in_cells: dict[str, Any] = {"angles": "xy", "scale_units": "xy", "scale": 1}
    return axis.quiver(*arrows, **in_cells, cmap="Blues", clim=(0, 1), width=0.012, headwidth=5, zorder=3)


def on_grid(world: World, values: Float[np.ndarray, " state"]) -> Float[np.ndarray, "row column"]:
    """The sum of the values of the states in each cell of a map; NaN where there is none."""
    positions, shape = np.asarray(world.positions), shape_of(world)
    grid, has_value = np.zeros(shape), np.zeros(shape, bool)
    np.add.at(grid, tuple(positions.T), np.nan_to_num(values))
    has_value[*positions[np.isfinite(values)].T] = True
    return np.where(has_value, grid, np.nan)


def _beyond(world: World) -> str:
    """The colour of cells without a state: unless walls are known, such cells are walls."""
    return UNREACHABLE if (world.walls or world.shifting_walls) and not world.knows_all_states else WALL


def mark_goal(axis: Axes, world: World, task: Mapping[str, Any]) -> None:
    """Draws the goal of a task as a G in its cell, or as an ellipse."""
    area = goal_area(world, task)
    if area is None:
        return
    left, right, bottom, top = area
    if world.projection is None:  # an image of a map has the first row on top
        axis.text(left, shape_of(world)[0] - 1 - bottom, "G", **_LETTER)
        return
    middle = ((left + right) / 2, (bottom + top) / 2)
    axis.add_patch(Ellipse(middle, right - left, top - bottom, fill=False, color="black", lw=1.2, zorder=5))
    axis.annotate("G", middle, ha="center", va="center", fontsize=7, zorder=6)


def colors_of(num: int) -> Float[np.ndarray, "{num} 4"]:
    """So many colours: distinct ones or, if there are too many, those of a colour scale."""
    return to_rgba_array(AGENT_COLORS[:num]) if num <= len(AGENT_COLORS) else np.asarray(color_scale(num)(np.arange(num)))


def color_scale(num: int) -> ListedColormap:
    return ListedColormap(mpl.colormaps["turbo"](np.linspace(0, 1, num)))


def draw_plane(axis: Axes, plane: Plane) -> None:
    """Draws the walls, the border and the names of the axes."""
    _draw_walls(axis, plane.walls, plane.shifting_walls)
    (left, bottom), (right, top) = plane.low, plane.high
    vertical = (top, bottom) if plane.rows_point_down else (bottom, top)
    axis.set(xlim=(left, right), ylim=vertical, xlabel=plain(plane.names[0]), ylabel=plain(plane.names[1]))
    axis.set_aspect("equal" if plane.is_to_scale else "auto")
    axis.spines[:].set_visible(True)
    if not any(plane.names):
        axis.set(xticks=[], yticks=[])


def draw_letters(axis: Axes, plane: Plane, which: str = "SGx") -> None:
    """Draws these letters of a map or plane."""
    for letter, x, y in plane.letters:
        if letter in which:
            axis.text(x, y, letter, zorder=3.5, **_LETTER)


def _draw_walls(axis: Axes, walls: Sequence[Rectangle], shifting: Sequence[Rectangle]) -> None:
    """Draws walls, and in a lighter tone those of some episodes only; lines are as thick as they need to be seen."""
    for rectangles, look in ((walls, {"lw": 1.5, "ec": WALL}), (shifting, {"lw": 0.0, "alpha": 0.4})):
        for left, right, bottom, top in rectangles:
            axis.add_patch(Patch((left, bottom), right - left, top - bottom, fc=WALL, zorder=2.5, **look))


def draw_paths(axis: Axes, plane: Plane, paths: Float[np.ndarray, "agent trajectory times 2"]) -> None:
    """Draws the path of each agent in its own colour, from a ring to a dot."""
    draw_plane(axis, plane)
    meaning, groups = by_color(paths)
    look = {"lw": 0.6 if groups.size > 2 * _MOST_POINTS else 1.1, "alpha": 0.75, "zorder": 2}
    for number, (group, color) in enumerate(zip(groups, colors_of(len(groups)), strict=True)):
        jumps = zip(group, is_jump(group, plane), strict=True)
        pieces = [np.insert(path, np.flatnonzero(own) + 1, np.nan, axis=0) for path, own in jumps]
        lines = axis.add_collection(LineCollection(pieces, color=color, **look), autolim=False)
        lines.set_label(f"{meaning} {number + 1}")
        ends = np.concatenate([path[np.isfinite(path).all(axis=-1)][-1:] for path in group])
        axis.plot(*ends.T, "o", color=color, ms=4, mec="white", mew=0.4, zorder=4)
    starts = np.unique(groups[:, :, 0].reshape(-1, 2), axis=0)
    size = 6 if len(starts) <= len(AGENT_COLORS) else 3
    axis.plot(*starts.T, "o", mfc="white", mec="black", ms=size, mew=1.2, zorder=4.5, label="start")
    widen_limits(axis, plane, paths)


def draw_coverage(axis: Axes, plane: Plane, points: Float[np.ndarray, "*axes 2"]) -> QuadMesh:
    """Draws the share of visits in each cell; unreachable cells are grey."""
    draw_plane(axis, plane)
    visits = plane.visits(points)
    shares = np.where(plane.is_free | (visits > 0), visits / visits.sum(), np.nan)
    axis.add_patch(Patch(plane.low, *np.subtract(plane.high, plane.low), color=UNREACHABLE, zorder=0))
    # Start cells have many more visits than others: a square root keeps differences between the others visible.
    norm = PowerNorm(0.5, 0, float(np.nanmax(shares)))
    return axis.pcolormesh(*plane.edges, shares.T, cmap="Blues", norm=norm)


def widen_limits(axis: Axes, plane: Plane, paths: Float[np.ndarray, "*axes 2"]) -> None:
    """Widens the limits of the axes to show paths that leave the grid."""
    places = paths.reshape(-1, 2)
    low, high = np.nanmin(places, axis=0), np.nanmax(places, axis=0)
    margin = 0.02 * np.subtract(plane.high, plane.low)
    (left, bottom), (right, top) = np.minimum(plane.low, low) - margin, np.maximum(plane.high, high) + margin
    axis.set(xlim=(left, right), ylim=(top, bottom) if plane.rows_point_down else (bottom, top))
