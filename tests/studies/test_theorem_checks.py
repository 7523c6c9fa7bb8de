import itertools

import numpy as np
import pytest
from scipy import stats

from farflung.bounds import theorems as theory
from farflung.studies.concentration.experiment import exact_deviation_probability
from farflung.studies.reproduce.theorems import check_theorems, vacuous_below


@pytest.fixture(scope="module")
def checks():
    return check_theorems()


def test_the_probability_of_a_deviation_is_that_of_all_sequences():
    shares, number, epsilon = np.array([0.7, 0.2, 0.1]), 6, 0.3
    expected = 0.0
    for drawn in itertools.product(range(3), repeat=number):
        if stats.entropy(shares) - stats.entropy(np.bincount(drawn, minlength=3)) > epsilon:
            expected += np.prod(shares[list(drawn)])
    assert exact_deviation_probability(shares, number, epsilon) == pytest.approx(expected)


def test_theorem_4_1_is_judged_where_it_says_something_and_the_event_is_possible(checks):
    for check in checks.deviations:
        assert 1e-7 < check.probability < check.bound < 1
        shares = np.array([1 - check.rare, check.rare])
        assert check.bound == theory.deviation_probability(shares, check.num_samples, check.epsilon)


def test_below_some_number_of_samples_the_theorem_says_nothing():
    uniform = np.full(43, 1 / 43)
    number = vacuous_below(uniform, 0.1)
    assert number > 10_000_000
    assert theory.deviation_probability(uniform, number - 10, 0.1) == 1
    assert theory.deviation_probability(uniform, number + 10, 0.1) < 1


def test_one_agent_with_small_steps_does_what_agents_in_turn_do(checks):
    floors = checks.convergence.floors
    assert floors["together"] == pytest.approx(floors["one agent"], rel=1e-3)
    assert floors["in turn"] < floors["one agent"] / 4
    assert floors["one agent, small steps"] == pytest.approx(floors["in turn"], rel=0.2)
    assert checks.convergence.theorem_gap < checks.convergence.epsilon
