import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from farflung import decompose
from farflung.bounds import theorems as theory
from farflung.bounds.theorems import SmoothedEntropy

EPSILONS = (0.02, 0.1, 0.3, 1.0)


@st.composite
def distributions(draw, most=6):
    weights = draw(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=most))
    shares = np.array(weights) ** draw(st.sampled_from([0.2, 1, 4]))
    return shares / shares.sum()


def exact_probability(shares, num_samples, epsilon):
    """By enumeration of all counts that the samples can have."""
    total = 0.0
    for counts in itertools.product(range(num_samples + 1), repeat=len(shares)):
        if sum(counts) == num_samples and stats.entropy(shares) - stats.entropy(counts) > epsilon:
            total += stats.multinomial.pmf(counts, num_samples, shares)
    return total


@settings(max_examples=150, deadline=None)
@given(distributions(most=3), st.integers(1, 9), st.sampled_from(EPSILONS))
def test_both_bounds_hold_where_the_probability_can_be_enumerated(shares, num_samples, epsilon):
    exact = exact_probability(shares, num_samples, epsilon)
    assert exact <= theory.deviation_probability(shares, num_samples, epsilon) + 1e-9
    assert exact <= theory.sharper_deviation_probability(len(shares), num_samples, epsilon) + 1e-9


@settings(max_examples=3000, deadline=None)
@given(distributions(most=12), st.integers(1, 2000), st.floats(0.01, 1.5), st.integers(0, 2**32 - 1))
def test_no_random_distribution_violates_a_bound(shares, num_samples, epsilon, seed):
    draws = 400
    counts = np.random.default_rng(seed).multinomial(num_samples, shares, size=draws)
    found = np.mean(stats.entropy(shares) - stats.entropy(counts, axis=1) > epsilon)
    noise = 5 * math.sqrt(max(found * (1 - found), 1 / draws) / draws)
    assert found <= theory.deviation_probability(shares, num_samples, epsilon) + noise
    assert found <= theory.sharper_deviation_probability(len(shares), num_samples, epsilon) + noise


def test_the_papers_bound_asks_for_a_billion_samples_where_the_sharper_one_asks_for_thousands():
    shares = np.full(43, 1 / 43)
    papers = theory.samples_needed(shares, epsilon=0.1, delta=0.05)
    sharper = theory.sharper_samples_needed(43, epsilon=0.1, delta=0.05)
    by_hand = 2 * 43**3 * math.log(43) ** 2 / (0.1**2 * (1 - 1 / 43)) * math.log(2 * 43 / 0.05)
    assert papers == math.ceil(by_hand)
    assert papers > 1e9
    assert 1e3 < sharper < 1e5


@settings(max_examples=100, deadline=None)
@given(distributions(), st.floats(0.01, 1.0), st.floats(0.001, 0.5))
def test_sample_sizes_are_the_probabilities_solved_for_n(shares, epsilon, delta):
    needed = theory.samples_needed(shares, epsilon, delta)
    assert theory.deviation_probability(shares, needed, epsilon) <= delta * (1 + 1e-9)
    if needed > 2:
        assert theory.deviation_probability(shares, needed - 2, epsilon) > delta
    sharper = theory.sharper_samples_needed(len(shares), epsilon, delta)
    assert theory.sharper_deviation_probability(len(shares), sharper, epsilon) <= delta
    if sharper > 1:
        assert theory.sharper_deviation_probability(len(shares), sharper - 1, epsilon) > delta
    for more in (1, 2, 5, 100):
        assert theory.sharper_deviation_probability(len(shares), sharper + more, epsilon) <= delta


@pytest.mark.parametrize("num_samples", [1, 2, 3, 4, 6])
def test_the_largest_change_is_that_of_all_pairs_of_samples_that_differ_in_one(num_samples):
    largest = 0.0
    for samples in itertools.product(range(4), repeat=num_samples):
        before = stats.entropy(np.bincount(samples, minlength=4))
        for value in range(4):
            after = stats.entropy(np.bincount((value, *samples[1:]), minlength=4))
            largest = max(largest, abs(after - before))
    assert theory.largest_change(num_samples) == pytest.approx(largest)


@settings(max_examples=60, deadline=None)
@given(distributions(most=3), st.integers(1, 8))
def test_the_bias_stays_within_its_bound(shares, num_samples):
    mean = sum(
        stats.multinomial.pmf(counts, num_samples, shares) * stats.entropy(counts)
        for counts in itertools.product(range(num_samples + 1), repeat=len(shares))
        if sum(counts) == num_samples
    )
    assert -1e-9 <= stats.entropy(shares) - mean <= theory.bias_bound(len(shares), num_samples) + 1e-9


@pytest.mark.parametrize(("num_agents", "seed"), [(1, 0), (2, 1), (3, 2), (5, 3)])
def test_the_decomposition_is_an_identity(num_agents, seed):
    shares = np.random.default_rng(seed).dirichlet(np.full(5, 0.5), size=num_agents)
    parts = theory.mixture_decomposition(shares)
    assert parts.mixture == pytest.approx(parts.individual + parts.diversity)
    np.testing.assert_allclose(parts[1:], [float(part) for part in decompose(jnp.asarray(shares, jnp.float32))], atol=1e-5)


def test_agents_that_never_meet_add_log_m():
    blocks = np.kron(np.eye(3), np.array([[0.2, 0.8]]))
    parts = theory.mixture_decomposition(blocks)
    assert parts.mixture == pytest.approx(theory.disjoint_mixture_entropy([stats.entropy([0.2, 0.8])] * 3))
    assert parts.diversity == pytest.approx(math.log(3))


@settings(max_examples=50, deadline=None)
@given(distributions(), st.floats(1e-4, 0.5))
def test_smoothing_makes_the_entropy_smooth_with_these_constants(shares, smoothing):
    objective = SmoothedEntropy(smoothing)
    gradient = -1 - np.log(shares + smoothing)
    assert (np.abs(gradient) <= objective.gradient_bound + 1e-9).all()
    assert (1 / (shares + smoothing) <= objective.smoothness + 1e-9).all()


def test_the_frank_wolfe_rate_is_the_theorems():
    objective, epsilon = SmoothedEntropy(0.01), 0.1
    step_size = theory.frank_wolfe_step_size(43, 4, epsilon, objective)
    assert step_size == pytest.approx(0.1 * 4 * 0.1 / (43 * 100))
    iterations = theory.frank_wolfe_iterations(43, 4, epsilon, objective)
    assert iterations == math.ceil(10 * 100 * 43 / (4 * 0.1) * math.log(10 * objective.gradient_bound / 0.1))
    errors = {"density_error": 0.1 * epsilon / 100, "planning_error": 0.1 * epsilon}
    gap = theory.frank_wolfe_gap(iterations, step_size, 43, 4, objective, **errors)
    assert gap == pytest.approx((0.1 + 0.2 + 0.1 + 0.1) * epsilon, rel=1e-3)


def test_a_step_of_the_papers_proof_does_not_hold_as_written():
    share, num_samples, margin = 0.01, 10, 0.15  # the example of docs/theory.md
    exact = stats.binom.sf(math.floor(num_samples * (share + margin)), num_samples, share)
    assert exact == pytest.approx(0.0043, abs=5e-5)
    assert exact > 2 * math.exp(-num_samples * margin**2 / (2 * share * (1 - share)))


def test_certainty_concentrates_at_once():
    assert theory.deviation_probability([1.0, 0.0], 1, 0.1) == 0
    assert theory.samples_needed([1.0, 0.0], 0.1, 0.05) == 1
    assert theory.sharper_deviation_probability(1, 1, 0.1) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.variance([0.5, 0.4]), "add up to one, not 0.9"),
        (lambda: theory.variance([1.5, -0.5]), "finite and not negative"),
        (lambda: theory.variance([]), "list of probabilities"),
        (lambda: theory.deviation_probability([0.5, 0.5], 10, 0.0), "epsilon must be a positive number, not 0.0"),
        (lambda: theory.deviation_probability([0.5, 0.5], 0, 0.1), "num_samples must be at least 1"),
        (lambda: theory.samples_needed([0.5, 0.5], 0.1, 1.0), "delta must lie between 0 and 1, not 1.0"),
        (lambda: theory.sharper_samples_needed(3, -1.0, 0.5), "epsilon must be a positive number"),
        (lambda: theory.sharper_samples_needed(3, 0.1, 0.0), "delta must lie between 0 and 1"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_bounds_hold_for_more_samples_than_anyone_draws():
    assert theory.bias_bound(43, 2**40) == pytest.approx(42 / 2**40)
    assert 0 < theory.largest_change(2**40) < 1e-10
