import numpy as np
import pytest
from gymnasium import spaces
from tests.worlds.hosted.simulators import Drift, Planes

from farflung.worlds.hosted.tables import HostedTable, hosted
from farflung.worlds.hosted.vectors import HostedVectors
from farflung.worlds.projection import Box, Discrete, MultiDiscrete


def test_real_numbers_make_a_world_of_vectors_unless_they_are_divided_into_states():
    assert isinstance(hosted("MountainCar-v0"), HostedVectors)
    assert isinstance(hosted("MountainCar-v0", bins=10), HostedTable)
    assert isinstance(hosted("MountainCar-v0", bins=10, neighbours=0), HostedVectors)
    assert isinstance(hosted("Pendulum-v1", bins=10), HostedVectors)  # no table has its actions


def test_bounded_observations_are_scaled_by_their_bounds():
    world = hosted("MountainCar-v0", bins=(5, 4), neighbours=2)
    assert world.actions == Discrete(3)
    assert (world.projection.low, world.projection.high, world.projection.scale) == ((-1.2, -0.07), (0.6, 0.07), (1.8, 0.14))
    assert (world.observation_center, world.observation_scale) == ((-0.3, 0.0), (0.9, 0.07))
    assert (world.num_states, world.num_actions, world.horizon) == (20, 3, 200)


def test_unbounded_observations_are_measured_with_random_actions():
    world, again = hosted(Drift, horizon=20), hosted(Drift, horizon=20)
    assert world.view() == again.view()
    assert world.actions == Box((float(np.float32(0.1)), -2.0), (float(np.float32(0.7)), 2.0))
    # From about 0 to 2.2 and a step beyond; the grid is as wide again on both sides.
    low, high = world.projection.low[0], world.projection.high[0]
    assert -3.2 < low < -1.9
    assert 4.2 < high < 6.1
    assert 0.8 < world.observation_center[0] < 1.6
    assert 0.4 < world.observation_scale[0] < 1.2


def test_few_numbers_are_all_features_and_of_many_the_first_two():
    assert hosted("Pendulum-v1").projection.features == (0, 1, 2)
    assert hosted("CartPole-v1").projection.features == (0, 1)
    chosen = hosted("CartPole-v1", features=(2, 0), low=-1, high=(1, 2)).projection
    assert (chosen.features, chosen.low, chosen.high) == ((2, 0), (-1.0, -1.0), (1.0, 2.0))
    assert chosen.names == ("observation 2", "observation 0")


def test_parts_of_an_observation_are_joined():
    world = hosted(Planes, horizon=3)
    assert world.projection.names == ("light 0", "place 0", "place 1")  # a Dict has its keys in order
    assert world.actions == MultiDiscrete((2, 3))
    seen = world.vectors({"light": np.array([[1], [0]], np.int8), "place": np.array([[0.5, -0.5], [0.25, 0]])})
    np.testing.assert_array_equal(seen, [(1, 0.5, -0.5), (0, 0.25, 0)])
    np.testing.assert_array_equal(world.for_simulator(np.array([(0, 0), (1, 2)])), [(0, -1), (1, 1)])


def test_observed_floats_are_vectors():
    world = hosted(Planes, horizon=3, observe="place", low=-1, high=1)
    assert isinstance(world, HostedVectors)
    assert world.projection.bins == (20, 20)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": 4}, "CartPole-v1: features has numbers from 0 to 3, indices into an observation, not 4"),
        ({"features": (1, 1)}, "different numbers"),
        ({"features": (), "bins": 3}, "one or more"),
        ({"features": 0, "bins": (3, 3)}, "a whole number for each of the 1 features"),
        ({"neighbours": -1}, "neighbours must be a whole number from 0 on"),
        ({"features": (0, 1, 2, 3), "bins": 100}, "at most 10,000,000 cells, not 100,000,000"),
        ({"features": 0, "low": 3, "high": 2}, "low below high, but observation 0 has 3 to 2"),
        ({"features": (0, 1), "low": (1, 2, 3)}, "low needs one number, or one for each of the 2"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        hosted("CartPole-v1", **options)


def test_a_projection_is_of_real_numbers():
    with pytest.raises(ValueError, match="FrozenLake-v1: features and neighbours are for observations of several numbers"):
        hosted("FrozenLake-v1", features=0)


class Whole(Drift):
    action_space = spaces.Box(0, 3, (2,), np.int64)


def test_actions_must_be_real_or_finitely_many():
    with pytest.raises(ValueError, match="must be vectors of real numbers, or finitely many, not"):
        hosted(Whole, horizon=3)


def test_saving_and_reading_gives_the_same_world():
    world = hosted("CartPole-v1", features=(0, 2), bins=7, horizon=30, neighbours=2)
    again = HostedVectors.from_arrays(world.to_arrays())
    assert again.view() == world.view()
    assert again.settings == world.settings
    made = again.with_environment(workers=2)
    assert (made.workers, made.observation_space) == (2, world.observation_space)
    with pytest.raises(ValueError, match="give the environment itself"):
        HostedVectors.from_arrays(hosted(Drift, horizon=3).to_arrays()).with_environment()
