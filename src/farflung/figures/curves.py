"""How a metric develops while a team learns."""

from matplotlib.axes import Axes

from farflung.figures.style import RED
from farflung.runs.run import Run
from farflung.runs.statistics import mean_and_interval


def draw_curve(axis: Axes, run: Run, metric: str, *, color: str, style: str = "-", label: str = "", band: str = "") -> None:
    """The mean over the seeds with its 95% confidence band, of which the labels go into a legend."""
    updates = run.updates[run.is_spaced]
    mean, half_width = mean_and_interval(getattr(run.metrics, metric)[:, run.is_spaced])
    axis.plot(updates, mean, color=color, ls=style, lw=1.3, label=label)
    if half_width is not None:
        axis.fill_between(updates, mean - half_width, mean + half_width, color=color, alpha=0.2, lw=0, label=band)


def draw_ceiling(axis: Axes, normalized_bound: float, *, color: str = RED, label: str = "") -> None:
    """A line at what no team exceeds."""
    axis.axhline(normalized_bound, color=color, ls=":", lw=1.3, label=label)


def ceiling_label(is_exact: bool) -> str:
    return "best possible" if is_exact else "upper bound"
