"""Learning curves: metrics of a team against its policy updates."""

from typing import Any

import matplotlib as mpl
import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from farflung.bounds.ceilings import Ceiling
from farflung.figures.style import BLUE, LEGEND, RED, STYLE, ceiling_label, seeds_label
from farflung.runs.run import Run
from farflung.runs.statistics import mean_and_interval
from farflung.training.progress import last_percent


def draw_curve(
    axis: Axes,
    run: Run,
    metric: str,
    *,
    color: str,
    over: str = "updates",
    band: str = "",
    alpha: float = 0.2,
    stride: int = 1,
    **look: Any,
) -> None:
    """Draws the mean of a metric over the seeds, with its 95% confidence band.

    Args:
        over: the horizontal axis, `updates` or `steps`.
        band: label of the confidence band; `alpha` is its opacity.
        stride: every how many-th record is drawn.
        look: of the line of the mean, as in `Axes.plot`.
    """
    places, mean, half_width = _mean_curve(run, metric, over, stride)
    axis.plot(places, mean, color=color, **({"lw": 1.3} | look))
    if half_width is not None:
        axis.fill_between(places, mean - half_width, mean + half_width, color=color, alpha=alpha, lw=0, label=band)


def as_line(
    run: Run, metric: str, title: str, *, color: str, over: str = "updates", stride: int = 1, dash: str = "none"
) -> dict[str, Any]:
    """The curve that `draw_curve` draws, as a line of a `Chart`."""
    places, mean, half_width = _mean_curve(run, metric, over, stride)
    band = {} if half_width is None else {"low": mean - half_width, "high": mean + half_width}
    return {"title": title, "xs": places, "ys": mean, "color": color, "dash": dash, **band}


def _mean_curve(run: Run, metric: str, over: str, stride: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Where the metric was recorded, its mean over the seeds and half of the width of its 95% interval."""
    shown = np.flatnonzero(run.is_spaced)[::stride]
    return getattr(run, over)[shown], *mean_and_interval(np.asarray(getattr(run.metrics, metric))[:, shown])


def draw_ceiling(axis: Axes, normalized_bound: float, *, color: str = RED, label: str = "") -> None:
    """Draws a line at the ceiling, which no team exceeds."""
    axis.axhline(normalized_bound, color=color, ls=":", lw=1.3, label=label)


@mpl.rc_context(STYLE)
def live(
    updates: Int[np.ndarray, " record"],
    normalized_entropy: Float[np.ndarray, "seed record"],
    num_updates: int,
    ceiling: Ceiling | None,
    label: str,
) -> Figure:
    """The entropy of an unfinished training: the mean and the range over the seeds, and the ceiling once it is known."""
    is_spaced = (updates < last_percent(num_updates)) | (updates == updates[-1])
    shown, values = updates[is_spaced], normalized_entropy[:, is_spaced]
    figure = Figure(figsize=(7, 3), layout="constrained")
    axis = figure.subplots()
    axis.plot(shown, values.mean(axis=0), color=BLUE, lw=1.3, label=seeds_label(len(values)))
    if len(values) > 1:
        low, high = values.min(axis=0), values.max(axis=0)
        axis.fill_between(shown, low, high, color=BLUE, alpha=0.2, lw=0, label="lowest to highest seed")
    if ceiling is not None:
        draw_ceiling(axis, ceiling.normalized_bound, label=ceiling_label(ceiling.exact))
    axis.set(xlim=(0, num_updates), xlabel="policy updates", ylabel=label)
    axis.grid(alpha=0.25)
    figure.legend(loc="outside lower center", **LEGEND)
    return figure
