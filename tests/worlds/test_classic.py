import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from farflung.worlds.named_vectors import make_vector_world

NONE = jnp.zeros(0)


@pytest.mark.parametrize(
    ("name", "gymnasium_id"),
    [("mountain-car", "MountainCarContinuous-v0"), ("mountain-car-discrete", "MountainCar-v0"), ("pendulum", "Pendulum-v1")],
)
def test_each_step_is_gymnasiums(name, gymnasium_id):
    world, environment = make_vector_world(name), gymnasium.make(gymnasium_id).unwrapped
    environment.reset(seed=0)
    environment.action_space.seed(0)
    step = jax.jit(lambda state, action: world.step_from(NONE, state, action))
    observe = jax.jit(world.observe)
    low, high = environment.observation_space.low, environment.observation_space.high
    draw = np.random.default_rng(0)
    for _ in range(300):
        start = draw.uniform(low, high) if name != "pendulum" else draw.uniform((-np.pi, -8), (np.pi, 8))
        environment.state = np.array(start, np.float32)
        state = jnp.array(start, jnp.float32)
        for _ in range(3):
            action = environment.action_space.sample() * (2 if name != "mountain-car-discrete" else 1)  # beyond its bounds
            seen, *_ = environment.step(action)
            state = step(state, jnp.asarray(action))
            np.testing.assert_allclose(observe(state), seen, atol=3e-6)


def test_a_whole_episode_ends_where_gymnasiums_does():
    world, environment = make_vector_world("mountain-car"), gymnasium.make("MountainCarContinuous-v0").unwrapped
    start, _ = environment.reset(seed=3)
    actions = np.sign(np.sin(np.arange(400) / 20))[:, None].astype(np.float32)
    seen = [environment.step(action)[0] for action in actions]
    last, states = jax.lax.scan(
        lambda state, action: (world.step_from(NONE, state, action),) * 2, jnp.array(start), jnp.array(actions)
    )
    np.testing.assert_allclose(states, np.stack(seen), atol=1e-3)
    assert states[:, 0].max() > 0.45  # past the goal, and on
    assert not world.is_over(last)


@pytest.mark.parametrize("name", ["mountain-car", "pendulum"])
def test_starts_are_gymnasiums(name):
    world = make_vector_world(name)
    first, last = (world.reset_from(jnp.full(world.num_reset_uniforms, noise)) for noise in (0.0, 1.0))
    expected = {"mountain-car": ([-0.6, 0], [-0.4, 0]), "pendulum": ([-np.pi, -1], [np.pi, 1])}[name]
    np.testing.assert_allclose(jnp.stack([first, last]), expected, rtol=1e-6)


def test_the_pendulums_grid_is_of_its_angle_and_its_velocity():
    world = make_vector_world("pendulum", bins=(4, 2))
    states = jnp.array([(3.0, 1.0), (-3.0, 1.0), (0.5, -7.0)])
    seen = jax.jit(jax.vmap(world.observe))(states)
    assert jax.jit(world.projection.cells)(seen).tolist() == [7, 1, 4]
    assert jnp.linalg.norm(seen[0] - seen[1]) < 0.3  # near each other, though the grid's ends lie between them
