import jax
import jax.numpy as jnp
import numpy as np
import pytest

from farflung import gridworld, make_tabular_world, play, softmax_team


@pytest.mark.parametrize("is_time_dependent", [False, True])
@pytest.mark.parametrize("name", ["maze-det", "maze-stoc"])
def test_visits_agree_with_the_exact_distributions(name, is_time_dependent):
    world = make_tabular_world(name)
    team = softmax_team(jax.random.key(0), world, 2, is_time_dependent=is_time_dependent)
    states, actions, *_ = play(jax.random.key(1), team, world, 20_000, 1)
    assert states.shape == (20_000, 2, 1, 11)
    assert actions.shape == (20_000, 2, 1, 10)
    exact = jax.vmap(world.state_distributions)(team.probabilities)
    for agent in range(2):
        for time in range(11):
            share = np.bincount(states[:, agent, 0, time], minlength=43) / 20_000
            np.testing.assert_allclose(share, exact[agent, time], atol=0.018)


def test_every_step_is_one_that_the_world_allows():
    world = make_tabular_world("room-stoc")
    states, actions, *_ = play(jax.random.key(0), softmax_team(jax.random.key(1), world, 3), world, 50, 2)
    possible = np.asarray(world.successors)[states[..., :-1], actions]
    is_successor = (possible == np.asarray(states)[..., 1:, None]) & (
        np.asarray(world.probabilities)[states[..., :-1], actions] > 0
    )
    assert is_successor.any(axis=-1).all()


def test_trajectories_differ_between_batch_elements_agents_and_trajectories():
    world = make_tabular_world("maze-stoc", horizon=40)
    states, actions, *_ = play(jax.random.key(0), softmax_team(jax.random.key(1), world, 3), world, 4, 2)
    assert len(np.unique(np.asarray(actions).reshape(24, -1), axis=0)) == 24
    assert len(np.unique(np.asarray(states).reshape(24, -1), axis=0)) == 24


def test_starts_follow_the_start_distribution():
    world = gridworld("S..S\n....\nS..S", horizon=3)
    states, *_ = play(jax.random.key(0), softmax_team(jax.random.key(1), world, 2), world, 5_000, 1)
    np.testing.assert_allclose(np.bincount(states[..., 0].ravel(), minlength=12)[[0, 3, 8, 11]] / 10_000, 0.25, atol=0.02)


@pytest.mark.bits
def test_unrolled_and_rolled_loops_give_the_same_trajectories(monkeypatch):
    world = make_tabular_world("maze-stoc")
    team = softmax_team(jax.random.key(0), world, 2)
    rolled = play(jax.random.key(1), team, world, 5, 2)
    monkeypatch.setattr("farflung.policies.rollout.runs_on_cpu", lambda: False)
    monkeypatch.setattr("farflung.numerics.arrays.runs_on_cpu", lambda: False)
    unrolled = play(jax.random.key(1), team, world, 5, 2)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, rolled, unrolled))
