import dataclasses
import json
import re
import shutil

import numpy as np
import pytest
from tests.made_runs import made_run
from tests.studies.pages import check_in_browser, check_self_contained, chromium

from farflung import Explore, explore, load_run, load_runs
from farflung.cli import _parse, main
from farflung.config import Launching, Sweep
from farflung.scale.jobs import Job, launch
from farflung.scale.local import Locally, attempted
from farflung.studies.sweep import sweep_figure, swept_runs, table_of, train_points

TINY = {"updates": 40, "batch_size": 2, "seeds": (0, 1), "policy": "stationary"}
RATES = (0.05, 0.1)
POINTS = {f"rate-{rate}": Explore("room-det", agents=2, learning_rate=rate, **TINY) for rate in RATES}


def sweep(*words):
    """The config that the command line asks for."""
    postponed = _parse(["sweep", "explore", *words])
    return next(each for each in (*postponed.args, *postponed.keywords.values()) if isinstance(each, Sweep))


def files(run):
    return {name: (run / name).read_bytes() for name in ("metrics.csv", "policies.npz", "world.npz", "playback.npz")}


def test_a_sweep_is_the_product_of_what_has_several_values():
    config = sweep("room-det", "maze-det", "--agents", "2", "4", "--learning-rate", "0.1", "0.2", "--updates", "7")
    points = config.points()
    found = {(each.world, each.agents, each.learning_rate, each.updates) for each in points.values()}
    assert found == {(world, m, rate, 7) for world in ("room-det", "maze-det") for m in (2, 4) for rate in (0.1, 0.2)}
    assert config.swept == ["world", "agents", "learning_rate"]
    assert "maze-det_agents-4_learning-rate-0.2" in points


def test_runs_that_share_a_program_are_one_job():
    config = sweep(
        "room-det",
        "--agents",
        "2",
        "4",
        "--learning-rate",
        "0.1",
        "0.2",
        "--entropy-bonus",
        "0",
        "0.1",
        "--single",
        "False",
        "True",
    )
    assert [len(group) for group in config.groups()] == [4, 4, 4, 4]
    for group in config.groups():
        assert len({(each.agents, each.single) for each in group.values()}) == 1
    apart = sweep(
        "room-det",
        "--learning-rate",
        "0.1",
        "0.2",
        "0.3",
        "--seeds",
        "0",
        "1",
        "2",
        "--seeds-per-run",
        "2",
        "--runs-per-job",
        "2",
    )
    assert [[each.seeds for each in group.values()] for group in apart.groups()] == [[(0, 1)] * 2, [(0, 1)], [(2,)] * 2, [(2,)]]


def test_every_option_of_explore_can_be_swept_and_none_is_left_out():
    options = set(Sweep.__dataclass_fields__)
    assert set(Explore.__dataclass_fields__) - options == {"given", "world"}
    assert sweep("room-det", "--single").points()["room-det"].single


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ablate", "room-det"], "unknown command 'ablate'"),
        (["explore"], "needs at least one WORLD"),
        (["explore", "room-det", "--agents", "2", "2"], "agents must be one or more values, all different"),
        (["explore", "room-det", "--agents"], "agents must be one or more values, all different"),
        (["explore", "room-det", "--agents", "two"], "--agents takes whole numbers, not 'two'"),
        (["explore", "room-det", "--launcher", "rey"], "did you mean 'ray'?"),
        (["explore", "room-det", "--cpus", "4"], "cpus is for the launchers ray and slurm"),
        (["explore", "room-det", "--address", "auto"], "address is for the launcher ray, not local"),
        (["explore", "room-det", "--launcher", "slurm", "--gpus", "0.5"], "gpus must be a whole number"),
        (["explore", "rom-det"], "did you mean"),
    ],
)
def test_a_mistake_is_one_line(words, message, capsys):
    assert main(["sweep", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    assert train_points(str(folder), POINTS, {}) == {}
    return folder


@pytest.mark.bits
def test_a_point_has_the_bits_of_a_training_of_its_own(tmp_path):
    train_points(str(tmp_path / "sweep"), POINTS, {})
    alone = explore("room-det", agents=2, learning_rate=RATES[1], **TINY)
    found = load_run(tmp_path / "sweep" / "rate-0.1")
    np.testing.assert_array_equal(found.metrics.entropy, alone.metrics.entropy)
    np.testing.assert_array_equal(found.policies.logits, alone.policies.logits)
    assert found.summary["percent_of_ceiling"] == alone.summary["percent_of_ceiling"]
    assert found.config == alone.config


def test_a_cut_sweep_goes_on_and_keeps_what_is_finished(trained, tmp_path):
    class CutError(Exception):
        pass

    def cut(status):
        if status.update >= 20:
            raise CutError

    with pytest.raises(CutError):
        train_points(str(tmp_path), POINTS, {}, cut, checkpoint_updates=1)
    assert {path.parent.parent.name for path in tmp_path.glob("*/unfinished/checkpoint-*.npz")} == set(POINTS)
    started = []
    assert train_points(str(tmp_path), POINTS, {}, lambda status: started.append(status.update)) == {}
    assert min(filter(None, started)) > 20
    for name in POINTS:
        assert files(tmp_path / name) == files(trained / name)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.npz")}
    assert train_points(str(tmp_path), POINTS, {}, lambda _: pytest.fail("trained again")) == {}
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.npz")} == before


def test_a_run_of_other_settings_or_a_damaged_one_is_told_and_kept(trained, tmp_path):
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    (tmp_path / "rate-0.05" / "summary.json").write_text("{")
    other = {"rate-0.1": dataclasses.replace(POINTS["rate-0.1"], updates=50)}
    failures = train_points(str(tmp_path), POINTS | other, {})
    for name in POINTS:
        assert failures[name].endswith("of other settings, or a damaged one: remove it, or choose another output directory")
    assert files(tmp_path / "rate-0.1") == files(trained / "rate-0.1")


def test_a_point_that_diverges_stops_no_other(trained, tmp_path):
    wild = Explore("room-det", agents=2, learning_rate=3e38, optimizer="sgd", preset="paper", **TINY)
    calm = Explore("room-det", agents=2, learning_rate=0.15, optimizer="sgd", preset="paper", **TINY)
    failures = train_points(str(tmp_path), {"wild": wild, "calm": calm}, {})
    assert set(failures) <= {"wild"}
    assert load_run(tmp_path / "calm").updates[-1] == TINY["updates"]
    assert failures or "no longer finite" in load_run(tmp_path / "wild").summary["stopped_because"]


def test_the_command_ends_with_a_table_and_a_figure_and_its_runs_are_compared(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("farflung.studies.compare.comparison._NUM_RESAMPLES", 50)
    words = ["room-det", "--agents", "2", "--learning-rate", *map(str, RATES), "--updates", "40", "--batch-size", "2"]
    words += ["--policy", "stationary", "--seeds", "0", "1"]
    assert main(["sweep", "explore", *words, "--json", "--out", "found"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert [row["learning_rate"] for row in summary["results"]] == list(RATES)
    first = load_run("found/runs/room-det_learning-rate-0.05")
    assert summary["results"][0]["support"]["mean"] == pytest.approx(np.mean(first.summary["final"]["support"]))
    np.testing.assert_array_equal(first.metrics.entropy, load_run(trained / "rate-0.05").metrics.entropy)
    assert {path.name for path in (tmp_path / "found").iterdir()} == {
        *("contents.json", "index.html", "runs", "summary.json", "sweep.csv", "sweep.png", "sweep.svg"),
    }
    page = (tmp_path / "found" / "index.html").read_text(encoding="utf-8")
    links = set(re.findall(r'href="(runs/[^"]*)"', page))
    assert links == {f"runs/{path.name}/index.html" for path in (tmp_path / "found" / "runs").iterdir()}
    check_self_contained(tmp_path / "found" / "index.html")  # and its links lead to files
    if chromium() is not None:
        check_in_browser(tmp_path / "found" / "index.html")
    (chart,) = json.loads(re.search(r'id="charts">(.*?)</script>', page)[1])["figure-sweep"]
    assert chart["lines"][0]["xs"] == list(RATES)
    assert len((tmp_path / "found" / "sweep.csv").read_text().splitlines()) == 1 + 2 * 2
    assert main(["compare", "found", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["scores"]) == ["learning rate 0.05", "learning rate 0.1"]
    assert len(load_runs(*(tmp_path / "found" / "runs").iterdir())) == 2


def test_seeds_of_several_runs_are_one_row_of_the_table():
    runs = [made_run(seeds=seeds, learning_rate=rate) for rate in RATES for seeds in ((0, 1), (2,))]
    for run in runs:
        run.summary["percent_of_ceiling"] = [50.0] * len(run.config.seeds)
    found = swept_runs(runs)
    assert [each.seeds for each in found] == [[0, 1, 2]] * 2
    rows = table_of(found, ["learning_rate"])
    assert [row[:2] for row in rows[1:]] == [(rate, seed) for rate in RATES for seed in (0, 1, 2)]
    (axis,) = sweep_figure(found, ["learning_rate"]).axes
    means = [each.final("normalized_entropy").mean() for each in found]
    np.testing.assert_allclose(axis.lines[0].get_ydata(), means)


def tried(attempts, fails, on_progress):
    """A job that fails as often as it is told."""
    attempts.append(len(attempts))
    if len(attempts) <= fails:
        raise RuntimeError("the disk is gone\nand more")
    return {}


def test_jobs_that_fail_are_told_and_tried_again():
    for fails, retries in ((1, 2), (9, 2)):
        attempts, notes = [], []
        job = Job("tests.studies.test_sweep:tried", ("a",), {"attempts": attempts, "fails": fails})
        failures = launch(Locally(lambda *_: None), [job], retries=retries, on_note=notes.append)
        assert len(attempts) == min(fails, retries) + 1
        assert notes == ["a failed: the disk is gone; it is tried again"] * min(fails, retries)
        assert failures == ({} if fails <= retries else {"a": "the disk is gone"})
    assert attempted(Job("tests.studies.test_sweep:tried", ("a",), {}, folder="/nowhere"))["a"].startswith("/nowhere is not on")


def test_resources_are_checked():
    with pytest.raises(ValueError, match="retries must be a whole number from 0 on, not -1"):
        Launching(retries=-1)
    with pytest.raises(ValueError, match="slurm_options takes pairs KEY=VALUE"):
        Launching("slurm", slurm_options=("account",))
