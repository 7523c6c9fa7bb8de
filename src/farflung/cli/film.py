"""`farflung film`."""

from pathlib import Path
from typing import Annotated

from farflung.cli import terminal
from farflung.cli.terminal import out_option, progress_bar, switch
from farflung.config import Film
from farflung.config.checks import printable


def film(
    config: Film,
    out: Annotated[
        Path | None, out_option("File for the film: a .gif or, if ffmpeg is installed, an .mp4.", "film.gif in the run", "FILE")
    ] = None,
    force: Annotated[bool, switch("Replace a film that exists already.")] = False,
    quiet: Annotated[bool, switch("Print errors only.")] = False,
) -> int:
    """Show how a trained team explores, as a GIF or MP4."""
    from farflung.figures.film import film as make_film  # imports JAX
    from farflung.runs.interrupts import Stopped
    from farflung.runs.run import load_run

    terminal.import_world(config.world)
    trained = load_run(config.run)
    path = Path(config.run) / "film.gif" if out is None else out
    with progress_bar(quiet) as show:
        try:
            make_film(
                trained,
                path,
                element=config.element,
                seconds=config.seconds,
                fps=config.fps,
                force=force,
                on_progress=lambda done, total: show(path.name, done, total, f"{done} of {total} pictures"),
            )
        except KeyboardInterrupt:
            raise Stopped("nothing was written") from None
    if not quiet:
        print(f"written to {printable(str(path))} ({path.stat().st_size / 1e6:.1f} MB)")
    return 0
