"""Self-contained HTML pages: the templates in `figures/templates` show values, figures and tables."""

import base64
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure

from farflung.runs.destinations import Destination, claimed
from farflung.runs.files import save_figure, to_csv, write_errors

_TEMPLATES = Environment(
    loader=PackageLoader("farflung.figures"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_TEMPLATES.filters |= {"base64": lambda content: base64.b64encode(content).decode("ascii"), "grouped": "{:,}".format}
_FIGURES, _DATA, _PAGE = "figures", "data", "index.html"
VERDICT_CLASSES = {"holds": "holds", "undecided": "undecided", "does not hold": "fails"}
"""The CSS class of a table cell with a verdict."""


class Plot(NamedTuple):
    """A figure to be drawn for a page."""

    title: str
    caption: str
    draw: Callable[[], Figure]
    formats: tuple[str, ...] = ("png", "svg")


class Picture(NamedTuple):
    """A drawn figure: a section of a page."""

    id: str
    title: str
    caption: str
    svg: bytes


class Value(NamedTuple):
    """A cell of a table that is more than its text."""

    text: str
    verdict: str
    """Its CSS class."""
    notes: tuple[str, ...] = ()
    """Smaller lines below the text, which is then bold."""
    link: str = ""
    """Where the text leads, such as the page of a run."""


Row = tuple[str, Sequence[str | Value]]
"""A row of a table: its name and its cells."""


class Table(NamedTuple):
    """A table with named rows and columns; each of the `groups` has the same `columns`, to the right of those in `head`."""

    head: Sequence[str]
    rows: Sequence[Row]
    caption: str = ""
    groups: Sequence[str] = ()
    columns: Sequence[str] = ()
    links: Sequence[str] = ()
    """Where the name of each row leads."""


def render(template: str, **values: Any) -> str:
    """The HTML of a template, in which every value is escaped."""
    return _TEMPLATES.get_template(template).render(values)


def source(template: str) -> str:
    """The text of a template, as it is."""
    text, _, _ = PackageLoader("farflung.figures").get_source(_TEMPLATES, template)
    return text


def write_page(
    template: str,
    values: Mapping[str, Any],
    plots: Mapping[str, Plot],
    tables: Mapping[str, Sequence[Sequence[object]]],
    out: str | Path | Destination,
    began: float,
    executor: Executor | None = None,
) -> dict[str, Any]:
    """Writes `figures/`, `data/` and the page that shows them, and returns what the summary of every study has.

    Args:
        values: what the template shows; `config` is the config of the study.
        began: when the work began, by `time.perf_counter()`.
        executor: draws the figures in parallel.
    """
    with claimed(out) as place, write_errors(place.name):
        new = place.fresh()
        pictures = _save_figures(plots, new / _FIGURES, executor)
        (new / _DATA).mkdir()
        for name, rows in tables.items():
            (new / _DATA / f"{name}.csv").write_bytes(to_csv(rows).encode())
        seconds = time.perf_counter() - began
        page = render(template, pictures=pictures, seconds=seconds, version=version("farflung"), **values)
        (new / _PAGE).write_text(page, encoding="utf-8")
        place.publish((_FIGURES, _DATA, _PAGE))
    return {
        "farflung": version("farflung"),
        "page": str(Path(place.name, _PAGE)),
        "seconds": time.perf_counter() - began,
        "preview": values["config"].quick,
        "seeds": list(values["config"].seed_values),
    }


def versions() -> str:
    """The versions that the results of a page depend on."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("farflung", "jax", "numpy", "scipy"))
    return f"{packages}, Python {platform.python_version()}"


def _save_figures(plots: Mapping[str, Plot], folder: Path, executor: Executor | None) -> list[Picture]:
    """Saves each figure in its formats in a new folder."""
    folder.mkdir()
    jobs = zip(*((plot.draw, folder / name, plot.formats) for name, plot in plots.items()), strict=True)
    for _ in executor.map(_draw, *jobs) if executor is not None else map(_draw, *jobs):
        pass
    return [
        Picture(f"figure-{name}", plot.title, plot.caption, (folder / f"{name}.svg").read_bytes())
        for name, plot in plots.items()
    ]


def _draw(draw: Callable[[], Figure], path: Path, formats: tuple[str, ...]) -> None:
    save_figure(draw(), path, formats)
