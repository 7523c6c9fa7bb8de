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
from farflung.bounds.climb import MixtureEntropy, MixtureUtility, TeamEntropy, climb, separate_terms
from farflung.bounds.flows import Flows, flows_of
from farflung.bounds.trajectories import largest_trajectory_entropy
from farflung.config import CEILING_METHODS
from farflung.config.checks import check_name, check_positive, whole_number
from farflung.config.options import OBJECTIVE, objective_terms
from farflung.entropy.objective import Utility
from farflung.worlds.named import make_tabular_world
from farflung.worlds.tabular import TabularMDP
from farflung.worlds.world import World

_MOST_NONZEROS = 30_000
_SECONDS_PER_FLOW = 50e-9
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Ceiling:
    """An upper bound on the expected entropy, or another objective, of any team, also of policies with memory."""

    bound: float
    """In nats, if the objective is."""
    normalized_bound: float
    """The bound divided by the log of the number of states."""
    exact: bool
    """Whether a team reaches the bound, up to the solver's tolerance of a millionth of a nat."""
    method: str
    """milp, lp, frank-wolfe, or counting if the time limit allows nothing else; for other objectives also entropy-regularised
    (trajectories), information (skills) and sum."""
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
    objective: str | Utility = OBJECTIVE,
    trajectories: int = 1,
    method: str = "auto",
    time_limit: float | int = 60,
    tolerance: float = 1e-3,
    on_progress: Callable[[float, float], None] | None = None,
) -> Ceiling:
    """An upper bound on the expected entropy of the states that any team of this size visits, or on another objective.

    >>> round(ceiling("room-det", agents=2).normalized_bound, 4)
    0.748
    >>> import math
    >>> round(math.exp(ceiling("room-det", agents=2, objective="trajectory").bound))  # the number of trajectories
    15809

    Args:
        world: a world with a transition table, or its name as in `farflung explore`.
        agents: number of agents (m).
        objective: a name, a weighted sum of names, or a concave `Utility`.
        trajectories: number of pooled trajectories per agent (K).
        method: milp (exact, for deterministic worlds), lp, frank-wolfe (for worlds of any size), or auto: the first of these
            that suits the world.
        time_limit: in seconds; afterwards the best bound so far is returned.
        tolerance: relative distance to the optimum at which frank-wolfe stops.
        on_progress: frank-wolfe calls it with value and bound a few times a second.
    """
    began = time.perf_counter()
    if objective != OBJECTIVE:
        if method not in ("auto", "frank-wolfe"):
            raise ValueError(f"the method '{method}' is for the entropy of states: leave it out for other objectives")
        rest = {"time_limit": time_limit, "tolerance": tolerance, "on_progress": on_progress}
        return _of_objective(_table_of(world), whole_number("agents", agents), objective, trajectories, **rest)
    flows = flows_of(_table_of(world))
    walks = whole_number("agents", agents) * whole_number("trajectories", trajectories)
    check_name("method", method, CEILING_METHODS)
    for name, number in (("time_limit", time_limit), ("tolerance", tolerance)):
        check_positive(name, number)
    if method == "milp" and not flows.is_deterministic:
        raise ValueError("the method 'milp' needs a deterministic world with one start state: choose 'lp' instead")
    if method in ("milp", "lp"):
        programs.check_memory(flows, walks)
    entropy = TeamEntropy(walks * (flows.horizon + 1), walks * flows.most_visits)

    def result(name: str, bound: float, visits: Any = None, *, is_exact: bool = False, walked: Any = None) -> Ceiling:
        value = -np.inf if visits is None else entropy.value(visits)
        bound = value if is_exact else min(bound, _by_counting(flows, entropy))
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
            bound = walks * flows.best_response(solved.prices)[0] + entropy.conjugate(solved.prices, visits)
            return result("lp", bound, visits)
    if method in ("lp", "milp"):
        raise ValueError(
            f"the method '{method}' has proven no bound in {time_limit:g} seconds: allow more time, or choose 'frank-wolfe'"
        )
    left = max(0.0, time_limit - (time.perf_counter() - began))
    climbed = climb(flows, entropy, walks, tolerance=tolerance, time_limit=left, on_progress=on_progress)
    return result("frank-wolfe", min(climbed.bound, proven), climbed.visits)


def _of_objective(world: TabularMDP, num_agents: int, objective: str | Utility, num_trajectories: int, **rest: Any) -> Ceiling:
    """The ceiling of an objective that is not the entropy of states alone."""
    began = time.perf_counter()
    flows = flows_of(world)
    nowhere = np.full(flows.num_states, np.nan)

    def proven(bound: float, method: str, value: float = -np.inf, visits: Any = nowhere, *, is_exact: bool = False) -> Ceiling:
        normalized, seconds = _normalized(bound, flows.num_states), time.perf_counter() - began
        return Ceiling(bound, normalized, is_exact, method, value, visits, None, seconds)

    if isinstance(objective, Utility):
        walks = num_agents * num_trajectories
        is_small = programs.num_nonzeros(flows, walks) <= _MOST_NONZEROS
        separated = is_small and objective.is_separable and objective.features is None
        if separated and (found := _of_separable(flows, walks, objective, rest["time_limit"])) is not None:
            return proven(*found[:-1], is_exact=found[-1])
        # Of all concave functions of the shares, the mean is at most the function of the mean (Jensen).
        utility = MixtureUtility(objective, flows.horizon + 1, flows.is_reachable)
        climbed = climb(flows, utility, 1, is_relative=False, **rest)
        return proven(climbed.bound, "frank-wolfe", climbed.value, climbed.visits)
    terms = objective_terms(objective)
    if len(terms) > 1 or list(terms.values()) != [1.0]:
        parts = {name: ceiling(world, num_agents, objective=name, trajectories=num_trajectories, **rest) for name in terms}
        bounds = [sum(weight * parts[name].bound for name, weight in terms.items())]
        if terms.keys() == {"own", "skills"}:  # own + w skills = w state + (1 - w) own
            whole = ceiling(world, num_agents, trajectories=num_trajectories, **rest).bound
            bounds.append(terms["skills"] * whole + max(0.0, terms["own"] - terms["skills"]) * parts["own"].bound)
        return proven(min(bounds), "sum")
    (name,) = terms
    if name == "own":
        return ceiling(world, 1, trajectories=num_trajectories, **rest)
    if name == "skills":
        # The agent and the time are independent: I(agent; state) is at most the mean over the times of I(agent; state at t).
        reach = np.count_nonzero(flows.is_within_reach, axis=1)
        return proven(float(np.mean(np.log(np.minimum(reach, num_agents)))), "information")
    # A mixture of policies is a policy with memory, and such a policy has no more entropy than the best Markov policy.
    largest = largest_trajectory_entropy(world)
    return proven(largest.bound, "entropy-regularised", largest.value, is_exact=largest.bound - largest.value < _TOLERANCE)


def _of_separable(
    flows: Flows, walks: int, utility: Utility, time_limit: float | int
) -> tuple[float, str, float, Float[np.ndarray, " state"], bool] | None:
    """The bound of a separable utility for finitely many walks, the method, value and visits found, and whether it is exact."""
    num_samples, most = walks * (flows.horizon + 1), walks * flows.most_visits
    terms, nothing = separate_terms(utility, num_samples, flows.num_states, int(most.max()))
    gains = np.diff(terms, axis=1)
    program = programs.build(flows, walks, gains)
    states = np.arange(flows.num_states)
    if flows.is_deterministic and (np.diff(gains, axis=1) <= _TOLERANCE).all():
        solved = programs.solve_integer(program, time_limit)
        if solved.flow is None:
            return None
        visits = programs.visits_of(program, flows, solved.flow, walks)
        value = nothing + float(terms[states, np.round(visits).astype(int)].sum())
        return (value if solved.is_optimal else nothing + solved.bound), "milp", value, visits, solved.is_optimal
    solved = programs.solve_linear(program, time_limit)
    if solved.flow is None or solved.prices is None:
        return None
    # The bound is computed again from the prices, as for the entropy.
    earned = terms - solved.prices[:, None] * np.arange(terms.shape[1])
    within = np.where(np.arange(terms.shape[1]) <= most[:, None], earned, -np.inf)
    bound = nothing + walks * flows.best_response(solved.prices)[0] + float(within.max(axis=1).sum())
    return bound, "lp", -np.inf, programs.visits_of(program, flows, solved.flow, walks), False


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
