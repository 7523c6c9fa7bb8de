import jax
import numpy as np
from scipy import stats

from farflung.numerics.noise import uniforms


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
