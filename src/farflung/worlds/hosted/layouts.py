"""The walls of an environment whose agent walks on a grid, read from the environment itself."""

from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Bool

from farflung.worlds.hosted.copies import FAILURES
from farflung.worlds.walls import walls_of_layouts

_LAYOUTS, _LAYOUTS_AT_FIRST = 64, 4
"""An environment whose first few layouts are the same has only one."""
_MOST_CELLS = 10_000


def layout_of(environment: gymnasium.Env[Any, Any]) -> dict[str, Any]:
    """The walls of MiniGrid's environments, as a world's fields; empty if an environment has no such grid.

    Most of these environments draw a new layout in each episode: walls that only some of them have are `shifting_walls`.
    """
    layouts: list[Bool[np.ndarray, "row column"]] = []
    try:
        for seed in range(_LAYOUTS):
            environment.reset(seed=seed)
            is_wall = _is_wall(environment.unwrapped)
            if is_wall is None or (layouts and is_wall.shape != layouts[0].shape):
                return {}
            layouts.append(is_wall)
            if seed + 1 == _LAYOUTS_AT_FIRST and (np.stack(layouts) == layouts[0]).all():
                break
    except FAILURES:  # an environment may raise anything, and pictures can do without walls
        return {}
    return walls_of_layouts(np.stack(layouts))


def _is_wall(core: Any) -> Bool[np.ndarray, "row column"] | None:
    grid: Any = getattr(core, "grid", None)
    width, height = (getattr(grid, side, None) for side in ("width", "height"))
    if not (isinstance(width, int) and isinstance(height, int) and callable(getattr(grid, "get", None))):
        return None
    if not 0 < width * height <= _MOST_CELLS:
        return None
    cells = [[getattr(grid.get(column, row), "type", None) == "wall" for column in range(width)] for row in range(height)]
    return np.array(cells, bool)
