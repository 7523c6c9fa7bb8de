import pytest

from farflung.config import CONTINUOUS_WORLDS, check_world
from farflung.worlds.named import make_tabular_world
from farflung.worlds.named_vectors import make_vector_world
from farflung.worlds.point_maze import point_map, point_maze


@pytest.mark.parametrize("name", CONTINUOUS_WORLDS)
def test_a_recipe_makes_the_same_world_again(name):
    check_world(name)
    world = make_vector_world(name)
    assert make_vector_world(world.recipe) == world
    other = make_vector_world(name, horizon=7, bins=(3, 5), neighbours=0)
    assert (other.horizon, other.projection.bins, other.projection.neighbours) == (7, (3, 5), 0)
    assert make_vector_world(other.recipe) == other != world
    assert make_vector_world(other.recipe, horizon=world.horizon).horizon == world.horizon


def test_a_custom_maze_has_a_recipe():
    maze = point_maze([(0, 0, 0.1, 1)], starts=[(-0.5, 0)], horizon=9, step_size=0.1, low=(-1, -2), high=(1, 3))
    assert make_vector_world(maze.recipe) == maze
    drawn = point_map("S.#\n..S")
    assert make_vector_world(drawn.recipe) == drawn


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("point-gab", "unknown continuous world 'point-gab' \\(did you mean 'point-gap'"),
        ("{", "is not valid JSON"),
        ('{"a":' * 100_000, "is not valid JSON"),
        ('{"name": ["point-gap"]}', "unknown continuous world"),
        ('{"name": "point-gap", "walls": []}', "does not know 'walls'"),
        ("{}", "needs 'horizon', 'starts', 'step_size'"),
        ('{"name": "point-gap", "horizon": "9"}', "horizon must be a whole number, not '9'"),
        ('{"name": "point-gap", "bins": 3}', "bins has a whole number for each of the 2 features, not 3"),
        ('{"name": "pendulum", "neighbours": null}', "neighbours must be a whole number"),
        ('{"starts": {"x": 1}, "horizon": 5, "step_size": 1}', "starts is a list of numbers"),
        ('{"starts": [["a", 0]], "horizon": 5, "step_size": 1}', "starts has 2 or 4 finite numbers each"),
        ('{"starts": [[0, [0]]], "horizon": 5, "step_size": 1}', "starts has 2 or 4 finite numbers each"),
        ('{"starts": [[0, 0]], "horizon": 5, "step_size": NaN}', "step_size must be a positive number"),
        ('{"starts": [[0, 0]], "horizon": 5, "step_size": %s}' % ("9" * 400), "step_size must be a positive number"),
        ('{"starts": [[0, 0]], "horizon": 5, "step_size": 1, "low": 3}', "low is a list of numbers, not 3"),
        ('{"starts": [[0, 0]], "horizon": %s, "step_size": 1}' % ("9" * 9999), "horizon must be a whole number"),
    ],
)
def test_an_invalid_recipe_raises_one_line(recipe, message):
    with pytest.raises(ValueError, match=message) as caught:
        make_vector_world(recipe)
    assert "\n" not in str(caught.value)


def test_a_continuous_world_has_no_table():
    with pytest.raises(ValueError, match="the states of point-gap are vectors"):
        make_tabular_world("point-gap")
