"""`farflung sweep`: every combination of several settings, here or on a cluster."""

import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from farflung.cli import terminal
from farflung.cli.explore import Checkpoints, parsed_options
from farflung.cli.terminal import Printing, one_line_warnings, out_option, print_saved, progress_bar, switch, table
from farflung.config import Explore, Launching, Sweep, WorldOptions, check_world
from farflung.config.checks import printable
from farflung.scale.jobs import Failures, Job, launch, made

if TYPE_CHECKING:
    from rich.console import Console

    from farflung.runs.destinations import Destination

_RUNS, _LOGS = "runs", "jobs"
_SHOWN = {"normalized_entropy": 4, "percent_of_ceiling": 2}
"""The measures on the screen, with their decimals; the files have all."""
_FORCE = "Replace results of another version that are in the output directory."


def sweep(
    config: Sweep,
    world: WorldOptions,
    printing: Printing,
    checkpoints: Checkpoints,
    launching: Launching,
    out: Annotated[Path, out_option("Directory for the runs, the page, the table and the figure.", "sweep")] = Path("sweep"),
    force: Annotated[bool, switch(_FORCE)] = False,
) -> int:
    """Train every combination of several settings, on this machine, a Ray cluster or Slurm."""
    points = config.points()
    modules = {name: None for each in points.values() for name in (each.world, each.algorithm, each.credit, each.objective)}
    for name in config.worlds:
        if ":" not in name:
            check_world(name)
    given = world.given
    if "env_options" in given:
        given["env_options"] = parsed_options(given["env_options"])
    out = out.absolute()
    shared = {"out": str(out / _RUNS), "world_options": given, **checkpoints.as_arguments()}
    jobs = [
        Job(
            "farflung.studies.sweep:train_points",
            tuple(group),
            {"points": group, **shared},
            tuple(filter(None, (*modules, *(world.features or ())))),
        )
        for group in config.groups()
    ]
    run = launched(launching, out)
    if launching.launcher == "local":
        terminal.use_all_cores()
    from farflung.runs.destinations import claimed, open_collection
    from farflung.runs.interrupts import Stopped, stoppable

    with stoppable(), one_line_warnings():
        try:
            with claimed(out) as place:
                open_collection(place, {"farflung": version("farflung"), "command": "sweep"}, force=force)
                with progress_bar(printing.quiet) as show:
                    failures = run(jobs, points, place.folder / _RUNS, show)
                summary = _finish(config, points, place, failures)
        except KeyboardInterrupt:
            raise Stopped(f"finished runs are saved in {out}: the same command continues") from None
    printing.report(summary, partial(_print, summary, out))
    for name, reason in summary["failed"].items():
        print(f"farflung: {printable(name)} failed: {printable(reason)}", file=sys.stderr)
    return 1 if summary["failed"] else 0


def launched(launching: Launching, out: Path) -> Callable[..., Failures]:
    """A function that runs jobs where the options say, with their progress shown, and returns the failures that remain."""
    if launching.launcher != "local":
        launcher = made(launching, out / _LOGS)
        os.environ.setdefault("JAX_PLATFORMS", "cpu")  # this process only reads results: the accelerators are for the jobs

    def run(
        jobs: list[Job], points: Mapping[str, Explore], folder: Path, show: Callable[[str, int, int, str], None]
    ) -> Failures:
        total = sum(each.updates for each in points.values())

        def note(text: str) -> None:
            print(f"farflung: {printable(text)}", file=sys.stderr)

        def report(more: int = 0, what: str = "") -> None:
            done = {name: _progress(folder / name, each) for name, each in points.items()}
            num_finished = sum(reached == points[name].updates for name, reached in done.items())
            show("sweep", min(total, sum(done.values()) + more), total, what or f"{num_finished} of {len(points)} runs")

        if launching.launcher == "local":
            from farflung.scale.local import Locally

            def on_progress(job: Job, status: Any) -> None:
                unfinished = [name for name in job.runs if not (folder / name / "config.json").exists()]
                known = sum(_progress(folder / name, points[name]) for name in unfinished)
                report(max(0, status.update * len(unfinished) - known), f"{job.runs[0]}{' ...' if len(job.runs) > 1 else ''}")

            return launch(Locally(on_progress), jobs, retries=launching.retries, on_wait=report, on_note=note)
        return launch(launcher, jobs, retries=launching.retries, on_wait=report, on_note=note)

    return run


def _progress(folder: Path, config: Explore) -> int:
    """How many updates of a run are saved, by the names of its files: jobs on other machines report nothing else."""
    unfinished = folder / "unfinished"
    if (folder / "config.json").exists() and not (unfinished / "config.json").exists():
        return config.updates
    with contextlib.suppress(OSError, ValueError):
        return max(int(path.name.split("-")[1]) for path in unfinished.glob("checkpoint-*.npz"))
    return 0


def _finish(config: Sweep, points: Mapping[str, Explore], place: "Destination", failures: Failures) -> dict[str, Any]:
    """Saves the table and the figure of all runs, and returns a summary."""
    from farflung.runs.files import write_results
    from farflung.runs.run import PAGE, load_run
    from farflung.studies import sweep as study  # imports JAX

    runs, failed = [], dict(failures)
    for name in points:
        try:
            run = load_run(place.folder / _RUNS / name)
        except ValueError as error:
            failed.setdefault(name, str(error))
            continue
        if reason := run.summary.get("stopped_because"):
            failed[name] = reason
        elif len(run.summary.get("percent_of_ceiling", ())) != len(run.config.seeds):
            failed.setdefault(name, f"{place.folder / _RUNS / name} has a summary.json that is not complete: remove the run")
        else:
            runs.append(run)
    found = study.swept_runs(runs)
    settings = config.swept
    summary = {
        "farflung": version("farflung"),
        "runs": {name: f"{_RUNS}/{name}" for name in points if name not in failed},
        "failed": failed,
        "results": study.means_of(found, settings),
    }
    results: dict[str, Any] = {"summary.json": summary, "sweep.csv": study.table_of(found, settings)}
    if found:
        names = {id(run): name for run, name in zip(runs, (name for name in points if name not in failed), strict=True)}

        def page(folder: Path) -> str:
            pages = {id(run): quote(f"{_RUNS}/{names[id(run)]}/{PAGE}") for run in runs}
            return study.sweep_page(found, settings, (folder / "sweep.svg").read_bytes(), lambda run: pages[id(run)], failed)

        results |= {"sweep": study.sweep_figure(found, settings), PAGE: page}
    write_results(new := place.fresh(), results)
    place.publish({path.name for path in new.iterdir()})
    return summary


def _print(summary: dict[str, Any], out: Path, console: "Console") -> None:
    results = summary["results"]
    names = [name for name, value in results[0].items() if not isinstance(value, dict)] if results else []
    rows = table("final values: mean over the seeds and 95% interval", *map(_heading, (*names, *_SHOWN)))
    for row in results:
        cells = []
        for measure, decimals in _SHOWN.items():
            mean, width = row[measure]["mean"], row[measure]["half_width"]
            cells.append(f"{mean:.{decimals}f}" + ("" if width is None else f" ± {width:.{decimals}f}"))
        rows.add_row(*(str(row[name]) for name in names), *cells)
    if results:
        console.print(rows)
    print_saved(console, out, "index.html" if results else "summary.json")


def _heading(name: str) -> str:
    return name.replace("percent_of", "% of").replace("_", " ")
