"""Colours and matplotlib settings that all figures share."""

from typing import Any

BLUE, ORANGE, GREEN, RED, GREY = "#2563a8", "#d9730d", "#2f8f5b", "#b3261e", "#8a8a8a"
WALL, GRID_LINE, START_MARK = "#5f6368", "#d9d9d9", "#e8590c"
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "farflung",
}
LEGEND: dict[str, Any] = {"ncols": 3, "frameon": False, "fontsize": 8, "handlelength": 1.5, "columnspacing": 1.2}
VISITS = "expected share of visits"


def plain(name: str) -> str:
    """A name as it is drawn: between dollars, matplotlib would take it for a formula."""
    return name.replace("$", r"\$")
