import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.numerics import arrays as tables
from farflung.numerics.arrays import (
    count_by_index,
    cumulative_sum,
    inverse_cdf,
    later_occurrences,
    log_softmax,
    lookup,
    mean_of_others,
    ordered_sum,
    sum_by_index,
)


def test_lookup_reads_each_of_a_batch_of_tables_under_nested_vmaps():
    generator = np.random.default_rng(0)
    table = generator.normal(size=(2, 3, 5)).astype(np.float32)
    index = generator.integers(5, size=(2, 3, 4, 7)).astype(np.int32)
    nested = jax.vmap(jax.vmap(jax.vmap(lookup, (None, 0))))(table, index)
    expected = np.take_along_axis(table[:, :, None, :], index, axis=-1)
    np.testing.assert_array_equal(nested, expected)


def test_lookup_broadcasts_an_index_that_is_not_batched():
    table = jnp.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(jax.vmap(lookup, (0, None))(table, jnp.array([2, 0])), [[2, 0], [5, 3]])


@pytest.mark.parametrize("num_rows", [1, 5, 1000, 2**30])
@pytest.mark.parametrize("num_times", [1, tables._MOST_COMPARED, tables._MOST_COMPARED + 1, 300])
def test_later_occurrences_are_those_that_follow(num_times, num_rows):
    index = np.random.default_rng(num_times).integers(num_rows - min(num_rows, 20), num_rows, size=(2, 3, 2, num_times))
    nested = jax.vmap(jax.vmap(lambda i: later_occurrences(i, num_rows)))(index.astype(np.int32))
    expected = [
        [np.count_nonzero(row[time + 1 :] == each) for time, each in enumerate(row)] for row in index.reshape(-1, num_times)
    ]
    np.testing.assert_array_equal(nested, np.reshape(expected, index.shape))


def test_counts_and_sums_agree_with_numpy_under_nested_vmaps():
    generator = np.random.default_rng(1)
    index = generator.integers(6, size=(2, 3, 50)).astype(np.int32)
    values = generator.normal(size=(2, 3, 50)).astype(np.float32)
    counts = jax.vmap(jax.vmap(lambda i: count_by_index(i, 6)))(index)
    sums = jax.vmap(jax.vmap(lambda i, v: sum_by_index(i, v, 6)))(index, values)
    for a in range(2):
        for b in range(3):
            np.testing.assert_array_equal(counts[a, b], np.bincount(index[a, b], minlength=6))
            expected = np.bincount(index[a, b], values[a, b].astype(np.float64), minlength=6)
            np.testing.assert_allclose(sums[a, b], expected, atol=2e-5)


def test_values_are_broadcast_to_the_index():
    index = jnp.array([[0, 1], [1, 1]])
    np.testing.assert_allclose(sum_by_index(index, jnp.array([[0.5], [2.0]]), 2), [0.5, 4.5])


@pytest.mark.bits
@pytest.mark.parametrize("size", [1_000, 100_000])
def test_a_sum_has_the_same_bits_in_every_order(size):
    generator = np.random.default_rng(2)
    index = generator.integers(10, size=size).astype(np.int32)
    values = (generator.normal(size=size) * 10.0 ** generator.integers(-6, 3, size)).astype(np.float32)
    order = generator.permutation(size)
    total = np.asarray(sum_by_index(jnp.asarray(index), jnp.asarray(values), 10))
    np.testing.assert_array_equal(total, sum_by_index(jnp.asarray(index[order]), jnp.asarray(values[order]), 10))
    expected = np.bincount(index, values.astype(np.float64), minlength=10)
    np.testing.assert_allclose(total, expected, atol=np.abs(values).max() * size * 2.0**-30 + np.abs(expected).max() * 1e-6)


@given(st.integers(-60, 60))
def test_a_sum_keeps_the_scale_of_its_values(exponent):
    total = sum_by_index(jnp.zeros(3, jnp.int32), jnp.array([1.0, 1.1, -0.5]) * jnp.float32(2.0**exponent), 1)
    np.testing.assert_allclose(total, [1.6 * 2.0**exponent], rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_sum_does_not_hide_nan_or_infinity(bad):
    assert not np.isfinite(sum_by_index(jnp.array([0, 1]), jnp.array([1.0, bad]), 2)).any()


def test_a_sum_of_zeros_is_zero():
    np.testing.assert_array_equal(sum_by_index(jnp.array([0, 1]), jnp.zeros(2), 2), [0, 0])


@pytest.mark.parametrize("cpu", [True, False])
def test_inverse_cdf_picks_each_outcome_on_its_own_interval(cpu, monkeypatch):
    monkeypatch.setattr(tables, "runs_on_cpu", lambda: cpu)
    cumulative = jnp.array([0.25, 0.25, 1.0, 0.5, 0.75, 1.0])
    uniforms = jnp.array([0.0, 0.2499, 0.25, 0.9999])
    picked = jax.vmap(lambda row: jax.vmap(lambda u: inverse_cdf(cumulative, row, 3, u))(uniforms))(jnp.array([0, 1]))
    np.testing.assert_array_equal(picked, [[0, 0, 2, 2], [0, 0, 0, 2]])


@pytest.mark.parametrize("num_outcomes", [4, 40])
def test_softmax_and_sums_over_outcomes_agree_with_jax(num_outcomes):
    logits = jax.random.normal(jax.random.key(0), (3, num_outcomes)) * 20
    np.testing.assert_allclose(log_softmax(logits), jax.nn.log_softmax(logits), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(ordered_sum(logits), logits.sum(-1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(cumulative_sum(logits), jnp.cumsum(logits, -1), rtol=1e-4, atol=1e-4)


def test_tables_too_long_for_a_32_bit_index_are_not_flattened(monkeypatch):
    monkeypatch.setattr(tables, "_LARGEST_INDEX", 7)
    table, index = jnp.arange(10.0).reshape(2, 5), jnp.array([[4, 0], [1, 1]])
    np.testing.assert_array_equal(jax.vmap(lookup)(table, index), [[4, 0], [6, 6]])
    np.testing.assert_array_equal(jax.vmap(lambda i: count_by_index(i, 5))(index), [[1, 0, 0, 0, 1], [0, 2, 0, 0, 0]])


def test_means_of_others_are_right_for_magnitudes_of_any_size():
    values = np.random.default_rng(0).normal(size=(5, 1, 3, 2)).astype(np.float32) * 1e4
    expected = [np.delete(values, row, axis=0).mean(axis=(0, 2))[:, None] for row in range(5)]
    found = mean_of_others(jnp.asarray(values), 2, is_below_32=False)
    np.testing.assert_allclose(found, np.stack(expected), rtol=1e-5, atol=0.1)
