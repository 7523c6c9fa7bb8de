import dataclasses

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.data.teams import assert_same, make_run

from farflung import collect
from farflung.data import collect_parts, collecting
from farflung.policies import TabularSoftmax


@pytest.fixture(scope="module")
def run():
    return make_run("maze-stoc")


def test_every_step_is_possible_and_every_episode_complete(run):
    data = collect(run, 100)
    assert data.observations.shape == (100, 11)
    assert data.actions.shape == (100, 10)
    assert (data.observations[:, 0] == int(run.world.start_states[0])).all()
    steps = data.steps()
    assert (
        (np.asarray(run.world.successors)[steps.observations, steps.actions] == steps.next_observations[:, None]).any(1).all()
    )
    assert data.truncated.all()
    assert not data.terminated.any()
    assert not data.rewards.any()


def test_episodes_are_dealt_to_the_agents_in_turn(run):
    constant = 100.0 * jax.nn.one_hot(jnp.arange(3), 4)  # agent i always takes action i
    logits = jnp.broadcast_to(constant[:, None, :], (3, 43, 4))
    team = TabularSoftmax(jnp.broadcast_to(logits, (3, *logits.shape)))
    data = collect(dataclasses.replace(run, policies=team), 8)
    assert data.agents.tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    assert (data.actions == data.agents[:, None]).all()


def test_the_same_seed_gives_the_same_data_on_any_number_of_devices(run, monkeypatch):
    monkeypatch.setattr(collecting, "_TRANSITIONS_PER_PART", 90)
    data = collect(run, 20, random_seed=3)
    assert_same(collect(run, 20, random_seed=3), data)
    devices = jax.local_devices()
    assert len(devices) == 2
    monkeypatch.setattr(jax, "local_devices", lambda: devices[:1])
    assert_same(collect(run, 20, random_seed=3), data)
    assert (collect(run, 20, random_seed=4).actions != data.actions).any()


def test_parts_are_bounded_and_a_longer_dataset_begins_like_a_shorter_one(run, monkeypatch):
    monkeypatch.setattr(collecting, "_TRANSITIONS_PER_PART", 90)
    parts = list(collect_parts(run, 20))
    assert [len(part) for part in parts] == [9, 9, 2]
    shorter = collect(run, 10)
    np.testing.assert_array_equal(collect(run, 20).observations[:10], shorter.observations)
    assert len(np.unique(collect(run, 20).actions, axis=0)) > 10  # no part repeats another


def test_the_typical_team_plays_unless_another_is_asked_for(run):
    assert_same(collect(run, 5), collect(run, 5, seed=5))
    assert (collect(run, 5, seed=0).actions != collect(run, 5, seed=5).actions).any()
    with pytest.raises(ValueError, match="seed 1 is not one of the run's"):
        collect(run, 5, seed=1)


def test_episodes_end_where_gymnasium_ends_them():
    data = collect(make_run("FrozenLake-v1", horizon=20), 500)
    table = gymnasium.make("FrozenLake-v1").unwrapped.P
    assert data.source.num_observations == 16
    for walk, actions, rewards, length, terminated, truncated in zip(
        data.observations, data.actions, data.rewards, data.lengths, data.terminated, data.truncated, strict=True
    ):
        for time in range(length):
            outcomes = [outcome[1:] for outcome in table[walk[time]][actions[time]]]
            is_end = terminated and time == length - 1
            assert (walk[time + 1], rewards[time], is_end) in [(state, paid, bool(end)) for state, paid, end in outcomes]
        assert terminated != truncated
        assert terminated or length == 20
    assert 0 < data.rewards.sum() < data.terminated.sum() < 500
