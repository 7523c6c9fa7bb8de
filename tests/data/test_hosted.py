import json

import gymnasium
import minari
import numpy as np
import pytest
from gymnasium import spaces
from tests.worlds.hosted.simulators import Corridor, Planes

import farflung
from farflung.worlds.hosted.tables import hosted


@pytest.fixture(scope="module")
def run():
    return farflung.explore(hosted("FrozenLake-v1", horizon=12), agents=2, updates=2, batch_size=3, seeds=(0,))


def test_episodes_go_to_minari_as_the_environment_shows_them(run, tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset = farflung.collect(run, 40)
    farflung.to_minari(dataset, "lake/two-v0")
    stored = minari.load_dataset("lake/two-v0")
    assert stored.recover_environment().spec.id == "FrozenLake-v1"
    lengths = [len(episode) for episode in stored.iterate_episodes()]
    np.testing.assert_array_equal(lengths, dataset.lengths)
    assert min(lengths) < 12  # holes end an episode
    lake = farflung.from_gymnasium("FrozenLake-v1")
    steps, states = dataset.steps(), {int(label): state for state, label in enumerate(lake.labels)}
    for seen, action, after in zip(steps.observations, steps.actions, steps.next_observations, strict=True):
        assert states[int(after)] in lake.successors[states[int(seen)], action]


def test_the_same_command_gives_the_same_data_and_more_begins_alike(run):
    some, more = farflung.collect(run, 10, random_seed=3), farflung.collect(run, 16, random_seed=3)
    np.testing.assert_array_equal(some.observations, more.observations[:10])
    np.testing.assert_array_equal(some.agents, np.arange(10) % 2)


def test_states_that_were_met_say_what_they_are():
    run = farflung.explore(hosted(Planes, horizon=4, observe="cell"), agents=2, updates=2, batch_size=2, seeds=(0,))
    known = run.world.num_states
    dataset = farflung.collect(run, 30)
    features = dataset.source.metadata["features"]
    assert dataset.source.environment is None
    assert dataset.observations.max() < len(features) == dataset.source.num_observations
    assert features[:known] == run.world.index.features.tolist()
    assert run.world.num_states == known  # what is met later is not the run's
    json.dumps(features)


def test_an_early_end_is_the_environments_and_not_a_limit():
    run = farflung.explore(hosted(Corridor, horizon=6), agents=2, updates=2, batch_size=2, seeds=(0,))
    dataset = farflung.collect(run, 60)
    assert dataset.terminated.any()
    last = dataset.observations[np.arange(60), dataset.lengths]
    np.testing.assert_array_equal(dataset.terminated, last == 4)
    np.testing.assert_array_equal(dataset.truncated, ~dataset.terminated)
    np.testing.assert_allclose(dataset.rewards.sum(axis=1), dataset.terminated)


class Sparse(Corridor):
    """Shows 7, 1007, 2007 and so on, of more observations than could be listed."""

    observation_space = spaces.Discrete(200_000)

    def reset(self, *, seed=None, options=None):
        return 7 + 1000 * (super().reset(seed=seed)[0] - 10), {}

    def step(self, action):
        observation, *rest = super().step(action)
        return 7 + 1000 * (observation - 10), *rest


def test_numbers_of_states_are_not_taken_for_observations():
    run = farflung.explore(hosted(Sparse, horizon=6), agents=2, updates=2, batch_size=2, seeds=(0,))
    dataset = farflung.collect(run, 20)
    shown = np.array(dataset.source.metadata["features"])[dataset.observations, 0]
    assert set(shown[dataset.is_observed]) <= {7, 1007, 2007, 3007, 4007}


def test_an_environment_that_a_class_was_registered_for_can_be_recovered(tmp_path, monkeypatch):
    if "Corridor-v0" not in gymnasium.registry:
        gymnasium.register("Corridor-v0", Corridor, max_episode_steps=6)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    run = farflung.explore("Corridor-v0", agents=2, updates=2, batch_size=2, seeds=(0,))
    dataset = farflung.collect(run, 8)
    farflung.to_minari(dataset, "corridor/two-v0")
    stored = minari.load_dataset("corridor/two-v0")
    assert stored.recover_environment().spec.id == "Corridor-v0"
    np.testing.assert_array_equal(stored[0].observations, dataset.observations[0][: dataset.lengths[0] + 1])
    assert stored[0].observations[0] == 12
