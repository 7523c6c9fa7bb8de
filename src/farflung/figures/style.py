"""Colours, matplotlib settings and wording that all figures share."""

from typing import Any

from farflung.config import Explore

BLUE, ORANGE, GREEN, RED, GREY = "#2563a8", "#d9730d", "#2f8f5b", "#b3261e", "#8a8a8a"
WALL, GRID_LINE, START_MARK = "#5f6368", "#d9d9d9", "#e8590c"
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
LEGEND: dict[str, Any] = {"ncols": 3, "frameon": False, "fontsize": 8, "handlelength": 1.5, "columnspacing": 1.2}
VISITS = "expected share of visits"


def plain(name: str) -> str:
    """The name with its dollar signs escaped, because matplotlib typesets text between dollars as a formula."""
    return name.replace("$", r"\$")


def team_label(config: Explore) -> str:
    """The size of a run's team: "6 agents", or "one policy, 6 trajectories"."""
    if config.single:
        return f"one policy, {config.agents} trajectories"
    return f"{config.agents} agent{'s' * (config.agents > 1)}"


def seeds_label(num_seeds: int) -> str:
    return f"mean of {num_seeds} seeds" if num_seeds > 1 else "1 seed"


def ceiling_label(is_exact: bool) -> str:
    return "best possible" if is_exact else "upper bound"
