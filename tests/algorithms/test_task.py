"""Tasks against plain loops and enumeration, and learning from them."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import farflung
from farflung import ActorCritic, Networks, TabularSoftmax, play, train
from farflung.algorithms.actor_critic import TableCritic
from farflung.algorithms.task import Goal, Guided, OwnReward, reward_function
from farflung.policies import neural_team
from farflung.policies.rollout import Trajectories
from farflung.worlds.named_vectors import make_vector_world

GAP = make_vector_world("point-gap", horizon=6)
MAZE = farflung.make_tabular_world("maze-stoc", horizon=6)


def chain(horizon=3):
    """Two states and two actions: action 1 changes the state with probability 0.8, action 0 with 0.3."""
    kernel = np.array([[[0.7, 0.3], [0.2, 0.8]], [[0.7, 0.3], [0.2, 0.8]]])
    kernel[1] = kernel[1, :, ::-1]
    return farflung.from_kernel(kernel, np.array([1.0, 0.0]), horizon=horizon)


def earned_by_loops(states, goal):
    """The rewards and the steps that count, episode by episode."""
    rewards = np.zeros((*states.shape[:-1], states.shape[-1] - 1))
    is_part = np.zeros(rewards.shape, bool)
    for index in np.ndindex(states.shape[:-1]):
        for time, after in enumerate(states[index][1:]):
            is_part[index][time] = True
            if after == goal:
                rewards[index][time] = 1
                break
    return rewards, is_part


def test_a_goal_pays_once_and_ends_the_episode():
    team = farflung.uniform_team(MAZE, 2)
    played = play(jax.random.key(0), team, MAZE, 5, 3)
    states = np.asarray(played.states)
    goal = int(states[0, 0, 0, 3])
    paid = Goal(np.asarray(goal, np.int32)).paid(MAZE, team, played)
    rewards, is_part = earned_by_loops(states, goal)
    np.testing.assert_array_equal(paid.rewards, rewards)
    np.testing.assert_array_equal(paid.is_part, is_part)
    np.testing.assert_array_equal(paid.is_end, rewards == 1)


def test_functions_of_numpy_and_of_jax_pay_alike_also_under_compilation():
    team = neural_team(jax.random.key(0), GAP, 2)
    played = play(jax.random.key(1), team, GAP, 3, 1)

    def in_numpy(before, actions, after):
        return np.where(np.hypot(*after.T) > 0.55, 1.0, 0.0) + np.asarray(actions)[:, 0]

    def in_jax(before, actions, after):
        return jnp.where(jnp.hypot(*after.T) > 0.55, 1.0, 0.0) + actions[:, 0]

    one, other = reward_function(in_numpy, GAP), reward_function(in_jax, GAP)
    assert (one.is_traceable, other.is_traceable) == (False, True)
    found = [eqx.filter_jit(type(task).paid)(task, GAP, team, played).rewards for task in (one, other)]
    np.testing.assert_allclose(*found, rtol=1e-6)
    after = np.asarray(played.states)[..., 1:, :]
    expected = (np.hypot(*np.moveaxis(after, -1, 0)) > 0.55) + np.tanh(np.asarray(played.actions)[..., 0])
    np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-6)


def test_the_rewards_of_a_table_are_those_of_its_environment():
    world = farflung.make_tabular_world("FrozenLake-v1", horizon=12)
    team = farflung.uniform_team(world, 1)
    played = play(jax.random.key(2), team, world, 40, 1)
    paid = OwnReward().paid(world, team, played)
    goals, holes = (set(np.asarray(world.ends[kind]).tolist()) for kind in "Gx")
    states = np.asarray(played.states)[:, 0, 0]
    for row, episode in enumerate(states):
        ends = [time for time, state in enumerate(episode) if state in goals | holes]
        length = ends[0] if ends else 12
        assert np.asarray(paid.is_part)[row, 0, 0].sum() == length
        assert float(paid.returns[row, 0, 0]) == float(bool(ends) and episode[ends[0]] in goals)


def test_the_first_gradient_is_that_of_the_expected_return():
    """With the critic at zero, no discount and one step of gradient ascent, against an enumeration of all trajectories."""
    world = chain()
    logits = jnp.array([[[0.3, -0.2], [0.1, 0.4]]])
    task = Goal(np.asarray(1, np.int32))
    algorithm = ActorCritic(
        1, batch_size=60_000, networks=None, optimizer="sgd", learning_rate=1.0, discount=1.0, trace=1.0, steps_per_batch=1,
        num_minibatches=1, task=task, initial=TabularSoftmax(logits),
    )  # fmt: skip
    state = algorithm.init(jax.random.key(0), world)
    played = play(jax.random.key(1), state.team, world, 60_000, 1)
    steps = algorithm.experience(world, state, played)
    learned = eqx.filter_jit(ActorCritic.learn)(algorithm, world, state, played)
    rewards, is_part = earned_by_loops(np.asarray(played.states), 1)
    to_go = np.cumsum(rewards[..., ::-1], axis=-1)[..., ::-1]  # the advantage before it is standardised: the critic is zero
    assert np.asarray(steps.returns).reshape(to_go.shape) == pytest.approx(np.where(is_part, to_go, 0), abs=1e-6)
    scale = to_go[is_part].std() * is_part.sum() / 60_000

    probabilities = np.asarray(world.probabilities)
    chance = np.zeros((2, 2, 2))
    for state_, action, place in itertools.product(range(2), repeat=3):
        chance[state_, action, int(world.successors[state_, action, place])] += probabilities[state_, action, place]

    def expected_return(logits):
        policy, here, total = jax.nn.softmax(logits), jnp.array([1.0, 0.0]), 0.0
        for _ in range(world.horizon):
            after = jnp.einsum("s,sa,sab->b", here, policy, chance)
            total, here = total + after[1], after.at[1].set(0.0)  # whoever arrives has been paid
        return total

    # The mean is subtracted from the advantages, which changes the estimate's variance, not its mean.
    expected = jax.grad(expected_return)(logits[0]) / scale
    assert np.asarray(learned.team.logits - logits)[0] == pytest.approx(np.asarray(expected), abs=0.02)


def test_tables_of_each_time_learn_in_the_rows_of_their_times():
    world = chain()
    tables = TabularSoftmax(jnp.zeros((1, 3, 2, 2)), is_time_dependent=True)
    algorithm = ActorCritic(1, batch_size=4, networks=None, task=Goal(np.asarray(1, np.int32)), initial=tables)
    state = algorithm.init(jax.random.key(0), world)
    assert isinstance(state.critic, TableCritic)
    played = Trajectories(jnp.array([[[[0, 0, 1, 1]]]] * 4), jnp.array([[[[0, 1, 0]]]] * 4))
    steps = algorithm.experience(world, state, played)
    np.testing.assert_array_equal(steps.seen[0, :3], [0, 2, 5])
    np.testing.assert_array_equal(steps.is_real[0, :3], [True, True, False])
    learned = algorithm.learn(world, state, played)
    has_moved = np.asarray(learned.team.logits != 0).any(axis=-1)[0]
    np.testing.assert_array_equal(has_moved[2], [False, False])


def test_a_goal_is_learned_from_scratch_by_tables_and_by_networks_and_many_goals_share_a_program():
    goals = (5, 7)
    algorithms = [
        ActorCritic(1, batch_size=32, networks=None, learning_rate=0.1, task=Goal(np.asarray(goal, np.int32))) for goal in goals
    ]
    world = farflung.gridworld("........\n....S...", horizon=8)
    *_, last = train(algorithms, world, seeds=(0, 1), num_updates=60)
    for row, goal in enumerate(goals):
        team = jax.tree.map(lambda leaf, row=row: leaf[row], last.team)
        paid = algorithms[row].task.paid(world, team, play(jax.random.key(0), team, world, 50, 1))
        assert float(paid.returns.mean()) > 0.9, goal


def test_a_guide_takes_fewer_and_fewer_actions_and_is_not_learned_from():
    down = neural_team(jax.random.key(0), GAP, 1, Networks((4,)))
    algorithm = ActorCritic(
        1, batch_size=3, networks=Networks((4,)), task=Goal(np.zeros(2, np.float32), 0.1), guide=down, guide_steps=4.0,
        guide_updates=2.0,
    )  # fmt: skip
    state = algorithm.init(jax.random.key(1), GAP)
    for number, led in ((0, 4), (1, 2), (2, 0), (3, 0)):
        now = state._replace(num_updates=jnp.int32(number))
        players = algorithm.players(GAP, now)
        assert isinstance(players, Guided)
        played, by_guide, alone = (play(jax.random.key(2), team, GAP, 3, 1) for team in (players, down, now.team))
        np.testing.assert_array_equal(played.actions[:, :, :, :led], by_guide.actions[:, :, :, :led])
        if led == 0:
            np.testing.assert_allclose(played.actions, alone.actions, rtol=1e-5)
        is_real = np.asarray(algorithm.experience(GAP, now, played).is_real).reshape(3, 6)
        np.testing.assert_array_equal(is_real, np.broadcast_to(np.arange(6) >= led, (3, 6)))


def test_curiosity_shrinks_where_one_has_been():
    algorithm = ActorCritic(1, batch_size=16, networks=None, learning_rate=0.05, task=Goal(np.asarray(0, np.int32)),
                            curiosity=0.1)  # fmt: skip
    world = farflung.gridworld("........\n....S...", horizon=8)
    *_, last = train(algorithm, world, seeds=(0,), num_updates=30)
    curiosity = jax.tree.map(lambda leaf: leaf[0], last.arrays.state.curiosity)
    first = algorithm.init(jax.random.key(0), world).curiosity
    start = int(world.start_states[0])
    near = [int(state) for state in np.asarray(world.successors)[start].ravel()]
    assert float(curiosity(jnp.array(near)).mean()) < 0.3 * float(first(jnp.array(near)).mean())


def test_intrinsic_rewards_are_the_gains_among_all_episodes_of_a_batch():
    algorithm = ActorCritic(1, batch_size=5, networks=None, task=Goal(np.asarray(-1, np.int32)), intrinsic=0.5)
    state = algorithm.init(jax.random.key(0), MAZE)
    batch = play(jax.random.key(1), state.team, MAZE, 5, 1)
    gains = np.asarray(MAZE.entropy.gains(jnp.asarray(np.asarray(batch.states)[:, 0, 0])[None]))[0, :, 1:]
    expected = 0.5 * (gains - gains.mean()) / gains.std()
    found = algorithm._intrinsic(MAZE, state, batch.states, jnp.ones((5, 1, 1, 6), bool))
    np.testing.assert_allclose(np.asarray(found)[:, 0, 0], expected, atol=1e-5)


def test_both_intrinsic_rewards_add_up_and_decay_together():
    def bonus(**weights):
        algorithm = ActorCritic(1, batch_size=5, networks=None, task=Goal(np.asarray(-1, np.int32)), bonus_decay=0.5, **weights)
        state = algorithm.init(jax.random.key(0), MAZE)
        batch = play(jax.random.key(1), state.team, MAZE, 5, 1)
        late = state._replace(num_updates=jnp.int32(2))
        return np.asarray(algorithm._intrinsic(MAZE, late, batch.states, jnp.ones((5, 1, 1, 6), bool)))

    of_gains, of_news = bonus(intrinsic=0.5), bonus(curiosity=0.3)
    assert of_news.std() == pytest.approx(0.3 * 0.25, rel=1e-4)
    np.testing.assert_allclose(bonus(intrinsic=0.5, curiosity=0.3), of_gains + of_news, atol=1e-6)
    np.testing.assert_allclose(bonus(intrinsic=0.5, curiosity=0.0), of_gains, atol=1e-7)
