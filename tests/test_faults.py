"""Faults of real processes: kills, read-only folders, full disks."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from farflung import explore, load_run

_MAIN = """
import resource, signal, sys
from tests.permissions import bound_by_permissions
signal.signal(signal.SIGINT, signal.default_int_handler)
if limit := int(sys.argv.pop(1)):  # in place of a full disk: no file may be larger
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
with bound_by_permissions():
    from farflung.cli import main
    sys.exit(main())
"""
_ROOT = Path(__file__).parent.parent
SETTINGS = ("--agents", "2", "--batch-size", "4", "--updates", "40000", "--seeds", "0", "--log-every", "2000", "--quiet")
SETTINGS += ("--policy", "stationary")
BEGIN = ("explore", "room-det", *SETTINGS, "--checkpoint-updates", "500", "--out", "run")


def begin(folder, *arguments, limit=0):
    command = [sys.executable, "-c", _MAIN, str(limit), *arguments]
    return subprocess.Popen(command, cwd=folder, env=os.environ | {"PYTHONPATH": str(_ROOT)}, stderr=subprocess.PIPE, text=True)


def end(process):
    """The exit code, and the text on stderr."""
    _, errors = process.communicate(timeout=300)
    return process.returncode, errors


def checkpoints(folder):
    return {path.name for path in folder.glob("run/unfinished/checkpoint-*")}


def wait_for_more_than(old, folder, process):
    """Waits for a new checkpoint."""
    while not checkpoints(folder) - old:
        assert process.poll() is None, end(process)
        time.sleep(0.02)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    path = tmp_path_factory.mktemp("undisturbed") / "run"
    explore("room-det", agents=2, batch_size=4, updates=40000, seeds=(0,), log_every=2000, policy="stationary", out=path)
    return path


def same(one: Path, other: Path):
    assert (one / "metrics.csv").read_bytes() == (other / "metrics.csv").read_bytes()
    np.testing.assert_array_equal(load_run(one).policies.logits, load_run(other).policies.logits)


def test_a_killed_or_stopped_training_resumes_and_ends_the_same(undisturbed, tmp_path):
    killed = begin(tmp_path, *BEGIN)
    wait_for_more_than(set(), tmp_path, killed)
    killed.send_signal(signal.SIGSTOP)
    second = begin(tmp_path, "resume", "run")
    assert end(second) == (2, f"farflung: run is in use by process {killed.pid} on {os.uname().nodename}\n")
    killed.kill()
    assert end(killed)[0] == -signal.SIGKILL
    old = checkpoints(tmp_path)
    for name in old:
        os.utime(tmp_path / "run" / "unfinished" / name, (2e9, 2e9))  # as a wrong clock would write them
    stopped = begin(tmp_path, "resume", "run", "--quiet", "--checkpoint-updates", "500")
    wait_for_more_than(old, tmp_path, stopped)
    stopped.send_signal(signal.SIGTERM)
    code, errors = end(stopped)
    if code:  # otherwise it has finished before the signal
        assert code == 143
        assert "farflung resume run" in errors
        assert load_run(tmp_path / "run").summary["is_interrupted"]
        assert end(begin(tmp_path, "resume", "run", "--quiet")) == (0, "")
    same(tmp_path / "run", undisturbed)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
    assert not list(tmp_path.rglob(".*"))


def test_a_directory_that_becomes_read_only_loses_nothing(undisturbed, tmp_path):
    training = begin(tmp_path, *BEGIN)
    wait_for_more_than(set(), tmp_path, training)
    training.send_signal(signal.SIGSTOP)
    run = tmp_path / "run"
    for folder in (run, run / "unfinished"):
        folder.chmod(0o555)
    training.send_signal(signal.SIGCONT)
    code, errors = end(training)
    assert code == 2
    assert errors.splitlines()[0].endswith("could not be written: Permission denied; training continues")
    hint = "continue from the last checkpoint with farflung resume run"
    assert errors.splitlines()[1:] == [f"farflung: cannot write to run: Permission denied; {hint}"]
    assert [path.name for path in run.iterdir()] == ["unfinished"]
    assert checkpoints(tmp_path)
    run.chmod(0o755)
    (run / "unfinished").chmod(0o755)
    assert end(begin(tmp_path, "resume", "run", "--quiet")) == (0, "")
    same(run, undisturbed)


@pytest.mark.parametrize("name", ["run", "."])
def test_no_training_starts_where_it_cannot_be_written(tmp_path, name):
    (tmp_path / "run").mkdir()
    (tmp_path / name).chmod(0o555)
    out = str(Path(name, "new"))
    assert end(begin(tmp_path, *BEGIN[:-1], out)) == (2, f"farflung: cannot write to {out}: Permission denied\n")


def test_a_full_disk_loses_nothing_and_gives_one_line(undisturbed, tmp_path):
    code, errors = end(begin(tmp_path, *BEGIN, limit=50_000))
    assert code == 2
    assert errors.splitlines()[-1].startswith("farflung: cannot write to ")
    assert "File too large; continue from the last checkpoint with farflung resume run" in errors.splitlines()[-1]
    assert not (tmp_path / "run" / "config.json").exists()
    assert end(begin(tmp_path, "resume", "run", "--quiet"))[0] == 0
    same(tmp_path / "run", undisturbed)
