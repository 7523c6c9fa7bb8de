from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from farflung import PGPSE, make_tabular_world, play, plug_in, softmax_team
from farflung.config import CREDITS as CREDIT_NAMES
from farflung.entropy.credit import CREDITS, recombined
from farflung.studies.ablate.experiment import gradient_variances

teams = hnp.arrays(
    np.int32, st.tuples(st.integers(1, 3), st.integers(1, 2), st.sampled_from([2, 6])), elements=st.integers(0, 4)
)

ENTROPY = plug_in(43)
gains_of_five = jax.jit(plug_in(5).gains)
weights = {name: jax.jit(partial(credit, ENTROPY)) for name, credit in CREDITS.items()}


def spread(states, num_samples):
    """The entropy of some of n states, each with weight 1/n."""
    share = np.bincount(states, minlength=5) / num_samples
    return -np.sum(share * np.log(np.where(share > 0, share, 1)))


@given(teams)
def test_a_gain_is_a_states_contribution_given_the_others_and_its_own_past(states):
    gains = gains_of_five(jnp.asarray(states))
    for agent, trajectory, time in np.ndindex(states.shape):
        others = states.copy()
        others[agent, trajectory] = -1
        known = np.concatenate([others[others >= 0], states[agent, trajectory, :time]])
        after = np.append(known, states[agent, trajectory, time])
        expected = spread(after, states.size) - spread(known, states.size)
        np.testing.assert_allclose(gains[agent, trajectory, time], expected, atol=1e-6)


def test_the_gains_of_a_team_of_one_add_up_to_its_entropy():
    states = jax.random.randint(jax.random.key(0), (1, 1, 30), 0, 7)
    np.testing.assert_allclose(plug_in(7).gains(states).sum(), plug_in(7).value(states), atol=1e-5)


@cache
def batch_of_states():
    world = make_tabular_world("maze-stoc")
    algorithm = PGPSE(3, 2, batch_size=6)
    return play(
        jax.random.key(1),
        algorithm.init(jax.random.key(0), world).team,
        world,
        algorithm.batch_size,
        algorithm.num_trajectories,
    ).states


def test_an_action_is_credited_with_what_comes_after_it():
    states = np.asarray(batch_of_states())
    gains = np.asarray(jax.jit(jax.vmap(ENTROPY.gains))(states), np.float64)
    after = np.flip(np.cumsum(np.flip(gains[..., 1:], -1), -1), -1)
    for name, own in (("causal", after), ("difference", gains.sum(-1, keepdims=True))):
        others = [np.delete(own, b, axis=0).mean(axis=(0, 2), keepdims=True)[0] for b in range(6)]
        expected = own - np.stack(others)
        np.testing.assert_allclose(weights[name](jnp.asarray(states)), expected, atol=1e-5)


def test_a_batch_of_one_has_nothing_to_compare_with():
    states = batch_of_states()[:1]
    np.testing.assert_array_equal(weights["leave_one_out"](states), weights["total"](states))


@pytest.mark.parametrize("name", ["difference", "causal"])
def test_recombination_scores_each_trajectory_in_other_teams(name):
    states = batch_of_states()
    found = jax.jit(partial(recombined(CREDITS[name], 3), ENTROPY))(states)
    expected = np.zeros(found.shape)
    for shift in range(3):
        mixed = np.array(states)
        for slot, place in enumerate(np.ndindex(3, 2)):
            mixed[:, *place] = np.roll(np.asarray(states)[:, *place], -shift * slot, axis=0)
        own = np.asarray(weights[name](jnp.asarray(mixed)))
        for slot, place in enumerate(np.ndindex(3, 2)):
            expected[:, *place] += np.roll(own[:, *place], shift * slot, axis=0) / 3
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_recombining_once_changes_nothing():
    states = batch_of_states()
    once = jax.jit(partial(recombined(CREDITS["causal"], 1), ENTROPY))
    np.testing.assert_allclose(once(states), weights["causal"](states), atol=1e-7)


@pytest.mark.parametrize("world", ["room-det", "room-stoc", "maze-det", "maze-stoc"])
@pytest.mark.parametrize("num_agents", [2, 6])
def test_each_credit_varies_less_than_the_one_before(world, num_agents):
    world = make_tabular_world(world, horizon=10).widened(4)  # worlds of one shape share a compiled program
    algorithms = tuple(PGPSE(num_agents, credit=credit) for credit in CREDIT_NAMES)
    combined = PGPSE(num_agents, credit="causal", num_combinations=4)
    team = softmax_team(jax.random.key(0), world, num_agents)
    variances = gradient_variances(jax.random.key(1), (*algorithms, combined), team, world, 300)
    assert np.all(np.diff(variances) < 0), variances


def test_the_variance_is_that_of_gradients_of_many_batches():
    world = make_tabular_world("room-det")
    algorithm = PGPSE(2, batch_size=5)
    state = algorithm.init(jax.random.key(0), world)
    found = gradient_variances(jax.random.key(1), (algorithm,), state.team, world, 20)
    batches = [
        play(key, state.team, world, algorithm.batch_size, algorithm.num_trajectories)
        for key in jax.random.split(jax.random.key(1), 20)
    ]
    gradient = eqx.filter_jit(algorithm.gradient)
    gradients = np.stack([gradient(world, state.team, batch).logits for batch in batches])
    np.testing.assert_allclose(found[0], gradients.var(axis=0, ddof=1).sum(), rtol=1e-4)
