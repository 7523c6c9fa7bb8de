"""Walls in a plane: rectangles, or lines, that a point cannot enter or cross."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Array, Bool, Float

from farflung.worlds.projection import read_numbers

Rectangle = tuple[float, float, float, float]
"""(x0, x1, y0, y1)."""
Pair = tuple[float, float]
MOST_TILES = 20_000_000
"""The largest number of tiles in a search for reachable areas."""

_MOST_WALLS = 10_000
"""Of a layout; pictures would show no more of them."""
_ROUNDING = np.float32(1e-6)
"""Walls are thickened by this times the coordinates: otherwise rounding could let a point slip between adjacent walls."""


def wall_table(walls: Sequence[Rectangle]) -> Float[np.ndarray, "wall 4"]:
    return np.array(walls, np.float32).reshape(-1, 4)


def is_blocked(
    walls: Float[Array | np.ndarray, "wall 4"], here: Float[Array | np.ndarray, "2"], there: Float[Array | np.ndarray, "2"]
) -> Bool[Array | np.ndarray | np.bool, ""]:
    """Whether the segment between two points touches a wall, for NumPy and JAX alike.

    A segment and a rectangle are disjoint exactly if they are along x, along y, or across the segment (separating axes).
    """
    left, right, bottom, top = walls.T
    (x0, y0), (x1, y1) = here, there
    overlaps_x = ((x0 <= right) | (x1 <= right)) & ((x0 >= left) | (x1 >= left))
    overlaps_y = ((y0 <= top) | (y1 <= top)) & ((y0 >= bottom) | (y1 >= bottom))
    right_by, up_by = x1 - x0, y1 - y0
    middle_x, middle_y = (left + right) / 2, (bottom + top) / 2
    half_width = right - middle_x + _ROUNDING * (abs(middle_x) + abs(x0))
    half_height = top - middle_y + _ROUNDING * (abs(middle_y) + abs(y0))
    across = abs(right_by * (middle_y - y0) - up_by * (middle_x - x0))
    overlaps_across = across <= half_width * abs(up_by) + half_height * abs(right_by)
    return (overlaps_x & overlaps_y & overlaps_across).any()


def walls_of_layouts(layouts: Bool[np.ndarray, "layout row column"]) -> dict[str, Any]:
    """The walls that all layouts of a grid have, and those that only some have, under the names of a world's fields.

    The cell in a row and column is the unit square around these two numbers.
    """
    is_always, is_ever = np.asarray(layouts.all(axis=0)), np.asarray(layouts.any(axis=0))
    found = {"walls": _rectangles(is_always), "shifting_walls": _rectangles(is_ever & ~is_always)}
    return found if max(map(len, found.values())) <= _MOST_WALLS else {}


def _rectangles(is_wall: Bool[np.ndarray, "row column"]) -> tuple[Rectangle, ...]:
    """A rectangle for each run of walls along a row."""
    steps = np.diff(is_wall.astype(np.int8), axis=1, prepend=0, append=0)
    runs = zip(np.argwhere(steps == 1).tolist(), np.argwhere(steps == -1).tolist(), strict=True)
    return tuple((left - 0.5, right - 0.5, row - 0.5, row + 0.5) for (row, left), (_, right) in runs)


def layout_fields(world: Any) -> dict[str, Any]:
    """What a file holds of the walls of a world whose layout was read from its environment, as JSON."""
    fields = {"walls": world.walls, "shifting_walls": world.shifting_walls}
    return {name: walls for name, walls in fields.items() if walls}  # older versions know neither


def read_layout(found: Mapping[str, Any]) -> dict[str, Any]:
    """The walls that `layout_fields` wrote; all are checked."""
    return {name: _read_walls(name, found.get(name, [])) for name in ("walls", "shifting_walls")}


def _read_walls(name: str, walls: Any) -> tuple[Rectangle, ...]:
    if not isinstance(walls, list) or len(walls) > _MOST_WALLS:
        raise ValueError(f"{name} is a list of at most {_MOST_WALLS:,} rectangles, not {str(walls)[:80]}")
    found = []
    for wall in walls:
        left, right, bottom, top = read_numbers("a wall", wall, 4)
        if left > right or bottom > top:
            raise ValueError(f"a wall is x0, x1, y0, y1 with x0 <= x1 and y0 <= y1, not {str(wall)[:80]}")
        found.append((left, right, bottom, top))
    return tuple(found)


def reachable_areas(
    low: Pair, high: Pair, bins: tuple[int, int], walls: Sequence[Rectangle], starts: Sequence[Rectangle]
) -> Float[np.ndarray, "column row"]:
    """The exact area of each grid cell that a point can reach; the edges of cells and walls divide the plane into tiles."""
    bounds = np.array(walls, np.float64).reshape(-1, 2, 2)
    edges = [_edges(low[axis], high[axis], bins[axis], bounds[:, axis]) for axis in (0, 1)]
    num_columns, num_rows = (len(edge) - 1 for edge in edges)
    if num_columns * num_rows > MOST_TILES:
        raise ValueError(
            f"walls and bins divide the plane into {num_columns * num_rows:,} tiles, more than {MOST_TILES:,}: use fewer bins"
        )
    is_wall = np.zeros((num_columns, num_rows), bool)
    is_shut_sideways, is_shut_upwards = np.zeros((num_columns + 1, num_rows), bool), np.zeros((num_columns, num_rows + 1), bool)
    for wall in bounds:
        (left, right), (bottom, top) = (np.searchsorted(edges[axis], wall[axis].clip(low[axis], high[axis])) for axis in (0, 1))
        is_wall[left:right, bottom:top] = True
        is_shut_sideways[left : right + 1, bottom:top] = True
        is_shut_upwards[left:right, bottom : top + 1] = True

    from scipy.sparse import coo_array  # takes a while, and maps don't need it
    from scipy.sparse.csgraph import connected_components

    tiles = np.arange(is_wall.size).reshape(is_wall.shape)
    sideways, upwards = ~is_shut_sideways[1:-1], ~is_shut_upwards[:, 1:-1]
    one_side = np.concatenate([tiles[:-1][sideways], tiles[:, :-1][upwards]])
    other_side = np.concatenate([tiles[1:][sideways], tiles[:, 1:][upwards]])
    passages = coo_array((np.ones(len(one_side)), (one_side, other_side)), shape=(tiles.size, tiles.size))
    regions = connected_components(passages, directed=False)[1].reshape(tiles.shape)
    begins = [
        regions[_touched(edges[0], left, right), _touched(edges[1], bottom, top)].reshape(-1)
        for left, right, bottom, top in starts
    ]
    is_reachable = np.isin(regions, np.concatenate(begins)) & ~is_wall

    areas = np.zeros(bins)
    cells = [_cells(edges[axis], low[axis], high[axis], bins[axis]) for axis in (0, 1)]
    np.add.at(areas, np.ix_(*cells), is_reachable * np.outer(*map(np.diff, edges)))
    return areas


def _edges(low: float, high: float, num: int, bounds: Float[np.ndarray, "wall 2"]) -> Float[np.ndarray, " edge"]:
    return np.unique(np.concatenate([np.linspace(low, high, num + 1), bounds.reshape(-1).clip(low, high)]))


def _touched(edges: Float[np.ndarray, " edge"], begin: float, end: float) -> slice:
    return slice(max(int(np.searchsorted(edges, begin)) - 1, 0), int(np.searchsorted(edges, end, side="right")))


def _cells(edges: Float[np.ndarray, " edge"], low: float, high: float, num: int) -> np.ndarray:
    middles = (edges[1:] + edges[:-1]) / 2
    return ((middles - low) / (high - low) * num).astype(int).clip(0, num - 1)
