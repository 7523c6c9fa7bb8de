"""What the site needs beside MkDocs' plugins: formulas as MathML, doctests as code, and the command line's reference."""

import contextlib
import html
import io
import os
import re
import textwrap
from collections.abc import Iterator
from typing import Any
from unittest import mock

import griffe
from latex2mathml.converter import convert

from farflung.cli import main

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', flags=re.S)
_DOCTEST = re.compile(r"^>>> .*?(?=\n\n|\Z)", flags=re.M | re.S)
_COMMANDS = "<!-- commands -->"
_SUMMARY = re.compile(r"^ config options\n -+\n(.*?)\n  -+$", flags=re.M | re.S)
_OPTION = re.compile(r"^  (--\w.*?|[A-Z]+)(?: {2,}|\n +)(\S.*?)(?: \((?:default: (.*)|required)\))?$", flags=re.M)
_WIDE = {"COLUMNS": "1000"}  # so that tyro breaks no line


def on_page_markdown(markdown: str, **_: Any) -> str:
    return markdown.replace(_COMMANDS, "\n\n".join(_reference())) if _COMMANDS in markdown else markdown


def on_page_content(content: str, **_: Any) -> str:
    """Browsers draw MathML by themselves, so that formulas need neither a script nor a network."""
    return _FORMULA.sub(lambda found: _mathml(found[2], "block" if found[1] == "div" else "inline"), content)


class Doctests(griffe.Extension):
    """Examples in docstrings are code; Markdown would take their >>> for quotations."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = _DOCTEST.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)


def _mathml(formula: str, display: str) -> str:
    return convert(html.unescape(formula).strip(), display=display)


def _reference() -> Iterator[str]:
    """Each command with its options, as its own help has them."""
    for name in re.findall(r"^ *• (\S+)", _help(), flags=re.M):
        text = _help(name)
        usage = re.sub(r"\[-h\] |(?<=\[)\S+ (?=OPTIONS\])", "", text.splitlines()[0].removeprefix("usage: "))
        summary = _SUMMARY.search(text)
        yield f"## {name}"
        yield f"`{usage}`"
        yield textwrap.dedent(summary[1]) if summary else text.split("\n\n")[1]
        rows = [_row(*option) for option in _OPTION.findall(text)]
        yield "\n".join(["| option | meaning | default |", "| --- | --- | --- |", *rows])


def _row(option: str, meaning: str, default: str) -> str:
    name, _, values = option.partition(" ")
    if choices := re.match(r"{(.+)}", values):
        meaning += " Choices: " + ", ".join(f"`{choice}`" for choice in choices[1].split(",")) + "."
    else:
        name = re.sub(r"\[(\w+) \[.*", r"\1 ...", option)
    shown = "" if default == "False" else f"`{default}`" if re.fullmatch(r"\S+|[\d. ]+", default) else default
    return f"| `{name}` | {meaning} | {shown} |"


def _help(*command: str) -> str:
    output = io.StringIO()
    with mock.patch.dict(os.environ, _WIDE), contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        main([*command, "--help"])
    return re.sub(r" +$", "", output.getvalue(), flags=re.M)
