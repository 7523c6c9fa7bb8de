"""Results as matplotlib figures, which the caller shows or saves."""

from farflung.figures.explored import explored
from farflung.figures.maps import draw_on_map

__all__ = ["draw_on_map", "explored"]
