"""`farflung explore`."""

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from farflung.cli import terminal
from farflung.cli.terminal import Logging, Output, one_line_warnings, progress_bar
from farflung.config import CONTINUOUS_WORLDS, PAPER_WORLDS, Explore, Features, Hosting, check_world, is_map_file
from farflung.config.checks import check_checkpoints
from farflung.config.options import default_is

if TYPE_CHECKING:
    from farflung.runs.run import Run
    from farflung.studies.trials import Status
    from farflung.worlds.vectors import VectorWorld


@dataclass(frozen=True)
class Keeping:
    """How often all that it takes to go on with the training is written to the run's directory."""

    checkpoint_minutes: float = 2.0
    """Minutes between two checkpoints, of which the last three are kept until the training is finished."""
    checkpoint_updates: Annotated[int | None, default_is("whenever it is time")] = None
    """Updates after which there is one at the latest."""

    def __post_init__(self) -> None:
        check_checkpoints(self.checkpoint_minutes, self.checkpoint_updates)


@dataclass(frozen=True)
class Resume:
    """Go on with a training that was cut short, with the settings that it was begun with.

    It ends where it would have ended without a break, bit for bit on the same kind of device.
    """

    resume: Annotated[Path, tyro.conf.arg(metavar="RUN")]
    """The directory of its run."""
    quiet: bool = False
    """Print nothing but errors (and the JSON, if asked for)."""
    json: bool = False
    """Print the summary as one JSON object on stdout, and everything else on stderr."""


def explore(
    config: Explore, hosting: Hosting, features: Features, output: Output, keeping: Keeping, logging: Logging
) -> Callable[[], int]:
    """Train a team of agents to visit, together, as many different states as evenly as possible.

    With --resume RUN, and neither a WORLD nor settings, go on with a training that was cut short.
    """

    def run() -> int:
        check_world(config.world)
        terminal.use_all_cores()
        from farflung.runs.files import new_folder
        from farflung.studies.explore import explore as train_team  # JAX with it

        with new_folder(Path("runs"), config.name) if output.out is None else contextlib.nullcontext(output.out) as out:
            settings = {**_world(config, hosting, features), "out": out, "force": output.force}
            return _train(partial(train_team, **settings), out, config.world, output, keeping, logging)

    return run


def resume(config: Resume, keeping: Keeping, logging: Logging) -> Callable[[], int]:
    """Go on with a training that was cut short."""

    def run() -> int:
        terminal.use_all_cores()
        from farflung.studies.explore import resume as go_on  # JAX with it

        return _train(partial(go_on, config.resume), config.resume, str(config.resume), config, keeping, logging)

    return run


def _train(
    train: Callable[..., "Run"], out: Path, name: str, output: Output | Resume, keeping: Keeping, logging: Logging
) -> int:
    """Trains with progress and loggers, prints what came of it, and returns the exit code."""
    from farflung.loggers import resolved
    from farflung.runs import interrupts
    from farflung.runs.files import to_json

    if output.quiet:
        os.environ.setdefault("WANDB_SILENT", "true")
    with interrupts.stoppable():
        with (
            resolved(logging.log or (), logging.log_dir, out.resolve().name) as loggers,
            one_line_warnings(),
            progress_bar(output.quiet) as show,
        ):

            def on_progress(status: "Status") -> None:
                if status.update == 0 and not output.quiet:
                    for logger in loggers:
                        print(f"log: {logger}", file=sys.stderr)
                state = "compiling" if status.update == 0 else ""
                if status.normalized_entropy is not None:
                    rate = terminal.rate(status.steps_per_second)
                    state = f"entropy {status.normalized_entropy:.3f} support {status.support:.1f} {rate}"
                show(name, status.update, status.num_updates, state)

            result = train(on_progress=on_progress, loggers=loggers, **dataclasses.asdict(keeping))
        if not output.quiet:
            _print_table(result, out, is_on_stderr=output.json)
        if output.json:
            print(to_json(result.summary))
        if reason := result.summary.get("stopped_because"):
            print(f"farflung: {reason}; what there is was saved in {out}", file=sys.stderr)
            return 1
        if result.summary["is_interrupted"]:
            done, wanted = result.summary["updates"], result.config.updates
            raise interrupts.Stopped(f"{done:,} of {wanted:,} updates are kept, farflung explore --resume {out} goes on")
    return 0


def _world(config: Explore, hosting: Hosting, features: Features) -> dict[str, Any]:
    """The settings, with the world itself where anything about it was said that its name doesn't say."""
    settings = config.given  # what was left open depends on what the world turns out to be
    chosen = {name: value for name, value in dataclasses.asdict(features).items() if value is not None}
    if hosting == Hosting() and not chosen:
        return settings
    if config.world in PAPER_WORLDS or is_map_file(config.world) or config.slip is not None:
        raise ValueError("options of how to step and observe an environment are for those of Gymnasium alone")
    if config.world in CONTINUOUS_WORLDS:
        return {**settings, "world": _continuous(config, hosting, chosen), "horizon": None}
    from farflung.worlds.hosted.tables import hosted

    options = dataclasses.asdict(hosting)
    del options["hosted"]
    given = _given(options.pop("make") or (), {"environment", "horizon", *options, *dataclasses.asdict(features)})
    return {**settings, "world": hosted(config.world, horizon=config.horizon, **options, **chosen, **given), "horizon": None}


def _continuous(config: Explore, hosting: Hosting, chosen: dict[str, Any]) -> "VectorWorld":
    from farflung.worlds.named_vectors import make_vector_world

    if dataclasses.replace(hosting, make=None) != Hosting() or not chosen.keys() <= {"bins", "neighbours"}:
        raise ValueError(f"of {config.world} only bins, neighbours and the horizon can be chosen: the rest is its own")
    given = _given(hosting.make or (), {"name", "horizon", "bins", "neighbours"})
    return make_vector_world(json.dumps({"name": config.world, **given}), horizon=config.horizon, **chosen)


def _given(pairs: Sequence[str], taken: Collection[str]) -> dict[str, Any]:
    """What KEY=VALUE pairs say."""
    given = {}
    for pair in pairs:
        name, is_pair, value = pair.partition("=")
        if not (name.isidentifier() and is_pair):
            raise ValueError(f"make has pairs KEY=VALUE, not {pair!r}")
        if name in taken:
            raise ValueError(f"make: {name} is no option of the environment itself but --{name}")
        try:
            given[name] = json.loads(value)
        except ValueError:
            given[name] = value
    return given


def _print_table(run: "Run", out: Path, is_on_stderr: bool) -> None:
    from rich.table import Table

    from farflung.runs.statistics import final_table

    summary = run.summary
    num_seeds = len(run.config.seeds)
    agents = f"one policy with {run.config.agents} x" if run.config.single else f"{run.config.agents} agents with"
    table = Table(title=f"{run.config.world}: {agents} {run.config.trajectories} trajectories of {run.world.horizon} actions")
    table.add_column("metric, last 1% of updates")
    table.add_column(f"mean of {num_seeds} seeds" if num_seeds > 1 else "1 seed", justify="right")
    table.add_column("95% CI", justify="right")
    table.add_column("random actions", justify="right")
    for row in final_table(run):
        table.add_row(*row)
    console = terminal.console(stderr=is_on_stderr)
    console.print(table)
    console.print(
        f"{summary['updates']:,} updates, {summary['environment_steps']:,} steps in {summary['seconds']:.1f} s "
        f"({terminal.rate(summary['steps_per_second'])}) after {summary['compile_seconds']:.1f} s of compilation "
        f"on {summary['device']}"
    )
    if "hosted" in summary:
        where = f"in {summary['hosted']['workers']} worker processes" if summary["hosted"]["workers"] else "in this process"
        copies = f"{summary['hosted']['copies']} copies of {run.config.world}"
        console.print(f"host-stepped: {copies} {where}; a compiled world is far faster")
    projection = getattr(run.world, "projection", None)
    if projection is not None:
        how = f"the distance to neighbour {projection.neighbours}" if projection.neighbours else "counts over the grid"
        console.print(f"states: {', '.join(projection.names)} on a grid of {projection.num_cells:,} cells; learnt from {how}")
    kind = "which a team can reach" if summary["ceiling"]["exact"] else f"an upper bound by {summary['ceiling']['method']}"
    console.print(f"ceiling: {summary['ceiling']['bound']:.4f} nats, {kind}")
    if summary["is_stopped_early"]:
        console.print(f"stopped after {summary['updates']:,} of {run.config.updates:,} updates: the entropy no longer grew")
    console.print(f"saved in {out}: see {out / 'figure.png'}", soft_wrap=True)
