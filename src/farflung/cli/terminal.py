"""Options, tables and progress bars that the commands have in common."""

import contextlib
import io
import os
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import tyro

from farflung.config.checks import check_name, check_world, num_cores, printable
from farflung.config.options import LOGGERS, one_of
from farflung.worlds.hosted.modules import find_here

_STDOUT, _STDERR = 1, 2
_LEAST_ADDRESS_SPACE = 5 * 2**29

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


_stdout: TextIO | None = None
"""Kept aside for the JSON object."""


def take_streams(is_json: bool) -> None:
    """Prepares stdout and stderr of a process that has no other task.

    Closed streams are opened on nothing, since whatever is opened next would get their numbers, and what is printed. With
    `is_json`, the real stdout is kept aside: what is printed before, meanwhile, in C, in other processes or at exit, goes to
    stderr. What cannot be written to stderr, because its disk is full, is lost, and nothing else.
    """
    global _stdout
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdout = sys.stdout or open(_STDOUT, "w", closefd=False)  # noqa: SIM115
    errors = io.BufferedWriter(_Lossy(_STDERR, "w", closefd=False))
    sys.stderr = io.TextIOWrapper(errors, getattr(sys.stderr, "encoding", None), "backslashreplace", line_buffering=True)
    if is_json:
        kept = os.dup(_STDOUT)
        os.dup2(_STDERR, _STDOUT)
        sys.stdout.flush()
        sys.stdout, _stdout = sys.stderr, open(kept, "w", encoding="ascii")  # noqa: PTH123, SIM115


class _Lossy(io.FileIO):
    def write(self, content: Any) -> int:
        try:
            return super().write(content)
        except BrokenPipeError:  # the reader has gone
            raise
        except OSError:
            return len(content)


@contextlib.contextmanager
def only_json(is_json: bool) -> Iterator[None]:
    """Keeps stdout aside for the JSON object, if there will be one; everything else that is printed goes to stderr."""
    global _stdout
    if not is_json:
        yield
        return
    before, _stdout = _stdout, _stdout or sys.stdout
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        _stdout.flush()
        _stdout = before


@dataclass(frozen=True)
class Printing:
    """What is printed."""

    quiet: bool = False
    """Print errors only, and the JSON object if there is --json."""
    json: bool = False
    """Print the summary as one JSON object on stdout, and everything else on stderr."""

    def report(self, summary: Any, show: "Callable[[Console], None]", *, beside_json: bool = False) -> None:
        """Prints the results: a table unless quiet, or the JSON object (with the table on stderr if `beside_json`)."""
        if not self.quiet and (beside_json or not self.json):
            show(console(stderr=self.json))
        if self.json:
            from farflung.runs.files import to_json

            print(to_json(summary), file=_stdout)


@dataclass(frozen=True)
class Logging:
    """Logs to watch while the training runs."""

    log: Annotated[tuple[str, ...] | None, one_of(LOGGERS, is_repeated=True)] = None
    """Log the metrics during training: TensorBoard event files, a CSV file, Weights & Biases, trackio."""
    log_dir: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("logs")
    """Directory for logs; each run writes to a new folder in it."""

    def __post_init__(self) -> None:
        if self.log == ():
            raise ValueError(f"log must name at least one of {', '.join(LOGGERS)}")
        for name in self.log or ():
            check_name("logger", name, LOGGERS)


def out_option(contents: str, default: str, metavar: str = "DIR") -> object:
    """How `--out` is shown."""
    return tyro.conf.arg(metavar=metavar, help=contents, help_behavior_hint=f"(default: {default})")


def switch(meaning: str) -> object:
    """How an option without a value is shown."""
    return tyro.conf.arg(help=meaning)


def check_address_space() -> None:
    """Raises ValueError if JAX, which aborts in that case, could not even start: `ulimit -v` limits the address space."""
    if sys.platform == "win32":
        return
    import resource

    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most != resource.RLIM_INFINITY and most < _LEAST_ADDRESS_SPACE:
        needed = f"at least {_LEAST_ADDRESS_SPACE // 2**10:,} are needed"
        raise ValueError(f"there is not enough memory for JAX: ulimit -v is {most // 2**10:,}, and {needed}")


def use_all_cores() -> None:
    """Makes each CPU core a JAX device, unless the user has set the number of devices, and starts up the devices."""
    import jax

    one_device_per_core()
    threading.Thread(target=jax.devices, daemon=True).start()  # a GPU takes seconds; meanwhile, imports continue


def one_device_per_core() -> None:
    """Makes each CPU core a JAX device, unless the user has set the number of devices."""
    import jax

    from farflung.runs.program_cache import keep_programs

    keep_programs()
    if "JAX_NUM_CPU_DEVICES" not in os.environ and "host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        with contextlib.suppress(RuntimeError):  # a program that calls `main` may have started JAX already
            jax.config.update("jax_num_cpu_devices", num_cores())


def import_world(name: str | None, function: str | None = None) -> None:
    """Imports the module of a user's own world, since a run by itself never imports a module from the current folder.

    Args:
        function: a reward function of the user's own, which may lie in the current folder too.
    """
    find_here(name, function)
    if name is not None:
        check_world(name)


def rate(steps_per_second: float) -> str:
    million = steps_per_second / 1e6
    return f"{million:.1f}M steps/s" if million >= 1 else f"{steps_per_second:,.0f} steps/s"


def console(*, stderr: bool = False) -> "Console":
    """A console that escapes control characters, since names may come from files of others."""
    from rich.console import Console
    from rich.text import Text

    class Plain(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str("\n".join(map(printable, text.split("\n"))), **options)

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Plain(stderr=stderr, markup=False, emoji=False)


def table(title: str, *columns: str, left: Collection[int] = (0,)) -> "Table":
    """An empty table; the columns with the indices `left` are aligned to the left, the others to the right."""
    from rich.table import Table

    empty = Table(title=title)
    for number, name in enumerate(columns):
        empty.add_column(name, justify="left" if number in left else "right")
    return empty


def print_saved(console: "Console", out: Path | None, picture: str, contents: str = "") -> None:
    """Prints where the results are, or, if they were not saved, how to save their contents."""
    if out is None:
        console.print(f"--out DIR saves {contents}")
    else:
        console.print(f"saved in {out}: see {out / picture}", soft_wrap=True)


@contextlib.contextmanager
def one_line_warnings() -> Iterator[None]:
    """Prints farflung's warnings as one line each, and redirects the output of loggers and simulators to stderr."""
    from farflung.loggers import LoggerWarning
    from farflung.policies.rollout import WorldWarning
    from farflung.runs.checkpoints import CheckpointWarning
    from farflung.worlds.hosted.pool import SimulatorWarning

    with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
        show_others = warnings.showwarning
        warnings.simplefilter("always", SimulatorWarning)
        warnings.simplefilter("always", WorldWarning)

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, CheckpointWarning | LoggerWarning | SimulatorWarning | WorldWarning):
                print(f"farflung: {printable(str(message))}", file=sys.stderr)
            else:
                show_others(message, category, *where, **more)

        warnings.showwarning = show
        yield


@contextlib.contextmanager
def progress_bar(is_quiet: bool) -> Iterator[Callable[[str, int, int, str], None]]:
    """Yields a function of the task, the steps done, their total and a remark; it shows a progress bar on stderr."""
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
