"""`farflung concentration`."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from farflung.cli import terminal
from farflung.cli.terminal import Output, progress_bar
from farflung.config import Concentration, check_world

if TYPE_CHECKING:
    from farflung.studies.concentration.experiment import Concentrated

_NAMES = {"team": "the team's states", "agent": "one agent's own states", "single": "the single agent's states"}


@dataclass(frozen=True)
class ConcentrationOutput(Output):
    """Where the results go, and what is printed."""

    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: concentration)")] = None
    """Directory for the numbers and the figure."""
    force: bool = False
    """Discard results with other settings that are in that directory."""


def concentration(config: Concentration, output: ConcentrationOutput) -> Callable[[], int]:
    """Compare Theorem 4.1 with how soon samples show the entropy of a trained team and of a single agent."""

    def run() -> int:
        check_world(config.world)
        terminal.use_all_cores()
        from farflung.runs.files import open_results, to_json
        from farflung.studies.concentration.experiment import concentration as measure  # JAX with it
        from farflung.studies.concentration.figures import concentrated

        out = output.out or Path("concentration")
        with open_results(out, "concentration", dataclasses.asdict(config), force=output.force) as results:
            with progress_bar(output.quiet) as show:

                def on_progress(done: int, total: int, what: str) -> None:
                    show(config.world, done, total, what)

                found = measure(config, on_progress=on_progress)
            summary = _summary(config, found)
            results.write("summary.json", to_json(summary, indent=2))
            results.write_table("probabilities.csv", _rows(found))
            results.draw("concentration", concentrated(found))
        if output.json:
            print(to_json(summary))
        elif not output.quiet:
            _print(found, out)
        return 0

    return run


def _summary(config: Concentration, found: "Concentrated") -> dict[str, Any]:
    needed = {kind: [each._asdict() for each in found.needed[kind]] for kind in found.needed}
    return {
        "farflung": version("farflung"),
        **dataclasses.asdict(config),
        "entropies": found.entropies,
        "samples_needed": needed,
        "violations": found.num_violations,
    }


def _rows(found: "Concentrated") -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = [("kind", "epsilon", "samples", "measured_probability", "theorem_4_1")]
    for kind, measured in found.probabilities.items():
        for epsilon, probabilities, bounds in zip(found.config.epsilons, measured, found.theorem[kind], strict=True):
            columns = zip(found.num_samples.tolist(), probabilities.tolist(), bounds.tolist(), strict=True)
            rows += [(kind, epsilon, *values) for values in columns]
    return rows


def _print(found: "Concentrated", out: Path) -> None:
    from rich.table import Table

    config = found.config
    share = f"{100 * (1 - config.delta):g}%"
    table = Table(title=f"{config.world}: samples until the entropy is within ε nats in {share} of the draws")
    for name in ("", "H(d)", "ε", "measured", "sharper bound", "Theorem 4.1"):
        table.add_column(name, justify="left" if not name else "right")
    for kind, needed in found.needed.items():
        for number, (epsilon, each) in enumerate(zip(config.epsilons, needed, strict=True)):
            first = (_NAMES[kind], f"{found.entropies[kind]:.3f}") if number == 0 else ("", "")
            table.add_row(*first, f"{epsilon:g}", f"{each.measured:,.0f}", f"{each.sharper:,.0f}", f"{each.theorem:.2g}")
    console = terminal.console()
    console.print(table)
    number = sum(each.size for each in found.probabilities.values()) * len(config.seeds)
    word = "no measurement contradicts" if found.num_violations == 0 else f"{found.num_violations} measurements contradict"
    console.print(f"{word} Theorem 4.1 (at least {number:,} were made)")
    console.print(f"saved in {out}: see {out / 'concentration.png'}", soft_wrap=True)
