import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from farflung.entropy.objective import Objective
from farflung.worlds.projection import Projection, whole_bins, whole_neighbours

COMPASS = Projection((1, 3), ("angle", "height"), (-math.pi, 0.0), (math.pi, 1.0), (4, 2), (6.0, 1.0), 0, angles=(0,))

CELLS = jax.jit(COMPASS.cells)


@jax.jit
def seen(angle, height):
    return jnp.stack([jnp.zeros_like(angle), jnp.cos(angle), jnp.sin(angle), height], axis=-1)


def test_an_angle_is_projected_from_its_cosine_and_sine():
    angles, heights = jnp.array([-3.0, -1.0, 0.5, 3.1]), jnp.array([0.1, 0.9, 0.2, 2.0])
    states = seen(angles, heights)
    np.testing.assert_allclose(COMPASS.project(states), np.stack([angles, heights], axis=-1), rtol=1e-5)
    assert CELLS(states).tolist() == [0, 3, 4, 7]


def test_distances_of_angles_are_those_on_a_circle(monkeypatch):
    asked = {}

    def echo(neighbours, **options):
        asked.update(options, neighbours=neighbours)
        return Objective(lambda states: states, lambda states: states)

    monkeypatch.setattr("farflung.worlds.projection.nearest_neighbours", echo)
    states = seen(jnp.array([3.0, -3.0]), jnp.array([0.1, 0.9]))
    near = replace(COMPASS, neighbours=4).entropy(is_ragged=True)
    np.testing.assert_array_equal(near.value(states), COMPASS.project(states))
    np.testing.assert_array_equal(near.gains(states), COMPASS.project(states))
    assert asked == {"neighbours": 4, "scale": (6.0, 1.0), "angles": (0,), "is_ragged": True}


def test_states_after_an_episodes_end_have_no_cell_and_no_weight():
    states = seen(jnp.array([0.5, 2.0, jnp.nan]), jnp.array([0.1, 0.1, jnp.nan]))[None, None]
    assert CELLS(states).tolist() == [[[4, 6, 8]]]
    assert float(jax.jit(COMPASS.entropy().value)(states)) == pytest.approx(math.log(2))


@pytest.mark.parametrize(
    ("bins", "message"),
    [
        ((20, 20, 20), "a whole number for each of the 2 features, not \\(20, 20, 20\\)"),
        (20, "a whole number for each"),
        ("12", "a whole number for each"),
        ((20, 0), "each number of bins must be at least 1, not 0"),
        ((20, 1.5), "each number of bins must be a whole number, not 1.5"),
        ((10**4, 10**4), "at most 10,000,000 cells, not 100,000,000"),
    ],
)
def test_bins_are_checked(bins, message):
    with pytest.raises(ValueError, match=message):
        whole_bins(bins)


def test_one_number_of_bins_is_for_all_features():
    assert whole_bins([20], 3) == (20, 20, 20)


@pytest.mark.parametrize("neighbours", [-1, 1.5, True, "4", None])
def test_neighbours_are_checked(neighbours):
    with pytest.raises(ValueError, match="neighbours must be a whole number from 0 on"):
        whole_neighbours(neighbours)
