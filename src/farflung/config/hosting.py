"""How a Gymnasium environment without a transition table is observed and stepped, and what of its states counts."""

from dataclasses import dataclass
from typing import Annotated

from farflung.config.options import default_is


@dataclass(frozen=True)
class Hosting:
    """How an environment of Gymnasium is stepped that carries no transition table (or that --hosted makes do without)."""

    hosted: bool = False
    """Step the environment itself even if it carries a transition table, which is much faster."""
    observe: Annotated[tuple[str, ...] | None, default_is("the observation", "NAME [NAME ...]")] = None
    """Attributes of the environment that are its state, such as MiniGrid's agent_pos and agent_dir."""
    make: Annotated[tuple[str, ...] | None, default_is("none", "KEY=VALUE [KEY=VALUE ...]")] = None
    """Options for the environment itself, as gymnasium.make takes them, or of ant; a value is JSON, else text."""
    copies: int = 64
    """Copies of the environment that are stepped together."""
    workers: int = 0
    """Worker processes with a copy each, for slow simulators; 0 steps all copies in one process."""
    timeout: float = 60.0
    """Seconds after which a worker that gives no answer is restarted."""


@dataclass(frozen=True)
class Features:
    """What the entropy is about where states are vectors, and how real numbers are divided into bins."""

    project: Annotated[tuple[int, ...] | None, default_is("all if there are at most 3, else 0 1", "INT [INT ...]")] = None
    """Which numbers of an observation, from 0 on, the entropy of vectors is about."""
    neighbours: Annotated[int | None, default_is("4, or what a named world has")] = None
    """It comes from the distance to that neighbour of each state; with 0, from counts over the grid."""
    bins: Annotated[tuple[int, ...] | None, default_is("20 where states are vectors", "INT [INT ...]")] = None
    """Cells along each of them, or along all; alone, with finitely many actions, they divide observations for tables."""
    low: Annotated[tuple[float, ...] | None, default_is("the space's, or what is seen at random", "FLOAT [FLOAT ...]")] = None
    """Where the bins begin."""
    high: Annotated[tuple[float, ...] | None, default_is("likewise", "FLOAT [FLOAT ...]")] = None
    """Where the bins end."""
