"""The ceiling as a linear program or, in deterministic worlds, as an integer program; HiGHS solves both."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from farflung.bounds.climb import TeamEntropy
from farflung.bounds.flows import Flows
from farflung.config.checks import free_memory

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_BYTES_PER_NONZERO = 1000  # as measured with HiGHS
_MANY_VARIABLES = 4000


class Program(NamedTuple):
    """Maximises the entropy over the flows of agents through (time, state).

    The first variables are flows: the expected number of agents that make each move at each time. The others are, for each
    state and each c, the fraction of the c-th visit to that state.
    """

    costs: Float[np.ndarray, " variable"]
    matrix: "csr_array"
    right_side: Float[np.ndarray, " row"]
    upper: Float[np.ndarray, " variable"]
    times: Int[np.ndarray, " flow"]
    moves: Int[np.ndarray, " flow"]
    """Time and move of each flow."""
    own_state: Int[np.ndarray, " move"]
    targets: "csr_array"
    """Probabilities of the next state of each move: [move, state]."""
    num_nodes: int
    """The number of (time, state) pairs: as many rows conserve the flow; the other rows count the visits to each state."""


class Solved(NamedTuple):
    """The solver's answer."""

    bound: float
    """Upper bound on the entropy of any team; inf if nothing was proven."""
    flow: Float[np.ndarray, " flow"] | None
    """The best solution that was found, if any."""
    prices: Float[np.ndarray, " state"] | None
    is_optimal: bool


def num_nonzeros(flows: Flows, num_agents: int) -> int:
    """An upper estimate of the program's size, without building it."""
    num_moves = int(np.maximum(flows.most_visits - 1, 0).sum()) * flows.num_actions
    return num_moves * (1 + 2 * flows.successors.shape[2]) + int(flows.most_visits.sum()) * num_agents


def check_memory(flows: Flows, num_agents: int) -> None:
    """Raises ValueError if the program would not fit into memory."""
    needed, free = num_nonzeros(flows, num_agents) * _BYTES_PER_NONZERO, free_memory()
    if needed > free:
        raise ValueError(
            f"the program would take about {needed / 2**30:.1f} GiB, but only {free / 2**30:.1f} GiB are free: "
            "choose the method 'frank-wolfe', which needs no more memory than the world"
        )


def build(flows: Flows, num_agents: int, gains: Float[np.ndarray, "state visit"] | None = None) -> Program:
    """The program of a world and a number of agents.

    Args:
        gains: what each visit to a state adds to a separable objective; without them, to the entropy.
    """
    from scipy.sparse import coo_array, csr_array

    own_state, targets = _distinct_moves(flows)
    reach = flows.is_within_reach
    num_nodes = int(reach[:-1].sum())
    node = np.cumsum(reach[:-1].ravel()).reshape(reach[:-1].shape) - 1
    times, moves = np.nonzero(reach[:-1][:, own_state])
    num_flows = len(moves)
    variable = np.arange(num_flows)

    arrivals = coo_array(targets[moves])
    continues = times[arrivals.row] + 1 < flows.horizon
    arrival_nodes = node[times[arrivals.row][continues] + 1, arrivals.col[continues]]

    most_visits = num_agents * flows.most_visits
    ends = np.cumsum(most_visits)
    counts = np.arange(1, ends[-1] + 1) - np.repeat(ends - most_visits, most_visits)
    num_counts = len(counts)

    rows = (
        node[times, own_state[moves]],
        arrival_nodes,
        num_nodes + arrivals.col,
        num_nodes + np.repeat(np.arange(flows.num_states), most_visits),
    )
    columns = (variable, arrivals.row[continues], arrivals.row, num_flows + np.arange(num_counts))
    entries = (np.ones(num_flows), -arrivals.data[continues], -arrivals.data, np.ones(num_counts))
    shape = (num_nodes + flows.num_states, num_flows + num_counts)
    matrix = csr_array((np.concatenate(entries), (np.concatenate(rows), np.concatenate(columns))), shape=shape)

    right_side = np.zeros(shape[0])
    right_side[node[0][reach[0]]] = num_agents * flows.start[reach[0]]
    right_side[num_nodes:] = num_agents * flows.start
    if gains is None:
        added = TeamEntropy(num_agents * (flows.horizon + 1), most_visits).gains[counts - 1]
    else:
        added = gains[np.repeat(np.arange(flows.num_states), most_visits), counts - 1]
    # Flows get no upper bound: its dual variables would change the prices of the states.
    upper = np.concatenate([np.full(num_flows, np.inf), np.ones(num_counts)])
    costs = np.concatenate([np.zeros(num_flows), -added])
    return Program(costs, matrix, right_side, upper, times, moves, own_state, targets, num_nodes)


def solve_linear(program: Program, time_limit: float | int) -> Solved:
    from scipy.optimize import linprog

    bounds = np.stack([np.zeros_like(program.upper), program.upper], axis=1)
    method = "highs-ipm" if len(program.costs) > _MANY_VARIABLES else "highs"
    equalities = {"A_eq": program.matrix, "b_eq": program.right_side}
    found = linprog(program.costs, **equalities, bounds=bounds, method=method, options={"time_limit": time_limit})
    if found.status != 0:
        return Solved(np.inf, None, None, False)
    prices = -found.eqlin.marginals[program.num_nodes :]
    return Solved(-found.fun, found.x[: len(program.moves)], prices, True)


def solve_integer(program: Program, time_limit: float | int) -> Solved:
    from scipy.optimize import Bounds, LinearConstraint, milp

    is_whole = np.zeros(len(program.costs))
    is_whole[: len(program.moves)] = 1
    found = milp(
        program.costs,
        constraints=LinearConstraint(program.matrix, program.right_side, program.right_side),
        bounds=Bounds(0, program.upper),
        integrality=is_whole,
        options={"time_limit": time_limit, "mip_rel_gap": 0.0},
    )
    bound = np.inf if found.mip_dual_bound is None else -found.mip_dual_bound
    if found.x is None:
        return Solved(bound, None, None, False)
    return Solved(bound, np.round(found.x[: len(program.moves)]), None, found.status == 0)


def visits_of(program: Program, flows: Flows, flow: Float[np.ndarray, " flow"], num_agents: int) -> Float[np.ndarray, " state"]:
    """The expected visits of all agents to each state."""
    return num_agents * flows.start + program.targets[program.moves].T @ flow


def trajectories_of(
    program: Program, flows: Flows, flow: Float[np.ndarray, " flow"], num_agents: int
) -> Int[np.ndarray, "agent times"]:
    """One walk per agent that together make up a whole-numbered flow of a deterministic world."""
    walks = [np.full(num_agents, flows.start.argmax())]
    successor = program.targets.indices  # moves of a deterministic world have one successor each
    for time in range(flows.horizon):
        now = program.times == time
        made = np.repeat(program.moves[now], flow[now].astype(int))  # in the order of the states that the agents leave
        following = np.empty_like(walks[-1])
        following[np.argsort(walks[-1], kind="stable")] = successor[made]
        walks.append(following)
    return np.stack(walks, axis=1)


def _distinct_moves(flows: Flows) -> tuple[Int[np.ndarray, " move"], "csr_array"]:
    """State and next-state probabilities of each move; actions with the same effect in a state are one move."""
    kernel = flows.kernel.copy()
    kernel.sum_duplicates()
    kernel.eliminate_zeros()
    # Products with random numbers are equal for equal rows only.
    mark = np.round(kernel @ np.random.default_rng(0).random(flows.num_states), 9)
    own_state = np.repeat(np.arange(flows.num_states), flows.num_actions)
    _, first = np.unique(np.stack([own_state, mark]), axis=1, return_index=True)
    first = np.sort(first)
    return own_state[first], kernel[first].tocsr()
