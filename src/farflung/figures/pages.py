"""What all pages share: one self-contained HTML document with contents, figures and tables."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import NamedTuple


class Picture(NamedTuple):
    """A figure as it is shown on a page."""

    name: str
    title: str
    caption: str
    svg: bytes


class Section(NamedTuple):
    name: str
    title: str
    content: str
    """HTML"""


def document(title: str, heading: str, introduction: str, sections: Sequence[Section], preview: str = "") -> str:
    """The whole page.

    Args:
        introduction: HTML.
        preview: why the numbers are preliminary, if they are.
    """
    contents = "".join(f'<li><a href="#{escape(name)}">{escape(title)}</a></li>' for name, title, _ in sections)
    body = "".join(
        f'<section id="{escape(name)}"><h2>{escape(title)}</h2>{content}</section>' for name, title, content in sections
    )
    banner = f'<p class="preview">Preview: {escape(preview)}</p>' if preview else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>{resource("report.css")}</style>
</head>
<body>
<header><h1>{escape(heading)}</h1>
<p>{introduction}</p>{banner}</header>
<nav aria-label="Contents"><ol>{contents}</ol></nav>
<main>{body}</main>
</body>
</html>
"""


def figure_section(picture: Picture) -> Section:
    source = base64.b64encode(picture.svg).decode("ascii")
    image = f'<img alt="{escape(picture.title)}" src="data:image/svg+xml;base64,{source}">'
    content = f'<figure><div class="scroll">{image}</div><figcaption>{escape(picture.caption)}</figcaption></figure>'
    return Section(f"figure-{picture.name}", picture.title, content)


def definition_table(rows: Mapping[str, str]) -> str:
    body = "".join(f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>' for name, value in rows.items())
    return f'<div class="scroll"><table class="settings"><tbody>{body}</tbody></table></div>'


class Value(NamedTuple):
    """A cell of a table: its text, and the class of a verdict if it has one."""

    text: str
    kind: str = ""


def value_table(head: Sequence[str], rows: Iterable[tuple[str, Sequence[Value]]], caption: str = "") -> str:
    """A table with named rows and columns."""
    columns = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        + "".join(
            f'<td class="{value.kind}">{escape(value.text)}</td>' if value.kind else f"<td>{escape(value.text)}</td>"
            for value in values
        )
        + "</tr>"
        for name, values in rows
    )
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<div class="scroll"><table>{title}<thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table></div>'


def resource(name: str) -> str:
    return files("farflung").joinpath("resources", name).read_text(encoding="utf-8")
