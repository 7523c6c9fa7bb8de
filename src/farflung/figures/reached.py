"""Which goals offline RL reaches with a dataset."""

import matplotlib as mpl
import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure, SubFigure

from farflung.experiments.offline import Reached
from farflung.figures.maps import draw_on_map, is_wide
from farflung.figures.style import BLUE, GREY, ORANGE, STYLE
from farflung.statistics import mean_and_interval

_NAMES = ("the dataset", "random actions, as many episodes")


def reached(found: Reached, name: str) -> Figure:
    """The success rate of each goal: on the map where there is one, and sorted."""
    rates = (found.success, found.random_success)
    with mpl.rc_context(STYLE):
        if found.world.positions is None:
            figure = Figure(figsize=(7, 4), layout="constrained")
            _sorted(figure, found)
        else:
            figure = Figure(figsize=(11, 4.3), layout="constrained")
            maps, curves = figure.subfigures(1, 2, squeeze=False, width_ratios=(1.9, 1)).flat
            axes = maps.subplots(*((2, 1) if is_wide(found.world) else (1, 2)))
            for axis, title, success in zip(axes, _NAMES, rates, strict=True):
                values = np.full(found.world.num_states, np.nan)
                values[found.goals] = success.mean(axis=0)
                image = draw_on_map(axis, found.world, values, Normalize(0, 1))
                axis.set_title(f"{title}: mean {success.mean():.2f}", fontsize=9)
            maps.colorbar(image, ax=axes, location="bottom", shrink=0.5, aspect=40, label="success rate")
            _sorted(curves, found)
        transitions = f"{found.num_transitions:,} transitions"
        figure.suptitle(f"goals reached by Q-learning from {name} ({transitions})", fontweight="bold")
    return figure


def _sorted(figure: Figure | SubFigure, found: Reached) -> None:
    axis = figure.subplots()
    for title, success, color in zip(_NAMES, (found.success, found.random_success), (BLUE, ORANGE), strict=True):
        mean, half_width = mean_and_interval(np.sort(success, axis=1)[:, ::-1])
        places = np.arange(1, len(mean) + 1)
        axis.plot(places, mean, color=color, label=title)
        if half_width is not None:
            low, high = np.clip(mean - half_width, 0, 1), np.clip(mean + half_width, 0, 1)
            axis.fill_between(places, low, high, color=color, alpha=0.2, lw=0)
    axis.axhline(found.untrained, color=GREY, ls="--", label="without data")
    axis.set(xlabel="goals, best first", ylabel="success rate", ylim=(-0.02, 1.02))
    axis.grid(alpha=0.25)
    figure.legend(loc="outside lower center", frameon=False, fontsize=8)
