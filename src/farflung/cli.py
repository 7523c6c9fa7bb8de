"""The command line: tyro over the config classes, and nothing else. JAX is imported only when there is work to do."""

import contextlib
import dataclasses
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from farflung.config import Explore, check_world

if TYPE_CHECKING:
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
    except KeyboardInterrupt:
        print("farflung: interrupted before there was anything to save", file=sys.stderr)
        return 130


def _parse(arguments: list[str]) -> Callable[[], int]:
    """The command that the arguments ask for; tyro's boxed messages become a ValueError of one line."""
    messages = io.StringIO()
    try:
        with contextlib.redirect_stderr(messages):
            return tyro.extras.subcommand_cli_from_dict(
                {"explore": _explore},
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
        out = output.out or _new_directory(config)
        use_all_cores()
        from farflung.experiments.explore import explore  # JAX with it

        settings = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
        with _progress_bar(config, output.quiet) as on_progress:
            result = explore(**settings, out=out, force=output.force, on_progress=on_progress)
        if not output.quiet:
            _print_table(result, out, is_on_stderr=output.json)
        if output.json:
            print(json.dumps(result.summary))
        return 130 if result.summary["is_interrupted"] else 0

    return run


def _new_directory(config: Explore) -> Path:
    stem = Path(config.world).stem if Path(config.world).is_file() else config.world.replace("/", "-")
    name = f"{stem}-{config.agents}-{'single' if config.single else 'agents'}"
    candidates = (Path("runs") / (name if number == 1 else f"{name}-{number}") for number in range(1, 10**6))
    return next(candidate for candidate in candidates if not candidate.exists())


def use_all_cores() -> None:
    """Makes each CPU core a JAX device, unless the user has said how many there should be."""
    import jax

    if "JAX_NUM_CPU_DEVICES" not in os.environ and "host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        jax.config.update(
            "jax_num_cpu_devices", len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        )


@contextlib.contextmanager
def _progress_bar(config: Explore, is_quiet: bool) -> "Iterator[Callable[[Status], None] | None]":
    if is_quiet:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} updates"),
        TextColumn("{task.fields[state]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=4) as bar:
        task = bar.add_task(config.world, total=config.updates, state="compiling")

        def show(status: "Status") -> None:
            state = "compiled"
            if status.normalized_entropy is not None:
                state = (
                    f"entropy {status.normalized_entropy:.3f}  support {status.support:.1f}  "
                    f"{status.steps_per_second / 1e6:,.1f}M steps/s"
                )
            bar.update(task, completed=status.update, state=state)

        yield show


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
