import csv

import numpy as np
import pytest

import farflung
from farflung.cli import main
from farflung.loggers import CSV, LoggerWarning

QUICK = {"agents": 2, "batch_size": 4, "preset": "paper", "updates": 40, "log_every": 7, "seeds": (0, 3)}
MAP = "S...\n...."
WORLD = farflung.gridworld(MAP, horizon=4)
CLI = ["explore", "map.txt", "--horizon", "4", "--agents", "2", "--batch-size", "4", "--preset", "paper"]
CLI += ["--updates", "40", "--seeds", "0", "3"]


class Remembering:
    """A logger of a user's own."""

    def __init__(self, fails_in=None, error=None):
        self.calls, self.records, self.finals = [], [], None
        self.fails_in, self.error = fails_in, error or OSError(28, "No space left on device")

    def _called(self, name):
        self.calls.append(name)
        if name == self.fails_in:
            raise self.error

    def start(self, config):
        self._called("start")

    def log(self, records):
        self.records += records
        self._called("log")

    def close(self, finals):
        self.finals = finals
        self._called("close")


def test_every_record_is_logged_exactly_once_and_in_order():
    logger = Remembering()
    run = farflung.explore(WORLD, **QUICK, loggers=[logger])
    assert [(record.seed, record.update) for record in logger.records] == [
        (seed, update) for update in run.updates.tolist() for seed in (0, 3)
    ]
    assert [record.steps for record in logger.records[::2]] == run.steps.tolist()
    for row in range(2):
        for name, values in run.metrics.columns.items():
            assert [record.metrics[name] for record in logger.records[row::2]] == values[row].tolist()
    assert (logger.calls[0], logger.calls[-1], logger.calls.count("close")) == ("start", "close", 1)
    assert logger.finals[3]["entropy"] == run.summary["final"]["entropy"][1]
    assert logger.finals[0]["percent_of_ceiling"] == run.summary["percent_of_ceiling"][0]


def test_a_logger_that_fails_is_dropped_and_the_training_continues():
    failing, healthy = Remembering(fails_in="log"), Remembering()
    with pytest.warns(LoggerWarning, match=r"^Remembering has stopped logging: No space left on device$") as caught:
        run = farflung.explore(WORLD, **QUICK, loggers=[failing, healthy])
    assert len(caught) == 1
    assert failing.calls == ["start", "log", "close"]
    assert len(healthy.records) == 2 * len(run.updates)
    assert run.summary["updates"] == 40


@pytest.mark.parametrize("error", [RuntimeError("network\nis down"), KeyboardInterrupt()])
def test_a_logger_that_cannot_be_closed_does_not_lose_the_run(error):
    with pytest.warns(LoggerWarning, match="Remembering has stopped logging: (network|KeyboardInterrupt)$"):
        run = farflung.explore(WORLD, **QUICK, loggers=[Remembering("close", error)])
    assert run.summary["updates"] == 40


def test_a_logger_that_cannot_start_is_an_error_before_the_training():
    first = Remembering()
    with pytest.raises(ValueError, match=r"^cannot log to Remembering: No space left on device$"):
        farflung.explore(WORLD, updates=10**9, loggers=[first, Remembering("start")])
    assert first.calls == ["start", "close"]


def test_an_interrupt_closes_the_loggers():
    logger = Remembering("log", KeyboardInterrupt())
    run = farflung.explore(WORLD, **QUICK, loggers=[logger])
    assert run.summary["is_interrupted"]
    assert logger.calls == ["start", "log", "close"]
    assert set(logger.finals) == {0, 3}


def test_a_log_in_the_runs_own_directory_is_an_error_before_the_training(tmp_path):
    with pytest.raises(ValueError, match=r"config.json has appeared in .*run, the directory of the run: choose another"):
        farflung.explore(WORLD, updates=10**9, loggers=[CSV(tmp_path / "run")], out=tmp_path / "run")


def test_loggers_by_name_share_a_new_folder_each_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        farflung.explore(WORLD, **QUICK | {"updates": 2}, loggers=["csv", "tensorboard"])
    assert {path.name for path in (tmp_path / "logs").iterdir()} == {"custom-2-agents", "custom-2-agents-2"}
    found = {path.name for path in (tmp_path / "logs" / "custom-2-agents").iterdir()}
    assert found == {"config.json", "metrics.csv", "final.csv", "seed-0", "seed-3"}


def test_an_unknown_logger_is_an_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"unknown logger 'tensorbord' .did you mean 'tensorboard'"):
        farflung.explore(WORLD, loggers=["tensorbord"])
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "map.txt").write_text(MAP)
    monkeypatch.setattr("farflung.cli.terminal.use_all_cores", lambda: None)  # the tests' JAX is configured already
    return main


def test_the_command_logs_beside_the_run_and_prints_where(command, tmp_path, capsys):
    assert command([*CLI, "--out", "mine/run", "--log", "tensorboard", "csv", "--log-dir", "here"]) == 0
    printed = capsys.readouterr().err.splitlines()
    assert printed[:2] == ["log: tensorboard --logdir here/run", "log: here/run/metrics.csv"]
    with (tmp_path / "here" / "run" / "metrics.csv").open() as log, (tmp_path / "mine" / "run" / "metrics.csv").open() as run:
        assert sorted(csv.reader(log)) == sorted(csv.reader(run))


@pytest.mark.filterwarnings("default")
def test_a_logger_that_fails_is_one_line_of_the_command(command, monkeypatch, capsys):
    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(CSV, "log", full_disk)
    assert command([*CLI, "--quiet", "--log", "csv"]) == 0
    assert capsys.readouterr().err == "farflung: CSV has stopped logging: No space left on device\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--log", "cvs"], "unknown logger 'cvs' (did you mean 'csv'?): choose tensorboard, csv, wandb, trackio"),
        (["--log"], "log must name at least one of tensorboard, csv, wandb, trackio"),
        (["--log", "csv", "--log-dir", "/proc/x"], "cannot write to /proc/x/map-2-agents: No such file or directory"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(command, tmp_path, capsys, options, message):
    assert command([*CLI, *options]) == 2
    assert capsys.readouterr().err == f"farflung: {message}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["map.txt"]


def test_logging_changes_no_number():
    quiet = farflung.explore(WORLD, **QUICK)
    followed = farflung.explore(WORLD, **QUICK, loggers=[Remembering()])
    np.testing.assert_array_equal(followed.metrics.entropy, quiet.metrics.entropy)
    np.testing.assert_array_equal(followed.policies.logits, quiet.policies.logits)
