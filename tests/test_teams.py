import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from farflung import Explore, make_vector_world
from farflung.policies import log_probabilities, neural_team
from farflung.runs.run import networks_of, team_from_arrays, team_to_arrays

CONFIG = Explore("point-gap", algorithm="pgpse", agents=2, policy="shared-trunk", hidden=(4,), seeds=(5,))
WORLD = make_vector_world("point-gap")


@pytest.fixture(scope="module")
def kept():
    """The arrays of a team with random numbers for weights."""
    shapes = eqx.filter_eval_shape(neural_team, jr.key(0), WORLD, 2, networks_of(CONFIG))
    generator = np.random.default_rng(0)
    return team_to_arrays(jax.tree.map(lambda leaf: generator.normal(size=(1, *leaf.shape)).astype(np.float32), shapes))


def test_a_team_is_made_of_its_arrays_again(kept):
    found = team_to_arrays(team_from_arrays(kept, CONFIG, WORLD))
    assert found.keys() == kept.keys()
    for name, array in kept.items():
        np.testing.assert_array_equal(found[name], array)


def test_a_team_that_was_saved_before_agents_had_a_head_in_common_acts_as_it_did(kept):
    before = {name: array for name, array in kept.items() if ".common" not in name}
    assert len(before) < len(kept)
    team = jax.tree.map(lambda leaf: leaf[0], team_from_arrays(before, CONFIG, WORLD))
    state, action = np.array([0.3, -0.2], np.float32), np.array([0.1, -0.4], np.float32)
    found = log_probabilities(team, *(jnp.broadcast_to(row, (1, 2, 1, 1, 2)) for row in (state, action)))[0, :, 0, 0]
    weight, bias, head, shift, log_std = (
        before[name][0]
        for name in (
            "network.trunk[0].weight",
            "network.trunk[0].bias",
            "network.head.weight",
            "network.head.bias",
            "network.log_std",
        )
    )
    means = head @ np.tanh(weight @ state + bias) + shift
    np.testing.assert_allclose(found, stats.norm.logpdf(action, means, np.exp(log_std)).sum(axis=1), rtol=1e-4)


def test_a_part_of_the_wrong_shape_is_refused(kept):
    with pytest.raises(ValueError, match=r"a part of the shape \(1, 4\), not \(1, 2\)"):
        team_from_arrays(kept | {"network.common.log_std": np.zeros((1, 4))}, CONFIG, WORLD)
