import numpy as np
import pytest
from gymnasium import spaces

from farflung.worlds.hosted.indexing import actions_of, state_index


def test_a_discrete_space_is_numbered_from_its_start():
    index = state_index(spaces.Discrete(5, start=10))
    assert index.num_states == 5
    np.testing.assert_array_equal(index(np.array([10, 14])), [0, 4])


def test_several_parts_are_numbered_by_their_combinations():
    space = spaces.Tuple([spaces.Discrete(3), spaces.MultiDiscrete([2, 4])])
    index = state_index(space)
    assert index.num_states == 24
    batch = (np.array([0, 2, 1]), np.array([[0, 0], [1, 3], [0, 2]]))
    expected = np.ravel_multi_index(([0, 2, 1], [0, 1, 0], [0, 3, 2]), (3, 2, 4))
    np.testing.assert_array_equal(index(batch), expected)
    np.testing.assert_array_equal(index.features[expected], [[0, 0, 0], [2, 1, 3], [1, 0, 2]])


def test_real_numbers_fall_into_bins():
    index = state_index(spaces.Box(np.array([-1.0, 0.0]), np.array([1.0, 8.0]), dtype=np.float64), bins=[4, 2])
    found = index(np.array([[-1.0, 0.0], [-0.5, 3.9], [1.0, 8.0], [7.0, -7.0]]))
    np.testing.assert_array_equal(index.features[found], [[0, 0], [1, 0], [3, 1], [3, 0]])


def test_the_states_of_a_large_space_are_numbered_as_they_are_observed():
    index = state_index(spaces.Box(0, 255, (4, 4), np.uint8))
    images = np.random.default_rng(0).integers(0, 255, (3, 4, 4)).astype(np.uint8)
    assert index.num_states == 0
    np.testing.assert_array_equal(index(images[[0, 1, 0]]), [0, 1, 0])
    np.testing.assert_array_equal(index(images[[2, 1]]), [2, 1])
    np.testing.assert_array_equal(index.features, images.reshape(3, -1))


@pytest.mark.parametrize(
    ("space", "options", "message"),
    [
        (spaces.Box(-1, 1, (2,)), {}, "2 real numbers"),
        (spaces.Discrete(3), {"bins": [2]}, "have none"),
        (spaces.Box(-1, 1, (3,)), {"bins": [2, 2]}, "3 real numbers"),
        (spaces.Box(-np.inf, np.inf, (1,)), {"bins": [2]}, "no bounds"),
        (spaces.Box(-1, 1, (1,)), {"bins": [0]}, "at least 1"),
        (spaces.Box(-1, 1, (1,)), {"bins": [2], "low": [3.0]}, "low below high"),
        (spaces.Text(5), {}, "--observe"),
    ],
)
def test_spaces_without_finitely_many_states_are_refused(space, options, message):
    with pytest.raises(ValueError, match=message):
        state_index(space, **options)


def test_nan_is_refused():
    index = state_index(spaces.Box(-1, 1, (1,)), bins=[3])
    with pytest.raises(ValueError, match="not a number"):
        index(np.array([[np.nan]]))


@pytest.mark.parametrize("observation", [[5, 0], [0, 3], [-1, 0]])
def test_an_observation_outside_of_its_space_is_refused(observation):
    index = state_index(spaces.MultiDiscrete([5, 3]))
    with pytest.raises(ValueError, match="outside of its space"):
        index(np.array([[4, 2], observation]))


def test_actions_are_numbered():
    assert actions_of(spaces.Discrete(3, start=2)) == [2, 3, 4]
    many = actions_of(spaces.MultiDiscrete([2, 3], start=[0, -1]))
    np.testing.assert_array_equal(many, [[0, -1], [0, 0], [0, 1], [1, -1], [1, 0], [1, 1]])
    with pytest.raises(ValueError, match="finitely many"):
        actions_of(spaces.Box(-1, 1, (1,)))


def test_many_bytes_in_a_dictionary_overflow_nowhere():
    space = spaces.Dict({"image": spaces.Box(0, 255, (20, 20, 3), np.uint8), "lamp": spaces.Discrete(2)})
    assert not state_index(space).is_complete
