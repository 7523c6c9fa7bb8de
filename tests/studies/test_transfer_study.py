"""The parts of the transfer study that need no training: goals, routes, curves, claims and the page."""

import numpy as np
import pytest

import farflung
from farflung.config import TransferStudy
from farflung.studies.transfer_study.experiment import (
    CORRIDORS,
    KINDS,
    Diversity,
    Learning,
    Study,
    WorldStudy,
    held_out_goals,
    num_routes,
)
from farflung.studies.transfer_study.report import claims, write_study
from farflung.worlds.named_vectors import make_vector_world

MAZE = farflung.make_tabular_world("maze-stoc")


def learning(success, first=100.0):
    """A way to begin whose success at three moments is the same for all seeds and goals, but for a little noise."""
    noise = np.linspace(0, 1e-3, 4)[:, None, None]
    steps = first + np.array([0.0, 100.0, 200.0])
    return Learning(steps, np.asarray(success)[None, None] * np.ones((4, 5, 1)) - noise, np.zeros((4, 5)), steps - first + 10)


def world_study(team, others, routes=(2.0, 1.0)):
    found = {kind: learning(team if kind == "team" else others) for kind in KINDS}
    spread = np.array([0.0, 0.01, 0.02, 0.03])
    diversity = {
        kind: Diversity((routes[kind != "team"]) + spread, spread, spread)
        for kind in ("team", "independent", "single", "random")
    }
    return WorldStudy("maze-stoc", MAZE, np.arange(5), 300, found, diversity)


def test_goals_are_far_from_the_start_within_reach_and_always_the_same():
    maze = held_out_goals(MAZE, 10)
    np.testing.assert_array_equal(maze, held_out_goals(MAZE, 10))
    assert len(set(maze.tolist())) == 10
    assert not set(maze.tolist()) & set(np.asarray(MAZE.start_states).tolist())
    point = make_vector_world("point-four-rooms")
    places = held_out_goals(point, 4)
    assert places.shape == (4, 3)
    assert (np.linalg.norm(places[:, :2] - [-0.5, -0.5], axis=1) > places[:, 2]).all()
    larger = farflung.gridworld(CORRIDORS, slip=0.1, horizon=24)
    assert larger.num_states > 2 * MAZE.num_states
    assert len(held_out_goals(larger, 10)) == 10


def test_routes_are_distinct_if_they_share_less_than_half_of_their_cells():
    cells = np.array([[[0, 1, 2, 9], [0, 3, 4, 9], [0, 1, 2, 9]], [[0, 1, 5, 9], [7, 7, 7, 7], [0, 3, 4, 9]]])
    is_reached = np.array([[True, True, True], [True, False, True]])
    lengths = np.full((2, 3), 3)
    assert num_routes(is_reached, lengths, cells) == 2  # 0 1 5 9 shares three of five cells with 0 1 2 9
    assert num_routes(is_reached & False, lengths, cells) == 0


def test_solved_goals_steps_and_areas_are_those_of_the_curves():
    own = learning([0.0, 0.9, 0.9])
    assert own.solved.tolist() == [[0, 1, 1]] * 4
    assert own.steps_to_solve.tolist() == [[110.0] * 5] * 4
    assert own.area(400.0) == pytest.approx(0.5, abs=0.01)  # solved from step 200 on
    never = learning([0.0, 0.1, 0.2])
    assert never.steps_to_solve.tolist() == [[210.0] * 5] * 4  # all that there were
    study = world_study([0.9, 0.9, 0.9], [0.0, 0.0, 0.9])
    assert study.goals_to_pay() == pytest.approx(300 / 200)
    assert study.saved() == pytest.approx(5 * 200 - 300)
    assert world_study([0.0, 0.0, 0.0], [0.9, 0.9, 0.9]).goals_to_pay() == np.inf
    unsolved = world_study([0.0, 0.0, 0.0], [0.0, 0.0, 0.0])  # what nobody solves saves nothing, and costs the team its steps
    assert unsolved.saved_per_goal() == pytest.approx(-210)


@pytest.mark.parametrize(
    ("team", "others", "routes", "expected"),
    [
        ([0.9, 0.9, 0.9], [0.0, 0.0, 0.0], (2.0, 1.0), "holds"),
        ([0.0, 0.0, 0.0], [0.9, 0.9, 0.9], (1.0, 2.0), "does not hold"),
    ],
)
def test_every_claim_can_hold_and_fail(team, others, routes, expected):
    config = TransferStudy(worlds=("maze-stoc",), seeds=4, goals=5)
    decided = claims(Study(config, [world_study(team, others, routes)], []))
    assert len({claim.statement for claim in decided}) == 4
    assert {claim.verdict for claim in decided} == {expected}


def test_equal_ways_to_begin_leave_claims_undecided():
    config = TransferStudy(worlds=("maze-stoc",), seeds=4, goals=5)
    decided = claims(Study(config, [world_study([0.9] * 3, [0.9] * 3, (1.0, 1.0))], []))
    by_statement = {claim.statement: claim.verdict for claim in decided}
    assert list(by_statement.values()).count("undecided") == 3
    assert "does not hold" in by_statement.values()  # exploration that saves nothing has not paid for itself


def test_the_page_shows_all_verdicts_and_numbers(tmp_path):
    config = TransferStudy(worlds=("maze-stoc",), seeds=4, goals=5)
    study = Study(config, [world_study([0.9] * 3, [0.0] * 3)], ["the archive was left out"])
    summary = write_study(study, tmp_path / "page", began=0.0)
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert "the archive was left out" in page
    assert page.count(">holds<") == sum(counts.get("holds", 0) for counts in summary["claims"].values()) > 0
    assert {path.name for path in (tmp_path / "page" / "data").iterdir()} == {"claims.csv", "success.csv", "diversity.csv"}
