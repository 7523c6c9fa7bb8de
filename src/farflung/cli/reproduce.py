"""`farflung reproduce`."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from farflung.cli import terminal
from farflung.cli.drawing import drawing_processes
from farflung.cli.suites import run_suite
from farflung.cli.terminal import Output
from farflung.config import Reproduce


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
        from farflung.studies.reproduce.experiment import reproduce as rerun  # JAX with it
        from farflung.studies.reproduce.report import write_report

        out = output.out or Path("reproduction-preview" if config.quick else "reproduction")
        with drawing_processes() as executor:
            write = lambda found: write_report(found, out, began, executor)  # noqa: E731
            return run_suite("the paper", out, output, partial(rerun, config), write, _print_claims)

    return run


def _print_claims(summary: dict[str, object]) -> None:
    from rich.table import Table

    console = terminal.console()
    claims: dict[str, dict[str, dict[str, int]]] = summary["claims"]  # type: ignore[assignment]
    table = Table(title="In how many settings the paper's claims hold / are undecided / do not hold")
    table.add_column("claim")
    for schedule in claims:
        table.add_column(f"learning rate of the {schedule}", justify="right")
    for statement in next(iter(claims.values())):
        table.add_row(statement, *(" / ".join(map(str, claims[schedule][statement].values())) for schedule in claims))
    console.print(table)
    console.print(f"{summary['seconds']:.1f} s. See {summary['page']}", soft_wrap=True)
