"""A team that explores, step by step."""

from collections.abc import Callable
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from jaxtyping import Float, Int
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from farflung.figures.paths import OUT_OF_REACH, Plane, by_agent, colors_of, draw_plane, fit, is_jump
from farflung.figures.style import STYLE, plain

_CELLS = (OUT_OF_REACH, "white", "#cfe1f2")
"""Colours of cells that cannot be reached, that have not been visited yet, and that have."""
_LONGEST_SIDE, _SHORTEST_SIDES = 4.0, (3.0, 0.8)
"""Of a plane in inches; there must be room for the title."""
_SHARE_TRACED = 0.25


class Episode(NamedTuple):
    """What a team did in one batch element, as it is drawn."""

    title: str
    plane: Plane
    points: Float[np.ndarray, "agent trajectory times 2"]
    """Where the agents are; not a number after an episode's end."""
    cells: Int[np.ndarray, "agent trajectory times"]
    """The cells or states that they visit; -1 after an episode's end."""
    num_cells: int
    """How many can be visited."""

    @property
    def horizon(self) -> int:
        return self.cells.shape[-1] - 1

    def covered(self, time: int) -> tuple[int, float]:
        """How many cells were visited up to a time, and the entropy of the visits in units of the log of all cells."""
        cells = self.cells[..., : time + 1]
        _, counts = np.unique(cells[cells >= 0], return_counts=True)
        shares = counts / counts.sum()
        return len(counts), float(np.sum(shares * -np.log(shares)) / np.log(max(self.num_cells, 2)))


def film(episode: Episode) -> tuple[Figure, Callable[[int], None]]:
    """A figure, and a function that has it show a time of the episode: the agents, their last steps, what they have covered."""
    plane, points = episode.plane, by_agent(episode.points)[1]
    colors = np.repeat(colors_of(len(points)), points.shape[1], axis=0)
    points = points.reshape(-1, *points.shape[2:])
    num_traced = max(2, round(_SHARE_TRACED * episode.horizon))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=_size(plane), layout="constrained")
        figure.suptitle(plain(episode.title), fontweight="bold")
        axis = figure.subplots()
        draw_plane(axis, plane)
        fit(axis, plane, points)
        title = axis.set_title("\n", loc="left", fontsize=8)
        cells = axis.pcolormesh(*plane.edges, plane.is_free.T, cmap=ListedColormap(_CELLS), vmin=0, vmax=2)
        traces = LineCollection([], lw=1.5, zorder=3)
        axis.add_collection(traces, autolim=False)
        dots = axis.scatter(points[:, 0, 0], points[:, 0, 1], c=colors, s=28, ec="white", lw=0.6, zorder=4, clip_on=False)
        starts = np.unique(points[:, 0], axis=0)
        axis.plot(*starts.T, "o", mfc="white", mec="black", ms=6 if len(starts) == 1 else 3, mew=1.2, zorder=2)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # laid out once: nothing must move but the agents

    def show(time: int) -> None:
        is_seen = plane.visits(episode.points[:, :, : time + 1]) > 0
        cells.set_array(np.where(is_seen, 2, plane.is_free).T)
        recent = points[:, max(0, time - num_traced) : time + 1]
        steps = np.stack([recent[:, :-1], recent[:, 1:]], axis=2)
        steps[is_jump(recent, plane)] = np.nan
        opacity = np.linspace(0, 1, steps.shape[1] + 1)[1:]
        faded = np.broadcast_to(colors[:, None], (*steps.shape[:2], 4)).copy()
        faded[..., 3] = opacity
        traces.set_segments(list(steps.reshape(-1, 2, 2)))
        traces.set_color([tuple(color) for color in faded.reshape(-1, 4).tolist()])
        dots.set_offsets(points[:, time])
        num_seen, entropy = episode.covered(time)
        title.set_text(
            f"step {_padded(time, episode.horizon)} of {episode.horizon}\n"
            f"{_padded(num_seen, episode.num_cells)} of {episode.num_cells} cells visited, entropy / log(cells) {entropy:.2f}"
        )

    return figure, show


def _size(plane: Plane) -> tuple[float, float]:
    sides = np.subtract(plane.high, plane.low) if plane.is_to_scale else np.ones(2)
    width, height = np.maximum(_LONGEST_SIDE * sides / sides.max(), _SHORTEST_SIDES).tolist()
    labels = 0.6 if any(plane.names) else 0.1
    return width + labels, height + labels + 0.65


def _padded(number: int, largest: int) -> str:
    """A number that is as wide as the largest one, so that the text beside it stays where it is."""
    return str(number).rjust(len(str(largest)), "\N{FIGURE SPACE}")
