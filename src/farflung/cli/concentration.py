"""`farflung concentration`."""

import dataclasses
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from farflung.cli import terminal
from farflung.cli.terminal import Printing, out_option, progress_bar, switch, table
from farflung.config import Concentration, check_world

if TYPE_CHECKING:
    from rich.console import Console

    from farflung.studies.concentration.experiment import Concentrated

_NAMES = {"team": "the team's states", "agent": "one agent's own states", "single": "the single agent's states"}


def concentration(
    config: Concentration,
    printing: Printing,
    out: Annotated[Path, out_option("Directory for the numbers and the figure.", "concentration")] = Path("concentration"),
    force: Annotated[bool, switch("Replace results with other settings that are in the output directory.")] = False,
) -> int:
    """Compare Theorem 4.1 with the number of samples that are needed to see the entropy of a team and of a single agent."""
    check_world(config.world)
    terminal.use_all_cores()
    from farflung.runs.files import open_results, to_json
    from farflung.studies.concentration.experiment import concentration as measure  # imports JAX
    from farflung.studies.concentration.figures import concentrated

    with open_results(out, "concentration", dataclasses.asdict(config), force=force) as results:
        with progress_bar(printing.quiet) as show:
            found = measure(config, on_progress=lambda done, total, what: show(config.world, done, total, what))
        summary = _summary(config, found)
        results.write("summary.json", to_json(summary, indent=2))
        results.write_table("probabilities.csv", _rows(found))
        results.draw("concentration", concentrated(found))
    printing.report(summary, partial(_print, found, out))
    return 0


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


def _print(found: "Concentrated", out: Path, console: "Console") -> None:
    config = found.config
    share = f"{100 * (1 - config.delta):g}%"
    title = f"{config.world}: samples until the entropy is within ε nats in {share} of the draws"
    rows = table(title, "", "H(d)", "ε", "measured", "sharper bound", "Theorem 4.1")
    for kind, needed in found.needed.items():
        for number, (epsilon, each) in enumerate(zip(config.epsilons, needed, strict=True)):
            first = (_NAMES[kind], f"{found.entropies[kind]:.3f}") if number == 0 else ("", "")
            rows.add_row(*first, f"{epsilon:g}", f"{each.measured:,.0f}", f"{each.sharper:,.0f}", f"{each.theorem:.2g}")
    console.print(rows)
    number = sum(each.size for each in found.probabilities.values()) * len(config.seeds)
    word = "no measurement contradicts" if found.num_violations == 0 else f"{found.num_violations} measurements contradict"
    console.print(f"{word} Theorem 4.1 (at least {number:,} were made)")
    console.print(f"saved in {out}: see {out / 'concentration.png'}", soft_wrap=True)
