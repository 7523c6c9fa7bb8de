import numpy as np
import pytest
from scipy import stats

from farflung.runs.statistics import (
    Difference,
    bootstrap,
    mean_and_interval,
    mean_difference,
    spread_difference,
    wilson_interval,
)


def test_the_interval_is_students():
    values = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    mean, half_width = mean_and_interval(values)
    low, high = stats.ttest_1samp(values.astype(float), 0).confidence_interval(0.95)
    np.testing.assert_allclose([mean - half_width, mean + half_width], [low, high], rtol=1e-6)
    assert mean_and_interval(values[:1])[1] is None


def test_the_bootstrap_interval_of_a_mean_agrees_with_theory_for_many_seeds():
    values = np.random.default_rng(0).normal(size=400)
    found = bootstrap(np.mean, values)
    assert found.value == pytest.approx(values.mean())
    assert found.high - found.low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.08)


def test_values_of_a_seed_are_resampled_together():
    generator = np.random.default_rng(3)
    by_seed = generator.normal(size=(200, 1)) + generator.normal(0, 0.1, size=(200, 5))
    found = bootstrap(np.mean, by_seed)
    assert found.value == pytest.approx(by_seed.mean())
    # As wide as if each seed had one value: the five are nearly the same.
    assert found.high - found.low == pytest.approx(2 * 1.96 * by_seed.mean(axis=1).std() / np.sqrt(200), rel=0.1)


def test_verdicts_follow_from_the_interval():
    assert Difference(0.5, 0.1, 0.9).verdict == "holds"
    assert Difference(-0.5, -0.9, -0.1).verdict == "does not hold"
    assert Difference(0.5, -0.1, 0.9).verdict == "undecided"


def test_differences_have_the_sign_of_the_claim():
    generator = np.random.default_rng(1)
    low, high, wide = generator.normal(size=20), generator.normal(5, 1, size=20), generator.normal(0, 9, size=20)
    assert mean_difference(high, low).verdict == "holds"
    assert mean_difference(low, high).verdict == "does not hold"
    assert spread_difference(wide, low).verdict == "holds"
    assert spread_difference(low, generator.normal(size=20)).verdict == "undecided"


def test_one_seed_decides_nothing_and_equal_seeds_everything():
    assert mean_difference(np.array([2.0]), np.array([1.0])).verdict == "undecided"
    assert mean_difference(np.full(5, 2.0), np.full(5, 1.0)) == Difference(1.0, 1.0, 1.0)


def test_intervals_of_success_rates_are_wilsons_and_within_0_and_1():
    rates = np.array([[1.0, 0.0, 0.5], [1.0, 0.0, 1.0], [1.0, 0.0, 0.0], [1.0, 0.0, 1.0]])
    low, high = wilson_interval(rates)
    for column, successes in enumerate((4, 0)):
        expected = stats.binomtest(successes, 4).proportion_ci(method="wilson")
        assert (low[column], high[column]) == pytest.approx((expected.low, expected.high))
    assert 0 <= low.min() < high.max() <= 1
    assert wilson_interval(rates[:1]) is None
