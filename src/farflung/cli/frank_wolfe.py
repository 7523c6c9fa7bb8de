"""`farflung frank-wolfe`."""

import dataclasses
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from farflung.cli.terminal import Printing, out_option, progress_bar, switch, table
from farflung.config import FrankWolfeRun, check_world

if TYPE_CHECKING:
    from rich.console import Console

    from farflung.studies.frank_wolfe.experiment import Convergence


def frank_wolfe(
    config: FrankWolfeRun,
    printing: Printing,
    out: Annotated[Path, out_option("Directory for the numbers, the team's policies and the figure.", "frank-wolfe")] = Path(
        "frank-wolfe"
    ),
    force: Annotated[bool, switch("Replace results with other settings that are in the output directory.")] = False,
) -> int:
    """Maximise the entropy in the limit of infinitely many samples, by Parallel Frank-Wolfe (Algorithm 2 of the paper)."""
    check_world(config.world)
    from farflung.runs.files import open_results, to_json
    from farflung.studies.frank_wolfe.experiment import frank_wolfe as solve  # imports JAX
    from farflung.studies.frank_wolfe.figures import converging

    with open_results(out, "frank-wolfe", dataclasses.asdict(config), force=force) as results:
        with progress_bar(printing.quiet) as show:
            found = solve(config, on_progress=lambda done, total, what: show(config.world, done, total, what))
        summary = _summary(found)
        results.write("summary.json", to_json(summary, indent=2))
        pairs = zip(found.found.entropies.tolist(), found.found.gaps.tolist(), strict=True)
        results.write_table("gaps.csv", [("iteration", "entropy", "gap"), *((i, *pair) for i, pair in enumerate(pairs))])
        rows = [
            (way, agents, iteration, gap)
            for way, series in found.comparison.items()
            for agents, gaps in zip(series.agents, series.gaps, strict=True)
            for iteration, gap in enumerate(gaps.tolist())
        ]
        results.write_table("comparison.csv", [("plan", "agents", "iteration", "gap"), *rows])
        results.write_arrays("policies.npz", logits=found.found.team.logits, is_time_dependent=True)
        results.draw("convergence", converging(found))
    printing.report(summary, partial(_print, found, summary, out))
    return 0


def _summary(convergence: "Convergence") -> dict[str, Any]:
    from farflung.entropy.counts import shannon

    found = convergence.found
    return {
        "farflung": version("farflung"),
        **dataclasses.asdict(convergence.config),
        "step_size": convergence.algorithm.step_size,
        "iterations": len(found.gaps),
        "entropy": float(shannon(found.mixture)),
        "objective": found.objective,
        "gap": found.gap,
        "bound": found.bound,
        "theorem_iterations": convergence.theorem_iterations,
        "comparison": {
            way: {
                "agents": series.agents,
                "floors": series.floors.tolist(),
                "exponent": series.exponent,
                "verdict": series.verdict,
            }
            for way, series in convergence.comparison.items()
        },
    }


def _print(convergence: "Convergence", summary: dict[str, Any], out: Path, console: "Console") -> None:
    from farflung.studies.frank_wolfe.experiment import WAYS

    config = convergence.config
    smoothed = f"a smoothed entropy ({summary['objective']:.4f} here) of " if config.smoothing else ""
    console.print(
        f"{config.world}, {config.agents} agents: entropy {summary['entropy']:.4f} nats after {summary['iterations']:,} "
        f"iterations; no policies have more than {smoothed}{summary['bound']:.4f} (gap {summary['gap']:.1e})",
        highlight=False,
    )
    if summary["gap"] >= config.tolerance:
        console.print(f"the gap is not yet below the tolerance of {config.tolerance:g} nats")
    if summary["theorem_iterations"] is not None:
        console.print(f"for a gap of {config.tolerance:g} the theorem asks for {summary['theorem_iterations']:,} iterations")
    if convergence.comparison:
        title = f"What the gap settles at with a constant step of {config.compare_step:g}, in nats"
        rows = table(title, "agents (N)", *(WAYS[way] for way in convergence.comparison), left=())
        for agents, *floors in zip(config.compare, *(each.floors for each in convergence.comparison.values()), strict=True):
            rows.add_row(str(agents), *(f"{floor:.1e}" for floor in floors))
        console.print(rows)
        for way, series in convergence.comparison.items():
            console.print(f"{WAYS[way]}: N^{series.exponent:.2f}, {series.verdict}", highlight=False)
    console.print(f"saved in {out}: see {out / 'convergence.png'}", soft_wrap=True)
