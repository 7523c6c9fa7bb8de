import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from farflung import decompose, make_tabular_world, measure, play, softmax_team, uniform_team
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


def test_individual_entropy_and_diversity_are_jackknifed_over_the_batch(measured):
    states = np.asarray(measured[1].states)

    def parts(elements):
        agents = [np.bincount(elements[:, agent].ravel(), minlength=43) for agent in range(3)]
        return np.array([[stats.entropy(agent), stats.entropy(agent, np.sum(agents, axis=0))] for agent in agents]).mean(axis=0)

    others = np.mean([parts(np.delete(states, element, axis=0)) for element in range(10)], axis=0)
    individual, diversity = 10 * parts(states) - 9 * others
    assert float(measured[2].individual_entropy) == pytest.approx(individual, abs=2e-5)
    assert float(measured[2].diversity) == pytest.approx(diversity, abs=2e-5)


@pytest.mark.parametrize(("batch_size", "share"), [(4, 0.6), (40, 0.3)])
def test_the_recorded_diversity_has_little_of_the_plain_estimates_bias(batch_size, share):
    world = make_tabular_world("room-stoc")
    teams = {"different": softmax_team(jax.random.key(0), world, 4)}
    teams["copies"] = jax.tree.map(lambda leaf: leaf[:1].repeat(4, axis=0), teams["different"])

    @jax.jit
    def biases(team):
        def measured(key):
            trajectories = play(key, team, world, batch_size, 1)
            pooled = jax.vmap(lambda own: jnp.bincount(own.ravel(), length=43), 1)(trajectories.states)
            plain = decompose(pooled / pooled.sum(axis=1, keepdims=True))[1]
            return jnp.stack([measure(team, trajectories, 43).diversity, plain])

        return jax.vmap(measured)(jax.random.split(jax.random.key(1), 300))

    for team in teams.values():
        exact = float(decompose(metrics.occupancy(world, team))[1])
        errors = np.asarray(biases(team)) - exact
        corrected, plain = errors.mean(axis=0)
        assert plain > 0.5 / batch_size  # what the correction is for
        assert abs(corrected) < share * plain


def test_a_batch_of_one_element_is_not_corrected():
    world = make_tabular_world("room-stoc")
    team = softmax_team(jax.random.key(0), world, 3)
    states = play(jax.random.key(1), team, world, 1, 2).states
    pooled = np.stack([np.bincount(np.asarray(own).ravel(), minlength=43) for own in states[0]]) / states[0, 0].size
    found = measure(team, play(jax.random.key(1), team, world, 1, 2), 43)
    assert float(found.diversity) == pytest.approx(float(decompose(jnp.asarray(pooled, jnp.float32))[1]), abs=1e-5)


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
