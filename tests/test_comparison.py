import csv
import itertools
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from rliable import library, metrics
from scipy import stats
from tests.made_runs import made_run, rows_of
from tests.studies.pages import Page, cells_without_link, check_in_browser, check_self_contained, chromium

from farflung import Metrics, compare, save_run
from farflung.cli import _parse, main
from farflung.config import METRICS
from farflung.data.offline import OfflineScores
from farflung.runs.run import final_values
from farflung.studies.compare.comparison import interquartile_mean, probability_of_improvement
from farflung.studies.compare.figures import compared, comparison_page

WORLDS = ("room-det", "maze-det")


@pytest.fixture(scope="module")
def runs():
    algorithms = ({"shift": 0.01}, {"single": True, "seeds": (3, 4, 5, 6)}, {"independent": True, "shift": -0.3})
    return [made_run(world, **settings) for settings in algorithms for world in WORLDS]


@pytest.fixture(scope="module")
def comparison(runs):
    return compare(runs)


@pytest.fixture
def few_samples(monkeypatch):
    monkeypatch.setattr("farflung.studies.compare.comparison._NUM_RESAMPLES", 50)


def test_scores_are_final_values_by_seed_and_task(runs, comparison):
    expected = [final_values(run.updates, run.metrics)["normalized_entropy"] for run in runs[2:4]]
    np.testing.assert_array_equal(comparison.scores["single"], np.transpose(expected))
    assert comparison.tasks == WORLDS


def test_seeds_of_several_runs_count_as_those_of_one(runs, few_samples):
    halves = [rows_of(run, *rows) for run in runs[:2] for rows in ((0, 1), (2,))]
    together, apart = compare(runs[:4]), compare([*halves, *runs[2:4]])
    assert together.as_json() == apart.as_json()


def test_offline_results_are_compared_by_seed(few_samples):
    good, bad = (
        [OfflineScores(task, method, "data", {"success": rates}) for task in WORLDS]
        for method, rates in (("iql", (0.9, 0.8)), ("bc", (0.1, 0.2)))
    )
    found = compare([*good, *bad])
    assert found.metric == "success"
    assert list(found.scores) == ["iql", "bc"]
    np.testing.assert_array_equal(found.scores["iql"], [[0.9, 0.9], [0.8, 0.8]])
    assert found.improvements["iql", "bc"].value == 1
    assert not found.curves
    assert len(compared(found).get_axes()) == len(found.aggregates["iql"]) + 2
    with pytest.raises(ValueError, match="no metric in common"):
        compare([good[0], OfflineScores("room-det", "bc", "data", {"return": (1.0, 2.0)})])
    with pytest.raises(ValueError, match="several results on room-det"):
        compare({"a": [good[0], good[0]], "b": bad})
    with pytest.raises(ValueError, match="at least 2 seeds"):
        compare({"a": good[:1], "b": [OfflineScores("room-det", "bc", "data", {"success": (1.0,)})]})


@pytest.mark.parametrize(
    "summary",
    [
        "",
        "[]",
        "{}",
        '{"task_name": 1, "method": "bc", "dataset": "x"}',
        '{"task_name": "x", "method": "bc", "dataset": "x", "score": 3}',
    ]
    + [
        json.dumps({"task_name": "x", "method": "bc", "dataset": "x", "success": {"seeds": seeds}})
        for seeds in (None, ["a"], 3)
    ],
)
def test_offline_results_that_cannot_be_read_are_an_error_of_one_line(summary, tmp_path, capsys):
    (tmp_path / "contents.json").write_text('{"command": "offline"}')
    (tmp_path / "summary.json").write_text(summary)
    assert main(["compare", str(tmp_path), str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "has no results of farflung offline that can be read" in line


def test_aggregates_are_the_trimmed_mean_and_the_tasks_means(comparison):
    for name, scores in comparison.scores.items():
        found = comparison.aggregates[name]
        assert found["iqm"].value == pytest.approx(stats.trim_mean(scores.ravel(), 0.25))
        assert found["mean"].value == pytest.approx(scores.mean())
        assert found["median"].value == pytest.approx(np.median(scores.mean(axis=0)))
        assert found["optimality_gap"].value == pytest.approx(1 - np.minimum(scores, 1).mean())
        for estimate in found.values():
            assert estimate.low <= estimate.value <= estimate.high


def test_intervals_are_those_of_a_stratified_bootstrap(comparison):
    scores = comparison.scores["single"]
    found = comparison.aggregates["single"]["mean"]
    # The mean over tasks, with seeds resampled for each task: ten thousand draws.
    drawn = np.random.default_rng(1).integers(0, len(scores), size=(10_000, *scores.shape))
    means = np.take_along_axis(scores[None], drawn, axis=1).mean(axis=(1, 2))
    np.testing.assert_allclose([found.low, found.high], np.quantile(means, [0.025, 0.975]), atol=0.1 * means.std())


def test_improvement_counts_pairs_and_half_of_the_ties(comparison):
    for (better, worse), found in comparison.improvements.items():
        first, second = comparison.scores[better], comparison.scores[worse]
        pairs = [
            (x > y) + (x == y) / 2 for task in range(len(WORLDS)) for x, y in itertools.product(first[:, task], second[:, task])
        ]
        assert found.value == pytest.approx(np.mean(pairs))
    assert comparison.improvements["parallel", "independent"] == (1, 1, 1)


def test_improvement_and_interquartile_mean_are_rliables():
    generator = np.random.default_rng(0)
    first, second = generator.integers(0, 4, size=(6, 3)).astype(float), generator.integers(0, 4, size=(5, 3)).astype(float)
    expected = metrics.probability_of_improvement(first, second)
    assert probability_of_improvement(first, second) == pytest.approx(expected)
    assert interquartile_mean(first) == pytest.approx(metrics.aggregate_iqm(first))


def test_profiles_are_rliables(comparison):
    for name, scores in comparison.scores.items():
        expected = library.score_distributions(scores, comparison.thresholds)
        np.testing.assert_allclose(comparison.profiles[name].value, expected)
        assert comparison.profiles[name].value[0] == 1
        assert comparison.profiles[name].value[-1] == 0


def test_curves_are_interquartile_means_over_the_shared_range_of_steps(runs, comparison):
    room, maze = runs[2:4]
    steps, curve = comparison.steps["single"], comparison.curves["single"]
    np.testing.assert_allclose(steps[[0, -1]], [maze.steps[0], room.steps[-1]])
    at_the_end = [np.interp(steps[-1], run.steps, row) for run in (room, maze) for row in run.metrics.normalized_entropy]
    assert curve.value[-1] == pytest.approx(stats.trim_mean(at_the_end, 0.25))
    assert np.all(curve.low <= curve.value)
    assert np.all(curve.value <= curve.high)


def test_the_numbers_do_not_depend_on_other_random_draws_or_runs(runs, comparison):
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    fewer = compare(runs[2:])
    assert fewer.aggregates["single"] == comparison.aggregates["single"]
    assert fewer.improvements["single", "independent"] == comparison.improvements["single", "independent"]
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_percentages_of_the_ceiling_have_their_optimum_at_100(runs, few_samples):
    found = compare(runs[:4], "percent_of_ceiling")
    entropies = compare(runs[:4], "entropy")
    np.testing.assert_allclose(found.scores["single"], 50 * entropies.scores["single"])
    gap = found.aggregates["single"]["optimality_gap"].value
    assert gap == pytest.approx(100 - found.scores["single"].mean())
    assert "optimality_gap" not in entropies.aggregates["single"]


def test_every_metric_of_a_run_can_be_compared():
    assert (*Metrics._fields, "percent_of_ceiling") == METRICS


def test_tasks_without_runs_of_all_algorithms_are_left_out(runs, few_samples):
    found = compare({"a": runs[:2], "b": [made_run("maze-det", single=True), made_run("room-stoc")]})
    assert found.tasks == ("maze-det",)
    assert found.left_out == ("room-det", "room-stoc")


def test_equal_scores_can_be_compared(few_samples):
    found = compare({"a": [made_run()], "b": [made_run()]})
    assert found.improvements["a", "b"].value == 0.5
    assert found.aggregates["a"] == found.aggregates["b"]


@pytest.mark.parametrize(
    ("chosen", "metric", "message"),
    [
        ([made_run(), made_run("maze-det")], "entropy", "differ in nothing but their worlds and seeds"),
        ([made_run(), made_run("maze-det", single=True)], "entropy", "parallel has room-det; single has maze-det"),
        ([made_run(seeds=(0,)), made_run(single=True)], "entropy", "parallel has one seed only"),
        (
            {"a": [made_run(), made_run("maze-det", seeds=(1, 2))], "b": [made_run(), made_run("maze-det")]},
            "entropy",
            "not 3 on room-det, 2 on maze-det",
        ),
        ([made_run(), made_run(single=True)], "particle_entropy", "of parallel on room-det was not measured"),
        ([made_run(), made_run(single=True)], "entropi", "did you mean 'entropy'"),
        ([made_run(shift=np.nan), made_run(single=True)], "entropy", "entropy of parallel on room-det is not a number"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused_in_one_line(chosen, metric, message):
    with pytest.raises(ValueError, match=message) as error:
        compare(chosen, metric)
    assert "\n" not in str(error.value)


def test_the_figure_has_a_labelled_panel_for_each_question(comparison, tmp_path):
    figure = compared(comparison)
    expected = {"IQM", "median", "mean", "performance profile", "probability of improvement", "sample efficiency"}
    assert expected <= {axis.get_title() for axis in figure.get_axes()}
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["parallel", "single", "independent"]
    figure.savefig(tmp_path / "figure.png")


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """The folders that docs/compare.md trains."""
    monkeypatch.chdir(tmp_path)
    for kind in ("team", "single"):
        for world in ("room-det", "maze-det"):
            save_run(
                made_run(world, single=kind == "single", shift=0.2 * (kind == "team")), f"runs/{kind}-{world}", page="a page"
            )
    return sorted(str(path) for path in Path("runs").iterdir())


def test_the_command_prints_tables_and_saves_a_figure_and_its_numbers(saved, capsys, few_samples):
    assert main(["compare", *saved, "--out", "comparison"]) == 0
    output = capsys.readouterr().out
    assert "parallel" in output
    assert "see comparison/index.html" in output
    names = {path.name for path in Path("comparison").iterdir()}
    tables = {f"{name}.csv" for name in ("scores", "aggregates", "improvements", "profiles", "curves")}
    assert names == {"contents.json", "comparison.json", "comparison.png", "comparison.svg", "index.html", *tables}
    page = check_self_contained(Path("comparison/index.html"))
    assert {f"../{path}/index.html" for path in saved} < set(page.links)
    assert cells_without_link(Path("comparison/index.html")) == []
    if chromium() is not None:
        check_in_browser(Path("comparison/index.html").resolve())
    with Path("comparison/improvements.csv").open(encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert (row["better"], row["worse"], float(row["value"])) == ("single", "parallel", 0)


def test_numbers_lead_to_the_page_of_their_run_or_of_each_run_that_is_pooled(comparison):
    (team, single), tasks = list(comparison.scores)[:2], comparison.tasks
    pages = {(team, task): ["a.html", "b.html"] for task in tasks} | {(single, tasks[0]): ["c.html"]}
    links = [link for link in Page(comparison_page(comparison, b"", pages)).links if not link.startswith("#")]
    assert links.count("b.html") == len(tasks)  # below each number of the pooled runs
    assert links.count("a.html") == 2 * len(tasks)
    assert links.count("c.html") == 1 + len(comparison.aggregates[single])  # the only run behind all of these numbers


def test_json_is_reproducible_and_nothing_is_written_without_out(saved, capsys, few_samples):
    texts = []
    for _ in range(2):
        assert main(["compare", *(f"{Path(path).name[:4]}={path}" for path in saved), "--json"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert list(json.loads(texts[0])["scores"]) == ["sing", "team"]
    assert [path.name for path in Path().iterdir()] == ["runs"]


def test_a_directory_may_have_an_equals_sign_in_its_name(saved, capsys, few_samples):
    Path(saved[0]).rename("runs/m=6")
    assert main(["compare", "runs/m=6", saved[2], "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["scores"]) == ["single", "parallel"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["runs/team-room-det"], "at least 2 runs are needed for a comparison, not 1"),
        ([], "at least 2 runs are needed for a comparison, not 0"),
        (["runs/team-room-det", "runs"], "runs is not a run that can be read: config.json is missing"),
        (["a=runs/team-room-det", "runs/single-room-det"], "either all runs have names or none: runs/single-room-det has none"),
        (["a=runs/team-room-det", "b=nowhere"], "there is no run nowhere"),
        (["runs/team-room-det", "runs/team-room-det"], "seed 0 of the same settings is in run 1 of"),
        (["runs/team-room-det", "runs/single-room-det", "--metric", "suport"], "did you mean 'support'?"),
        (["runs/team-room-det", "runs/single-room-det", "--out", "runs"], "runs is not empty and holds no results"),
    ],
)
def test_a_mistake_is_one_line_on_stderr_and_exit_code_2(arguments, message, saved, capsys, few_samples):
    assert main(["compare", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("farflung: ")
    assert message in line


def test_without_rliable_the_error_says_how_to_install_it(saved, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rliable.library", None)
    assert main(["compare", *saved]) == 2
    assert "pip install '.[compare]', in a clone of farflung" in capsys.readouterr().err


def test_the_examples_of_the_documentation_run(saved, capsys, few_samples):
    page = (Path(__file__).parent.parent / "docs" / "compare.md").read_text(encoding="utf-8")
    shell, python = (re.findall(rf"```{kind}\n(.*?)```", page, flags=re.S) for kind in ("sh", "python"))
    lines = [line.split("  #")[0].split() for line in "".join(shell).splitlines()]
    assert len([line for line in lines if line[1] == "explore" and callable(_parse(line[1:]))]) == 4
    for line in lines:
        if line[1] == "compare":
            arguments = [path for part in line[2:] for path in (map(str, Path().glob(part)) if "*" in part else [part])]
            assert main(["compare", *arguments]) == 0
    exec(python[0], {})
    assert "room-det" in capsys.readouterr().out
