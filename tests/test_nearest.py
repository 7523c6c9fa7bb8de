import math
import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

import farflung.entropy.nearest
from farflung.entropy import nearest
from farflung.entropy.nearest import nearest_neighbours, num_duplicates
from farflung.entropy.objective import Objective

METHODS = ["_by_passes", "_by_insertion", "_by_trees"]
SCALE = (0.5, 2.0)


def surprisal(state, others, neighbours, scale, floor=1e-3):
    if len(others) == 0:
        return 0.0
    distances = sorted(math.dist(np.divide(state, scale), np.divide(other, scale)) for other in others)
    rank, size = min(neighbours, len(others)), len(state)
    log_ball = size / 2 * math.log(math.pi) - special.gammaln(size / 2 + 1) + size * math.log(max(distances[rank - 1], floor))
    return special.digamma(len(others) + 1) - special.digamma(rank) + log_ball + np.log(scale).sum()


def mean_surprisal(states, neighbours, scale):
    rest = [states[:i] + states[i + 1 :] for i in range(len(states))]
    return np.mean([surprisal(*pair, neighbours, scale) for pair in zip(states, rest, strict=True)]) if states else 0.0


def real(trajectory):
    return [state for state in trajectory if np.isfinite(state).all()]


def expected_gains(states, neighbours, scale, is_ragged):
    """The definition, state by state."""
    trajectories = [real(trajectory) for trajectory in np.asarray(states, float).reshape(-1, *states.shape[2:])]
    gains = np.zeros((len(trajectories), states.shape[2]))
    for i, trajectory in enumerate(trajectories):
        others = [state for j, other in enumerate(trajectories) if j != i for state in other]
        total = len(others) * mean_surprisal(others, neighbours, scale) if is_ragged else 0.0
        for time, state in enumerate(trajectory):
            num_there = len(others) + time
            found = surprisal(state, others + trajectory[:time], neighbours, scale)
            if not is_ragged:
                gains[i, time] = found / sum(map(len, trajectories))
            elif num_there > 0:
                gains[i, time] = (found - total / num_there) / (num_there + 1)
                total += found
    return gains.reshape(states.shape[:3])


def compiled(entropy):
    return Objective(jax.jit(entropy.value), jax.jit(entropy.gains))


def walks(*shape, seed=0):
    return jnp.cumsum(jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32), axis=-2)


def ended_early(states):
    """Ends some episodes, one of them before its first state, and makes some states equal."""
    return states.at[0, 0, 3:, 1].set(jnp.nan).at[1, 0].set(jnp.inf).at[1, 1, 2:6].set(states[1, 1, 1])


@pytest.mark.parametrize(("neighbours", "most_inserted"), [(3, 32_000), (20, 0)])
def test_value_and_gains_agree_with_their_definition(neighbours, most_inserted, monkeypatch):
    monkeypatch.setattr(farflung.entropy.nearest, "_MOST_INSERTED", most_inserted)
    for states in (walks(2, 2, 7, 2), ended_early(walks(2, 2, 7, 2))):
        entropy, ragged = (compiled(nearest_neighbours(neighbours, scale=SCALE, is_ragged=each)) for each in (False, True))
        pooled = real(np.asarray(states).reshape(-1, 2))
        np.testing.assert_allclose(entropy.value(states), mean_surprisal(pooled, neighbours, SCALE), rtol=1e-5)
        np.testing.assert_allclose(entropy.gains(states), expected_gains(states, neighbours, SCALE, False), atol=1e-5)
        np.testing.assert_allclose(ragged.gains(states), expected_gains(states, neighbours, SCALE, True), atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(1, 90, 3), (20, 5, 1)])
def test_each_method_finds_the_neighbours(method, shape):
    states = walks(*shape).at[::3, shape[1] // 2 :].set(jnp.nan)
    points = states.reshape(-1, shape[-1])
    for num_times, neighbours in [(1, 3), (shape[1], 1), (shape[1], 12)]:
        expected = []
        for i, point in enumerate(np.asarray(points)):
            seen = np.delete(points, slice(i, (i // num_times + 1) * num_times), axis=0)
            squared = np.sort([each for each in np.sum((seen - point) ** 2, axis=-1) if np.isfinite(each)])[:neighbours]
            expected.append(squared[-1] if len(squared) else -1.0)
        found = getattr(farflung.entropy.nearest, method)(points, num_times, neighbours)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_single_trajectory_is_compared_with_its_own_past():
    states = walks(1, 1, 8, 2)
    for is_ragged in (False, True):
        gains = compiled(nearest_neighbours(2, is_ragged=is_ragged)).gains(states)
        assert gains[0, 0, 0] == 0
        np.testing.assert_allclose(gains, expected_gains(states, 2, (1.0, 1.0), is_ragged), atol=1e-5)


def test_a_ragged_gain_does_not_depend_on_its_own_future():
    entropy, states = compiled(nearest_neighbours(2, is_ragged=True)), walks(3, 1, 9, 2)
    for future in (7.0, jnp.nan):
        other = states.at[1, 0, 5:].set(future)
        np.testing.assert_array_equal(entropy.gains(states)[1, 0, :5], entropy.gains(other)[1, 0, :5])


NUM_SAMPLES, DIMENSIONS = 3000, (1, 2, 3, 5, 8)


def deviation(variance_of_surprisal, neighbours):
    """The estimate's standard deviation if distances were independent; it is right up to a constant factor."""
    return math.sqrt((variance_of_surprisal + special.polygamma(1, neighbours)) / NUM_SAMPLES)


@pytest.mark.parametrize("size", DIMENSIONS)
def test_the_entropy_of_a_gaussian(size):
    neighbours = 4
    samples = jnp.asarray(np.random.default_rng(size).normal(size=(2, 1, NUM_SAMPLES // 2, size)), jnp.float32)
    bias = 0.0
    if (
        size > 2
    ):  # to second order in the distance: -E[distance^2 laplacian(p) / p] / (2 (d + 2)); below, it is much smaller still
        volume = math.pi ** (size / 2) / math.gamma(size / 2 + 1)
        distance = math.gamma(neighbours + 2 / size) / math.gamma(neighbours) / (NUM_SAMPLES * volume) ** (2 / size)
        curvature = 2 * math.pi * (size / (size - 2)) ** (size / 2) * 2 * size / (size - 2)
        bias = -distance * curvature / (2 * (size + 2))
    error = float(nearest_neighbours(neighbours, floor=1e-6).value(samples)) - size / 2 * math.log(2 * math.pi * math.e)
    assert abs(error) < 4 * deviation(size / 2, neighbours) + abs(bias)


@pytest.mark.parametrize("size", DIMENSIONS)
def test_the_entropy_of_a_uniform_box(size):
    neighbours, sides = 4, np.linspace(0.5, 3, size)
    samples = jnp.asarray(sides * np.random.default_rng(size).random((2, 1, NUM_SAMPLES // 2, size)), jnp.float32)
    error = float(nearest_neighbours(neighbours, scale=tuple(sides), floor=1e-6).value(samples)) - np.log(sides).sum()
    # At most half of a ball lies beyond each of the d pairs of faces, and none of it unless they are nearer than its radius.
    volume = math.pi ** (size / 2) / math.gamma(size / 2 + 1)
    radius = (neighbours / (NUM_SAMPLES * volume)) ** (1 / size)
    bias = size * math.log(2) * min(1.0, 2 * radius)
    tolerance = 4 * deviation(0.0, neighbours)
    assert -tolerance < error < bias + tolerance


@pytest.mark.parametrize("is_ragged", [False, True])
def test_stretching_all_features_adds_the_logarithm(is_ragged):
    states = walks(2, 1, 40, 3)
    plain, stretched = (compiled(nearest_neighbours(3, is_ragged=is_ragged, scale=scale)) for scale in ((), (2.0, 2.0, 2.0)))
    np.testing.assert_allclose(plain.value(2 * states), plain.value(states) + 3 * math.log(2), rtol=1e-5)
    np.testing.assert_allclose(stretched.value(2 * states), plain.value(states) + 3 * math.log(2), rtol=1e-5)
    added = 0.0 if is_ragged else 3 * math.log(2) / 80
    np.testing.assert_allclose(stretched.gains(2 * states), plain.gains(states) + added, atol=1e-6)


def test_states_that_are_alike_are_at_the_floor_and_counted():
    states = walks(2, 1, 20, 2)
    assert num_duplicates(states, 4) == 0
    states = states.at[0, 0, 10:].set(states[0, 0, 10]).at[1, 0, 15:].set(jnp.nan)
    assert num_duplicates(states, 4) == 10
    assert num_duplicates(states, 9) == 10
    assert num_duplicates(states, 10) == 0
    lowest = math.log(math.pi) + 2 * math.log(1e-3)
    gains = nearest_neighbours(4).gains(jnp.zeros((2, 1, 20, 2))) * 40
    assert np.isfinite(gains).all()
    np.testing.assert_allclose(gains[1, 0, -1], special.digamma(40) - special.digamma(4) + lowest, rtol=1e-5)


@pytest.mark.bits
@pytest.mark.parametrize("shape", [(5, 2, 2, 33, 2), (3, 2, 1, 1050, 2)])
def test_results_do_not_depend_on_the_rest_of_the_batch(shape):
    states, entropy = walks(*shape), nearest_neighbours(4)
    for function in (entropy.value, entropy.gains):
        single = jax.jit(function)
        alone = [single(each) for each in states]
        np.testing.assert_array_equal(jax.jit(jax.vmap(function))(states), np.stack(alone))
        np.testing.assert_array_equal(jax.jit(partial(jax.lax.map, function))(states), np.stack(alone))


def test_searching_on_the_host_never_deadlocks():
    program = """
import jax, numpy as np
import farflung.entropy.nearest
from farflung.entropy.objective import Objective
from jax.sharding import Mesh, PartitionSpec

jax.config.update("jax_num_cpu_devices", 2)
farflung.entropy.nearest._search = lambda points, *_: points[:, 0]  # at once, so that both devices often ask at the same time
search = jax.vmap(lambda points: farflung.entropy.nearest._by_trees(points, 1, 4)[:, None] + points)
walk = lambda points: jax.lax.map(lambda each: jax.lax.fori_loop(0, 50, lambda _, each: search(each), each), points)
mesh, axes = Mesh(np.array(jax.devices()), ("seed",)), PartitionSpec("seed")
walk = jax.jit(jax.shard_map(walk, mesh=mesh, in_specs=axes, out_specs=axes, check_vma=False))
jax.block_until_ready(walk(np.zeros((4, 2, 50_000, 2), np.float32)))
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_bad_arguments_are_refused():
    states = walks(2, 1, 5, 2)
    for wrong, message in [
        (lambda: nearest_neighbours(0), "neighbours: expected at least 1, got 0"),
        (lambda: nearest_neighbours(scale=(1.0, 0.0)), r"scale: expected positive numbers, got \(1.0, 0.0\)"),
        (lambda: nearest_neighbours(floor=0.0), "floor: expected a positive number, got 0.0"),
        (
            lambda: nearest_neighbours(scale=(1.0,)).value(states),
            "states: expected 1 features, as many as numbers in scale, got 2",
        ),
        (lambda: nearest_neighbours().gains(states[0]), r"states: expected the axes .*, got the shape \(1, 5, 2\)"),
        (
            lambda: jax.jit(nearest_neighbours(10).value)(states),
            "states: expected more than 10, the number of neighbours, got 10",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            wrong()


def among_references(points, first, second, num_times, neighbours):
    """By brute force: the references that a state sees, and its own past."""
    squared = np.full(len(points), -1.0)
    trajectory = np.arange(len(points)) // num_times
    for state, point in enumerate(points):
        if np.isnan(point[0]):
            continue
        which = second if trajectory[state] in first else first
        is_seen = np.isin(trajectory, which) | ((trajectory == trajectory[state]) & (np.arange(len(points)) < state))
        found = np.sort(((points[is_seen] - point) ** 2).sum(axis=1))
        found = found[~np.isnan(found)][:neighbours]
        squared[state] = found[-1] if len(found) else -1.0
    return squared


@pytest.mark.parametrize("method", ["trees", "passes"])
def test_many_trajectories_are_compared_with_some_of_the_others_and_their_own_past(method, monkeypatch):
    monkeypatch.setattr(nearest, "MOST_COMPARED", 60)
    monkeypatch.setattr(nearest, "_NUM_REFERENCES", 20)
    points = np.random.default_rng(0).normal(size=(12, 7, 2)).astype(np.float32)
    points[3, 4:], points[8, 1:] = np.nan, np.nan
    points = points.reshape(-1, 2)
    references = nearest._references(jnp.asarray(points), 7)
    first, second, is_in_first = map(np.asarray, references)
    assert len(first) == len(second) == 3
    assert not {*first} & {*second}
    assert {*np.flatnonzero(is_in_first)} == {*first}
    search = nearest._kth_among_references if method == "trees" else nearest._references_by_passes
    found = jax.jit(lambda points: search(points, references, 7, 3))(points)
    np.testing.assert_allclose(found, among_references(points, first, second, 7, 3), rtol=1e-4)
    num_seen = np.asarray(nearest._num_real(jnp.asarray(points), references, 7))
    expected = [(~np.isnan(points.reshape(12, 7, 2)[which, :, 0])).sum() for which in (first, second)]
    assert (num_seen.reshape(12, 7)[:, 0] == np.where(is_in_first, expected[1], expected[0])).all()


def test_gains_among_references_are_those_among_all_at_a_coarser_resolution(monkeypatch):
    """Uniform states, whose density is the same at every resolution: both means are the entropy, log 1, divided by n."""
    states = jnp.asarray(np.random.default_rng(0).uniform(size=(400, 1, 10, 2)), jnp.float32)
    exact = np.asarray(jax.jit(nearest_neighbours(4).gains)(states)) * states.shape[0] * 10
    monkeypatch.setattr(nearest, "MOST_COMPARED", 3000)
    monkeypatch.setattr(nearest, "_NUM_REFERENCES", 1000)
    assert nearest._references(states.reshape(-1, 2), 10) is not None
    some = np.asarray(jax.jit(nearest_neighbours(4).gains)(states)) * states.shape[0] * 10
    assert exact.mean() == pytest.approx(0, abs=0.08)
    assert some.mean() == pytest.approx(0, abs=0.12)
    assert np.corrcoef(exact.ravel(), some.ravel())[0, 1] > 0.3
