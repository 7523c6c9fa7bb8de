import importlib
import json
import os
import signal
import time
from pathlib import Path

import minari
import numpy as np
import pytest
from tests.data.teams import make_run

from farflung import from_minari, load_dataset, save_run
from farflung.cli import main


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "my.maze"
    save_run(make_run("maze-stoc"), path)
    return str(path)


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    monkeypatch.setattr("farflung.cli.terminal.use_all_cores", lambda: None)  # the tests' JAX is configured already


def test_collect_writes_a_minari_dataset_and_says_where(trained, tmp_path, capsys):
    assert main(["collect", trained, "--episodes", "6"]) == 0
    output = capsys.readouterr().out
    assert "6 episodes of 3 agents (seed 5), 60 transitions" in output
    assert f"written to {tmp_path / 'minari' / 'farflung' / 'my-maze-v0'}" in output
    assert minari.load_dataset("farflung/my-maze-v0").total_steps == 60
    assert main(["collect", trained, "--episodes", "6"]) == 2
    assert "already" in capsys.readouterr().err
    assert main(["collect", trained, "--episodes", "3", "--force", "--quiet"]) == 0
    assert len(from_minari("farflung/my-maze-v0")) == 3


@pytest.mark.parametrize(("kind", "writer"), [("minari", "minari._buffers"), ("npz", "archives.copyfileobj")])
def test_sigterm_while_writing_keeps_the_collected_parts(trained, kind, writer, tmp_path, monkeypatch, capsys):
    def asked_to_end(*_):
        if list(tmp_path.rglob("*-unfinished/part-000000.npz")):  # that itself is a file to write
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        honest(*_)

    module, name = writer.split(".")
    honest = getattr(importlib.import_module(f"farflung.data.{module}"), name)
    command = ["collect", trained, "--episodes", "6", "--format", kind, "--quiet"]
    with monkeypatch.context() as patched:
        patched.setattr(f"farflung.data.{writer}", asked_to_end)
        assert main(command) == 143
    message = "farflung: interrupted; the episodes so far are saved: the same command continues\n"
    assert capsys.readouterr().err == message
    assert len(list(tmp_path.rglob("*-unfinished/part-000000.npz"))) == 1
    assert main(command) == 0
    assert not list(tmp_path.rglob("part-*"))


def test_json_is_the_only_thing_on_stdout(trained, capsys):
    assert main(["collect", trained, "--episodes", "5", "--dataset", "maze-v3", "--seed", "7", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["dataset"], summary["seed"], summary["episodes"]) == ("maze-v3", 7, 5)
    assert summary["environment"] == "farflung/Maze-v0"
    visits = from_minari("maze-v3").visits()
    share = visits[visits > 0] / visits.sum()
    assert summary["entropy"] == pytest.approx(-np.sum(share * np.log(share)))


def test_states_and_pairs_are_counted_and_the_author_is_named(trained, capsys):
    about = ["--author", "A", "--author-email", "a@b.org", "--code-permalink", "https://b.org"]
    assert main(["collect", trained, "--episodes", "6", "--epsilon", "0.5", "--temperature", "2", *about, "--json"]) == 0
    captured = capsys.readouterr()
    summary, steps = json.loads(captured.out), from_minari("farflung/my-maze-v0").steps()
    assert summary["pairs"] == len(set(zip(steps.observations.tolist(), steps.actions.tolist(), strict=True)))
    assert f"{summary['states']} states and {summary['pairs']} of 172 pairs of state and action occur" in captured.err
    assert set(minari.load_dataset("farflung/my-maze-v0").storage.metadata["author"]) == {"A"}


def test_rewards_of_a_function_are_collected_learnt_and_compared(trained, tmp_path, capsys):
    Path("my_rewards.py").write_text("def stay(states, actions, after):\n    return 1.0 * (states == after)\n")
    assert main(["collect", trained, "--episodes", "60", "--reward", "my_rewards:stay", "--format", "npz", "--quiet"]) == 0
    steps = load_dataset(tmp_path / "my.maze.npz").steps()
    np.testing.assert_array_equal(steps.rewards, steps.observations == steps.next_observations)
    assert main(["offline", "my.maze.npz", "--seeds", "0", "1"]) == 2
    assert "name the function again, with --reward my_rewards:stay" in capsys.readouterr().err
    for method in ("q-learning", "bc"):
        arguments = [
            "--reward",
            "my_rewards:stay",
            "--seeds",
            "0",
            "1",
            "--attempts",
            "3",
            "--reference",
            "10",
            "--out",
            method,
        ]
        assert main(["offline", "my.maze.npz", "--method", method, *arguments, "--json"]) == 0
        captured = capsys.readouterr()
        summary = json.loads(captured.out)
        assert "random actions" in captured.err
        table = np.genfromtxt(tmp_path / method / "returns.csv", delimiter=",", names=True)
        assert table["return_"].mean() == pytest.approx(summary["return"]["mean"])
        assert summary["score"]["low"] <= summary["score"]["mean"] <= summary["score"]["high"]
    assert main(["compare", "q-learning", "bc", "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)
    assert compared["metric"] == "score"
    assert compared["tasks"] == ["my_rewards:stay in farflung/Maze-v0"]
    assert list(compared["scores"]) == ["q-learning", "bc"]
    assert main(["compare", "one=q-learning", "two=bc", "--metric", "success"]) == 2
    assert "not all results have a success" in capsys.readouterr().err
    assert main(["compare", trained, "bc"]) == 2
    assert "either all are runs or all are offline results" in capsys.readouterr().err


def test_a_goal_and_a_format_can_be_chosen(trained, tmp_path):
    arguments = ["--goal", "5", "7", "--format", "parquet", "--episodes", "40", "--quiet"]
    assert main(["collect", trained, *arguments]) == 0
    found = load_dataset(tmp_path / "my.maze.parquet")
    positions = np.asarray(found.source.world.positions)
    last = found.observations[np.arange(40), found.lengths]
    assert found.terminated.any()
    assert (positions[last[found.terminated]] == (5, 7)).all()
    assert found.rewards.sum() == found.terminated.sum()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["collect"], "collect needs RUN"),
        (["collect", "nothing"], "there is no run nothing: give the directory that farflung explore has written"),
        (["collect", "RUN", "--seed", "1"], "seed 1 is not one of the run's: 0, 5, 7"),
        (["collect", "RUN", "--episodes", "0"], "episodes must be at least 1, not 0"),
        (["collect", "RUN", "--dataset", "maze"], "a dataset's id looks like farflung/maze-v0"),
        (["collect", "RUN", "--format", "npy"], "unknown format 'npy' (did you mean 'npz'?)"),
        (["collect", "RUN", "--format", "npz", "--out", "x.csv"], "a dataset's file ends with"),
        (["collect", "RUN", "--format", "npz", "--out", "x.h5"], "ends with .npz"),
        (["collect", "RUN", "--out", "x.npz"], "name a Minari dataset with --dataset"),
        (["collect", "RUN", "--format", "npz", "--dataset", "x-v0"], "name the npz file with --out"),
        (["collect", "RUN", "--format", "npz", "--goal", "0", "0"], "(0, 0) is no cell that can be reached"),
        (["collect", "RUN", "--format", "npz", "--goal", "1", "2", "3"], "not 3 numbers"),
        (["collect", "RUN", "--epsilon", "2"], "epsilon is a probability between 0 and 1, not 2.0"),
        (["collect", "RUN", "--random", "--checkpoints", "3"], "random actions exclude epsilon, temperature and checkpoints"),
        (["collect", "RUN", "--format", "npz", "--checkpoints", "9"], "checkpoints must be a number from 2 to 2"),
        (["collect", "RUN", "--reward", "stay"], "reward is the MODULE:NAME of a function"),
        (["collect", "RUN", "--reward", "a:b", "--goal", "3"], "either a goal or a reward function, not both"),
        (["collect", "RUN", "--format", "npz", "--author", "A"], "author is for Minari datasets"),
        (["offline"], "offline needs DATASET"),
        (["offline", "x.npz", "--task", "all"], "unknown task 'all': choose goals, rewards"),
        (["offline", "nothing.npz"], "there is no file nothing.npz"),
        (["offline", "x.npz", "--batches", "0"], "batches must be at least 1"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing_behind(arguments, message, trained, tmp_path, capsys):
    assert main([trained if each == "RUN" else each for each in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("farflung: ")
    assert message in line
    assert list(tmp_path.iterdir()) == []


def test_offline_prints_a_table_and_saves_numbers_and_picture(trained, tmp_path, capsys):
    assert main(["collect", trained, "--episodes", "50", "--format", "npz", "--out", "data.npz", "--quiet"]) == 0
    assert main(["offline", "data.npz", "--batches", "20", "--seeds", "0", "1", "--json"]) == 0
    captured = capsys.readouterr()
    summary = json.loads(captured.out)
    assert "all 42 goals" in captured.err
    folder = tmp_path / "offline-data"
    assert {path.name for path in folder.iterdir()} >= {"goals.csv", "goals.png", "goals.svg", "summary.json"}
    table = np.genfromtxt(folder / "goals.csv", delimiter=",", names=True)
    assert len(table) == summary["goals"] == 42
    assert table["success"].mean() == pytest.approx(summary["success"]["mean"])
    assert (np.diff(table["success"]) <= 0).all()
