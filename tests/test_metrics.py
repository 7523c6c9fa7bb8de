import jax
import numpy as np
import pytest
from scipy import stats

from farflung import make_tabular_world, measure, play, softmax_team, uniform_team
from farflung.training import metrics


@pytest.fixture(scope="module")
def measured():
    world = make_tabular_world("room-stoc")
    team = softmax_team(jax.random.key(0), world, 3)
    trajectories = play(jax.random.key(1), team, world, 10, 2)
    return team, trajectories, measure(team, trajectories, world.num_states)


def test_entropy_and_support_are_means_over_the_batch(measured):
    _, trajectories, found = measured
    counts = [np.bincount(element.ravel(), minlength=43) for element in np.asarray(trajectories.states)]
    assert float(found.entropy) == pytest.approx(np.mean([stats.entropy(count) for count in counts]), abs=1e-5)
    assert float(found.normalized_entropy) == pytest.approx(float(found.entropy) / np.log(43), abs=1e-6)
    assert float(found.support) == pytest.approx(np.mean([np.count_nonzero(count) for count in counts]))


def test_individual_entropy_and_diversity_are_of_the_agents_pooled_visits(measured):
    _, trajectories, found = measured
    states = np.asarray(trajectories.states)
    agents = [np.bincount(states[:, agent].ravel(), minlength=43) for agent in range(3)]
    mixture = np.sum(agents, axis=0)
    assert float(found.individual_entropy) == pytest.approx(np.mean([stats.entropy(agent) for agent in agents]), abs=1e-5)
    assert float(found.diversity) == pytest.approx(np.mean([stats.entropy(agent, mixture) for agent in agents]), abs=1e-5)
    assert float(found.mixture_entropy) == pytest.approx(stats.entropy(mixture), abs=1e-5)


def test_individual_entropy_and_diversity_add_up_to_the_mixtures(measured):
    found = measured[2]
    assert float(found.individual_entropy + found.diversity) == pytest.approx(float(found.mixture_entropy), abs=1e-5)


def test_policy_entropy_is_that_of_the_states_acted_in(measured):
    team, trajectories, found = measured
    table = stats.entropy(np.asarray(team.probabilities), axis=-1)
    states = np.asarray(trajectories.states)[..., :-1]
    assert float(found.policy_entropy) == pytest.approx(np.mean([table[i][states[:, i]].mean() for i in range(3)]), abs=1e-5)


def test_occupancy_is_exact_or_sampled_depending_on_the_size(monkeypatch):
    world = make_tabular_world("maze-stoc")
    team = softmax_team(jax.random.key(0), world, 2)
    exact = metrics.occupancy(world, team)
    by_time = jax.vmap(world.state_distributions)(team.probabilities)
    np.testing.assert_allclose(exact, by_time.mean(axis=1), atol=1e-6)
    monkeypatch.setattr(metrics, "_MOST_EXACT_OPERATIONS", 0)
    np.testing.assert_allclose(metrics.occupancy(world, team), exact, atol=0.01)


def test_the_random_team_has_no_diversity():
    world = make_tabular_world("room-det")
    team = uniform_team(world, 4)
    found = measure(team, play(jax.random.key(0), team, world, 2000, 1), 43)
    assert float(found.diversity) < 0.01
    assert float(found.policy_entropy) == pytest.approx(np.log(4), abs=1e-5)
