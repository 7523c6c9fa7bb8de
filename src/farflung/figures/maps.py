"""Values of states, drawn on the map that the states lie on."""

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.image import AxesImage
from matplotlib.quiver import Quiver

from farflung.figures.style import GRID_LINE, START_MARK, WALL
from farflung.worlds.gridworld import MOVES
from farflung.worlds.world import World

_LARGEST_WITH_CELLS = 40
_LEAST_VISITS = 0.002


def is_wide(world: World) -> bool:
    rows, columns = np.asarray(world.positions).max(axis=0) + 1
    return bool(columns > 1.5 * rows)


def draw_on_map(axis: Axes, world: World, values: Float[np.ndarray, " state"], norm: Normalize | None = None) -> AxesImage:
    """Colours each cell of a map by its state's value; walls and what cannot be reached are grey, the start is marked."""
    grid = _on_grid(world, values)
    rows, columns = grid.shape
    axis.add_patch(mpl.patches.Rectangle((-0.5, -0.5), columns, rows, color=WALL, zorder=0))
    axis.imshow(_on_grid(world, np.zeros(world.num_states)), cmap=ListedColormap(["white"]))
    image = axis.imshow(grid, cmap="Blues", norm=norm or Normalize(0, float(np.nanmax(grid))))
    if max(rows, columns) <= _LARGEST_WITH_CELLS:
        for row, column in np.asarray(world.positions)[np.asarray(world.start_states, int)]:
            axis.text(column, row, "S", color=START_MARK, ha="center", va="center", fontsize=8, fontweight="bold")
        axis.vlines(np.arange(columns + 1) - 0.5, -0.5, rows - 0.5, color=GRID_LINE, lw=0.4)
        axis.hlines(np.arange(rows + 1) - 0.5, -0.5, columns - 0.5, color=GRID_LINE, lw=0.4)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.spines[:].set_visible(False)
    return image


def draw_policy(
    axis: Axes,
    world: World,
    probabilities: Float[np.ndarray, "state action"],
    visits: Float[np.ndarray, " state"],
) -> Quiver:
    """Draws the likeliest action of each state that is visited as an arrow, the darker the likelier it is."""
    draw_on_map(axis, world, np.full(world.num_states, np.nan), Normalize(0, 1))
    down, right = np.array(MOVES)[probabilities.argmax(axis=1)].T * 0.7
    rows, columns = np.asarray(world.positions).T
    seen = visits > _LEAST_VISITS
    return axis.quiver(
        (columns - right / 2)[seen],
        (rows - down / 2)[seen],
        right[seen],
        down[seen],
        probabilities.max(axis=1)[seen],
        cmap="Blues",
        clim=(0, 1),
        angles="xy",
        scale_units="xy",
        scale=1,
        width=0.012,
        headwidth=5,
        zorder=3,
    )


def _on_grid(world: World, values: Float[np.ndarray, " state"]) -> Float[np.ndarray, "row column"]:
    positions = np.asarray(world.positions)
    grid = np.full(positions.max(axis=0) + 1, np.nan)
    grid[*positions.T] = values
    return grid
