import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from farflung.worlds.named_vectors import make_vector_world
from farflung.worlds.point_maze import point_map

ID = "farflung/PointMaze-v0"


@pytest.fixture(autouse=True)
def no_screen(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")


@pytest.mark.parametrize("options", [{}, {"world": "mepol-grid"}, {"world": "point-room", "goal": (1.5, 1.5)}])
def test_gymnasiums_own_checks_pass(options, monkeypatch):
    environment = gymnasium.make(ID, **options).unwrapped
    monkeypatch.setitem(environment.metadata, "render_fps", 1000)
    check_env(environment)


@pytest.mark.parametrize("name", ["point-gap", "mepol-grid", "point-maze"])
def test_a_step_is_that_of_the_world_in_jax(name):
    world, environment = make_vector_world(name), gymnasium.make(ID, world=name)
    step = jax.jit(lambda state, action: world.step_from(jnp.zeros(0), state, action))
    draw = np.random.default_rng(0)
    here, _ = environment.reset(seed=0)
    num_stuck = 0
    for _ in range(400):
        action = draw.uniform(-1, 1, 2).astype(np.float32)
        there, *_ = environment.step(action)
        np.testing.assert_allclose(step(jnp.array(here), jnp.array(action)), there, atol=1e-6)
        num_stuck += (here == there).all()
        here = there
    assert num_stuck > 0


def test_a_custom_maze_is_made_from_its_recipe_and_its_goal_ends_the_episode():
    recipe = point_map("S..#").recipe
    environment = gymnasium.make(ID, world=recipe, goal=(2.5, 0.5), goal_radius=0.3, max_episode_steps=50)
    environment.reset(seed=0)
    results = [environment.step((1.0, 0.0)) for _ in range(7)]
    assert [terminated for _, _, terminated, _, _ in results] == [False] * 6 + [True]
    assert [reward for _, reward, _, _, _ in results] == [0.0] * 6 + [1.0]
    again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(environment.spec.to_json()))
    assert again.unwrapped.world == environment.unwrapped.world


def test_the_picture_has_walls_goal_and_agent():
    environment = gymnasium.make(ID, goal=(0.5, 0.5), render_mode="rgb_array")
    environment.reset(seed=0)
    picture = environment.render()
    assert picture.shape == (480, 480, 3)
    assert picture[240, 120].tolist() == [37, 99, 168]
    assert picture[120, 360].tolist() == [47, 143, 91]
    assert picture[20, 240].tolist() == picture[0, 0].tolist() == [95, 99, 104]
    assert picture[240, 240].tolist() == [255, 255, 255]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"world": "pendulum"}, "pendulum is not a point maze"),
        ({"goal": (2, 0)}, "goal is an x and a y"),
        ({"goal": "here"}, "goal is an x and a y"),
        ({"goal": (0, 0.5)}, "is in a wall"),
        ({"goal_radius": -1.0}, "goal_radius must be a positive number"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        gymnasium.make(ID, **options, disable_env_checker=True).unwrapped  # noqa: B018


def test_an_action_is_two_finite_numbers():
    environment = gymnasium.make(ID).unwrapped
    environment.reset(seed=0)
    for action in (np.array([np.nan, 0]), np.zeros(3)):
        with pytest.raises(ValueError, match="an action is two finite numbers"):
            environment.step(action)
