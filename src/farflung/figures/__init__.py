"""Results as matplotlib figures: pure functions, nothing is shown or saved here."""

from farflung.figures.explored import explored
from farflung.figures.maps import draw_on_map

__all__ = ["draw_on_map", "explored"]
