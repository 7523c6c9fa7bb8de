import jax
import numpy as np
import pytest
from scipy import stats

from farflung.numerics.noise import uniform_rows, uniforms


def test_the_noise_is_uniform_and_never_one():
    noise = np.asarray(uniforms(jax.random.key(0), (3, 50_001))).ravel()
    assert stats.kstest(noise, "uniform").pvalue > 0.01
    assert 0 <= noise.min() <= noise.max() < 1
    assert (noise * 2**24 == np.round(noise * 2**24)).all()


def test_keys_and_places_have_noise_of_their_own():
    keys = jax.random.split(jax.random.key(0), 3)
    noise = np.asarray(jax.vmap(lambda key: uniforms(key, (4, 1000)))(keys)).reshape(12, 1000)
    correlation = np.corrcoef(noise) - np.eye(12)
    assert np.abs(correlation).max() < 0.12


@pytest.mark.parametrize("num_rows", [1, 6, 7])
def test_numbers_are_the_same_if_they_are_read_row_by_row_in_a_loop(num_rows):
    key, shape = jax.random.key(3), (num_rows, 5, 3)
    row_at = jax.jit(lambda first: [uniform_rows(key, shape)(0, first, num_rows), uniform_rows(key, shape)(num_rows - 1)])
    rows = [row_at(first) for first in range(num_rows)]
    np.testing.assert_array_equal(np.stack([row for row, _ in rows]), uniforms(key, shape))
    np.testing.assert_array_equal(rows[0][1], uniforms(key, shape)[-1])
