import contextvars
import sys
from types import SimpleNamespace

import pytest

import farflung
from farflung.loggers import Trackio, Wandb

QUICK = {"agents": 2, "batch_size": 4, "preset": "paper", "updates": 40, "log_every": 7, "seeds": (0, 3)}
WORLD = farflung.gridworld("S...\n....", horizon=4)


class TrackedRun:
    def __init__(self, settings):
        self.settings, self.rows, self.steps, self.summary, self.axes, self.is_finished = settings, [], [], {}, [], False

    def define_metric(self, name, step_metric):
        self.axes.append((name, step_metric))

    def log(self, values, step=None):
        assert not self.is_finished
        self.rows.append(values)
        self.steps.append(step)

    def finish(self):
        self.is_finished = True


@pytest.fixture
def opened(monkeypatch):
    """The runs of a stand-in for both trackers; like trackio, it ends a run that it finds open."""
    opened = []
    current = contextvars.ContextVar("current", default=None)

    def init(**settings):
        if current.get() is not None and settings.get("reinit") != "create_new":
            current.get().finish()
        opened.append(TrackedRun(settings))
        current.set(opened[-1])
        print("chatter")
        return opened[-1]

    for name in ("wandb", "trackio"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(init=init))
    return opened


@pytest.mark.parametrize("logger", [Wandb, Trackio])
def test_a_tracker_gets_one_run_for_each_seed_in_one_group(opened, logger):
    result = farflung.explore(WORLD, **QUICK, loggers=[logger(project="mine")])
    assert [run.settings["name"] for run in opened] == ["custom-2-agents-seed-0", "custom-2-agents-seed-3"]
    for row, run in enumerate(opened):
        assert (run.settings["project"], run.settings["group"]) == ("mine", "custom-2-agents")
        assert (run.settings["config"]["seed"], run.settings["config"]["updates"]) == (result.config.seeds[row], 40)
        rows = run.rows[: len(result.updates)]
        assert [values["steps"] for values in rows] == result.steps.tolist()
        assert [values["entropy"] for values in rows] == result.metrics.entropy[row].tolist()
        assert run.is_finished


def test_wandb_draws_over_steps_and_stores_updates_and_final_values(opened, tmp_path):
    result = farflung.explore(WORLD, **QUICK, loggers=[Wandb(directory=tmp_path)])
    run = opened[1]
    assert run.axes == [("*", "steps")]
    assert run.settings["dir"] == tmp_path
    assert [values["update"] for values in run.rows] == result.updates.tolist()
    assert run.summary["final/support"] == result.summary["final"]["support"][1]


def test_trackio_steps_by_updates_and_gets_final_values_last(opened, capsys):
    result = farflung.explore(WORLD, **QUICK, loggers=[Trackio()])
    run = opened[1]
    assert run.steps == [*result.updates.tolist(), None]
    assert run.rows[-1]["final/support"] == result.summary["final"]["support"][1]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_tracker_that_is_missing_is_named_with_the_command_that_installs_it(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=rf"this needs {name}: pip install '\.\[{name}\]', in a clone of farflung$"):
        farflung.explore(WORLD, loggers=[name])
    assert list(tmp_path.iterdir()) == []
