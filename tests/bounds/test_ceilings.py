import itertools
import json

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from scipy import stats

from farflung import (
    PGPSE,
    ceiling,
    from_kernel,
    gridworld,
    infinite_trials_optimum,
    make_tabular_world,
    make_vector_world,
    play,
    softmax_team,
    train,
)
from farflung.bounds import programs
from farflung.bounds.climb import MixtureEntropy, TeamEntropy
from farflung.bounds.flows import flows_of
from farflung.cli import main
from farflung.figures.ceilings import best_team

FACTS = {
    ("room-det", "milp"): (0.7480, 0.8709, 0.9427),
    ("maze-det", "milp"): (0.7883, 0.9045, 0.9366),
    ("maze-det", "lp"): (0.8051, 0.9169, 0.9491),
}


@pytest.mark.parametrize(("name", "method"), FACTS)
def test_the_papers_worlds_have_the_known_ceilings(name, method):
    found = [ceiling(make_tabular_world(name), agents, method=method) for agents in (2, 4, 6)]
    assert tuple(round(each.normalized_bound, 4) for each in found) == FACTS[name, method]
    assert all(each.exact == (method == "milp") for each in found)


@st.composite
def small_maps(draw):
    cells = draw(st.lists(st.sampled_from("#."), min_size=3, max_size=6))
    width = draw(st.sampled_from([1, 2, 3]))
    cells += "#" * (-len(cells) % width)
    start = draw(st.integers(0, len(cells) - 1))
    cells[start] = "S"
    rows = ["".join(cells[i : i + width]) for i in range(0, len(cells), width)]
    return "\n".join(rows)


def small_world(text, horizon, slip=0.0):
    try:
        return gridworld(text, horizon=horizon, slip=slip)
    except ValueError:  # only the start can be reached
        reject()


def walks(world):
    successors = np.asarray(world.successors)[..., 0]
    for actions in itertools.product(range(world.num_actions), repeat=world.horizon):
        states = [int(world.start_states[0])]
        for action in actions:
            states.append(int(successors[states[-1], action]))
        yield tuple(states)


def entropy(states):
    return stats.entropy(np.unique(states, return_counts=True)[1])


@settings(max_examples=60, deadline=None)
@given(small_maps(), st.integers(1, 3), st.integers(1, 2))
def test_the_exact_ceiling_is_the_best_of_all_teams_of_walks(text, horizon, agents):
    world = small_world(text, horizon)
    best = max(entropy(team) for team in itertools.combinations_with_replacement(set(walks(world)), agents))
    found = ceiling(world, agents)
    assert (found.exact, found.method) == (True, "milp")
    assert found.bound == pytest.approx(best, abs=1e-6)
    assert found.trajectories.shape == (agents, world.horizon + 1)
    assert entropy(found.trajectories) == pytest.approx(best, abs=1e-6)
    assert set(map(tuple, found.trajectories.tolist())) <= set(walks(world))
    np.testing.assert_allclose(np.bincount(found.trajectories.ravel(), minlength=world.num_states), found.visits, atol=1e-6)
    for method in ("lp", "frank-wolfe"):
        assert ceiling(world, agents, method=method, tolerance=0.02).bound >= best - 1e-9


@settings(max_examples=25, deadline=None)
@given(small_maps(), st.integers(1, 3), st.integers(1, 2), st.integers(0, 1000))
def test_no_simulated_team_exceeds_the_linear_program(text, horizon, agents, seed):
    world = small_world(text, horizon, slip=0.3)
    team = softmax_team(jr.key(seed), world, agents)
    states = np.asarray(play(jr.key(seed + 1), team, world, 2000, 1).states).reshape(2000, -1, 1)
    values = stats.entropy((states == np.arange(world.num_states)).mean(axis=1), axis=1)
    mean, error = values.mean(), values.std() / np.sqrt(len(values))
    exact, climbed = (ceiling(world, agents, method=method, tolerance=0.02) for method in ("lp", "frank-wolfe"))
    assert exact.bound == pytest.approx(exact.value, abs=1e-6)
    assert climbed.bound >= exact.value - 1e-9
    assert exact.bound >= mean - 4 * error


@pytest.mark.parametrize("name", ["maze-det", "room-stoc"])
def test_trained_teams_stay_below_and_come_near(name):
    world = make_tabular_world(name)
    *_, last = train(PGPSE(4, optimizer="adam", learning_rate=0.05), world, range(2), 1500)
    reached = last.metrics.entropy[:, -10:].mean()
    share = ceiling(world, 4).percentage(reached)
    assert 85 < share < 100


def test_the_linear_program_agrees_with_frank_wolfe_and_with_its_own_flow():
    world = make_tabular_world("room-stoc")
    exact, climbed = ceiling(world, 4, method="lp"), ceiling(world, 4, method="frank-wolfe", tolerance=2e-3)
    assert exact.value == pytest.approx(exact.bound, abs=1e-6)
    assert climbed.value <= exact.bound + 1e-9 <= climbed.bound + 2e-9
    assert climbed.bound - climbed.value < 2e-3 * 4
    assert exact.visits.sum() == pytest.approx(4 * 9)
    assert TeamEntropy(4 * 9, np.full(43, 36)).value(exact.visits) == pytest.approx(exact.value)


@pytest.mark.parametrize("slip", [0.0, 0.2])
def test_a_large_open_map_is_bounded_to_within_a_percent(slip):
    rows = ["S" + "." * 19, *["." * 20] * 19]
    found = ceiling(gridworld("\n".join(rows), horizon=40, slip=slip), 16, tolerance=0.01)
    assert found.method == "frank-wolfe"
    assert found.value <= found.bound <= found.value * 1.01
    assert found.bound == pytest.approx(5.8561 if slip == 0 else 5.7685, rel=0.01)  # HiGHS's interior point


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 30), st.lists(st.floats(-0.2, 1.0), min_size=3, max_size=3))
def test_conjugates_are_the_largest_margins(num_samples, prices):
    most = np.array([num_samples, num_samples // 2, 0])
    objective, prices = TeamEntropy(num_samples, most), np.array(prices)
    counts = np.arange(num_samples + 1)
    margins = objective.terms[None] - prices[:, None] * counts[None]
    margins = np.where(counts[None] <= most[:, None], margins, -np.inf)
    assert objective.conjugate(prices, np.zeros_like(prices)) == pytest.approx(margins.max(axis=1).sum())
    mixture = MixtureEntropy(num_samples, np.array([True, True, False]))
    shares = np.geomspace(1e-12, 20, 400_001)[None]
    margins = -shares * np.log(shares) - prices[:2, None] * num_samples * shares
    assert mixture.conjugate(prices, np.zeros_like(prices)) >= margins.max(axis=1).sum() - 1e-9
    if (prices[:2] * num_samples > -2).all():
        assert mixture.conjugate(prices, np.zeros_like(prices)) == pytest.approx(margins.max(axis=1).sum(), rel=1e-4, abs=1e-9)


def test_the_infinite_trials_optimum_is_certified():
    world = make_tabular_world("maze-stoc")
    found = infinite_trials_optimum(world, tolerance=1e-3)
    assert 0 <= found.bound - found.value <= 1e-3
    assert MixtureEntropy(world.horizon + 1, np.ones(43, bool)).value(found.visits) == pytest.approx(found.value)
    for seed in range(5):
        team = softmax_team(jr.key(seed), world, 6)
        mixture = jnp.mean(jax.vmap(world.occupancy)(team.probabilities), axis=0)
        assert stats.entropy(np.asarray(mixture)) < found.bound


def test_best_responses_are_the_best_of_all_policies():
    world = gridworld("S..\n.#.", horizon=3, slip=0.3)
    prices = np.random.default_rng(0).normal(size=world.num_states)
    value, visits = flows_of(world).best_response(prices)
    assert value == pytest.approx(prices @ visits)
    generator, visits_under = np.random.default_rng(1), jax.jit(lambda policy: world.occupancy(policy))
    for _ in range(200):
        policy = generator.dirichlet(np.full(4, 0.1), size=(world.horizon, world.num_states))
        assert prices @ np.asarray(visits_under(jnp.asarray(policy, jnp.float32))) * (world.horizon + 1) <= value + 1e-5


def test_the_best_bound_is_returned_when_time_runs_out():
    rows = ["S" + "." * 7, *["." * 8] * 7]
    world = gridworld("\n".join(rows), horizon=14)
    limited = ceiling(world, 3, method="frank-wolfe", time_limit=1e-6)
    assert limited.bound >= ceiling(world, 3, method="lp").bound - 1e-9
    cut = ceiling(world, 5, time_limit=0.05)
    assert not cut.exact
    assert cut.bound >= cut.value
    large = gridworld("\n".join(["S" + "." * 299, *["." * 300] * 299]), horizon=100)
    counted = ceiling(large, 6, time_limit=1.0)
    assert counted.method == "counting"
    assert counted.bound == pytest.approx(np.log(6 * 101))


def test_pooled_trajectories_count_as_further_agents():
    world = make_tabular_world("room-det")
    assert ceiling(world, 1, trajectories=4).bound == pytest.approx(ceiling(world, 4).bound)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"agents": 0}, "agents must be at least 1"),
        ({"agents": 2, "method": "simplex"}, "unknown method 'simplex'"),
        ({"agents": 2, "method": "milp"}, "needs a deterministic world"),
        ({"agents": 2, "time_limit": 0}, "time_limit must be a positive number"),
        ({"agents": 2, "tolerance": float("nan")}, "tolerance must be a positive number"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ceiling(make_tabular_world("maze-stoc"), **settings)


def test_a_program_that_does_not_fit_is_not_built(monkeypatch):
    monkeypatch.setattr("farflung.bounds.programs.build", None)
    monkeypatch.setattr(programs, "free_memory", lambda: 1000.0)
    with pytest.raises(ValueError, match=r"GiB are free: choose the method 'frank-wolfe'"):
        ceiling(make_tabular_world("maze-stoc"), 6, method="lp")


def test_the_free_memory_of_this_machine_is_known():
    assert 0 < programs.free_memory() < 2**50


def test_the_size_is_estimated_well_before_anything_is_built():
    for name in ("room-det", "maze-stoc"):
        flows = flows_of(make_tabular_world(name))
        built = programs.build(flows, 4).matrix.nnz
        assert built <= programs.num_nonzeros(flows, 4) <= 2.5 * built


def test_a_world_without_a_table_is_refused():
    world = make_vector_world("point-gap")
    for bound in (lambda world: ceiling(world, 2), infinite_trials_optimum):
        with pytest.raises(ValueError, match="needs a transition table"):
            bound(world)


@pytest.fixture
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_prints_json_and_draws_the_walks(in_an_empty_folder, capsys):
    assert main(["ceiling", "maze-det", "--agents", "2", "--json", "--out", "best"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["exact"], summary["method"]) == (True, "milp")
    assert summary["bound"] == pytest.approx(summary["normalized_bound"] * np.log(43))
    assert summary["infinite_trials"]["bound"] > summary["infinite_trials"]["value"]
    folder = in_an_empty_folder / "best"
    assert json.loads((folder / "ceiling.json").read_text()) == summary
    walks = np.loadtxt(folder / "walks.csv", delimiter=",", skiprows=1, dtype=int)
    assert entropy(walks[:, 2]) == pytest.approx(summary["bound"])
    visits = np.loadtxt(folder / "visits.csv", delimiter=",", skiprows=1)
    assert visits[:, 1].sum() == pytest.approx(2 * 11)
    assert (folder / "ceiling.png").stat().st_size > 10_000


def test_without_a_folder_nothing_is_written(in_an_empty_folder, capsys):
    assert main(["ceiling", "room-stoc", "--agents", "2", "--horizon", "4", "--slip", "0.5"]) == 0
    printed = capsys.readouterr().out
    assert "upper bound" in printed
    assert "horizon 4" in printed
    assert not list(in_an_empty_folder.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["maze-stoc", "--method", "milp"], "needs a deterministic world"),
        (["nowhere"], "unknown world 'nowhere'"),
        (["room-det", "--agents", "0"], "agents must be at least 1"),
        (["room-det", "--time-limit", "0"], "time-limit must be a positive number"),
        (["room-det", "--slip", "2"], "slip is a probability"),
    ],
)
def test_mistakes_are_one_line(arguments, message, in_an_empty_folder, capsys):
    assert main(["ceiling", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_worlds_without_a_map_are_drawn_as_bars():
    world = from_kernel(np.eye(3)[[1, 2, 0], None], [1.0, 0.0, 0.0], horizon=4)
    figure = best_team(world, ceiling(world, 2))
    assert figure.axes[0].get_ylabel() == "expected visits"
