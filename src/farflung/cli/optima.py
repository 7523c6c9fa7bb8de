"""`farflung ceiling`, `frank-wolfe`, `concentration` and `objectives`: optima, theorems, and what may be maximised."""

import contextlib
import dataclasses
import itertools
import math
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from farflung.cli import terminal
from farflung.cli.terminal import Printing, out_option, print_saved, progress_bar, switch, table
from farflung.config import CeilingOptions, Concentration, FrankWolfeRun, Objectives
from farflung.config.imports import import_object
from farflung.config.options import OBJECTIVE
from farflung.worlds.hosted.modules import find_here

if TYPE_CHECKING:
    from rich.console import Console

    from farflung.bounds.ceilings import Ceiling
    from farflung.studies.concentration.experiment import Concentrated
    from farflung.studies.frank_wolfe.experiment import Convergence
    from farflung.studies.objectives import Measured
    from farflung.worlds.tabular import TabularMDP

_SECONDS_FOR_INFINITE_TRIALS = 8.0
_NAMES = {"team": "the team's {}", "agent": "one agent's own {}", "single": "the single agent's {}"}
_FORCE = "Replace results with other settings that are in the output directory."


def ceiling(
    config: CeilingOptions,
    printing: Printing,
    out: Annotated[
        Path | None, out_option("Directory for the numbers and a picture of the best team found.", "nothing is written")
    ] = None,
    force: Annotated[bool, switch("Replace other results that are in the output directory.")] = False,
) -> None:
    """Compute an upper bound on the entropy, or another objective, of any team in a world, with a certificate."""
    terminal.import_world(config.world)
    find_here(config.objective)
    from farflung.bounds.ceilings import ceiling as bound_team
    from farflung.bounds.ceilings import infinite_trials_optimum
    from farflung.runs.destinations import open_results
    from farflung.worlds.named import make_tabular_world

    world = make_tabular_world(config.world, horizon=config.horizon, slip=config.slip)
    settings = dataclasses.asdict(config)
    began = time.perf_counter()
    with (
        contextlib.nullcontext() if out is None else open_results(out, "ceiling", settings, force=force) as save,
        progress_bar(printing.quiet) as show,
    ):

        def on_progress(value: float, bound: float) -> None:
            spent = min(int(time.perf_counter() - began), int(config.time_limit))
            show(config.world, spent, int(config.time_limit), f"at least {value:.4f}, at most {bound:.4f} nats")

        found = bound_team(
            world,
            config.agents,
            objective=import_object(config.objective, "objective") if ":" in config.objective else config.objective,
            trajectories=config.trajectories,
            method=config.method,
            time_limit=config.time_limit,
            tolerance=config.tolerance,
            on_progress=on_progress,
        )
        left = min(_SECONDS_FOR_INFINITE_TRIALS, max(1.0, config.time_limit - (time.perf_counter() - began)))
        unlimited = infinite_trials_optimum(world, time_limit=left, on_progress=on_progress)
        show(config.world, 1, 1, f"at most {found.bound:.4f} nats")
        summary: dict[str, Any] = {
            "farflung": version("farflung"),
            "world": config.world,
            "states": world.num_states,
            "horizon": world.horizon,
            "agents": config.agents,
            "trajectories": config.trajectories,
            "objective": config.objective,
            **found.as_json(),
            "infinite_trials": unlimited.as_json(),
        }
        if save is not None:
            save(_ceiling_results(summary, world, found))
    printing.report(summary, partial(_print_ceiling, summary, out))


def _ceiling_results(summary: dict[str, Any], world: "TabularMDP", found: "Ceiling") -> dict[str, Any]:
    from farflung.figures.ceilings import best_team

    if summary["objective"] != OBJECTIVE and math.isnan(found.visits[0]):
        return {"ceiling.json": summary}  # the bound comes without visits
    labels = world.labels.tolist()
    results = {
        "ceiling.json": summary,
        "visits.csv": [("state", "visits"), *zip(labels, found.visits.tolist(), strict=True)],
        "ceiling": best_team(world, found),
    }
    if found.trajectories is not None:
        walks = enumerate(found.trajectories.tolist())
        steps = [(agent, step, labels[state]) for agent, walk in walks for step, state in enumerate(walk)]
        results["walks.csv"] = [("agent", "time", "state"), *steps]
    return results


def _print_ceiling(summary: dict[str, Any], out: Path | None, console: "Console") -> None:
    walks = summary["agents"] * summary["trajectories"]
    title = f"{summary['world']}: what no policies exceed, horizon {summary['horizon']}, {summary['states']} states"
    rows = table(title, "", "nats", "/ log(states)", "", "time", left=(0, 3))
    infinite = summary["infinite_trials"]
    kind = "exact, by integer program" if summary["exact"] else f"upper bound, by {summary['method']}"
    within = f"within {infinite['bound'] - infinite['value']:.1e} nats"
    for name, found, what in (
        (_what_is_bounded(summary["objective"], walks), summary, kind),
        ("max H(d), infinitely many", infinite, within),
    ):
        rows.add_row(name, f"{found['bound']:.4f}", f"{found['normalized_bound']:.4f}", what, f"{found['seconds']:.1f} s")
    console.print(rows)
    has_picture = out is not None and (out / "ceiling.png").exists()
    print_saved(
        console,
        out,
        "ceiling.png" if has_picture else "ceiling.json",
        "the numbers and a picture of the best team that was found",
    )


def _what_is_bounded(objective: str, walks: int) -> str:
    return f"entropy of {walks} trajectories" if objective == OBJECTIVE else f"{objective} of {walks} trajectories"


def frank_wolfe(
    config: FrankWolfeRun,
    printing: Printing,
    out: Annotated[Path, out_option("Directory for the numbers, the team's policies and the figure.", "frank-wolfe")] = Path(
        "frank-wolfe"
    ),
    force: Annotated[bool, switch(_FORCE)] = False,
) -> None:
    """Maximise the entropy in the limit of infinitely many samples, by Parallel Frank-Wolfe (Algorithm 2 of the paper)."""
    terminal.import_world(config.world)
    from farflung.runs.destinations import open_results
    from farflung.studies.frank_wolfe.experiment import frank_wolfe as solve  # imports JAX
    from farflung.studies.frank_wolfe.figures import converging

    with open_results(out, "frank-wolfe", dataclasses.asdict(config), force=force) as save:
        with progress_bar(printing.quiet) as show:
            found = solve(config, on_progress=lambda done, total, what: show(config.world, done, total, what))
        summary = _convergence_summary(found)
        gaps = zip(itertools.count(), found.found.entropies.tolist(), found.found.gaps.tolist())
        rows = [
            (way, agents, iteration, gap)
            for way, series in found.comparison.items()
            for agents, gaps_of_team in zip(series.agents, series.gaps, strict=True)
            for iteration, gap in enumerate(gaps_of_team.tolist())
        ]
        results = {
            "summary.json": summary,
            "gaps.csv": [("iteration", "entropy", "gap"), *gaps],
            "comparison.csv": [("plan", "agents", "iteration", "gap"), *rows],
            "policies.npz": {"logits": found.found.team.logits, "is_time_dependent": True},
            "convergence": converging(found),
        }
        save(results)
    printing.report(summary, partial(_print_convergence, found, summary, out))


def _convergence_summary(convergence: "Convergence") -> dict[str, Any]:
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


def _print_convergence(convergence: "Convergence", summary: dict[str, Any], out: Path, console: "Console") -> None:
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
    print_saved(console, out, "convergence.png")


def concentration(
    config: Concentration,
    printing: Printing,
    out: Annotated[Path, out_option("Directory for the numbers and the figure.", "concentration")] = Path("concentration"),
    force: Annotated[bool, switch(_FORCE)] = False,
) -> None:
    """Compare Theorem 4.1 with the number of samples that are needed to see the entropy of a team and of a single agent."""
    terminal.import_world(config.world)
    terminal.use_all_cores()
    from farflung.runs.destinations import open_results
    from farflung.studies.concentration.experiment import concentration as measure  # imports JAX
    from farflung.studies.concentration.figures import concentrated

    with open_results(out, "concentration", dataclasses.asdict(config), force=force) as save:
        with progress_bar(printing.quiet) as show:
            found = measure(config, on_progress=lambda done, total, what: show(config.world, done, total, what))
        summary = {
            "farflung": version("farflung"),
            **dataclasses.asdict(config),
            "entropies": found.entropies,
            "samples_needed": {kind: [each._asdict() for each in needed] for kind, needed in found.needed.items()},
            "violations": found.num_violations,
        }
        tables = {"summary.json": summary, "probabilities.csv": _probabilities(found)}
        save({**tables, "concentration": concentrated(found)})
    printing.report(summary, partial(_print_samples, found, out))


def _probabilities(found: "Concentrated") -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = [("kind", "epsilon", "samples", "measured_probability", "theorem_4_1")]
    for kind, measured in found.probabilities.items():
        for epsilon, probabilities, bounds in zip(found.config.epsilons, measured, found.theorem[kind], strict=True):
            columns = zip(found.num_samples.tolist(), probabilities.tolist(), bounds.tolist(), strict=True)
            rows += [(kind, epsilon, *values) for values in columns]
    return rows


def _print_samples(found: "Concentrated", out: Path, console: "Console") -> None:
    config = found.config
    share = f"{100 * (1 - config.delta):g}%"
    title = f"{config.world}: samples until the entropy is within ε nats in {share} of the draws"
    rows = table(title, "", "H(d)", "ε", "measured", "sharper bound", "Theorem 4.1")
    for kind, needed in found.needed.items():
        for number, (epsilon, each) in enumerate(zip(config.epsilons, needed, strict=True)):
            first = (
                (
                    _NAMES[kind].format("trajectories" if config.objective == "trajectory" else "states"),
                    f"{found.entropies[kind]:.3f}",
                )
                if number == 0
                else ("", "")
            )
            rows.add_row(*first, f"{epsilon:g}", f"{each.measured:,.0f}", f"{each.sharper:,.0f}", f"{each.theorem:.2g}")
    console.print(rows)
    number = sum(each.size for each in found.probabilities.values()) * len(config.seeds)
    word = "no measurement contradicts" if found.num_violations == 0 else f"{found.num_violations} measurements contradict"
    console.print(f"{word} Theorem 4.1 (at least {number:,} were made)")
    print_saved(console, out, "concentration.png")


def objectives(
    config: Objectives,
    printing: Printing,
    out: Annotated[Path, out_option("Directory for the numbers and the figures.", "objectives")] = Path("objectives"),
    force: Annotated[bool, switch(_FORCE)] = False,
) -> None:
    """Train a team on each of several objectives, and measure what each gives by all of them: entropies, coverage, skills."""
    for world in config.worlds:
        terminal.import_world(world)
    terminal.use_all_cores()
    from farflung.runs.destinations import open_results
    from farflung.studies import objectives as study  # imports JAX

    with open_results(out, "objectives", dataclasses.asdict(config), force=force) as save:
        with progress_bar(printing.quiet) as show:
            found = study.compare_objectives(
                config, on_progress=lambda done, total, what: show("objectives", done, total, what)
            )
        summary = {"farflung": version("farflung"), **dataclasses.asdict(config), "results": _means(found)}
        rows = [("world", "objective", "measure", "seed", "value"), *itertools.chain(*(each.rows() for each in found))]
        results = {"summary.json": summary, "measures.csv": rows, "skills": study.skills(found)}
        if any(each.ceilings for each in found):
            results["tradeoff"] = study.tradeoff(found)
        save(results)
    printing.report(summary, partial(_print_objectives, found, out))


def _means(found: "list[Measured]") -> dict[str, Any]:
    return {
        each.world: {
            "ceilings": each.ceilings,
            "means": {
                objective: {name: float(values.mean()) for name, values in measures.items()}
                for objective, measures in each.values.items()
            },
        }
        for each in found
    }


def _print_objectives(found: "list[Measured]", out: Path, console: "Console") -> None:
    for each in found:
        names = list(next(iter(each.values.values())))
        rows = table(f"{each.world}: means over the seeds", "trained on", *(name.replace("_", " ") for name in names))
        for objective, measures in each.values.items():
            rows.add_row(objective, *("" if math.isnan(value := measures[name].mean()) else f"{value:.3f}" for name in names))
        console.print(rows)
    print_saved(console, out, "skills.png")
