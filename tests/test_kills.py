"""A command that is killed at any file event ends, when it is run again, as if nothing had happened.

A few events of the commands are tested; with KILLS=all, as in `make soak`, every one of every command.
"""

import gc
import json
import os
import shutil

import numpy as np
import pytest
from tests.data.teams import make_run
from tests.killing import killed_at
from tests.made_runs import made_continuous_run

from farflung import collect, save_dataset, save_run, to_minari
from farflung.cli import main

TRAIN = ("room-det", "--agents", "2", "--batch-size", "2", "--updates", "4", "--seeds", "0", "--log-every", "1", "--quiet")
EXPLORE = ("explore", *TRAIN, "--checkpoint-updates", "1", "--out", "out")
COLLECT = ("collect", "maze", "--episodes", "12", "--quiet")
COMPARE = ("compare", "a=maze", "b=other", "--out", "out", "--quiet")
FILM = ("film", "gap", "--seconds", "2", "--fps", "1", "--quiet")
SWEEP = ("sweep", "explore", *TRAIN, "--learning-rate", "0.1", "0.2", "--checkpoint-updates", "2", "--out", "out")
TRANSFER = ("transfer", "maze", "--goal", "5", "5", "--episodes", "2", "--updates", "3", "--batch-size", "2", "--quiet")
TASKS = ("--worlds", "maze-stoc", "--agents", "2", "--goals", "1", "--episodes", "1", "--updates", "2", "--seeds", "2")
SUITE = ("--worlds", "room-det", "--agents", "2", "--seeds", "1", "--updates", "4", "--schedule", "code", "--quiet")
COMMANDS = {
    "explore": (EXPLORE, 3),
    "explore --force": ((*EXPLORE, "--force"), 2),
    "collect": ((*COLLECT, "--format", "npz", "--out", "data.npz"), 3),
    "collect --force": ((*COLLECT, "--format", "npz", "--out", "data.npz", "--force"), 2),
    "collect minari --force": ((*COLLECT, "--format", "minari-arrow", "--dataset", "ours/maze-v0", "--force"), 3),
    "compare": (COMPARE, 0),
    "compare --force": ((*COMPARE, "--force"), 2),
    "film": (FILM, 2),
    "film --force": ((*FILM, "--out", "film.gif", "--force"), 0),
    "ceiling": (
        ("ceiling", "room-det", "--agents", "1", "--horizon", "3", "--time-limit", "1e6", "--out", "out", "--quiet"),
        0,
    ),
    "objectives": (
        ("objectives", "--worlds", *TRAIN[:7], "--horizon", "3", "--episodes", "2", "--train", "state", "--quiet"),
        0,
    ),
    "sweep": (SWEEP, 2),
    "transfer": (TRANSFER, 2),
    "transfer --force": ((*TRANSFER, "--out", "out", "--force"), 0),
    "transfer-study": (("transfer-study", *TASKS, "--learning-updates", "2", "--quiet", "--out", "out"), 0),
    "reproduce --force": (("reproduce", *SUITE, "--out", "out", "--force"), 0),
}
"""With the number of events that are tested in CI; the rarer ones have the same ways as others."""
ALL = os.environ.get("KILLS") == "all"
_CEILINGS = tuple(f"studies.{name}._CEILING_SECONDS" for name in ("explore", "objectives", "reproduce.experiment"))
TIMES = {"seconds", "compile_seconds", "steps_per_second", "sha256", "checksum", "training_seconds"}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Runs to collect from, to compare and to film, and what `--force` replaces."""
    folder = tmp_path_factory.mktemp("inputs")
    run = make_run("maze-stoc")
    for name in ("maze", "other"):
        save_run(run, folder / name)
    save_run(made_continuous_run(num_steps=3, agents=2, seeds=(0,)), folder / "gap")
    save_dataset(collect(run, 3), folder / "data.npz")
    (folder / "film.gif").write_bytes(b"old")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("MINARI_DATASETS_PATH", str(folder / "minari"))
        to_minari(collect(run, 3), "ours/maze-v0", data_format="arrow")
    return folder


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("farflung.cli.terminal.use_all_cores", lambda: None)
    monkeypatch.setattr("farflung.data.collecting._TRANSITIONS_PER_PART", 60)  # two parts
    for limit in ("cli.optima._SECONDS_FOR_INFINITE_TRIALS", *_CEILINGS, "studies.view._SECONDS_BETWEEN"):
        monkeypatch.setattr(f"farflung.{limit}", 10**6)  # results and events don't depend on how busy the machine is


def folder_for(name, folder, inputs):
    """A folder in which the command is run: with something to replace if it is forced."""
    shutil.copytree(inputs, folder)
    if "--force" not in COMMANDS[name][0]:
        (folder / "data.npz").unlink()
    elif name in ("explore --force", "transfer --force"):
        shutil.copytree(folder / "maze", folder / "out")
        (folder / "out" / "film.gif").write_bytes(b"old")
    elif name in ("compare --force", "reproduce --force"):
        (folder / "out" / "runs").mkdir(parents=True)
        for file in ("contents.json", "comparison.json", "runs/old.json"):
            (folder / "out" / file).write_text('{"farflung": "0.0.1"}')
    return folder


def run_in(folder, name, monkeypatch, number=None):
    """The exit code and the file events of a command; the exit code is None if it was killed."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder / "minari"))
    code = None
    with killed_at(folder, number) as events:
        code = main(list(COMMANDS[name][0]))
    gc.collect()
    return code, events


def contents(folder):
    """All files of a folder, without the times in them."""
    return {path.relative_to(folder).as_posix(): content(path) for path in folder.rglob("*") if path.is_file()}


def content(path):
    if path.suffix == ".json":
        return timeless(json.loads(path.read_text()))
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return {name: array.tobytes() for name, array in arrays.items()}
    return None if path.suffix == ".html" or path.name == "timings.csv" else path.read_bytes()


def timeless(value):
    if isinstance(value, dict):
        return {key: timeless(each) for key, each in value.items() if key not in TIMES}
    return [timeless(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", [name for name, (_, num_kills) in COMMANDS.items() if ALL or num_kills])
def test_a_killed_command_ends_the_same_when_it_is_run_again(name, inputs, tmp_path, monkeypatch, capsys):
    code, events = run_in(folder_for(name, tmp_path / "whole", inputs), name, monkeypatch)
    assert code == 0, capsys.readouterr().err
    wanted = contents(tmp_path / "whole")
    spread = np.linspace(1, len(events), COMMANDS[name][1] + 2).round().astype(int).tolist()
    for number in range(1, len(events) + 1) if ALL else spread[1:-1]:
        folder = folder_for(name, tmp_path / str(number), inputs)
        assert run_in(folder, name, monkeypatch, number)[0] is None, f"{number}: {events[number - 1]}"
        code, _ = run_in(folder, name, monkeypatch)
        told = capsys.readouterr().err
        assert code == 0 or "already" in told, f"{number}: {events[number - 1]}: {told}"  # killed after the end of its work
        found = contents(folder)
        assert found.keys() == wanted.keys(), f"{number}: {events[number - 1]}"
        assert found == wanted, f"{number}: {events[number - 1]}"
        assert not list(folder.rglob("*unfinished*")), f"{number}: {events[number - 1]}"
        monkeypatch.chdir(tmp_path)
        shutil.rmtree(folder)
