import csv
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from farflung import FrankWolfe, gridworld, infinite_trials_optimum, make_tabular_world, play
from farflung.algorithms.frank_wolfe import best_response, solve
from farflung.bounds import theorems as theory
from farflung.bounds.flows import flows_of
from farflung.cli import main
from farflung.config import PAPER_WORLDS, FrankWolfeRun
from farflung.numerics.arrays import count_by_index
from farflung.studies.frank_wolfe.experiment import frank_wolfe

plan_for = jax.jit(best_response)
iterate = eqx.filter_jit(FrankWolfe.iterate)


def last(*arguments, **settings):
    *_, found = solve(*arguments, **settings)
    return found


@pytest.mark.parametrize("name", PAPER_WORLDS)
def test_the_gap_falls_below_a_thousandth_of_a_nat(name):
    world = make_tabular_world(name)
    found = last(FrankWolfe(4), world)
    assert found.gap < 1e-3
    exact = infinite_trials_optimum(world)
    assert exact.value - 1e-3 <= found.bound <= exact.bound + 1e-3
    assert stats.entropy(np.asarray(found.mixture)) <= exact.bound + 1e-5


def test_plans_are_the_best_and_agree_with_double_precision():
    world = make_tabular_world("room-stoc")
    prices = np.random.default_rng(0).normal(size=world.num_states)
    value, visits = flows_of(world).best_response(prices)
    plan = plan_for(world, jnp.asarray(prices, jnp.float32))
    np.testing.assert_allclose(plan.occupancies * (world.horizon + 1), visits, atol=1e-4)
    assert float(plan.occupancies @ prices) * (world.horizon + 1) == pytest.approx(value, abs=1e-4)


@pytest.mark.parametrize("is_in_turn", [True, False])
def test_the_team_has_the_visits_of_its_mixtures(is_in_turn):
    world = make_tabular_world("maze-stoc")
    found = last(FrankWolfe(3, is_in_turn=is_in_turn, step_size=0.2), world, num_iterations=40)
    exact = jax.jit(jax.vmap(world.occupancy))(found.team.probabilities)
    np.testing.assert_allclose(exact, found.mixtures.occupancies, atol=2e-5)
    states = play(jr.key(0), found.team, world, 1, 20_000).states[0]
    sampled = jax.vmap(count_by_index, (0, None))(states, world.num_states) / states[0].size
    np.testing.assert_allclose(sampled, found.mixtures.occupancies, atol=0.01)


def test_a_mixture_is_the_average_of_its_policies():
    world, step_size = gridworld("S..\n...", horizon=3, slip=0.1), 0.3
    algorithm = FrankWolfe(1, step_size=step_size, is_in_turn=False)
    is_reachable = jnp.ones(world.num_states, bool)
    mixtures, expected = algorithm.init(world), None
    for _ in range(4):
        occupancy = mixtures.occupancies[0]
        plan = plan_for(world, -1 - jnp.log(occupancy))
        expected = (1 - step_size) * occupancy + step_size * plan.occupancies
        mixtures, entropy, gap = iterate(algorithm, jr.key(0), world, is_reachable, mixtures)
        np.testing.assert_allclose(mixtures.occupancies[0], expected, atol=1e-6)
        assert float(entropy) == pytest.approx(stats.entropy(np.asarray(occupancy)), abs=1e-5)
        by_hand = (-1 - jnp.log(occupancy)) @ (plan.occupancies - occupancy)
        assert float(gap) == pytest.approx(float(by_hand), abs=1e-5)


def test_the_gap_certifies_the_optimum_at_every_iteration():
    world = make_tabular_world("maze-stoc")
    optimum = infinite_trials_optimum(world, tolerance=1e-4)
    found = last(FrankWolfe(2, step_size=0.1), world, num_iterations=300)
    assert (found.entropies + found.gaps >= optimum.value - 1e-5).all()


@pytest.mark.bits  # it computes for longer than it compiles
def test_more_agents_help_if_they_plan_in_turn_but_not_if_they_plan_the_same():
    convergence = frank_wolfe(FrankWolfeRun("maze-stoc", compare=(1, 16), compare_iterations=600, iterations=50))
    together, in_turn = convergence.comparison["together"], convergence.comparison["in-turn"]
    np.testing.assert_allclose(together.floors, together.floors[0], rtol=1e-3)
    assert together.verdict == "the gap does not fall with N"
    assert in_turn.exponent == pytest.approx(-1, abs=0.2)
    assert in_turn.verdict == "the gap falls with 1/N"
    np.testing.assert_allclose(convergence.comparison["alone"].floors, in_turn.floors, rtol=0.3)  # per plan, nothing is gained
    assert convergence.comparison["estimated"].exponent == pytest.approx(-0.5, abs=0.25)


def test_the_number_of_iterations_is_as_requested():
    world = make_tabular_world("maze-stoc")
    algorithm, is_reachable = FrankWolfe(1, step_size=0.2), jnp.ones(43, bool)
    found = last(algorithm, world, num_iterations=3, tolerance=1e-9)
    mixtures = algorithm.init(world)
    for index in range(3):
        mixtures, *_ = iterate(algorithm, jr.fold_in(jr.key(0), index), world, is_reachable, mixtures)
    np.testing.assert_allclose(found.mixtures.occupancies, mixtures.occupancies, atol=1e-6)
    assert len(found.gaps) == 3
    assert found.gap == pytest.approx(found.bound - stats.entropy(np.asarray(found.mixture)), abs=1e-5)


def test_the_line_search_finds_the_top():
    world = make_tabular_world("maze-stoc")
    algorithm, is_reachable = FrankWolfe(1, is_in_turn=False), jnp.ones(43, bool)
    before = algorithm.init(world)
    after, *_ = iterate(algorithm, jr.key(0), world, is_reachable, before)
    plan = plan_for(world, -1 - jnp.log(before.occupancies[0]))
    shares = np.linspace(0, 1, 2001)[:, None]
    points = (1 - shares) * np.asarray(before.occupancies[0]) + shares * np.asarray(plan.occupancies)
    assert stats.entropy(np.asarray(after.occupancies[0])) == pytest.approx(stats.entropy(points, axis=1).max(), abs=1e-5)


def test_sampled_oracles_meet_their_tolerances():
    world = make_tabular_world("maze-stoc")
    algorithm = FrankWolfe(2, smoothing=0.01, step_size=0.05, density_tolerance=0.05, planning_tolerance=0.2)
    found = last(algorithm, world, num_iterations=100)
    exact = last(FrankWolfe(2, smoothing=0.01, step_size=0.05), world, num_iterations=100)
    assert not np.array_equal(found.gaps, exact.gaps)
    assert found.entropies[-1] == pytest.approx(exact.entropies[-1], abs=0.2)
    needed = theory.density_samples(43, 0.05)
    assert 2 * 43 * np.exp(-2 * needed * 0.05**2) <= 0.05
    sizes = (43, 4, 10, theory.SmoothedEntropy(0.01).price_range)
    needed = theory.planning_samples(*sizes, 0.2)
    assert 2 * 10 * sizes[-1] * np.sqrt(np.log(2 * 43 * 4 * 10 / 0.05) / (2 * needed)) <= 0.2


def test_the_theorem_sets_step_size_iterations_and_tolerances():
    objective = theory.SmoothedEntropy(0.2)
    settings = {"theorem": 1.0, "smoothing": 0.2, "tolerance": 1e-6, "agents": 8, "compare": ()}
    config = FrankWolfeRun("room-det", **settings)
    assert config.density_tolerance == pytest.approx(0.1 * 1.0 / objective.smoothness)
    assert config.planning_tolerance == pytest.approx(0.1 * 1.0)
    convergence = frank_wolfe(FrankWolfeRun("room-det", **settings, density_tolerance=0.0, planning_tolerance=0.0))
    assert convergence.algorithm.step_size == theory.frank_wolfe_step_size(43, 8, 1.0, objective)
    assert len(convergence.found.gaps) == theory.frank_wolfe_iterations(43, 8, 1.0, objective)
    assert convergence.found.gaps[-1] < 1.0


def test_the_command_writes_numbers_policies_and_a_figure(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    quick = ["--iterations", "30", "--compare", "1", "2", "--compare-iterations", "30"]
    assert main(["frank-wolfe", "room-det", "--agents", "2", *quick, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    folder = tmp_path / "frank-wolfe"
    assert summary == json.loads((folder / "summary.json").read_text())
    assert summary["bound"] >= summary["entropy"]
    with (folder / "gaps.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 30
    assert np.load(folder / "policies.npz")["logits"].shape == (2, 8, 43, 4)
    assert (folder / "convergence.png").stat().st_size > 10_000
    assert main(["frank-wolfe", "room-det", "--agents", "2", *quick[:2], "--compare", "--out", "again"]) == 0
    assert "no policies have more than" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--theorem", "0.1"], "--theorem needs a smooth entropy"),
        (["--plan", "alone"], "unknown plan 'alone'"),
        (["--density-tolerance", "0.1"], "need a smoothing above 0"),
        (["--step-size", "2"], "step-size must be above 0 and at most 1"),
        (["--compare-step", "2"], "compare-step must be above 0 and at most 1"),
        (["--compare", "4", "4"], "must differ from one another"),
        (["--seed", "99999999999999999999"], "a seed is a whole number"),
        (["--theorem", "0.1", "--smoothing", "-1"], "smoothing must be at least 0"),
        (["--smoothing", "0.001", "--density-tolerance", "1e-5"], "takes 37,250,397,850 trajectories"),
        (["--smoothing", "-1"], "smoothing must be at least 0"),
        (["--tolerance", "0"], "tolerance must be a positive number"),
        (["--agents", "0"], "agents must be at least 1"),
    ],
)
def test_mistakes_are_one_line(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["frank-wolfe", "room-det", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())
