import json

import gymnasium
import numpy as np
import pytest
from tests.worlds.hosted.simulators import Planes

import farflung
from farflung.worlds.hosted.tables import HostedTable, hosted
from farflung.worlds.kinds import read_world


@pytest.mark.parametrize(("name", "num_states", "num_actions"), [("FrozenLake-v1", 16, 4), ("Taxi-v4", 500, 6)])
def test_a_discrete_environment_is_known_by_its_spaces(name, num_states, num_actions):
    world = hosted(name)
    assert (world.num_states, world.num_actions) == (num_states, num_actions)
    assert world.horizon == gymnasium.spec(name).max_episode_steps


def test_a_toy_text_map_has_positions():
    np.testing.assert_array_equal(hosted("CliffWalking-v1", horizon=5).positions[[0, 13, 47]], [(0, 0), (1, 1), (3, 11)])


def test_an_attribute_can_be_observed():
    world = hosted(Planes, horizon=3, observe="cell")
    assert not world.index.is_complete
    world.index(np.array([[3, 7], [4, 7]]))
    np.testing.assert_array_equal(world.positions, [(0, 0), (0, 1)])  # x to the right, y downwards


def test_a_function_can_observe():
    world = hosted(Planes, horizon=3, observe=lambda env, observation: env.unwrapped.place[0] + observation["light"][0], bins=8,
                   low=-1, high=2)  # fmt: skip
    assert world.num_states == 8


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ("FrozenLike-v1", {}, "FrozenLake-v1"),
        ("CartPole-v1", {"bins": 3}, "CartPole-v1: among the real numbers of an observation, numbers 2, 4 have no bounds"),
        ("CartPole-v1", {"nonsense": 3, "bins": 3}, "CartPole-v1"),
        ("FrozenLake-v1", {"horizon": 0}, "horizon must be at least 1"),
        ("FrozenLake-v1", {"workers": -1}, "workers"),
        ("FrozenLake-v1", {"observe": "soul"}, "no attribute 'soul'"),
        (Planes, {"bins": 3}, "no limit on the length of an episode"),
        (Planes, {"horizon": 3, "is_slippery": True}, "by their id"),
    ],
)
def test_bad_options_are_refused(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        hosted(arguments, **options)


def test_saving_and_reading_gives_the_same_world():
    world = hosted("MountainCar-v0", bins=[5, 4], horizon=30)
    again = HostedTable.from_arrays(world.to_arrays())
    assert (again.num_states, again.num_actions, again.horizon) == (20, 3, 30)
    made = again.with_environment(workers=1)
    batch = world.index._features_of(np.array([[-1.0, 0.05], [0.3, -0.07]], np.float32)) @ np.array([4, 1])
    np.testing.assert_array_equal(made.index(np.array([[-1.0, 0.05], [0.3, -0.07]], np.float32)), batch)
    custom = HostedTable.from_arrays(hosted(Planes, horizon=3, observe="cell").to_arrays())
    with pytest.raises(ValueError, match="give the environment itself"):
        custom.with_environment()


def test_the_marks_of_a_map_are_those_of_the_compiled_world_also_from_a_file():
    compiled, stepped = farflung.make_world("FrozenLake-v1", horizon=20), hosted("FrozenLake-v1", horizon=20)
    arrays = stepped.to_arrays()
    for world in (stepped, read_world(arrays)):
        assert {mark: states.tolist() for mark, states in world.ends.items()} == {"G": [15], "x": [5, 7, 11, 12]}
        assert {mark: states.tolist() for mark, states in compiled.ends.items()} == {"G": [15], "x": [5, 7, 11, 12]}
        assert np.asarray(world.start_states).tolist() == np.asarray(compiled.start_states).tolist() == [0]
    for forged in ({"x": [16]}, {"x": [-1]}, {"Q": [1]}, {"x": 3}, [1]):
        described = json.loads(str(arrays["hosted"])) | {"marks": forged}
        with pytest.raises(ValueError, match="marks of a map"):
            read_world(arrays | {"hosted": np.array(json.dumps(described))})
