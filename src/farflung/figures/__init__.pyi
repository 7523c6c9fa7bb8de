from .explored import explored as explored
from .maps import draw_on_map as draw_on_map
