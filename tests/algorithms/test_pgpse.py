"""The policy gradient against the exact gradient of J_p, by enumeration of everything that can happen."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from farflung import PGPSE, TabularSoftmax, Trajectories, from_kernel

NUM_STATES, NUM_ACTIONS, HORIZON, NUM_AGENTS = 2, 2, 2, 2
KERNEL = np.array([[[0.7, 0.3], [0.1, 0.9]], [[0.4, 0.6], [0.8, 0.2]]])
START = np.array([0.6, 0.4])


def all_trajectories():
    """Every trajectory of one agent: states [n, T + 1], actions [n, T], and the probability of its states given its actions."""
    states = np.array(list(itertools.product(range(NUM_STATES), repeat=HORIZON + 1)))
    actions = np.array(list(itertools.product(range(NUM_ACTIONS), repeat=HORIZON)))
    states, actions = np.repeat(states, len(actions), axis=0), np.tile(actions, (len(states), 1))
    chance = START[states[:, 0]] * np.prod(KERNEL[states[:, :-1], actions, states[:, 1:]], axis=1)
    return states, actions, chance


def probabilities(logits, states, actions, chance):
    """The probability of each trajectory under one agent's logits, which may be complex."""
    weights = np.exp(logits)
    policy = weights / weights.sum(axis=-1, keepdims=True)
    times = np.arange(HORIZON)
    chosen = policy[times, states[:, :-1], actions] if logits.ndim == 3 else policy[states[:, :-1], actions]
    return chance * np.prod(chosen, axis=1)


def joint(num_trajectories):
    """Every way in which the trajectories of all agents can combine: index [combination, agent, trajectory]."""
    num = len(all_trajectories()[0])
    index = np.array(list(itertools.product(range(num), repeat=NUM_AGENTS * num_trajectories)))
    return index.reshape(-1, NUM_AGENTS, num_trajectories)


def exact_gradient(logits, num_trajectories):
    """The derivative of J_p in the complex direction of each logit: exact to rounding."""
    states, actions, chance = all_trajectories()
    index = joint(num_trajectories)
    visited = states[index].reshape(len(index), -1)
    share = np.stack([(visited == state).mean(axis=1) for state in range(NUM_STATES)])
    entropy = -np.sum(share * np.log(np.where(share > 0, share, 1)), axis=0)

    def objective(logits):
        by_agent = [probabilities(agent, states, actions, chance) for agent in logits]
        probability = np.prod([by_agent[i][index[:, i]].prod(axis=1) for i in range(NUM_AGENTS)], axis=0)
        return np.sum(probability * entropy)

    gradient = np.zeros(logits.shape)
    for entry in np.ndindex(logits.shape):
        moved = logits.astype(complex)
        moved[entry] += 1e-20j
        gradient[entry] = objective(moved).imag / 1e-20
    return gradient


@pytest.mark.parametrize("num_trajectories", [1, 2])
@pytest.mark.parametrize("is_time_dependent", [False, True])
@pytest.mark.parametrize("credit", ["total", "leave_one_out", "difference", "causal"])
def test_the_expected_gradient_is_the_exact_one(credit, is_time_dependent, num_trajectories):
    generator = np.random.default_rng(0)
    times = (HORIZON,) if is_time_dependent else ()
    logits = generator.normal(size=(NUM_AGENTS, *times, NUM_STATES, NUM_ACTIONS))
    states, actions, chance = all_trajectories()
    index = joint(num_trajectories)
    index = index[(chance[index] > 0).all(axis=(1, 2))]
    by_agent = [probabilities(agent, states, actions, chance) for agent in logits]
    probability = np.prod([by_agent[i][index[:, i]].prod(axis=1) for i in range(NUM_AGENTS)], axis=0)

    world = from_kernel(KERNEL, START, horizon=HORIZON)
    algorithm = PGPSE(NUM_AGENTS, num_trajectories, batch_size=1, credit=credit)
    team = TabularSoftmax(jnp.asarray(logits, jnp.float32), is_time_dependent)

    @jax.jit
    @jax.vmap
    def estimates(states, actions):
        return algorithm.gradient(world, team, Trajectories(states[None], actions[None])).logits

    expected = np.zeros(logits.shape)
    for chunk in np.array_split(np.arange(len(index)), max(1, len(index) // 50_000)):
        found = estimates(jnp.asarray(states[index[chunk]], jnp.int32), jnp.asarray(actions[index[chunk]], jnp.int32))
        expected += np.tensordot(probability[chunk], np.asarray(found, np.float64), axes=1)
    np.testing.assert_allclose(expected, exact_gradient(logits, num_trajectories), atol=1e-6)


def test_a_batch_averages_its_elements():
    world = from_kernel(KERNEL, START, horizon=HORIZON)
    algorithm = PGPSE(NUM_AGENTS, 2, batch_size=8)
    state = algorithm.init(jax.random.key(0), world)
    trajectories = algorithm.sample(jax.random.key(1), world, state)
    whole = algorithm.gradient(world, state.team, trajectories).logits
    parts = [
        algorithm.gradient(world, state.team, jax.tree.map(lambda leaf, b=b: leaf[b : b + 1], trajectories)).logits
        for b in range(8)
    ]
    np.testing.assert_allclose(whole, np.mean(parts, axis=0), atol=1e-6)


def test_the_single_agent_sums_the_scores_of_its_trajectories():
    world = from_kernel(KERNEL, START, horizon=HORIZON)
    team = PGPSE(3, 1, batch_size=5)
    state = team.init(jax.random.key(0), world)
    same = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), state.team)
    trajectories = team.sample(jax.random.key(1), world, state._replace(team=same))
    pooled = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 1, 2), trajectories)
    single = PGPSE(1, 3, batch_size=5).gradient(world, jax.tree.map(lambda leaf: leaf[:1], same), pooled).logits[0]
    np.testing.assert_allclose(single, team.gradient(world, same, trajectories).logits.sum(axis=0), atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "factors"), [({}, (1, 1)), ({"decay": 0.5}, (1, 0.5))], ids=["constant", "decayed after each update"]
)
def test_gradient_ascent_takes_the_learning_rate_times_the_gradient(settings, factors):
    world = from_kernel(KERNEL, START, horizon=HORIZON)
    algorithm = PGPSE(2, learning_rate=0.3, **settings)
    state = algorithm.init(jax.random.key(0), world)
    for number, factor in enumerate(factors):
        trajectories = algorithm.sample(jax.random.key(number), world, state)
        after = algorithm.learn(world, state, trajectories)
        step = 0.3 * factor * algorithm.gradient(world, state.team, trajectories).logits
        np.testing.assert_allclose(after.team.logits, state.team.logits + step, atol=1e-6)
        state = after


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_agents": 0}, "num_agents must be at least 1"),
        ({"num_agents": 2, "num_trajectories": 0}, "num_trajectories"),
        ({"num_agents": 2, "batch_size": 0}, "batch_size"),
        ({"num_agents": 2, "credit": "totl"}, "did you mean 'total'"),
        ({"num_agents": 2, "optimizer": "adm"}, "did you mean 'adam'"),
        ({"num_agents": 2, "learning_rate": float("nan")}, "learning_rate"),
        ({"num_agents": 2, "decay": 2.0}, "decay"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        PGPSE(**settings)


def test_adams_first_step_has_the_length_of_the_learning_rate():
    world = from_kernel(KERNEL, START, horizon=HORIZON)
    algorithm = PGPSE(2, optimizer="adam", learning_rate=0.02)
    state = algorithm.init(jax.random.key(0), world)
    trajectories = algorithm.sample(jax.random.key(1), world, state)
    after = algorithm.learn(world, state, trajectories)
    gradient = algorithm.gradient(world, state.team, trajectories).logits
    np.testing.assert_allclose(after.team.logits - state.team.logits, 0.02 * np.sign(gradient), rtol=1e-3)
