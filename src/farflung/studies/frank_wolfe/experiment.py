"""Parallel Frank-Wolfe in one world, and whether its gain from more agents is that of the theorem."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from farflung.algorithms.frank_wolfe import FrankWolfe, Solution, solve
from farflung.bounds import theorems as theory
from farflung.config import FrankWolfeRun
from farflung.worlds.named import make_tabular_world
from farflung.worlds.tabular import TabularMDP

SMOOTHING = 1e-3
DENSITY_TOLERANCE = 0.05
WAYS = {
    "together": "all plan on the same mixture",
    "estimated": "all plan on estimates of their own",
    "in-turn": "each plans after those before it",
    "alone": "one agent, an N-th of the step, as many plans",
}
"""The order in which the agents of a team plan, and on which mixture; and what one agent does with as many plans."""


class Series(NamedTuple):
    """The duality gap of teams of several sizes with one constant step size."""

    agents: tuple[int, ...]
    gaps: list[Float[np.ndarray, " iteration"]]

    @property
    def floors(self) -> Float[np.ndarray, " size"]:
        """The final level of each gap: the median over the last third."""
        return np.array([np.median(gaps[-len(gaps) // 3 :]) for gaps in self.gaps])

    @property
    def exponent(self) -> float:
        """The exponent k of the fit floor ~ N^k over the team sizes N; -1 in the theorem."""
        if len(self.agents) < 2:
            return float("nan")
        return float(np.polyfit(np.log(self.agents), np.log(self.floors), 1)[0])

    @property
    def verdict(self) -> str:
        if np.isnan(self.exponent):
            return "one size shows no rate"
        if self.exponent < -0.8:
            return "the gap falls with 1/N"
        return "the gap does not fall with N" if self.exponent > -0.2 else "the gap falls with a part of 1/N"


@dataclass(frozen=True)
class Convergence:
    """The results of `farflung frank-wolfe`."""

    config: FrankWolfeRun
    world: TabularMDP
    algorithm: FrankWolfe
    found: Solution
    comparison: dict[str, Series]

    @cached_property
    def theorem_iterations(self) -> int | None:
        """The theorem's number of iterations for the configured tolerance."""
        if self.config.smoothing == 0:
            return None
        objective = theory.SmoothedEntropy(self.config.smoothing)
        return theory.frank_wolfe_iterations(self.world.num_states, self.config.agents, self.config.tolerance, objective)


def frank_wolfe(config: FrankWolfeRun, *, on_progress: Callable[[int, int, str], None] | None = None) -> Convergence:
    """Runs the algorithm as configured, then compares teams of several sizes with one constant step size.

    Args:
        on_progress: called with the work done, all work, and a description.
    """
    report = on_progress or (lambda *_: None)
    world = make_tabular_world(config.world, horizon=config.horizon, slip=config.slip)
    step_size, num_iterations = config.step_size, config.iterations
    if config.theorem is not None:
        objective = theory.SmoothedEntropy(config.smoothing)
        sizes = (world.num_states, config.agents, config.theorem, objective)
        step_size, num_iterations = theory.frank_wolfe_step_size(*sizes), theory.frank_wolfe_iterations(*sizes)
        if step_size > 1:
            raise ValueError(f"the theorem's step size is {step_size:.3g}, above 1: choose a smaller error, smoothing or team")
    algorithm = FrankWolfe(
        num_agents=config.agents,
        step_size=step_size,
        smoothing=config.smoothing,
        is_in_turn=config.plan == "in-turn",
        density_tolerance=config.density_tolerance,
        planning_tolerance=config.planning_tolerance,
    )
    algorithm.check_samples(world)
    report(0, num_iterations, "compiling")
    for found in solve(algorithm, world, num_iterations=num_iterations, tolerance=config.tolerance, seed=config.seed):
        report(len(found.gaps), num_iterations, f"entropy {found.entropies[-1]:.4f}, gap {found.gaps[-1]:.1e} nats")
    comparison = {way: Series(config.compare, []) for way in WAYS if config.compare}
    for number, (way, agents) in enumerate(itertools.product(comparison, config.compare)):
        report(number, len(WAYS) * len(config.compare), f"to compare: {agents} agents, {way}")
        density_tolerance = DENSITY_TOLERANCE if way == "estimated" else 0.0
        step_size, num_iterations = config.compare_step, config.compare_iterations
        compared = FrankWolfe(agents, step_size, SMOOTHING, way == "in-turn", density_tolerance)
        if way == "alone":
            compared, num_iterations = FrankWolfe(1, step_size / agents, SMOOTHING), num_iterations * agents
        *_, last = solve(compared, world, num_iterations=num_iterations, tolerance=0.0, seed=config.seed)
        comparison[way].gaps.append(last.gaps)
    report(1, 1, "")
    return Convergence(config, world, algorithm, found, comparison)
