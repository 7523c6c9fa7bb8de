"""Ceilings: certified upper bounds on the entropy of the states that a team visits."""

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from farflung.bounds import programs
from farflung.bounds.climb import MixtureEntropy, TeamEntropy, climb
from farflung.bounds.flows import Flows, flows_of
from farflung.config import CEILING_METHODS
from farflung.config.checks import check_name, check_positive, whole_number
from farflung.worlds.named import make_tabular_world
from farflung.worlds.tabular import TabularMDP
from farflung.worlds.world import World

_MOST_NONZEROS = 30_000
_SECONDS_PER_FLOW = 50e-9


@dataclass(frozen=True)
class Ceiling:
    """An upper bound on the expected entropy of any team, also of policies with memory."""

    bound: float
    """In nats."""
    normalized_bound: float
    """The bound divided by the log of the number of states."""
    exact: bool
    """Whether a team reaches the bound, up to the solver's tolerance of a millionth of a nat."""
    method: str
    """milp, lp, frank-wolfe, or counting if the time limit allows nothing else."""
    value: float
    """The objective at `visits`: no better method can lower the bound below it. -inf without visits."""
    visits: Float[np.ndarray, " state"]
    """The expected visits of the best team that was found to each state; NaN without such a team."""
    trajectories: Int[np.ndarray, "agent times"] | None
    """The states that the agents of this team visit, if the world is deterministic."""
    seconds: float

    def percentage(self, entropy: Any) -> Any:
        """One or several entropies in nats, as percentages of the bound."""
        return 100 * entropy / self.bound if self.bound > 0 else np.full_like(entropy, 100.0)

    def in_units_of(self, num_states: int) -> "Ceiling":
        """The same bound, where the number of states is known only after training."""
        return dataclasses.replace(self, normalized_bound=_normalized(self.bound, num_states))

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
    """An upper bound on the expected entropy of the states that any team of this size visits.

    >>> round(ceiling("room-det", agents=2).normalized_bound, 4)
    0.748

    Args:
        world: a world with a transition table, or its name as in `farflung explore`.
        agents: number of agents (m).
        trajectories: number of pooled trajectories per agent (K).
        method: milp (exact, for deterministic worlds), lp, frank-wolfe (for worlds of any size), or auto: the first of these
            that suits the world.
        time_limit: in seconds; afterwards the best bound so far is returned.
        tolerance: relative distance to the optimum at which frank-wolfe stops.
        on_progress: frank-wolfe calls it with value and bound a few times a second.
    """
    began = time.perf_counter()
    flows = flows_of(_table_of(world))
    walks = whole_number("agents", agents) * whole_number("trajectories", trajectories)
    check_name("method", method, CEILING_METHODS)
    for name, number in (("time_limit", time_limit), ("tolerance", tolerance)):
        check_positive(name, number)
    if method == "milp" and not flows.is_deterministic:
        raise ValueError("the method 'milp' needs a deterministic world with one start state: choose 'lp' instead")
    if method in ("milp", "lp"):
        programs.check_memory(flows, walks)
    objective = TeamEntropy(walks * (flows.horizon + 1), walks * flows.most_visits)

    def result(name: str, bound: float, visits: Any = None, *, is_exact: bool = False, walked: Any = None) -> Ceiling:
        value = -np.inf if visits is None else objective.value(visits)
        bound = value if is_exact else min(bound, _by_counting(flows, objective))
        visits = np.full(flows.num_states, np.nan) if visits is None else visits
        normalized = _normalized(bound, flows.num_states)
        return Ceiling(bound, normalized, is_exact, name, value, visits, walked, time.perf_counter() - began)

    if method == "auto" and _SECONDS_PER_FLOW * flows.horizon * flows.successors.size > time_limit:
        return result("counting", np.inf)
    proven = np.inf
    is_small = programs.num_nonzeros(flows, walks) <= _MOST_NONZEROS
    if method == "milp" or (method == "auto" and is_small and flows.is_deterministic):
        program = programs.build(flows, walks)
        solved = programs.solve_integer(program, time_limit)
        if solved.flow is not None:
            visits = programs.visits_of(program, flows, solved.flow, walks)
            walked = programs.trajectories_of(program, flows, solved.flow, walks)
            return result("milp", solved.bound, visits, is_exact=solved.is_optimal, walked=walked)
        proven = solved.bound
        if method == "milp" and np.isfinite(proven):
            return result("milp", proven)
    elif method == "lp" or (method == "auto" and is_small):
        program = programs.build(flows, walks)
        solved = programs.solve_linear(program, time_limit)
        if solved.flow is not None and solved.prices is not None:
            visits = programs.visits_of(program, flows, solved.flow, walks)
            # The bound is computed again from the prices: it then does not depend on the solver's tolerances.
            bound = walks * flows.best_response(solved.prices)[0] + objective.conjugate(solved.prices)
            return result("lp", bound, visits)
    if method in ("lp", "milp"):
        raise ValueError(
            f"the method '{method}' has proven no bound in {time_limit:g} seconds: allow more time, or choose 'frank-wolfe'"
        )
    left = max(0.0, time_limit - (time.perf_counter() - began))
    climbed = climb(flows, objective, walks, tolerance=tolerance, time_limit=left, on_progress=on_progress)
    return result("frank-wolfe", min(climbed.bound, proven), climbed.visits)


def ceiling_by_counting(num_samples: int, num_states: int | None) -> Ceiling:
    """The counting bound, which holds for every world: the log of the number of samples, or of states if there are fewer.

    Args:
        num_states: None if the number of states is unknown.
    """
    bound = float(np.log(num_samples if num_states is None else min(num_samples, num_states)))
    normalized = _normalized(bound, num_states or num_samples)
    return Ceiling(bound, normalized, False, "counting", -np.inf, np.full(num_states or 0, np.nan), None, 0.0)


def infinite_trials_optimum(
    world: str | Path | World,
    *,
    tolerance: float = 1e-3,
    time_limit: float | int = 60,
    on_progress: Callable[[float, float], None] | None = None,
) -> Ceiling:
    r"""The optimum $\max_\pi \mathcal{H}(d_\pi)$ for infinitely many samples: no mixture of policies exceeds it.

    The Frank-Wolfe gap certifies the bound.

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
    normalized = _normalized(bound, flows.num_states)
    seconds = time.perf_counter() - began
    return Ceiling(bound, normalized, False, "frank-wolfe", climbed.value, climbed.visits, None, seconds)


def _normalized(bound: float, num_states: int) -> float:
    return bound / float(np.log(max(num_states, 2)))


def _table_of(world: str | Path | World) -> TabularMDP:
    if isinstance(world, str | Path):
        return make_tabular_world(str(world))
    if world.table is not None:
        return world.table
    raise ValueError(
        f"a ceiling needs a transition table, and {type(world).__name__} has none: build a TabularMDP, for instance with "
        "tabular_mdp over bins of the states"
    )


def _by_counting(flows: Flows, objective: TeamEntropy) -> float:
    """The entropy of the samples if they are spread over the reachable states as evenly as whole numbers allow."""
    num_samples, num_states = len(objective.gains), int(np.count_nonzero(flows.is_reachable))
    each, rest = divmod(num_samples, num_states)
    more = objective.terms[min(each + 1, num_samples)]
    return float((num_states - rest) * objective.terms[each] + rest * more)
