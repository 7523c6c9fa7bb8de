"""Unfinished trainings that someone has changed, and given a new checksum."""

import hashlib
import json
import os
import shutil

import numpy as np
import pytest
from tests.fuzzing.broken import FIXTURES, VERSIONS, forget_checksums

import farflung
from farflung.config.checks import num_cores
from farflung.runs.checkpoints import CheckpointWarning, open_checkpoints

UNFINISHED = FIXTURES / VERSIONS[-1] / "unfinished"


@pytest.fixture(params=["table", "hosted"])
def run(request, tmp_path):
    shutil.copytree(UNFINISHED / request.param, tmp_path / request.param)
    forget_checksums(tmp_path / request.param)
    return tmp_path / request.param


def forge(run, change):
    """Changes the arrays of all checkpoints, whose names are their checksums."""
    for path in (run / "unfinished").glob("checkpoint-*.npz"):
        arrays = dict(np.load(path))
        change(arrays)
        path.unlink()
        np.savez(run / "new.npz", **arrays)
        content = (run / "new.npz").read_bytes()
        (run / "new.npz").unlink()
        path.with_name(f"{path.stem.rpartition('-')[0]}-{hashlib.sha256(content).hexdigest()[:16]}.npz").write_bytes(content)


def huge_num_steps(arrays):
    arrays["about"] = np.array(json.dumps(json.loads(str(arrays["about"])) | {"num_steps": 10**30}))


def no_world(arrays):
    del arrays["world"]


def no_visits(arrays):
    del arrays["visits"]


def other_visits(arrays):
    arrays["visits"] = np.zeros((*arrays["visits"].shape[:2], 1000))


@pytest.mark.parametrize("run", ["hosted"], indirect=True)
@pytest.mark.parametrize("change", [huge_num_steps, no_world, no_visits, other_visits])
def test_a_checkpoint_that_lacks_something_is_refused_in_one_line(run, change):
    forge(run, change)
    with pytest.warns(CheckpointWarning, match="is skipped"), pytest.raises(ValueError, match="no checkpoint") as error:
        farflung.resume(run)
    assert "\n" not in str(error.value)


def test_a_file_with_a_hole_is_not_read_as_a_checkpoint(run):
    for path in (run / "unfinished").glob("checkpoint-*.npz"):
        os.truncate(path, 9 * 2**30)
    with pytest.warns(CheckpointWarning, match="bytes of memory"), pytest.raises(ValueError, match="no checkpoint"):
        farflung.resume(run)


def test_no_checksum_of_a_hole_is_computed(run):
    world = run / "unfinished" / "world.npz"
    path = run / "unfinished" / "config.json"
    header = json.loads(path.read_text())
    path.write_text(json.dumps(header | {"sha256": {"world.npz": "0" * 64}}))
    os.truncate(world, 2**42)
    with pytest.raises(ValueError, match="bytes of memory"):
        farflung.resume(run)


def change_config(run, **changes):
    path = run / "unfinished" / "config.json"
    header = json.loads(path.read_text())
    for name, change in changes.items():
        header[name] |= change
    path.write_text(json.dumps(header))


@pytest.mark.parametrize("run", ["hosted"], indirect=True)
def test_no_file_starts_more_workers_than_this_machine_can_take(run):
    change_config(run, stepping={"workers": 100_000}, config={"batch_size": 1_000_000})
    with open_checkpoints(run) as checkpointer:
        about = checkpointer.world.about_stepping(2, 10**6)
        assert about["workers"] == about["copies"] == 32 * num_cores()


@pytest.mark.parametrize("run", ["hosted"], indirect=True)
@pytest.mark.parametrize("stepping", [{"workers": -1}, {"copies": 10**9}, {"copies": 0}, {"timeout": 1e300}, {"workers": "2"}])
def test_how_copies_are_stepped_is_checked_in_files_as_on_the_command_line(run, stepping):
    change_config(run, stepping=stepping)
    (name,) = stepping
    with pytest.raises(ValueError, match=f"cannot be resumed: {name} must be"):
        farflung.resume(run)
    with pytest.raises(ValueError, match=f"{name} must be"):
        farflung.hosted("FrozenLake-v1", **stepping)


def test_an_update_has_no_more_steps_than_can_be_counted(run):
    change_config(run, config={"batch_size": 2**31 - 1})
    with pytest.raises(ValueError, match=r"an update has [\d,]+ steps, but only"):
        farflung.resume(run)
    with pytest.raises(ValueError, match=r"an update has [\d,]+ steps, but only"):
        farflung.explore("room-det", batch_size=2**31 - 1)


def test_networks_that_do_not_fit_into_memory_are_not_made():
    with pytest.raises(ValueError, match=r"steps and [\d,]+ parameters, but only .* narrower networks \(--hidden\)"):
        farflung.explore("point-gap", agents=2, hidden=(2**31 - 1,), updates=1, seeds=(0,))
