"""`farflung ablate`."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro

from farflung.cli import terminal
from farflung.cli.suites import run_suite
from farflung.cli.terminal import Output
from farflung.config import Ablate


@dataclass(frozen=True)
class AblateOutput(Output):
    """Where the results go, and what is printed."""

    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: ablation, or ablation-preview)")] = (
        None
    )
    """Directory for the page, the figures, the numbers and the trained runs."""
    force: bool = False
    """Discard results of another version or with other settings that are in that directory."""


def ablate(config: Ablate, output: AblateOutput) -> Callable[[], int]:
    """Train every credit with every optimiser and write one page on what helps."""

    def run() -> int:
        began = time.perf_counter()
        terminal.use_all_cores()
        from farflung.studies.ablate.experiment import ablate as compare  # JAX with it
        from farflung.studies.ablate.report import write_ablation

        out = output.out or Path("ablation-preview" if config.quick else "ablation")
        return run_suite(
            "ablation", out, output, partial(compare, config), lambda found: write_ablation(found, out, began), _print
        )

    return run


def _print(summary: dict[str, Any]) -> None:
    from rich.table import Table

    console = terminal.console()
    table = Table(title="The defaults against the paper's preset (mean over seeds)")
    for name in ("setting", "paper, % of ceiling", "defaults, %", "one policy, %", "independent, %", "fewer steps"):
        table.add_column(name, justify="left" if name == "setting" else "right")
    for row in summary["settings"]:
        percentages = [f"{row[name]:.2f}" for name in ("paper", "defaults", "single", "independent")]
        table.add_row(
            f"{row['world']}, m = {row['agents']}",
            *percentages,
            "never there" if row["times_fewer_steps"] is None else f"{row['times_fewer_steps']:,.0f} x",
        )
    console.print(table)
    console.print(f"{summary['seconds']:.0f} s; see {summary['page']}", soft_wrap=True)
