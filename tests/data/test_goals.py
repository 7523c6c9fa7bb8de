import dataclasses
import json

import gymnasium
import numpy as np
import pytest
from tests.data.teams import make_run, make_vector_run

from farflung import collect, gridworld, make_vector_world, relabel
from farflung.data import collecting
from farflung.data.episodes import Source, vector_episodes
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
    found = relabel(walk, goal=(0.3, 0.1), goal_radius=0.15)
    assert found.lengths.tolist() == [2]
    assert found.rewards.tolist() == [[0, 1, 0, 0]]
    assert found.terminated.tolist() == [True]
    assert not found.observations[0, 3:].any()
    assert relabel(walk, goal=(0.3, 0.07)).lengths.tolist() == [3]  # within a step's size, 0.08


def test_the_environment_that_is_recovered_pays_what_the_dataset_says(data):
    goal = data.observations[0, 10].tolist()
    found = relabel(data, goal=goal, goal_radius=0.1)
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
    near, far = projection.distances(states, np.array([-3.1, 0.0], np.float32))
    assert near == pytest.approx(2 * np.sin(np.pi - 3.1) / (2 * np.pi), abs=1e-5)
    assert far == pytest.approx(2 * np.sin(1.55) / (2 * np.pi), abs=1e-5)


def test_an_invalid_goal_is_refused(data):
    with pytest.raises(ValueError, match=r"goal is an x and a y in \(-1.0, -1.0\) to \(1.0, 1.0\)"):
        relabel(data, goal=(2.0, 0.0))
    with pytest.raises(ValueError, match="in a wall"):
        relabel(data, goal=(0.0, 0.5))
    with pytest.raises(ValueError, match="goal_radius must be"):
        relabel(data, goal=(0.5, 0.5), goal_radius=-1.0)
    pendulum = continuous_source(make_vector_world("pendulum"), {})
    swinging = dataclasses.replace(data, observations=np.zeros((9, 21, 3), np.float32), source=pendulum)
    with pytest.raises(ValueError, match="needs a goal_radius"):
        relabel(swinging, goal=(0.0, 0.0))
    with pytest.raises(ValueError, match=r"angle \(rad\) and angular velocity"):
        relabel(swinging, goal=(0.0,), goal_radius=1.0)
    json.dumps(dict(relabel(swinging, goal=(0.0, 0.0), goal_radius=0.1).source.metadata))


def test_vectors_without_a_world_have_no_goals(data):
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


def recovered(data):
    return gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(data.source.environment))


@pytest.mark.parametrize(
    ("run", "goal", "is_wrapped"),
    [
        (make_run(world=gridworld("...\n.S.\n...", horizon=6)), (0, 1), False),  # the environment has an option
        (make_run(world=gridworld("..S..", horizon=6)), (0, 1), True),  # without the cell behind the goal, numbers would change
        (make_run(world=gridworld("..S.G", horizon=6)), (0, 1), True),  # the map has a goal already
        (make_run("CliffWalking-v1", horizon=6), 24, True),  # an environment of others
    ],
)
def test_the_recovered_environment_of_a_table_has_the_goal_and_its_reward(run, goal, is_wrapped):
    found = relabel(collect(run, 30), goal=goal)
    environment = recovered(found)
    assert 0 < found.rewards.sum() <= found.terminated.sum()
    assert ("ReachGoal" in str(environment)) == is_wrapped
    for episode, length in enumerate(found.lengths):
        environment.reset(seed=0)
        for time in range(length):
            seen, reward, terminated, truncated, _ = environment.step(found.actions[episode, time])
            assert (seen, reward) == (found.observations[episode, time + 1], found.rewards[episode, time])
        assert (terminated, truncated and not terminated) == (found.terminated[episode], found.truncated[episode])
    again = relabel(found, goal=goal)
    assert again.source.environment == found.source.environment  # a task replaces the one before


def test_a_goal_on_a_map_is_a_cell_or_an_observation():
    data = collect(make_run("maze-det"), 6)
    (state,) = np.flatnonzero((np.asarray(data.source.world.positions) == (0, 1)).all(axis=1))
    for one, other in zip(relabel(data, goal=(0, 1)).steps(), relabel(data, goal=int(state)).steps(), strict=True):
        np.testing.assert_array_equal(one, other)


def fast(states, actions, after):
    return np.abs(after[:, 1]) - 0.01 * np.abs(actions[:, 0])


def test_the_recovered_environment_pays_by_the_function():
    data = relabel(collect(make_vector_run("mountain-car", horizon=5, seeds=(0,)), 3), reward=fast)
    environment = recovered(data)
    assert data.source.metadata["reward"] == f"{__name__}:fast"
    environment.reset(seed=0)
    environment.unwrapped.state = data.observations[0, 0]
    paid = [environment.step(action)[1] for action in data.actions[0]]
    np.testing.assert_allclose(paid[1:], data.rewards[0, 1:], atol=1e-5)  # the first state was put there behind its back


def test_a_reward_is_a_finite_number_for_each_step():
    data = collect(make_run("maze-det"), 2)
    with pytest.raises(ValueError, match="must return 20 numbers"):
        relabel(data, reward=lambda states, actions, after: np.zeros(3))
    with pytest.raises(ValueError, match="finite numbers, and 20 are not"):
        relabel(data, reward=lambda states, actions, after: np.full(len(states), np.nan))
    with pytest.raises(ValueError, match="the module of the reward 'nowhere:pay' cannot be imported"):
        relabel(data, reward="nowhere:pay")


def test_relabelling_runs_no_program_that_a_dataset_names():
    dataset = collect(make_run("maze-stoc"), 3)
    spec = json.loads(dataset.source.environment) | {"entry_point": "os:abort"}
    forged = dataclasses.replace(dataset, source=dataclasses.replace(dataset.source, environment=json.dumps(spec)))
    recovered = json.loads(relabel(forged, goal=(5, 3)).source.environment)
    assert recovered["entry_point"] == "farflung.worlds.as_gymnasium.grid:MazeEnv"
