"""Settings of the commands about optima, theorems and the paper's experiments."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from farflung.config.checks import (
    check_frank_wolfe,
    check_name,
    check_positive,
    check_probability,
    check_share,
    check_team_in_world,
    whole_number,
    whole_seeds,
)
from farflung.config.options import (
    CEILING_METHODS,
    CREDITS,
    OPTIMIZERS,
    PAPER_SEEDS,
    PAPER_WORLDS,
    PLANS,
    SCHEDULES,
    Horizon,
    Slip,
    World,
    default_is,
    one_of,
)


@dataclass(frozen=True)
class CeilingOptions:
    """Compute an upper bound on the entropy that any team can reach in a world, with a certificate.

    WORLD is the name of one of the paper's worlds, the path of a map, or the id of a Gymnasium environment with a transition
    table.
    """

    world: World
    """Name of a world, path of a map, or Gymnasium id."""
    agents: int = 6
    """Agents in the team (m in the paper)."""
    trajectories: int = 1
    """Trajectories of each agent that are pooled (K in the paper)."""
    horizon: Horizon = None
    """Actions in an episode (T in the paper)."""
    slip: Slip = None
    """Probability that a random action replaces the chosen one; only for maps."""
    method: Annotated[str, one_of(CEILING_METHODS)] = "auto"
    """milp: exact, for deterministic worlds; lp: an upper bound; frank-wolfe: for worlds of any size; auto: by size."""
    time_limit: float = 60.0
    """Seconds after which the computation stops with the best bound so far."""
    tolerance: float = 1e-3
    """Relative gap to the optimum at which the method frank-wolfe stops."""

    def __post_init__(self) -> None:
        check_team_in_world(self)
        check_name("method", self.method, CEILING_METHODS)
        for name in ("time_limit", "tolerance"):
            check_positive(name, getattr(self, name))


@dataclass(frozen=True)
class FrankWolfeRun:
    """Maximise the entropy in the limit of infinitely many samples, by Parallel Frank-Wolfe (Algorithm 2 of the paper).

    WORLD is the name of one of the paper's worlds, the path of a map, or the id of a Gymnasium environment with a transition
    table. The duality gap certifies how far the team is from the optimum.
    """

    world: World
    """Name of a world, path of a map, or Gymnasium id."""
    agents: int = 4
    """Agents, each with its own mixture of policies (N in Algorithm 2)."""
    horizon: Horizon = None
    """Actions in an episode (T in the paper)."""
    slip: Slip = None
    """Probability that a random action replaces the chosen one; only for maps."""
    plan: Annotated[str, one_of(PLANS)] = "in-turn"
    """together: all agents plan for the same mixture, as in the paper; in-turn: each plans after the previous one's update."""
    step_size: Annotated[float | None, default_is("the best at each iteration", "FLOAT")] = None
    """Weight of a new policy in the mixture of its agent."""
    iterations: int = 20_000
    """Maximum number of iterations."""
    tolerance: float = 1e-3
    """Duality gap, in nats, at which to stop."""
    theorem: Annotated[float | None, default_is("--step-size and --iterations", "FLOAT")] = None
    """Error for which the theorem "Convergence Rate" sets step size and iterations. Requires --smoothing."""
    smoothing: float = 0.0
    """Constant added to each probability inside the entropy (sigma), which bounds the gradient."""
    density_tolerance: float = 0.0
    """Error of the estimated state distribution (epsilon_0); 0 computes it exactly. Requires --smoothing."""
    planning_tolerance: float = 0.0
    """Suboptimality of plans in an estimated model (epsilon_1); 0 plans exactly. Requires --smoothing."""
    compare: tuple[int, ...] = (1, 2, 4, 8, 16)
    """Team sizes to compare with each other and with the theorem's rate."""
    compare_step: float = 0.05
    """Constant step size in the comparison of team sizes."""
    compare_iterations: int = 1500
    """Iterations in the comparison of team sizes."""
    seed: int = 0
    """Random seed for estimated state distributions and plans."""

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
                raise ValueError("--theorem needs a smooth entropy: give a --smoothing above 0, such as 0.001")


@dataclass(frozen=True)
class Concentration:
    """Compare Theorem 4.1 with the number of samples that are needed to see the entropy of a team and of a single agent.

    WORLD is the name of one of the paper's worlds, the path of a map, or the id of a Gymnasium environment with a transition
    table.
    """

    world: World = "maze-det"
    """Name of a world, path of a map, or Gymnasium id."""
    agents: int = 6
    """Agents in the team, and trajectories of the single agent (m in the paper)."""
    horizon: Horizon = None
    """Actions in an episode (T in the paper)."""
    slip: Slip = None
    """Probability that a random action replaces the chosen one; only for maps."""
    updates: int = 10_000
    """Policy updates of each training (N in the paper)."""
    seeds: tuple[int, ...] = PAPER_SEEDS
    """Random seeds, with one independent training each."""
    epsilons: tuple[float, ...] = (0.05, 0.1, 0.2, 0.5)
    """Errors in nats: how far the entropy of the samples may lie below the true one."""
    delta: float = 0.05
    """Allowed probability of a larger error."""
    draws: int = 2000
    """Repetitions from which each probability is estimated."""
    most_samples: int = 10_000
    """Maximum number of samples in a repetition."""

    def __post_init__(self) -> None:
        check_team_in_world(self)
        for name in ("updates", "draws", "most_samples"):
            whole_number(name, getattr(self, name))
        if self.most_samples < self.agents:
            raise ValueError(f"most_samples must be at least the number of agents, {self.agents}, not {self.most_samples}")
        if not self.epsilons:
            raise ValueError("at least one epsilon is needed")
        for epsilon in self.epsilons:
            check_positive("epsilon", epsilon)
        check_probability("delta", self.delta)
        object.__setattr__(self, "seeds", whole_seeds(self.seeds))


def check_suite(config: Any, counts: Sequence[str]) -> None:
    """Checks the worlds, the team sizes and the given counts of a config."""
    for name in ("worlds", "agents"):
        values = tuple(getattr(config, name))
        object.__setattr__(config, name, values)
        if not values or len(set(values)) < len(values):
            raise ValueError(f"{name} must be one or more, all different")
    for world in config.worlds:
        check_name("world", world, PAPER_WORLDS)
    for number in config.agents:
        whole_number("agents", number)
    for name in counts:
        whole_number(name, getattr(config, name))


def first_seeds(number: int) -> tuple[int, ...]:
    """So many seeds: the paper's, then others."""
    others = (seed for seed in range(number + len(PAPER_SEEDS)) if seed not in PAPER_SEEDS)
    return tuple(itertools.islice(itertools.chain(PAPER_SEEDS, others), number))


@dataclass(frozen=True)
class Reproduce:
    """Run every experiment of the paper again and write one page with the figures and a verdict on each claim.

    The same command continues after an interruption.
    """

    worlds: Annotated[tuple[str, ...], one_of(PAPER_WORLDS, is_repeated=True)] = PAPER_WORLDS
    """Worlds of the paper to train in."""
    agents: tuple[int, ...] = (2, 4, 6)
    """Numbers of agents in a team (m in the paper)."""
    seeds: int = 5
    """Number of random seeds: the paper's 0, 1, 2, 42, 133 first, then others."""
    updates: int = 10_000
    """Policy updates of each training (N in the paper)."""
    datasets: int = 10
    """Datasets per seed for offline learning; the paper has one, more give means with less noise."""
    schedule: Annotated[str, one_of((*SCHEDULES, "both"))] = "both"
    """Learning rate: constant 0.15, as in the paper's code; 0.1 with decay 0.999, as in the paper's text; or both."""
    quick: bool = False
    """Preview with 2 and 6 agents, 3 seeds, 500 updates, 3 datasets, and only the learning rate of the paper's code."""

    def __post_init__(self) -> None:
        if self.quick:
            for name, value in (("agents", (2, 6)), ("seeds", 3), ("updates", 500), ("datasets", 3), ("schedule", "code")):
                object.__setattr__(self, name, value)
        check_suite(self, ("seeds", "updates", "datasets"))
        check_name("schedule", self.schedule, (*SCHEDULES, "both"))

    @property
    def seed_values(self) -> tuple[int, ...]:
        return first_seeds(self.seeds)

    @property
    def schedules(self) -> tuple[str, ...]:
        return tuple(SCHEDULES) if self.schedule == "both" else (self.schedule,)


@dataclass(frozen=True)
class Ablate:
    """Train every credit with every optimiser, remove each part of the defaults in turn, and write one page about the effects.

    The same command continues after an interruption.
    """

    worlds: Annotated[tuple[str, ...], one_of(PAPER_WORLDS, is_repeated=True)] = PAPER_WORLDS
    """Worlds of the paper to train in."""
    agents: tuple[int, ...] = (2, 6)
    """Numbers of agents in a team (m in the paper)."""
    credits: Annotated[tuple[str, ...], one_of(CREDITS, is_repeated=True)] = CREDITS
    """Credits to train with: ways to turn the team's entropy into the weight of each action."""
    optimizers: Annotated[tuple[str, ...], one_of(OPTIMIZERS, is_repeated=True)] = OPTIMIZERS
    """Optimisers to combine with each credit."""
    seeds: int = 10
    """Number of random seeds: the paper's 0, 1, 2, 42, 133 first, then others."""
    updates: int = 1000
    """Policy updates of each training with other settings than the paper's (N in the paper)."""
    paper_updates: int = 10_000
    """Policy updates with the paper's settings; the final entropy is the target for all other settings."""
    batches: int = 200
    """Batches from which the variance of a gradient is estimated."""
    quick: bool = False
    """Preview with room-stoc and maze-det, 6 agents, 3 seeds, 200 updates (2,000 with the paper's settings) and 50 batches."""

    def __post_init__(self) -> None:
        if self.quick:
            preview = {"worlds": PAPER_WORLDS[1:3], "agents": (6,), "seeds": 3, "updates": 200}
            for name, value in (preview | {"paper_updates": 2000, "batches": 50}).items():
                object.__setattr__(self, name, value)
        check_suite(self, ("seeds", "updates", "paper_updates", "batches"))
        for name, known in (("credits", CREDITS), ("optimizers", OPTIMIZERS)):
            for each in getattr(self, name):
                check_name(name.removesuffix("s"), each, known)
            object.__setattr__(self, name, tuple(each for each in known if each in getattr(self, name)))
            if not getattr(self, name):
                raise ValueError(f"at least one of the {name} is needed: {', '.join(known)}")
        if self.batches < 2:
            raise ValueError("batches must be at least 2: one batch has no variance")

    @property
    def seed_values(self) -> tuple[int, ...]:
        return first_seeds(self.seeds)
