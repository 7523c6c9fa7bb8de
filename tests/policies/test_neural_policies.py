import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from farflung import policies
from farflung.policies import Networks, UniformPolicy
from farflung.worlds.named_vectors import make_vector_world
from farflung.worlds.projection import Box, Discrete, MultiDiscrete

CAR, DISCRETE_CAR, GAP = (make_vector_world(name) for name in ("mountain-car", "mountain-car-discrete", "point-gap"))
neural_team = jax.jit(policies.neural_team, static_argnums=(2, 3))
log_probabilities, policy_entropies = jax.jit(policies.log_probabilities), jax.jit(policies.policy_entropies)
gradient = jax.jit(policies.NeuralPolicy.gradient)
executed = jax.jit(UniformPolicy.executed)
STATES = np.array([[-0.5, 0.01], [0.3, -0.04]], np.float32)


def by_hand(team, agent, state):
    """The outputs of one agent's network in NumPy: its own head plus the common one."""
    hidden = (state - np.array(team.center)) / np.array(team.scale)
    for layer in team.trunk:
        weight, bias = (
            np.asarray(part if team.has_shared_trunk else part[agent], float) for part in (layer.weight, layer.bias)
        )
        hidden = np.tanh(weight @ hidden + bias)
    heads = [(team.head.weight[agent], team.head.bias[agent])]
    if team.common is not None:
        heads.append((team.common.head.weight, team.common.head.bias))
    return sum(np.asarray(weight, float) @ hidden + np.asarray(bias, float) for weight, bias in heads)


def with_own_heads(team):
    """A team with a shared trunk whose agents have different heads."""
    weights = jax.random.normal(jax.random.key(7), team.head.weight.shape)
    return eqx.tree_at(lambda team: (team.head.weight, team.log_std), team, (weights, team.log_std.at[1].set(0.2)))


@jax.jit
def draw(policy, noise, state):
    """An action for each row of noise."""
    return jax.vmap(policy.sampler(), (0, None, None))(noise, jnp.int32(0), state)


def of_agent(team, agent):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[agent], team)


def in_batch(rows):
    """One agent's rows for each of two agents, as [batch, agent, trajectory, time, ...]."""
    return jnp.asarray(np.broadcast_to(np.asarray(rows), (1, 2, 1, *np.shape(rows))))


@pytest.mark.parametrize("networks", [Networks((8, 5)), Networks((8,), has_shared_trunk=True)])
def test_a_gaussian_policy_has_the_density_of_its_network(networks):
    team = neural_team(jax.random.key(0), GAP, 2, networks, scale=1.0)
    stds = [networks.std, networks.std]
    if networks.has_shared_trunk:
        team, stds = with_own_heads(team), [networks.std, networks.std * np.exp(0.2)]
    actions = np.array([[0.3, -1.2], [2.0, 0.1]], np.float32)
    found = log_probabilities(team, in_batch(STATES), in_batch(actions))
    for agent in range(2):
        means = [by_hand(team, agent, state) for state in STATES]
        expected = stats.norm.logpdf(actions, means, stds[agent]).sum(axis=1)
        np.testing.assert_allclose(found[0, agent, 0], expected, rtol=1e-5)


@pytest.mark.parametrize("has_shared_trunk", [False, True])
def test_deviations_may_depend_on_the_state(has_shared_trunk):
    networks = Networks((8,), has_shared_trunk, has_free_std=False, std=0.3)
    team = neural_team(jax.random.key(0), GAP, 2, networks, scale=1.0)
    action = np.array([0.3, -1.2], np.float32)
    mean, log_std = np.split(by_hand(team, 1, STATES[0]), 2)
    expected = stats.norm.logpdf(action, mean, np.exp(log_std)).sum()
    assert team.log_std is None
    assert log_probabilities(team, in_batch(STATES[:1]), in_batch([action]))[0, 1, 0, 0] == pytest.approx(expected, rel=1e-5)


def test_a_categorical_policy_is_the_softmax_of_its_network():
    team = neural_team(jax.random.key(0), DISCRETE_CAR, 2, Networks((8,)), scale=5.0)
    logits = by_hand(team, 0, STATES[1])
    expected = np.exp(logits) / np.exp(logits).sum()
    found = log_probabilities(team, in_batch([STATES[1]] * 3), in_batch(np.arange(3)))[0, 0, 0]
    np.testing.assert_allclose(np.exp(found), expected, rtol=1e-5)
    noise = (np.arange(20_000, dtype=np.float32) / 20_000)[:, None]
    drawn = draw(of_agent(team, 0), noise, STATES[1])
    np.testing.assert_allclose(np.bincount(drawn, minlength=3) / 20_000, expected, atol=1e-3)
    entropy = policy_entropies(team, in_batch(STATES[1:]))[0, 0, 0, 0]
    assert entropy == pytest.approx(stats.entropy(expected), rel=1e-4)


def test_noise_becomes_a_gaussian_and_is_finite_at_both_ends():
    team = neural_team(jax.random.key(0), GAP, 1, Networks((4,)), scale=1.0)
    noise = np.array([[0.0, 1 - 2.0**-24], [0.5, stats.norm.cdf(1.5)]], np.float32)
    drawn = draw(of_agent(team, 0), noise, STATES[0])
    assert np.isfinite(drawn).all()
    np.testing.assert_allclose(drawn[1], by_hand(team, 0, STATES[0]) + 0.6 * np.array([0, 1.5]), atol=1e-5)


@pytest.mark.parametrize("std", [0.1, 0.6, 1.5])
def test_the_entropy_of_squashed_actions_is_that_of_their_density(std):
    team = neural_team(jax.random.key(3), CAR, 1, Networks((4,), std=std), scale=3.0)
    mean = by_hand(team, 0, STATES[0])[0]

    def term(action):
        density = stats.norm.pdf(np.arctanh(action), mean, std) / (1 - action**2)
        return -density * np.log(density) if density > 0 else 0.0

    expected = integrate.quad(term, -1, 1, limit=400, points=[np.tanh(mean)])[0]
    found = policy_entropies(team, jnp.asarray(STATES[:1]).reshape(1, 1, 1, 1, 2))
    assert float(found[0, 0, 0, 0]) == pytest.approx(expected, abs=2e-3)


def test_actions_are_squashed_into_their_bounds_or_clipped_where_there_is_but_one():
    space = Box((-2.0, -np.inf, 0.0), (1.0, np.inf, np.inf))
    team = UniformPolicy(space)
    drawn = jnp.array([[50.0, 50.0, 50.0], [-50.0, -50.0, -50.0], [0.0, 0.0, 0.0]])
    np.testing.assert_allclose(executed(team, drawn), [[1, 50, 50], [-2, -50, 0], [-0.5, 0, 0]])


def test_random_actions_are_uniform_between_their_bounds():
    team = UniformPolicy(Box((-2.0,), (4.0,)))
    noise = np.array([[0.25], [0.5], [0.875]], np.float32)
    drawn = draw(team, noise, np.zeros(1, np.float32))
    np.testing.assert_allclose(np.asarray(executed(team, drawn))[:, 0], [-0.5, 1.0, 3.25], atol=1e-5)
    assert float(policy_entropies(team, jnp.zeros((1, 1, 1, 1, 3)))[0, 0, 0, 0]) == pytest.approx(np.log(6))
    chosen = draw(UniformPolicy(Discrete(4)), noise, np.zeros(1, np.float32))
    assert chosen.tolist() == [1, 2, 3]


def test_agents_with_a_shared_trunk_start_alike():
    team = neural_team(jax.random.key(0), GAP, 2, Networks((6,), has_shared_trunk=True), scale=1.0)
    one, other = log_probabilities(team, in_batch(STATES), in_batch(STATES))[0]
    np.testing.assert_array_equal(one, other)
    assert len(np.unique(one)) == 2  # yet they act differently in different states


def test_the_gradient_of_shared_parameters_is_the_sum_over_agents():
    team = with_own_heads(neural_team(jax.random.key(0), GAP, 2, Networks((6,), has_shared_trunk=True), scale=1.0))
    generator = np.random.default_rng(1)
    states = generator.normal(scale=0.3, size=(3, 2, 2, 4, 2)).astype(np.float32)
    actions = generator.normal(0.1, size=(3, 2, 2, 4, 2)).astype(np.float32)
    weights = generator.normal(0.1, size=(3, 2, 2, 4)).astype(np.float32)
    together = gradient(team, states, actions, weights, bonus=0.3)
    masks = np.eye(2, dtype=np.float32).reshape(2, 1, 2, 1, 1)
    apart = [gradient(team, states, actions, weights * mask, bonus=0.0) for mask in masks]
    own = [gradient(team, states, actions, np.zeros_like(weights), bonus=0.3)]
    total = jax.tree.map(lambda *parts: sum(map(np.asarray, parts)), *apart, *own)
    jax.tree.map(lambda one, two: np.testing.assert_allclose(one, two, atol=1e-4), together, total)
    assert np.all(apart[0].head.weight[1] == 0)
    assert together.trunk[0].weight.shape == (6, 2)
    np.testing.assert_allclose(together.common.head.weight, together.head.weight.sum(axis=0), atol=1e-4)
    np.testing.assert_allclose(together.common.log_std, together.log_std.sum(axis=0), atol=1e-4)


def test_states_after_the_end_do_not_count_in_the_gradient():
    team = neural_team(jax.random.key(0), GAP, 1, Networks((6,)), scale=1.0)
    states = np.random.default_rng(1).normal(scale=0.3, size=(2, 1, 1, 4, 2)).astype(np.float32)
    actions, weights = np.ones((2, 1, 1, 4, 2), np.float32), np.ones((2, 1, 1, 4), np.float32)
    end = np.where(np.arange(4) < 2, 0, np.nan).astype(np.float32)[:, None]
    ended = gradient(team, states + end, actions, weights, bonus=0.3)
    shorter = gradient(team, states[:, :, :, :2], actions[:, :, :, :2], weights[..., :2], bonus=0.3)
    jax.tree.map(lambda one, two: np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6), ended, shorter)


def test_several_choices_at_once_are_independent_given_the_state():
    world = dataclasses.replace(CAR, actions=MultiDiscrete((3, 2)))
    team = neural_team(jax.random.key(0), world, 2, Networks((4,)), scale=3.0)
    actions = np.array(list(np.ndindex(3, 2)), np.int32)
    found = log_probabilities(team, in_batch(np.repeat(STATES[:1], 6, axis=0)), in_batch(actions))[0, 0, 0]
    outputs = by_hand(team, 0, STATES[0])
    expected = np.log([softmax(outputs[:3])[first] * softmax(outputs[3:])[second] for first, second in actions])
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    entropy = policy_entropies(team, in_batch(STATES[:1]))[0, 0, 0, 0]
    np.testing.assert_allclose(entropy, -np.sum(np.exp(expected) * expected), rtol=1e-4)
    drawn = draw(of_agent(team, 0), np.random.default_rng(0).random((20_000, 2), np.float32), STATES[0])
    shares = np.bincount(np.asarray(drawn) @ [2, 1], minlength=6) / 20_000
    np.testing.assert_allclose(shares, np.exp(expected), atol=0.02)


def softmax(values):
    return np.exp(values) / np.exp(values).sum()
