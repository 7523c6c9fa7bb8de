"""`farflung film`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from farflung.cli.terminal import progress_bar
from farflung.config import Film
from farflung.config.checks import printable


@dataclass(frozen=True)
class FilmOutput:
    """Where the film goes, and what is printed."""

    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: film.gif in the run)")] = None
    """File for the film: a .gif, or an .mp4 where ffmpeg is installed."""
    force: bool = False
    """Replace a film that is already there."""
    quiet: bool = False
    """Print nothing but errors."""


def film(config: Film, output: FilmOutput) -> Callable[[], int]:
    """Show how a trained team explores, as a GIF or MP4."""

    def run() -> int:
        from farflung.figures.film import film as make_film  # JAX with it
        from farflung.runs.interrupts import Stopped
        from farflung.runs.run import load_run

        trained = load_run(config.run)
        path = Path(config.run) / "film.gif" if output.out is None else output.out
        with progress_bar(output.quiet) as show:
            try:
                make_film(
                    trained,
                    path,
                    element=config.element,
                    seconds=config.seconds,
                    fps=config.fps,
                    force=output.force,
                    on_progress=lambda done, total: show(path.name, done, total, f"{done} of {total} pictures"),
                )
            except KeyboardInterrupt:
                raise Stopped("nothing was written") from None
        if not output.quiet:
            print(f"written to {printable(str(path))} ({path.stat().st_size / 1e6:.1f} MB)")
        return 0

    return run
