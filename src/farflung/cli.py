"""The command line: tyro over the config classes, and nothing else. JAX is imported only when there is work to do."""

import contextlib
import dataclasses
import io
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from farflung.config import Explore, Reproduce, check_world, is_map_file

if TYPE_CHECKING:
    from farflung.experiments.reproduce import SuiteStatus
    from farflung.experiments.trials import Status
    from farflung.runs import Run


@dataclass(frozen=True)
class Output:
    """Where the results go, and what is printed."""

    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: a new one under runs/)")] = None
    """Directory for the run: config, metrics, policies, figure, summary."""
    force: bool = False
    """Replace a run that is already in that directory."""
    quiet: bool = False
    """Print nothing but errors (and the JSON, if asked for)."""
    json: bool = False
    """Print the summary as one JSON object on stdout, and everything else on stderr."""


@dataclass(frozen=True)
class ReproduceOutput(Output):
    """Where the results go, and what is printed."""

    out: Annotated[
        Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: reproduction, or reproduction-preview)")
    ] = None
    """Directory for the page, the figures, the numbers and the trained runs."""
    force: bool = False
    """Discard results of another version or with other settings that are in that directory."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `farflung` and returns its exit code: 2 for what the user can mend, 130 after Ctrl-C."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments == ["--version"]:
        print(f"farflung {version('farflung')}")
        return 0
    try:
        command = _parse(arguments)
        return command()
    except ValueError as error:
        print(f"farflung: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as interrupt:
        print(f"farflung: interrupted{''.join(f'; {note}' for note in interrupt.args)}", file=sys.stderr)
        return 130


def _parse(arguments: list[str]) -> Callable[[], int]:
    """The command that the arguments ask for; tyro's boxed messages become a ValueError of one line."""
    messages = io.StringIO()
    try:
        with contextlib.redirect_stderr(messages):
            return tyro.extras.subcommand_cli_from_dict(
                {"explore": _explore, "reproduce": _reproduce},
                prog="farflung",
                description="Maximum state entropy exploration with parallel agents.",
                args=arguments or ["--help"],
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
            )
    except SystemExit as error:
        if error.code in (0, None):
            raise
        raise ValueError(_one_line(messages.getvalue())) from None


def _one_line(boxed: str) -> str:
    """The gist of one of tyro's messages: what is wrong, and what was perhaps meant."""
    sections = [""]
    for line in re.sub(r"\x1b\[[0-9;]*m", "", boxed).splitlines():
        text = line.strip(" │")
        if re.fullmatch("[─-]{5,}", text):
            sections.append("")
        elif not text.startswith(("╭", "╰")):
            sections[-1] = f"{sections[-1]} {text}".strip()
    has_title = "╭" not in boxed and len(sections) > 1
    message, *rest = sections[has_title:]
    message = re.sub(r"^Error parsing \S*(config|output): ", "", message).replace("'config.world'", "WORLD")
    message = re.sub(r"^(Missing from farflung explore: WORLD) .*", r"\1", message)
    message = re.sub(r"\b(batch|learning|log)_(size|rate|every)\b", r"\1-\2", message)
    for section in rest:
        if match := re.match(r"Perhaps you meant: (\S+)", section):
            message += f" (did you mean {match[1]}?)"
        elif section.startswith("Available subcommands"):
            message += f" ({section})"
    return message


def _explore(config: Explore, output: Output) -> Callable[[], int]:
    """Train a team of agents to visit, together, as many different states as evenly as possible."""

    def run() -> int:
        check_world(config.world)
        use_all_cores()
        from farflung.experiments.explore import explore  # JAX with it
        from farflung.runs import to_json

        settings = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
        with _destination(config, output) as out, _progress_bar(output.quiet) as show:

            def on_progress(status: "Status") -> None:
                state = "compiling" if status.update == 0 else ""
                if status.normalized_entropy is not None:
                    rate = f"{status.steps_per_second / 1e6:.0f}M steps/s"
                    state = f"entropy {status.normalized_entropy:.3f} support {status.support:.1f} {rate}"
                show(config.world, status.update, status.num_updates, state)

            result = explore(**settings, out=out, force=output.force, on_progress=on_progress)
        if not output.quiet:
            _print_table(result, out, is_on_stderr=output.json)
        if output.json:
            print(to_json(result.summary))
        return 130 if result.summary["is_interrupted"] else 0

    return run


def _reproduce(config: Reproduce, output: ReproduceOutput) -> Callable[[], int]:
    """Rerun every experiment of the paper and write one page with its figures and what became of its claims."""

    def run() -> int:
        began = time.perf_counter()
        # Many programs are compiled at once: on a GPU, one thread for each is faster than many threads for each.
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_force_compilation_parallelism=1".strip()
        use_all_cores()
        from farflung.experiments.reproduce import reproduce  # JAX with it
        from farflung.report import write_report
        from farflung.runs import to_json

        out = output.out or Path("reproduction-preview" if config.quick else "reproduction")
        notes: list[str] = []
        try:
            with _progress_bar(output.quiet) as show:

                def on_progress(status: "SuiteStatus") -> None:
                    show("the paper", status.steps, status.num_steps, status.what)

                found = reproduce(config, out, force=output.force, on_progress=on_progress, on_note=notes.append)
                show("the paper", 1, 1, "figures and page")
                summary = write_report(found, out, began)
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


@contextlib.contextmanager
def _destination(config: Explore, output: Output) -> Iterator[Path]:
    """The directory for a run: the user's, or a new one that no other process can take meanwhile."""
    if output.out is not None:
        yield output.out
        return
    stem = Path(config.world).stem if is_map_file(config.world) else config.world.replace("/", "-")
    name = f"{stem}-{config.agents}-{'single' if config.single else 'agents'}"
    parent = Path("runs")
    number, is_new_parent = 1, not parent.exists()
    while True:
        path = parent / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir(parents=True)
            break
        except FileExistsError:
            number += 1
        except OSError as error:
            raise ValueError(f"cannot write to {path}: {error.strerror or error}") from None
    try:
        yield path
    finally:
        for folder in (path, parent) if is_new_parent else (path,):
            with contextlib.suppress(OSError):
                folder.rmdir()  # only if nothing was saved


def use_all_cores() -> None:
    """Makes each CPU core a JAX device, unless the user has said how many there should be."""
    import jax

    if "JAX_NUM_CPU_DEVICES" not in os.environ and "host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        jax.config.update("jax_num_cpu_devices", cores)


@contextlib.contextmanager
def _progress_bar(is_quiet: bool) -> Iterator[Callable[[str, int, int, str], None]]:
    """A function of what is done, how far, out of how much, and a remark, that shows a bar on stderr from its first call on."""
    if is_quiet:
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    remark = TextColumn("{task.fields[remark]}")
    columns = (TextColumn("{task.description}"), BarColumn(12), TaskProgressColumn(), TimeRemainingColumn(), remark)
    bar = Progress(*columns, console=Console(stderr=True), refresh_per_second=4)
    task = bar.add_task("", start=True, remark="")

    def show(what: str, done: int, total: int, remark: str) -> None:
        bar.start()
        bar.update(task, description=what, completed=done, total=total, remark=remark)

    try:
        yield show
    finally:
        if bar.live.is_started:
            bar.stop()


def _print_table(run: "Run", out: Path, is_on_stderr: bool) -> None:
    import numpy as np
    from rich.console import Console
    from rich.table import Table

    from farflung.statistics import mean_and_interval

    summary = run.summary
    num_seeds = len(run.config.seeds)
    agents = f"one policy with {run.config.agents} x" if run.config.single else f"{run.config.agents} agents with"
    table = Table(title=f"{run.config.world}: {agents} {run.config.trajectories} trajectories of {run.world.horizon} actions")
    table.add_column("metric, last 1% of updates")
    table.add_column(f"mean of {num_seeds} seeds" if num_seeds > 1 else "1 seed", justify="right")
    table.add_column("95% CI", justify="right")
    table.add_column("random actions", justify="right")
    for name, values in summary["final"].items():
        mean, half_width = mean_and_interval(np.asarray(values))
        interval = "" if half_width is None else f"± {half_width:.4f}"
        table.add_row(name.replace("_", " "), f"{mean:.4f}", interval, f"{summary['random'][name]:.4f}")
    console = Console(stderr=is_on_stderr)
    console.print(table)
    console.print(
        f"{summary['updates']:,} updates, {summary['environment_steps']:,} steps in {summary['seconds']:.1f} s "
        f"({summary['steps_per_second'] / 1e6:.1f}M steps/s) after {summary['compile_seconds']:.1f} s of compilation "
        f"on {summary['device']}"
    )
    if summary["is_interrupted"]:
        console.print(f"interrupted after {summary['updates']:,} of {run.config.updates:,} updates; what there is was saved")
    console.print(f"saved in {out}: see {out / 'figure.png'}", soft_wrap=True)


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
