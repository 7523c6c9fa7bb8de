"""Worlds in the plane: a map of cells, or the plane of two features; and visits, policies and paths drawn on them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, QuadMesh
from matplotlib.colors import ListedColormap, Normalize, PowerNorm, to_rgba_array
from matplotlib.image import AxesImage
from matplotlib.patches import Ellipse
from matplotlib.patches import Rectangle as Patch
from matplotlib.quiver import Quiver

from farflung.figures.style import GRID_LINE, START_MARK, WALL, plain
from farflung.worlds.gridworld import MOVES
from farflung.worlds.walls import Pair, Rectangle
from farflung.worlds.world import World

AGENT_COLORS = (*mpl.color_sequences["tab10"], "black", "#c9a400")
UNREACHABLE = "#c9ccd1"
_LARGEST_WITH_CELLS = 40
_LEAST_VISITS = 0.002
_MOST_POINTS = 2500
"""Paths with more points are drawn with thinner lines."""
_LETTER: dict[str, Any] = {"color": START_MARK, "ha": "center", "va": "center", "fontsize": 8, "fontweight": "bold"}


def is_wide(world: World, times: float = 1.5) -> bool:
    """Whether a world's map or plane is so many times wider than high."""
    plane = plane_of(world)
    width, height = np.subtract(plane.high, plane.low)
    return bool(width > times * height)


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
        for letter, (row, column) in _letters_on_map(world):
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
    positions, shape = np.asarray(world.positions), _shape(world)
    grid, has_value = np.zeros(shape), np.zeros(shape, bool)
    np.add.at(grid, tuple(positions.T), np.nan_to_num(values))
    has_value[*positions[np.isfinite(values)].T] = True
    return np.where(has_value, grid, np.nan)


def _beyond(world: World) -> str:
    """The colour of cells without a state: unless walls are known, such cells are walls."""
    return UNREACHABLE if (world.walls or world.shifting_walls) and not world.knows_all_states else WALL


def _shape(world: World) -> tuple[int, int]:
    """Rows and columns of a map, with its walls."""
    rows, columns = np.asarray(world.positions).max(axis=0) + 1
    walls = np.array([*world.walls, *world.shifting_walls]).reshape(-1, 4)
    right, bottom = np.max(walls[:, [1, 3]] + 0.5, axis=0, initial=0).astype(int)
    return max(int(rows), int(bottom)), max(int(columns), int(right))


def _letters_on_map(world: World) -> list[tuple[str, tuple[int, int]]]:
    """The letters of start cells and of cells in which episodes end, with their rows and columns; none that most cells have."""
    positions, letters = np.asarray(world.positions), {"S": world.start_states} | world.ends
    most, found = max(2, len(np.unique(positions, axis=0))), []
    for letter, states in letters.items():
        cells = positions[np.asarray(states, int)]
        if len(cells) < most:
            found += [(letter, (int(row), int(column))) for row, column in np.unique(cells, axis=0)]
    return found


class Plane(NamedTuple):
    """The rectangle in which paths are drawn, divided into the grid cells that the team should cover."""

    names: tuple[str, str]
    low: Pair
    high: Pair
    is_free: Bool[np.ndarray, "column row"]
    """Which cells can be reached, as far as that is known."""
    walls: tuple[Rectangle, ...] = ()
    angles: tuple[int, ...] = ()
    """The axes that wrap around: no line is drawn from one end of their range to the other."""
    is_to_scale: bool = True
    """Whether both axes have the same unit."""
    rows_point_down: bool = False
    """Whether the second axis counts rows from the top."""
    shifting_walls: tuple[Rectangle, ...] = ()
    """Walls of some episodes only."""
    letters: tuple[tuple[str, float, float], ...] = ()
    """Letters and where they stand: S where episodes begin, G and x where they end, rewarded or not."""

    @property
    def edges(self) -> tuple[Float[np.ndarray, " _"], Float[np.ndarray, " _"]]:
        """The borders of the cells along each axis."""
        (left, bottom), (right, top), (columns, rows) = self.low, self.high, self.is_free.shape
        return np.linspace(left, right, columns + 1), np.linspace(bottom, top, rows + 1)

    def visits(self, points: Float[np.ndarray, "*axes 2"]) -> Int[np.ndarray, "column row"]:
        """The number of points in each cell, without the NaNs after an episode's end."""
        cells = cells_of(points, self.low, self.high, self.is_free.shape)
        return np.bincount(cells[cells >= 0], minlength=self.is_free.size).reshape(self.is_free.shape)


def plane_of(world: World) -> Plane:
    """The plane in which a world's paths are drawn.

    For a map of cells, each cell is a unit square and the last row is at the bottom. For vectors, the axes are the first two
    features or, if there is only one feature, time and that feature.
    """
    projection = world.projection
    if projection is None:
        rows, columns = _shape(world)
        is_free = np.zeros((columns, rows), bool)
        is_free[*cells_on_map(world).T] = True
        walls, shifting = (
            tuple((left + 0.5, right + 0.5, rows - 0.5 - bottom, rows - 0.5 - top) for left, right, top, bottom in each)
            for each in (world.walls, world.shifting_walls)
        )
        letters = tuple((letter, column + 0.5, rows - 0.5 - row) for letter, (row, column) in _letters_on_map(world))
        high = (float(columns), float(rows))
        return Plane(("", ""), (0.0, 0.0), high, is_free, walls, shifting_walls=shifting, letters=letters)
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
    is_to_scale = has_one_unit and not angles
    letters = tuple(("S", (left + right) / 2, (bottom + top) / 2) for left, right, bottom, top in world.starts)
    about = (angles, is_to_scale, world.rows_point_down, world.shifting_walls, letters)
    return Plane(names, low, high, is_free, world.walls, *about)


def cells_on_map(world: World) -> Int[np.ndarray, "state 2"]:
    """The column of each state, and its row counted from the bottom."""
    rows, columns = np.asarray(world.positions).T
    return np.stack([columns, _shape(world)[0] - 1 - rows], axis=-1)


def goal_area(world: World, task: Mapping[str, Any]) -> tuple[float, float, float, float] | None:
    """Left, right, bottom and top of a task's goal in the plane; None if the task has no goal that can be drawn.

    Args:
        task: `summary["transfer"]` of a run, which may come from a file.
    """
    goal, radius = task.get("goal"), task.get("goal_radius")
    if world.projection is None:
        if world.positions is None or type(goal) is not int or not 0 <= goal < len(np.asarray(world.positions)):
            return None
        column, row = map(float, cells_on_map(world)[goal])
        return column, column + 1, row, row + 1
    numbers: list[Any] = [*goal, radius] if isinstance(goal, list) and len(goal) == len(world.projection.names) > 1 else [None]
    if not all(isinstance(number, int | float) and math.isfinite(number) for number in numbers):
        return None
    (x, y, *_), (width, height, *_) = numbers, (numbers[-1] * scale for scale in world.projection.scale)
    return float(x - width), float(x + width), float(y - height), float(y + height)


def mark_goal(axis: Axes, world: World, task: Mapping[str, Any]) -> None:
    """Draws the goal of a task as a G in its cell, or as an ellipse."""
    area = goal_area(world, task)
    if area is None:
        return
    left, right, bottom, top = area
    if world.projection is None:  # an image of a map has the first row on top
        axis.text(left, _shape(world)[0] - 1 - bottom, "G", **_LETTER)
        return
    middle = ((left + right) / 2, (bottom + top) / 2)
    axis.add_patch(Ellipse(middle, right - left, top - bottom, fill=False, color="black", lw=1.2, zorder=5))
    axis.annotate("G", middle, ha="center", va="center", fontsize=7, zorder=6)


def cells_of(
    features: Float[np.ndarray, "*axes feature"], low: Sequence[float], high: Sequence[float], bins: Sequence[int]
) -> Int[np.ndarray, "*axes"]:
    """The grid cell of each state, numbered as in `Projection.cells`; -1 after an episode's end."""
    is_real = np.isfinite(features).all(axis=-1)
    share = (np.where(is_real[..., None], features, low) - np.asarray(low)) / np.subtract(high, low)
    places = np.clip(np.floor(share * bins), 0, np.subtract(bins, 1)).astype(np.int64)
    return np.where(is_real, np.ravel_multi_index(tuple(np.moveaxis(places, -1, 0)), tuple(bins)), -1)


def points_of(features: Float[np.ndarray, "*axes times feature"]) -> Float[np.ndarray, "*axes times 2"]:
    """The point of the plane at which each state is drawn, where states are vectors."""
    if features.shape[-1] > 1:
        return features[..., :2]
    times = np.arange(features.shape[-2], dtype=features.dtype)[:, None]
    return np.concatenate([np.broadcast_to(times, features.shape), features], axis=-1)


def by_color(paths: Float[np.ndarray, "agent trajectory times 2"]) -> tuple[str, Float[np.ndarray, "color path times 2"]]:
    """The paths grouped by colour, and the meaning of a colour: an agent or, if there is one policy, a trajectory."""
    return ("agent", paths) if len(paths) > 1 or paths.shape[1] == 1 else ("trajectory", paths.swapaxes(0, 1))


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


def is_jump(paths: Float[np.ndarray, "path times 2"], plane: Plane) -> Bool[np.ndarray, "path steps"]:
    """Which steps go from one end of an angle's range to the other."""
    half = np.subtract(plane.high, plane.low) / 2
    return np.asarray((np.abs(np.diff(paths, axis=1)) > half)[..., list(plane.angles)].any(axis=-1))


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
