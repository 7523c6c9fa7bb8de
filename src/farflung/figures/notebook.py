"""What a notebook shows: the curve while a team learns, and worlds, teams and runs as pictures and tables.

Everything heavy is imported when there is something to show: `import farflung` brings this module with it under IPython.
"""

import base64
import io
import sys
import time
from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import Future

    from matplotlib.figure import Figure

    from farflung.bounds.ceilings import Ceiling
    from farflung.config import Explore
    from farflung.loggers.logger import Finals, Record
    from farflung.policies import TabularSoftmax
    from farflung.runs.run import Run
    from farflung.worlds.hosted.tables import HostedTable
    from farflung.worlds.hosted.vectors import HostedVectors
    from farflung.worlds.hosted.world import HostedWorld
    from farflung.worlds.tabular import TabularMDP
    from farflung.worlds.vectors import VectorWorld

_DPI = 144
_PIXELS_PER_INCH = 96
_LEAST_SECONDS = 0.4
_LARGEST_SHARE = 0.25
_DECIDED = 0.9
_MOST_ROWS = 12
_STYLE = """<style>
.farflung { display: flex; flex-wrap: wrap; gap: 1.5rem; align-items: flex-start; }
.farflung table { border-collapse: collapse; }
.farflung th, .farflung td { padding: .2rem .6rem; border-bottom: 1px solid #8886; text-align: right; }
.farflung tbody th { text-align: left; font-weight: normal; }
.farflung caption { text-align: left; padding: .2rem .6rem; font-weight: bold; }
.farflung img { background: #fff; border-radius: .4rem; max-width: 100%; height: auto; }
</style>"""


def is_notebook() -> bool:
    """Whether this runs in the kernel of a notebook; IPython is not imported to find out."""
    return getattr(_shell(), "kernel", None) is not None


def show_richly() -> None:
    """Has IPython show worlds, teams and runs as HTML, if this runs in it."""
    if (shell := _shell()) is not None:
        formatter = shell.display_formatter.formatters["text/html"]
        formatter.for_type_by_name("farflung.worlds.tabular", "TabularMDP", _if_possible(world_html))
        formatter.for_type_by_name("farflung.worlds.vectors", "VectorWorld", _if_possible(continuous_html))
        formatter.for_type_by_name("farflung.worlds.hosted.tables", "HostedTable", _if_possible(hosted_html))
        formatter.for_type_by_name("farflung.worlds.hosted.vectors", "HostedVectors", _if_possible(vectors_html))
        formatter.for_type_by_name("farflung.policies.tabular", "TabularSoftmax", _if_possible(team_html))
        formatter.for_type_by_name("farflung.runs.run", "Run", _if_possible(run_html))


class LiveCurve:
    """A logger that draws the entropy in the notebook, a few times a second at most.

    Args:
        ceiling: what no team exceeds, when it is known.
    """

    def __init__(self, ceiling: "Future[Ceiling]") -> None:
        self._ceiling = ceiling
        self._updates: list[int] = []
        self._entropies: list[float] = []
        self._next_time = 0.0

    def start(self, config: "Explore") -> None:
        from IPython.display import display

        self._config = config
        self._handle = display({"text/plain": f"{config.name}: compiling"}, raw=True, display_id=True)

    def log(self, records: "Sequence[Record]") -> None:
        self._updates += [record.update for record in records]
        self._entropies += [record.metrics["normalized_entropy"] for record in records]
        began = time.perf_counter()
        if began >= self._next_time:
            self._draw()
            took = time.perf_counter() - began
            self._next_time = began + max(_LEAST_SECONDS, took / _LARGEST_SHARE)

    def close(self, finals: "Finals") -> None:
        if self._updates:
            self._draw()

    def _draw(self) -> None:
        import numpy as np
        from IPython.display import Image

        from farflung.figures.live import live

        num_seeds = len(self._config.seeds)
        ceiling = self._ceiling.result() if self._ceiling.done() else None
        entropies = np.reshape(self._entropies, (-1, num_seeds)).T
        label = "cell entropy / log(cells)" if self._config.is_neural else "state entropy / log(states)"
        figure = live(np.array(self._updates[::num_seeds]), entropies, self._config.updates, ceiling, label)
        self._handle.update(Image(_png(figure), format="png", width=_width(figure)))


def world_html(world: "TabularMDP") -> str:
    """A world's size and, if it is a map, the map."""
    from farflung.figures.pages import definition_table

    facts = {
        "states": f"{world.num_states:,}",
        "actions": f"{world.num_actions:,}",
        "horizon": f"{world.horizon:,}",
        "start states": f"{len(world.start_states):,}",
        "dynamics": "deterministic" if world.num_successors == 1 else f"stochastic, up to {world.num_successors} successors",
    }
    return _block(definition_table(facts) + ("" if world.positions is None else _image(_map(world), "the map")))


def continuous_html(world: "VectorWorld") -> str:
    """What an agent sees and does in a world whose states are vectors, and the map if it has walls."""
    from farflung.figures.pages import definition_table
    from farflung.worlds.projection import Discrete

    projection = world.projection
    grid = " x ".join(map(str, projection.bins))
    kind = "choice" if isinstance(world.actions, Discrete) else "number"
    facts = {
        "states": f"vectors of {world.observation_size:,} numbers",
        "to be covered": ", ".join(projection.names),
        "cells": f"{world.num_states:,} within reach, of a grid of {grid}",
        "actions": f"{world.num_actions:,} {kind}{'s' * (world.num_actions > 1)}",
        "horizon": f"{world.horizon:,}",
        "entropy from": f"the distance to neighbour {projection.neighbours}"
        if projection.neighbours
        else "counts in the cells",
    }
    return _block(definition_table(facts) + (_image(_plane(world), "the map") if world.walls else ""))


def hosted_html(world: "HostedTable") -> str:
    """What is known of a world that is stepped on the host."""
    from farflung.figures.pages import definition_table

    states = f"{world.num_states:,}" if world.index.is_complete else f"{world.num_states:,} met so far"
    return _block(definition_table({"states": states, "actions": f"{world.num_actions:,}"} | _stepping(world)))


def vectors_html(world: "HostedVectors") -> str:
    """What is known of a world of vectors that is stepped on the host."""
    from farflung.figures.pages import definition_table

    facts = {
        "observations": f"{world.observation_size:,} numbers",
        "projected on": ", ".join(world.projection.names),
        "cells": f"{world.num_states:,}",
        "actions": f"{world.num_actions:,} {'numbers' if hasattr(world.actions, 'low') else 'choices'}",
    }
    return _block(definition_table(facts | _stepping(world)))


def _stepping(world: "HostedWorld") -> dict[str, str]:
    return {
        "environment": world.name,
        "horizon": f"{world.horizon:,} at most",
        "stepped": f"in {world.workers} worker processes" if world.workers else f"in this process, up to {world.copies} copies",
    }


def team_html(team: "TabularSoftmax") -> str:
    """How decided each policy of a team is, or with a leading axis of seeds each seed's team."""
    import numpy as np

    from farflung.figures.pages import Value, value_table

    likeliest = np.asarray(team.probabilities.max(axis=-1))
    axes = likeliest.shape[: likeliest.ndim - 1 - team.is_time_dependent] or (1,)
    by_row = likeliest.reshape(axes[0], -1)
    names = ("seed", "agent")[-len(axes) :]
    who = " with ".join(f"{count} {name}{'s' if count > 1 else ''}" for count, name in zip(axes, names, strict=True))
    tables = f"a table for each of {likeliest.shape[-2]} times" if team.is_time_dependent else "one table"
    caption = f"softmax policies of {who}: {tables}, {likeliest.shape[-1]:,} states, {team.num_actions} actions"
    if len(by_row) > _MOST_ROWS:
        caption += f" (the first {_MOST_ROWS} {names[0]}s)"
    head = ("all states, visited or not", "mean probability of the likeliest action", f"above {_DECIDED:.0%}")
    rows = [
        (f"{names[0]} no. {number + 1}", [Value(f"{row.mean():.3f}"), Value(f"{(row > _DECIDED).mean():.0%} of the states")])
        for number, row in enumerate(by_row[:_MOST_ROWS])
    ]
    return _block(value_table(head, rows, caption))


def run_html(run: "Run") -> str:
    """The figure of a run, and what it ended with."""
    from farflung.figures import explored
    from farflung.figures.pages import Value, value_table
    from farflung.runs.statistics import final_table

    num_seeds = len(run.config.seeds)
    head = (
        "metric, last 1% of updates",
        f"mean of {num_seeds} seeds" if num_seeds > 1 else "1 seed",
        "95% CI",
        "random actions",
    )
    rows = [(name, [Value(text) for text in values]) for name, *values in final_table(run)]
    caption = f"{run.config.name}: {run.summary['updates']:,} updates in {run.summary['seconds']:.1f} s"
    return _block(_image(explored(run), f"what {run.config.name} has learnt") + value_table(head, rows, caption))


def _map(world: "TabularMDP") -> "Figure":
    import matplotlib as mpl
    import numpy as np
    from matplotlib.figure import Figure

    from farflung.figures import draw_on_map
    from farflung.figures.style import STYLE

    rows, columns = np.asarray(world.positions).max(axis=0) + 1
    inches = 4 / max(rows, columns)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(columns * inches, rows * inches), layout="constrained")
        draw_on_map(figure.subplots(), world, np.full(world.num_states, np.nan), mpl.colors.Normalize(0, 1))
    return figure


def _plane(world: "VectorWorld") -> "Figure":
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from farflung.figures.paths import draw_world
    from farflung.figures.style import STYLE

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.6, 3.2), layout="constrained")
        draw_world(figure.subplots(), world)
    return figure


def _block(content: str) -> str:
    return f'{_STYLE}<div class="farflung">{content}</div>'


def _image(figure: "Figure", title: str) -> str:
    source = base64.b64encode(_png(figure)).decode("ascii")
    return f'<img alt="{escape(title)}" width="{_width(figure)}" src="data:image/png;base64,{source}">'


def _png(figure: "Figure") -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=_DPI)
    return file.getvalue()


def _width(figure: "Figure") -> int:
    return round(figure.get_figwidth() * _PIXELS_PER_INCH)


def _shell() -> Any:
    find = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return None if find is None else find()


def _if_possible(html: Callable[[Any], str]) -> Callable[[Any], str | None]:
    """None, upon which IPython shows the plain text, for what cannot be drawn, such as a pytree of shapes."""

    def attempt(thing: Any) -> str | None:
        try:
            return html(thing)
        except Exception:
            return None

    return attempt
