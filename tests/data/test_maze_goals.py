import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from farflung import make_vector_world, point_maze
from farflung.data.maze_goals import MazeGoals, _arrives, _seen, learn, spread_goals, success_rate
from farflung.data.networks import Experience, Learning


@pytest.fixture(scope="module")
def corridor():
    return point_maze(starts=[(0.0, 0.0)], low=(-1, -0.2), high=(1, 0.2), horizon=10, step_size=0.2)


@pytest.fixture(scope="module")
def learnt(corridor):
    """From steps all over the corridor, in all directions, to a goal at its right end."""
    generator = np.random.default_rng(0)
    states = generator.uniform((-1, -0.2), (1, 0.2), (400, 2)).astype(np.float32)
    actions = generator.uniform(-1, 1, (400, 2)).astype(np.float32)
    after = jax.vmap(corridor.step_from, (None, 0, 0))(jnp.zeros(0), states, actions)
    settings = MazeGoals(0.2, Learning(value_bounds=(0.0, 1.0), discount=0.9), num_episodes=2, max_steps=30)
    goal = jnp.array([0.8, 0.0])
    networks = eqx.filter_jit(learn)(
        jr.key(0), corridor, Experience(*map(jnp.asarray, (states, actions, after, *[np.zeros(400)] * 2))), goal, 400, settings
    )
    return networks, goal, settings


def test_a_goal_is_reached_from_actions_in_all_directions(corridor, learnt):
    networks, goal, settings = learnt
    assert success_rate(jr.key(0), corridor, networks, goal, settings) == 1
    left = jnp.array([-0.8, 0.0])
    assert success_rate(jr.key(0), corridor, networks, left, settings) == 0  # the policy is for the other


def test_values_grow_towards_the_goal(corridor, learnt):
    places = jnp.stack([jnp.linspace(-0.9, 0.5, 8), jnp.zeros(8)], axis=-1)
    values = np.asarray(jax.vmap(learnt[0].value)(_seen(corridor, places)))
    assert values[-3:].mean() > values[:3].mean() + 0.1
    assert -0.1 < values.min() < values.max() < 1.1


def test_to_be_as_near_as_the_radius_is_to_have_arrived(learnt):
    _, goal, settings = learnt
    found = _arrives(jnp.array([[0.8, 0.19], [0.8, 0.21], [0.5, 0.0], [0.7, -0.1]]), goal, settings)
    assert found.tolist() == [True, False, False, True]


def test_goals_are_spread_over_what_can_be_reached():
    goals, radius = spread_goals(make_vector_world("point-gap"), 36)
    assert radius == pytest.approx(1 / 6)
    assert len(goals) == 34  # two of 6 x 6 cells are where episodes start
    assert np.abs(goals).max() == pytest.approx(5 / 6)
    shut = point_maze([(0, 0, -1, 1)], starts=[(-0.5, 0)], horizon=8, step_size=0.1)
    assert (spread_goals(shut, 18)[0][:, 0] < 0).all()
    goals, radius = spread_goals(make_vector_world("mepol-grid"), 30)
    from_start = np.linalg.norm(goals - goals.clip((-6, -6), (-4, -4)), axis=1)
    assert 20 <= len(goals) <= 40
    assert (from_start > radius).all()
