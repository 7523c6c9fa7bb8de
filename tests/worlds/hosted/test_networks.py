import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from tests.worlds.hosted.simulators import Drift, Leaky

from farflung.policies import Networks, UniformPolicy, neural_team
from farflung.training.hosted import NetworkPlayer
from farflung.worlds.hosted.tables import hosted
from farflung.worlds.projection import Box

NUM_EPISODES, NUM_AGENTS, HORIZON = 8, 2, 6


def team_in(world, **networks):
    """Teams of two seeds with random weights, whose actions are often near their bounds."""
    shapes = eqx.filter_eval_shape(neural_team, jr.key(0), world, NUM_AGENTS, Networks((8,), **networks))
    generator = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: generator.normal(size=(2, *leaf.shape)).astype(np.float32), shapes)


def play(world, team):
    agents, rows = np.arange(NUM_EPISODES) % NUM_AGENTS, np.arange(NUM_EPISODES) // 4
    noise = np.random.default_rng(0).random((NUM_EPISODES, HORIZON, 2), np.float32)
    with world.open(NUM_AGENTS, NUM_EPISODES) as pool:
        return pool.play(NetworkPlayer(world, team, rows, agents, noise), agents, 1 + np.arange(NUM_EPISODES)), noise


@jax.jit
def of_one(team, seed, agent):
    return jax.tree.map(lambda leaf, axis: leaf[seed] if axis is None else leaf[seed, agent], team, team.axes)


draw = jax.jit(lambda policy, noise, time, seen: policy.sampler()(noise, time, seen))


@pytest.mark.parametrize(
    ("options", "has_shared_trunk"), [({"copies": 8}, False), ({"copies": 3}, True), ({"workers": 2}, False)]
)
def test_episodes_are_those_of_the_environment_played_alone(options, has_shared_trunk):
    world = hosted(Drift, horizon=HORIZON, **options)
    team = team_in(world, has_shared_trunk=has_shared_trunk)
    episodes, noise = play(world, team)
    lengths = np.isfinite(episodes.states[..., 0]).sum(axis=1)
    assert lengths.min() < HORIZON + 1  # some end early; their later states are NaN
    assert not episodes.broken.any()
    for number, length in enumerate(lengths):
        policy = of_one(team, number // 4, number % NUM_AGENTS)
        environment = Drift()
        seen, _ = environment.reset(seed=1 + number)
        for time in range(length - 1):
            drawn = draw(policy, noise[number, time], time, seen.astype(np.float32))
            np.testing.assert_allclose(episodes.actions[number, time], drawn, rtol=2e-3, atol=1e-4)
            action = np.asarray(policy.executed(jnp.asarray(episodes.actions[number, time])))
            seen, _, is_over, _, _ = environment.step(action)  # raises if it exceeds its bounds
            np.testing.assert_allclose(episodes.states[number, time + 1], seen, rtol=1e-5)
        assert is_over == episodes.is_terminated[number] == (length < HORIZON + 1 or is_over)
        assert np.isnan(episodes.states[number, length:]).all()


def test_a_state_that_is_not_finite_ends_an_episode_and_warns_once():
    world = hosted(Leaky, horizon=HORIZON, copies=2)
    message = "Leaky gave a state that is not finite after step 3 of an episode with seed 3: such episodes end there"
    with pytest.warns(RuntimeWarning, match=message) as caught:
        episodes, _ = play(world, team_in(world))
    assert len(caught) == len(world.failures) == 1
    np.testing.assert_array_equal(np.flatnonzero(episodes.broken), [2, 5])  # seeds 3 and 6
    assert set(episodes.broken) == {0, 3}
    assert np.isnan(episodes.states[[2, 5], 3:]).all()
    assert np.isfinite(episodes.states[[2, 5], :3]).all()
    assert not episodes.is_terminated[[2, 5]].any()


def test_actions_stay_within_their_bounds_to_the_last_bit():
    generator = np.random.default_rng(0)
    low = generator.normal(size=500).astype(np.float32)
    high = low + generator.random(500).astype(np.float32) + 0.01
    space = Box(tuple(map(float, low)), tuple(map(float, high)))
    for drawn in (-50.0, 50.0, np.inf):
        actions = np.asarray(UniformPolicy(space).executed(jnp.full(500, drawn)))
        assert np.all((low <= actions) & (actions <= high))
