import math

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from farflung import decompose, plug_in, shannon
from farflung.entropy.counts import entropy_of_counts

of_ten = jax.jit(plug_in(10).value)
decomposed, shannon_of = jax.jit(decompose), jax.jit(shannon)
# Few sizes, because each is compiled.
distributions = st.sampled_from([2, 5, 8]).flatmap(
    lambda size: st.lists(
        st.lists(st.integers(0, 20), min_size=size, max_size=size).filter(any).map(lambda row: np.array(row) / sum(row)),
        min_size=1,
        max_size=5,
    ).map(np.stack)
)


@given(st.sampled_from([1, 2, 7, 60]).flatmap(lambda size: st.lists(st.integers(0, 9), min_size=size, max_size=size)))
def test_plug_in_agrees_with_scipy(states):
    value = of_ten(jnp.array(states)[None, None])
    expected = stats.entropy(np.bincount(states, minlength=10))
    np.testing.assert_allclose(value, expected, atol=1e-6)


def test_the_entropy_of_distinct_states_is_the_log_of_their_number():
    np.testing.assert_allclose(plug_in(43).value(jnp.arange(42).reshape(6, 1, 7)), math.log(42), atol=1e-6)


def test_all_agents_and_trajectories_are_pooled():
    together = plug_in(4).value(jnp.array([[[0, 0], [1, 1]], [[2, 2], [3, 3]]]))
    np.testing.assert_allclose(together, math.log(4), atol=1e-6)


def test_the_entropy_of_counts_of_many_samples_is_precise():
    counts = np.random.default_rng(0).multinomial(50_000, np.ones(10_000) / 10_000).astype(np.int32)
    np.testing.assert_allclose(entropy_of_counts(jnp.asarray(counts), 50_000), stats.entropy(counts), atol=1e-4)


@given(distributions)
def test_shannon_agrees_with_scipy(rows):
    np.testing.assert_allclose(shannon_of(jnp.asarray(rows, jnp.float32)), stats.entropy(rows, axis=-1), atol=1e-5)


@given(distributions)
def test_own_entropy_and_diversity_add_up_to_the_mixtures_entropy(rows):
    own, diversity = decomposed(jnp.asarray(rows, jnp.float32))
    np.testing.assert_allclose(own + diversity, stats.entropy(rows.mean(axis=0)), atol=1e-5)
    np.testing.assert_allclose(diversity, np.mean([stats.entropy(row, rows.mean(axis=0)) for row in rows]), atol=1e-5)


def test_agents_that_share_no_state_add_log_m():
    rows = jnp.eye(4).repeat(3, axis=1) / 3
    own, diversity = decomposed(rows)
    np.testing.assert_allclose([own, diversity], [math.log(3), math.log(4)], atol=1e-6)
