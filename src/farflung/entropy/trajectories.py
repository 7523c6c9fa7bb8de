"""The entropy of the trajectories that a team plays, as wholes."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from farflung.entropy.counts import gain_of_count
from farflung.entropy.objective import Objective
from farflung.numerics.arrays import exact_sum, flat, lookup, ordered_sum

_LEAST_PROBABILITY = 1e-30
_MOST_TABULATED = 32768
MOMENTS = 4
"""The times of a trajectory of vectors at which its embedding takes the features."""


def of_trajectories() -> Objective:
    r"""The entropy of the empirical distribution $\rho_n$ of a team's n = m K trajectories of numbered states, in nats.

    It is at most $\log n$. As long as other trajectories agree with the own one, they count as equal to it: so the gain at time
    t is what the trajectory would add if it ended as those that agree with it until t, minus the same for t - 1.

    >>> round(float(of_trajectories().value(jnp.array([[[0, 1, 0]], [[0, 1, 2]]]))), 4)  # log 2
    0.6931
    """

    def value(states: Int[Array, "agent trajectory times"]) -> Float[Array, ""]:
        num_equal = _num_agreeing(states)[..., -1].reshape(-1)
        logs = jnp.asarray(np.log(np.arange(1, len(num_equal) + 1)), jnp.float32)
        return math.log(len(num_equal)) - exact_sum(lookup(logs, num_equal - 1), axis=0) / len(num_equal)

    def gains(states: Int[Array, "agent trajectory times"]) -> Float[Array, "agent trajectory times"]:
        added = lookup(jnp.asarray(gain_of_count(states.shape[0] * states.shape[1])), _num_agreeing(states))
        return jnp.diff(added, axis=-1, prepend=0.0)

    return Objective(value, gains, is_below_32=True)


def of_mixture(world: Any, team: Any) -> Objective:
    r"""The entropy $\mathcal{H}(\bar\rho)$ of the mixture $\bar\rho = \frac1m \sum_i \rho_i$ of a team's distributions over
    trajectories, in nats, where the dynamics and the policies are tables.

    The value is the mean surprisal $-\log \bar\rho(\tau)$ of the trajectories that were played: unbiased for teams that played
    equally many each. The gain of a state is its surprisal given its own past, $-\frac1n \log \bar\rho(s_t \mid s_0, \dots,
    s_{t-1})$. With the policies as they are, the gradient of the surprisal itself has the mean 0, so the credits are unbiased.

    Args:
        world: a `TabularMDP`.
        team: a `TabularSoftmax`.
    """

    def log_probabilities(states: Int[Array, "agent trajectory times"], is_whole: bool) -> Float[Array, "one #times"]:
        """Of each trajectory, whole or up to each time, under the mixture."""
        rows = states.reshape(-1, states.shape[2])
        steps = _log_steps(world, team, rows[:, :-1], rows[:, 1:])
        of_agents = exact_sum(steps, axis=-1)[..., None] if is_whole else jnp.cumsum(steps, axis=-1)
        mixed = jax.nn.logsumexp(of_agents, axis=0) - math.log(team.num_agents)
        first = jnp.log(lookup(world.start_distribution, rows[:, 0]))[:, None]
        return first + mixed if is_whole else jnp.concatenate([first, first + mixed], axis=1)

    def value(states: Int[Array, "agent trajectory times"]) -> Float[Array, ""]:
        found = log_probabilities(states, is_whole=True)[:, 0]
        return -exact_sum(found, axis=0) / len(found)

    def gains(states: Int[Array, "agent trajectory times"]) -> Float[Array, "agent trajectory times"]:
        found = log_probabilities(states, is_whole=False)
        return -jnp.diff(found, axis=1, prepend=0.0).reshape(states.shape) / len(found)

    return Objective(value, gains)


def _log_steps(
    world: Any, team: Any, now: Int[Array, "one time"], following: Int[Array, "one time"]
) -> Float[Array, "agent one time"]:
    r"""$\log \sum_a \pi_i(a \mid s) P(s' \mid s, a)$ for each agent i and each step that was taken."""
    num_states, num_actions = world.num_states, world.num_actions
    policies, time = team.probabilities, np.arange(now.shape[1]).reshape(1, -1) * team.is_time_dependent
    if policies.size // num_actions * num_states <= _MOST_TABULATED:
        # In a small world, a table of all pairs of states is computed once, and a whole batch reads it.
        pair = np.arange(num_actions).reshape(1, -1, 1) * num_states + np.arange(num_states).reshape(-1, 1, 1)
        chances = jnp.zeros(num_actions * num_states**2).at[pair * num_states + world.successors].add(world.probabilities)
        chances = chances.reshape(num_actions, num_states, num_states)

        def by_pair(policy: Float[Array, "*time state action"]) -> Float[Array, "*time state following"]:
            by_action = [
                policy[..., None, action] * chances[action].reshape(*[1] * (policy.ndim - 2), num_states, num_states)
                for action in range(num_actions)
            ]
            return functools.reduce(jnp.add, by_action)

        table = _log(jax.lax.map(by_pair, policies))  # by a vmap, XLA would sum anew at each reading
        pairs = (time * num_states + now) * num_states + following
        return jax.vmap(lookup, (0, None))(table.reshape(team.num_agents, -1), pairs)
    moves = now[..., None] * num_actions + np.arange(num_actions).reshape(1, 1, -1)
    outcomes = moves[..., None] * world.num_successors + np.arange(world.num_successors).reshape(1, 1, 1, -1)
    is_next = lookup(flat(world.successors), outcomes) == following[..., None, None]
    chances = ordered_sum(jnp.where(is_next, lookup(flat(world.probabilities), outcomes), 0.0))  # [one, time, action]
    moves = moves + time[..., None] * (num_states * num_actions)
    taken = jax.vmap(lookup, (0, None))(policies.reshape(team.num_agents, -1), moves)  # [agent, one, time, action]
    return _log(ordered_sum(taken * chances[None]))


def _log(chances: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
    return jnp.log(jnp.maximum(chances, _LEAST_PROBABILITY))


def _num_agreeing(states: Int[Array, "agent trajectory times"]) -> Int[Array, "agent trajectory times"]:
    """The number of trajectories, itself among them, that agree with each one up to each time."""
    columns = states.reshape(-1, states.shape[2]).T

    def agree(are_equal: Bool[Array, "one other"], now: Int[Array, " one"]) -> tuple[Bool[Array, "one other"], Array]:
        are_equal &= now[:, None] == now[None]
        return are_equal, jnp.sum(are_equal, axis=1, dtype=jnp.int32)

    _, found = jax.lax.scan(agree, jnp.ones((columns.shape[1],) * 2, bool), columns)
    return found.T.reshape(states.shape)


def nearest_trajectories(
    neighbours: int = 4, *, scale: Sequence[float] = (), angles: Sequence[int] = (), floor: float = 1e-3
) -> Objective:
    r"""The k-nearest-neighbour entropy of a team's trajectories of vectors, each as one point: its embedding.

    The embedding of a trajectory is the list of its features at the times T/4, T/2, 3T/4 and T (rounded up), divided by their
    scale; angles are points on a circle. An episode that ended before stays where it ended. The estimate is that of
    `nearest_neighbours`; with n = m K trajectories, k is at most n - 1.

    A gain is a difference of two values: with the own trajectory's embedding known up to this time, and before. Of a partly
    known embedding, the squared distances are those over the known moments times all moments / known moments.
    """

    def value(states: Float[Array, "agent trajectory times feature"]) -> Float[Array, ""]:
        moments = _moments(states, scale, angles)
        squared = jnp.where(np.eye(len(moments), dtype=bool), jnp.inf, jnp.sum(_by_moment(moments), axis=0))
        k = min(neighbours, len(moments) - 1)
        return _mean_surprisal(jnp.sort(squared, axis=1)[:, k - 1], k, states.shape[3], scale, floor)

    def gains(states: Float[Array, "agent trajectory times feature"]) -> Float[Array, "agent trajectory times"]:
        moments = _moments(states, scale, angles)
        by_moment, num = _by_moment(moments), len(moments)
        k, is_self = min(neighbours, num - 1), np.eye(num, dtype=bool)
        known = np.arange(1, MOMENTS + 1).reshape(-1, 1, 1)
        partly = jnp.cumsum(by_moment, axis=0) * (MOMENTS / known)
        nearest = jnp.sort(jnp.where(is_self, jnp.inf, partly[-1]), axis=1)
        nearest = jnp.concatenate([jnp.zeros((num, 1)), nearest], axis=1)  # the k-th is at index k
        # Of each other trajectory (axis 0), the k-th and the one before among all but the own trajectory (axis 1).
        own, last, before = partly[-1], nearest[:, k, None], nearest[:, k - 1, None]
        kth = jnp.where(own <= last, nearest[:, k + 1, None], last)
        one_less = jnp.where((own <= before) & (k > 1), last, before)
        of_others = jnp.clip(partly, one_less[None], kth[None])  # [moment, other, own]
        of_own = jnp.sort(jnp.where(is_self[None], jnp.inf, partly), axis=2)[:, :, k - 1]  # [moment, own]
        squared = jnp.where(is_self[None], of_own[:, None, :], of_others)
        found = jax.vmap(jax.vmap(lambda each: _mean_surprisal(each, k, states.shape[3], scale, floor), in_axes=1))(
            squared
        )  # [moment, own]
        steps = jnp.diff(found, axis=0, prepend=0.0).T.reshape(*states.shape[:2], MOMENTS)
        return jnp.zeros(states.shape[:3]).at[..., _times(states.shape[2])].add(steps)

    return Objective(value, gains)


def _times(num_times: int) -> Int[np.ndarray, " moment"]:
    return np.array([-(-(num_times - 1) * number // MOMENTS) for number in range(1, MOMENTS + 1)])


def _moments(
    states: Float[Array, "agent trajectory times feature"], scale: Sequence[float], angles: Sequence[int]
) -> Float[Array, "one moment coordinate"]:
    """The coordinates of each trajectory at the moments of the embedding; after an episode's end those of its last state."""
    if states.shape[0] * states.shape[1] < 2:
        raise ValueError("the entropy of trajectories needs at least 2 of them: choose more agents or more trajectories")
    every = states.reshape(-1, *states.shape[2:])
    last = jnp.sum(jnp.all(jnp.isfinite(every), axis=-1), axis=-1) - 1
    time = jnp.clip(_times(every.shape[1])[None], 0, jnp.maximum(last, 0)[:, None])
    found = jnp.take_along_axis(every, time[..., None], axis=1)
    units = np.array(scale or [1.0] * found.shape[-1], np.float32)[None, None]
    is_angle = np.isin(np.arange(found.shape[-1]), angles)
    scaled = jnp.where(is_angle[None, None], jnp.cos(found), found) / units
    return jnp.concatenate([scaled, (jnp.sin(found) / units)[..., is_angle]], axis=-1)


def _by_moment(moments: Float[Array, "one moment coordinate"]) -> Float[Array, "moment one other"]:
    """The squared distance of each pair of trajectories at each moment."""
    columns = jnp.moveaxis(moments, 1, 0)
    return jnp.sum((columns[:, :, None] - columns[:, None]) ** 2, axis=-1)


def _mean_surprisal(
    squared: Float[Array, " one"], k: int, num_features: int, scale: Sequence[float], floor: float
) -> Float[Array, ""]:
    from scipy.special import digamma  # takes a while, and counts don't need it

    size, number = MOMENTS * num_features, squared.shape[0]
    log_volume = size / 2 * math.log(math.pi) - math.lgamma(size / 2 + 1) + MOMENTS * float(np.sum(np.log(scale or [1.0])))
    constant = float(digamma(number) - digamma(k)) + log_volume
    return constant + size / 2 * jnp.mean(jnp.log(jnp.maximum(squared, floor**2)))
