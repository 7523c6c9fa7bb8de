"""What is the best that a team can do? Certified upper bounds on the entropy of the states that it visits."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from farflung.bounds.climb import MixtureEntropy, TeamEntropy, climb
from farflung.bounds.flows import Flows, flows_of
from farflung.bounds.programs import (
    build,
    check_memory,
    num_nonzeros,
    solve_integer,
    solve_linear,
    trajectories_of,
    visits_of,
)
from farflung.config import CEILING_METHODS
from farflung.config.checks import check_name, check_positive, whole_number
from farflung.worlds.named import make_tabular_world
from farflung.worlds.tabular import TabularMDP
from farflung.worlds.world import World

_MOST_NONZEROS = 30_000
_SECONDS_PER_FLOW = 50e-9


@dataclass(frozen=True)
class Ceiling:
    """What no team exceeds, history-dependent ones included."""

    bound: float
    """In nats."""
    normalized_bound: float
    """In units of the log of the number of states."""
    exact: bool
    """Whether a team reaches the bound, to within the solver's tolerance of a millionth of a nat."""
    method: str
    """milp, lp, frank-wolfe, or counting where the time allowed nothing else."""
    value: float
    """The objective at the visits below, to which the bound could still come down; -inf without visits."""
    visits: Float[np.ndarray, " state"]
    """How often the best team that was found visits each state, in expectation; NaN if none was."""
    trajectories: Int[np.ndarray, "agent times"] | None
    """The states of such a team's walks, one for each agent, where nothing is random."""
    seconds: float

    def percentage(self, entropy: Any) -> Any:
        """An entropy in nats, or several, as a percentage of the bound."""
        return 100 * entropy / self.bound if self.bound > 0 else np.full_like(entropy, 100.0)

    def as_json(self) -> dict[str, Any]:
        names = ("bound", "normalized_bound", "exact", "method", "value", "seconds")
        return {name: getattr(self, name) for name in names}


def ceiling(
    world: str | Path | World,
    agents: int,
    *,
    trajectories: int = 1,
    method: str = "auto",
    time_limit: float | int = 60,
    tolerance: float = 1e-3,
    on_progress: Callable[[float, float], None] | None = None,
) -> Ceiling:
    """What the expected entropy of the states that a team visits cannot exceed.

    >>> round(ceiling("room-det", agents=2).normalized_bound, 4)
    0.748

    Args:
        world: a tabular world, or its name as `farflung explore` takes it.
        agents: how many agents (m).
        trajectories: how many trajectories of each are pooled (K).
        method: milp (exact, for deterministic worlds), lp, frank-wolfe (for worlds of any size), or auto, which takes the first
            of them that suits the world.
        time_limit: in seconds. When it is over, the best bound so far is returned.
        tolerance: how close, relative to the optimum, frank-wolfe should get to it.
        on_progress: told by frank-wolfe of value and bound.
    """
    began = time.perf_counter()
    flows = flows_of(_table_of(world))
    walks = whole_number("agents", agents) * whole_number("trajectories", trajectories)
    check_name("method", method, CEILING_METHODS)
    for name, number in (("time_limit", time_limit), ("tolerance", tolerance)):
        check_positive(name, number)
    if method == "milp" and not flows.is_deterministic:
        raise ValueError("the method 'milp' needs a deterministic world with one start state: choose 'lp' for this one")
    if method in ("milp", "lp"):
        check_memory(flows, walks)
    objective = TeamEntropy(walks * (flows.horizon + 1), walks * flows.most_visits)

    def made(bound: float, is_exact: bool, name: str, value: float, visits: np.ndarray, walked: np.ndarray | None) -> Ceiling:
        bound = value if is_exact else min(bound, _by_counting(flows, objective))
        normalized = bound / float(np.log(max(flows.num_states, 2)))
        return Ceiling(bound, normalized, is_exact, name, value, visits, walked, time.perf_counter() - began)

    if method == "auto" and _SECONDS_PER_FLOW * flows.horizon * flows.successors.size > time_limit:
        return made(np.inf, False, "counting", -np.inf, np.full(flows.num_states, np.nan), None)
    proven = np.inf
    is_small = num_nonzeros(flows, walks) <= _MOST_NONZEROS
    if method == "milp" or (method == "auto" and is_small and flows.is_deterministic):
        program = build(flows, walks)
        solved = solve_integer(program, time_limit)
        if solved.flow is not None:
            visits = visits_of(program, flows, solved.flow, walks)
            walked = trajectories_of(program, flows, solved.flow, walks)
            return made(solved.bound, solved.is_optimal, "milp", objective.value(visits), visits, walked)
        proven = solved.bound
        if method == "milp" and np.isfinite(solved.bound):
            return made(solved.bound, False, "milp", -np.inf, np.full(flows.num_states, np.nan), None)
    elif method == "lp" or (method == "auto" and is_small):
        program = build(flows, walks)
        solved = solve_linear(program, time_limit)
        if solved.flow is not None and solved.prices is not None:
            visits = visits_of(program, flows, solved.flow, walks)
            # The bound is computed anew from the prices, so that it doesn't rest on the solver's tolerances.
            bound = walks * flows.best_response(solved.prices)[0] + objective.conjugate(solved.prices)
            return made(bound, False, "lp", objective.value(visits), visits, None)
    if method in ("lp", "milp"):
        raise ValueError(f"nothing was proven in {time_limit:g} seconds: allow more, or choose the method 'frank-wolfe'")
    left = max(0.0, time_limit - (time.perf_counter() - began))
    climbed = climb(flows, objective, walks, tolerance=tolerance, time_limit=left, on_progress=on_progress)
    return made(min(climbed.bound, proven), False, "frank-wolfe", climbed.value, climbed.visits, None)


def ceiling_by_counting(num_samples: int, num_states: int | None) -> Ceiling:
    """What holds for any world: no distribution over so many samples, or so many states if that is known, has more entropy."""
    bound = float(np.log(num_samples if num_states is None else min(num_samples, num_states)))
    normalized = bound / float(np.log(max(num_states or num_samples, 2)))
    return Ceiling(bound, normalized, False, "counting", -np.inf, np.full(num_states or 0, np.nan), None, 0.0)


def infinite_trials_optimum(
    world: str | Path | World,
    *,
    tolerance: float = 1e-3,
    time_limit: float | int = 60,
    on_progress: Callable[[float, float], None] | None = None,
) -> Ceiling:
    r"""$\max_\pi \mathcal{H}(d_\pi)$, which no mixture of policies exceeds however many samples it draws.

    Its bound is certified by the Frank-Wolfe gap.

    Args:
        tolerance: in nats.
    """
    began = time.perf_counter()
    for name, number in (("time_limit", time_limit), ("tolerance", tolerance)):
        check_positive(name, number)
    flows = flows_of(_table_of(world))
    objective = MixtureEntropy(flows.horizon + 1, flows.is_reachable)
    climbed = climb(flows, objective, 1, tolerance=tolerance, is_relative=False, time_limit=time_limit, on_progress=on_progress)
    bound = min(climbed.bound, float(np.log(np.count_nonzero(flows.is_reachable))))
    normalized = bound / float(np.log(max(flows.num_states, 2)))
    seconds = time.perf_counter() - began
    return Ceiling(bound, normalized, False, "frank-wolfe", climbed.value, climbed.visits, None, seconds)


def _table_of(world: str | Path | World) -> TabularMDP:
    if isinstance(world, str | Path):
        return make_tabular_world(str(world))
    if world.table is not None:
        return world.table
    raise ValueError(
        f"a ceiling is computed from a transition table, and {type(world).__name__} has none: make it a TabularMDP, say with "
        "tabular_mdp over bins of its states"
    )


def _by_counting(flows: Flows, objective: TeamEntropy) -> float:
    """The entropy of all samples spread as evenly as whole numbers allow over the states within reach."""
    num_samples, num_states = len(objective.gains), int(np.count_nonzero(flows.is_reachable))
    each, rest = divmod(num_samples, num_states)
    more = objective.terms[min(each + 1, num_samples)]
    return float((num_states - rest) * objective.terms[each] + rest * more)
