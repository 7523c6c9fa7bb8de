"""What a user can ask for, checked before any work is done and without importing JAX."""

import difflib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PAPER_WORLDS = ("room-det", "room-stoc", "maze-det", "maze-stoc")
PAPER_SEEDS = (0, 1, 2, 42, 133)
CREDITS = ("total",)
OPTIMIZERS = ("sgd", "adam")
POLICIES = ("stationary", "time-dependent")


@dataclass(frozen=True)
class Explore:
    """Train a team of agents to visit, together, as many different states as evenly as possible.

    WORLD is one of room-det, room-stoc, maze-det, maze-stoc, the path of a text map (# wall, . free, S start, G goal), or the id
    of a Gymnasium environment that carries a transition table (FrozenLake-v1, CliffWalking-v1, Taxi-v4).
    """

    world: str
    agents: int = 6
    """Agents in the team, each in its own copy of the world (m in the paper)."""
    trajectories: int = 1
    """Trajectories that each agent plays per batch element (K)."""
    horizon: int | None = None
    """Actions in an episode (T). Default: the paper's for its worlds, else the environment's own limit or as many as the
    farthest state needs."""
    slip: float | None = None
    """Probability that another action is taken than the chosen one, on maps. Default: 0.2 for the -stoc worlds, else 0."""
    batch_size: int = 40
    """Independent repetitions of the team's episodes that one update averages over (B)."""
    updates: int = 10_000
    """Policy updates (N)."""
    learning_rate: float = 0.15
    """Step size of the optimiser."""
    decay: float = 1.0
    """Factor on the learning rate after each update; the paper's text has 0.999, its code 1."""
    optimizer: str = "sgd"
    """sgd (the paper's) or adam."""
    credit: str = "total"
    """How the team's entropy becomes each action's weight: total (the paper's)."""
    policy: str = "stationary"
    """stationary, or time-dependent: another table for each time step."""
    single: bool = False
    """Train the paper's baseline instead: one policy that plays agents x trajectories trajectories."""
    seeds: tuple[int, ...] = PAPER_SEEDS
    """One independent training run each; they run side by side on all cores or devices."""
    log_every: int | None = None
    """Updates between records of the metrics. Default: so many that recording costs under 10% of the time."""

    def __post_init__(self) -> None:
        for name in ("agents", "trajectories", "batch_size", "updates", "horizon", "log_every"):
            value = getattr(self, name)
            if value is not None or name not in ("horizon", "log_every"):
                _check_whole_number(name, value)
        if self.slip is not None and not 0 <= self.slip <= 1:
            raise ValueError(f"slip is a probability between 0 and 1, not {self.slip}")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise ValueError(f"learning_rate must be a positive number, not {self.learning_rate}")
        if not 0 < self.decay <= 1:
            raise ValueError(f"decay must be above 0 and at most 1, not {self.decay}")
        for name, known in (("optimizer", OPTIMIZERS), ("credit", CREDITS), ("policy", POLICIES)):
            if getattr(self, name) not in known:
                raise ValueError(unknown_name(name, getattr(self, name), known, known))
        object.__setattr__(self, "seeds", tuple(self.seeds))
        if not self.seeds:
            raise ValueError("at least one seed is needed")
        for seed in self.seeds:
            if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
                raise ValueError(f"a seed is a whole number from 0 to {2**32 - 1}, not {seed!r}")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("the seeds must differ from one another: equal seeds give equal runs")


def _check_whole_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, not {value}")


def unknown_name(kind: str, name: object, candidates: Iterable[str], known: Sequence[str]) -> str:
    """The message about a name that doesn't exist, with the nearest that does."""
    nearest = difflib.get_close_matches(str(name), list(candidates), n=1)
    suggestion = f" (did you mean {nearest[0]!r}?)" if nearest else ""
    return f"unknown {kind} {name!r}{suggestion}: choose {', '.join(known)}"
