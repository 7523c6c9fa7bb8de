"""Self-contained HTML pages: the templates in `figures/templates` show values, figures and tables."""

import base64
import hashlib
import json
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from farflung.runs.destinations import Destination, claimed
from farflung.runs.files import save_figure, to_csv, write_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TEMPLATES = Environment(
    loader=PackageLoader("farflung.figures"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_DIGITS = 4
_FIGURES, _DATA, _PAGE = "figures", "data", "index.html"
VERDICT_CLASSES = {"holds": "holds", "undecided": "undecided", "does not hold": "fails"}
"""The CSS class of a table cell with a verdict."""


class Chart(NamedTuple):
    """A panel of curves that can be read with the pointer or the keyboard, as `templates/curves.js` draws it."""

    title: str
    lines: Sequence[Mapping[str, Any]]
    """Each with a title, xs and ys and, if there are any, low, high, color and dash."""
    levels: Sequence[Mapping[str, Any]] = ()
    """Horizontal lines: title, value, dash and color."""
    across: str = "policy updates"
    unit: str = "updates"
    before: str = "after"
    """The word before a place on the horizontal axis."""
    scale: str = "zero"
    """Where the horizontal axis begins: at `zero` or at the first place (`cut`, or `log` if it is logarithmic)."""


class Plot(NamedTuple):
    """A figure to be drawn for a page."""

    title: str
    caption: str
    draw: "Callable[[], Figure]"
    formats: tuple[str, ...] = ("png", "svg")
    charts: Sequence[Chart] = ()
    """The same curves for readers with a pointer."""


class Picture(NamedTuple):
    """A drawn figure: a section of a page."""

    id: str
    title: str
    caption: str
    svg: bytes
    charts: Sequence[Chart] = ()


class Value(NamedTuple):
    """A cell of a table that is more than its text."""

    text: str
    verdict: str
    """Its CSS class."""
    notes: tuple[str, ...] = ()
    """Smaller lines below the text, which is then bold."""
    link: str = ""
    """Where the text leads, such as the page of a run."""
    more_links: tuple[tuple[str, str], ...] = ()
    """Links below the text and the notes: what each is called, and where it leads."""


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


def policy(script: str, style: str, *sources: str) -> str:
    """The content security policy of a page: its own script and style, and nothing that its data may contain."""
    allowed = (f"script-src '{_digest(script)}'", f"style-src '{_digest(style)}'", *(sources or ("img-src data:",)))
    return "; ".join(("default-src 'none'", *allowed, "base-uri 'none'", "form-action 'none'"))


def _digest(text: str) -> str:
    return f"sha256-{_base64(hashlib.sha256(text.encode()).digest())}"


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def as_data(value: Any) -> Markup:
    """JSON that can stand in a script element: without "<"."""
    return Markup(json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"))


def _charts_json(pictures: Sequence[Picture]) -> Markup:
    return as_data(
        {picture.id: [_rounded(chart._asdict()) for chart in picture.charts] for picture in pictures if picture.charts}
    )


def _rounded(value: Any) -> Any:
    """The value with all of its numbers rounded, arrays as lists."""
    if isinstance(value, Mapping):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, np.ndarray):
        return _rounded(value.tolist())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_rounded(each) for each in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def render(template: str, **values: Any) -> str:
    """The HTML of a template, in which every value is escaped."""
    return _TEMPLATES.get_template(template).render(values)


def source(template: str) -> Markup:
    """The text of a template, as it is."""
    text, _, _ = PackageLoader("farflung.figures").get_source(_TEMPLATES, template)
    return Markup(text)


_TEMPLATES.filters |= {"base64": _base64, "grouped": "{:,}".format, "charts_json": _charts_json}
_TEMPLATES.globals |= {"policy": policy, "source": source}


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
    jobs = [(plot.draw, folder / name, plot.formats) for name, plot in plots.items()]
    drawing = [None if executor is None else executor.submit(_draw, *job) for job in jobs]
    for job, elsewhere in reversed(list(zip(jobs, drawing, strict=True))):
        if elsewhere is None or elsewhere.cancel():  # this process draws what no other has begun
            _draw(*job)
    for elsewhere in drawing:
        if elsewhere is not None and not elsewhere.cancelled():
            elsewhere.result()
    return [
        Picture(f"figure-{name}", plot.title, plot.caption, (folder / f"{name}.svg").read_bytes(), plot.charts)
        for name, plot in plots.items()
    ]


def _draw(draw: "Callable[[], Figure]", path: Path, formats: tuple[str, ...]) -> None:
    save_figure(draw(), path, formats)
