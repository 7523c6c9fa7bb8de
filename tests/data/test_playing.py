"""How a team plays the episodes of a dataset: with random actions in between, flatter policies, and as it was in training."""

import dataclasses

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from tests.data.teams import make_run, make_vector_run

from farflung import collect, explore, make_vector_world, softmax_team
from farflung.data.stages import stages, trained_again
from farflung.policies import EpsilonPolicy, Networks, neural_team
from farflung.worlds.projection import Box, Discrete

pytestmark = pytest.mark.bits


def test_a_softened_table_mixes_flatter_probabilities_with_equal_ones():
    team = softmax_team(jr.key(0), make_run("room-det").world, 2, scale=3.0)
    own = np.asarray(team.probabilities, np.float64) ** (1 / 2.5)
    expected = 0.7 * own / own.sum(axis=-1, keepdims=True) + 0.3 / 4
    np.testing.assert_allclose(team.softened(0.3, 2.5).probabilities, expected, atol=1e-6)
    np.testing.assert_allclose(team.softened(1.0, 1.0).probabilities, 0.25, atol=1e-6)


@pytest.mark.parametrize("has_shared_trunk", [False, True])
@pytest.mark.parametrize("has_free_std", [False, True])
def test_temperature_multiplies_the_variances_of_vectors(has_shared_trunk, has_free_std):
    world, networks = make_vector_world("point-gap"), Networks((4,), has_shared_trunk, has_free_std)
    team = neural_team(jr.key(0), world, 2, networks, scale=1.0)
    here = jnp.array([[0.3, -0.2]])

    def gaussian(team):
        of_one = jax.vmap(lambda policy: policy._gaussian(policy._outputs(here)), (team.axes,))
        return of_one(team)

    mean, log_std = gaussian(team)
    new_mean, new_log_std = gaussian(team.softened(0.0, 4.0))
    np.testing.assert_allclose(new_mean, mean, atol=1e-6)
    np.testing.assert_allclose(np.exp(new_log_std), 2 * np.exp(log_std), rtol=1e-5)
    for one, other in zip(gaussian(team.separate()), (mean, log_std), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert not team.separate().has_shared_trunk


def test_temperature_divides_the_logits_of_discrete_actions():
    world = make_vector_world("mountain-car-discrete")
    policy = jax.tree.map(lambda leaf: leaf[0], neural_team(jr.key(0), world, 1, Networks((4,)), scale=5.0))
    here = jnp.array([-0.5, 0.01])
    np.testing.assert_allclose(policy.softened(0.0, 3.0)._outputs(here), policy._outputs(here) / 3, rtol=1e-5)


@pytest.mark.parametrize("actions", [Discrete(3), Box((-2.0,), (2.0,))])
def test_with_probability_epsilon_an_action_is_random(actions):
    name = "mountain-car-discrete" if isinstance(actions, Discrete) else "mountain-car"
    world = dataclasses.replace(make_vector_world(name), actions=actions)
    policy = jax.tree.map(lambda leaf: leaf[0], neural_team(jr.key(0), world, 1, Networks((4,))))
    mixed, here = policy.softened(0.25, 1.0), jnp.array([-0.5, 0.01])
    assert isinstance(mixed, EpsilonPolicy)
    assert mixed.num_uniforms == 3
    own = policy.sample_one(jnp.array([0.6]), jnp.int32(0), here)
    assert mixed.sample_one(jnp.array([0.25, 0.6, 0.999]), jnp.int32(0), here) == own
    random = mixed.executed(mixed.sample_one(jnp.array([0.24, 0.6, 0.999]), jnp.int32(0), here))
    assert random == 2 if isinstance(actions, Discrete) else random[0] == pytest.approx(2 * (2 * 0.999 - 1), abs=1e-3)


def test_random_actions_in_between_show_more_pairs_of_state_and_action():
    run = make_run("room-det")
    sharp = dataclasses.replace(run, policies=dataclasses.replace(run.policies, logits=50 * run.policies.logits))
    greedy, mixed = collect(sharp, 60), collect(sharp, 60, epsilon=0.5)
    pairs = {(int(state), int(action)) for state, action in zip(*greedy.steps()[:2], strict=True)}
    assert set(np.flatnonzero(greedy.pairs())) == {4 * state + action for state, action in pairs}
    assert mixed.pairs().sum() > 1.5 * greedy.pairs().sum()
    assert (mixed.source.metadata["epsilon"], mixed.source.metadata["temperature"]) == (0.5, 1.0)
    assert collect(sharp, 60, temperature=100.0).pairs().sum() > 1.5 * greedy.pairs().sum()
    networks = make_vector_run(horizon=4)
    still, shaken = collect(networks, 6), collect(networks, 6, epsilon=1.0)
    assert still.pairs() is None
    assert np.abs(still.actions - shaken.actions).max() > 0.5


@pytest.fixture(scope="module")
def trained():
    return explore("room-det", agents=2, updates=4, batch_size=2, seeds=(0, 5))


def test_training_again_gives_the_same_team(trained):
    again = trained_again(trained, 5, 2)
    assert list(again) == [0, 2, 4]
    np.testing.assert_array_equal(again[4].logits, trained.team(5).policies.logits)
    assert np.abs(again[0].logits).max() <= trained.config.init_scale < np.abs(again[4].logits).max()


def test_the_stages_of_a_training_take_turns(trained):
    team, updates = stages(trained, 5, 3)
    assert updates == [0, 2, 4]
    data = collect(trained, 12, seed=5, checkpoints=3)
    assert data.agents.tolist() == [0, 1, 2, 3, 4, 5] * 2
    assert data.source.metadata["checkpoints"] == updates
    assert data.source.metadata["agents_per_checkpoint"] == 2
    np.testing.assert_array_equal(team.logits[4:], trained.team(5).policies.logits)
    for number, message in ((1, "from 2 to 5"), (7, "from 2 to 5"), (5, "at least 10 episodes")):
        with pytest.raises(ValueError, match=message):
            collect(trained, 8, seed=5, checkpoints=number)


def test_how_to_play_is_checked(trained):
    for options, message in (
        ({"epsilon": 1.5}, "epsilon is a probability"),
        ({"temperature": 0.0}, "temperature must be a positive number"),
        ({"random": True, "epsilon": 0.1}, "random actions exclude epsilon"),
        ({"goal_radius": 0.1}, "goal_radius needs a goal"),
        ({"goal": 3, "reward": lambda *_: 0}, "either a goal or a reward"),
    ):
        with pytest.raises(ValueError, match=message):
            collect(trained, 4, **options)
