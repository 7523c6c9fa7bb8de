"""The figure of `farflung ceiling`: the best team that was found."""

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from farflung.bounds.ceilings import Ceiling
from farflung.figures.maps import draw_on_map, on_grid
from farflung.figures.planes import is_wide
from farflung.figures.style import BLUE, STYLE
from farflung.worlds.world import World

_MOST_WALKS_SHOWN = 12


@mpl.rc_context(STYLE)
def best_team(world: World, ceiling: Ceiling) -> Figure:
    """The expected visits of the best team to each state and, in deterministic worlds, the walks of its agents."""
    visits = np.nan_to_num(ceiling.visits)
    has_map = world.positions is not None
    size = (8, 3.4) if not has_map else (12, 4.2) if is_wide(world, 4.0) else (8, 4.2) if is_wide(world) else (6.4, 6)
    figure = Figure(figsize=size, layout="constrained")
    axis = figure.subplots()
    if has_map:
        image = draw_on_map(axis, world, visits, Normalize(0, max(1.0, float(np.nanmax(on_grid(world, visits))))))
        if ceiling.trajectories is not None:
            _draw_walks(axis, world, ceiling.trajectories)
        figure.colorbar(image, ax=axis, location="bottom", shrink=0.6, aspect=30, label="visits, all agents together")
    else:
        axis.bar(np.arange(1, world.num_states + 1), np.sort(visits)[::-1], width=1, color=BLUE)
        axis.set(xlabel="states, most visited first", ylabel="expected visits")
    kind = "reached by the walks shown" if ceiling.exact else f"an upper bound ({ceiling.method})"
    title = f"at most {ceiling.bound:.4f} nats, {ceiling.normalized_bound:.4f} of log(states): {kind}"
    axis.set_title(title, fontsize=9)
    return figure


def _draw_walks(axis: Axes, world: World, walks: np.ndarray) -> None:
    positions = np.asarray(world.positions)
    shown = walks[:_MOST_WALKS_SHOWN]
    shifts = np.linspace(-0.28, 0.28, len(shown)) if len(shown) > 1 else np.zeros(1)
    colors = mpl.colormaps["tab20" if len(shown) > 10 else "tab10"]
    for agent, (walk, shift) in enumerate(zip(shown, shifts, strict=True)):
        rows, columns = positions[walk].T + shift
        axis.plot(columns, rows, color=colors(agent), lw=1.8, alpha=0.9, label=f"agent {agent + 1}")
        axis.plot(columns[-1], rows[-1], "o", color=colors(agent), ms=5)
    rest = f" (the first {len(shown)} of {len(walks)})" if len(shown) < len(walks) else ""
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize=8, title=f"walks, • end{rest}")
