"""The paper's two theorems where they can be judged: with bounds below 1, and against one agent with as many plans."""

import itertools
import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from farflung.algorithms.frank_wolfe import FrankWolfe, solve
from farflung.bounds import theorems as theory
from farflung.studies.concentration.experiment import exact_deviation_probability
from farflung.worlds.named import make_tabular_world

_RARE = (0.1, 0.01, 0.001)
_SHARES_OF_ENTROPY = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
_BOUNDS = (0.99, 0.5, 0.1)
_AGENTS, _STEP_SIZE, _ITERATIONS, _SMOOTHING = 8, 0.05, 600, 1e-3
_EPSILON, _WIDE_SMOOTHING = 0.5, 0.1


class Deviation(NamedTuple):
    """The exact probability of Theorem 4.1's event, and its bound, for a distribution over two states."""

    rare: float
    """The probability of the second state."""
    epsilon: float
    num_samples: int
    probability: float
    bound: float


class ConvergenceCheck(NamedTuple):
    """Parallel Frank-Wolfe with constant steps."""

    world: str
    agents: int
    step_size: float
    gaps: dict[str, Float[np.ndarray, " plan"]]
    """The duality gap of one agent; of N agents that plan together, and in turn; of one agent with an N-th of the step and as
    many plans as N agents."""
    epsilon: float
    theorem_gap: float
    """The gap after the theorem's number of iterations for ε, with its step size and exact oracles."""
    theorem_iterations: int

    @property
    def floors(self) -> dict[str, float]:
        """The level at which each gap settles: the median over the last third."""
        return {way: float(np.median(gaps[-len(gaps) // 3 :])) for way, gaps in self.gaps.items()}


class TheoremChecks(NamedTuple):
    """What the claims about the theorems are decided by."""

    deviations: list[Deviation]
    """For each distribution, the case with the largest probability relative to its bound."""
    convergence: ConvergenceCheck


def check_theorems() -> TheoremChecks:
    """Judges both theorems; nothing here depends on a training."""
    return TheoremChecks([_closest_deviation(rare) for rare in _RARE], _check_convergence("room-det"))


def _closest_deviation(rare: float) -> Deviation:
    """The errors and sample sizes at which the probability comes closest to the bound.

    With two states, one of them rare, the event has a noticeable probability where the bound is below 1. With three states it
    has one of less than a billionth, and with 43 the bound is below 1 only beyond ten million samples.
    """
    shares = np.array([1 - rare, rare])
    found = []
    for share, bound in itertools.product(_SHARES_OF_ENTROPY, _BOUNDS):
        epsilon = share * float(-np.sum(shares * np.log(shares)))
        number = theory.samples_needed(shares, epsilon, bound)
        probability = exact_deviation_probability(shares, number, epsilon)
        found.append(Deviation(rare, epsilon, number, probability, theory.deviation_probability(shares, number, epsilon)))
    return max(found, key=lambda each: each.probability / each.bound)


def _check_convergence(name: str) -> ConvergenceCheck:
    world = make_tabular_world(name)

    def gaps(agents: int, step_size: float, num_iterations: int, smoothing: float, *, in_turn: bool = False) -> np.ndarray:
        *_, last = solve(FrankWolfe(agents, step_size, smoothing, in_turn), world, num_iterations=num_iterations, tolerance=0.0)
        return last.gaps

    ways = {
        "one agent": gaps(1, _STEP_SIZE, _ITERATIONS, _SMOOTHING),
        "together": gaps(_AGENTS, _STEP_SIZE, _ITERATIONS, _SMOOTHING),
        "in turn": gaps(_AGENTS, _STEP_SIZE, _ITERATIONS, _SMOOTHING, in_turn=True),
        "one agent, small steps": gaps(1, _STEP_SIZE / _AGENTS, _ITERATIONS * _AGENTS, _SMOOTHING),
    }
    sizes = (world.num_states, _AGENTS, _EPSILON, theory.SmoothedEntropy(_WIDE_SMOOTHING))
    number = theory.frank_wolfe_iterations(*sizes)
    theorem = gaps(_AGENTS, theory.frank_wolfe_step_size(*sizes), number + 1, _WIDE_SMOOTHING)
    return ConvergenceCheck(name, _AGENTS, _STEP_SIZE, ways, _EPSILON, float(theorem[-1]), number)


def vacuous_below(shares: Float[np.ndarray, " state"], epsilon: float) -> int:
    """The number of samples below which Theorem 4.1 says nothing: its bound is 1."""
    return theory.samples_needed(shares, epsilon, math.nextafter(1.0, 0.0))
