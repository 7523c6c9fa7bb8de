"""A team's episode as a moving picture on disk."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax.random as jr
import numpy as np
from matplotlib.animation import AbstractMovieWriter, FFMpegWriter, PillowWriter

from farflung.config import Film
from farflung.figures.film import Episode
from farflung.figures.film import film as draw
from farflung.figures.paths import cells_of, cells_on_map, plane_of, plane_of_map, points_of
from farflung.policies.rollout import play
from farflung.runs.files import umask
from farflung.runs.run import Run, typical_seed

_DPI = 100
_SECONDS_AT_THE_END = 1.5
_SLOWEST = 4
"""Pictures per second, however few steps there are."""
_SPREAD = 0.22
"""How far agents in one cell of a map are drawn from its middle, so that each is seen."""


def film(
    run: Run,
    path: str | Path,
    *,
    element: int = 0,
    seconds: float = 8.0,
    fps: int = 12,
    force: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Writes a GIF, or an MP4 where ffmpeg is installed, of one episode of all agents of a run, and returns where it is.

    Args:
        path: ends with .gif or .mp4.
        element: which batch element; a run in a continuous world has kept a few.
        seconds: how long the film is at most.
        fps: pictures per second at most: there are no more of them than steps.
        force: replace a file that is already there.
        on_progress: called with how many pictures are drawn, of how many.
    """
    settings = Film("", element=element, seconds=seconds, fps=fps)
    path = Path(path)
    make_writer = _writer(path, force)
    episode = episode_of(run, settings.element)
    num_frames = min(episode.horizon + 1, max(2, round(settings.seconds * settings.fps)))
    speed = max(num_frames / settings.seconds, _SLOWEST)
    writer = make_writer(fps=speed)
    figure, show = draw(episode)
    try:
        with tempfile.TemporaryDirectory(dir=path.absolute().parent, prefix=".farflung-") as folder:
            unfinished = Path(folder) / path.name
            with writer.saving(figure, unfinished, _DPI):
                for number, time in enumerate(np.linspace(0, episode.horizon, num_frames).round().astype(int).tolist()):
                    show(time)
                    writer.grab_frame()
                    if on_progress is not None:
                        on_progress(number + 1, num_frames)
                for _ in range(round(_SECONDS_AT_THE_END * speed)):
                    writer.grab_frame()
            unfinished.chmod(0o666 & ~umask())
            unfinished.replace(path)
    except subprocess.CalledProcessError:
        raise ValueError(f"ffmpeg cannot write {path.name}: it may know no H.264; choose a .gif") from None
    except OSError as error:
        raise ValueError(f"cannot write to {path}: {error.strerror or error}") from None
    return path


def episode_of(run: Run, element: int = 0) -> Episode:
    """What the typical team of a run does in one batch element."""
    num_agents = run.config.agents
    kind = f"one policy, {num_agents} trajectories" if run.config.single else f"{num_agents} agent{'s' * (num_agents > 1)}"
    title = f"{run.config.world}, {kind}"
    if run.world.projection is not None:
        if run.paths is None:
            raise ValueError("the run has kept no paths of its agents that could be filmed")
        if element >= len(run.paths.features):
            raise ValueError(
                f"the run has kept {len(run.paths.features)} batch elements, numbered from 0: there is no {element}"
            )
        projection, features = run.world.projection, run.paths.features[element]
        cells = cells_of(features, projection.low, projection.high, projection.bins)
        return Episode(title, plane_of(run.world), points_of(features), cells, run.world.num_states)
    if run.table.positions is None:
        raise ValueError(f"the states of {run.config.world} lie on no map: there is nothing to film")
    team = run.team(typical_seed(run)).policies
    states = np.asarray(play(jr.fold_in(jr.key(0), element), team, run.table, 1, run.config.trajectories_per_policy).states[0])
    num_paths = states[..., 0].size
    angles = 2 * np.pi * np.arange(num_paths).reshape(*states.shape[:2], 1) / num_paths
    offsets = _SPREAD * np.stack([np.cos(angles), np.sin(angles)], axis=-1) if num_paths > 1 else 0.0
    points = cells_on_map(run.table)[states] + 0.5 + offsets
    return Episode(title, plane_of_map(run.table), points, states, run.table.num_states)


def _writer(path: Path, force: bool) -> Callable[..., AbstractMovieWriter]:
    if path.suffix not in (".gif", ".mp4"):
        raise ValueError(f"a film's file ends with .gif or .mp4, unlike {path.name}")
    if path.is_dir():
        raise ValueError(f"{path} is a directory, not a file")
    if path.exists() and not force:
        raise ValueError(f"{path} exists already: choose another file, or replace it with --force")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"there is no directory {path.parent} to write {path.name} to")
    if path.suffix == ".gif":
        return PillowWriter
    if shutil.which("ffmpeg") is None:
        raise ValueError("an .mp4 needs ffmpeg, which is not on the PATH: install it, or choose a .gif")
    return partial(FFMpegWriter, codec="h264")
