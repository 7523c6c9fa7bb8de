"""Notebook output: the curve of a training run, and worlds, teams and runs as pictures and tables."""

import io
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from farflung.bounds.ceilings import Ceiling
from farflung.config import Explore
from farflung.figures.curves import live
from farflung.figures.explored import explored
from farflung.figures.maps import draw_world
from farflung.figures.pages import Table, render
from farflung.figures.player import described, run_page
from farflung.figures.style import STYLE
from farflung.loggers.logger import Finals, Record
from farflung.policies import TabularSoftmax
from farflung.runs.run import Run
from farflung.runs.statistics import final_table
from farflung.worlds.projection import Discrete
from farflung.worlds.world import World

_DPI = 144
_PIXELS_PER_INCH = 96
_LEAST_SECONDS = 0.4
_LARGEST_SHARE = 0.25
_DECIDED = 0.9
_MOST_ROWS = 12


def is_notebook() -> bool:
    """Whether this runs in the kernel of a notebook; IPython is not imported to find out."""
    find_shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    return getattr(find_shell(), "kernel", None) is not None


class LiveCurve:
    """A logger that draws the entropy in the notebook, at most a few times a second.

    Args:
        ceiling: the entropy that no team exceeds, drawn as soon as it is known.
    """

    def __init__(self, ceiling: Future[Ceiling]) -> None:
        self._ceiling = ceiling
        self._updates: list[int] = []
        self._entropies: list[float] = []
        self._next_time = 0.0

    def start(self, config: Explore) -> None:
        from IPython.display import display

        self._config = config
        self._handle = display({"text/plain": f"{config.name}: compiling"}, raw=True, display_id=True)

    def log(self, records: Sequence[Record]) -> None:
        self._updates += [record.update for record in records]
        self._entropies += [record.metrics["normalized_entropy"] for record in records]
        began = time.perf_counter()
        if began >= self._next_time:
            self._draw()
            self._next_time = began + max(_LEAST_SECONDS, (time.perf_counter() - began) / _LARGEST_SHARE)

    def close(self, finals: Finals) -> None:
        if self._updates:
            self._draw()

    def _draw(self) -> None:
        from IPython.display import Image

        num_seeds = len(self._config.seeds)
        ceiling = self._ceiling.result() if self._ceiling.done() else None
        entropies = np.reshape(self._entropies, (-1, num_seeds)).T
        label = "cell entropy / log(cells)" if self._config.is_neural else "state entropy / log(states)"
        figure = live(np.array(self._updates[::num_seeds]), entropies, self._config.updates, ceiling, label)
        image = _image(figure)
        self._handle.update(Image(image["png"], format="png", width=image["width"]))


def world_html(world: World) -> str:
    """A world's sizes and, if it has walls or a transition table on a map, its map."""
    has_map = world.walls or (world.table is not None and world.positions is not None)
    return _html(facts=_facts(world), image=_image(_map(world), "the map") if has_map else None)


def _facts(world: World) -> dict[str, str]:
    projection = world.projection
    facts = {}
    if projection is None:
        facts["states"] = f"{world.num_states:,}{'' if world.knows_all_states else ' visited so far'}"
        facts["actions"] = f"{world.num_actions:,}"
    else:
        grid = f"{projection.num_cells:,} on a grid of {' x '.join(map(str, projection.bins))}"
        kind = "choice" if isinstance(world.actions, Discrete) else "number"
        facts["observations"] = f"vectors of {_count(world.observation_size, 'number')}"
        facts["features"] = ", ".join(projection.names)
        facts["cells"] = grid if world.is_hosted else f"{grid}, of which {world.num_states:,} can be reached"
        facts["entropy from"] = (
            f"k-NN distances, k = {projection.neighbours}" if projection.neighbours else "counts in the cells"
        )
        facts["actions"] = _count(world.num_actions, kind)
    facts["horizon"] = f"at most {world.horizon:,}" if world.may_end_early else f"{world.horizon:,}"
    if (table := world.table) is not None:
        stochastic = f"stochastic, up to {table.num_successors} successors"
        facts["start states"] = f"{len(table.start_states):,}"
        facts["dynamics"] = "deterministic" if table.num_successors == 1 else stochastic
    if world.is_hosted:
        workers, copies = world.stepping["workers"], world.stepping["copies"]
        facts["environment"] = world.name
        facts["stepped"] = f"in {workers} worker processes" if workers else f"in this process, up to {copies} copies"
    return facts


def team_html(team: TabularSoftmax) -> str:
    """How deterministic each policy of a team is, or with a leading axis of seeds each seed's team."""
    likeliest = np.asarray(team.probabilities.max(axis=-1))
    axes = likeliest.shape[: likeliest.ndim - 1 - team.is_time_dependent] or (1,)
    by_row = likeliest.reshape(axes[0], -1)
    names = ("seed", "agent")[-len(axes) :]
    members = " with ".join(_count(count, name) for count, name in zip(axes, names, strict=True))
    tables = f"a table for each of {likeliest.shape[-2]} times" if team.is_time_dependent else "one table"
    caption = f"softmax policies of {members}: {tables}, {likeliest.shape[-1]:,} states, {team.num_actions} actions"
    if len(by_row) > _MOST_ROWS:
        caption += f" (the first {_MOST_ROWS} {names[0]}s)"
    head = ("all states, visited or not", "mean probability of the most likely action", f"above {_DECIDED:.0%}")
    rows = [
        (f"{names[0]} no. {number + 1}", [f"{row.mean():.3f}", f"{(row > _DECIDED).mean():.0%} of the states"])
        for number, row in enumerate(by_row[:_MOST_ROWS])
    ]
    return _html(table=Table(head, rows, caption))


def run_html(run: Run) -> str:
    """The figure of a run, its final metrics, and the player of its page."""
    num_seeds = len(run.config.seeds)
    mean = f"mean of {num_seeds} seeds" if num_seeds > 1 else "1 seed"
    rows = [(name, values) for name, *values in final_table(run)]
    caption = f"{run.config.name}: {run.summary['updates']:,} updates in {run.summary['seconds']:.1f} s"
    table = Table(("metric, last 1% of updates", mean, "95% CI", "random actions"), rows, caption)
    image = _image(explored(run), f"what {run.config.name} has learnt")
    player = None if run.playback is None else run_page([described(run, run.config.name)], run.config.name)
    return _html(image=image, table=table, player=player)


def _map(world: World) -> Figure:
    rows, columns = (3.2, 3.6) if world.projection is not None else np.asarray(world.positions).max(axis=0) + 1
    inches = 1 if world.projection is not None else 4 / max(rows, columns)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(columns * inches, rows * inches), layout="constrained")
        draw_world(figure.subplots(), world)
    return figure


def _html(**parts: Any) -> str:
    return render("notebook.html.j2", **dict.fromkeys(("facts", "image", "table", "player")) | parts)


def _image(figure: Figure, title: str = "") -> dict[str, Any]:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=_DPI)
    return {"title": title, "width": round(figure.get_figwidth() * _PIXELS_PER_INCH), "png": file.getvalue()}


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
