"""What a user can ask for, checked before any work is done and without importing JAX."""

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from farflung.checks import (
    check_frank_wolfe,
    check_learning_rate,
    check_name,
    check_positive,
    check_probability,
    check_share,
    check_team_in_world,
    unknown_name,
    whole_number,
    whole_seeds,
)

PAPER_WORLDS = ("room-det", "room-stoc", "maze-det", "maze-stoc")
PAPER_SEEDS = (0, 1, 2, 42, 133)
CREDITS = ("total",)
CEILING_METHODS = ("auto", "milp", "lp", "frank-wolfe")
PLANS = ("together", "in-turn")
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
class FrankWolfeRun:
    """Maximise the entropy that infinitely many samples show, by Parallel Frank-Wolfe (Algorithm 2 of the paper).

    WORLD is named as for `farflung explore`. The duality gap certifies how far the team is from the best possible.
    """

    world: _World
    """The name of a world, the path of a map, or a Gymnasium id."""
    agents: int = 4
    """Agents, each with a mixture of policies of its own (N in Algorithm 2)."""
    horizon: _Horizon = None
    """Actions in an episode (T)."""
    slip: _Slip = None
    """Probability that another action is taken than the chosen one; for maps."""
    plan: Annotated[str, _one_of(PLANS)] = "in-turn"
    """All agents plan on the same mixture, as in the paper, or each on the one that those before it have just updated."""
    step_size: Annotated[float | None, _default_is("the best at each iteration", "FLOAT")] = None
    """Share of a new policy in its agent's mixture."""
    iterations: int = 20_000
    """Most iterations."""
    tolerance: float = 1e-3
    """Stop when the duality gap is below so many nats."""
    theorem: Annotated[float | None, _default_is("they are given by the options above", "FLOAT")] = None
    """Take step size and number of iterations from the theorem "Convergence Rate" for this error; needs a smoothing."""
    smoothing: float = 0.0
    """Added to each probability inside the entropy (sigma), so that its gradient is bounded."""
    density_tolerance: float = 0.0
    """Error of the estimated state distribution (epsilon_0); 0 for an exact one. Needs a smoothing."""
    planning_tolerance: float = 0.0
    """Loss of a plan made in an estimated model (epsilon_1); 0 for exact plans. Needs a smoothing."""
    compare: tuple[int, ...] = (1, 2, 4, 8, 16)
    """Team sizes that are compared with each other and with the theorem's rate."""
    compare_step: float = 0.05
    """The constant step size of that comparison."""
    compare_iterations: int = 1500
    """The iterations of that comparison."""
    seed: int = 0
    """For estimates."""

    def __post_init__(self) -> None:
        check_team_in_world(self)
        for number in (*self.compare, self.iterations, self.compare_iterations):
            whole_number("a number of agents or iterations", number)
        check_name("plan", self.plan, PLANS)
        check_positive("tolerance", self.tolerance)
        object.__setattr__(self, "seed", whole_seeds([self.seed])[0])
        check_frank_wolfe(self)
        check_share("compare_step", self.compare_step)
        if len(set(self.compare)) < len(self.compare):
            raise ValueError("the team sizes to compare must differ from one another")
        if self.theorem is not None:
            check_positive("theorem", self.theorem)
            if self.smoothing == 0:
                raise ValueError("the theorem needs a smooth entropy: give a smoothing above 0, say 0.001")


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
    """A preview: 2 and 6 agents, 3 seeds, 500 updates, 3 datasets, the code's learning rate only."""

    def __post_init__(self) -> None:
        if self.quick:
            for name, value in (("agents", (2, 6)), ("seeds", 3), ("updates", 500), ("datasets", 3), ("schedule", "code")):
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
