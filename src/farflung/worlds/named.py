"""Worlds by name: the paper's, a map in a file, one whose states are vectors, a Gymnasium id."""

from pathlib import Path

from farflung.config import CONTINUOUS_WORLDS, PAPER_WORLDS, check_world, is_map_file
from farflung.config.reading import MOST_BYTES_OF_MAP, read_text, reason
from farflung.worlds.gridworld import MAZE, ROOM, gridworld
from farflung.worlds.gymnasium_table import NoTableError, from_gymnasium
from farflung.worlds.hosted.tables import hosted
from farflung.worlds.named_vectors import make_vector_world
from farflung.worlds.tabular import TabularMDP
from farflung.worlds.world import World

PAPER_MAPS = {"room": (ROOM, 8), "maze": (MAZE, 10)}
"""Each map with the number of actions in an episode."""
PAPER_SLIP = {"det": 0.0, "stoc": 0.2}


def make_world(name: str, *, horizon: int | None = None, slip: float | None = None) -> World:
    """The world of a name, a map file or a Gymnasium id."""
    if name in CONTINUOUS_WORLDS:
        if slip is not None:
            raise ValueError(f"slip is for maps only: {name} has its own dynamics")
        return make_vector_world(name, horizon=horizon)
    try:
        return make_tabular_world(name, horizon=horizon, slip=slip)
    except NoTableError:
        return hosted(name, horizon=horizon)


def make_tabular_world(name: str, *, horizon: int | None = None, slip: float | None = None) -> TabularMDP:
    """The world called `room-det`, `room-stoc`, `maze-det` or `maze-stoc`, or that of a map file or of a Gymnasium id.

    >>> make_tabular_world("maze-stoc").num_states
    43
    """
    if name in PAPER_WORLDS:
        family, variant = name.split("-")
        text, paper_horizon = PAPER_MAPS[family]
        chosen_slip = PAPER_SLIP[variant] if slip is None else slip
        return gridworld(text, slip=chosen_slip, horizon=paper_horizon if horizon is None else horizon)
    if name in CONTINUOUS_WORLDS:
        raise ValueError(f"{name} has a continuum of states, and this needs finitely many: choose {', '.join(PAPER_WORLDS)}")
    check_world(name)
    if not is_map_file(name):
        if slip is not None:
            raise ValueError(f"slip is for maps only: {name} has its own dynamics")
        return from_gymnasium(name, horizon=horizon)
    text = read_map(name)
    try:
        return gridworld(text, slip=slip or 0.0, horizon=horizon)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def read_map(path: str) -> str:
    """The text of a map."""
    try:
        return read_text(Path(path), MOST_BYTES_OF_MAP)
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot read the map {path}: {reason(error)}") from None
