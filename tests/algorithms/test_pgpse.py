"""The policy gradient against the exact gradient of J_p, by enumeration of everything that can happen."""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from farflung import PGPSE, Explore, TabularSoftmax, Trajectories, Utility, from_kernel, play
from farflung.algorithms.pgpse import pgpse
from farflung.entropy.named import named_objective
from farflung.entropy.trajectories import of_trajectories

NUM_ACTIONS, NUM_AGENTS = 2, 2
KERNEL = np.array([[[0.7, 0.3], [0.1, 0.9]], [[0.4, 0.6], [0.8, 0.2]]])
START = np.array([0.6, 0.4])
HORIZON = 2
TWO_STATES = KERNEL, START, HORIZON
FROM_ONE_STATE = KERNEL, np.array([1.0, 0.0])
THREE_STATES = (
    np.array([[[0.7, 0.3, 0], [0, 0.1, 0.9]], [[0.4, 0, 0.6], [0.8, 0.2, 0]], [[0, 0.5, 0.5], [0.3, 0.3, 0.4]]]),
    np.array([1.0, 0.0, 0.0]),
    2,
)
# Compiled once for each algorithm: outside of jit every operation would be compiled by itself.
init, gradient, learn = map(eqx.filter_jit, (PGPSE.init, PGPSE.gradient, PGPSE.learn))


def sample(algorithm, key, world, state):
    return play(key, state.team, world, algorithm.batch_size, algorithm.num_trajectories)


def all_trajectories(kernel, start, horizon):
    """Every trajectory of one agent: states [n, T + 1], actions [n, T], and the probability of its states given its actions."""
    states = np.array(list(itertools.product(range(len(start)), repeat=horizon + 1)))
    actions = np.array(list(itertools.product(range(NUM_ACTIONS), repeat=horizon)))
    states, actions = np.repeat(states, len(actions), axis=0), np.tile(actions, (len(states), 1))
    chance = start[states[:, 0]] * np.prod(kernel[states[:, :-1], actions, states[:, 1:]], axis=1)
    return states[chance > 0], actions[chance > 0], chance[chance > 0]


def probabilities(logits, states, actions, chance):
    """The probability of each trajectory under one agent's logits, which may be complex."""
    weights = np.exp(logits)
    policy = weights / weights.sum(axis=-1, keepdims=True)
    times = np.arange(actions.shape[1])
    chosen = policy[times, states[:, :-1], actions] if logits.ndim == 3 else policy[states[:, :-1], actions]
    return chance * np.prod(chosen, axis=1)


def joint(num, num_trajectories):
    """Every way in which the trajectories of all agents can combine: index [combination, agent, trajectory]."""
    grid = np.indices((num,) * (NUM_AGENTS * num_trajectories)).reshape(NUM_AGENTS * num_trajectories, -1)
    return grid.T.reshape(-1, NUM_AGENTS, num_trajectories)


def probability_of(logits, index, trajectories):
    by_agent = [probabilities(agent, *trajectories) for agent in logits]
    return np.prod([by_agent[i][index[:, i]].prod(axis=1) for i in range(NUM_AGENTS)], axis=0)


def entropy_of(samples, num):
    """The entropy of the samples in each row, which are numbers below `num`."""
    share = np.stack([(samples.reshape(len(samples), -1) == value).mean(axis=1) for value in range(num)])
    return -np.sum(share * np.log(np.where(share > 0, share, 1)), axis=0)


def own_entropy(visited, num_states):
    return np.mean([entropy_of(visited[:, agent], num_states) for agent in range(NUM_AGENTS)], axis=0)


def trajectory_entropy(visited, num_states):
    number = visited @ num_states ** np.arange(visited.shape[-1])
    return entropy_of(number, num_states ** visited.shape[-1])


def renyi_entropy(visited, num_states):
    visited = visited.reshape(len(visited), -1)
    share = np.stack([(visited == state).mean(axis=1) for state in range(num_states)])
    return 2 * np.log(np.sum(np.sqrt(share), axis=0))


RENYI = Utility(lambda shares: 2 * jnp.log(jnp.sum(jnp.sqrt(shares))))


def played_trajectories(world, team):
    return of_trajectories()


OBJECTIVES = {
    None: entropy_of,
    named_objective("own"): own_entropy,
    played_trajectories: trajectory_entropy,
    named_objective("own+3*skills"): lambda *about: 3 * entropy_of(*about) - 2 * own_entropy(*about),
    RENYI: renyi_entropy,
}
"""What is maximised, and its value computed anew from the states [combination, agent, trajectory, time]."""


def exact_gradient(problem, logits, num_trajectories, objective=None):
    """The derivative of J_p in the complex direction of each logit: exact to rounding."""
    trajectories = all_trajectories(*problem)
    index = joint(len(trajectories[0]), num_trajectories)
    entropy = OBJECTIVES[objective](trajectories[0][index], len(problem[1]))
    gradient = np.zeros(logits.shape)
    for entry in np.ndindex(logits.shape):
        moved = logits.astype(complex)
        moved[entry] += 1e-20j
        gradient[entry] = np.sum(probability_of(moved, index, trajectories) * entropy).imag / 1e-20
    return gradient


def check_unbiased(problem, batch_size, is_time_dependent, algorithm):
    """The mean of the estimate over all batches that can happen, against the derivative of the objective."""
    kernel, start, horizon = problem
    times = (horizon,) if is_time_dependent else ()
    logits = np.random.default_rng(0).normal(size=(NUM_AGENTS, *times, len(start), NUM_ACTIONS))
    states, actions, chance = all_trajectories(*problem)
    index = joint(len(states), algorithm.num_trajectories)
    probability = probability_of(logits, index, (states, actions, chance))
    if batch_size == 2:
        first, second = np.indices((len(index), len(index))).reshape(2, -1)
        index, probability = np.stack([index[first], index[second]], axis=1), probability[first] * probability[second]
    else:
        index = index[:, None]
    world = from_kernel(kernel, start, horizon=horizon)
    team = TabularSoftmax(jnp.asarray(logits, jnp.float32), is_time_dependent)

    @jax.jit
    @jax.vmap
    def estimates(states, actions):
        return algorithm.gradient(world, team, Trajectories(states, actions)).logits

    expected = np.zeros(logits.shape)
    for chunk in np.array_split(np.arange(len(index)), max(1, len(index) // 2**16)):
        found = estimates(jnp.asarray(states[index[chunk]], jnp.int32), jnp.asarray(actions[index[chunk]], jnp.int32))
        expected += np.tensordot(probability[chunk], np.asarray(found, np.float64), axes=1)
    np.testing.assert_allclose(
        expected, exact_gradient(problem, logits, algorithm.num_trajectories, algorithm.objective), atol=1e-6
    )


@pytest.mark.parametrize("num_trajectories", [1, 2])
@pytest.mark.parametrize("is_time_dependent", [False, True])
@pytest.mark.parametrize("credit", ["total", "leave_one_out", "difference", "causal"])
def test_the_expected_gradient_is_the_exact_one(credit, is_time_dependent, num_trajectories):
    # Of two trajectories each, that start anywhere, there are a million combinations; from one state a sixteenth of them.
    problem = TWO_STATES if num_trajectories == 1 else (*FROM_ONE_STATE, HORIZON)
    check_unbiased(problem, 1, is_time_dependent, PGPSE(NUM_AGENTS, num_trajectories, batch_size=1, credit=credit))


@pytest.mark.parametrize("num_trajectories", [1, 2])
@pytest.mark.parametrize(
    ("credit", "num_combinations"), [("leave_one_out", 1), ("difference", 1), ("causal", 1), ("difference", 2), ("causal", 2)]
)
def test_comparing_with_the_other_batch_elements_leaves_it_exact(credit, num_combinations, num_trajectories):
    """Two batch elements, each compared with the other or mixed with it: every pair of what can happen to both."""
    algorithm = PGPSE(NUM_AGENTS, num_trajectories, batch_size=2, credit=credit, num_combinations=num_combinations)
    check_unbiased((*FROM_ONE_STATE, 1), 2, False, algorithm)


@pytest.mark.parametrize("num_trajectories", [1, 2])
@pytest.mark.parametrize("credit", ["difference", "causal"])
def test_it_is_exact_in_a_world_of_three_states(credit, num_trajectories):
    check_unbiased(THREE_STATES, 1, True, PGPSE(NUM_AGENTS, num_trajectories, batch_size=1, credit=credit))


@pytest.mark.parametrize("objective", list(OBJECTIVES)[1:], ids=["own", "trajectory", "own+3*skills", "renyi"])
@pytest.mark.parametrize(("credit", "num_trajectories"), [("difference", 1), ("causal", 2)])
def test_the_gradient_of_every_objective_is_exact(credit, num_trajectories, objective):
    algorithm = PGPSE(NUM_AGENTS, num_trajectories, batch_size=1, credit=credit, objective=objective)
    check_unbiased((*FROM_ONE_STATE, HORIZON), 1, False, algorithm)


def test_independent_agents_follow_the_gradient_of_their_own_entropy():
    world = from_kernel(*TWO_STATES[:2], horizon=2)
    algorithm = PGPSE(2, 3, batch_size=7, credit="causal", is_independent=True)
    state = init(algorithm, jax.random.key(0), world)
    batch = sample(algorithm, jax.random.key(1), world, state)
    together = gradient(algorithm, world, state.team, batch).logits
    for agent in range(2):
        own = jax.tree.map(lambda leaf, i=agent: leaf[:, i : i + 1], batch)
        team = jax.tree.map(lambda leaf, i=agent: leaf[i : i + 1], state.team)
        alone = gradient(PGPSE(1, 3, batch_size=7, credit="causal"), world, team, own).logits[0]
        np.testing.assert_allclose(together[agent], alone, atol=1e-7)


def test_a_second_step_with_the_same_batch_has_clipped_importance_weights():
    world = from_kernel(*TWO_STATES[:2], horizon=2)
    plain = PGPSE(2, batch_size=10, learning_rate=9.0, credit="causal")
    twice = PGPSE(2, batch_size=10, learning_rate=9.0, credit="causal", steps_per_batch=2, clip=0.1)
    state = init(plain, jax.random.key(0), world)
    states, actions, *_ = batch = sample(plain, jax.random.key(1), world, state)
    between = learn(plain, world, state, batch).team
    agents = np.arange(2)[:, None, None]

    def chosen(team):
        return np.asarray(team.probabilities)[agents, np.asarray(states[..., :-1]), np.asarray(actions)]

    ratio = chosen(between) / chosen(state.team)
    weights = np.asarray(eqx.filter_jit(PGPSE.weights)(plain, world, states, state.team))
    is_used = np.where(weights > 0, ratio <= 1.1, ratio >= 0.9)
    assert 0 < is_used.mean() < 1
    step = jax.jit(jax.vmap(TabularSoftmax.score, (0, 1, 1, 1)))(
        between, states[..., :-1], actions, jnp.asarray(weights * ratio * is_used, jnp.float32)
    )
    after = learn(twice, world, init(twice, jax.random.key(0), world), batch)
    np.testing.assert_allclose(after.team.logits, between.logits + 9.0 * step.logits, atol=2e-5)
    assert int(after.num_updates) == 1


def test_the_bonus_is_the_gradient_of_the_mean_policy_entropy():
    world = from_kernel(*TWO_STATES[:2], horizon=2)
    plain, bonus = PGPSE(2, batch_size=6), PGPSE(2, batch_size=6, entropy_bonus=0.7, bonus_decay=0.5)
    state = init(bonus, jax.random.key(0), world)._replace(num_updates=jnp.int32(3))
    batch = sample(plain, jax.random.key(1), world, state)
    difference = learn(bonus, world, state, batch).team.logits - learn(plain, world, state, batch).team.logits

    def mean_entropy(logits):
        log_probabilities = jax.nn.log_softmax(logits)
        entropy = -jnp.sum(jnp.exp(log_probabilities) * log_probabilities, axis=-1)
        return jnp.mean(entropy[jnp.arange(2).reshape(1, 2, 1, 1), batch.states[..., :-1]])

    expected = 0.15 * 0.7 * 0.5**3 * jax.jit(jax.grad(mean_entropy))(state.team.logits)
    np.testing.assert_allclose(difference, expected, atol=1e-7)


def test_a_batch_averages_its_elements():
    world = from_kernel(KERNEL, START, horizon=HORIZON)
    algorithm = PGPSE(NUM_AGENTS, 2, batch_size=8)
    state = init(algorithm, jax.random.key(0), world)
    trajectories = sample(algorithm, jax.random.key(1), world, state)
    whole = gradient(algorithm, world, state.team, trajectories).logits
    parts = [
        gradient(algorithm, world, state.team, jax.tree.map(lambda leaf, b=b: leaf[b : b + 1], trajectories)).logits
        for b in range(8)
    ]
    np.testing.assert_allclose(whole, np.mean(parts, axis=0), atol=1e-6)


def test_the_single_agent_sums_the_scores_of_its_trajectories():
    world = from_kernel(KERNEL, START, horizon=HORIZON)
    team = PGPSE(3, 1, batch_size=5)
    state = init(team, jax.random.key(0), world)
    same = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), state.team)
    trajectories = sample(team, jax.random.key(1), world, state._replace(team=same))
    pooled = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 1, 2), trajectories)
    single = gradient(PGPSE(1, 3, batch_size=5), world, jax.tree.map(lambda leaf: leaf[:1], same), pooled).logits[0]
    np.testing.assert_allclose(single, gradient(team, world, same, trajectories).logits.sum(axis=0), atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "factors"), [({}, (1, 1)), ({"decay": 0.5}, (1, 0.5))], ids=["constant", "decayed after each update"]
)
def test_gradient_ascent_takes_the_learning_rate_times_the_gradient(settings, factors):
    world = from_kernel(KERNEL, START, horizon=HORIZON)
    algorithm = PGPSE(2, learning_rate=0.3, **settings)
    state = init(algorithm, jax.random.key(0), world)
    for number, factor in enumerate(factors):
        trajectories = sample(algorithm, jax.random.key(number), world, state)
        after = learn(algorithm, world, state, trajectories)
        step = 0.3 * factor * gradient(algorithm, world, state.team, trajectories).logits
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
    state = init(algorithm, jax.random.key(0), world)
    trajectories = sample(algorithm, jax.random.key(1), world, state)
    after = learn(algorithm, world, state, trajectories)
    sign = np.sign(gradient(algorithm, world, state.team, trajectories).logits)
    np.testing.assert_allclose(after.team.logits - state.team.logits, 0.02 * sign, rtol=1e-3)


def test_the_mean_over_trajectories_is_the_sum_divided_by_their_number():
    world = from_kernel(*THREE_STATES)
    config = Explore("maze-det", agents=4, single=True, preset="paper", batch_size=6)
    summed, averaged = (pgpse(dataclasses.replace(config, over_trajectories=name), world) for name in ("sum", "mean"))
    assert (summed.trajectory_weight, averaged.trajectory_weight) == (1.0, 1 / 4)
    state = init(summed, jax.random.key(0), world)
    trajectories = sample(summed, jax.random.key(1), world, state)
    whole, part = (gradient(each, world, state.team, trajectories).logits for each in (summed, averaged))
    np.testing.assert_allclose(part, whole / 4, rtol=1e-3, atol=1e-5)
    stepped = learn(averaged, world, state, trajectories).team.logits
    np.testing.assert_allclose(stepped - state.team.logits, 0.15 * part, rtol=1e-3, atol=1e-5)
    team = dataclasses.replace(config, single=False, over_trajectories="mean")
    assert pgpse(team, world).trajectory_weight == 1.0  # one trajectory per agent


@pytest.mark.parametrize("is_time_dependent", [False, True])
@pytest.mark.parametrize("credit", ["total", "causal"])
def test_the_gradient_of_the_mixtures_trajectory_entropy_is_exact(credit, is_time_dependent):
    times = (HORIZON,) if is_time_dependent else ()
    logits = np.random.default_rng(1).normal(size=(NUM_AGENTS, *times, 2, NUM_ACTIONS))
    trajectories = all_trajectories(*TWO_STATES)
    played = trajectories[0] @ 2 ** np.arange(HORIZON + 1)

    def entropy(logits):
        mixture = sum(probabilities(agent, *trajectories) for agent in logits) / NUM_AGENTS
        of_states = np.array([mixture[played == number].sum() for number in range(2 ** (HORIZON + 1))])
        return -np.sum(of_states * np.log(of_states))

    expected = np.zeros(logits.shape)
    for entry in np.ndindex(logits.shape):
        moved = logits.astype(complex)
        moved[entry] += 1e-20j
        expected[entry] = entropy(moved).imag / 1e-20
    world, team = (
        from_kernel(KERNEL, START, horizon=HORIZON),
        TabularSoftmax(jnp.asarray(logits, jnp.float32), is_time_dependent),
    )
    algorithm = PGPSE(NUM_AGENTS, batch_size=1, credit=credit, objective=named_objective("trajectory"))
    index = joint(len(played), 1)[:, None]
    probability = probability_of(logits, index[:, 0], trajectories)
    batches = Trajectories(*(jnp.asarray(each[index], jnp.int32) for each in trajectories[:2]))
    found = jax.jit(jax.vmap(lambda batch: algorithm.gradient(world, team, batch).logits))(batches)
    np.testing.assert_allclose(np.tensordot(probability, np.asarray(found, np.float64), axes=1), expected, atol=1e-6)
    values = jax.jit(jax.vmap(jax.vmap(named_objective("trajectory")(world, team).value)))(batches.states)
    assert probability @ np.asarray(values, np.float64)[:, 0] == pytest.approx(entropy(logits), abs=1e-6)
