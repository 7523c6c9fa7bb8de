"""`farflung compare`, `farflung film` and `farflung view`: runs to look at."""

import contextlib
import dataclasses
import os
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast
from urllib.parse import quote

from farflung.cli import terminal
from farflung.cli.terminal import Printing, out_option, print_saved, progress_bar, switch, table
from farflung.config import Compare, Film, View
from farflung.config.checks import printable

if TYPE_CHECKING:
    from rich.console import Console

    from farflung.studies.compare.comparison import Comparison, Estimate, Result


def compare(
    config: Compare,
    printing: Printing,
    out: Annotated[Path | None, out_option("Directory for the page, the figure and the numbers.", "nothing is written")] = None,
    force: Annotated[bool, switch("Replace another comparison that is in the output directory.")] = False,
) -> None:
    """Compare runs over all their worlds and seeds: rliable's estimates, profiles and probabilities of improvement."""
    named = [_split(argument) for argument in config.runs]
    from farflung.runs.destinations import open_results
    from farflung.studies.compare.comparison import compare as compare_runs  # imports JAX
    from farflung.studies.compare.figures import compared, comparison_page

    settings = dataclasses.asdict(config)
    with contextlib.nullcontext() if out is None else open_results(out, "compare", settings, force=force) as save:
        named = _every_run(named)
        loaded = [_load(path) for _, path in named]
        comparison = compare_runs(_grouped(loaded, named), config.metric)
        summary = {"farflung": version("farflung"), "runs": list(config.runs), **comparison.as_json()}
        if save is not None and out is not None:
            tables = _tables(comparison)
            pages = _pages(loaded, named, out)

            def page(folder: Path) -> str:
                return comparison_page(comparison, (folder / "comparison.svg").read_bytes(), pages, list(tables))

            save({"comparison.json": summary, **tables, "comparison": compared(comparison), "index.html": page})
    printing.report(summary, partial(_print, comparison, out))


def _split(argument: str) -> tuple[str, Path]:
    """Splits NAME=DIRECTORY; without a name, the first part is empty."""
    name, equals, path = argument.partition("=")
    return (name, Path(path)) if equals and not Path(argument).exists() else ("", Path(argument))


def _every_run(named: Sequence[tuple[str, Path]]) -> list[tuple[str, Path]]:
    """The runs with their names; a sweep is all of its runs."""
    from farflung.runs.destinations import is_results_of

    unnamed = [path for name, path in named if not name]
    if 0 < len(unnamed) < len(named):
        raise ValueError(f"either all runs have names or none: {unnamed[0]} has none")
    runs = []
    for name, path in named:
        found = sorted(path.glob("runs/*/config.json")) if is_results_of(path, "sweep") else [path / "config.json"]
        runs += [(name, each.parent) for each in found]
    if len(runs) < 2:
        raise ValueError(f"at least 2 runs are needed for a comparison, not {len(runs)}")
    return runs


def _load(path: Path) -> "Result":
    from farflung.data.offline import load_scores
    from farflung.runs.destinations import is_results_of
    from farflung.runs.run import load_run

    return load_scores(path) if is_results_of(path, "offline") else load_run(path)


def _grouped(loaded: "Sequence[Result]", named: Sequence[tuple[str, Path]]) -> "dict[str, list[Result]] | list[Result]":
    """The runs by their names, if they have any."""
    if not named[0][0]:
        return list(loaded)
    return {name: [run for run, (its, _) in zip(loaded, named, strict=True) if its == name] for name, _ in named}


def _pages(loaded: "Sequence[Result]", named: Sequence[tuple[str, Path]], out: Path) -> dict[tuple[str, str], list[str]]:
    """The addresses of the runs' pages, relative to the page of the comparison, by algorithm and task."""
    from farflung.runs.run import PAGE, Run
    from farflung.studies.compare.comparison import by_algorithm_and_task

    if not all(isinstance(run, Run) for run in loaded):
        return {}
    paths = {id(run): path / PAGE for run, (_, path) in zip(loaded, named, strict=True)}
    grouped = by_algorithm_and_task(cast(Any, _grouped(loaded, named)))
    return {
        (name, task): [
            quote(Path(os.path.relpath(path.resolve(), out.resolve())).as_posix())
            for run in together
            if (path := paths[id(run)]).is_file()
        ]
        for name, runs in grouped.items()
        for task, together in runs.items()
    }


def _tables(comparison: "Comparison") -> dict[str, list[tuple[object, ...]]]:
    bounds = ("value", "low", "high")
    scores = [
        (name, task, number, score)
        for name, array in comparison.scores.items()
        for task, column in zip(comparison.tasks, array.T.tolist(), strict=True)
        for number, score in enumerate(column)
    ]
    aggregates = [
        (name, measure, *found) for name, measures in comparison.aggregates.items() for measure, found in measures.items()
    ]
    improvements = [(*pair, *found) for pair, found in comparison.improvements.items()]
    profiles = [
        (name, *row) for name, found in comparison.profiles.items() for row in zip(comparison.thresholds, *found, strict=True)
    ]
    curves = [
        (name, *row) for name, found in comparison.curves.items() for row in zip(comparison.steps[name], *found, strict=True)
    ]
    return {
        "scores.csv": [("algorithm", "task", "number", "score"), *scores],
        "aggregates.csv": [("algorithm", "measure", *bounds), *aggregates],
        "improvements.csv": [("better", "worse", *bounds), *improvements],
        "profiles.csv": [("algorithm", "threshold", *bounds), *profiles],
        "curves.csv": [("algorithm", "steps", *bounds), *curves],
    }


def _print(comparison: "Comparison", out: Path | None, console: "Console") -> None:
    names = {"iqm": "IQM", "median": "median", "mean": "mean", "optimality_gap": "optimality gap"}
    decimals = 2 if comparison.metric in ("percent_of_ceiling", "support", "return") else 3
    measures = [names[measure] for measure in next(iter(comparison.aggregates.values()))]
    title = f"{comparison.metric.replace('_', ' ')}: {' · '.join(comparison.tasks)}"
    scores = table(title, "algorithm", "seeds", *measures)
    for name, found in comparison.aggregates.items():
        cells = [_cell(estimate, decimals) for estimate in found.values()]
        scores.add_row(name, str(len(comparison.scores[name])), *cells)
    console.print(scores)
    title = "probability that a run of the first ends above one of the second"
    improvements = table(title, "first", "second", "probability", left=(0, 1))
    for pair, estimate in comparison.improvements.items():
        improvements.add_row(*pair, _cell(estimate, 2))
    console.print(improvements)
    console.print("below each number: its 95% interval, a stratified bootstrap over seeds")
    if comparison.left_out:
        console.print(f"left out, as not all were run on it: {' · '.join(comparison.left_out)}")
    curves = " and learning curves" if comparison.curves else ""
    print_saved(console, out, "index.html", f"the numbers and a page with performance profiles{curves}")


def _cell(estimate: "Estimate", decimals: int) -> str:
    return f"{estimate.value:.{decimals}f}\n{estimate.low:.{decimals}f}\N{EN DASH}{estimate.high:.{decimals}f}"


def film(
    config: Film,
    out: Annotated[
        Path | None, out_option("File for the film: a .gif or, if ffmpeg is installed, an .mp4.", "film.gif in the run", "FILE")
    ] = None,
    force: Annotated[bool, switch("Replace a film that exists already.")] = False,
    quiet: Annotated[bool, switch("Print errors only.")] = False,
) -> None:
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
                rendered=config.rendered,
                training=config.training,
                force=force,
                on_progress=lambda done, total: show(path.name, done, total, f"{done} of {total} pictures"),
            )
        except KeyboardInterrupt:
            raise Stopped("nothing was written") from None
    if not quiet:
        size = path.stat().st_size
        print(f"written to {printable(str(path))} ({f'{size / 1e6:.1f} MB' if size >= 1e6 else f'{size / 1e3:.1f} KB'})")


def view(
    config: View,
    no_browser: Annotated[bool, switch("Print the address without opening a browser.")] = False,
) -> None:
    """Look at runs in the browser, side by side, also while they train."""
    import secrets
    import socket
    import tempfile
    import webbrowser

    import uvicorn

    from farflung.studies.view import application  # imports JAX

    token = secrets.token_urlsafe()
    shown = application(config.runs, token)
    with socket.socket() as listener, tempfile.TemporaryDirectory(prefix="farflung-", ignore_cleanup_errors=True) as private:
        try:
            listener.bind(("127.0.0.1", config.port))
            listener.listen()  # the browser may ask before the server is ready
        except OSError as error:
            raise ValueError(f"port {config.port} cannot be used: {error.strerror}; choose another --port") from None
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/?token={token}"
        print(f"{address} shows the runs until Ctrl-C", flush=True)
        if not no_browser:
            # Other users see the arguments of a browser's process, so the token is in a file that only this user can read.
            page = Path(private, "open.html")
            page.write_text(f'<meta http-equiv="refresh" content="0; url={address}">', encoding="utf-8")
            webbrowser.open(page.as_uri())
        # Without a logging configuration of its own, which would close the handlers of other libraries.
        settings = uvicorn.Config(shown, log_config=None, log_level="warning", access_log=False, ws="none", lifespan="off")
        uvicorn.Server(settings).run(sockets=[listener])
