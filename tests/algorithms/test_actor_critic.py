"""The actor-critic against plain loops, against PGPSE's gradient, and across breaks."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import farflung
from farflung import PGPSE, ActorCritic, Explore, Networks, play, train
from farflung.algorithms import actor_critic as module
from farflung.algorithms.chosen import UserParts, algorithm_for
from farflung.algorithms.optimizers import optimizer
from farflung.entropy.objective import Objective
from farflung.policies import log_probabilities, neural_team
from farflung.policies.rollout import Trajectories, acted_in
from farflung.worlds.named_vectors import make_vector_world

GAP = make_vector_world("point-gap", horizon=6)
SMALL = Networks((5,), is_normalizing=True)
ALGORITHM = ActorCritic(2, 2, batch_size=3, networks=SMALL, steps_per_batch=5, num_minibatches=3, entropy_bonus=0.01)
init, learn, experience = map(eqx.filter_jit, (ActorCritic.init, ActorCritic.learn, ActorCritic.experience))


class Falling(eqx.Module):
    """A point that falls faster or slower, and whose episode ends on the ground."""

    horizon: int = eqx.field(static=True, default=8)
    actions = farflung.Discrete(2)

    def reset(self, key):
        return jnp.array([0.0, 1.0]) + 0.3 * jax.random.uniform(key, (2,))

    def step(self, key, state, action):
        return state + jnp.array([0.1, -0.2]) * jnp.where(action == 1, 1.0, 0.5)

    def observe(self, state):
        return state

    def is_over(self, state):
        return state[1] < 0


@pytest.fixture(scope="module")
def falling():
    return farflung.from_jax(Falling())


def played(algorithm, world, seed=0):
    state = init(algorithm, jax.random.key(seed), world)
    return state, play(jax.random.key(seed + 1), state.team, world, algorithm.batch_size, algorithm.num_trajectories)


def by_agent(array):
    """[batch, agent, trajectory, time] as [agent, step]."""
    return np.moveaxis(np.asarray(array), 1, 0).reshape(array.shape[1], -1)


def test_advantages_are_those_of_a_plain_loop():
    generator = np.random.default_rng(0)
    rewards, values = generator.normal(size=(2, 3, 7)).astype(np.float32)
    lengths, discount, trace = (7, 4, 1), 0.9, 0.8
    has_acted = np.arange(7)[None] < np.array(lengths)[:, None]
    found = module.advantages_of(*map(jnp.asarray, (rewards, values, has_acted)), discount, trace)
    for row, length in enumerate(lengths):
        for start in range(7):
            expected = 0.0
            for time in range(start, length):
                following = values[row, time + 1] if time + 1 < length else 0.0
                surprise = rewards[row, time] + discount * following - values[row, time]
                expected += (discount * trace) ** (time - start) * surprise
            assert float(found[row, start]) == pytest.approx(expected, abs=1e-5)


def test_without_critic_and_discount_the_first_step_follows_the_causal_gradient():
    """The critic starts at zero; one step of gradient ascent with the whole batch is then PGPSE's, in other units."""
    world = GAP
    one = dataclasses.replace(
        ALGORITHM,
        optimizer="sgd",
        learning_rate=1.0,
        discount=1.0,
        trace=1.0,
        steps_per_batch=1,
        num_minibatches=1,
        entropy_bonus=0.0,
    )
    state, batch = played(one, world)
    gains = np.asarray(jax.jit(jax.vmap(world.entropy.gains))(batch.states))[..., 1:]
    to_go = np.cumsum(((gains - gains.mean()) / gains.std())[..., ::-1], axis=-1)[..., ::-1]
    weights = (to_go - to_go.mean()) / to_go.std()
    plain = PGPSE(2, 2, batch_size=3, networks=SMALL, credit=lambda entropy, states: jnp.asarray(weights))
    expected = eqx.filter_jit(PGPSE.gradient)(plain, world, state.team, batch)
    after = learn(one, world, state, batch).team
    steps = jax.tree.map(lambda new, old: (new - old) * to_go[0].size, after, state.team)
    for part in ("trunk", "head", "log_std"):
        jax.tree.map(
            lambda one, two: np.testing.assert_allclose(one, two, atol=2e-4), getattr(steps, part), getattr(expected, part)
        )
    # Centred over the batch, the sums of rewards are the weights of the credit causal, but for their unit.
    causal = np.asarray(PGPSE(2, 2, batch_size=3, credit="causal", networks=SMALL).weights(world, batch.states, state.team)) * 3
    others = (to_go.sum(axis=(0, 2), keepdims=True) - to_go.sum(axis=2, keepdims=True)) / 4
    np.testing.assert_allclose((to_go - others) * gains.std(), causal, atol=1e-5)


def test_a_critic_changes_advantages_but_not_what_follows_from_rewards():
    """With lambda 1, the critic is a baseline: the same for all actions in a state."""
    algorithm = dataclasses.replace(ALGORITHM, trace=1.0)
    state, batch = played(algorithm, GAP)
    wrong = eqx.tree_at(lambda critic: critic.layers[-1].bias, state.critic, jnp.array([2.5]))
    plain, based = (experience(algorithm, GAP, state._replace(critic=critic), batch) for critic in (state.critic, wrong))
    np.testing.assert_allclose(based.returns, plain.returns, atol=1e-5)  # advantage plus value: the discounted rewards


def test_steps_after_an_early_end_teach_nothing(falling):
    algorithm = dataclasses.replace(ALGORITHM, num_trajectories=3)
    state, batch = played(algorithm, falling)
    has_acted = np.isfinite(np.asarray(acted_in(batch))).all(axis=-1)
    assert 0 < has_acted.mean() < 1
    steps = experience(algorithm, falling, state, batch)
    is_over = ~by_agent(has_acted)
    assert (np.asarray(steps.advantages)[is_over] == 0).all()
    assert np.isfinite(np.asarray(steps.advantages)).all()
    real = np.asarray(steps.advantages)[~is_over]
    np.testing.assert_allclose((real.mean(), real.std()), (0, 1), atol=1e-5)
    gains = np.asarray(jax.jit(jax.vmap(falling.entropy.gains))(batch.states))[..., 1:]
    expected = np.where(has_acted, gains / gains[has_acted].std(), 0)  # not centred: that would reward or punish an early end
    found = eqx.filter_jit(ActorCritic.rewards)(algorithm, falling, state.team, batch.states, jnp.asarray(has_acted))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    after = learn(algorithm, falling, state, batch)
    noise = jnp.where(jnp.asarray(has_acted), batch.actions, 1 - batch.actions)  # actions that were never taken
    other = learn(algorithm, falling, state, Trajectories(batch.states, noise, batch.broken))
    jax.tree.map(np.testing.assert_array_equal, after.team, other.team)


def test_the_clipped_objective_is_ppos():
    """Two steps with the whole batch, against the objective written out in NumPy's terms and differentiated by JAX."""
    settings = {"optimizer": "sgd", "learning_rate": 3.0, "steps_per_batch": 1, "num_minibatches": 1, "clip": 0.02}
    one = dataclasses.replace(ALGORITHM, **settings, networks=SMALL._replace(is_normalizing=False), entropy_bonus=0.0)
    state, batch = played(one, GAP)
    steps = experience(one, GAP, state, batch)
    between = learn(one, GAP, state, batch).team
    after = learn(dataclasses.replace(one, steps_per_batch=2), GAP, state, batch).team
    acted, advantages = acted_in(batch), jnp.moveaxis(steps.advantages.reshape(2, 3, 2, 6), 0, 1)

    @eqx.filter_jit
    @eqx.filter_grad
    def objective(team):
        ratio = jnp.exp(log_probabilities(team, acted, batch.actions) - log_probabilities(state.team, acted, batch.actions))
        return jnp.mean(jnp.minimum(ratio * advantages, jnp.clip(ratio, 0.98, 1.02) * advantages))

    expected = jax.tree.map(lambda leaf, slope: leaf + 3.0 * slope, between, objective(between))
    jax.tree.map(lambda one, two: np.testing.assert_allclose(one, two, atol=1e-4), after, expected)


def test_every_step_of_a_batch_is_taken_once_in_an_epoch(monkeypatch):
    """With a step size of zero for all but the counter, the parts of an epoch are disjoint and complete."""
    state, batch = played(ALGORITHM, GAP)
    steps = experience(ALGORITHM, GAP, state, batch)
    seen = []

    def remember(self, latest, part, num_updates):
        jax.debug.callback(lambda times: seen.append(np.asarray(times)), part.returns)
        return latest

    monkeypatch.setattr(ActorCritic, "_step", remember)
    once = dataclasses.replace(ALGORITHM, steps_per_batch=3, learning_rate=0.5)
    jax.block_until_ready(jax.jit(lambda: once.learn(GAP, state, batch).num_updates)())
    jax.effects_barrier()
    assert [part.shape for part in seen] == [(2, 12)] * 3
    together, expected = np.concatenate(seen, axis=1), np.asarray(steps.returns)
    np.testing.assert_allclose(np.sort(together), np.sort(expected), atol=1e-5)
    assert not np.allclose(together, expected)  # in another order


def test_inputs_are_normalised_by_all_that_was_seen():
    state, first = played(ALGORITHM, GAP)
    between = learn(ALGORITHM, GAP, state, first)
    second = play(jax.random.key(5), between.team, GAP, 3, 2)
    after = learn(ALGORITHM, GAP, between, second).team
    seen = np.concatenate([np.asarray(each.states).reshape(-1, 2) for each in (first, second)])
    np.testing.assert_allclose(after.normalizer.mean, seen.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(after.normalizer.std, seen.std(axis=0), atol=1e-5)
    np.testing.assert_allclose(np.asarray(after.inputs(jnp.asarray(seen))).std(axis=0), 1, atol=1e-4)


@pytest.mark.parametrize("is_hosted", [False, True], ids=["discrete, with early ends", "hosted and continuous"])
def test_a_training_that_is_resumed_ends_bit_for_bit_as_without_a_break(is_hosted, falling):
    made = farflung.hosted("Pendulum-v1", horizon=5, features=(0, 1), bins=4) if is_hosted else falling
    algorithm = dataclasses.replace(ALGORITHM, num_trajectories=1)
    whole = list(train(algorithm, made, (3, 4), 4))[-1]
    part = [progress for progress in train(algorithm, made, (3, 4), 4, pause_at=(2,)) if progress.update == 2][-1]
    resumed = list(train(algorithm, made, (3, 4), 4, training_state=part.training_state))[-1]
    for one, other in zip(whole.training_state.leaves, resumed.training_state.leaves, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(whole.team.head.weight[0], whole.team.head.weight[1])  # seeds differ
    assert np.isfinite(np.asarray(whole.metrics.entropy)).all()


def test_a_team_that_shares_one_network_is_trained_saved_and_loaded(tmp_path):
    settings = {
        "agents": 2,
        "updates": 2,
        "batch_size": 3,
        "seeds": (0,),
        "hidden": (5,),
        "policy": "conditioned",
        "horizon": 6,
    }
    run = farflung.explore("point-gap", algorithm="actor-critic", **settings, out=tmp_path / "run")
    assert run.config.algorithm == "actor-critic"
    loaded = farflung.load_run(tmp_path / "run")
    assert loaded.config == run.config
    jax.tree.map(np.testing.assert_array_equal, loaded.policies, run.policies)
    team = loaded.team(0)
    first, second = (team.agent(number).act(jax.random.key(1), np.array([0.1, 0.2], np.float32)) for number in range(2))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("slows_own_parts", [True, False])
@pytest.mark.parametrize("kind", ["has_shared_trunk", "is_conditioned"])
def test_own_parts_beside_shared_ones_may_learn_more_slowly(kind, slows_own_parts):
    """Adam's first steps are all as long as the learning rate."""
    team = jax.jit(lambda key: neural_team(key, GAP, 4, SMALL._replace(**{kind: True})))(jax.random.key(0))
    adam = optimizer("adam", lambda count: jnp.float32(0.01), slows_own_parts=slows_own_parts)
    steps = jax.jit(lambda team: adam.update(jax.tree.map(jnp.ones_like, team), adam.init(team), team)[0])(team)
    own, shared = (steps.vector, steps.head) if kind == "is_conditioned" else (steps.head, steps.common.head)
    for part, expected in ((own, 0.005 if slows_own_parts else 0.01), (shared, 0.01), (steps.trunk, 0.01)):
        jax.tree.map(lambda leaf, size=expected: np.testing.assert_allclose(leaf, -size, rtol=1e-3), part)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"algorithm": "actor-critic", "credit": "total"}, "actor-critic has the credit causal"),
        ({"algorithm": "actor-critc"}, "did you mean 'actor-critic'"),
        ({"discount": 1.5}, "discount must be above 0 and at most 1"),
        ({"minibatches": 0}, "minibatches must be at least 1"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Explore("point-gap", **settings)


def test_networks_are_trained_by_the_actor_critic_unless_a_setting_is_for_pgpse():
    assert Explore("point-gap").algorithm == Explore("maze-det").resolved(has_vectors=True).algorithm == "actor-critic"
    for settings in ({"credit": "total"}, {"over_trajectories": "mean"}, {"preset": "paper"}):
        assert Explore("point-gap", **settings).algorithm == Explore("maze-det").algorithm == "pgpse"
    assert Explore("point-gap", algorithm="pgpse").learning_rate == 0.003
    config = Explore("point-gap", updates=50)
    assert config.decay**50 == pytest.approx(0.1)


def test_settings_for_another_algorithm_are_refused():
    config = Explore("Pendulum-v1", algorithm="actor-critic", discount=0.9).resolved(has_vectors=True)
    assert (config.policy, config.batch_size, config.entropy_bonus, config.bonus_decay) == ("neural", 8, 0.01, 1.0)
    assert (config.combinations, config.warm_up) == (4, 0.1)
    assert {Explore("point-gap", policy=policy).warm_up for policy in ("shared-trunk", "conditioned")} == {0}
    assert Explore("point-gap", batch_size=2).combinations == 2
    assert Explore("point-gap", independent=True).warm_up == Explore("point-gap", algorithm="pgpse").warm_up == 0
    assert dataclasses.replace(config, updates=8).discount == 0.9
    for policy in ("auto", "stationary"):
        with pytest.raises(ValueError, match="actor-critic trains networks, and maze-det has numbered states"):
            Explore("maze-det", algorithm="actor-critic", policy=policy).resolved(has_vectors=False)
    with pytest.raises(ValueError, match="discount are for the algorithm actor-critic"):
        Explore("maze-det", discount=0.9).resolved(has_vectors=False)


def test_the_entropy_may_be_the_users_own():
    twice = Objective(lambda states: 2 * GAP.entropy.value(states), lambda states: -GAP.entropy.gains(states))
    config = Explore("point-gap", algorithm="actor-critic", agents=2, trajectories=2, batch_size=3, hidden=(5,))
    plain, own = (algorithm_for(config, GAP, parts) for parts in (UserParts(), UserParts(objective=twice)))
    state, batch = played(plain, GAP)
    one, other = (experience(each, GAP, state, batch).advantages for each in (plain, own))
    np.testing.assert_allclose(one, -np.asarray(other), atol=1e-4)


def test_agents_that_share_a_network_act_by_their_vectors():
    team = neural_team(jax.random.key(0), GAP, 3, Networks((6, 4), is_conditioned=True, is_normalizing=True), scale=1.0)
    seen = jax.random.normal(jax.random.key(2), (2, 3, 1, 5, 2))
    team = eqx.tree_at(lambda team: team.normalizer.mean, team, jnp.array([0.3, -0.1]))
    one, alone = (log_probabilities(each, seen, seen) for each in (team, team.separate()))
    np.testing.assert_allclose(one, alone, atol=1e-4)
    assert team.num_agents == team.separate().num_agents == 3
    same = jnp.broadcast_to(seen[:, :1], seen.shape)
    assert len(np.unique(np.asarray(log_probabilities(team, same, same))[0, :, 0, 0])) == 3


WARM = ActorCritic(
    3, 1, 4, networks=SMALL, optimizer="sgd", learning_rate=0.1, init_scale=1.0, steps_per_batch=1, num_minibatches=1,
    warm_up_updates=2.0,
)  # fmt: skip
PARTED = jnp.int32(4)


def together(batch):
    """The trajectories of a team, played by one policy."""
    return jax.tree.map(lambda leaf: None if leaf is None else jnp.swapaxes(leaf, 1, 2), batch)


def steps_of(before, after):
    """How the weights of a team have changed, layer by layer."""
    return [np.asarray(new.weight - old.weight) for old, new in zip(before.trunk, after.trunk, strict=True)]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_agents_that_warm_up_take_the_step_of_one_policy(optimizer):
    warm = dataclasses.replace(WARM, optimizer=optimizer)
    state, batch = played(warm, GAP)
    one_policy = dataclasses.replace(warm, num_agents=1, num_trajectories=3, warm_up_updates=None)
    team = jax.tree.map(lambda leaf, axis: leaf if axis is None else leaf[:1], state.team, state.team.axes)
    alone = learn(one_policy, GAP, init(one_policy, jax.random.key(0), GAP)._replace(team=team), together(batch))
    of_team, of_one = steps_of(state.team, learn(warm, GAP, state, batch).team), steps_of(team, alone.team)
    for of_each, of_one_policy in zip(of_team, of_one, strict=True):
        assert np.abs(of_one_policy).max() > 1e-4
        np.testing.assert_allclose(of_each, np.broadcast_to(of_one_policy, of_each.shape), rtol=1e-2, atol=1e-5)


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_parted_agents_take_the_step_of_all_and_one_of_their_own(share):
    state, batch = played(WARM, GAP)
    learned = learn(dataclasses.replace(WARM, own_share=share), GAP, state._replace(num_updates=PARTED), batch)
    plain = dataclasses.replace(WARM, warm_up_updates=None)
    alone = learn(plain, GAP, init(plain, jax.random.key(0), GAP)._replace(team=state.team, num_updates=PARTED), batch)
    for of_team, own in zip(steps_of(state.team, learned.team), steps_of(state.team, alone.team), strict=True):
        assert np.ptp(own, axis=0).max() > 1e-5
        np.testing.assert_allclose(of_team, own.sum(axis=0) + share * own, atol=1e-6)


@pytest.mark.parametrize("kind", ["has_shared_trunk", "is_conditioned"])
def test_what_agents_own_beside_shared_parts_is_equal_until_they_part(kind):
    warm = dataclasses.replace(WARM, networks=SMALL._replace(**{kind: True}))
    state, batch = played(warm, GAP)
    for num_updates, is_equal in ((0, True), (2, True), (4, False)):
        team = learn(warm, GAP, state._replace(num_updates=jnp.int32(num_updates)), batch).team
        own = team.vector if kind == "is_conditioned" else team.head.weight
        assert (np.ptp(np.asarray(own), axis=0).max() == 0) == is_equal


def test_gains_of_several_combinations_are_the_mean_over_regrouped_teams():
    algorithm = dataclasses.replace(ALGORITHM, num_combinations=3)
    state, batch = played(algorithm, GAP)
    states = np.asarray(batch.states)
    num_elements, num_agents, num_trajectories = states.shape[:3]
    total = np.zeros((*states.shape[:3], states.shape[3] - 1))
    for shift in range(3):
        for element in range(num_elements):
            origin = {
                (agent, trajectory): (element + shift * (agent * num_trajectories + trajectory)) % num_elements
                for agent in range(num_agents)
                for trajectory in range(num_trajectories)
            }
            team = np.array(
                [[states[origin[agent, k], agent, k] for k in range(num_trajectories)] for agent in range(num_agents)]
            )
            gains = np.asarray(GAP.entropy.gains(jnp.asarray(team)))[..., 1:]
            for (agent, trajectory), source in origin.items():
                total[source, agent, trajectory] += gains[agent, trajectory] / 3
    found = algorithm.rewards(GAP, state.team, batch.states, jnp.ones(total.shape, bool))
    np.testing.assert_allclose(found, (total - total.mean()) / total.std(), atol=1e-4)


def test_warm_up_is_refused_where_it_has_no_effect():
    with pytest.raises(ValueError, match="independent agents learn from their own data"):
        Explore("point-gap", independent=True, warm_up=0.2)
    with pytest.raises(ValueError, match=r"warm_up must be at least 0 and at most 0.5, not 0.6"):
        Explore("point-gap", warm_up=0.6)
    assert algorithm_for(Explore("point-gap", warm_up=0.2, single=True), GAP).warm_up_updates is None
