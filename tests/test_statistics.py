import numpy as np
import pytest
from scipy import stats

from farflung.runs.statistics import (
    Difference,
    contrast,
    holm,
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


def test_a_difference_of_means_is_welchs():
    generator = np.random.default_rng(0)
    first, second = generator.normal(1, 3, size=5), generator.normal(0, 1, size=7)
    found = mean_difference(first, second)
    expected = stats.ttest_ind(first, second, equal_var=False)
    interval = expected.confidence_interval(0.95)
    np.testing.assert_allclose(found, (first.mean() - second.mean(), interval.low, interval.high, expected.pvalue))


def test_a_contrast_of_one_sample_is_students():
    values = np.random.default_rng(2).normal(1, 2, size=6)
    expected = stats.ttest_1samp(values, 0)
    interval = expected.confidence_interval(0.95)
    np.testing.assert_allclose(contrast((1,), values), (values.mean(), interval.low, interval.high, expected.pvalue))


def test_intervals_of_five_seeds_cover_the_truth_as_often_as_they_say():
    generator = np.random.default_rng(0)
    drawn = [contrast((2, -1, -1), *generator.normal(0, [[1], [2], [0.5]], size=(3, 5))) for _ in range(2000)]
    assert 0.94 < np.mean([found.low < 0 < found.high for found in drawn]) < 0.985
    spreads = [spread_difference(*generator.normal(size=(2, 5))) for _ in range(2000)]
    assert 0.94 < np.mean([found.low < 0 < found.high for found in spreads]) < 0.985


def test_values_of_a_seed_count_as_one():
    generator = np.random.default_rng(3)
    by_seed, others = generator.normal(size=(6, 5)), generator.normal(size=(6, 5))
    assert mean_difference(by_seed, others) == mean_difference(by_seed.mean(axis=1), others.mean(axis=1))


def test_verdicts_follow_from_the_p_value_and_the_sign():
    assert Difference(0.5, 0.1, 0.9, 0.01).verdict == "holds"
    assert Difference(-0.5, -0.9, -0.1, 0.01).verdict == "does not hold"
    assert Difference(0.5, -0.1, 0.9, 0.2).verdict == "undecided"
    assert Difference(0.5, 0.1, 0.9, 0.01).verdict_at(0.06) == "undecided"


def test_differences_have_the_sign_of_the_claim():
    generator = np.random.default_rng(1)
    low, high, wide = generator.normal(size=20), generator.normal(5, 1, size=20), generator.normal(0, 9, size=20)
    assert mean_difference(high, low).verdict == "holds"
    assert mean_difference(low, high).verdict == "does not hold"
    assert spread_difference(wide, low).verdict == "holds"
    assert spread_difference(wide, low).value == pytest.approx(np.log2(wide.std() / low.std()), abs=0.2)
    assert spread_difference(low, generator.normal(size=20)).verdict == "undecided"


def test_one_seed_decides_nothing_and_equal_seeds_everything():
    assert mean_difference(np.array([2.0]), np.array([1.0])).verdict == "undecided"
    assert mean_difference(np.full(5, 2.0), np.full(5, 1.0)) == Difference(1.0, 1.0, 1.0, 0.0)
    assert mean_difference(np.full(5, 2.0), np.full(5, 2.0)).verdict == "undecided"
    assert spread_difference(np.array([1.0, 2.0]), np.array([1.0, 9.0])).verdict == "undecided"


def test_holm_rejects_what_its_definition_rejects():
    generator = np.random.default_rng(0)
    for _ in range(50):
        p_values = generator.random(6) ** 3
        rejected, left = set(), 6
        for row in np.argsort(p_values):
            if p_values[row] > 0.05 / left:
                break
            rejected.add(int(row))
            left -= 1
        assert {row for row, p_value in enumerate(holm(p_values.tolist())) if p_value <= 0.05} == rejected


def test_intervals_of_success_rates_are_wilsons_and_within_0_and_1():
    rates = np.array([[1.0, 0.0, 0.5], [1.0, 0.0, 1.0], [1.0, 0.0, 0.0], [1.0, 0.0, 1.0]])
    low, high = wilson_interval(rates)
    for column, successes in enumerate((4, 0)):
        expected = stats.binomtest(successes, 4).proportion_ci(method="wilson")
        assert (low[column], high[column]) == pytest.approx((expected.low, expected.high))
    assert 0 <= low.min() < high.max() <= 1
    assert wilson_interval(rates[:1]) is None
