import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from farflung import TabularSoftmax, make_tabular_world, softmax_team, uniform_team


@pytest.fixture(params=[False, True], ids=["stationary", "time-dependent"])
def policy(request):
    shape = (5, 7, 3) if request.param else (7, 3)
    return TabularSoftmax(jax.random.normal(jax.random.key(0), shape), request.param)


def table_at(policy, time):
    return (
        np.asarray(jax.nn.softmax(policy.logits))[time]
        if policy.is_time_dependent
        else np.asarray(jax.nn.softmax(policy.logits))
    )


def test_actions_are_drawn_with_the_softmax_probabilities(policy):
    noise = jax.random.uniform(jax.random.key(1), (40_000, 1))
    sample = policy.sampler()
    for time, state in ((0, 0), (4, 6), (2, 3)):
        actions = jax.vmap(lambda n, t=time, s=state: sample(n, jnp.int32(t), jnp.int32(s)))(noise)
        np.testing.assert_allclose(np.bincount(actions, minlength=3) / 40_000, table_at(policy, time)[state], atol=0.012)


def test_the_score_is_the_gradient_of_the_weighted_log_probability(policy):
    generator = np.random.default_rng(0)
    states = jnp.asarray(generator.integers(7, size=(4, 2, 5)), jnp.int32)
    actions = jnp.asarray(generator.integers(3, size=(4, 2, 5)), jnp.int32)
    weights = jnp.asarray(generator.normal(size=(4, 1, 5)), jnp.float32)

    def surrogate(logits):
        table = jax.nn.log_softmax(logits)
        rows = table[jnp.arange(5), states] if policy.is_time_dependent else table[states]
        return jnp.sum(weights * jnp.take_along_axis(rows, actions[..., None], axis=-1)[..., 0])

    np.testing.assert_allclose(policy.score(states, actions, weights).logits, jax.grad(surrogate)(policy.logits), atol=2e-6)


def test_the_entropy_in_a_state_agrees_with_scipy(policy):
    states = jnp.array([[0, 1, 2, 3, 4], [6, 6, 6, 6, 6]])
    expected = [[stats.entropy(table_at(policy, time)[state]) for time, state in enumerate(row)] for row in states]
    np.testing.assert_allclose(policy.entropy(states), expected, atol=1e-6)


def test_initial_logits_fill_the_interval_from_minus_one_to_one():
    team = softmax_team(jax.random.key(0), make_tabular_world("maze-det"), 6)
    assert team.logits.shape == (6, 43, 4)
    assert stats.kstest(np.asarray(team.logits).ravel(), stats.uniform(-1, 2).cdf).pvalue > 0.01


def test_a_time_dependent_team_has_a_table_for_each_time():
    assert softmax_team(jax.random.key(0), make_tabular_world("maze-det"), 2, is_time_dependent=True).logits.shape == (
        2,
        10,
        43,
        4,
    )


def test_the_uniform_team_takes_every_action_equally():
    np.testing.assert_allclose(uniform_team(make_tabular_world("room-det"), 3).probabilities, np.full((3, 43, 4), 0.25))
