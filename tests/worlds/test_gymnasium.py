import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

from farflung import from_gymnasium, make_tabular_world


@pytest.mark.parametrize(
    ("name", "num_states", "num_actions", "horizon"),
    [("FrozenLake-v1", 16, 4, 100), ("FrozenLake8x8-v1", 64, 4, 200), ("CliffWalking-v1", 38, 4, 14), ("Taxi-v4", 404, 6, 200)],
)
def test_toy_text_environments_have_their_reachable_states(name, num_states, num_actions, horizon):
    world = make_tabular_world(name)
    assert (world.num_states, world.num_actions, world.horizon) == (num_states, num_actions, horizon)


@pytest.mark.parametrize("name", ["CliffWalking-v1", "Taxi-v4"])
def test_a_walk_agrees_with_gymnasium(name):
    environment = gymnasium.make(name, max_episode_steps=10**6)
    world = from_gymnasium(name, horizon=1)
    labels = np.asarray(world.labels)
    observation, _ = environment.reset(seed=0)
    environment.action_space.seed(0)
    state = int(np.flatnonzero(labels == observation)[0])
    for _ in range(300):
        action = environment.action_space.sample()
        observation, _, is_end, _, _ = environment.step(action)
        state = int(world.step_from(jnp.zeros(0), jnp.int32(state), jnp.int32(action)))
        assert labels[state] == observation
        if is_end:
            assert (np.asarray(world.successors[state]) == state).all()
            break


def test_the_world_has_the_table_of_frozen_lake():
    environment = gymnasium.make("FrozenLake-v1")
    world = from_gymnasium(environment)
    for state, action in ((0, 0), (6, 2), (14, 1)):
        table = np.zeros(16)
        for probability, successor, _, _ in environment.unwrapped.P[state][action]:
            table[successor] += probability
        ours = np.zeros(16)
        np.add.at(ours, np.asarray(world.successors[state, action]), np.asarray(world.probabilities[state, action]))
        np.testing.assert_allclose(ours, table, atol=1e-6)


def test_states_that_end_an_episode_are_absorbing():
    world = make_tabular_world("FrozenLake-v1")
    for hole_or_goal in (5, 7, 11, 12, 15):
        assert (np.asarray(world.successors[hole_or_goal]) == hole_or_goal).all()


def test_maps_have_positions():
    assert make_tabular_world("FrozenLake-v1").positions.shape == (16, 2)
    assert make_tabular_world("CliffWalking-v1").positions.tolist()[-1] == [3, 11]
    assert make_tabular_world("Taxi-v4").positions.max(axis=0).tolist() == [4, 4]  # several states in each cell


def test_an_environment_without_a_table_is_refused():
    with pytest.raises(ValueError, match="carries no transition table"):
        make_tabular_world("CartPole-v1")


def test_slip_is_for_maps_only():
    with pytest.raises(ValueError, match="maps only"):
        make_tabular_world("FrozenLake-v1", slip=0.1)


def test_taxis_walls_are_those_of_its_drawing():
    drawing = gymnasium.make("Taxi-v4").unwrapped.desc[1:-1]
    rows, bars = np.nonzero(drawing[:, 1:-1] == b"|")
    lines = {(bar / 2, bar / 2, row - 0.5, row + 0.5) for row, bar in zip(rows, bars, strict=True)}
    assert len(lines) == 6
    assert set(from_gymnasium("Taxi-v4").walls) == lines
    assert from_gymnasium("FrozenLake-v1").walls == ()  # nothing leads from hole to hole, but these are no walls
    assert from_gymnasium("CliffWalking-v1").walls == ()  # from the cliff one falls to a cell far away
