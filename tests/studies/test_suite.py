import dataclasses
import sys
from concurrent.futures import Executor, Future

import numpy as np
import pytest

from farflung import Explore, make_tabular_world
from farflung.cli.suites import _elsewhere
from farflung.cli.terminal import Printing
from farflung.config import Launching
from farflung.scale.local import Locally
from farflung.studies.suite import compiling_threads, train_all
from farflung.studies.trials import begin, finish

WORLDS = {name: make_tabular_world(name) for name in ("room-det", "room-stoc", "maze-stoc")}
SEEDS = (0, 42)


def part(world, **settings):
    return Explore(world, agents=2, preset="paper", batch_size=4, updates=8, log_every=2, seeds=SEEDS, **settings)


GROUPS = [{name: part(name), f"{name}-slow": part(name, learning_rate=0.01)} for name in WORLDS]


class Recorder(Executor):
    """Records the worlds of each compilation, and compiles nothing."""

    def __init__(self):
        self.worlds = []

    def submit(self, _function, configs):
        self.worlds.append([config.world for config in configs])
        return Future()


@pytest.fixture
def on_gpu(monkeypatch):
    monkeypatch.setattr("farflung.studies.suite.runs_on_cpu", lambda: False)


def compiled_for(groups, out):
    recorder = Recorder()
    train_all(groups, WORLDS, out, recorder, print, print)
    return recorder.worlds


def test_only_leftovers_of_killed_processes_are_removed(tmp_path):
    for name in ("room-det/unfinished/new", ".git"):
        (tmp_path / name / "inside").mkdir(parents=True)
    (tmp_path / "room-det" / "unfinished" / "lock").touch()  # as a killed process leaves it
    train_all(GROUPS, WORLDS, tmp_path, Recorder(), print, pytest.fail)
    assert sorted(path.name for path in tmp_path.rglob("*")) == [".git", "inside", "room-det"]


@pytest.mark.parametrize("target", ["../others", "runs"])
def test_a_link_in_the_folder_is_not_followed(tmp_path, target):
    (tmp_path / "others" / "room-det").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "runs").symlink_to(target)
    with pytest.raises(ValueError, match="leads out of its directory"):
        compiled_for([{"runs/room-det": part("room-det")}], tmp_path / "out")
    assert (tmp_path / "others" / "room-det").exists()


def test_on_a_cpu_each_world_has_its_own_program(tmp_path):
    assert compiled_for(GROUPS, tmp_path) == [[name] * 2 for name in WORLDS]


@pytest.mark.usefixtures("on_gpu")
def test_on_a_gpu_a_map_with_and_without_slip_train_side_by_side(tmp_path):
    assert compiled_for(GROUPS, tmp_path) == [["room-det"] * 2 + ["room-stoc"] * 2, ["maze-stoc"] * 2]


@pytest.mark.parametrize("changes", [{"updates": 9}, {"seeds": (0, 1)}, {"log_every": 3}, {"optimizer": "adam"}])
@pytest.mark.usefixtures("on_gpu")
def test_configs_that_differ_in_more_than_numbers_train_apart(tmp_path, changes):
    other = dataclasses.replace(part("room-stoc"), **changes)
    assert compiled_for([GROUPS[0], {"other": other}], tmp_path) == [["room-det"] * 2, ["room-stoc"]]


@pytest.mark.bits
@pytest.mark.usefixtures("on_gpu")
def test_training_side_by_side_gives_the_same_results_as_training_alone(tmp_path):
    reported = []
    with compiling_threads() as pool:
        found = dict(train_all(GROUPS[:2], WORLDS, tmp_path, pool, reported.append, pytest.fail))
    assert {status.what for status in reported} == {"room-det and room-stoc, 2 agents"}
    assert reported[-1].steps == reported[-1].num_steps == 4 * 8 * 4 * 2 * 8 * len(SEEDS)
    for name in ("room-det", "room-stoc-slow"):
        config = (GROUPS[0] | GROUPS[1])[name]
        world = WORLDS[config.world]
        (alone,) = finish(begin([config], [world], WORLDS["room-stoc"].num_successors))
        np.testing.assert_array_equal(found[name].policies.logits, alone.policies.logits)
        np.testing.assert_equal(found[name].metrics.columns, alone.metrics.columns)
        assert found[name].config == config
        assert found[name].world is world
        assert (tmp_path / name / "policies.npz").is_file()


def test_groups_that_a_launcher_trains_are_found_finished(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["farflung.cli.sweep"], "made", lambda *_: Locally(lambda *_: None))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    elsewhere = _elsewhere(Launching("ray"), tmp_path, Printing(quiet=True))
    elsewhere(GROUPS[:1], tmp_path)
    assert compiled_for(GROUPS[:1], tmp_path) == []
    with pytest.raises(ValueError, match=r"2 runs failed, among them room-det: .*; the same command tries again"):
        elsewhere([{name: dataclasses.replace(each, world="rom-det") for name, each in GROUPS[0].items()}], tmp_path)
