"""Settings of the commands about optima, theorems and the paper's experiments."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from farflung.config import checks, options
from farflung.config.options import default_is, one_of


@dataclass(frozen=True)
class _TeamInWorld:
    world: options.World
    """Name of a world, path of a map, or Gymnasium id."""
    agents: int = 6
    """Agents in the team (m in the paper)."""
    horizon: options.Horizon = None
    """Actions in an episode (T in the paper)."""
    slip: options.Slip = None
    """Probability that a random action replaces the chosen one; only for maps."""


@dataclass(frozen=True)
class CeilingOptions(_TeamInWorld):
    """Compute an upper bound on the entropy that any team can reach in a world, with a certificate.

    WORLD is the name of one of the paper's worlds, the path of a map, or the id of a Gymnasium environment with a transition
    table.
    """

    trajectories: int = 1
    """Trajectories of each agent that are pooled (K in the paper)."""
    method: Annotated[str, one_of(options.CEILING_METHODS)] = "auto"
    """milp: exact, for deterministic worlds; lp: an upper bound; frank-wolfe: for worlds of any size; auto: by size."""
    time_limit: float = 60.0
    """Seconds after which the computation stops with the best bound so far."""
    tolerance: float = 1e-3
    """Relative gap to the optimum at which the method frank-wolfe stops."""

    def __post_init__(self) -> None:
        checks.check_team_in_world(self)
        checks.check_name("method", self.method, options.CEILING_METHODS)
        for name in ("time_limit", "tolerance"):
            checks.check_positive(name, getattr(self, name))


@dataclass(frozen=True)
class FrankWolfeRun(_TeamInWorld):
    """Maximise the entropy in the limit of infinitely many samples, by Parallel Frank-Wolfe (Algorithm 2 of the paper).

    WORLD is the name of one of the paper's worlds, the path of a map, or the id of a Gymnasium environment with a transition
    table. The duality gap certifies how far the team is from the optimum.
    """

    agents: int = 4
    """Agents, each with its own mixture of policies (N in Algorithm 2)."""
    plan: Annotated[str, one_of(options.PLANS)] = "in-turn"
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
        checks.check_team_in_world(self)
        for number in (*self.compare, self.iterations, self.compare_iterations):
            checks.whole_number("a number of agents or iterations", number)
        checks.check_name("plan", self.plan, options.PLANS)
        checks.check_positive("tolerance", self.tolerance)
        object.__setattr__(self, "seed", checks.whole_seeds([self.seed])[0])
        checks.check_frank_wolfe(self)
        checks.check_share("compare_step", self.compare_step)
        if len(set(self.compare)) < len(self.compare):
            raise ValueError("the team sizes to compare must differ from one another")
        if self.theorem is not None:
            checks.check_positive("theorem", self.theorem)
            if self.smoothing == 0:
                raise ValueError("--theorem needs a smooth entropy: give a --smoothing above 0, such as 0.001")


@dataclass(frozen=True)
class Concentration(_TeamInWorld):
    """Compare Theorem 4.1 with the number of samples that are needed to see the entropy of a team and of a single agent.

    WORLD is the name of one of the paper's worlds, the path of a map, or the id of a Gymnasium environment with a transition
    table.
    """

    world: options.World = "maze-det"
    agents: int = 6
    """Agents in the team, and trajectories of the single agent (m in the paper)."""
    updates: int = 10_000
    """Policy updates of each training (N in the paper)."""
    seeds: tuple[int, ...] = options.PAPER_SEEDS
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
        checks.check_team_in_world(self)
        for name in ("updates", "draws", "most_samples"):
            checks.whole_number(name, getattr(self, name))
        if self.most_samples < self.agents:
            raise ValueError(f"most_samples must be at least the number of agents, {self.agents}, not {self.most_samples}")
        if not self.epsilons:
            raise ValueError("at least one epsilon is needed")
        for epsilon in self.epsilons:
            checks.check_positive("epsilon", epsilon)
        checks.check_probability("delta", self.delta)
        object.__setattr__(self, "seeds", checks.whole_seeds(self.seeds))


@dataclass(frozen=True)
class _Suite:
    worlds: Annotated[tuple[str, ...], one_of(options.PAPER_WORLDS, is_repeated=True)] = options.PAPER_WORLDS
    """Worlds of the paper to train in."""
    agents: tuple[int, ...] = (2, 6)
    """Numbers of agents in a team (m in the paper)."""
    seeds: int = 10
    """Number of random seeds: the paper's 0, 1, 2, 42, 133 first, then others."""

    def _check(self, counts: Sequence[str], preview: dict[str, Any], *, is_preview: bool) -> None:
        """Replaces settings by those of the preview if it is one, and checks the worlds, the team sizes and the counts."""
        for name, value in preview.items() if is_preview else ():
            object.__setattr__(self, name, value)
        for name in ("worlds", "agents"):
            values = tuple(getattr(self, name))
            object.__setattr__(self, name, values)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name} must be one or more, all different")
        for world in self.worlds:
            checks.check_name("world", world, options.PAPER_WORLDS)
        for number in self.agents:
            checks.whole_number("agents", number)
        for name in counts:
            checks.whole_number(name, getattr(self, name))

    @property
    def seed_values(self) -> tuple[int, ...]:
        """The paper's seeds, then others."""
        others = (seed for seed in range(self.seeds + len(options.PAPER_SEEDS)) if seed not in options.PAPER_SEEDS)
        return tuple(itertools.islice(itertools.chain(options.PAPER_SEEDS, others), self.seeds))


@dataclass(frozen=True)
class Reproduce(_Suite):
    """Run every experiment of the paper again and write one page with the figures and a verdict on each claim.

    The same command continues after an interruption.
    """

    agents: tuple[int, ...] = (2, 4, 6)
    seeds: int = 5
    updates: int = 10_000
    """Policy updates of each training (N in the paper)."""
    datasets: int = 10
    """Datasets per seed for offline learning; the paper has one, more give means with less noise."""
    schedule: Annotated[str, one_of((*options.SCHEDULES, "both"))] = "both"
    """Learning rate: constant 0.15, as in the paper's code; 0.1 with decay 0.999, as in the paper's text; or both."""
    quick: bool = False
    """Preview with 2 and 6 agents, 3 seeds, 500 updates, 3 datasets, and only the learning rate of the paper's code."""

    def __post_init__(self) -> None:
        preview = {"agents": (2, 6), "seeds": 3, "updates": 500, "datasets": 3, "schedule": "code"}
        self._check(("seeds", "updates", "datasets"), preview, is_preview=self.quick)
        checks.check_name("schedule", self.schedule, (*options.SCHEDULES, "both"))

    @property
    def schedules(self) -> tuple[str, ...]:
        return tuple(options.SCHEDULES) if self.schedule == "both" else (self.schedule,)


@dataclass(frozen=True)
class Ablate(_Suite):
    """Train every credit with every optimiser, remove each part of the defaults in turn, and write one page about the effects.

    The same command continues after an interruption.
    """

    credits: Annotated[tuple[str, ...], one_of(options.CREDITS, is_repeated=True)] = options.CREDITS
    """Credits to train with: ways to turn the team's entropy into the weight of each action."""
    optimizers: Annotated[tuple[str, ...], one_of(options.OPTIMIZERS, is_repeated=True)] = options.OPTIMIZERS
    """Optimisers to combine with each credit."""
    updates: int = 1000
    """Policy updates of each training with other settings than the paper's (N in the paper)."""
    paper_updates: int = 10_000
    """Policy updates with the paper's settings; the final entropy is the target for all other settings."""
    batches: int = 200
    """Batches from which the variance of a gradient is estimated."""
    quick: bool = False
    """Preview with room-stoc and maze-det, 6 agents, 3 seeds, 200 updates (2,000 with the paper's settings) and 50 batches."""

    def __post_init__(self) -> None:
        preview = {"worlds": options.PAPER_WORLDS[1:3], "agents": (6,), "seeds": 3, "updates": 200}
        preview |= {"paper_updates": 2000, "batches": 50}
        self._check(("seeds", "updates", "paper_updates", "batches"), preview, is_preview=self.quick)
        for name, known in (("credits", options.CREDITS), ("optimizers", options.OPTIMIZERS)):
            for each in getattr(self, name):
                checks.check_name(name.removesuffix("s"), each, known)
            object.__setattr__(self, name, tuple(each for each in known if each in getattr(self, name)))
            if not getattr(self, name):
                raise ValueError(f"at least one of the {name} is needed: {', '.join(known)}")
        if self.batches < 2:
            raise ValueError("batches must be at least 2: one batch has no variance")
