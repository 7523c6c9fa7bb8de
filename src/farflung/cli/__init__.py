"""The command line: tyro over the config classes, and nothing else. JAX is imported only when there is work to do."""

import contextlib
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version

import tyro

from farflung.cli.ablate import ablate
from farflung.cli.ceiling import ceiling
from farflung.cli.collect import collect
from farflung.cli.compare import compare
from farflung.cli.concentration import concentration
from farflung.cli.explore import explore, resume
from farflung.cli.film import film
from farflung.cli.frank_wolfe import frank_wolfe
from farflung.cli.offline import offline
from farflung.cli.reproduce import reproduce
from farflung.config.checks import printable
from farflung.runs.interrupts import Stopped, ending, leave

COMMANDS: dict[str, Callable[..., Callable[[], int]]] = {
    "explore": explore,
    "collect": collect,
    "offline": offline,
    "compare": compare,
    "film": film,
    "ceiling": ceiling,
    "frank-wolfe": frank_wolfe,
    "concentration": concentration,
    "reproduce": reproduce,
    "ablate": ablate,
}
STYLE = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `farflung` and returns its exit code.

    It is 2 for what the user can mend, 1 if a training had to stop, 130 after Ctrl-C, 143 after SIGTERM, 141 without a reader.
    """
    if arguments is None:  # this is all that the process is for
        code = main(sys.argv[1:])
        leave(code)
        return code
    try:
        with ending(_last_words):
            try:
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
    if "" not in sys.path:
        sys.path.append("")  # where a user's own environment may be; last, as what lies around must not pass for a package
    try:
        command = _parse(arguments)
        return command()
    except ValueError as error:
        return _tell(str(error))
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):  # which JAX says
            raise
        return _tell("there is not enough memory for this")


def _tell(message: str) -> int:
    """Says in one line what is wrong, whatever the message holds, and returns the exit code for what the user can mend."""
    print(f"farflung: {printable(message)}", file=sys.stderr)
    return 2


def _last_words() -> None:
    """Says that the process is ended, where nothing else can be done any more."""
    if sys.stderr.isatty():
        print("\x1b[?25h", file=sys.stderr)  # the cursor, which a progress bar hides, on a line of its own
    _tell("interrupted")


def _discard_output() -> None:
    """Keeps Python from trying once more, at its end, to write what could not be written."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parse(arguments: list[str]) -> Callable[[], int]:
    """The command that the arguments ask for; tyro's boxed messages become a ValueError of one line."""
    messages = io.StringIO()
    is_resumed = arguments[:1] == ["explore"] and any(each.partition("=")[0] == "--resume" for each in arguments)
    try:
        with contextlib.redirect_stderr(messages):
            return tyro.extras.subcommand_cli_from_dict(
                COMMANDS | ({"explore": resume} if is_resumed else {}),
                prog="farflung",
                description="Maximum state entropy exploration with parallel agents.",
                args=arguments or ["--help"],
                config=STYLE,
            )
    except SystemExit as error:
        if error.code in (0, None):
            raise
        message = _one_line(messages.getvalue())
        if is_resumed and message.startswith("Unrecognized"):
            message = "with --resume a training goes on with the settings that it was begun with: leave the others out"
        raise ValueError(message) from None


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
    message = re.sub(r"^Error parsing \S*(config|output|keeping|logging|hosting|features): ", "", message)
    message = message.replace("'config.world'", "WORLD")
    message = re.sub(r"^(Missing from farflung \S+: [A-Z]+) .*", r"\1", message)
    message = re.sub(r"\b(batch|learning|log)_(size|rate|every)\b", r"\1-\2", message)
    for section in rest:
        if match := re.match(r"Perhaps you meant: (\S+)", section):
            message += f" (did you mean {match[1]}?)"
        elif section.startswith("Available subcommands"):
            message += f" ({section})"
    return message
