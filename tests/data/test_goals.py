import dataclasses
import json

import gymnasium
import numpy as np
import pytest
from tests.data.teams import make_vector_run

from farflung import collect, make_vector_world, relabel
from farflung.data import collecting
from farflung.data.episodes import Source, vector_episodes
from farflung.data.goals import distances
from farflung.data.sources import continuous_source


@pytest.fixture(scope="module", autouse=True)
def in_small_parts():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collecting, "_VECTOR_TRANSITIONS_PER_PART", 120)
        yield


@pytest.fixture(scope="module")
def data():
    return collect(make_vector_run(horizon=20), 9)


def one_episode(world, observations):
    source = continuous_source(world, {})
    lengths, actions = np.array([len(observations) - 1], np.int32), np.zeros((1, len(observations) - 1, 2), np.float32)
    walk = np.array([observations], np.float32)
    return vector_episodes(walk, actions, source, agents=np.array([0]), lengths=lengths, terminated=np.array([False]))


def test_to_come_near_a_place_pays_once_and_ends_the_episode():
    walk = one_episode(make_vector_world("point-empty"), [(0, 0), (0.1, 0), (0.2, 0), (0.3, 0), (0.2, 0)])
    found = relabel(walk, goal=(0.3, 0.1), radius=0.15)
    assert found.lengths.tolist() == [2]
    assert found.rewards.tolist() == [[0, 1, 0, 0]]
    assert found.terminated.tolist() == [True]
    assert not found.observations[0, 3:].any()
    assert relabel(walk, goal=(0.3, 0.07)).lengths.tolist() == [3]  # within a step's size, 0.08


def test_the_environment_that_is_recovered_pays_what_the_dataset_says(data):
    goal = data.observations[0, 10].tolist()
    found = relabel(data, goal=goal, radius=0.1)
    environment = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(found.source.environment))
    assert found.terminated.any()
    for episode, length in enumerate(found.lengths):
        environment.reset(seed=0)
        for time in range(length):
            _, reward, terminated, truncated, _ = environment.step(found.actions[episode, time])
            assert reward == found.rewards[episode, time]
        assert (terminated, truncated) == (found.terminated[episode], found.truncated[episode])


def test_an_angle_comes_round():
    projection = make_vector_world("pendulum").projection
    states = np.array([[np.cos(3.1), np.sin(3.1), 0.0], [np.cos(0.0), np.sin(0.0), 0.0]], np.float32)
    near, far = distances(projection, states, np.array([-3.1, 0.0], np.float32))
    assert near == pytest.approx(2 * np.sin(np.pi - 3.1) / (2 * np.pi), abs=1e-5)
    assert far == pytest.approx(2 * np.sin(1.55) / (2 * np.pi), abs=1e-5)


def test_a_place_that_is_none_is_told(data):
    with pytest.raises(ValueError, match=r"goal is an x and a y in \(-1.0, -1.0\) to \(1.0, 1.0\)"):
        relabel(data, goal=(2.0, 0.0))
    with pytest.raises(ValueError, match="in a wall"):
        relabel(data, goal=(0.0, 0.5))
    with pytest.raises(ValueError, match="radius must be"):
        relabel(data, goal=(0.5, 0.5), radius=-1.0)
    pendulum = continuous_source(make_vector_world("pendulum"), {})
    swinging = dataclasses.replace(data, observations=np.zeros((9, 21, 3), np.float32), source=pendulum)
    with pytest.raises(ValueError, match="needs a radius"):
        relabel(swinging, goal=(0.0, 0.0))
    with pytest.raises(ValueError, match=r"angle \(rad\) and angular velocity"):
        relabel(swinging, goal=(0.0,), radius=1.0)
    json.dumps(dict(relabel(swinging, goal=(0.0, 0.0), radius=0.1).source.metadata))


def test_vectors_from_nowhere_have_no_goals(data):
    unknown = vector_episodes(
        data.observations,
        data.actions,
        Source(data.source.observations, data.source.actions),
        agents=data.agents,
        lengths=data.lengths,
        terminated=data.terminated,
    )
    with pytest.raises(ValueError, match="relabel with a reward"):
        relabel(unknown, goal=(0.0, 0.0))
    paid = relabel(unknown, reward=lambda states, actions, after: after[:, 0] - states[:, 0])
    np.testing.assert_allclose(paid.rewards.sum(axis=1), data.observations[:, -1, 0] - data.observations[:, 0, 0], atol=1e-5)
