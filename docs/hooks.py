"""Additions to MkDocs' plugins: formulas as MathML, doctests as code, and the reference of the command line."""

import argparse
import html
import inspect
import re
from collections.abc import Iterator
from typing import Any, get_type_hints

import griffe
from latex2mathml.converter import convert
from tyro.extras import get_parser

from farflung.cli import COMMANDS, STYLE

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', flags=re.S)
_DOCTEST = re.compile(r"^>>> .*?(?=\n\n|\Z)", flags=re.M | re.S)
_COMMANDS = "<!-- commands -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    return markdown.replace(_COMMANDS, "\n\n".join(_reference())) if _COMMANDS in markdown else markdown


def on_page_content(content: str, **_: Any) -> str:
    """Formulas as MathML, which browsers render without a script and without a network."""
    return _FORMULA.sub(lambda found: _mathml(found[2], "block" if found[1] == "div" else "inline"), content)


class Doctests(griffe.Extension):
    """Marks examples in docstrings as code; Markdown would render >>> as quotations."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = _DOCTEST.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)


def _mathml(formula: str, display: str) -> str:
    return convert(html.unescape(formula).strip(), display=display)


def _reference() -> Iterator[str]:
    """Each command with its options, from its own help."""
    for name, command in COMMANDS.items():
        config = get_type_hints(command)["config"]
        actions = [action for action in get_parser(command, config=STYLE)._actions if action.dest != "help"]
        arguments = [str(action.metavar) for action in actions if not action.option_strings]
        yield f"## {name}"
        yield f"`{' '.join(['farflung', name, '[OPTIONS]', *arguments])}`"
        yield str(inspect.getdoc(config))
        yield "\n".join(["| option | meaning | default |", "| --- | --- | --- |", *map(_row, actions)])


def _row(action: argparse.Action) -> str:
    meaning, _, default = str(action.help).replace("%%", "%").strip().removesuffix(" (required)").partition(" (default: ")
    default = default.removesuffix(")")
    values = str(action.metavar or "")
    if choices := re.match(r"{(.+)}(?:\|(.+))?", values):
        named = [*choices[1].split(","), *([choices[2]] if choices[2] else [])]
        meaning += " One of: " + ", ".join(f"`{choice}`" for choice in named) + "."
        values = ""
    name = " ".join([*action.option_strings, re.sub(r"\W*(\w+) \[.*", r"\1 ...", values)]).strip()
    shown = "" if default in ("False", "None") else f"`{default}`" if re.fullmatch(r"\S+|[\d. ]+", default) else default
    return f"| `{name}` | {meaning} | {shown} |"
