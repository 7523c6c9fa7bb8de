"""`farflung reproduce`."""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from farflung.commands import terminal
from farflung.commands.drawing import drawing_processes
from farflung.commands.terminal import Output, progress_bar
from farflung.config import Reproduce

if TYPE_CHECKING:
    from farflung.experiments.suite import SuiteStatus


@dataclass(frozen=True)
class ReproduceOutput(Output):
    """Where the results go, and what is printed."""

    out: Annotated[
        Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: reproduction, or reproduction-preview)")
    ] = None
    """Directory for the page, the figures, the numbers and the trained runs."""
    force: bool = False
    """Discard results of another version or with other settings that are in that directory."""


def reproduce(config: Reproduce, output: ReproduceOutput) -> Callable[[], int]:
    """Rerun every experiment of the paper and write one page with its figures and what became of its claims."""

    def run() -> int:
        began = time.perf_counter()
        # Many programs are compiled at once: on a GPU, one thread for each is faster than many threads for each.
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_force_compilation_parallelism=1".strip()
        terminal.use_all_cores()
        from farflung.experiments.reproduce import reproduce as rerun  # JAX with it
        from farflung.files import to_json
        from farflung.report import write_report

        out = output.out or Path("reproduction-preview" if config.quick else "reproduction")
        notes: list[str] = []
        try:
            with drawing_processes() as executor, progress_bar(output.quiet) as show:

                def on_progress(status: "SuiteStatus") -> None:
                    show("the paper", status.steps, status.num_steps, status.what)

                found = rerun(config, out, force=output.force, on_progress=on_progress, on_note=notes.append)
                show("the paper", 1, 1, "figures and page")
                summary = write_report(found, out, began, executor)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"what is finished is kept in {out}: the same command goes on from there") from None
        finally:
            for note in notes:
                print(f"farflung: {note}", file=sys.stderr)
        if output.json:
            print(to_json(summary))
        elif not output.quiet:
            _print_claims(summary)
        return 0

    return run


def _print_claims(summary: dict[str, object]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    claims: dict[str, dict[str, dict[str, int]]] = summary["claims"]  # type: ignore[assignment]
    table = Table(title="In how many settings the paper's claims hold / are undecided / do not hold")
    table.add_column("claim")
    for schedule in claims:
        table.add_column(f"learning rate of the {schedule}", justify="right")
    for statement in next(iter(claims.values())):
        table.add_row(statement, *(" / ".join(map(str, claims[schedule][statement].values())) for schedule in claims))
    console.print(table)
    console.print(f"{summary['seconds']:.1f} s. See {summary['page']}", soft_wrap=True)
