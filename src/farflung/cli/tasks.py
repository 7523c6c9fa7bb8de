"""`farflung transfer` and `farflung transfer-study`: from a team that has explored to a task, and to many."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from farflung.cli import terminal
from farflung.cli.terminal import Printing, one_line_warnings, out_option, print_saved, progress_bar, switch, table
from farflung.config import Launching, Transfer, TransferStudy
from farflung.config.checks import printable
from farflung.scale.jobs import Job, launch, made

if TYPE_CHECKING:
    from rich.console import Console

    from farflung.runs.run import Run
    from farflung.studies.suite import SuiteStatus
    from farflung.studies.trials import Status

_MOST_ROWS = 20


def transfer(
    config: Transfer,
    printing: Printing,
    out: Annotated[
        Path | None, out_option("Directory for the run of the learner.", "NAME-METHOD, with the name of the run")
    ] = None,
    force: Annotated[bool, switch("Replace a run that is in the output directory.")] = False,
) -> int:
    """Learn a task that a team has never seen, from what its exploration has left."""
    terminal.use_all_cores()
    from farflung.runs.destinations import claimed
    from farflung.runs.interrupts import Stopped, stoppable
    from farflung.runs.run import load_run
    from farflung.studies.transfer import transfer_config  # imports JAX

    terminal.import_world(config.world, None if config.reward == "environment" else config.reward)
    explored = load_run(config.run)
    out = out or Path(f"{Path(config.run).absolute().name}-{config.method}")
    with stoppable():
        with one_line_warnings(), progress_bar(printing.quiet) as show, claimed(out) as place:

            def on_progress(status: "Status") -> None:
                state = "compiling" if status.update == 0 else terminal.rate(status.steps_per_second)
                show(config.task, status.update, status.num_updates, state)

            learned = transfer_config(config, explored, out=place, force=force, on_progress=on_progress)
        printing.report(learned.summary, partial(_print, learned, out), beside_json=True)
        if told := learned.summary.get("stopped_because"):
            raise ValueError(f"{told}; the results so far were saved in {out}")
        if learned.summary["is_interrupted"]:
            raise Stopped(f"{learned.summary['updates']:,} updates are saved in {out}: the same command continues")
    return 0


def transfer_study(
    config: TransferStudy,
    printing: Printing,
    launching: Launching,
    out: Annotated[
        Path | None,
        out_option("Directory for the page, the figures, the numbers and the results.", "transfer-study, or transfer-preview"),
    ] = None,
    force: Annotated[
        bool, switch("Replace results of another version or with other settings that are in the output directory.")
    ] = False,
) -> None:
    """Explore once, then learn many goals that were never seen, against other ways to begin; write one page with verdicts."""
    began = time.perf_counter()
    out = out or Path("transfer-preview" if config.quick else "transfer-study")
    elsewhere = _elsewhere(config, launching, out, printing)
    terminal.use_all_cores()
    from farflung.runs import program_cache
    from farflung.runs.destinations import claimed
    from farflung.runs.interrupts import Stopped, stoppable
    from farflung.studies.transfer_study.experiment import study_transfer  # imports JAX
    from farflung.studies.transfer_study.report import write_study

    program_cache.keep_programs()
    with stoppable():
        try:
            with progress_bar(printing.quiet) as show, claimed(out) as place:

                def on_progress(status: "SuiteStatus") -> None:
                    show("transfer", status.steps, status.num_steps, status.what)

                study = partial(study_transfer, config, place, force=force, elsewhere=elsewhere)
                found = study(on_progress=on_progress, on_note=_note)
                show("transfer", 1, 1, "figures and page")
                summary = write_study(found, place, began)
        except KeyboardInterrupt:
            raise Stopped(f"the results of finished worlds are saved in {out}: the same command continues") from None
    printing.report(summary, partial(_print_claims, summary))


def _note(text: str) -> None:
    print(f"farflung: {printable(text)}", file=sys.stderr)


def _elsewhere(
    config: TransferStudy, launching: Launching, out: Path, printing: Printing
) -> Callable[[Sequence[str], Path], None] | None:
    """Studies worlds as jobs of a launcher; None for the launcher local, since this process studies them."""
    if launching.launcher == "local":
        return None
    launcher = made(launching, out.absolute() / "jobs")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # this process only reads results: the accelerators are for the jobs

    def study(names: Sequence[str], folder: Path) -> None:
        from farflung.studies.transfer_study.experiment import is_finished

        function, folder = "farflung.studies.transfer_study.experiment:study_here", folder.absolute()
        jobs = [Job(function, (name,), {"out": str(folder), "config": config, "worlds": [name]}) for name in names]
        with progress_bar(printing.quiet) as show:

            def report() -> None:
                done = sum(is_finished(name, folder) for name in names)
                show("transfer", done, len(names), f"{done} of {len(names)} worlds")

            failures = launch(launcher, jobs, retries=launching.retries, on_wait=report, on_note=_note)
        for name, why in failures.items():
            raise ValueError(f"{name} failed: {why}; the same command tries again")

    return study


def _print_claims(summary: dict[str, Any], console: "Console") -> None:
    rows = table("In how many comparisons each claim holds", "claim", "holds", "undecided", "does not hold")
    for statement, counts in summary["claims"].items():
        rows.add_row(statement, *(str(counts.get(verdict, 0)) for verdict in ("holds", "undecided", "does not hold")))
    console.print(rows)
    console.print(f"{summary['seconds']:.0f} s. See {summary['page']}", soft_wrap=True)


def _print(run: "Run", out: Path, console: "Console") -> None:
    about = run.summary["transfer"]
    rows = table(f"{about['task']}: the agents before learning", "agent (from 0)", "mean return", "best episode")
    for row in about["ranking"][:_MOST_ROWS]:
        rows.add_row(str(row["agent"]), f"{row['mean_return']:.3f}", f"{row['best_return']:.3f}")
    rows.add_row("random actions", f"{about['random_return']:.3f}", "")
    console.print(rows)
    console.print(f"best episode of agent {about['ranking'][0]['agent']}: {about['shown_path']}", soft_wrap=True)
    mean = sum(run.summary["final"]["objective"]) / len(run.config.seeds)
    steps, episodes = run.summary["environment_steps"] // len(run.config.seeds), run.config.batch_size
    learned = [f"{steps:,} steps of learning"] if run.config.updates > 1 else []
    if about["method"] != "scratch":
        learned += [f"{about['selection_steps']:,} to choose the agent", f"{about['exploration_steps']:,} of exploration"]
    console.print(f"{about['method']}: mean return {mean:.3f} in the last {episodes} episodes, after {' and '.join(learned)}")
    print_saved(console, out, "index.html")
