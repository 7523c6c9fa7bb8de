"""What a user can ask for, checked before any work is done and without importing JAX."""

import difflib
import itertools
import math
import numbers
import operator
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any

import tyro

PAPER_WORLDS = ("room-det", "room-stoc", "maze-det", "maze-stoc")
PAPER_SEEDS = (0, 1, 2, 42, 133)
CREDITS = ("total",)
CEILING_METHODS = ("auto", "milp", "lp", "frank-wolfe")
OPTIMIZERS = ("sgd", "adam")
SCHEDULES = {"code": (0.15, 1.0), "text": (0.1, 0.999)}
"""The learning rate and its decay per update in the paper's released code, and in its text."""
POLICIES = ("stationary", "time-dependent")


def _default_is(text: str, metavar: str = "INT") -> object:
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {text})")


def _one_of(names: Sequence[str], *, is_repeated: bool = False) -> object:
    return tyro.conf.arg(metavar="{" + ",".join(names) + "}" + (" ..." if is_repeated else ""))


_World = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="WORLD")]
_Horizon = Annotated[int | None, _default_is("the paper's, else the world's own limit or what the farthest state needs")]
_Slip = Annotated[float | None, _default_is("0.2 for the -stoc worlds, else 0", "FLOAT")]


@dataclass(frozen=True)
class Explore:
    """Train a team of agents to visit, together, as many different states as evenly as possible.

    WORLD is room-det, room-stoc, maze-det or maze-stoc, the path of a text map (# wall, . free, S start, G goal), or the id of
    a Gymnasium environment that carries a transition table (FrozenLake-v1, CliffWalking-v1, Taxi-v4).
    """

    world: _World
    """The name of a world, the path of a map, or a Gymnasium id."""
    agents: int = 6
    """Agents in the team, each in its own copy of the world (m in the paper)."""
    trajectories: int = 1
    """Trajectories that each agent plays per batch element (K)."""
    horizon: _Horizon = None
    """Actions in an episode (T)."""
    slip: _Slip = None
    """Probability that another action is taken than the chosen one; for maps."""
    batch_size: int = 40
    """Independent repetitions of the team's episodes that one update averages over (B)."""
    updates: int = 10_000
    """Policy updates (N)."""
    learning_rate: float = 0.15
    """Step size of the optimiser."""
    decay: float = 1.0
    """Factor on the learning rate after each update; the paper's text has 0.999, its code 1."""
    optimizer: Annotated[str, _one_of(OPTIMIZERS)] = "sgd"
    """Plain gradient ascent, as in the paper, or Adam."""
    credit: Annotated[str, _one_of(CREDITS)] = "total"
    """How the team's entropy becomes the weight of each action; total is the paper's."""
    policy: Annotated[str, _one_of(POLICIES)] = "stationary"
    """One softmax table per agent, or one for each time step of the episode."""
    single: bool = False
    """Train the paper's baseline instead: one policy that plays agents x trajectories trajectories."""
    seeds: tuple[int, ...] = PAPER_SEEDS
    """One independent training run each; they run side by side on all cores or devices."""
    log_every: Annotated[int | None, _default_is("so many that recording costs under 10% of the time")] = None
    """Updates between records of the metrics."""

    def __post_init__(self) -> None:
        check_team_in_world(self)
        for name in ("batch_size", "updates", "log_every"):
            value = getattr(self, name)
            if value is not None or name != "log_every":
                object.__setattr__(self, name, whole_number(name, value))
        check_learning_rate(self.learning_rate, self.decay)
        for name, known in (("optimizer", OPTIMIZERS), ("credit", CREDITS), ("policy", POLICIES)):
            check_name(name, getattr(self, name), known)
        object.__setattr__(self, "seeds", whole_seeds(self.seeds))
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("the seeds must differ from one another: equal seeds give equal runs")


@dataclass(frozen=True)
class CeilingQuestion:
    """Bound the entropy that any team can reach in a world, with a certificate.

    WORLD is named as for `farflung explore`.
    """

    world: _World
    """The name of a world, the path of a map, or a Gymnasium id."""
    agents: int = 6
    """Agents in the team (m in the paper)."""
    trajectories: int = 1
    """Trajectories of each agent that are pooled (K)."""
    horizon: _Horizon = None
    """Actions in an episode (T)."""
    slip: _Slip = None
    """Probability that another action is taken than the chosen one; for maps."""
    method: Annotated[str, _one_of(CEILING_METHODS)] = "auto"
    """milp is exact and for deterministic worlds, lp an upper bound, frank-wolfe one for worlds of any size."""
    time_limit: float = 60.0
    """Seconds after which the best bound so far is returned."""
    tolerance: float = 1e-3
    """How close frank-wolfe gets to the optimum, relative to it."""

    def __post_init__(self) -> None:
        check_team_in_world(self)
        check_name("method", self.method, CEILING_METHODS)
        for name in ("time_limit", "tolerance"):
            check_positive(name, getattr(self, name))


@dataclass(frozen=True)
class Concentration:
    """Compare Theorem 4.1 with how soon samples show the entropy of a trained team, of its agents and of a single agent.

    WORLD is named as for `farflung explore`.
    """

    world: _World = "maze-det"
    """The name of a world, the path of a map, or a Gymnasium id."""
    agents: int = 6
    """Agents in the team, and trajectories of the single agent (m in the paper)."""
    horizon: _Horizon = None
    """Actions in an episode (T)."""
    slip: _Slip = None
    """Probability that another action is taken than the chosen one; for maps."""
    updates: int = 10_000
    """Policy updates of each training."""
    seeds: tuple[int, ...] = PAPER_SEEDS
    """One independent training run each."""
    epsilons: tuple[float, ...] = (0.05, 0.1, 0.2, 0.5)
    """By how many nats the samples' entropy may fall short."""
    delta: float = 0.05
    """With which probability it may fall short by more."""
    draws: int = 2000
    """Times that samples are drawn for each probability."""
    most_samples: int = 10_000
    """Largest number of samples in one draw."""

    def __post_init__(self) -> None:
        check_team_in_world(self)
        for name in ("updates", "draws", "most_samples"):
            whole_number(name, getattr(self, name))
        if self.most_samples < self.agents:
            raise ValueError("most_samples must be at least one for each agent")
        if not self.epsilons:
            raise ValueError("at least one epsilon is needed")
        for epsilon in self.epsilons:
            check_positive("epsilon", epsilon)
        check_probability("delta", self.delta)
        object.__setattr__(self, "seeds", whole_seeds(self.seeds))


@dataclass(frozen=True)
class Reproduce:
    """Rerun every experiment of the paper and write one page with its figures and what became of its claims.

    Started again, it goes on where it was stopped.
    """

    worlds: Annotated[tuple[str, ...], _one_of(PAPER_WORLDS, is_repeated=True)] = PAPER_WORLDS
    """Which of the paper's worlds."""
    agents: tuple[int, ...] = (2, 4, 6)
    """Sizes of the team (m)."""
    seeds: int = 5
    """How many: the paper's 0, 1, 2, 42, 133 first, then others."""
    updates: int = 10_000
    """Policy updates of each training (N)."""
    datasets: int = 10
    """Datasets that are collected and learnt from for each seed, for means that hang less on luck; the paper has one."""
    schedule: Annotated[str, _one_of((*SCHEDULES, "both"))] = "both"
    """The learning rate: a constant 0.15, as in the paper's code; 0.1 with decay 0.999, as in its text; or both."""
    quick: bool = False
    """A preview: 2 and 6 agents, 3 seeds, 500 updates, the code's learning rate only."""

    def __post_init__(self) -> None:
        if self.quick:
            for name, value in (("agents", (2, 6)), ("seeds", 3), ("updates", 500), ("schedule", "code")):
                object.__setattr__(self, name, value)
        for name in ("worlds", "agents"):
            values = tuple(getattr(self, name))
            object.__setattr__(self, name, values)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name} must name at least one, and none twice")
        for world in self.worlds:
            check_name("world", world, PAPER_WORLDS)
        for number in self.agents:
            whole_number("agents", number)
        for name in ("seeds", "updates", "datasets"):
            whole_number(name, getattr(self, name))
        check_name("schedule", self.schedule, (*SCHEDULES, "both"))

    @property
    def seed_values(self) -> tuple[int, ...]:
        others = (seed for seed in range(self.seeds + len(PAPER_SEEDS)) if seed not in PAPER_SEEDS)
        return tuple(itertools.islice(itertools.chain(PAPER_SEEDS, others), self.seeds))

    @property
    def schedules(self) -> tuple[str, ...]:
        return tuple(SCHEDULES) if self.schedule == "both" else (self.schedule,)


def whole_number(name: str, value: Any) -> int:
    """The value as an int, if it is a whole number from 1 on."""
    number = _as_int(value)
    if number is None:
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    if number < 1:
        raise ValueError(f"{name} must be at least 1, not {number}")
    return number


def whole_seeds(seeds: Iterable[Any]) -> tuple[int, ...]:
    """The seeds as ints, if there are any and they fit 32 bits."""
    values = tuple(seeds)
    numbers = tuple(number for seed in values if (number := _as_int(seed)) is not None and 0 <= number < 2**32)
    if not values:
        raise ValueError("at least one seed is needed")
    if len(numbers) < len(values):
        raise ValueError(f"a seed is a whole number from 0 to {2**32 - 1}: {', '.join(map(str, values))} are not all such")
    return numbers


def _as_int(value: Any) -> int | None:
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def check_team_in_world(config: Any) -> None:
    """Checks the fields that say how many agents play how long in which world, and makes whole numbers of them."""
    for name in {"agents", "trajectories", "horizon"} & {field.name for field in fields(config)}:
        value = getattr(config, name)
        if value is not None or name != "horizon":
            object.__setattr__(config, name, whole_number(name, value))
    if config.slip is not None:
        check_slip(config.slip)


def check_positive(name: str, value: Any) -> None:
    if not (isinstance(value, numbers.Real) and 0 < float(value) < math.inf):
        raise ValueError(f"{name} must be a positive number, not {value}")


def check_probability(name: str, value: Any) -> None:
    if not (isinstance(value, numbers.Real) and 0 < float(value) < 1):
        raise ValueError(f"{name} must lie between 0 and 1, not {value}")


def check_slip(slip: Any) -> None:
    if not (isinstance(slip, numbers.Real) and 0 <= float(slip) <= 1):
        raise ValueError(f"slip is a probability between 0 and 1, not {slip}")


def check_learning_rate(learning_rate: Any, decay: Any) -> None:
    """Either may be a number or, with one for each seed, a sequence of numbers."""
    for name, values, is_fine in (
        ("learning_rate must be a positive number", learning_rate, lambda value: 0 < value < math.inf),
        ("decay must be above 0 and at most 1", decay, lambda value: 0 < value <= 1),
    ):
        for value in values if isinstance(values, Iterable) and not isinstance(values, str) else (values,):
            if not (isinstance(value, numbers.Real) and is_fine(value)):
                raise ValueError(f"{name}, not {value}")


def check_name(kind: str, name: Any, known: Sequence[str]) -> None:
    if name not in known:
        raise ValueError(unknown_name(kind, name, known, known))


def check_world(name: str) -> None:
    """Raises ValueError unless there is a world, a file or a Gymnasium id of that name."""
    if name in PAPER_WORLDS or is_map_file(name):
        return
    if name and os.path.isdir(name):  # noqa: PTH112
        raise ValueError(f"{name!r} is a directory, not a map")
    import gymnasium  # takes a while, and the paper's worlds don't need it

    if name not in gymnasium.registry:
        known = [*PAPER_WORLDS, *gymnasium.registry]
        raise ValueError(f"{unknown_name('world', name, known, PAPER_WORLDS)}, the path of a map or a Gymnasium id")


def is_map_file(name: str) -> bool:
    return os.path.isfile(name)  # noqa: PTH113  (Path's raises if a name is too long to be one)


def unknown_name(kind: str, name: object, candidates: Iterable[str], known: Sequence[str]) -> str:
    """The message about a name that doesn't exist, with the nearest that does."""
    nearest = difflib.get_close_matches(str(name), list(candidates), n=1)
    suggestion = f" (did you mean {nearest[0]!r}?)" if nearest else ""
    return f"unknown {kind} {name!r}{suggestion}: choose {', '.join(known)}"
