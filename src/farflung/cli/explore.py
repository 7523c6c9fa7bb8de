"""`farflung explore` and `farflung resume`."""

import contextlib
import dataclasses
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from farflung.cli import terminal
from farflung.cli.terminal import Logging, Printing, one_line_warnings, out_option, print_saved, progress_bar, switch, table
from farflung.config import Explore, Resume, WorldOptions, check_world
from farflung.config.checks import check_checkpoints, check_name, whole_number
from farflung.config.options import WORKER_LAUNCHERS, default_is
from farflung.worlds.hosted.modules import find_here

if TYPE_CHECKING:
    from rich.console import Console

    from farflung.runs.run import Run
    from farflung.studies.trials import Status
    from farflung.training.processes import Processes


@dataclass(frozen=True)
class Checkpoints:
    """How often checkpoints are written to the run's directory, from which `farflung resume` continues."""

    checkpoint_minutes: float = 2.0
    """Minutes between two checkpoints; the last three are kept until the training is finished."""
    checkpoint_updates: Annotated[int | None, default_is("by time only")] = None
    """Maximum number of updates between two checkpoints."""

    def __post_init__(self) -> None:
        check_checkpoints(self.checkpoint_minutes, self.checkpoint_updates)

    def as_arguments(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Workers:
    """Where the copies of a slow Gymnasium environment are stepped."""

    launcher: str = WORKER_LAUNCHERS[0]
    """Where --workers run: local, on this machine; or ray, as actors on the Ray cluster that the environment variable
    RAY_ADDRESS names (without it, on one that is started here)."""

    def __post_init__(self) -> None:
        check_name("launcher", self.launcher, WORKER_LAUNCHERS)


@dataclass(frozen=True)
class Together:
    """One team across several processes, on one host or many; `farflung` is started in each of them with the same options."""

    distributed: bool = False
    """Train one team in several processes, each with an equal part of the agents. Under Slurm, Open MPI and Kubernetes the
    processes find each other."""
    coordinator: Annotated[str | None, default_is("found by itself", "HOST:PORT")] = None
    """Address of the first process, which decides and writes, with a free port; for --distributed elsewhere."""
    num_processes: Annotated[int | None, default_is("found by itself")] = None
    """Number of processes, for --coordinator."""
    process_id: Annotated[int | None, default_is("found by itself")] = None
    """Number of this process, from 0, for --coordinator."""

    def __post_init__(self) -> None:
        given = (self.coordinator, self.num_processes, self.process_id)
        if any(each is not None for each in given) and not self.distributed:
            raise ValueError("coordinator, num_processes and process_id are for --distributed")
        if any(each is None for each in given) and any(each is not None for each in given):
            raise ValueError("coordinator, num_processes and process_id go together: give all three, or none")
        if self.coordinator is not None:
            host, colon, port = self.coordinator.rpartition(":")
            if not (host and colon and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
                raise ValueError(f"coordinator is an address HOST:PORT, not {self.coordinator!r}")
            number = whole_number("num_processes", self.num_processes)
            if self.process_id not in range(number):
                raise ValueError(f"process_id is a number from 0 to {number - 1}, not {self.process_id}")


def explore(
    config: Explore,
    world: WorldOptions,
    printing: Printing,
    checkpoints: Checkpoints,
    logging: Logging,
    together: Together,
    workers: Workers,
    out: Annotated[
        Path | None, out_option("Directory for the run: config, metrics, policies, figure, summary.", "a new one in runs/")
    ] = None,
    force: Annotated[bool, switch("Replace a run that is in the output directory.")] = False,
) -> int:
    """Train a team of agents that visit, together, as many different states as evenly as possible."""
    find_here(config.world, config.algorithm, config.credit, config.objective, *(world.features or ()))
    if ":" not in config.world:  # else a module has to be imported, which may start up JAX
        check_world(config.world)
    if together.distributed:
        lead = partial(_explore, config, world, workers, printing, checkpoints, logging, out, force)
        return _distributed(together, lead)
    terminal.use_all_cores()
    return _explore(config, world, workers, printing, checkpoints, logging, out, force)


def _explore(
    config: Explore,
    world: WorldOptions,
    workers: Workers,
    printing: Printing,
    checkpoints: Checkpoints,
    logging: Logging,
    out: Path | None,
    force: bool,
    processes: "Processes | None" = None,
) -> int:
    from farflung.runs.destinations import claimed
    from farflung.runs.files import new_folder
    from farflung.studies.explore import explore_config  # imports JAX
    from farflung.worlds.named import make_world

    with new_folder(Path("runs"), config.name) if out is None else contextlib.nullcontext(out) as folder:
        notes: list[str] = []

        def train(**options: Any) -> "Run":
            with claimed(folder) as place:  # before the world is made, since an environment may change the current directory
                given = world.given
                if workers.launcher != WORKER_LAUNCHERS[0]:
                    given["launcher"] = workers.launcher
                if "env_options" in given:
                    given["env_options"] = parsed_options(given["env_options"])
                made = make_world(config.world, horizon=config.horizon, slip=config.slip, **given)
                notes.extend(made.notes)
                options |= {"out": place, "force": force, "processes": processes}
                return explore_config(config, made, given=config.given, **options)

        return _train(train, folder, config.world, printing, checkpoints, logging, notes)


def resume(config: Resume, printing: Printing, checkpoints: Checkpoints, logging: Logging, together: Together) -> int:
    """Continue an interrupted training with its original settings."""
    if together.distributed:
        return _distributed(together, partial(_resume, config, printing, checkpoints, logging))
    terminal.use_all_cores()
    return _resume(config, printing, checkpoints, logging)


def _resume(
    config: Resume, printing: Printing, checkpoints: Checkpoints, logging: Logging, processes: "Processes | None" = None
) -> int:
    from farflung.studies.explore import resume as resume_run  # imports JAX

    terminal.import_world(config.world)
    out = Path(config.run)
    return _train(partial(resume_run, out, processes=processes), out, config.run, printing, checkpoints, logging)


def _distributed(together: Together, lead: Callable[["Processes"], int]) -> int:
    """Trains together with other processes: the first one leads and writes, the others follow it."""
    terminal.one_device_per_core()
    from farflung.training.processes import LostError, connect

    processes = connect(together.coordinator, together.num_processes, together.process_id)
    try:
        if processes.leads:
            with processes:
                return lead(processes)
        from farflung.studies.explore import follow

        follow(processes)
        return 0
    except Exception as error:
        if processes.leads and not isinstance(error, LostError):
            raise
        # At once: at its end JAX would wait for a process that has ended, or that waits for this one.
        if isinstance(error, ValueError):
            print(f"farflung: {error}", file=sys.stderr)
        else:
            traceback.print_exc()
        os._exit(1)


def parsed_options(pairs: Sequence[str]) -> dict[str, Any]:
    """The values of KEY=VALUE pairs: JSON or, failing that, text."""
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name.isidentifier() and equals):
            raise ValueError(f"--env-options takes pairs KEY=VALUE, not {pair!r}")
        try:
            values[name] = json.loads(value)
        except ValueError:
            values[name] = value
    return values


def _train(
    train: Callable[..., "Run"],
    out: Path,
    name: str,
    printing: Printing,
    checkpoints: Checkpoints,
    logging: Logging,
    notes: Sequence[str] = (),
) -> int:
    """Trains with a progress bar and loggers, prints the results, and returns the exit code."""
    from farflung.loggers import resolved
    from farflung.runs import interrupts

    if printing.quiet:
        os.environ.setdefault("WANDB_SILENT", "true")
    with interrupts.stoppable():
        with (
            resolved(logging.log or (), logging.log_dir, out.absolute().name) as loggers,
            one_line_warnings(),
            progress_bar(printing.quiet) as show,
        ):

            def on_progress(status: "Status") -> None:
                if status.update == 0 and not printing.quiet:
                    for line in (*notes, *(f"log: {logger}" for logger in loggers)):
                        print(line, file=sys.stderr)
                state = "compiling" if status.update == 0 else ""
                if status.normalized_entropy is not None:
                    rate = terminal.rate(status.steps_per_second)
                    state = f"entropy {status.normalized_entropy:.3f} support {status.support:.1f} {rate}"
                show(name, status.update, status.num_updates, state)

            run = train(on_progress=on_progress, loggers=loggers, **checkpoints.as_arguments())
        printing.report(run.summary, partial(_print, run, out), beside_json=True)
        if reason := run.summary.get("stopped_because"):
            print(f"farflung: {reason}; the results so far were saved in {out}", file=sys.stderr)
            return 1
        if run.summary["is_interrupted"]:
            done, wanted = run.summary["updates"], run.config.updates
            raise interrupts.Stopped(f"{done:,} of {wanted:,} updates are saved: continue with farflung resume {out}")
    return 0


def _print(run: "Run", out: Path, console: "Console") -> None:
    from farflung.runs.statistics import final_table

    summary = run.summary
    num_seeds = len(run.config.seeds)
    agents = f"one policy with {run.config.agents} x" if run.config.single else f"{run.config.agents} agents with"
    title = f"{run.config.world}: {agents} {run.config.trajectories} trajectories of {run.world.horizon} actions"
    mean = f"mean of {num_seeds} seeds" if num_seeds > 1 else "1 seed"
    rows = table(title, "metric, last 1% of updates", mean, "95% CI", "random actions")
    for row in final_table(run):
        rows.add_row(*row)
    console.print(rows)
    console.print(
        f"{summary['updates']:,} updates, {summary['environment_steps']:,} steps in {summary['seconds']:.1f} s "
        f"({terminal.rate(summary['steps_per_second'])}) after {summary['compile_seconds']:.1f} s of compilation "
        f"on {summary['device']}"
    )
    if "hosted" in summary:
        where = f"in {summary['hosted']['workers']} worker processes" if summary["hosted"]["workers"] else "in this process"
        copies = f"{summary['hosted']['copies']} copies of {run.config.world}"
        console.print(f"host-stepped: {copies} {where}; a compiled world is far faster")
    projection = run.world.projection
    if projection is not None:
        how = f"the distance to neighbour {projection.neighbours}" if projection.neighbours else "counts over the grid"
        console.print(f"states: {', '.join(projection.names)} on a grid of {projection.num_cells:,} cells; learnt from {how}")
    kind = "which a team can reach" if summary["ceiling"]["exact"] else f"an upper bound by {summary['ceiling']['method']}"
    console.print(f"ceiling: {summary['ceiling']['bound']:.4f} nats, {kind}")
    if "bound" in summary.get("objective", {}):
        of = summary["objective"]
        kind = "which a team can reach" if of["exact"] else f"an upper bound by {of['method']}"
        console.print(f"ceiling of the objective {of['name']}: {of['bound']:.4f}, {kind}", markup=False)
    if summary["is_stopped_early"]:
        console.print(f"stopped after {summary['updates']:,} of {run.config.updates:,} updates: the objective no longer grew")
    print_saved(console, out, "index.html")
