"""What all commands share: where results go, what is printed, and how far long work is."""

import contextlib
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from farflung.config.checks import check_name, printable
from farflung.config.options import LOGGERS, one_of

if TYPE_CHECKING:
    from rich.console import Console


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
class Logging:
    """Where the training can be followed while it runs."""

    log: Annotated[tuple[str, ...] | None, one_of(LOGGERS, is_repeated=True)] = None
    """Event files for TensorBoard, a CSV file that grows, Weights & Biases, trackio."""
    log_dir: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("logs")
    """Directory for them, in which each run gets a new one."""

    def __post_init__(self) -> None:
        if self.log == ():
            raise ValueError(f"log must name at least one of {', '.join(LOGGERS)}")
        for name in self.log or ():
            check_name("logger", name, LOGGERS)


def num_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_all_cores() -> None:
    """Makes each CPU core a JAX device, unless the user has said how many there should be, and wakes up the devices."""
    import jax

    if "JAX_NUM_CPU_DEVICES" not in os.environ and "host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        jax.config.update("jax_num_cpu_devices", num_cores())
    threading.Thread(target=jax.devices, daemon=True).start()  # a GPU takes seconds, in which more can be imported


def rate(steps_per_second: float) -> str:
    million = steps_per_second / 1e6
    return f"{million:.1f}M steps/s" if million >= 1 else f"{steps_per_second:,.0f} steps/s"


def console(*, stderr: bool = False, soft_wrap: bool = False, highlight: bool = True) -> "Console":
    """Where tables and sentences are printed: names may come from files, and none of them steers the terminal."""
    from rich.console import Console
    from rich.text import Text

    class Plain(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str("\n".join(map(printable, text.split("\n"))), **options)

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Plain(stderr=stderr, soft_wrap=soft_wrap, highlight=highlight, markup=False, emoji=False)


@contextlib.contextmanager
def one_line_warnings() -> Iterator[None]:
    """Has whatever fails tell so in one line on stderr, and all else that loggers and simulators print go there too."""
    from farflung.loggers import LoggerWarning
    from farflung.policies.rollout import WorldWarning
    from farflung.runs.checkpoints import CheckpointWarning
    from farflung.worlds.hosted.pool import SimulatorWarning

    with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
        honest = warnings.showwarning
        warnings.simplefilter("always", SimulatorWarning)
        warnings.simplefilter("always", WorldWarning)

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, CheckpointWarning | LoggerWarning | SimulatorWarning | WorldWarning):
                print(f"farflung: {printable(str(message))}", file=sys.stderr)
            else:
                honest(message, category, *where, **more)

        warnings.showwarning = show
        yield


@contextlib.contextmanager
def progress_bar(is_quiet: bool) -> Iterator[Callable[[str, int, int, str], None]]:
    """A function of what is done, how far, out of how much, and a remark, that shows a bar on stderr from its first call on."""
    if is_quiet:
        yield lambda *_: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    what, remark = (TextColumn(f"{{task.{field}}}", markup=False) for field in ("description", "fields[remark]"))
    columns = (what, BarColumn(12), TaskProgressColumn(), TimeRemainingColumn(), remark)
    bar = Progress(*columns, console=console(stderr=True), refresh_per_second=4)
    task = bar.add_task("", start=True, remark="")

    def show(what: str, done: int, total: int, remark: str) -> None:
        bar.start()
        bar.update(task, description=printable(what), completed=done, total=total, remark=printable(remark))

    try:
        yield show
    finally:
        if bar.live.is_started:
            bar.stop()
