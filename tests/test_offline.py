import jax
import jax.numpy as jnp
import numpy as np
import pytest

from farflung import gridworld, make_tabular_world, play, uniform_team
from farflung.data.q_learning import (
    QLearning,
    Transitions,
    goal_success,
    goals_of,
    num_episode_uniforms,
    q_values,
    success_rate,
    transitions,
)
from farflung.numerics.noise import uniforms

LEFT, DOWN, RIGHT, UP = range(4)


@pytest.fixture
def corridor():
    return gridworld("S...", horizon=3)


def every_step(world):
    """A dataset with each state and action once."""
    states, actions = np.divmod(np.arange(world.num_states * world.num_actions), world.num_actions)
    next_states = np.asarray(world.successors)[states, actions, 0]
    return Transitions(*(jnp.asarray(x, jnp.int32) for x in (states, actions, next_states)), jnp.int32(len(states)))


def test_transitions_are_the_steps_of_all_trajectories(corridor):
    trajectories = play(jax.random.key(0), uniform_team(corridor, 2), corridor, 3, 1)
    data = transitions(trajectories)
    assert int(data.num) == 3 * 2 * 3
    np.testing.assert_array_equal(np.asarray(corridor.successors)[data.states, data.actions, 0], data.next_states)


def test_q_learning_agrees_with_a_loop_in_numpy(corridor):
    data, goal, key = every_step(corridor), 3, jax.random.key(4)
    noise = uniforms(key, (2000,))
    found = q_values(noise, corridor, data, jnp.int32(goal))
    drawn = np.floor(np.asarray(noise) * int(data.num)).astype(int)
    expected = np.zeros((4, 4))
    for index in drawn:
        state, action, next_state = (int(column[index]) for column in data[:3])
        target = 1.0 if next_state == goal else 0.99 * expected[next_state].max()
        expected[state, action] += 0.1 * (target - expected[state, action])
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_only_the_real_transitions_are_drawn(corridor):
    data = every_step(corridor)._replace(num=jnp.int32(4))  # those of the start
    values = q_values(uniforms(jax.random.key(0), (2000,)), corridor, data, jnp.int32(1))
    assert float(values[0, RIGHT]) > 0.9
    assert float(jnp.abs(values[1:]).max()) == 0


def test_a_complete_dataset_reaches_every_goal():
    world = make_tabular_world("maze-det")
    data = jax.tree.map(lambda leaf: leaf[None], every_step(world))
    settings = QLearning(num_batches=1000)
    rates = goal_success(jax.random.split(jax.random.key(0), 1), world, data, goals_of(world), settings)
    assert rates.shape == (1, 42)
    assert float(rates.min()) == 1


def test_an_untrained_table_reaches_almost_nothing():
    world = make_tabular_world("room-det")
    settings = QLearning(num_episodes=200)
    noise = uniforms(jax.random.key(0), (200, num_episode_uniforms(world, settings)))
    rates = [success_rate(noise, world, jnp.zeros((43, 4)), goal, settings) for goal in goals_of(world)[::6]]
    assert 0 < np.mean(rates) < 0.05


def test_a_policy_that_knows_the_way_always_arrives(corridor):
    values = jnp.zeros((4, 4)).at[:, RIGHT].set(1.0)
    for settings, expected in ((QLearning(), 1), (QLearning(max_steps=2), 0)):
        noise = uniforms(jax.random.key(0), (settings.num_episodes, num_episode_uniforms(corridor, settings)))
        assert float(success_rate(noise, corridor, values, jnp.int32(3), settings)) == expected


def test_goals_are_all_states_but_the_start():
    for name in ("room-det", "maze-stoc"):
        world = make_tabular_world(name)
        assert len(goals_of(world)) == 42
        assert int(world.start_states[0]) not in np.asarray(goals_of(world))
