"""Objectives beside the entropy of states: their values and gains against computations of their own, and their ceilings."""

import importlib
import itertools
import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import farflung
from farflung import (
    Objective,
    TabularSoftmax,
    Utility,
    ceiling,
    from_kernel,
    infinite_trials_optimum,
    make_tabular_world,
    plug_in,
)
from farflung.algorithms.diayn import DIAYN, Discriminator, told_apart
from farflung.bounds.flows import flows_of
from farflung.bounds.trajectories import (
    largest_trajectory_entropy,
    mixture_trajectory_entropy,
    trajectory_distributions,
    trajectory_entropy,
)
from farflung.config import Concentration, Explore
from farflung.config.options import OBJECTIVES as NAMES
from farflung.config.options import objective_terms
from farflung.entropy import trajectories
from farflung.entropy.counts import ragged_plug_in
from farflung.entropy.named import OBJECTIVES, named_objective
from farflung.entropy.nearest import nearest_neighbours
from farflung.entropy.trajectories import nearest_trajectories, of_trajectories
from farflung.policies import Networks
from farflung.runs.run import read_config, write_header
from farflung.studies.concentration.experiment import measure_concentration, over_trajectories
from farflung.studies.objectives import measure_team

KERNEL = np.array([[[0.7, 0.3, 0], [0, 0.1, 0.9]], [[0.4, 0, 0.6], [0.8, 0.2, 0]], [[0, 0.5, 0.5], [0.3, 0.3, 0.4]]])
WORLD = from_kernel(KERNEL, [0.8, 0.2, 0.0], horizon=3)
GENERATOR = np.random.default_rng(0)
TEAM = GENERATOR.dirichlet([1, 1], size=(2, 3, 3))  # [agent, time, state, action]
SHANNON = Utility(lambda shares: -jnp.sum(shares * jnp.log(jnp.where(shares > 0, shares, 1.0))))


def every_trajectory(policy):
    """The probability of each trajectory of states of one policy, by the product of the probabilities of its steps."""
    moves = np.einsum("tsa,san->tsn", policy, KERNEL)
    start = np.array([0.8, 0.2, 0.0])
    return np.einsum("a,ab,bc,cd->abcd", start, *moves).ravel()


@pytest.mark.parametrize("most_tabulated", [trajectories._MOST_TABULATED, 0])  # in small and in large worlds
@pytest.mark.parametrize("times", [slice(None), slice(1)])  # for each time a policy, or one for all
def test_a_mixtures_surprisals_are_those_of_all_its_trajectories(monkeypatch, most_tabulated, times):
    monkeypatch.setattr(trajectories, "_MOST_TABULATED", most_tabulated)
    policies = np.broadcast_to(TEAM[:, times], TEAM.shape)
    chances = np.mean([every_trajectory(policy) for policy in policies], axis=0)
    played = np.array(list(itertools.product(range(3), repeat=4)))[chances > 0].reshape(2, -1, 4)
    logits = jnp.log(TEAM if times.stop is None else TEAM[:, 0])
    mixture = trajectories.of_mixture(WORLD, TabularSoftmax(logits, is_time_dependent=times.stop is None))
    surprisals = -np.log(chances[chances > 0])
    assert float(mixture.value(jnp.asarray(played))) == pytest.approx(surprisals.mean(), rel=1e-5)
    np.testing.assert_allclose(
        mixture.gains(jnp.asarray(played)).sum(axis=-1).ravel(), surprisals / played[..., 0].size, rtol=1e-4
    )


def test_every_name_has_its_objective():
    assert tuple(OBJECTIVES) == NAMES


@pytest.mark.parametrize("text", ["", "entropy", "own+own", "own-skills", "0*own", "own+2skills", "-1*own", "own+"])
def test_what_is_no_objective_is_refused(text):
    with pytest.raises(ValueError, match="objective must be"):
        objective_terms(text)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective": "skills", "single": True}, "needs at least 2 policies"),
        ({"objective": "own+skills", "agents": 1}, "needs at least 2 policies"),
        ({"objective": "trajectory", "agents": 1}, "needs at least 2 trajectories"),
        ({"objective": "trajectory", "independent": True}, "leave out --objective"),
    ],
)
def test_an_objective_that_a_team_cannot_have_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Explore("room-det", **settings)


def test_own_and_skills_are_the_two_parts_of_the_state_entropy():
    states = jnp.asarray(GENERATOR.integers(0, 3, (3, 2, 5)))
    parts = [named_objective(name)(WORLD, None) for name in ("own", "skills", "own+skills")]
    own, skills, both = (float(part.value(states)) for part in parts)
    by_agent = np.stack([np.bincount(each.ravel(), minlength=3) for each in np.asarray(states)]) / 10
    assert own == pytest.approx(stats.entropy(by_agent, axis=1).mean(), abs=1e-6)
    assert skills == pytest.approx(stats.entropy(by_agent, by_agent.mean(axis=0)[None], axis=1).mean(), abs=1e-6)
    assert both == pytest.approx(float(plug_in(3).value(states)), abs=1e-6)


def test_trajectories_that_were_played_are_counted_as_wholes():
    states = np.array([[[0, 1, 2], [0, 1, 0]], [[0, 1, 2], [0, 2, 2]]])
    assert float(of_trajectories().value(jnp.asarray(states))) == pytest.approx(stats.entropy([2, 1, 1]))
    gains = np.asarray(of_trajectories().gains(jnp.asarray(states)))
    h = lambda count: -count / 4 * np.log(max(count, 1) / 4)  # noqa: E731
    added = lambda num_equal: h(num_equal) - h(num_equal - 1)  # noqa: E731
    np.testing.assert_allclose(gains[0, 0], np.diff([0, added(4), added(3), added(2)]), atol=1e-6)
    np.testing.assert_allclose(gains[1, 1], np.diff([0, added(4), added(1), added(1)]), atol=1e-6)


@pytest.fixture(scope="module")
def walks():
    return jnp.asarray(GENERATOR.normal(size=(3, 2, 9, 2)), jnp.float32)


SCALE, ANGLES = (2.0, 0.5), (1,)
WALKED = Objective(*map(jax.jit, nearest_trajectories(2, scale=SCALE, angles=ANGLES)[:2]))


def test_a_trajectory_of_vectors_is_one_point_of_its_four_moments(walks):
    points = np.asarray(walks).reshape(6, 9, 2)[:, [2, 4, 6, 8]].reshape(6, 1, 1, 8)
    expected = nearest_neighbours(2, scale=SCALE * 4, angles=(1, 3, 5, 7)).value(jnp.asarray(points))
    assert float(WALKED.value(walks)) == pytest.approx(float(expected), rel=1e-5)


def test_the_gain_of_a_trajectory_of_vectors_is_a_difference_of_values(walks):
    gains = np.asarray(WALKED.gains(walks)).reshape(6, 9)
    np.testing.assert_allclose(gains.sum(axis=1), float(WALKED.value(walks)), rtol=1e-4)
    features = np.asarray(walks, np.float64).reshape(6, 9, 2)[:, [2, 4, 6, 8]] / SCALE
    angle = features[..., 1] * SCALE[1]
    places = np.stack([features[..., 0], np.cos(angle) / SCALE[1], np.sin(angle) / SCALE[1]], axis=-1)
    apart = np.sum((places[:, None] - places[None]) ** 2, axis=-1)  # [one, other, moment]
    constant = float(nearest_neighbours(2, scale=SCALE * 4).value(jnp.zeros((6, 1, 1, 8)))) - 4 * np.log(1e-6)
    for own in range(6):
        reached = []
        for known in range(1, 5):
            squared = apart.sum(axis=-1)
            squared[own] = squared[:, own] = apart[own, :, :known].sum(axis=-1) * 4 / known
            np.fill_diagonal(squared, np.inf)
            reached.append(constant + 4 * np.log(np.sort(squared, axis=1)[:, 1]).mean())
        np.testing.assert_allclose(gains[own, [2, 4, 6, 8]], np.diff(reached, prepend=0), rtol=1e-3, atol=1e-4)


def test_an_ended_trajectory_of_vectors_stays_where_it_ended(walks):
    ended, stayed = np.array(walks), np.array(walks)
    ended[1, 0, 5:], stayed[1, 0, 5:] = np.nan, stayed[1, 0, 4]
    np.testing.assert_array_equal(WALKED.gains(jnp.asarray(ended)), WALKED.gains(jnp.asarray(stayed)))


@pytest.mark.parametrize("may_end", [False, True])
def test_the_gains_of_a_utility_are_those_of_the_same_entropy(may_end):
    states = GENERATOR.integers(0, 3, (2, 2, 4))
    if may_end:
        states[0, 1, 2:] = 3
    expected, found = ragged_plug_in(3), SHANNON(WORLD)
    assert float(found.value(jnp.asarray(states))) == pytest.approx(float(expected.value(jnp.asarray(states))), abs=1e-6)
    np.testing.assert_allclose(found.gains(jnp.asarray(states)), expected.gains(jnp.asarray(states)), atol=1e-6)


def test_a_utility_of_features_sees_their_mean():
    features = np.array([[1.0, 0.0], [0.5, 2.0], [0.0, -1.0]])
    found = Utility(lambda mean: -jnp.sum(mean**2), features)(WORLD)
    states = np.array([[[0, 1, 2]], [[2, 2, 1]]])
    assert float(found.value(jnp.asarray(states))) == pytest.approx(-np.sum(features[states].mean(axis=(0, 1, 2)) ** 2))
    gains = np.asarray(found.gains(jnp.asarray(states)))[1, 0]
    seen = [features[[0, 1, 2, *[2, 2, 1][:number]]].mean(axis=0) for number in range(4)]
    np.testing.assert_allclose(gains, np.diff([-np.sum(mean**2) for mean in seen]), atol=1e-6)
    with pytest.raises(ValueError, match="3 rows"):
        Utility(jnp.sum, np.ones((2, 2)))(WORLD)


def test_a_utility_of_vectors_is_one_of_grid_cells_or_of_own_features():
    world = farflung.make_vector_world("point-gap")
    states = jnp.asarray(GENERATOR.uniform(-1, 1, (2, 1, 5, 2)), jnp.float32).at[1, 0, 3:].set(jnp.nan)
    cells = ragged_plug_in(world.projection.num_cells)
    expected = float(cells.value(world.projection.cells(states)))
    assert float(SHANNON(world).value(states)) == pytest.approx(expected, abs=1e-5)
    mean = Utility(lambda mean: mean[0], lambda observation: observation[..., :1])(world)
    assert float(mean.value(states)) == pytest.approx(float(np.nanmean(np.asarray(states)[..., 0])), abs=1e-6)


def test_the_entropy_of_one_policys_trajectories_is_that_of_all_of_them():
    for policy in TEAM:
        assert trajectory_entropy(WORLD, policy) == pytest.approx(stats.entropy(every_trajectory(policy)), abs=1e-6)


def test_the_entropy_of_a_mixtures_trajectories_is_exact_or_has_a_true_error(monkeypatch):
    mixture = np.mean([every_trajectory(policy) for policy in TEAM], axis=0)
    exact = mixture_trajectory_entropy(WORLD, TEAM)
    assert (exact.value, exact.standard_error) == (pytest.approx(stats.entropy(mixture), abs=1e-6), 0.0)
    found = trajectory_distributions(WORLD, TEAM)
    np.testing.assert_allclose(np.sort(found.mean(axis=0)), np.sort(mixture[mixture > 0]), atol=1e-7)
    monkeypatch.setattr("farflung.bounds.trajectories.trajectory_distributions", lambda *_: None)
    sampled = [mixture_trajectory_entropy(WORLD, TEAM, num_samples=500, seed=seed) for seed in range(40)]
    values, errors = np.array(sampled).T
    assert abs(values.mean() - exact.value) < 5 * errors.mean() / np.sqrt(40)
    assert values.std() == pytest.approx(errors.mean(), rel=0.4)


def test_there_is_no_exact_distribution_of_too_many_trajectories():
    assert trajectory_distributions(WORLD, TEAM, most=5) is None


def test_the_largest_trajectory_entropy_is_above_all_others_and_reached():
    found = largest_trajectory_entropy(WORLD)
    assert 0 <= found.bound - found.value < 1e-6
    others = GENERATOR.dirichlet([0.5, 0.5], size=(300, 3, 3))
    assert max(trajectory_entropy(WORLD, policy) for policy in others) <= found.bound
    moved = found.policy.copy()
    moved[0, 0] += [0.01, -0.01]
    assert trajectory_entropy(WORLD, moved) < found.value


def test_in_a_deterministic_world_it_is_the_log_of_the_number_of_trajectories():
    world = make_tabular_world("room-det", horizon=4)
    successors = np.asarray(world.successors)[..., 0]
    ways = np.ones(world.num_states)
    for _ in range(4):
        ways = np.array([sum(ways[state] for state in set(row)) for row in successors.tolist()])
    assert largest_trajectory_entropy(world).bound == pytest.approx(np.log(ways[int(world.start_states[0])]))


def test_the_ceiling_of_a_utility_is_the_optimum_for_infinitely_many_samples():
    world = make_tabular_world("room-det", horizon=4)
    found = ceiling(world, 2, objective=SHANNON, tolerance=0.01)
    expected = infinite_trials_optimum(world, tolerance=0.01)
    assert expected.value <= found.bound <= found.value + 0.01 + 1e-9
    assert found.value <= expected.bound


def test_the_ceiling_of_a_utility_of_features_is_found():
    distance = jnp.asarray(np.arange(43) % 2, jnp.float32)[:, None]
    found = ceiling(make_tabular_world("room-det"), 2, objective=Utility(lambda mean: -jnp.sum((mean - 0.3) ** 2), distance))
    assert found.bound == pytest.approx(0, abs=1e-3)
    assert found.bound >= -1e-9


def test_the_ceiling_of_skills_is_that_of_the_information_in_each_state():
    flows = flows_of(WORLD)
    reach = np.count_nonzero(flows.is_within_reach, axis=1)
    assert reach.tolist() == [2, 3, 3, 3]
    found = ceiling(WORLD, 2, objective="skills").bound
    assert found == pytest.approx(np.log(2))
    walks = np.array(np.meshgrid(*[np.flatnonzero(row) for row in flows.is_within_reach])).reshape(4, -1).T
    pairs = np.array([[[first], [second]] for first in walks for second in walks])
    values = jax.jit(jax.vmap(named_objective("skills")(WORLD, None).value))(jnp.asarray(pairs))
    assert float(values.max()) <= found + 1e-6


def test_the_ceiling_of_a_sum_uses_what_the_parts_have_in_common():
    of = partial(ceiling, "room-det", 2)
    own, state, skills = (of(objective=name).bound for name in ("own", "state", "skills"))
    assert of(objective="own+skills").bound == pytest.approx(min(state, own + skills))
    assert of(objective="2*own+skills").bound == pytest.approx(min(state + own, 2 * own + skills))
    assert of(objective="3*trajectory").bound == pytest.approx(3 * of(objective="trajectory").bound)
    with pytest.raises(ValueError, match="leave it out"):
        of(objective="skills", method="lp")


@pytest.mark.parametrize("objective", ["trajectory", SHANNON])
def test_a_team_learns_an_objective_and_stays_below_its_ceiling(objective, tmp_path):
    out = tmp_path / "run"
    about = {"agents": 2, "updates": 20, "batch_size": 8, "seeds": (0, 1), "horizon": 6, "log_every": 1}
    run = farflung.explore("room-det", objective=objective, out=out, **about)
    metric = run.metrics.objective
    assert metric[:, -3:].mean() > metric[:, :3].mean()
    summary = farflung.load_run(out).summary["objective"]
    assert summary["name"] == run.config.objective
    np.testing.assert_allclose(summary["below_bound"], summary["bound"] - np.array(run.summary["final"]["objective"]))
    # A sampled surprisal may exceed the largest entropy; the others are bounded one by one.
    assert objective == "trajectory" or (metric <= summary["bound"] + 1e-5).all()
    assert (out / "figure.png").exists()


def test_a_discriminators_reward_is_a_lower_bound_of_the_diversity_and_equal_to_it_at_best():
    states = GENERATOR.integers(0, 3, (2, 4, 5))
    joint = np.stack([np.bincount(own.ravel(), minlength=3) for own in states]) / 40
    posterior = joint / joint.sum(axis=0)
    information = float(named_objective("skills")(WORLD, None).value(jnp.asarray(states)))
    for odds, is_best in ((posterior, True), (GENERATOR.dirichlet([1, 1], size=3).T, False)):
        table = Discriminator((jnp.asarray(np.log(np.maximum(odds.T, 1e-9)), jnp.float32),), (), ())
        judged = told_apart(WORLD, table)
        value = float(judged.value(jnp.asarray(states)))
        assert value == pytest.approx(np.sum(joint * np.log(np.maximum(odds, 1e-9))) + np.log(2), abs=1e-5)
        assert value == pytest.approx(information, abs=1e-5) if is_best else value < information
        assert float(judged.gains(jnp.asarray(states)).sum()) == pytest.approx(value, abs=1e-5)


def test_a_discriminator_learns_to_tell_apart_what_differs():
    world = farflung.make_vector_world("point-gap")
    algorithm = DIAYN(farflung.PGPSE(2, batch_size=8, credit="causal", optimizer="adam", networks=Networks()), steps=200)
    state = jax.jit(lambda key: algorithm.init(key, world))(jax.random.key(0))
    states = jnp.asarray(GENERATOR.uniform(-1, 1, (8, 2, 1, 5, 2)), jnp.float32)
    states = states.at[:, 0, ..., 0].set(-jnp.abs(states[:, 0, ..., 0])).at[:, 1, ..., 0].set(jnp.abs(states[:, 1, ..., 0]))
    learned, _ = jax.jit(algorithm.teach)(world, state, states)
    before, after = (float(told_apart(world, each).value(states[0])) for each in (state.discriminator, learned))
    assert after > 0.5 > before


@pytest.mark.parametrize("settings", [{"single": True}, {"objective": "skills"}, {"independent": True}])
def test_diayn_has_its_own_objective(settings):
    with pytest.raises(ValueError, match="diayn has its own objective"):
        Explore("room-det", algorithm="diayn", **settings)


def test_skills_are_measured_by_episodes_that_did_not_choose_them():
    world = make_tabular_world("room-det", horizon=4)
    logits = np.full((2, 43, 4), -50.0)
    logits[0, :, 0] = logits[1, :, 2] = 50.0  # one agent always goes left, and the other right
    found = measure_team(world, TabularSoftmax(jnp.asarray(logits, jnp.float32), False), 4)
    walks = [[int(world.start_states[0])], [int(world.start_states[0])]]
    for walk, action in zip(walks, (0, 2), strict=True):
        for _ in range(4):
            walk.append(int(world.successors[walk[-1], action, 0]))
    assert found["coverage"] == len({*walks[0], *walks[1]}) == 9
    assert found["told_apart"] == pytest.approx((5 + 4) / 10)  # all but one of the two visits to the start
    assert found["goals_reached"] == pytest.approx(9 / 43)
    assert found["diversity"] == pytest.approx(0.8 * np.log(2), abs=1e-6)
    assert found["trajectory_entropy"] == pytest.approx(np.log(2), abs=1e-6)


def test_theorem_4_1_is_simulated_on_trajectories():
    world = make_tabular_world("room-det", horizon=2)
    policies = GENERATOR.dirichlet([1, 1, 1, 1], size=(1, 2, 43))
    distributions = over_trajectories(world, policies)
    np.testing.assert_allclose(distributions.sum(axis=-1), 1)
    expected = mixture_trajectory_entropy(world, policies[0]).value
    assert stats.entropy(distributions[0].mean(axis=0)) == pytest.approx(expected)
    config = Concentration(
        "room-det", agents=2, objective="trajectory", epsilons=(0.5,), draws=50, most_samples=100, seeds=(0,)
    )
    assert measure_concentration(config, distributions, distributions[:, :1]).num_violations == 0
    with pytest.raises(ValueError, match="choose a shorter horizon"):
        over_trajectories(make_tabular_world("room-det"), policies)


def test_runs_from_before_objectives_had_their_name_are_read():
    config = Explore("room-det", objective="custom:mine")
    header = json.loads(write_header(config, "0.1"))
    header["config"]["entropy"] = header["config"].pop("objective")
    del header["checksum"]
    assert read_config(header) == config


def test_the_examples_are_what_they_say(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "examples")
    examples, world = importlib.import_module("own_objectives"), make_tabular_world("room-det")
    states = np.array([[[0, 0, 1, 42]]])
    values = [float(each(world).value(jnp.asarray(states))) for each in (examples.towards_target, examples.renyi)]
    shares, target = np.array([0.5, 0.25, 0.25]), np.array([1, 2, 43]) / 946
    assert values == pytest.approx(
        [-stats.entropy(shares, target) + np.log(target.sum()), 2 * np.log(np.sqrt(shares).sum())], abs=1e-5
    )
    weighted = float(examples.weighted_states(world).value(jnp.asarray(states)))
    assert weighted == pytest.approx(-np.sum(np.array([3, 3, 1]) * shares * np.log(shares)), abs=1e-5)


SQUARES = Utility(lambda shares: jnp.sum(jnp.arange(1, shares.size + 1) * (shares - shares**2)), is_separable=True)


def test_the_ceiling_of_a_separable_utility_is_that_of_the_best_walks():
    world = farflung.gridworld("S..\n.#.", horizon=3)
    walks = [list(walk) for walk in _walks(world, int(world.start_states[0]), 3)]
    best = max(float(SQUARES(world).value(jnp.array([[first], [second]]))) for first in walks for second in walks)
    found = farflung.ceiling(world, agents=2, objective=SQUARES)
    assert (found.exact, found.method) == (True, "milp")
    assert found.bound == pytest.approx(best, abs=1e-6)
    assert found.bound < farflung.ceiling(world, agents=2, objective=Utility(SQUARES.function)).bound  # of infinitely many


def _walks(world, state, steps):
    if steps == 0:
        return {(state,)}
    following = {int(each) for each in np.asarray(world.successors)[state].ravel()}
    return {(state, *rest) for after in following for rest in _walks(world, after, steps - 1)}


def test_the_ceiling_of_a_separable_utility_holds_and_is_the_entropys_for_the_entropy():
    entropy = Utility(SHANNON.function, is_separable=True)
    for world, method in ((make_tabular_world("room-det", horizon=4), "milp"), (WORLD, "lp")):
        found = farflung.ceiling(world, agents=2, objective=entropy)
        assert found.method == method
        assert found.bound == pytest.approx(farflung.ceiling(world, agents=2, method=method).bound, abs=1e-5)
