"""Films of a team's episode, as GIF or MP4."""

import math
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax.random as jr
import matplotlib as mpl
import numpy as np
from jaxtyping import Float, Int, Num
from matplotlib.animation import AbstractMovieWriter, FFMpegWriter, PillowWriter
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from farflung.config import Film
from farflung.figures import maps, planes
from farflung.figures.style import BLUE, STYLE, plain, team_label
from farflung.policies.rollout import play
from farflung.runs.destinations import claimed_file
from farflung.runs.files import write_errors
from farflung.runs.run import Run, typical_seed
from farflung.training.hosted import play_once

_DPI = 100
_SECONDS_AT_THE_END = 1.5
_LOWEST_FPS, _MOST_FRAMES = 4, 3000
"""A GIF's pictures, of about a megabyte each, are in memory until all are drawn."""
_SPREAD = 0.22
"""The distance of agents from the middle of their cell on a map: several agents in one cell remain visible."""
_CELLS = (maps.UNREACHABLE, "white", "#cfe1f2")
"""The colours of unreachable, unvisited and visited cells."""
_BARS = ("#9dbfe3", BLUE)
"""The colours of the bars of other episodes, and of the one that is shown."""
_GROWTH = 1.3
"""The height in inches of the bars below a film of the training."""
_LONGEST_SIDE, _SHORTEST_SIDES = 4.0, (3.0, 0.8)
"""In inches, of the plane; the title needs the shortest width."""
_SHARE_TRACED = 0.25
_MOST_MOMENTS = 8
_MOST_SHOWN = 16
"""Agents whose frames are shown side by side."""


class Episode(NamedTuple):
    """One episode of a team, ready to be drawn."""

    title: str
    plane: planes.Plane
    points: Float[np.ndarray, "agent trajectory times 2"]
    """The positions of the agents in the plane; NaN after an episode's end."""
    cells: Int[np.ndarray, "agent trajectory times"]
    """The visited cells or states; -1 after an episode's end."""
    num_cells: int
    """The number of cells or states that can be visited."""
    when: str = ""
    """The moment of the training, with a comma, if the film shows several."""

    @property
    def horizon(self) -> int:
        return self.cells.shape[-1] - 1

    def covered(self, time: int) -> tuple[int, float]:
        """The number of cells visited up to a time, and the entropy of the visits divided by the log of all cells."""
        cells = self.cells[..., : time + 1]
        _, counts = np.unique(cells[cells >= 0], return_counts=True)
        shares = counts / counts.sum()
        return len(counts), float(np.sum(shares * -np.log(shares)) / np.log(max(self.num_cells, 2)))


def film(
    run: Run,
    path: str | Path,
    *,
    element: int = 0,
    seconds: float = 8.0,
    fps: int = 12,
    rendered: bool = False,
    training: bool = False,
    force: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Writes a film of one episode of a run's team, and returns its path.

    Args:
        path: ends with .gif, or with .mp4 if ffmpeg is installed.
        element: number of the batch element; where states are vectors, a run has recorded a few.
        seconds: longest duration.
        fps: most pictures per second. A film has at most one picture per step.
        rendered: show what the environment itself renders, for each agent, instead of a map.
        training: show how the team learns: an episode at each of several moments of its training.
        force: replace an existing file.
        on_progress: called with the number of pictures drawn so far and of all pictures.
    """
    settings = Film("", element=element, seconds=seconds, fps=fps, rendered=rendered, training=training)
    path = Path(path)
    make_writer = _writer(path)
    with claimed_file(path) as place, write_errors(place.name):
        place.check_new(force=force)
        place.check_unbegun(force=force)
        if rendered:
            figure, show, horizon = draw_frames(run, settings.element)
        else:
            episodes = moments_of(run, settings.element) if training else [episode_of(run, settings.element)]
            (figure, show), horizon = draw_episodes(episodes), len(episodes) * (episodes[0].horizon + 1) - 1
        num_frames = round(min(horizon + 1, max(2, settings.seconds * settings.fps)))
        if num_frames > _MOST_FRAMES:
            raise ValueError(f"a film has at most {_MOST_FRAMES:,} pictures, not {num_frames:,}: choose fewer seconds or fps")
        speed = max(min(num_frames / settings.seconds, settings.fps), _LOWEST_FPS)
        writer = make_writer(fps=speed)
        try:
            with writer.saving(figure, place.fresh() / path.name, _DPI):
                for number, time in enumerate(np.linspace(0, horizon, num_frames).round().astype(int).tolist()):
                    show(time)
                    writer.grab_frame()
                    if on_progress is not None:
                        on_progress(number + 1, num_frames)
                for _ in range(round(_SECONDS_AT_THE_END * speed)):
                    writer.grab_frame()
        except subprocess.CalledProcessError:
            raise ValueError(f"ffmpeg cannot write {path.name}, perhaps because it lacks H.264: choose a .gif") from None
        place.publish((path.name,) if force else ())
    return path


def episode_of(run: Run, element: int = 0) -> Episode:
    """The episode of a run's typical team in one batch element."""
    if run.world.projection is not None:
        if run.paths is None:
            raise ValueError("the run has no recorded paths of its agents: there is nothing to film")
        _check_element(element, len(run.paths.features))
        return _episode(run, run.paths.features[element])
    if run.world.positions is None:
        other = ": film what it renders, with --rendered" if run.world.is_hosted else ": there is nothing to film"
        raise ValueError(f"the states of {run.config.world} have no positions on a map{other}")
    team, num_trajectories = run.team(typical_seed(run)).policies, run.config.trajectories_per_policy
    if run.world.is_hosted:
        return _episode(run, play_once(run.world, team, element, num_trajectories)[0])
    played = play(jr.fold_in(jr.key(0), element), team, run.table, 1, num_trajectories)
    return _episode(run, np.asarray(played.states[0]))


def moments_of(run: Run, element: int = 0) -> list[Episode]:
    """An episode of a run's typical team at each of several moments of its training."""
    if run.playback is None or (run.world.projection is None and run.world.positions is None):
        raise ValueError("the run has no recorded moments of its training on a map: there is nothing to film")
    _check_element(element, run.playback.moments.shape[1])
    chosen = np.unique(np.linspace(0, len(run.playback.updates) - 1, _MOST_MOMENTS).round().astype(int)).tolist()
    episodes = zip(run.playback.updates[chosen].tolist(), run.playback.moments[chosen, element], strict=True)
    return [_episode(run, played, f"update {update:,}, ") for update, played in episodes]


def _check_element(element: int, number: int) -> None:
    if element >= number:
        raise ValueError(f"the run has recorded {number} batch elements, numbered from 0: there is no {element}")


def _episode(run: Run, states: Num[np.ndarray, "agent trajectory times *feature"], when: str = "") -> Episode:
    """States, or features, of one batch element on the run's map or in its plane."""
    title, projection = f"{run.config.world}, {team_label(run.config)}", run.world.projection
    if projection is not None:
        cells = planes.cells_of(states, projection.low, projection.high, projection.bins)
        return Episode(title, planes.plane_of(run.world), planes.points_of(states), cells, run.world.num_states, when)
    states = np.where(states < run.world.num_states, states, -1)  # states that the run has not met lie nowhere
    num_paths = states[..., 0].size
    angles = 2 * np.pi * np.arange(num_paths).reshape(*states.shape[:2], 1) / num_paths
    offsets = _SPREAD * np.stack([np.cos(angles), np.sin(angles)], axis=-1) if num_paths > 1 else 0.0
    cells, numbers = np.unique(planes.cells_on_map(run.world), axis=0, return_inverse=True)
    is_known = states >= 0
    points = np.where(is_known[..., None], planes.cells_on_map(run.world)[states] + 0.5 + offsets, np.nan)
    return Episode(title, planes.plane_of(run.world), points, np.where(is_known, numbers[states], -1), len(cells), when)


@mpl.rc_context(STYLE)
def draw_frames(run: Run, element: int = 0) -> tuple[Figure, Callable[[int], None], int]:
    """A grid of the frames that the environment renders for each agent, a function that shows one time, and the last time."""
    if run.poses is not None:
        _check_element(element, 1)
        films = [run.world.frames(poses) for poses in run.poses]
    elif run.world.is_hosted:
        _, frames = play_once(
            run.world, run.team(typical_seed(run)).policies, element, run.config.trajectories_per_policy, is_rendered=True
        )
        films = [frames[episode] for episode in sorted(frames)][:_MOST_SHOWN]
    else:
        raise ValueError(f"{run.config.world} is compiled and renders no frames: film it on its map, without --rendered")
    num_columns = math.ceil(math.sqrt(len(films)))
    num_rows = -(-len(films) // num_columns)
    height, width = films[0][0].shape[:2]
    side = _LONGEST_SIDE * 1.5 / max(num_columns * width, num_rows * height)
    size = (max(num_columns * width * side, _SHORTEST_SIDES[0]), num_rows * height * side + 0.3 * num_rows + 0.7)
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(plain(f"{run.config.world}, {team_label(run.config)}"), fontweight="bold")
    grid = figure.subplots(num_rows, num_columns, squeeze=False)
    images, meaning = [], "agent" if run.config.trajectories_per_policy == 1 else "episode"
    for number, axis in enumerate(grid.flat):
        axis.set_axis_off()
        if number < len(films):
            images.append(axis.imshow(films[number][0]))
            axis.set_title(f"{meaning} {number + 1}", fontsize=8)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")

    def show(time: int) -> None:
        for image, film in zip(images, films, strict=True):
            image.set_data(film[min(time, len(film) - 1)])

    return figure, show, max(map(len, films)) - 1


@mpl.rc_context(STYLE)
def draw_episodes(episodes: Sequence[Episode]) -> tuple[Figure, Callable[[int], None]]:
    """A figure, and a function that draws one time of episodes in a row: the agents, their last steps and the visited cells."""
    episode, plane = episodes[0], episodes[0].plane
    grouped = planes.by_color(episode.points)[1]
    colors = np.repeat(maps.colors_of(len(grouped)), grouped.shape[1], axis=0)
    of_all = [planes.by_color(each.points)[1].reshape(len(colors), -1, 2) for each in episodes]
    points = of_all[0]
    num_traced = max(2, round(_SHARE_TRACED * episode.horizon))
    width, height = _size(plane)
    is_training, growth = len(episodes) > 1, None
    figure = Figure(figsize=(width, height + _GROWTH * is_training), layout="constrained")
    figure.suptitle(plain(episode.title), fontweight="bold")
    if is_training:
        axis, below = figure.subplots(2, height_ratios=(height, _GROWTH))
        growth = _growth(below, episodes)
    else:
        axis = figure.subplots()
    maps.draw_plane(axis, plane)
    maps.widen_limits(axis, plane, np.stack(of_all))
    title = axis.set_title("\n", loc="left", fontsize=8)
    cells = axis.pcolormesh(*plane.edges, plane.is_free.T, cmap=ListedColormap(_CELLS), vmin=0, vmax=2)
    maps.draw_letters(axis, plane, "Gx")
    traces = LineCollection([], lw=1.5, zorder=3)
    axis.add_collection(traces, autolim=False)
    dots = axis.scatter(points[:, 0, 0], points[:, 0, 1], c=colors, s=28, ec="white", lw=0.6, zorder=4, clip_on=False)
    starts = np.unique(points[:, 0], axis=0)
    axis.plot(*starts.T, "o", mfc="white", mec="black", ms=6 if len(starts) == 1 else 3, mew=1.2, zorder=2)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # only the agents may move from picture to picture

    def show(time: int) -> None:
        number, time = divmod(time, episodes[0].horizon + 1)
        episode, points = episodes[number], of_all[number]
        is_seen = plane.visits(episode.points[:, :, : time + 1]) > 0
        cells.set_array(np.where(is_seen, 2, plane.is_free).T)
        recent = points[:, max(0, time - num_traced) : time + 1]
        steps = np.stack([recent[:, :-1], recent[:, 1:]], axis=2)
        steps[planes.is_jump(recent, plane)] = np.nan
        opacity = np.linspace(0, 1, steps.shape[1] + 1)[1:]
        faded = np.broadcast_to(colors[:, None], (*steps.shape[:2], 4)).copy()
        faded[..., 3] = opacity
        traces.set_segments(list(steps.reshape(-1, 2, 2)))
        traces.set_color([tuple(color) for color in faded.reshape(-1, 4).tolist()])
        dots.set_offsets(points[:, time])
        num_seen, entropy = episode.covered(time)
        if growth is not None:
            growth(number, num_seen)
        title.set_text(
            f"{episode.when}step {_padded(time, episode.horizon)} of {episode.horizon}\n"
            f"{_padded(num_seen, episode.num_cells)} of {episode.num_cells} cells visited, entropy / log(cells) {entropy:.2f}"
        )

    return figure, show


def _growth(axis: Axes, episodes: Sequence[Episode]) -> Callable[[int, int], None]:
    """Draws a bar for each episode, and returns a function that lets the bar of one of them have so many cells."""
    heights = [episode.covered(episode.horizon)[0] for episode in episodes]
    bars = axis.bar(range(len(heights)), heights, color=_BARS[0])
    axis.set_ylim(0, max(heights) * 1.3)  # with room for the numbers
    axis.set_xticks(range(len(heights)), [episode.when.removeprefix("update ").removesuffix(", ") for episode in episodes])
    axis.set_yticks([])
    axis.set_xlabel("update", fontsize=8)
    axis.set_title("cells that the team visits in an episode", loc="left", fontsize=8)
    axis.tick_params(labelsize=8)
    axis.spines[["left", "top", "right"]].set_visible(False)
    numbers = [axis.annotate("", (place, 0), ha="center", va="bottom", fontsize=8) for place in range(len(heights))]

    def show(current: int, num_cells: int) -> None:
        for number, (bar, text) in enumerate(zip(bars, numbers, strict=True)):
            cells = num_cells if number == current else heights[number] if number < current else 0
            bar.set(height=cells, color=_BARS[number == current])
            text.set_y(cells)
            text.set_text(str(cells) if cells else "")

    return show


def _writer(path: Path) -> Callable[..., AbstractMovieWriter]:
    if path.suffix not in (".gif", ".mp4"):
        raise ValueError(f"a film's file ends with .gif or .mp4, unlike {path.name}")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"there is no directory {path.parent} to write {path.name} to")
    if path.suffix == ".gif":
        return PillowWriter
    if shutil.which("ffmpeg") is None:
        raise ValueError("an .mp4 needs ffmpeg, which is not on the PATH: install it, or choose a .gif")
    return partial(FFMpegWriter, codec="h264")


def _size(plane: planes.Plane) -> tuple[float, float]:
    sides = np.subtract(plane.high, plane.low) if plane.is_to_scale else np.ones(2)
    width, height = np.maximum(_LONGEST_SIDE * sides / sides.max(), _SHORTEST_SIDES).tolist()
    labels = 0.6 if any(plane.names) else 0.1
    return width + labels, height + labels + 0.65


def _padded(number: int, largest: int) -> str:
    """The number padded to the width of the largest one, so that the text after it does not move."""
    return str(number).rjust(len(str(largest)), "\N{FIGURE SPACE}")
