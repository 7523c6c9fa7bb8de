import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung import TabularMDP, from_kernel, gridworld, make_tabular_world, tabular_mdp


def random_kernel(generator, num_states, num_actions):
    return generator.dirichlet(np.full(num_states, 0.5), size=(num_states, num_actions))


def test_state_distributions_agree_with_a_sum_over_all_trajectories():
    generator = np.random.default_rng(0)
    kernel = random_kernel(generator, 3, 2)
    world = from_kernel(kernel, np.array([0.5, 0.5, 0.0]), horizon=3)
    policy = generator.dirichlet(np.ones(2), size=(3, 3))  # another for each time
    expected = np.zeros((4, 3))
    for states in itertools.product(range(3), repeat=4):
        probability = [0.5, 0.5, 0.0][states[0]]
        for time, (here, there) in enumerate(itertools.pairwise(states)):
            probability *= policy[time, here] @ kernel[here, :, there]
        for time, state in enumerate(states):
            expected[time, state] += probability
    np.testing.assert_allclose(world.state_distributions(jnp.asarray(policy, jnp.float32)), expected, atol=1e-6)
    np.testing.assert_allclose(world.occupancy(jnp.asarray(policy, jnp.float32)), expected.mean(axis=0), atol=1e-6)


@settings(max_examples=20)
@given(st.integers(2, 6), st.integers(1, 4), st.integers(0, 2**31))
def test_propagation_agrees_with_powers_of_the_transition_matrix(num_states, num_actions, seed):
    generator = np.random.default_rng(seed)
    kernel = random_kernel(generator, num_states, num_actions)
    start = generator.dirichlet(np.ones(num_states))
    policy = generator.dirichlet(np.ones(num_actions), size=num_states)
    world = from_kernel(kernel, start, horizon=4)
    chain = np.einsum("sa,sat->st", policy, kernel)
    expected = [start @ np.linalg.matrix_power(chain, time) for time in range(5)]
    np.testing.assert_allclose(world.state_distributions(jnp.asarray(policy, jnp.float32)), expected, atol=1e-5)


def test_steps_are_drawn_with_the_given_probabilities():
    kernel = random_kernel(np.random.default_rng(1), 5, 2)
    world = from_kernel(kernel, np.ones(5) / 5, horizon=1)
    noise = jax.random.uniform(jax.random.key(0), (50_000, 1))
    for state, action in itertools.product(range(5), range(2)):
        arrived = jax.vmap(lambda n, s=state, a=action: world.step_from(n, jnp.int32(s), jnp.int32(a)))(noise)
        np.testing.assert_allclose(np.bincount(arrived, minlength=5) / 50_000, kernel[state, action], atol=0.012)


def test_impossible_and_repeated_successors_are_merged():
    successors = np.array([[[1, 1, 0, 2]], [[0, 0, 0, 0]], [[2, 2, 2, 2]]])
    probabilities = np.array([[[0.25, 0.25, 0.5, 0.0]], [[1.0, 0, 0, 0]], [[1.0, 0, 0, 0]]])
    rewards = np.array([[[1.0, 3.0, 5.0, 9.0]], [[0.0] * 4], [[0.0] * 4]])
    world = tabular_mdp(successors, probabilities, np.array([1.0, 0, 0]), rewards=rewards)
    assert (world.num_states, world.num_successors, world.horizon) == (2, 2, 1)
    np.testing.assert_allclose(world.probabilities[0, 0], [0.5, 0.5])
    np.testing.assert_allclose(world.rewards[0, 0], [5.0, 2.0])


def test_no_noise_below_one_picks_an_impossible_successor():
    world = from_kernel(np.array([[[1 / 3, 1 / 3, 1 / 3, 0.0]]] * 4), np.array([1.0, 0, 0, 0]), horizon=1)
    largest = jnp.array([1 - 2.0**-24])
    assert world.num_states == 3
    assert int(world.step_from(largest, jnp.int32(0), jnp.int32(0))) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"probabilities": np.full((2, 1, 2), 0.4)}, "must sum to 1, not 0.8"),
        ({"probabilities": np.array([[[0.5, 0.5]], [[np.nan, 1.0]]])}, "finite"),
        ({"probabilities": np.array([[[1.5, -0.5]], [[0.0, 1.0]]])}, "negative"),
        ({"start_distribution": np.array([0.5, 0.4])}, "the start distribution must sum to 1, not 0.9"),
        ({"start_distribution": np.array([1.0])}, "shape"),
        ({"successors": np.array([[[0, 2]], [[0, 1]]])}, "from 0 to 1"),
        ({"successors": np.array([[[0.0, 1.0]], [[0.0, 1.0]]])}, "whole number"),
        ({"successors": np.zeros((2, 2, 2), int)}, "one shape"),
        ({"rewards": np.full((2, 1, 2), np.inf)}, "reward"),
        ({"horizon": 0}, "horizon must be at least 1"),
    ],
)
def test_bad_tables_are_refused(change, message):
    good = {
        "successors": np.array([[[0, 1]], [[0, 1]]]),
        "probabilities": np.full((2, 1, 2), 0.5),
        "start_distribution": np.array([1.0, 0.0]),
    }
    tabular_mdp(**good)
    with pytest.raises(ValueError, match=message):
        tabular_mdp(**{**good, **change})


def test_a_row_that_does_not_sum_to_one_is_named():
    kernel = np.full((3, 2, 3), 1 / 3)
    kernel[1, 1, 2] = 0.5
    with pytest.raises(ValueError, match="of state 1, action 1"):
        from_kernel(kernel, np.array([1.0, 0, 0]))


def test_worlds_of_equal_shape_have_equal_pytree_structure():
    structures = {jax.tree.structure(make_tabular_world(name, horizon=9)) for name in ("room-det", "maze-det", "room-stoc")}
    assert len(structures) == 1


def test_a_widened_world_is_the_same_world():
    narrow = gridworld("S..\n.#.")
    wide = narrow.widened(3)
    assert wide.successors.shape == (5, 4, 3)
    noise = jnp.linspace(0, 1, 100, endpoint=False)[:, None]
    states, actions = jnp.divmod(jnp.arange(20), 4)
    step = jax.vmap(jax.vmap(TabularMDP.step_from, (None, 0, None, None)), (None, None, 0, 0))
    expected = jax.vmap(TabularMDP.step_from, (None, None, 0, 0))(narrow, jnp.zeros(0), states, actions)
    assert jnp.all(step(wide, noise, states, actions) == expected[:, None])
    policy = jnp.full((5, 4), 0.25)
    assert jnp.allclose(wide.occupancy(policy), narrow.occupancy(policy), atol=1e-7)
    assert narrow.widened(1) is narrow
