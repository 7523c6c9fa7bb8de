"""A curve that is still being learnt."""

import matplotlib as mpl
import numpy as np
from jaxtyping import Float, Int
from matplotlib.figure import Figure

from farflung.bounds.ceilings import Ceiling
from farflung.figures.curves import ceiling_label, draw_ceiling
from farflung.figures.style import BLUE, LEGEND, STYLE
from farflung.training.progress import last_percent


def live(
    updates: Int[np.ndarray, " record"],
    normalized_entropy: Float[np.ndarray, "seed record"],
    num_updates: int,
    ceiling: Ceiling | None,
    label: str,
) -> Figure:
    """The entropy so far: its mean over the seeds, from the lowest seed to the highest, and the ceiling if it is known."""
    is_spaced = (updates < last_percent(num_updates)) | (updates == updates[-1])
    shown, values = updates[is_spaced], normalized_entropy[:, is_spaced]
    num_seeds = len(values)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7, 3), layout="constrained")
        axis = figure.subplots()
        whose = f"mean of {num_seeds} seeds" if num_seeds > 1 else "1 seed"
        axis.plot(shown, values.mean(axis=0), color=BLUE, lw=1.3, label=whose)
        if num_seeds > 1:
            low, high = values.min(axis=0), values.max(axis=0)
            axis.fill_between(shown, low, high, color=BLUE, alpha=0.2, lw=0, label="lowest to highest seed")
        if ceiling is not None:
            draw_ceiling(axis, ceiling.normalized_bound, label=ceiling_label(ceiling.exact))
        axis.set(xlim=(0, num_updates), xlabel="policy updates", ylabel=label)
        axis.grid(alpha=0.25)
        figure.legend(loc="outside lower center", **LEGEND)
    return figure
