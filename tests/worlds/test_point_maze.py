import jax
import jax.numpy as jnp
import numpy as np
import pytest

from farflung.worlds.gridworld import MAZE, ROOM, gridworld, parse_map
from farflung.worlds.named_vectors import make_vector_world
from farflung.worlds.point_maze import point_map, point_maze

NONE = jnp.zeros(0)


def walk(world, num_walkers, num_steps):
    """Positions of many points, each of which drifts in its own direction, so that together they reach every wall."""

    draw = np.random.default_rng(0)
    starts = jax.vmap(world.reset_from)(draw.random((num_walkers, world.num_reset_uniforms), np.float32))
    drifts = draw.standard_normal((10, num_walkers, 2), np.float32).repeat(num_steps // 10, axis=0)
    actions = drifts + 1.5 * draw.standard_normal(drifts.shape, np.float32)

    @jax.jit
    def walked(starts, actions):
        step = jax.vmap(lambda state, action: world.step_from(NONE, state, action))
        return jax.lax.scan(lambda states, action: (step(states, action), states), starts, actions)[1]

    return np.asarray(walked(starts, actions), np.float64)


def test_the_gap_is_the_only_way_through_its_wall():
    paths = walk(make_vector_world("point-gap"), 10_000, 60)
    here, there = paths[:-1], paths[1:]
    crosses = here[..., 0] * there[..., 0] <= 0
    share = here[crosses, 0] / (here[crosses, 0] - there[crosses, 0])
    heights = here[crosses, 1] + share * (there[crosses, 1] - here[crosses, 1])
    assert len(heights) > 1000
    assert np.abs(heights).max() < 0.15
    assert np.abs(heights).max() > 0.149
    assert np.abs(paths).max() <= 1


@pytest.mark.parametrize("name", ["mepol-grid", "point-maze"])
def test_no_point_is_ever_in_a_wall_and_many_are_near_one(name):
    world = make_vector_world(name)
    x, y = np.moveaxis(walk(world, 1000, 200), -1, 0)
    left, right, bottom, top = np.array(world.walls).T[:, :, None, None]
    depth = np.minimum(np.minimum(x - left, right - x), np.minimum(y - bottom, top - y)).max(axis=0)
    assert depth.max() < 0
    assert depth.max() > -1e-3


def test_the_gaps_steps_are_those_of_the_facts():
    world = make_vector_world("point-gap")
    assert world.reset_from(NONE).tolist() == [-0.5, 0]
    step = jax.jit(lambda state, action: world.step_from(NONE, jnp.array(state), jnp.array(action)))
    np.testing.assert_allclose(step([-0.5, 0.0], [0.5, -3.0]), [-0.46, -0.08], atol=1e-7)
    np.testing.assert_allclose(step([0.97, -0.98], [1.0, -1.0]), [1, -1])
    np.testing.assert_allclose(step([-0.04, 0.1], [1.0, 1.0]), [0.04, 0.18], atol=1e-7)
    np.testing.assert_allclose(step([-0.04, 0.12], [1.0, 1.0]), [-0.04, 0.12])
    assert world.horizon == 64


def test_a_step_over_the_border_of_mepols_world_is_not_taken():
    world = make_vector_world("mepol-grid")
    step = jax.jit(lambda state, action: world.step_from(NONE, jnp.array(state), jnp.array(action)))
    np.testing.assert_array_equal(step([5.9, 4.0], [1.0, 0.0]), np.array([5.9, 4.0], np.float32))
    np.testing.assert_array_equal(step([-3.0, -5.9], [0.5, -0.6]), np.array([-3.0, -5.9], np.float32))
    np.testing.assert_allclose(step([5.9, 4.0], [0.4, 1.0]), [5.98, 4.2], rtol=1e-6)


def test_starts_are_uniform_over_regions_and_within_each():
    noise = jax.random.uniform(jax.random.key(1), (20_000, 3))
    mepol = make_vector_world("mepol-grid")
    starts = np.asarray(jax.jit(jax.vmap(mepol.reset_from))(noise))
    assert (starts >= -6).all()
    assert (starts <= -4).all()
    np.testing.assert_allclose(starts.mean(axis=0), -5, atol=0.02)
    two = point_maze(starts=[(-1, -1), (0, 1, 0, 0.5)], horizon=5, step_size=0.1)
    places = np.asarray(jax.jit(jax.vmap(two.reset_from))(noise))
    is_corner = (places == -1).all(axis=-1)
    assert is_corner.mean() == pytest.approx(0.5, abs=0.02)
    np.testing.assert_allclose(places[~is_corner].mean(axis=0), [0.5, 0.25], atol=0.02)


def test_the_free_area_of_mepols_world_is_what_a_uniform_sample_says():
    world = make_vector_world("mepol-grid")
    assert world.free_area == 100.25
    points = np.random.default_rng(0).uniform(-6, 6, (200_000, 2))
    left, right, bottom, top = np.array(world.walls).T[:, :, None]
    x, y = points.T
    is_covered = ((left < x) & (x < right) & (bottom < y) & (y < top)).any(axis=0)
    assert 144 * (1 - is_covered.mean()) == pytest.approx(100.25, abs=0.5)
    cells = np.asarray(jax.jit(world.projection.cells)(jnp.asarray(points[~is_covered], jnp.float32)))
    assert np.isin(np.arange(24 * 24), cells).tolist() == world.is_free.tolist()


@pytest.mark.parametrize(("text", "name", "paper_horizon"), [(ROOM, "point-room", 8), (MAZE, "point-maze", 10)])
def test_the_papers_maps_lead_as_far_as_on_the_grid(text, name, paper_horizon):
    world, grid = make_vector_world(name), gridworld(text)
    assert world.horizon * world.step_size == paper_horizon
    assert world.free_area == grid.num_states == 43
    assert world.num_states == 4 * 43
    assert point_map(text).horizon == 4 * grid.horizon


def test_a_point_that_walks_the_grids_way_is_where_the_grid_says():
    world, grid = make_vector_world("point-maze"), gridworld(MAZE)
    rows, _ = parse_map(MAZE).shape
    moves = jnp.array([(-1.0, 0.0), (0.0, -1.0), (1.0, 0.0), (0.0, 1.0)])  # left, down, right, up

    def move(places, action):
        state, point = places
        after = grid.step_from(NONE, state, action)
        four_steps_on = jax.lax.fori_loop(0, 4, lambda _, here: world.step_from(NONE, here, moves[action]), point)
        places = after, jnp.where(after == state, point, four_steps_on)
        return places, places

    actions = jax.random.randint(jax.random.key(2), 200, 0, 4)
    states, points = jax.lax.scan(move, (grid.reset_from(NONE), world.reset_from(NONE)), actions)[1]
    row, column = np.asarray(grid.positions)[states].T
    np.testing.assert_allclose(points, np.stack([column + 0.5, rows - row - 0.5], axis=-1), atol=1e-4)
    assert len(np.unique(states)) > 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"low": (0, 0), "high": (0, 1)}, "low must be below high"),
        ({"low": (0, 0, 0)}, "low has 2 finite numbers each"),
        ({"walls": [(0, 1, 2)]}, r"walls has 4 finite numbers each, not \(0, 1, 2\)"),
        ({"walls": [(0, 1, 0, np.nan)]}, "walls has 4 finite numbers"),
        ({"walls": [(0.5, 0.2, 0, 1)]}, "ends before it begins"),
        ({"walls": [(-1, 0, -1, 1)]}, "touches the wall"),
        ({"starts": []}, "at least one point"),
        ({"starts": [(2, 0)]}, "is not within"),
        ({"step_size": 0.0}, "step_size must be a positive number"),
        ({"horizon": 0}, "horizon must be at least 1"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        point_maze(**({"starts": [(0, 0)], "horizon": 10, "step_size": 0.1} | options))


def test_a_map_needs_a_start():
    with pytest.raises(ValueError, match="the map has no start"):
        point_map("...")
    with pytest.raises(ValueError, match="at least one point"):
        point_map("...", horizon=5)
