"""From command-line arguments to a command: tyro parses, and every mistake becomes a ValueError of one line.

tyro draws its errors in boxes and has no public way to get their text. Therefore, this module finds unknown options, missing
values and values that are not numbers before tyro does; the error of a config is the exception that tyro handled at its exit.
"""

import contextlib
import dataclasses
import difflib
import functools
import io
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_type_hints

import tyro

from farflung.config.checks import check_name

Command = Callable[..., int | None]
STYLE = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
_OPTIONS_OF_TYRO = ("--help", "--tyro-print-completion", "--tyro-write-completion")


def parse(commands: Mapping[str, Command], arguments: Sequence[str]) -> Callable[[], int | None]:
    """A function that runs the command that the arguments ask for, and returns its exit code or None, which is 0."""
    name, *words = arguments or ["--help"]
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            if name.startswith("-"):  # help about all commands, or a script for completion in a shell
                return tyro.extras.subcommand_cli_from_dict(
                    {name: _postponed(command) for name, command in commands.items()},
                    prog="farflung",
                    description="Maximum state entropy exploration with parallel agents.",
                    args=[name, *words],
                    config=STYLE,
                )
            check_name("command", name, tuple(commands))
            _check_options(name, commands[name], words)
            postponed, unknown = tyro.cli(
                _postponed(commands[name]), prog=f"farflung {name}", args=words, config=STYLE, return_unknown_args=True
            )
        except SystemExit as error:
            if error.code in (0, None):
                raise
            if name.startswith("-"):
                raise ValueError(f"unknown option {name}: choose one of the commands {', '.join(commands)}") from None
            raise ValueError(_reason(name, commands[name], error)) from None
    if unknown:
        raise ValueError(f"unexpected argument {unknown[0]!r}: see farflung {name} --help")
    return postponed


def _postponed(command: Command) -> Callable[..., Callable[[], int | None]]:
    """The command with the same options, but it returns a function that does the work."""

    @functools.wraps(command)
    def prepare(*arguments: Any, **options: Any) -> Callable[[], int | None]:
        return functools.partial(command, *arguments, **options)

    return prepare


def _check_options(name: str, command: Command, words: Sequence[str]) -> None:
    """Raises ValueError if an option is unknown, or if its value is missing or should be a number."""
    if name == "explore" and any(word.partition("=")[0] == "--resume" for word in words):
        raise ValueError("explore has no option --resume: use the command farflung resume RUN")
    types = _types(command)
    starts = [number for number, word in enumerate(words) if word.startswith("--")]
    for start, end in itertools.pairwise([*starts, len(words)]):
        option, equals, value = words[start].partition("=")
        option, values = option.replace("_", "-"), [value] * bool(equals) + list(words[start + 1 : end])
        if option in _OPTIONS_OF_TYRO:
            continue
        if option not in types:
            nearest = difflib.get_close_matches(option, types, n=1)
            suggestion = f" (did you mean {nearest[0]}?)" if nearest else ""
            more = (
                "resume uses the original settings; drop the other options"
                if name == "resume"
                else f"see farflung {name} --help"
            )
            raise ValueError(f"unknown option {option}{suggestion}: {more}")
        _check_values(option, types[option], values)


def _check_values(option: str, kind: str, values: Sequence[str]) -> None:
    if "bool" in kind:
        return
    if "tuple" not in kind:
        values = values[:1]  # others are positional arguments
        if not values:
            raise ValueError(f"{option} needs a value")
    if "int" in kind or "float" in kind:
        convert, expected = (int, "whole number") if "int" in kind else (float, "number")
        expected = f"{expected}s" if "tuple" in kind else f"a {expected}"
        for value in values:
            try:
                convert(value)
            except ValueError:
                if value != "None" or "None" not in kind:
                    raise ValueError(f"{option} takes {expected}, not {value[:80]!r}") from None


def _types(command: Command) -> dict[str, str]:
    """The options of a command, each with its type as Python writes it."""
    types: dict[str, Any] = {}
    for name, kind in get_type_hints(command).items():
        types |= get_type_hints(kind) if dataclasses.is_dataclass(kind) else {name: kind}
    return {f"--{name.replace('_', '-')}": str(kind) for name, kind in types.items() if name not in ("return", "given")}


def _reason(name: str, command: Command, error: SystemExit) -> str:
    """Why tyro exited: because of the ValueError of a config or, without one, because of a missing positional argument."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ValueError):
        cause = cause.__context__
    if cause is None:
        fields = dataclasses.fields(get_type_hints(command)["config"])
        required = [field.name.upper() for field in fields if field.default is dataclasses.MISSING]
        return f"{name} needs {', '.join(required)}: see farflung {name} --help"
    message = str(cause).split("\n")[0]
    for option in _types(command):
        message = re.sub(rf"\b{option[2:].replace('-', '_')}\b", option[2:], message)
    return message
