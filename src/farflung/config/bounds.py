"""What the commands about optima and theorems can be asked for."""

from dataclasses import dataclass
from typing import Annotated

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
from farflung.config.options import CEILING_METHODS, PAPER_SEEDS, PLANS, Horizon, Slip, World, default_is, one_of


@dataclass(frozen=True)
class CeilingOptions:
    """Bound the entropy that any team can reach in a world, with a certificate.

    WORLD is named as for `farflung explore`.
    """

    world: World
    """The name of a world, the path of a map, or a Gymnasium id."""
    agents: int = 6
    """Agents in the team (m in the paper)."""
    trajectories: int = 1
    """Trajectories of each agent that are pooled (K)."""
    horizon: Horizon = None
    """Actions in an episode (T)."""
    slip: Slip = None
    """Probability that another action is taken than the chosen one; for maps."""
    method: Annotated[str, one_of(CEILING_METHODS)] = "auto"
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

    world: World
    """The name of a world, the path of a map, or a Gymnasium id."""
    agents: int = 4
    """Agents, each with a mixture of policies of its own (N in Algorithm 2)."""
    horizon: Horizon = None
    """Actions in an episode (T)."""
    slip: Slip = None
    """Probability that another action is taken than the chosen one; for maps."""
    plan: Annotated[str, one_of(PLANS)] = "in-turn"
    """All agents plan on the same mixture, as in the paper, or each on the one that those before it have just updated."""
    step_size: Annotated[float | None, default_is("the best at each iteration", "FLOAT")] = None
    """Share of a new policy in its agent's mixture."""
    iterations: int = 20_000
    """Most iterations."""
    tolerance: float = 1e-3
    """Stop when the duality gap is below so many nats."""
    theorem: Annotated[float | None, default_is("they are given by the options above", "FLOAT")] = None
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

    world: World = "maze-det"
    """The name of a world, the path of a map, or a Gymnasium id."""
    agents: int = 6
    """Agents in the team, and trajectories of the single agent (m in the paper)."""
    horizon: Horizon = None
    """Actions in an episode (T)."""
    slip: Slip = None
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
