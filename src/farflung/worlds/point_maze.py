"""A point that moves in a plane with walls."""

import functools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from farflung.config.checks import check_positive, whole_number
from farflung.worlds.gridworld import FREE, GOAL, START, WALL, gridworld, parse_map
from farflung.worlds.projection import Box, Projection, whole_bins, whole_neighbours
from farflung.worlds.vectors import DescribedWorld, write_recipe
from farflung.worlds.walls import Pair, Rectangle, is_blocked, reachable_areas, wall_table

Numbers = Sequence[Any] | np.ndarray
POINT_MAZE = "farflung/PointMaze-v0"
"""The Gymnasium id of a point maze."""


class PointMaze(DescribedWorld):
    """A point in a rectangle with walls, moved by at most `step_size` along each axis; make one with `point_maze`.

    A step that would touch or cross a wall leaves the point where it is; a step beyond the outer border ends at the border.
    """

    actions: Box
    low: Pair = eqx.field(static=True)
    high: Pair = eqx.field(static=True)
    walls: tuple[Rectangle, ...] = eqx.field(static=True)
    starts: tuple[Rectangle, ...] = eqx.field(static=True)
    """Each episode starts uniformly in one of these rectangles, chosen at random; a point is a rectangle of size 0."""
    step_size: float = eqx.field(static=True)

    num_step_uniforms = 0

    @property
    def maze(self) -> "PointMaze":
        return self

    @property
    def environment(self) -> tuple[str, dict[str, Any]]:
        return POINT_MAZE, {"world": self.recipe}

    @property
    def free_area(self) -> float:
        return float(self._areas.sum())

    @property
    def is_free(self) -> Bool[np.ndarray, " cell"]:
        sizes = [(high - low) / num for low, high, num in zip(self.low, self.high, self.projection.bins, strict=True)]
        return (self._areas > 1e-9 * np.prod(sizes)).reshape(-1)  # rounding errors in equal edges leave slivers

    @property
    def num_reset_uniforms(self) -> int:
        (left, right, bottom, top), *others = self.starts
        return 0 if (left, bottom) == (right, top) and not others else 3

    def reset_from(self, noise: Float[Array, " {self.num_reset_uniforms}"]) -> Float[Array, "2"]:
        starts = jnp.asarray(wall_table(self.starts))
        if self.num_reset_uniforms == 0:
            return starts[0, ::2]
        start = starts[(noise[0] * len(self.starts)).astype(int)]
        return start[::2] + noise[1:] * (start[1::2] - start[::2])

    def step_from(self, noise: Float[Array, "0"], state: Float[Array, "2"], action: Float[Array, "2"]) -> Float[Array, "2"]:
        low, high = np.array(self.low, np.float32), np.array(self.high, np.float32)
        there = (state + self.step_size * action.clip(-1, 1)).clip(low, high)
        return jnp.where(is_blocked(wall_table(self.walls), state, there), state, there)

    def observe(self, state: Float[Array, "2"]) -> Float[Array, "2"]:
        return state

    @property
    def _areas(self) -> Float[np.ndarray, "column row"]:
        columns, rows = self.projection.bins
        return _reachable_areas(self.low, self.high, (columns, rows), self.walls, self.starts)


_reachable_areas = functools.lru_cache(maxsize=32)(reachable_areas)


def point_maze(
    walls: Numbers = (),
    *,
    starts: Numbers,
    horizon: int,
    step_size: float,
    low: Numbers = (-1.0, -1.0),
    high: Numbers = (1.0, 1.0),
    bins: Sequence[int] = (20, 20),
    neighbours: int = 4,
) -> PointMaze:
    """A point that moves in the rectangle between `low` and `high`, by at most `step_size` along each axis.

    >>> room = point_maze([(0, 0, 0.15, 1), (0, 0, -1, -0.15)], starts=[(-0.5, 0)], horizon=64, step_size=0.08)
    >>> room.free_area, room.num_states
    (4.0, 400)

    Args:
        walls: rectangles (x0, x1, y0, y1); with x0 = x1 or y0 = y1, a wall is a line.
        starts: points (x, y), or rectangles as for walls; each episode starts uniformly in one of them, chosen at random.
        bins: grid cells in x and in y, for counting coverage.
        neighbours: k of the k-nearest-neighbour entropy estimate; 0 counts grid cells instead.
    """
    (left, bottom), (right, top) = _table("low", [low], (2,))[0], _table("high", [high], (2,))[0]
    if not (left < right and bottom < top):
        raise ValueError(f"low must be below high in x and in y, not {(left, bottom)} and {(right, top)}")
    check_positive("step_size", step_size)
    wall_rectangles, start_rectangles = _table("walls", walls, (4,)), _table("starts", starts, (2, 4))
    if not start_rectangles:
        raise ValueError("starts needs at least one point or rectangle")
    for name, rectangles in (("wall", wall_rectangles), ("start", start_rectangles)):
        for rectangle in rectangles:
            if rectangle[0] > rectangle[1] or rectangle[2] > rectangle[3]:
                raise ValueError(f"the {name} {rectangle} ends before it begins: give x0, x1, y0, y1")
    _check_starts(start_rectangles, wall_rectangles, (left, right, bottom, top))
    horizon, bins, neighbours = whole_number("horizon", horizon), whole_bins(bins), whole_neighbours(neighbours)
    shape: dict[str, Any] = {"walls": wall_rectangles, "starts": start_rectangles, "horizon": horizon}
    shape |= {"step_size": float(step_size), "low": (left, bottom), "high": (right, top)}
    return PointMaze(
        **shape,
        projection=Projection((0, 1), ("x", "y"), (left, bottom), (right, top), bins, (1.0, 1.0), neighbours),
        recipe=write_recipe(**shape, bins=bins, neighbours=neighbours),
        actions=Box((-1.0, -1.0), (1.0, 1.0)),
        observation_center=((left + right) / 2, (bottom + top) / 2),
        observation_scale=((right - left) / 2, (top - bottom) / 2),
    )


def point_map(
    text: str,
    *,
    step_size: float = 0.25,
    horizon: int | None = None,
    bins: Sequence[int] | None = None,
    neighbours: int = 4,
) -> PointMaze:
    """A point that moves in a map drawn as for `gridworld`, with unit cells; it starts in the middle of an `S`.

    >>> point_map("S.#").high
    (3.0, 1.0)

    Args:
        horizon: number of actions in an episode (default: enough to reach the middle of the farthest cell of the map's
            `gridworld`, at `1 / step_size` actions per move).
        bins: grid cells in x and in y (default: two per cell of the map).
    """
    check_positive("step_size", step_size)
    cells = parse_map(text)
    rows, columns = cells.shape
    is_wall = np.pad(cells == WALL, ((0, 0), (1, 1))).astype(int)
    begins, ends = (np.argwhere(np.diff(is_wall) == change).astype(float) for change in (1, -1))
    starts = np.argwhere(cells == START) + 0.5
    if horizon is None:
        moves = gridworld(text.replace(GOAL, FREE)).horizon
        horizon = int(np.ceil(moves / step_size))
    return point_maze(
        np.stack([begins[:, 1], ends[:, 1], rows - 1 - begins[:, 0], rows - begins[:, 0]], axis=-1),
        starts=np.stack([starts[:, 1], rows - starts[:, 0]], axis=-1),
        horizon=horizon,
        step_size=step_size,
        low=(0.0, 0.0),
        high=(columns, rows),
        bins=(2 * columns, 2 * rows) if bins is None else bins,
        neighbours=neighbours,
    )


def _check_starts(starts: Sequence[Rectangle], walls: Sequence[Rectangle], border: Rectangle) -> None:
    left, right, bottom, top = border
    table = wall_table(walls)  # in float32, as the point moves
    for start in starts:
        x0, x1, y0, y1 = wall_table([start])[0]
        if not (left <= start[0] and start[1] <= right and bottom <= start[2] and start[3] <= top):
            raise ValueError(f"the start {start} is not within {left} to {right} and {bottom} to {top}")
        touches = (x0 <= table[:, 1]) & (table[:, 0] <= x1) & (y0 <= table[:, 3]) & (table[:, 2] <= y1)
        if touches.any():
            raise ValueError(f"the start {start} touches the wall {walls[touches.argmax()]}")


def _table(name: str, values: Any, widths: tuple[int, ...]) -> tuple[Any, ...]:
    """Checked rows of numbers; where both points and rectangles are allowed, points become rectangles."""
    rows = []
    for row in values:
        try:
            numbers = np.asarray(row, np.float64)
        except (TypeError, ValueError):
            numbers = np.array(np.nan)
        if numbers.ndim != 1 or len(numbers) not in widths or not np.isfinite(numbers).all():
            raise ValueError(f"{name} has {' or '.join(map(str, widths))} finite numbers each, not {row!r}")
        rows.append(tuple((numbers.repeat(2) if 4 in widths and len(numbers) == 2 else numbers).tolist()))
    return tuple(rows)
