"""The k-nearest-neighbour estimate of the entropy of states that are vectors."""

import functools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from farflung.entropy.objective import Objective
from farflung.numerics.arrays import exact_sum, lookup, ordered_sum, runs_on_cpu

if TYPE_CHECKING:
    from scipy.spatial import KDTree

_FLOOR = 1e-3
_MOST_LEFT_OUT = 16
_MOST_INSERTED = 32_000
_MOST_NUMBERS_PER_ARGUMENT = 8192
MOST_COMPARED = 32_768
"""With more states than this, a gain compares a state with some of the other trajectories alone."""
_NUM_REFERENCES = 8192
_TRAJECTORIES_AT_ONCE = 256
_MOST_STORED = 2**27
"""Distances that a GPU computes at once; in case that XLA stores them, they take half a gigabyte for each batch element."""


def nearest_neighbours(
    neighbours: int = 4,
    *,
    scale: Sequence[float] = (),
    angles: Sequence[int] = (),
    is_ragged: bool = False,
    floor: float = _FLOOR,
) -> Objective:
    r"""The entropy of the states' density, in nats, estimated from each state's distance to its k-th nearest neighbour.

    It is the mean surprisal of the n states, $\psi(n) - \psi(k) + \log V_d + d \log \epsilon_k$ (Kozachenko and Leonenko),
    where $V_d$ is the volume of the unit ball in d dimensions. A gain is the surprisal of a state among all states of the
    other trajectories and its own past, divided by n. With fewer than k neighbours, the farthest counts as the k-th.

    If there are more than 32,768 states of many trajectories, a state's surprisal in a gain is the one among about 8,192 states
    of other trajectories, drawn at random from all agents', and its own past. The cost of gains is then linear in the number of
    agents. Distances to fewer neighbours are larger, so a gain sees the density at a coarser resolution.

    States are vectors: [agent, trajectory, time, feature]. States with a feature that is not finite lie after an episode's
    end and don't count.

    Args:
        neighbours: k.
        scale: a typical difference in each feature; features are divided by it before distances are measured, but the
            entropy stays that of the unscaled features (default: no scaling).
        angles: indices of the features that are angles in radians; distances are measured between points on a circle, so
            that the ends of an angle's range are near each other.
        is_ragged: whether episodes may end early. If so, a gain is a state's surprisal minus the mean surprisal of the other
            trajectories' states (without its trajectory) and of its own past, divided by the number of all these states and
            itself. So a gain never depends on the state's own future. This takes one more evaluation for each trajectory;
            with more than 16 trajectories, one in all, because one trajectory then hardly changes the others' surprisal.
        floor: minimum distance, after scaling. Without it, the log distance between equal states, as of an agent stuck in a
            corner, would be minus infinity. A thousandth of a typical difference is less than the distance of states that
            differ, and costs $d \log 1000$ nats, which doesn't dominate the gradient. For many states in one dimension, whose
            distances are about k / 2 n, choose a smaller floor. `num_duplicates` counts the states at the floor.

    >>> corners = jnp.array([[[[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]]])
    >>> round(float(nearest_neighbours(1).value(corners)), 4)  # 1 + 1/2 + 1/3 + log pi
    2.9781
    """
    _check(neighbours, scale, floor)
    from scipy.special import digamma  # takes a while, and counts don't need it

    def surprisals(
        points: Float[Array, "state feature"], num_times: int
    ) -> tuple[Float[Array, " state"], Int[Array, " state"]]:
        """Each state's surprisal, zero without neighbours, and the number of other trajectories' states and of its own past."""
        num_states, num_features = len(points), points.shape[1] - len(angles)
        before = jnp.cumulative_sum(_is_real(points), dtype=jnp.int32, include_initial=True)
        hidden_until, references = _hidden_until(num_states, num_times), _references(points, num_times)
        num_there = num_seen = before[-1] - before[hidden_until] + before[:-1]
        if references is None:
            nearest = _kth_squared_distances(points, num_times, neighbours)
        else:
            num_seen = before[:-1] - before[hidden_until - num_times] + _num_real(points, references, num_times)
            nearest = _kth_among_references(points, references, num_times, neighbours)
        log_volume = num_features / 2 * math.log(math.pi) - math.lgamma(num_features / 2 + 1) + float(np.sum(np.log(scale)))
        squared = jnp.maximum(nearest, floor**2)
        psi = jnp.asarray(digamma(np.arange(1, num_states + 1)), jnp.float32)
        few = lookup(psi, jnp.clip(num_seen, 1, neighbours) - 1)
        found = lookup(psi, num_seen) - few + log_volume + num_features / 2 * jnp.log(squared)
        return jnp.where(_is_real(points) & (num_seen > 0), found, 0.0), num_there

    def mean_surprisal(points: Float[Array, "state feature"]) -> Float[Array, ""]:
        return exact_sum(surprisals(points, 1)[0], axis=0) / jnp.maximum(jnp.sum(_is_real(points)), 1)

    def sums_of_others(points: Float[Array, "state feature"], num_times: int) -> Float[Array, " trajectory"]:
        """For each trajectory, the sum of the others' surprisals without it; with many trajectories, the sum with it."""
        num_trajectories = len(points) // num_times
        if num_trajectories > _MOST_LEFT_OUT:
            by_trajectory = exact_sum(surprisals(points, 1)[0].reshape(-1, num_times), axis=1)
            return exact_sum(by_trajectory, axis=0) - by_trajectory
        trajectory = jnp.arange(len(points)) // num_times

        def of_others(own: Int[Array, ""]) -> Float[Array, ""]:
            others = jnp.where(trajectory[:, None] == own, jnp.nan, points)
            return mean_surprisal(others) * jnp.sum(_is_real(others))

        return jax.vmap(of_others)(jnp.arange(num_trajectories))

    def value(states: Float[Array, "*axes feature"]) -> Float[Array, ""]:
        return mean_surprisal(_points(states, neighbours, scale, angles))

    def gains(states: Float[Array, "*axes feature"]) -> Float[Array, "*axes"]:
        points, num_times = _points(states, neighbours, scale, angles), states.shape[2]
        found, num_there = surprisals(points, num_times)
        if not is_ragged:
            return (found / jnp.maximum(jnp.sum(_is_real(points)), 1)).reshape(states.shape[:3])
        own = found.reshape(-1, num_times)
        there = sums_of_others(points, num_times)[:, None] + jnp.cumulative_sum(own, axis=1, include_initial=True)[:, :-1]
        num_there = num_there.reshape(own.shape)
        gain = (own - there / jnp.maximum(num_there, 1)) / (num_there + 1)
        is_counted = _is_real(points).reshape(own.shape) & (num_there > 0)
        return jnp.where(is_counted, gain, 0.0).reshape(states.shape[:3])

    return Objective(value, gains)


def num_duplicates(
    states: Float[Array, "agent trajectory times feature"],
    neighbours: int = 4,
    *,
    scale: Sequence[float] = (),
    angles: Sequence[int] = (),
    floor: float = _FLOOR,
) -> Int[Array, ""]:
    """The number of states whose distance to their k-th neighbour is at most the floor of `nearest_neighbours`."""
    _check(neighbours, scale, floor)
    squared = _kth_squared_distances(_points(states, neighbours, scale, angles), 1, neighbours)
    return jnp.sum((squared >= 0) & (squared <= floor**2))


def _check(neighbours: int, scale: Sequence[float], floor: float) -> None:
    if neighbours < 1:
        raise ValueError(f"neighbours: expected at least 1, got {neighbours}")
    if not all(0 < each < math.inf for each in scale):
        raise ValueError(f"scale: expected positive numbers, got {tuple(scale)}")
    if not 0 < floor < math.inf:
        raise ValueError(f"floor: expected a positive number, got {floor}")


def _points(
    states: Float[Array, "*axes feature"], neighbours: int, scale: Sequence[float], angles: Sequence[int]
) -> Float[Array, "state coordinate"]:
    """All states, scaled, trajectory by trajectory, with the sines of angles last; NaN if any feature is not finite."""
    if states.ndim != 4:
        raise ValueError(f"states: expected the axes agent, trajectory, time and feature, got the shape {states.shape}")
    if scale and states.shape[-1] != len(scale):
        raise ValueError(f"states: expected {len(scale)} features, as many as numbers in scale, got {states.shape[-1]}")
    points = states.reshape(-1, states.shape[-1])
    if len(points) <= neighbours:
        raise ValueError(f"states: expected more than {neighbours}, the number of neighbours, got {len(points)}")
    is_finite = jnp.all(jnp.isfinite(points), axis=-1, keepdims=True)
    units = np.array(scale or [1.0], np.float32)[None]
    sines = [(jnp.sin(points[:, angle]) / (scale[angle] if scale else 1.0))[:, None] for angle in angles]
    for angle in angles:
        points = points.at[:, angle].set(jnp.cos(points[:, angle]))
    return jnp.where(is_finite, jnp.concatenate([points / units, *sines], axis=1), jnp.nan)


def _is_real(points: Float[Array, "state feature"]) -> Bool[Array, " state"]:
    return ~jnp.isnan(points[:, 0])


def _hidden_until(num_states: int, num_times: int) -> Int[np.ndarray, " state"]:
    """A state sees neither itself nor its trajectory's later states, up to this index; with `num_times` 1, just not itself."""
    return (np.arange(num_states, dtype=np.int32) // num_times + 1) * num_times


def _kth_squared_distances(points: Float[Array, "state feature"], num_times: int, neighbours: int) -> Float[Array, " state"]:
    """To the k-th nearest point that each point sees, or to the farthest if there are fewer; negative if there is none."""
    if not runs_on_cpu():
        return _by_passes(points, num_times, neighbours)
    if len(points) * neighbours**2 <= _MOST_INSERTED:
        return _by_insertion(points, num_times, neighbours)
    return _by_trees(points, num_times, neighbours)


class _References(NamedTuple):
    """Two sets of trajectories, drawn at random: every state sees the first, or the second if it belongs to the first."""

    first: Int[Array, " reference"]
    second: Int[Array, " reference"]
    is_in_first: Bool[Array, " trajectory"]


def _references(points: Float[Array, "state feature"], num_times: int) -> _References | None:
    """The trajectories that states are compared with; None if all can be compared with all."""
    num_trajectories, size = len(points) // num_times, -(-_NUM_REFERENCES // num_times)
    if len(points) <= MOST_COMPARED or num_times == 1 or num_trajectories < 2 * size:
        return None
    # Gains have no random key of their own: the states themselves are one, whose bits add up to the same sum in every order.
    seed = jnp.sum(jax.lax.bitcast_convert_type(points.astype(jnp.float32), jnp.uint32), dtype=jnp.uint32)
    order = jr.permutation(jr.fold_in(jr.key(0, impl="threefry2x32"), seed), num_trajectories)
    is_in_first = jnp.zeros(num_trajectories, bool).at[order[:size]].set(True)
    return _References(order[:size], order[size : 2 * size], is_in_first)


def _num_real(points: Float[Array, "state feature"], references: _References, num_times: int) -> Int[Array, " state"]:
    """The number of reference states that each state sees."""
    lengths = jnp.sum(_is_real(points).reshape(-1, num_times), axis=1, dtype=jnp.int32)
    first, second = (jnp.sum(lengths[which]) for which in references[:2])
    return jnp.repeat(jnp.where(references.is_in_first, second, first), num_times)


def _kth_among_references(
    points: Float[Array, "state feature"], references: _References, num_times: int, neighbours: int
) -> Float[Array, " state"]:
    """As `_kth_squared_distances`, among the references and each state's own past."""
    if not runs_on_cpu():
        return _references_by_passes(points, references, num_times, neighbours)

    def on_host(*arguments: Array) -> Float[np.ndarray, " state"]:
        first, second, *pieces = (np.asarray(each) for each in arguments)
        return _search_references(np.concatenate(pieces).reshape(points.shape), first, second, num_times, neighbours)

    shape = jax.ShapeDtypeStruct(points.shape[:1], jnp.float32)
    return jax.pure_callback(on_host, shape, *references[:2], *_pieces(points), vmap_method="sequential")


def _references_by_passes(
    points: Float[Array, "state feature"], references: _References, num_times: int, neighbours: int
) -> Float[Array, " state"]:
    """Finds the next larger distance k times, as `_by_passes` does, for some trajectories at once."""
    by_trajectory = points.reshape(-1, num_times, points.shape[1])
    both = jnp.concatenate([by_trajectory[which].reshape(-1, points.shape[1]) for which in references[:2]])
    is_second = jnp.arange(len(both)) >= len(both) // 2
    is_past = jnp.tril(jnp.ones((num_times, num_times), bool), -1)

    def of_one(one: tuple[Float[Array, "time feature"], Bool[Array, ""]]) -> Float[Array, " time"]:
        own, sees_second = one
        among = ordered_sum((own[:, None] - both[None]) ** 2)
        within = ordered_sum((own[:, None] - own[None]) ** 2)

        def next_larger(_: Int[Array, ""], reached: Float[Array, " time"]) -> Float[Array, " time"]:
            elsewhere, num_elsewhere = _next(among, (is_second == sees_second)[None], reached[:, None])
            in_own, num_in_own = _next(within, is_past, reached[:, None])
            nearest, num_reached = jnp.minimum(elsewhere, in_own), num_elsewhere + num_in_own
            return jnp.where((num_reached < neighbours) & (nearest < jnp.inf), nearest, reached)

        return jax.lax.fori_loop(0, neighbours, next_larger, jnp.full(num_times, -1.0))

    num_together = min(len(by_trajectory), max(1, _MOST_STORED // (num_times * len(both))))
    return jax.lax.map(of_one, (by_trajectory, references.is_in_first), batch_size=num_together).reshape(-1)


def _search_references(
    points: Float[np.ndarray, "state feature"],
    first: Int[np.ndarray, " reference"],
    second: Int[np.ndarray, " reference"],
    num_times: int,
    neighbours: int,
) -> Float[np.ndarray, " state"]:
    """Searches two k-d trees; own pasts are compared directly."""
    by_trajectory = points.reshape(-1, num_times, points.shape[1])
    squared = np.full(by_trajectory.shape[:2], -1.0, np.float32)
    is_past = np.tril(np.ones((num_times, num_times), bool), -1)[None]
    is_in_first = np.isin(np.arange(len(by_trajectory)), first)
    for which, trajectories in ((first, np.flatnonzero(~is_in_first)), (second, first)):
        seen = by_trajectory[which].reshape(-1, points.shape[1])
        tree = _tree(seen[~np.isnan(seen[:, 0])])
        for some in np.array_split(trajectories, -(-len(trajectories) // _TRAJECTORIES_AT_ONCE)):
            own = by_trajectory[some]
            is_real = ~np.isnan(own[..., 0])
            elsewhere = np.full((*own.shape[:2], neighbours), np.inf)
            elsewhere[is_real] = tree.query(own[is_real], k=np.arange(1, neighbours + 1), workers=-1)[0] ** 2
            within = sum((column[:, :, None] - column[:, None]) ** 2 for column in np.moveaxis(own, -1, 0))
            is_seen = is_past & ~np.isnan(within)
            nearest = np.concatenate([elsewhere, np.where(is_seen, within, np.inf)], axis=-1)
            found = _farthest(np.partition(nearest, neighbours - 1)[..., :neighbours])
            squared[some] = np.where(is_real, found, -1.0)
    return squared.reshape(-1)


def _by_passes(points: Float[Array, "state feature"], num_times: int, neighbours: int) -> Float[Array, " state"]:
    """Finds the next larger distance k times, for all points at once: a GPU recomputes distances faster than it stores them."""
    index, end = jnp.arange(len(points))[:, None], _hidden_until(len(points), num_times)[:, None]
    other = index.T

    def next_larger(_: Int[Array, ""], reached: Float[Array, " state"]) -> Float[Array, " state"]:
        squared = ordered_sum((points[:, None] - points[None]) ** 2)
        larger, num_reached = _next(squared, (other < index) | (other >= end), reached[:, None])
        return jnp.where((num_reached < neighbours) & (larger < jnp.inf), larger, reached)

    return jax.lax.fori_loop(0, neighbours, next_larger, jnp.full(len(points), -1.0))


def _next(
    squared: Float[Array, "*axes other"], is_seen: Bool[Array, "*#axes other"], reached: Float[Array, "*axes 1"]
) -> tuple[Float[Array, "*axes"], Int[Array, "*axes"]]:
    """Of those that are seen, the least distance beyond what was reached, and the number of those up to it.

    This is one reduction: for two, XLA may store all distances, which take more memory than a GPU has.
    """
    is_passed, is_there = squared <= reached, is_seen & (squared < jnp.inf)
    beyond = jnp.where(is_there & ~is_passed, squared, jnp.inf)
    passed = (is_there & is_passed).astype(jnp.int32)

    def combine(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
        return jnp.minimum(one[0], other[0]), one[1] + other[1]

    return jax.lax.reduce((beyond, passed), (jnp.float32(jnp.inf), jnp.int32(0)), combine, (squared.ndim - 1,))


def _by_insertion(points: Float[Array, "state feature"], num_times: int, neighbours: int) -> Float[Array, " state"]:
    """Inserts one point after the other into the sorted distances of all points: the fastest for a CPU's vector units."""
    index, end = jnp.arange(len(points)), _hidden_until(len(points), num_times)
    columns = tuple(points.T)

    def insert(nearest: tuple[Array, ...], other: tuple[Array, tuple[Array, ...]]) -> tuple[tuple[Array, ...], None]:
        which, place = other
        squared = functools.reduce(jnp.add, [(column - at) ** 2 for column, at in zip(columns, place, strict=True)])
        rest = jnp.where((which < index) | (which >= end), squared, jnp.inf)
        inserted = []
        for each in nearest:
            # NaN is never less, so it is never inserted; XLA's own minimum and maximum take twice as long.
            is_nearer = rest < each
            inserted.append(jnp.where(is_nearer, rest, each))
            rest = jnp.where(is_nearer, each, rest)
        return tuple(inserted), None

    nearest, _ = jax.lax.scan(insert, (jnp.full(len(points), jnp.inf),) * neighbours, (index, columns))
    return functools.reduce(jnp.maximum, [jnp.where(each < jnp.inf, each, -1.0) for each in nearest])


def _by_trees(points: Float[Array, "state feature"], num_times: int, neighbours: int) -> Float[Array, " state"]:
    """Searches k-d trees, on the host."""

    def on_host(*arguments: Array) -> Float[np.ndarray, " state"]:
        numbers = np.concatenate([np.asarray(each) for each in arguments])
        return _search(numbers.reshape(points.shape), num_times, neighbours)

    shape = jax.ShapeDtypeStruct(points.shape[:1], jnp.float32)
    return jax.pure_callback(on_host, shape, *_pieces(points), vmap_method="sequential")


def _pieces(points: Float[Array, "state feature"]) -> list[Float[Array, " number"]]:
    """The points as arguments of a callback, for one batch element at a time.

    Another thread would copy arguments larger than 100 kB, which deadlocks if all threads wait for callbacks.
    """
    numbers = points.reshape(-1)
    return [numbers[i : i + _MOST_NUMBERS_PER_ARGUMENT] for i in range(0, len(numbers), _MOST_NUMBERS_PER_ARGUMENT)]


def _search(points: Float[np.ndarray, "state feature"], num_times: int, neighbours: int) -> Float[np.ndarray, " state"]:
    is_real = ~np.isnan(points[:, 0])
    squared = np.full(len(points), -1.0, np.float32)
    if num_times == 1:
        real = points[is_real]
        squared[is_real] = _farthest(_tree(real).query(real, k=np.arange(2, neighbours + 2), workers=-1)[0] ** 2)
        return squared
    index, end = np.arange(len(points)), _hidden_until(len(points), num_times)
    for block in _blocks(len(points), num_times):
        own = index[block][is_real[block]]
        is_elsewhere = is_real & ((index < block.start) | (index >= end[block.stop - 1]))
        elsewhere = _tree(points[is_elsewhere]).query(points[own], k=np.arange(1, neighbours + 1))[0] ** 2
        within = sum((column[own, None] - column[None, own]) ** 2 for column in points.T)
        is_seen = (own[None] < own[:, None]) | (own[None] >= end[own, None])
        nearest = np.concatenate([elsewhere, np.where(is_seen, within, np.inf)], axis=1)
        squared[own] = _farthest(np.partition(nearest, neighbours - 1)[:, :neighbours])
    return squared


def _blocks(num_states: int, num_times: int) -> Iterator[slice]:
    """Blocks of several trajectories, or of a part of one: pairs within a block are compared directly, others with a tree.

    Building a tree of n points takes as long as about 12 n comparisons, so this block size is close to the best.
    """
    size = math.isqrt(12 * num_states)
    if num_times <= size:
        size -= size % num_times
        yield from (slice(i, min(i + size, num_states)) for i in range(0, num_states, size))
        return
    for first in range(0, num_states, num_times):
        last = first + num_times
        yield from (slice(i, min(i + size, last)) for i in range(first, last, size))


def _tree(points: Float[np.ndarray, "point feature"]) -> "KDTree":
    from scipy.spatial import KDTree  # takes a while, and counts don't need it

    return KDTree(points, balanced_tree=False, compact_nodes=False)


def _farthest(squared: Float[np.ndarray, "*axes neighbour"]) -> Float[np.ndarray, "*axes"]:
    return np.max(np.where(squared < np.inf, squared, -1.0), axis=-1)
