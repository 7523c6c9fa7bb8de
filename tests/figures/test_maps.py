import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from farflung import figures, from_gymnasium, gridworld, hosted, make_vector_world
from farflung.figures.maps import UNREACHABLE, draw_coverage, draw_on_map, draw_paths, on_grid
from farflung.figures.planes import Plane, cells_of, is_jump, plane_of, points_of


def test_cells_are_those_of_the_projection():
    projection = make_vector_world("pendulum", bins=(7, 5)).projection
    angle, velocity = jax.random.uniform(jax.random.key(0), (2, 50), minval=-3, maxval=3)
    states = jnp.stack([jnp.cos(angle), jnp.sin(angle), 4 * velocity], axis=-1).at[7].set(jnp.nan)
    found = cells_of(np.asarray(projection.project(states)), projection.low, projection.high, projection.bins)
    np.testing.assert_array_equal(found, np.where(np.arange(50) == 7, -1, projection.cells(states)))


def test_axes_are_to_scale_where_their_units_are_the_same():
    assert [plane_of(make_vector_world(name)).is_to_scale for name in ("point-gap", "mountain-car", "pendulum")] == [
        True,
        False,
        False,
    ]


def test_no_line_joins_the_ends_of_an_angles_range():
    plane = Plane(("angle", "speed"), (-3.0, 0.0), (3.0, 1.0), np.ones((6, 2), bool), angles=(0,))
    path = np.array([[2.0, 0.1], [2.9, 0.9], [-2.9, 0.2], [-2.0, 0.2]])
    np.testing.assert_array_equal(is_jump(path[None], plane), [[False, True, False]])
    axis = Figure().subplots()
    draw_paths(axis, plane, path[None, None])
    (lines,) = (each for each in axis.collections if isinstance(each, LineCollection))
    drawn = [part.vertices for part in lines.get_paths()]
    assert not any(np.abs(np.diff(part[:, 0])).max() > 3 for part in drawn if np.isfinite(part).all())
    assert np.isnan(drawn[0]).any()


def test_a_heat_map_has_the_share_of_visits_in_each_cell_that_can_be_reached():
    plane = Plane(("x", "y"), (0.0, 0.0), (2.0, 2.0), np.array([[True, True], [True, False]]))
    points = np.array([[0.5, 0.5], [0.5, 1.5], [0.2, 1.9], [np.nan, np.nan], [5.0, 0.1]])
    mesh = draw_coverage(Figure().subplots(), plane, points)
    np.testing.assert_array_equal(mesh.get_array().filled(np.nan), [[0.25, 0.25], [0.5, np.nan]])


def test_an_episode_that_ended_early_is_drawn_up_to_its_end():
    plane = Plane(("x", "y"), (0.0, 0.0), (1.0, 1.0), np.ones((2, 2), bool))
    path = np.array([[0.1, 0.1], [0.4, 0.2], [np.nan, np.nan]])
    axis = Figure().subplots()
    draw_paths(axis, plane, path[None, None])
    np.testing.assert_allclose(axis.lines[0].get_xydata(), [[0.4, 0.2]])


def test_a_map_lies_in_the_plane_as_it_is_written():
    plane = plane_of(gridworld("S.\n#."))
    np.testing.assert_array_equal(plane.is_free, [[False, True], [True, True]])


def test_a_single_feature_moves_on_with_time():
    points = points_of(np.array([[3.0], [5.0]]))
    np.testing.assert_array_equal(points, [[0, 3], [1, 5]])


def test_a_map_shows_each_states_value_in_its_cell():
    world = gridworld("S.#\n..#")
    image = figures.draw_on_map(Figure().subplots(), world, np.asarray(jnp.arange(4.0)))
    np.testing.assert_array_equal(image.get_array().filled(np.nan), [[0, 1], [2, 3]])


def test_the_visits_of_all_states_in_a_cell_add_up():
    taxi = from_gymnasium("Taxi-v4")
    visits = np.random.default_rng(0).random(taxi.num_states)
    expected = np.zeros((5, 5))
    for (row, column), value in zip(np.asarray(taxi.positions), visits, strict=True):
        expected[row, column] += value
    np.testing.assert_allclose(on_grid(taxi, visits), expected)


def test_a_map_of_frozen_lake_marks_the_start_the_holes_and_the_goal():
    lake = from_gymnasium("FrozenLake-v1")
    axis = Figure().subplots()
    draw_on_map(axis, lake, np.ones(lake.num_states))
    assert {(round(text.get_position()[1]), round(text.get_position()[0])): text.get_text() for text in axis.texts} == {
        **{(0, 0): "S", (3, 3): "G"},
        **dict.fromkeys([(1, 1), (1, 3), (2, 3), (3, 0)], "x"),
    }


def test_the_plane_of_a_map_has_its_walls_and_letters_with_the_last_row_at_the_bottom():
    taxi, lake = plane_of(from_gymnasium("Taxi-v4")), plane_of(from_gymnasium("FrozenLake-v1"))
    assert (2.0, 2.0, 4.0, 5.0) in taxi.walls  # in the first row, behind the second column
    assert (1.0, 1.0, 0.0, 1.0) in taxi.walls  # in the last row, behind the first column
    assert {("S", 0.5, 3.5), ("x", 1.5, 2.5), ("G", 3.5, 0.5)} <= set(lake.letters)


def test_a_map_is_as_large_as_its_walls_and_cells_that_nobody_has_met_are_no_walls():
    rooms = hosted("minigrid:MiniGrid-Empty-5x5-v0", observe=("agent_pos", "agent_dir"), horizon=3)
    rooms.add_states(np.array([[1, 1, 0], [1, 1, 1], [2, 3, 0]]))
    np.testing.assert_array_equal(rooms.positions, [[1, 1], [1, 1], [3, 2]])
    np.testing.assert_array_equal(np.argwhere(np.isfinite(on_grid(rooms, np.ones(3)))), [[1, 1], [3, 2]])
    plane = plane_of(rooms)
    assert plane.is_free.shape == (5, 5)
    np.testing.assert_array_equal(np.argwhere(plane.is_free), [[1, 3], [2, 1]])
    assert {(0.0, 5.0, 0.0, 1.0), (0.0, 5.0, 4.0, 5.0), (0.0, 1.0, 1.0, 2.0)} <= set(plane.walls)
    axis = Figure().subplots()
    draw_on_map(axis, rooms, np.ones(3))
    beyond, *walls = axis.patches
    assert to_hex(beyond.get_facecolor()) == UNREACHABLE
    assert len(walls) == len(rooms.walls) == 8
