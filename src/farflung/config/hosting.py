"""How a Gymnasium environment without a transition table is observed and stepped."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from farflung.config.options import default_is


@dataclass(frozen=True)
class Hosting:
    """How an environment of Gymnasium is stepped that carries no transition table (or that --hosted makes do without)."""

    hosted: bool = False
    """Step the environment itself even if it carries a transition table, which is much faster."""
    observe: Annotated[tuple[str, ...] | None, default_is("the observation", "NAME [NAME ...]")] = None
    """Attributes of the environment that are its state, such as MiniGrid's agent_pos and agent_dir."""
    bins: Annotated[tuple[int, ...] | None, tyro.conf.arg(metavar="INT [INT ...]")] = None
    """Bins that each real number of an observation is divided into; one number for all, or one for each."""
    low: Annotated[tuple[float, ...] | None, default_is("the space's", "FLOAT [FLOAT ...]")] = None
    """Where the bins begin."""
    high: Annotated[tuple[float, ...] | None, default_is("the space's", "FLOAT [FLOAT ...]")] = None
    """Where the bins end."""
    copies: int = 64
    """Copies of the environment that are stepped together."""
    workers: int = 0
    """Worker processes with a copy each, for slow simulators; 0 steps all copies in one process."""
    timeout: float = 60.0
    """Seconds after which a worker that gives no answer is restarted."""
