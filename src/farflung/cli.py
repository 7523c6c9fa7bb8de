"""The command line: tyro over the config classes, and nothing else. JAX is imported only when there is work to do."""

import contextlib
import io
import re
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version

import tyro

from farflung.commands.ablate import ablate
from farflung.commands.ceiling import ceiling
from farflung.commands.collect import collect
from farflung.commands.compare import compare
from farflung.commands.concentration import concentration
from farflung.commands.explore import explore, resume
from farflung.commands.film import film
from farflung.commands.frank_wolfe import frank_wolfe
from farflung.commands.offline import offline
from farflung.commands.reproduce import reproduce
from farflung.interrupts import Stopped

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
    """Runs `farflung` and returns its exit code: 2 for what the user can mend, 130 after Ctrl-C, 143 after SIGTERM."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments == ["--version"]:
        print(f"farflung {version('farflung')}")
        return 0
    if "" not in sys.path:
        sys.path.insert(0, "")  # where a user's own environment may be
    try:
        command = _parse(arguments)
        return command()
    except ValueError as error:
        print(f"farflung: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as interrupt:
        print(f"farflung: interrupted{''.join(f'; {note}' for note in interrupt.args)}", file=sys.stderr)
        return interrupt.code if isinstance(interrupt, Stopped) else 130


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
