"""What a user can ask for, checked before any work is done and without importing JAX."""

import itertools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from farflung.checks import (
    check_frank_wolfe,
    check_learning,
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
CREDITS = ("total", "leave_one_out", "difference", "causal")
COMBINED_CREDITS = ("difference", "causal")
CEILING_METHODS = ("auto", "milp", "lp", "frank-wolfe")
PLANS = ("together", "in-turn")
OPTIMIZERS = ("sgd", "adam", "natural", "trust-region")
SCHEDULES = {"code": (0.15, 1.0), "text": (0.1, 0.999)}
"""The learning rate and its decay per update in the paper's released code, and in its text."""
LEARNING_RATES = {"sgd": 0.15, "adam": 0.2, "natural": 3.0, "trust-region": 0.003}
"""What an optimiser starts from if nothing else is asked for."""
POLICIES = ("auto", "stationary", "time-dependent")
PRESETS: dict[str, dict[str, Any]] = {
    "farflung": {
        "updates": 1000,
        "credit": "causal",
        "optimizer": "adam",
        "policy": "auto",
        "init_scale": 0.01,
        "entropy_bonus": 0.5,
    },
    "paper": {
        "updates": 10_000,
        "credit": "total",
        "optimizer": "sgd",
        "policy": "stationary",
        "init_scale": 1.0,
        "entropy_bonus": 0.0,
    },
}
"""Ways to train that serve every world: ours, and the paper's."""
_BONUS_LEFT = 5.0
_LATER: Any = None
"""A default that depends on other settings, and is put in its place when a config is made."""


def _default_is(text: str, metavar: str = "INT") -> object:
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {text})")


def _one_of(names: Sequence[str], *, is_repeated: bool = False) -> object:
    return tyro.conf.arg(metavar="{" + ",".join(names) + "}" + (" ..." if is_repeated else ""))


def _preset(name: str, names: Sequence[str] = ()) -> object:
    metavar = "{" + ",".join(names) + "}" if names else "INT" if name == "updates" else "FLOAT"
    hint = f"{PRESETS['farflung'][name]}; preset paper: {PRESETS['paper'][name]}"
    return _default_is(hint, metavar)


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
    preset: Annotated[str, _one_of(tuple(PRESETS))] = "farflung"
    """Where the defaults of what follows come from: our best, or the paper's."""
    updates: Annotated[int, _preset("updates")] = _LATER
    """Policy updates (N)."""
    credit: Annotated[str, _preset("credit", CREDITS)] = _LATER
    """How the team's entropy becomes the weight of each action."""
    combinations: int = 1
    """Ways to make teams of a batch's trajectories that difference and causal are averaged over."""
    optimizer: Annotated[str, _preset("optimizer", OPTIMIZERS)] = _LATER
    """Plain gradient ascent, Adam, the natural gradient, or that with steps of a given KL divergence."""
    learning_rate: Annotated[
        float, _default_is(", ".join(f"{rate} {name}" for name, rate in LEARNING_RATES.items()), "FLOAT")
    ] = _LATER
    """Step size of the optimiser; for trust-region the KL divergence of a step in nats."""
    decay: float = 1.0
    """Factor on the learning rate after each update; the paper's text has 0.999, its code 1."""
    policy: Annotated[str, _preset("policy", POLICIES)] = _LATER
    """One softmax table per agent, or one for each time step of the episode; auto takes the latter where they are small."""
    init_scale: Annotated[float, _preset("init_scale")] = _LATER
    """The policies' first logits are drawn uniformly from (-init_scale, init_scale)."""
    entropy_bonus: Annotated[float, _preset("entropy_bonus")] = _LATER
    """Weight of the policies' own mean entropy, against early determinism."""
    bonus_decay: Annotated[float, _default_is("so that 1% is left at the end", "FLOAT")] = _LATER
    """Factor on that weight after each update."""
    steps_per_batch: int = 1
    """Steps that are made with one batch, with clipped importance weights after the first."""
    clip: float = 0.2
    """How much an action's probability may change in them, relative to what it was."""
    single: bool = False
    """Train the paper's baseline instead: one policy that plays agents x trajectories trajectories."""
    independent: bool = False
    """Train a baseline that the paper lacks instead: each agent for its own entropy alone."""
    stop_when_flat: bool = False
    """Stop early when the mean entropy no longer grows."""
    seeds: tuple[int, ...] = PAPER_SEEDS
    """One independent training run each; they run side by side on all cores or devices."""
    log_every: Annotated[int | None, _default_is("so many that recording costs under 10% of the time")] = None
    """Updates between records of the metrics."""

    def __post_init__(self) -> None:
        check_name("preset", self.preset, tuple(PRESETS))
        for name, value in PRESETS[self.preset].items():
            self._default(name, value)
        check_name("optimizer", self.optimizer, OPTIMIZERS)
        self._default("learning_rate", LEARNING_RATES[self.optimizer])
        check_team_in_world(self)
        for name in ("batch_size", "updates", "log_every", "combinations", "steps_per_batch"):
            value = getattr(self, name)
            if value is not None or name != "log_every":
                object.__setattr__(self, name, whole_number(name, value))
        self._default("bonus_decay", math.exp(-_BONUS_LEFT / self.updates))
        check_learning(self)
        for name, known in (("credit", CREDITS), ("policy", POLICIES)):
            check_name(name, getattr(self, name), known)
        if self.combinations > 1 and self.credit not in COMBINED_CREDITS:
            raise ValueError(f"combinations serve the credits {' and '.join(COMBINED_CREDITS)}, not {self.credit}")
        if self.combinations > self.batch_size:
            raise ValueError(f"a batch of {self.batch_size} has no more than as many combinations, not {self.combinations}")
        if self.single and self.independent:
            raise ValueError("a single policy has nobody to be independent of: choose --single or --independent")
        object.__setattr__(self, "seeds", whole_seeds(self.seeds))
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("the seeds must differ from one another: equal seeds give equal runs")

    def _default(self, name: str, value: Any) -> None:
        if getattr(self, name) is None:
            object.__setattr__(self, name, value)


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
