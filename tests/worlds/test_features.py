import jax
import jax.numpy as jnp
import numpy as np
import pytest

import farflung


class Turtle:
    """Sees its place and two useless numbers; what counts is another function of its state."""

    horizon = 6
    actions = farflung.MultiDiscrete((3, 2))
    names = ("x", "y", "noise 0", "noise 1")
    feature_names = ("far", "high")

    def reset(self, key):
        return jnp.zeros(2)

    def step(self, key, state, action):
        return state + 0.1 * (action - jnp.array([1, 0]))

    def observe(self, state):
        return jnp.concatenate([state, jnp.ones(2)])

    def features(self, state):
        return 10 * state


class Screen(Turtle):
    names, feature_names, features = (), (), None

    def observe(self, state):
        row, column = (jnp.abs(state) * 10).astype(int)
        return jnp.zeros((9, 9, 3), jnp.uint8).at[row, column].set(255)


def triple(state):
    return 3 * state


@pytest.mark.parametrize(
    ("features", "names", "num_unseen"),
    [
        (None, ("far", "high"), 2),
        (("y", "far"), ("y", "far"), 2),
        ("x", ("x",), 0),
        ("noise", ("noise 0", "noise 1"), 0),
        ((1, 0), ("y", "x"), 0),
        (triple, ("feature 0", "feature 1"), 2),
        ("encoder", tuple(f"encoding {number}" for number in range(16)), 16),
    ],
)
def test_the_entropy_is_about_the_features_that_were_chosen(features, names, num_unseen):
    world = farflung.from_jax(Turtle(), features=features, low=-1, high=1)
    assert (world.projection.names, world.num_unseen, world.observation_size) == (names, num_unseen, 4)
    state = jnp.array([0.3, 0.2])
    expected = {"x": 0.3, "y": 0.2, "far": 3.0, "high": 2.0, "noise 0": 1.0, "noise 1": 1.0, "feature 0": 0.9, "feature 1": 0.6}
    if features != "encoder":
        found = world.projection.project(world.observe(state))
        np.testing.assert_allclose(found, [expected[name] for name in names], rtol=1e-5)


def test_policies_see_observations_alone_and_a_saved_run_keeps_both(tmp_path):
    world = farflung.from_jax(Turtle())
    run = farflung.explore(world, agents=2, updates=2, batch_size=2, seeds=(0,), hidden=(4,), out=tmp_path / "a")
    assert run.policies.trunk[0].weight.shape == (1, 2, 4, 4)  # four numbers seen, of six recorded
    agent = run.team(seed=0).agent(0)
    action = agent.act(jax.random.key(0), np.zeros(4, np.float32))
    assert action.shape == (2,)
    loaded = farflung.load_run(tmp_path / "a", world=farflung.from_jax(Turtle()))
    assert (loaded.world.num_unseen, loaded.world.projection) == (2, run.world.projection)
    dataset = farflung.collect(loaded, 4)
    assert dataset.observations.shape[-1] == 6
    assert set(np.unique(dataset.actions)) <= {0.0, 1.0, 2.0}


def test_an_image_is_seen_through_convolutions_and_explored_in_the_space_of_an_encoder(tmp_path):
    world = farflung.from_jax(Screen(), name="screen")
    assert (world.image, world.num_unseen, len(world.projection.names)) == ((9, 9, 3), 16, 16)
    assert "random encoder" in world.features_note
    run = farflung.explore(world, agents=2, updates=2, batch_size=2, seeds=(0,), hidden=(4,), out=tmp_path / "a")
    loaded = farflung.load_run(tmp_path / "a")
    assert jax.tree.all(jax.tree.map(np.array_equal, loaded.world.encoder, run.world.encoder))
    assert run.policies.eye.layers[0].weight.shape == (1, 2, 16, 12)


def test_many_numbers_of_which_none_was_chosen_are_told():
    class Wide(Turtle):
        feature_names, features = (), None

    assert farflung.from_jax(Wide()).features_note == (
        "features: the first two of 4 numbers, x and y; choose with --features from x, y, noise; or --features encoder"
    )
    assert not farflung.from_jax(Wide(), features="x").features_note
    assert not farflung.from_jax(Turtle()).features_note
    with pytest.raises(ValueError, match="no number is called 'z': choose from x, y, noise, or encoder"):
        farflung.from_jax(Wide(), features="z")
