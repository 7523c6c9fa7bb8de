"""The parts of the transfer study that need no training: goals, routes, curves, claims and the page."""

import dataclasses
import re
from collections import Counter

import numpy as np
import pytest
from pages import check_in_browser, check_self_contained, needs_browser

import farflung
from farflung.cli import main
from farflung.config import TransferStudy
from farflung.scale.local import Locally
from farflung.studies.explore import begun
from farflung.studies.transfer_study.experiment import Study, num_routes, run_of, study_transfer, study_world
from farflung.studies.transfer_study.goals import DOOR_KEY, best_success, make_study_world
from farflung.studies.transfer_study.report import claims, write_study
from farflung.studies.transfer_study.results import KINDS, Diversity, Learning, WorldStudy, read_world

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
    return WorldStudy("maze-stoc", np.arange(5), 300, found, diversity)


def test_goals_are_far_from_the_start_within_reach_and_always_the_same():
    maze = make_study_world("maze-stoc", 10)
    np.testing.assert_array_equal(maze.goals, make_study_world("maze-stoc", 10).goals)
    assert len(set(maze.goals.tolist())) == 10
    assert not set(maze.goals.tolist()) & set(np.asarray(maze.world.start_states).tolist())
    assert (best_success(maze.world)[maze.goals] >= 0.9).all()
    places = make_study_world("point-four-rooms", 4).goals
    assert places.shape == (4, 3)
    assert (np.linalg.norm(places[:, :2] - [-0.5, -0.5], axis=1) > places[:, 2]).all()
    larger = make_study_world("corridors", 10)
    assert larger.num_cells > 2 * MAZE.num_states
    assert len(larger.goals) == 10


def test_the_cells_of_door_key_are_those_of_its_layout():
    pytest.importorskip("xminigrid")
    studied = make_study_world("door-key", 10)
    first = studied.world.own.kept.first.state
    rows = DOOR_KEY.strip().splitlines()
    is_wall = np.array([[cell == "#" for cell in row] for row in rows])
    np.testing.assert_array_equal(is_wall, np.asarray(first.grid)[..., 0] == 2)
    row, column = first.agent.position
    assert rows[row][column] == "S"
    assert studied.num_cells == (~is_wall).sum()
    assert (studied.goals[:, 0] > 2).sum() == 8  # columns behind the door
    assert not is_wall[studied.goals[:, 1].astype(int), studied.goals[:, 0].astype(int)].any()


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


def test_cells_lead_to_the_pages_of_the_runs_that_are_kept(tmp_path):
    study = Study(TransferStudy(worlds=("maze-stoc",), seeds=4, goals=5), [world_study([0.9] * 3, [0.0] * 3)], [])
    for kind in ("team", "single"):  # and none of independent agents
        page = tmp_path / run_of("maze-stoc", kind) / "index.html"
        page.parent.mkdir(parents=True)
        page.write_text("a run")
    summary = write_study(study, tmp_path, began=0.0)
    links = Counter(link for link in check_self_contained(tmp_path / "index.html").links if not link.startswith("#"))
    num_verdicts = sum(sum(counts.values()) for counts in summary["claims"].values())
    # The team's: all verdicts, three rows of goals to pay, five numbers of its results and three of its diversity.
    assert links == {
        "runs/maze-stoc/team/index.html": num_verdicts + 3 + 5 + 3,
        "runs/maze-stoc/single/index.html": 5 + 3,
    }
    assert "All other\ncells lead nowhere" in (tmp_path / "index.html").read_text(encoding="utf-8")
    without = tmp_path / "without"
    write_study(study, without, began=0.0)
    text = (without / "index.html").read_text(encoding="utf-8")
    assert "runs/" not in text
    assert "lead to the page" not in text
    number = re.search(r'<a href="#numbers">([\d.]+ \([\d.]+ to [\d.]+\))</a>', text)  # of all worlds together
    assert number[1] == "1.000 (1.000 to 1.000)"


@needs_browser
def test_the_page_opens_in_a_browser(tmp_path):
    study = Study(TransferStudy(worlds=("maze-stoc",), seeds=4, goals=5), [world_study([0.9] * 3, [0.0] * 3)], [])
    page = tmp_path / run_of("maze-stoc", "team") / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text("<!doctype html><title>a run</title>")

    def follow(tab):
        tab.get_by_role("link", name="holds").first.click()
        assert tab.title() == "a run"
        tab.go_back()

    write_study(study, tmp_path, began=0.0)
    check_in_browser(tmp_path / "index.html", follow)


def test_results_of_a_world_are_read_as_they_were_written():
    study = world_study([0.9] * 3, [0.0] * 3)
    content = study.to_bytes()
    found = read_world("maze-stoc", content, 4)
    assert found.explored_steps == 300
    for part, expected in ((found.learning, study.learning), (found.diversity, study.diversity)):
        assert part.keys() == expected.keys()
        for kind, own in expected.items():
            assert all(np.array_equal(*columns) for columns in zip(part[kind], own, strict=True))
    with pytest.raises(ValueError, match="other seeds"):
        read_world("maze-stoc", content, 10)
    with pytest.raises(ValueError, match="archive"):
        read_world("maze-stoc", content[:100], 4)


def test_a_study_keeps_finished_worlds_and_gives_every_way_to_begin_the_same_steps(tmp_path, monkeypatch):
    config = TransferStudy(worlds=("maze-stoc",), agents=2, goals=2, episodes=2, updates=2, learning_updates=3, seeds=2)
    with farflung.runs.destinations.claimed(tmp_path / "study") as place:
        (found,) = study_transfer(config, place).worlds
    assert (tmp_path / "study" / "worlds" / "maze-stoc.npz").exists()
    per_update = 2 * 16 * 20  # goals, batch and horizon
    most = found.explored_steps + 2 * (3 * 16 + 2 * 2) * 20
    assert found.explored_steps == 2 * 2 * 16 * 20
    for kind, own in found.learning.items():
        assert most - per_update < own.steps[-1] <= most, kind
    first = found.learning["team"].steps[0] - found.learning["scratch"].steps[0]
    assert first == found.explored_steps + 2 * 2 * 2 * 20  # exploration, and the choice for two goals
    run = farflung.load_run(tmp_path / "study" / run_of("maze-stoc", "single"))
    assert (run.config.single, run.config.updates, run.config.seeds) == (True, 2, (0, 1))
    assert (tmp_path / "study" / run_of("maze-stoc", "team") / "index.html").exists()
    monkeypatch.setattr("farflung.studies.transfer_study.experiment.study_world", None)
    with farflung.runs.destinations.claimed(tmp_path / "study") as place:
        (again,) = study_transfer(config, place).worlds
    np.testing.assert_array_equal(again.learning["team"].success, found.learning["team"].success)


def test_a_study_reads_the_runs_that_it_has_kept_and_trains_those_that_are_broken_again(tmp_path, monkeypatch):
    config = TransferStudy(worlds=("maze-stoc",), agents=2, goals=2, episodes=2, updates=2, learning_updates=3, seeds=2)
    runs = {kind: tmp_path / run_of("maze-stoc", kind) for kind in ("team", "independent", "single")}
    first = study_world(config, "maze-stoc", lambda *_: None, tmp_path)
    policies = {kind: (folder / "policies.npz").read_bytes() for kind, folder in runs.items()}
    (runs["independent"] / "policies.npz").write_bytes(b"broken")
    (runs["single"] / "config.json").write_text("{")
    trained = []

    def begin(given, *rest):
        trained.append((given.independent, given.single))
        return begun(given, *rest)

    monkeypatch.setattr("farflung.studies.explore.begun", begin)
    second = study_world(config, "maze-stoc", lambda *_: None, tmp_path)
    assert trained == [(True, False), (False, True)]
    assert {kind: (folder / "policies.npz").read_bytes() for kind, folder in runs.items()} == policies
    assert second.to_bytes() == first.to_bytes()


def test_a_study_with_other_settings_is_replaced_only_by_force(tmp_path):
    config = TransferStudy(worlds=("maze-stoc",), agents=2, goals=2, episodes=2, updates=2, learning_updates=2, seeds=2)
    with farflung.runs.destinations.claimed(tmp_path / "study") as place:
        write_study(study_transfer(config, place), place, began=0.0)
    other = dataclasses.replace(config, updates=3)
    with farflung.runs.destinations.claimed(tmp_path / "study") as place:
        with pytest.raises(ValueError, match="--force"):
            study_transfer(other, place)
        write_study(study_transfer(other, place, force=True), place, began=0.0)
    assert farflung.load_run(tmp_path / "study" / run_of("maze-stoc", "team")).config.updates == 3


def test_a_launcher_studies_the_worlds_that_are_missing(tmp_path, monkeypatch, capsys):
    found = world_study([0.9] * 3, [0.0] * 3)
    monkeypatch.setattr("farflung.studies.transfer_study.experiment.study_world", lambda config, name, report, folder: found)
    monkeypatch.setattr("farflung.cli.tasks.made", lambda options, logs: Locally(lambda job, status: None))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    command = ["transfer-study", "--worlds", "maze-stoc", "--seeds", "4", "--goals", "5", "--quiet"]
    assert main([*command, "--out", str(tmp_path / "study"), "--launcher", "ray"]) in (0, None)
    assert (tmp_path / "study" / "worlds" / "maze-stoc.npz").read_bytes() == found.to_bytes()
    assert "holds" in (tmp_path / "study" / "index.html").read_text(encoding="utf-8")
