"""`farflung reproduce` and `farflung ablate`: many trainings and one page."""

import contextlib
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from farflung.cli import terminal
from farflung.cli.sweep import launched
from farflung.cli.terminal import Printing, out_option, progress_bar, switch, table
from farflung.config import Ablate, Launching, Reproduce
from farflung.config.checks import num_cores, printable
from farflung.scale.jobs import Job
from farflung.worlds.hosted.modules import safe_children

if TYPE_CHECKING:
    from rich.console import Console

    from farflung.studies.suite import Elsewhere, Group, SuiteStatus

_FOLDER = "Directory for the page, the figures, the numbers and the trained runs."
_MOST_PROCESSES = 4
_FORCE = "Replace results of another version or with other settings that are in the output directory."


def reproduce(
    config: Reproduce,
    printing: Printing,
    launching: Launching,
    out: Annotated[Path | None, out_option(_FOLDER, "reproduction, or reproduction-preview")] = None,
    force: Annotated[bool, switch(_FORCE)] = False,
) -> None:
    """Run every experiment of the paper again and write one page with the figures and a verdict on each claim."""
    began = time.perf_counter()
    # Many programs are compiled at once: on a GPU, one thread for each is faster than many threads for each.
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_force_compilation_parallelism=1".strip()
    out = out or Path("reproduction-preview" if config.quick else "reproduction")
    elsewhere = _elsewhere(launching, out, printing)
    terminal.use_all_cores()
    from farflung.studies.reproduce.experiment import reproduce as rerun  # imports JAX
    from farflung.studies.reproduce.report import write_report

    with _drawing_processes() as executor:
        write = partial(write_report, began=began, executor=executor)
        _run("the paper", out, printing, partial(rerun, config, force=force, elsewhere=elsewhere), write, _print_claims)


def ablate(
    config: Ablate,
    printing: Printing,
    launching: Launching,
    out: Annotated[Path | None, out_option(_FOLDER, "ablation, or ablation-preview")] = None,
    force: Annotated[bool, switch(_FORCE)] = False,
) -> None:
    """Train every credit with every optimiser and write one page about the effects."""
    began = time.perf_counter()
    out = out or Path("ablation-preview" if config.quick else "ablation")
    elsewhere = _elsewhere(launching, out, printing)
    terminal.use_all_cores()
    from farflung.studies.ablate.experiment import ablate as compare  # imports JAX
    from farflung.studies.ablate.report import write_ablation

    write = partial(write_ablation, began=began)
    _run("ablation", out, printing, partial(compare, config, force=force, elsewhere=elsewhere), write, _print_settings)


def _elsewhere(launching: Launching, out: Path, printing: Printing) -> "Elsewhere | None":
    """Trains groups of configs as jobs of a launcher; None for the launcher local, since `train_all` trains here."""
    if launching.launcher == "local":
        return None
    launch_jobs = launched(launching, out.absolute())

    def train(groups: "Sequence[Group]", folder: Path) -> None:
        function, points = "farflung.studies.suite:train_here", {name: each for group in groups for name, each in group.items()}
        jobs = [Job(function, tuple(group), {"out": str(folder), "groups": [dict(group)]}) for group in groups]
        with progress_bar(printing.quiet) as show:
            failures = launch_jobs(jobs, points, folder, show)
        for name, reason in failures.items():
            raise ValueError(f"{len(failures)} runs failed, among them {name}: {reason}; the same command tries again")

    return train


@contextlib.contextmanager
def _drawing_processes() -> Iterator[Executor | None]:
    """Processes that draw figures beside this one, started early so that they are ready in time; None with a single core."""
    num_processes = min(_MOST_PROCESSES, num_cores() - 1)
    if not num_processes:
        yield None
        return
    with ProcessPoolExecutor(num_processes, mp_context=get_context("spawn"), initializer=prepare_drawing) as pool:
        with safe_children():
            for _ in range(num_processes):
                pool.submit(os.getpid)
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)


def prepare_drawing() -> None:
    """Prepares a process for drawing."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles interrupts
    os.environ["JAX_PLATFORMS"] = "cpu"
    import farflung.studies.reproduce.report  # noqa: F401


def _run(
    title: str,
    out: Path,
    printing: Printing,
    work: Callable[..., Any],
    write: Callable[..., dict[str, Any]],
    show_summary: "Callable[[dict[str, Any], Console], None]",
) -> None:
    """Runs the trainings with a progress bar, writes the page, and prints the summary that `write` returns."""
    from farflung.runs.destinations import claimed
    from farflung.runs.interrupts import Stopped, stoppable

    notes: list[str] = []
    gc.freeze()  # what the imports have made stays: looking through it again and again takes seconds
    with stoppable():
        try:
            with progress_bar(printing.quiet) as show, claimed(out) as place:

                def on_progress(status: "SuiteStatus") -> None:
                    show(title, status.steps, status.num_steps, status.what)

                found = work(out=place, on_progress=on_progress, on_note=notes.append)
                show(title, 1, 1, "figures and page")
                gc.freeze()
                summary = write(found, out=place)
        except KeyboardInterrupt:
            raise Stopped(f"finished trainings are saved in {out}: the same command continues") from None
        finally:
            for note in notes:
                print(f"farflung: {printable(note)}", file=sys.stderr)
    printing.report(summary, partial(show_summary, summary))


def _print_claims(summary: dict[str, Any], console: "Console") -> None:
    claims: dict[str, dict[str, dict[str, int]]] = summary["claims"]
    rows = table("In how many settings the paper's claims hold / are undecided / do not hold", "claim", *claims)
    for statement in next(iter(claims.values())):
        counts = [own.get(statement, {}).values() for own in claims.values()]
        rows.add_row(statement, *(" / ".join(map(str, numbers)) or "not measured" for numbers in counts))
    console.print(rows)
    console.print("Columns: learning rate of the paper's code or text; the single agent's gradient is a sum or a mean.")
    console.print(f"{summary['seconds']:.1f} s. See {summary['page']}", soft_wrap=True)


def _print_settings(summary: dict[str, Any], console: "Console") -> None:
    columns = ("setting", "paper, % of ceiling", "defaults, %", "one policy, %", "independent, %", "fewer steps")
    rows = table("The defaults against the paper's preset (mean over seeds)", *columns)
    for row in summary["settings"]:
        percentages = [f"{row[name]:.2f}" for name in ("paper", "defaults", "single", "independent")]
        fewer = "never there" if row["times_fewer_steps"] is None else f"{row['times_fewer_steps']:,.0f} x"
        rows.add_row(f"{row['world']}, m = {row['agents']}", *percentages, fewer)
    console.print(rows)
    console.print(f"{summary['seconds']:.0f} s; see {summary['page']}", soft_wrap=True)
