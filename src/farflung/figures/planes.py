"""Where a world is drawn: the plane of its map or of two features, and what lies where in it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from farflung.worlds.walls import Pair, Rectangle
from farflung.worlds.world import World


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
        rows, columns = shape_of(world)
        is_free = np.zeros((columns, rows), bool)
        is_free[*cells_on_map(world).T] = True
        walls, shifting = (
            tuple((left + 0.5, right + 0.5, rows - 0.5 - bottom, rows - 0.5 - top) for left, right, top, bottom in each)
            for each in (world.walls, world.shifting_walls)
        )
        letters = tuple((letter, column + 0.5, rows - 0.5 - row) for letter, (row, column) in letters_on_map(world))
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
    return np.stack([columns, shape_of(world)[0] - 1 - rows], axis=-1)


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


def is_wide(world: World, times: float = 1.5) -> bool:
    """Whether a world's map or plane is so many times wider than high."""
    plane = plane_of(world)
    width, height = np.subtract(plane.high, plane.low)
    return bool(width > times * height)


def shape_of(world: World) -> tuple[int, int]:
    """Rows and columns of a map, with its walls."""
    rows, columns = np.asarray(world.positions).max(axis=0) + 1
    walls = np.array([*world.walls, *world.shifting_walls]).reshape(-1, 4)
    right, bottom = np.max(walls[:, [1, 3]] + 0.5, axis=0, initial=0).astype(int)
    return max(int(rows), int(bottom)), max(int(columns), int(right))


def letters_on_map(world: World) -> list[tuple[str, tuple[int, int]]]:
    """The letters of start cells and of cells in which episodes end, with their rows and columns; none that most cells have."""
    positions, letters = np.asarray(world.positions), {"S": world.start_states} | world.ends
    most, found = max(2, len(np.unique(positions, axis=0))), []
    for letter, states in letters.items():
        cells = positions[np.asarray(states, int)]
        if len(cells) < most:
            found += [(letter, (int(row), int(column))) for row, column in np.unique(cells, axis=0)]
    return found


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


def is_jump(paths: Float[np.ndarray, "path times 2"], plane: Plane) -> Bool[np.ndarray, "path steps"]:
    """Which steps go from one end of an angle's range to the other."""
    half = np.subtract(plane.high, plane.low) / 2
    return np.asarray((np.abs(np.diff(paths, axis=1)) > half)[..., list(plane.angles)].any(axis=-1))
