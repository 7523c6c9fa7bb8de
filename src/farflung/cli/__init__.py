"""The command line. JAX is imported only when there is work to do, so that help and errors come at once."""

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar

from farflung.cli import terminal
from farflung.cli.arguments import STYLE as STYLE
from farflung.cli.arguments import Command, parse
from farflung.config.checks import printable
from farflung.runs.interrupts import Stopped, interruptible, keep_exit_code

_JSON = "--json"
_OBJECTS_BETWEEN_COLLECTIONS = 50_000
"""JAX and matplotlib make so many objects that looking for garbage after each 700 took a tenth of a short command's time."""


class _Commands(Mapping[str, Command]):
    """The commands by their names; the module of a command is imported when it is asked for."""

    _modules: ClassVar = {
        "explore": "explore",
        "resume": "explore",
        "sweep": "sweep",
        "collect": "datasets",
        "offline": "datasets",
        "transfer": "tasks",
        "compare": "finished",
        "film": "finished",
        "view": "finished",
        "ceiling": "optima",
        "frank-wolfe": "optima",
        "concentration": "optima",
        "reproduce": "suites",
        "ablate": "suites",
        "objectives": "optima",
        "transfer-study": "tasks",
    }

    def __getitem__(self, name: str) -> Command:
        return getattr(importlib.import_module(f"farflung.cli.{self._modules[name]}"), name.replace("-", "_"))

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


COMMANDS: Mapping[str, Command] = _Commands()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `farflung` and returns its exit code.

    2: a mistake of the user; 1: the training failed; 130: Ctrl-C; 143: SIGTERM; 141: the reader of the output has gone.
    """
    if arguments is None:  # the process has no other task
        gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
        terminal.take_streams(is_json=_JSON in sys.argv)
        code = main(sys.argv[1:])
        gc.freeze()  # Python looks through all objects for garbage once more when it exits
        keep_exit_code(code)
        return code
    try:
        with interruptible(_last_words):
            try:
                with terminal.only_json(_JSON in arguments):
                    return _run(list(arguments))
            finally:
                sys.stdout.flush()
    except KeyboardInterrupt as interrupt:
        _tell(f"interrupted{''.join(f'; {note}' for note in interrupt.args)}")
        return interrupt.code if isinstance(interrupt, Stopped) else 130
    except BrokenPipeError:
        _discard_output()
        return 141
    except OSError as error:
        _discard_output()
        return _tell(error.strerror or str(error))


def _run(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        print(f"farflung {version('farflung')}")
        return 0
    try:
        command = _parse(arguments)
        terminal.check_address_space()
        if Path("matplotlibrc").exists():  # matplotlib reads it when it is imported, and it could name any program
            with contextlib.chdir(Path(__file__).parent):
                import matplotlib  # noqa: F401
        try:
            return command() or 0
        except SystemExit as error:
            raise ValueError(f"nothing was saved, because something called sys.exit({error.code!r})") from error
    except ValueError as error:
        return _tell(str(error))
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):  # JAX's code for too little memory
            raise
        return _tell("there is not enough memory for this")


def _tell(message: str) -> int:
    """Prints an error as one line on stderr and returns the exit code for a mistake of the user."""
    print(f"farflung: {printable(message)}", file=sys.stderr)
    return 2


def _last_words() -> None:
    """Prints that the process was interrupted, just before it ends."""
    if sys.stderr.isatty():
        print("\x1b[?25h", file=sys.stderr)  # shows the cursor, which a progress bar hides, on a new line
    _tell("interrupted")


def _discard_output() -> None:
    """Stops Python from trying again, at exit, to write the output that could not be written."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parse(arguments: Sequence[str]) -> Callable[[], int | None]:
    return parse(COMMANDS, arguments)
