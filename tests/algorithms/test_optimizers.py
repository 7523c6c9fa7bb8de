import jax
import jax.numpy as jnp
import numpy as np
import pytest

from farflung import PGPSE, TabularSoftmax, make_tabular_world, play, plug_in
from farflung.algorithms.optimizers import optimizer


def random_team(*shape, is_time_dependent=False):
    return TabularSoftmax(jax.random.normal(jax.random.key(0), shape), is_time_dependent)


def step_of(name, rate, team, gradient, visits):
    chain = optimizer(name, lambda _: jnp.float32(rate))
    descent = TabularSoftmax(-gradient, team.is_time_dependent)
    return chain.update(descent, chain.init(team), team, visits=visits)[0].logits


def mean_divergence(team, step, visits):
    before, after = jax.nn.log_softmax(team.logits), jax.nn.log_softmax(team.logits + step)
    divergence = np.sum(np.exp(before) * (before - after), axis=-1).reshape(len(visits), -1)
    weights = np.asarray(visits).reshape(len(visits), -1)
    return np.sum(weights * divergence, axis=1) / weights.sum(axis=1)


def test_the_natural_gradient_solves_for_the_damped_fisher_information():
    team = random_team(2, 5, 4)
    gradient = jax.random.normal(jax.random.key(1), (2, 5, 4))
    visits = jnp.asarray(np.random.default_rng(0).uniform(0, 2, (2, 5)), jnp.float32).at[0, 3].set(0.0)
    found = step_of("natural", 0.5, team, gradient, visits)
    for agent, state in np.ndindex(2, 5):
        policy = np.asarray(team.probabilities[agent, state], np.float64)
        fisher = float(visits[agent, state]) * (np.diag(policy) - np.outer(policy, policy))
        expected = 0.5 * np.linalg.solve(fisher + 0.03 * np.eye(4), np.asarray(gradient[agent, state]))
        np.testing.assert_allclose(found[agent, state], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("times", [(), (3,)], ids=["stationary", "time-dependent"])
@pytest.mark.parametrize("limit", [1e-4, 0.01, 0.3])
def test_a_trust_region_step_has_the_given_divergence(limit, times):
    team = random_team(2, *times, 5, 4, is_time_dependent=bool(times))
    gradient = jax.random.normal(jax.random.key(1), team.logits.shape) * 1e-3
    visits = jnp.asarray(np.random.default_rng(0).uniform(0, 2, team.logits.shape[:-1]), jnp.float32)
    found = mean_divergence(team, step_of("trust-region", limit, team, gradient, visits), visits)
    assert np.all(found <= limit * 1.1)
    assert np.all(found > limit * 0.5)


@pytest.mark.parametrize("name", ["sgd", "adam", "natural", "trust-region"])
def test_no_gradient_is_no_step(name):
    team = random_team(2, 5, 4)
    step = step_of(name, 0.1, team, jnp.zeros((2, 5, 4)), jnp.ones((2, 5)))
    np.testing.assert_array_equal(step, 0)


def test_time_dependent_tables_share_what_they_learn():
    team = random_team(2, 3, 5, 4, is_time_dependent=True)
    gradient = jax.random.normal(jax.random.key(1), (2, 3, 5, 4))
    step = step_of("sgd", 0.2, team, gradient, jnp.ones((2, 3, 5)))
    expected = 0.2 * (np.sum(gradient, axis=1, keepdims=True) + 0.1 * gradient)
    np.testing.assert_allclose(step, np.broadcast_to(expected, step.shape), atol=1e-6)


@pytest.mark.parametrize("name", ["natural", "trust-region"])
def test_every_optimizer_learns(name):
    world = make_tabular_world("room-det")
    algorithm = PGPSE(2, optimizer=name, credit="causal", learning_rate={"natural": 3.0, "trust-region": 0.01}[name])

    def update(state, key):
        batch = play(key, state.team, world, algorithm.batch_size, algorithm.num_trajectories)
        return algorithm.learn(world, state, batch), jnp.mean(jax.vmap(plug_in(43).value)(batch.states))

    state = algorithm.init(jax.random.key(0), world)
    _, entropy = jax.jit(lambda state, keys: jax.lax.scan(update, state, keys))(state, jax.random.split(jax.random.key(1), 150))
    assert jnp.mean(entropy[-10:]) > 1.3 * jnp.mean(entropy[:3])
