import dataclasses
import itertools
import json

import equinox as eqx
import gymnasium
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from tests.data.teams import make_run, make_vector_run

from farflung import Box, Discrete, collect, gridworld, learn_offline, relabel, tabular_mdp
from farflung.data import Source, rewards, vector_episodes
from farflung.data.networks import Experience, Learning, learn
from farflung.data.q_learning import QLearning, Transitions, q_values, values_from_rewards
from farflung.data.rewards import best_return
from farflung.data.sources import spec_to_json
from farflung.figures.reached import earned
from farflung.worlds.gridworld import MOVES


@pytest.fixture(scope="module")
def corridor():
    """Everything that one can do in a corridor, with a goal at its end."""
    return relabel(collect(make_run(world=gridworld("..S..", horizon=6)), 300), goal=(0, 4))


def test_a_policy_learnt_from_rewards_gets_them(corridor):
    told = []
    found = learn_offline(corridor, seeds=(0, 1), on_progress=lambda *numbers: told.append(numbers))
    assert (found.config.task, found.config.method, found.environment) == ("rewards", "q-learning", "farflung/Grid-v0")
    assert found.returns.shape == (2, 10)
    assert found.returns.min() == found.reference == 1
    assert 0 < found.random_returns.mean() < 1
    assert found.scores.tolist() == [1, 1]
    np.testing.assert_array_equal(found.data_returns, corridor.rewards.sum(axis=1))
    assert told[-1] == (3, 3)
    assert found.task_name == "goal 4 in farflung/Grid-v0"
    (axis,) = earned(found, "corridor").axes
    assert [label.get_text() for label in axis.get_xticklabels()] == ["seed 0", "seed 1", "dataset", "random"]


@pytest.mark.parametrize(
    "wrappers", [3, [{"name": "x", "entry_point": "farflung.worlds.as_gymnasium.tasks:PaidBy", "kwargs": {}}]]
)
def test_an_environment_that_cannot_be_made_is_one_line(corridor, wrappers):
    forged = json.dumps(json.loads(corridor.source.environment) | {"additional_wrappers": wrappers})
    with pytest.raises(ValueError, match="the dataset's environment cannot be"):
        learn_offline(dataclasses.replace(corridor, source=dataclasses.replace(corridor.source, environment=forged)))


def test_scores_are_normalised_between_random_actions_and_the_reference(corridor):
    found = learn_offline(corridor, seeds=(0,), batches=1, reference=3.0)
    random = found.random_returns.mean()
    assert found.scores[0] == pytest.approx((found.returns.mean() - random) / (3 - random))
    assert found._replace(reference=None).scores is None


def test_a_clone_takes_the_most_frequent_actions(corridor):
    right = MOVES.index((0, 1))
    walk = dataclasses.replace(
        corridor.rows(0, 1),
        observations=np.array([[2, 3, 4, 0, 0, 0, 0]]),
        actions=np.array([[right, right, 0, 0, 0, 0]]),
        rewards=np.array([[0.0, 1, 0, 0, 0, 0]], np.float32),
        lengths=np.array([2]),
        terminated=np.array([True]),
        truncated=np.array([False]),
    )
    assert learn_offline(walk, method="bc", seeds=(0,)).returns.min() == 1


def test_goals_are_still_learnt_if_asked_for(corridor):
    assert learn_offline(corridor, task="goals", batches=5, seeds=(0,)).goals.tolist() == [0, 1, 3, 4]


@pytest.mark.bits
def test_q_values_of_rewards_are_those_of_the_goal_that_pays_them():
    world, generator = gridworld("..S..", horizon=6), np.random.default_rng(0)
    states, actions = generator.integers(5, size=200), generator.integers(4, size=200)
    following = np.asarray(world.successors)[states, actions, 0]
    data = Transitions(*(jnp.asarray(each, jnp.int32) for each in (states, actions, following, 200)))
    noise, settings = jr.uniform(jr.key(0), (2000,)), QLearning()
    arrives = jnp.asarray(following == 4)
    found = values_from_rewards(noise, data, arrives.astype(jnp.float32), arrives, (5, 4), settings)
    np.testing.assert_array_equal(found, q_values(noise, world, data, jnp.int32(4), settings))


def test_the_best_return_is_that_of_the_best_of_all_policies():
    generator = np.random.default_rng(1)
    successors, pays = generator.integers(2, size=(2, 2, 2)), generator.normal(size=(2, 2, 2))
    chances = generator.dirichlet(np.ones(2), size=(2, 2))
    world = tabular_mdp(successors, chances, [0.3, 0.7], 3, rewards=pays)

    def value(policy, state, time):  # of one deterministic policy, by enumeration of all that may happen
        if time == 3:
            return 0.0
        action = policy[2 * time + state]
        return sum(
            chances[state, action, j] * (pays[state, action, j] + value(policy, successors[state, action, j], time + 1))
            for j in range(2)
        )

    best = max(0.3 * value(p, 0, 0) + 0.7 * value(p, 1, 0) for p in itertools.product((0, 1), repeat=6))
    assert best_return(world, 3) == pytest.approx(best, abs=1e-5)


@pytest.mark.parametrize("method", ["iql", "td3-bc", "bc"])
def test_vectors_with_the_best_reward_are_preferred_unless_cloned(method):
    generator = np.random.default_rng(0)
    seen, actions = generator.normal(size=(500, 1)), generator.uniform(-1, 1, (500, 1))
    pays = -((actions[:, 0] - 0.5) ** 2)
    columns = (seen, actions, seen, pays / pays.std(), np.ones(500, bool))
    data = Experience(*(jnp.asarray(each, bool if each.dtype == bool else jnp.float32) for each in columns))
    settings = Learning(method, 64, 0.01, sharpness=3.0, greed=20.0, width=16)
    networks = eqx.filter_jit(learn)(jr.key(0), data, lambda seen: seen, Box((-1.0,), (1.0,)), 300, settings)
    chosen = jnp.tanh(jnp.stack([networks.policy(jnp.array([place])) for place in (-1.0, 0.0, 1.0)]))
    np.testing.assert_allclose(chosen, 0.0 if method == "bc" else 0.5, atol=0.25)


@pytest.mark.parametrize("method", ["iql", "bc"])
def test_the_best_of_discrete_actions_is_preferred_unless_cloned(method):
    generator = np.random.default_rng(0)
    seen, actions = generator.normal(size=(500, 1)), generator.choice(3, p=[0.6, 0.2, 0.2], size=500)
    columns = (seen, seen, (actions == 2) * 1.0)
    before, after, pays = (jnp.asarray(each, jnp.float32) for each in columns)
    data = Experience(before, jnp.asarray(actions, jnp.int32), after, pays, jnp.ones(500, bool))
    settings = Learning(method, 64, 0.01, sharpness=3.0, width=16)
    networks = eqx.filter_jit(learn)(jr.key(0), data, lambda seen: seen, Discrete(3), 300, settings)
    assert int(jnp.argmax(networks.policy(jnp.array([0.3])))) == (0 if method == "bc" else 2)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(rewards, "_WIDTH", 8)


def poles():
    """CartPole by random actions."""
    environment = gymnasium.make("CartPole-v1", max_episode_steps=6)
    environment.action_space.seed(0)
    walks, actions = [], []
    for seed in range(4):
        walks.append([environment.reset(seed=seed)[0]])
        actions.append([int(environment.action_space.sample()) for _ in range(6)])
        walks[-1] += [environment.step(action)[0] for action in actions[-1]]
    source = Source(Box((-9.0,) * 4, (9.0,) * 4), 2, None, spec_to_json(environment.spec))
    return vector_episodes(
        np.array(walks, np.float32),
        np.array(actions),
        source,
        agents=np.zeros(4, int),
        lengths=np.full(4, 6),
        terminated=np.zeros(4, bool),
        rewards=np.ones((4, 6), np.float32),
    )


def test_an_environment_of_others_is_learnt_from_its_rewards(small):
    found = learn_offline(poles(), batches=2, attempts=2, seeds=(0,))
    assert found.config.method == "iql"
    assert found.returns.tolist() == [[6, 6]]  # too short to fall
    assert found.reference is None  # the threshold is for episodes of another length
    assert learn_offline(poles(), method="bc", batches=1, attempts=1, seeds=(0,)).returns.shape == (1, 1)
    with pytest.raises(ValueError, match="td3-bc needs actions that are vectors"):
        learn_offline(poles(), method="td3-bc")


def upright(states, actions, after):
    return after[:, 0] - 0.1 * actions[:, 0] ** 2


def test_a_policy_is_tested_in_an_environment_whose_class_is_registered(small, monkeypatch):
    data = poles()
    gymnasium.register("OwnPole-v0", CartPoleEnv, max_episode_steps=6)
    monkeypatch.setitem(gymnasium.registry, "OwnPole-v0", gymnasium.registry.pop("OwnPole-v0"))  # removed after the test
    own = spec_to_json(gymnasium.spec("OwnPole-v0"))
    found = learn_offline(
        dataclasses.replace(data, source=dataclasses.replace(data.source, environment=own)), batches=2, attempts=2, seeds=(0,)
    )
    assert found.environment == "OwnPole-v0"
    assert found.returns.tolist() == [[6, 6]]  # no pole falls in six steps
    other = json.dumps(json.loads(own) | {"entry_point": "os:abort"})
    with pytest.raises(ValueError, match="the environment OwnPole-v0 is not known here"):
        learn_offline(dataclasses.replace(data, source=dataclasses.replace(data.source, environment=other)), seeds=(0,))


def test_a_reward_function_can_be_given(small):
    data = collect(make_vector_run("pendulum", horizon=3, seeds=(0,)), 2)
    found = learn_offline(data, reward=upright, method="td3-bc", batches=2, attempts=1, seeds=(0,))
    assert found.task == f"{__name__}:upright"
    assert found.environment == "Pendulum-v1"
    assert np.abs(found.returns).max() < 5  # at most about 1 in each of three steps
    with pytest.raises(ValueError, match=r"the rewards are from .*:upright: name the function again, with --reward .*:upright"):
        learn_offline(relabel(data, reward=upright))
    with pytest.raises(ValueError, match=r"Python cannot import .*<lambda>: define it in a module of its own"):
        learn_offline(data, reward=lambda states, actions, after: after[:, 0])


def test_data_that_cannot_be_learnt_from_is_refused(corridor):
    without = collect(make_run("room-det"), 3)
    for data, options, message in (
        (without, {"task": "rewards"}, "the dataset has no rewards"),
        (corridor, {"goals": 4}, "goals is for the task goals"),
        (without, {"reference": 1.0}, "reference is for the task rewards"),
        (corridor, {"method": "iql"}, "rewards are learnt by q-learning or bc, not by iql"),
        (poles(), {"method": "q-learning"}, "learnt by iql or td3-bc or bc"),
        (without, {"method": "bc"}, "goals are learnt by q-learning, not by bc"),
        (corridor, {"reward": "nothing"}, "reward is the MODULE:NAME of a function"),
        (dataclasses.replace(corridor, source=Source(5, 4)), {}, "no environment in which a policy could be tested"),
    ):
        with pytest.raises(ValueError, match=message):
            learn_offline(data, seeds=(0,), **options)
    unknown = corridor.source.environment.replace("farflung/Grid-v0", "Unknown-v0")
    elsewhere = dataclasses.replace(corridor, source=dataclasses.replace(corridor.source, environment=unknown))
    with pytest.raises(ValueError, match="the environment Unknown-v0 is not known here"):
        learn_offline(elsewhere, seeds=(0,))


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        (10**30, "its max_episode_steps must be .*: give --max-steps"),
        (0, "cannot be made: Expect the `max_episode_steps` to be positive, actually: 0"),
        ("many", "cannot be made: Expect the `max_episode_steps` to be an integer"),
    ],
)
def test_a_dataset_cannot_ask_for_tests_without_end(corridor, limit, message):
    spec = json.loads(corridor.source.environment) | {"max_episode_steps": limit}
    endless = dataclasses.replace(corridor, source=dataclasses.replace(corridor.source, environment=json.dumps(spec)))
    with pytest.raises(ValueError, match=message):
        learn_offline(endless, seeds=(0,), batches=1)
