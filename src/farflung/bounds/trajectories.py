r"""The entropy of trajectories in finite worlds: exact values, and the largest that any policy has.

A trajectory is the list of its states, $\tau = (s_0, \dots, s_T)$. Under a Markov policy the next state depends on the past
only through the present one, so the entropy of the trajectory is that of the first state plus the expected entropies of the
steps.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from farflung.bounds.flows import Flows, flows_of
from farflung.worlds.tabular import TabularMDP

_MOST_TRAJECTORIES = 300_000
_MOST_ITERATIONS = 2000
_TOLERANCE = 1e-9
_LEAST = 1e-300


class TrajectoryEntropy(NamedTuple):
    """The entropy of the trajectories of a team's mixture, in nats."""

    value: float
    standard_error: float
    """0 if the value is exact."""


class LargestTrajectoryEntropy(NamedTuple):
    """The largest entropy of trajectories that any policy has, also with memory."""

    bound: float
    """Certified: no policy exceeds it."""
    value: float
    """The exact entropy of `policy`."""
    policy: Float[np.ndarray, "time state action"]


class Steps(NamedTuple):
    """The distinct next states of each state, and their probabilities for each action."""

    next_states: Int[np.ndarray, "state next"]
    probabilities: Float[np.ndarray, "state action next"]
    """0 where a state has fewer next states than others."""


def trajectory_entropy(world: TabularMDP, action_probabilities: ArrayLike) -> float:
    r"""The exact entropy of the trajectories of one Markov policy, in nats, by backward induction.

    $V_t(s) = \mathcal{H}(P_\pi(\cdot \mid s)) + \sum_{s'} P_\pi(s' \mid s) V_{t+1}(s')$; the entropy is
    $\mathcal{H}(\mu) + \mathbb{E} V_0$.

    Args:
        action_probabilities: [state, action], or [time, state, action].
    """
    flows = flows_of(world)
    steps = _steps(flows)
    values = np.zeros(flows.num_states)
    for policy in reversed(_by_time(flows, action_probabilities)):
        moved = np.einsum("sa,san->sn", policy, steps.probabilities)
        values = _entropies(moved) + np.sum(moved * values[steps.next_states], axis=1)
    return float(_entropies(flows.start) + flows.start @ values)


def mixture_trajectory_entropy(
    world: TabularMDP, team: ArrayLike, *, num_samples: int = 20_000, seed: int = 0
) -> TrajectoryEntropy:
    """The entropy of the mixture of a team's trajectory distributions: an agent is drawn, and then its trajectory.

    It is exact if the team has at most 300,000 possible trajectories. Otherwise it is the mean surprisal of sampled
    trajectories, equally many of each agent, whose probabilities are exact.

    Args:
        team: the action probabilities [agent, state, action], or [agent, time, state, action].
        num_samples: trajectories of each agent, if they are sampled.
    """
    found = trajectory_distributions(world, team)
    if found is not None:
        return TrajectoryEntropy(float(_entropies(found.mean(axis=0))), 0.0)
    flows = flows_of(world)
    steps, moves = _steps(flows), _moves(flows, team)
    generator = np.random.default_rng(seed)
    num_agents = moves.shape[1]
    own = np.repeat(np.arange(num_agents), num_samples)
    states = generator.choice(flows.num_states, size=len(own), p=flows.start)
    logs = np.log(flows.start[states])[:, None] * np.ones(num_agents)
    for moved in moves:  # [agent, state, next]
        rows = moved[own, states]
        chosen = np.minimum((rows.cumsum(axis=1) < generator.random((len(own), 1))).sum(axis=1), rows.shape[1] - 1)
        with np.errstate(divide="ignore"):
            logs += np.log(moved[:, states, chosen].T)
        states = steps.next_states[states, chosen]
    largest = logs.max(axis=1, keepdims=True)
    surprisals = -(largest[:, 0] + np.log(np.mean(np.exp(logs - largest), axis=1))).reshape(num_agents, num_samples)
    error = float(np.sqrt(surprisals.var(axis=1, ddof=1).mean() / (num_agents * num_samples)))
    return TrajectoryEntropy(float(surprisals.mean()), error)


def trajectory_distributions(
    world: TabularMDP, team: ArrayLike, *, most: int = _MOST_TRAJECTORIES
) -> Float[np.ndarray, "agent trajectory"] | None:
    """Each agent's exact distribution over all trajectories that the team can play; None if there are more than `most`."""
    flows = flows_of(world)
    steps, moves = _steps(flows), _moves(flows, team)
    states = np.flatnonzero(flows.start)
    probabilities = np.repeat(flows.start[None, states], moves.shape[1], axis=0)
    for moved in moves:
        grown = probabilities[:, :, None] * moved[:, states]
        is_possible = grown.any(axis=0)
        if np.count_nonzero(is_possible) > most:
            return None
        states, probabilities = steps.next_states[states][is_possible], grown[:, is_possible]
    return probabilities


def largest_trajectory_entropy(world: TabularMDP) -> LargestTrajectoryEntropy:
    r"""The largest entropy of trajectories of any policy: entropy-regularised dynamic programming.

    $V_t(s) = \max_\pi \mathcal{H}(q) + \langle q, V_{t+1} \rangle$ over the distributions q of the next state that mixtures of
    actions have: concave, and solved by the iteration of Blahut and Arimoto. For any q, the optimum is at most
    $\max_a \sum_{s'} P(s' \mid s, a) (V_{t+1}(s') - \log q(s'))$, which is what the bound adds up. In deterministic worlds one
    iteration gives $V_t(s) = \log \sum_{s'} e^{V_{t+1}(s')}$, the log of the number of trajectories.
    """
    flows = flows_of(world)
    steps = _steps(flows)
    values, policies = np.zeros(flows.num_states), []
    for _ in range(flows.horizon):
        policy = np.full((flows.num_states, flows.num_actions), 1 / flows.num_actions)
        best = np.full(flows.num_states, np.inf)
        for _ in range(_MOST_ITERATIONS):
            moved = np.einsum("sa,san->sn", policy, steps.probabilities)
            surprisal = values[steps.next_states] - np.log(np.maximum(moved, _LEAST))
            scores = np.einsum("san,sn->sa", steps.probabilities, surprisal)
            highest = scores.max(axis=1, keepdims=True)
            best = np.minimum(best, highest[:, 0])
            if np.max(best - np.sum(policy * scores, axis=1)) < _TOLERANCE:
                break
            policy = policy * np.exp(scores - highest)
            policy /= policy.sum(axis=1, keepdims=True)
        values = best
        policies.append(policy)
    found = np.array(policies[::-1])
    bound = float(_entropies(flows.start) + flows.start @ values)
    return LargestTrajectoryEntropy(bound, trajectory_entropy(world, found), found)


def _steps(flows: Flows) -> Steps:
    every = flows.successors.reshape(flows.num_states, -1)
    order = np.sort(every, axis=1)
    is_new = np.diff(order, axis=1, prepend=-1) > 0
    width = int(is_new.sum(axis=1).max())
    next_states = np.repeat(order[:, -1:], width, axis=1)
    rank = np.cumsum(is_new, axis=1) - 1
    rows = np.arange(flows.num_states)[:, None]
    next_states[rows, rank] = order
    place = np.take_along_axis(rank, np.argsort(np.argsort(every, axis=1, kind="stable"), axis=1), axis=1)
    probabilities = np.zeros((flows.num_states, flows.num_actions, width))
    shape = flows.successors.shape
    index = (rows[:, :, None], np.arange(flows.num_actions)[None, :, None], place.reshape(shape))
    np.add.at(probabilities, index, flows.probabilities)
    return Steps(next_states, probabilities)


def _by_time(flows: Flows, action_probabilities: ArrayLike) -> Float[np.ndarray, "time state action"]:
    policy = np.asarray(action_probabilities, np.float64)
    policy = policy / policy.sum(axis=-1, keepdims=True)
    return np.broadcast_to(policy, (flows.horizon, flows.num_states, flows.num_actions))


def _moves(flows: Flows, team: ArrayLike) -> Float[np.ndarray, "time agent state next"]:
    """The probability of each next state of each agent."""
    policies = np.stack([_by_time(flows, policy) for policy in np.asarray(team)], axis=1)
    return np.einsum("tisa,san->tisn", policies, _steps(flows).probabilities)


def _entropies(distributions: Float[np.ndarray, "*axes outcome"]) -> Float[np.ndarray, "*axes"]:
    return np.asarray(-np.sum(distributions * np.log(np.where(distributions > 0, distributions, 1.0)), axis=-1))
