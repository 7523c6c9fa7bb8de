"""What happens to real processes."""

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
signal.signal(signal.SIGINT, signal.default_int_handler)
if limit := int(sys.argv.pop(1)):  # what a full disk does: no file may be larger
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
from farflung.cli import main
sys.exit(main())
"""
SETTINGS = ("--agents", "2", "--batch-size", "4", "--updates", "40000", "--seeds", "0", "--log-every", "2000", "--quiet")
SETTINGS += ("--policy", "stationary")
BEGIN = ("explore", "room-det", *SETTINGS, "--checkpoint-updates", "500", "--out", "run")


def begin(folder, *arguments, limit=0):
    command = [sys.executable, "-c", _MAIN, str(limit), *arguments]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)


def end(process):
    """The exit code, and what was said on stderr."""
    _, told = process.communicate(timeout=300)
    return process.returncode, told


def checkpoints(folder):
    return {path.name for path in folder.glob("run/unfinished/checkpoint-*")}


def wait_for_more_than(old, folder, process):
    """Until there is a checkpoint that was not there."""
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
    np.testing.assert_array_equal(load_run(one).team.logits, load_run(other).team.logits)


def test_who_is_killed_or_stopped_goes_on_and_ends_the_same(undisturbed, tmp_path):
    killed = begin(tmp_path, *BEGIN)
    wait_for_more_than(set(), tmp_path, killed)
    killed.send_signal(signal.SIGSTOP)
    second = begin(tmp_path, "explore", "--resume", "run")
    assert end(second) == (2, f"farflung: run is in use by process {killed.pid} on {os.uname().nodename}\n")
    killed.kill()
    assert end(killed)[0] == -signal.SIGKILL
    old = checkpoints(tmp_path)
    for name in old:
        os.utime(tmp_path / "run" / "unfinished" / name, (2e9, 2e9))  # by a clock that was wrong
    stopped = begin(tmp_path, "explore", "--resume", "run", "--quiet", "--checkpoint-updates", "500")
    wait_for_more_than(old, tmp_path, stopped)
    stopped.send_signal(signal.SIGTERM)
    code, told = end(stopped)
    if code:  # or else it was finished before
        assert code == 143
        assert "updates are kept, farflung explore --resume run goes on" in told
        assert load_run(tmp_path / "run").summary["is_interrupted"]
        assert end(begin(tmp_path, "explore", "--resume", "run", "--quiet")) == (0, "")
    same(tmp_path / "run", undisturbed)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
    assert not list(tmp_path.rglob(".*"))


def test_a_disk_that_is_full_loses_nothing_and_is_told_in_a_line(undisturbed, tmp_path):
    code, told = end(begin(tmp_path, *BEGIN, limit=50_000))
    assert code == 2
    assert told.splitlines()[-1].startswith("farflung: cannot write to ")
    assert "File too large; what was learnt is kept, farflung explore --resume run goes on" in told.splitlines()[-1]
    assert not (tmp_path / "run" / "config.json").exists()
    assert end(begin(tmp_path, "explore", "--resume", "run", "--quiet"))[0] == 0
    same(tmp_path / "run", undisturbed)
