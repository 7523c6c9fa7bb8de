"""Values of states, drawn on the map that the states lie on."""

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.image import AxesImage

from farflung.environments import TabularMDP
from farflung.figures.style import GRID_LINE, START_MARK, WALL


def is_wide(world: TabularMDP) -> bool:
    rows, columns = np.asarray(world.positions).max(axis=0) + 1
    return bool(columns > 1.5 * rows)


def draw_on_map(axis: Axes, world: TabularMDP, values: Float[np.ndarray, " state"], norm: Normalize | None = None) -> AxesImage:
    """Colours each cell of a map by its state's value; walls and what cannot be reached are grey, the start is marked."""
    assert world.positions is not None
    positions = np.asarray(world.positions)
    grid = np.full(positions.max(axis=0) + 1, np.nan)
    grid[*positions.T] = values
    axis.set_facecolor(WALL)
    rows, columns = grid.shape
    axis.add_patch(mpl.patches.Rectangle((-0.5, -0.5), columns, rows, color=WALL, zorder=0))
    image = axis.imshow(grid, cmap="Blues", norm=norm or Normalize(0, float(np.nanmax(grid))))
    if max(rows, columns) <= 40:
        for row, column in positions[np.asarray(world.start_states)]:
            axis.text(column, row, "S", color=START_MARK, ha="center", va="center", fontsize=8, fontweight="bold")
    axis.set_xticks([])
    axis.set_yticks([])
    if max(rows, columns) <= 40:
        axis.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
        axis.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
        axis.grid(which="minor", color=GRID_LINE, lw=0.4)
        axis.tick_params(which="minor", length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)
    return image
