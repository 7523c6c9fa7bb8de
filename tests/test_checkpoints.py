import dataclasses
import hashlib
import io
import json
import os
import shutil
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from tests.made_runs import made_metrics

import farflung
from farflung import Explore, explore, load_run, make_tabular_world, resume
from farflung.algorithms.pgpse import PGPSE
from farflung.policies import TabularSoftmax
from farflung.runs.checkpoints import CheckpointWarning, new_checkpoints, open_checkpoints
from farflung.runs.run import world_to_bytes
from farflung.training.loop import train
from farflung.training.progress import Arrays, Progress, are_finite, divergence_of, restored

CONFIG = Explore("maze-det", agents=2, batch_size=4, updates=60, seeds=(3, 8), log_every=5)
QUICK = {"agents": 2, "batch_size": 4, "updates": 60, "seeds": (3, 8), "log_every": 5}
WORLD = make_tabular_world("maze-det")


class CutError(Exception):
    """An error that the training does not handle."""


def arrays(update, value=1.0):
    team = TabularSoftmax(jnp.full((2, 2, 3, 4), value))
    return Arrays(jr.split(jr.key(7), 2), {"team": team, "count": jnp.array([update, update])}, None)


def progress(update, value=1.0):
    made = arrays(update, value)
    return Progress(update, np.array([update]), made_metrics(value), made.state["team"], 2, arrays=made).training_state


def cut_after(updates):
    def on_progress(status):
        if status.update >= updates:
            raise CutError

    return on_progress


def same(one, other):
    """Whether two runs agree to the last bit."""
    np.testing.assert_array_equal(one.updates, other.updates)
    np.testing.assert_array_equal(one.steps, other.steps)
    for name, column in one.metrics.columns.items():
        np.testing.assert_array_equal(column, other.metrics.columns[name], err_msg=name)
    jax.tree.map(np.testing.assert_array_equal, one.policies, other.policies)
    assert one.summary["final"] == other.summary["final"]


@pytest.fixture
def checkpointer(tmp_path):
    with new_checkpoints(tmp_path / "run", CONFIG, WORLD) as checkpointer:
        yield checkpointer


def test_a_checkpoint_holds_everything_that_a_training_needs_to_continue(checkpointer):
    records = checkpointer.new_metrics_table()
    records.add(np.array([5]), np.array([50]), made_metrics(0.3))
    checkpointer.write(progress(5, 0.25), records, 1.5)
    found = checkpointer.latest()
    assert (found.training_state.update, found.seconds) == (5, 1.5)
    expected = arrays(5)
    keys, state, _ = restored(expected, found.training_state.leaves)
    np.testing.assert_array_equal(jr.key_data(keys), jr.key_data(expected.keys))
    assert (np.asarray(state["team"].logits) == 0.25).all()
    np.testing.assert_array_equal(found.records.table()[0], [5])
    with pytest.raises(ValueError, match="does not fit the settings"):
        restored({"other": jnp.zeros(2)}, found.training_state.leaves)


def test_three_checkpoints_remain(checkpointer):
    for update in (1, 2, 3, 4):
        checkpointer.write(progress(update), checkpointer.new_metrics_table(), 0.0)
    assert [path.name[:21] for path in sorted(checkpointer.folder.glob("checkpoint*"))] == [
        f"checkpoint-{update:010d}" for update in (2, 3, 4)
    ]


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "metrics"])
def test_a_broken_checkpoint_is_named_and_the_one_before_is_used(checkpointer, damage):
    records = checkpointer.new_metrics_table()
    for update in (1, 2):
        records.add(np.array([update]), np.array([update]), made_metrics(update))
        checkpointer.write(progress(update), records, 0.0)
    last = sorted(checkpointer.folder.glob("checkpoint*"))[-1]
    broken = checkpointer.folder / "metrics.csv" if damage == "metrics" else last
    content = bytearray(broken.read_bytes())
    if damage == "truncated":
        content = content[: len(content) // 2]
    elif damage == "empty":
        content = b""
    elif damage == "flipped":
        content[len(content) // 2] ^= 4
    else:
        content[-3] ^= 4
    broken.write_bytes(content)
    with pytest.warns(CheckpointWarning, match=f"{last.name} is skipped: .*damaged"):
        assert checkpointer.latest().training_state.update == 1


def test_a_training_never_starts_again_because_its_checkpoints_are_damaged(checkpointer):
    for update in (1, 2):
        checkpointer.write(progress(update), checkpointer.new_metrics_table(), 0.0)
    paths = sorted(checkpointer.folder.glob("checkpoint*"))
    paths[1].write_bytes(b"")
    with pytest.warns(CheckpointWarning, match=f"{paths[1].name} is skipped"):
        assert checkpointer.latest().training_state.update == 1
    checkpointer.write(progress(2, 0.5), checkpointer.new_metrics_table(), 0.0)
    assert paths[0] in checkpointer.folder.iterdir()
    assert paths[1] not in checkpointer.folder.iterdir()  # the one that was skipped makes way for the new one
    assert checkpointer.latest().training_state.update == 2
    for path in checkpointer.folder.glob("checkpoint*"):
        path.write_bytes(b"")
    with (
        pytest.warns(CheckpointWarning),
        pytest.raises(ValueError, match=r"no checkpoint of .*run can be read: start"),
    ):
        checkpointer.latest()


@pytest.mark.parametrize(
    "edit",
    [
        {"update": "5"},
        {"update": True},
        {"update": 61},
        {"update": 4},
        {"update": 5.5},
        {"seconds": "x"},
        {"seconds": float("nan")},
        {"metrics": {"bytes": -5, "crc32": 0}},
        {"num_leaves": 9},
        {"num_leaves": None},
        {"leaf0": np.zeros((1, 2), np.uint32)},
        {"leaf0": np.zeros((), np.float32)},
        {"leaf1": np.full((2, 2, 3, 4), np.nan, np.float32)},
        {"moments": np.array([5])},
        {"moments": np.array([9]), "shown": np.zeros((1, 2, 1, 1, 1, 2), np.int32)},
        {"moments": np.array([5]), "shown": np.full((1, 2, 1, 1, 1, 2), 99, np.int32)},
        {"moments": np.array(["5"])},
    ],
)
def test_a_checkpoint_that_no_training_has_written_is_skipped(checkpointer, edit):
    records = checkpointer.new_metrics_table()
    records.add(np.array([5]), np.array([50]), made_metrics(0.3))
    checkpointer.write(progress(5), records, 1.5)
    (path,) = checkpointer.folder.glob("checkpoint*")
    with np.load(path) as found:
        arrays = dict(found)
    about = json.loads(str(arrays["about"]))
    assert {name for name in arrays if name != "about"} == {"leaf0", "leaf1", "leaf2", "moments", "shown"}
    arrays |= {name: value for name, value in edit.items() if name in arrays}
    about |= {name: value for name, value in edit.items() if name in about}
    file = io.BytesIO()
    np.savez(file, **(arrays | {"about": np.array(json.dumps(about))}))
    path.unlink()
    digest = hashlib.sha256(file.getvalue()).hexdigest()[:16]  # anyone can compute that
    (checkpointer.folder / f"checkpoint-0000000005-{digest}.npz").write_bytes(file.getvalue())
    with pytest.warns(CheckpointWarning, match="is skipped"), pytest.raises(ValueError, match="no checkpoint"):
        checkpointer.latest()


@pytest.mark.parametrize("name", ["unfinished", "lock", "metrics.csv", "pipe"])
def test_nothing_is_written_or_removed_where_a_link_leads(tmp_path, name):
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "letter").write_text("dear")
    with new_checkpoints(tmp_path / "run", CONFIG, WORLD) as checkpointer:
        checkpointer.write(progress(5), checkpointer.new_metrics_table(), 1.5)
    folder = tmp_path / "run" / "unfinished"
    if name == "unfinished":
        shutil.move(folder, tmp_path / "others" / name)
        folder.symlink_to(tmp_path / "others" / name)
        with pytest.raises(ValueError, match="unfinished is a symbolic link, which is never followed"):
            explore("maze-det", **QUICK, out=tmp_path / "run", force=True)
        assert len(list((tmp_path / "others" / name).iterdir())) == 3
    elif name == "pipe":
        os.mkfifo(folder / "metrics.csv")
    else:
        (folder / name).symlink_to(tmp_path / "others" / "letter")
    with pytest.raises(ValueError, match=r"is a link or a pipe|is a symbolic link, which is never followed"):
        resume(tmp_path / "run")
    assert (tmp_path / "others" / "letter").read_text() == "dear"


def test_a_training_resumes_only_in_its_own_world(tmp_path):
    with new_checkpoints(tmp_path / "run", CONFIG, WORLD) as checkpointer:
        checkpointer.write(progress(5), checkpointer.new_metrics_table(), 1.5)
    with pytest.raises(ValueError, match="its training was started in another world"):
        resume(tmp_path / "run", world=make_tabular_world("maze-stoc"))
    (tmp_path / "run" / "unfinished" / "world.npz").write_bytes(world_to_bytes(make_tabular_world("maze-stoc")))
    with pytest.raises(ValueError, match=r"world\.npz is damaged"):
        resume(tmp_path / "run")
    with pytest.raises(ValueError, match="File name too long"):
        resume("a" * 5000)


def test_a_checkpoint_is_due_after_a_number_of_updates_or_minutes(checkpointer, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    checkpointer.write(progress(10), checkpointer.new_metrics_table(), 0.0)
    clock[0] = 119.0
    assert not checkpointer.is_due(1000)
    checkpointer.num_updates = 20
    assert [checkpointer.is_due(update) for update in (29, 30)] == [False, True]
    clock[0] = 120.0
    assert checkpointer.is_due(11)
    assert not checkpointer.is_due(10)


def test_a_full_disk_warns_once_and_training_continues(checkpointer, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    records = checkpointer.new_metrics_table()
    records.add(np.array([1]), np.array([1]), made_metrics(1.0))
    with monkeypatch.context() as patched:
        patched.setattr("farflung.runs.metrics_table.append", full)
        with pytest.warns(CheckpointWarning, match="of update 1 could not be written: No space left on device"):
            checkpointer.write(progress(1), records, 0.0)
        checkpointer.write(progress(2), records, 0.0)  # warnings are errors here
    checkpointer.write(progress(3), records, 0.0)
    np.testing.assert_array_equal(checkpointer.latest().records.table()[0], [1])


def test_two_processes_never_work_in_one_run(checkpointer):
    out = checkpointer.place.folder
    with pytest.raises(ValueError, match=r"run is in use by process \d+ on "), open_checkpoints(out):
        pass
    with pytest.raises(ValueError, match="is in use by process"), new_checkpoints(out, CONFIG, WORLD):
        pass
    with pytest.raises(ValueError, match="is in use by process"):
        explore("maze-det", **QUICK, out=out, force=True)


def test_a_training_without_a_checkpoint_leaves_nothing_behind(tmp_path):
    with new_checkpoints(tmp_path / "run", CONFIG, WORLD):
        pass
    assert list(tmp_path.iterdir()) == []
    with (
        pytest.raises(ValueError, match="holds no unfinished training"),
        open_checkpoints(tmp_path / "run"),
    ):
        pass


@pytest.mark.bits
def test_a_resumed_training_ends_where_an_uninterrupted_one_ends(tmp_path, monkeypatch):
    whole = explore("maze-det", **QUICK)
    with pytest.raises(CutError):
        explore("maze-det", **QUICK, out=tmp_path / "run", checkpoint_updates=7, on_progress=cut_after(20))
    assert (tmp_path / "run" / "unfinished").is_dir()
    with pytest.raises(ValueError, match=r"run holds an unfinished training: finish it with farflung resume .*run$"):
        load_run(tmp_path / "run")
    with pytest.raises(
        ValueError, match=r"unfinished training: finish it with farflung resume .*run, or discard it with --force"
    ):
        explore("maze-det", **{**QUICK, "seeds": (1,)}, out=tmp_path / "run")
    with pytest.raises(CutError):
        resume(tmp_path / "run", on_progress=cut_after(41))
    seen, devices = [], jax.local_devices()
    monkeypatch.setattr("jax.local_devices", lambda: devices[:1])  # on a smaller machine
    resumed = resume(tmp_path / "run", on_progress=seen.append)
    assert seen[1].update >= 41  # the first says that it compiles
    same(resumed, whole)
    same(load_run(tmp_path / "run"), whole)
    assert not (tmp_path / "run" / "unfinished").exists()
    with pytest.raises(ValueError, match="run is finished: there is nothing to resume"):
        resume(tmp_path / "run")


def test_a_training_that_finished_but_was_not_saved_is_only_saved(tmp_path, monkeypatch):
    def full(*_, **__):
        raise ValueError("cannot write: No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("farflung.runs.run.save_run", full)
        with pytest.raises(ValueError, match=r"No space .*; continue from the last checkpoint with farflung resume .*run$"):
            explore("maze-det", **QUICK, out=tmp_path / "run")
    same(resume(tmp_path / "run"), explore("maze-det", **QUICK))


def test_networks_resume_bit_for_bit(tmp_path):
    settings = {"agents": 2, "batch_size": 2, "updates": 8, "seeds": (0, 1), "log_every": 1, "hidden": (8,)}
    world = farflung.make_vector_world("point-gap", horizon=8)
    with pytest.raises(CutError):
        explore(world, **settings, out=tmp_path / "run", checkpoint_updates=1, on_progress=cut_after(3))
    same(resume(tmp_path / "run"), explore(world, **settings))


def test_a_hosted_world_resumes_with_its_numbered_states(tmp_path):
    settings = {"agents": 2, "batch_size": 2, "updates": 8, "seeds": (0, 1), "log_every": 1}
    lake = {"horizon": 6, "observe": "s", "copies": 4}
    world = farflung.hosted("FrozenLake-v1", **lake)
    with pytest.raises(CutError):
        explore(world, **settings, out=tmp_path / "run", checkpoint_updates=1, on_progress=cut_after(3))
    resumed, whole = resume(tmp_path / "run"), explore(farflung.hosted("FrozenLake-v1", **lake), **settings)
    same(resumed, whole)
    np.testing.assert_array_equal(resumed.world.index.features, whole.world.index.features)
    np.testing.assert_array_equal(resumed.host_statistics.visits, whole.host_statistics.visits)


def test_a_training_that_diverges_stops_right_before(tmp_path):
    settings = {**QUICK, "log_every": 1, "optimizer": "adam", "learning_rate": 1e38, "out": tmp_path / "run"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = explore("maze-det", **settings, checkpoint_updates=1)
    update = run.summary["updates"]
    assert f"in update {update + 1} the policy of agent " in run.summary["stopped_because"]
    assert run.summary["stopped_because"].endswith("was no longer finite, so training stopped: try a learning rate below 1e+38")
    assert np.isfinite(np.asarray(run.policies.logits)).all()
    assert (tmp_path / "run" / "unfinished").is_dir()
    with open_checkpoints(tmp_path / "run") as checkpointer:
        assert checkpointer.latest().training_state.update == update
    (tmp_path / "run" / "notes.txt").write_text("lower it next time")
    again = resume(tmp_path / "run")
    assert again.summary["stopped_because"] == run.summary["stopped_because"]
    same(load_run(tmp_path / "run"), again)


@pytest.mark.parametrize("world", [WORLD, farflung.hosted("FrozenLake-v1", horizon=6)])
def test_a_team_that_is_not_finite_from_the_start_is_not_trained(world):
    broken = eqx.tree_at(lambda algorithm: algorithm.init_scale, PGPSE(num_agents=2, batch_size=2), np.inf)
    with pytest.raises(ValueError, match=r"state\.team.* is not finite before the first update: for pgpse, lower init_scale"):
        list(train(broken, world, (0,), 2))


def test_a_divergence_names_the_agent():
    logits = np.zeros((2, 3, 4, 5))
    logits[1, 2, 0, 0] = np.inf
    team = TabularSoftmax(jnp.asarray(logits))
    finite = np.asarray(are_finite((team, jnp.zeros(2, jnp.int32))))
    np.testing.assert_array_equal(finite, [True, False])
    assert divergence_of(9, team, finite) == (9, 1, 2)
    assert divergence_of(9, TabularSoftmax(jnp.zeros((2, 3, 4, 5))), finite) == (9, 1, None)


@pytest.mark.parametrize("name", ["config.json", "metrics.csv", "policies.npz", "summary.json", "world.npz"])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty"])
def test_a_damaged_file_of_a_run_is_named(saved_run, tmp_path, name, damage):
    shutil.copytree(saved_run, tmp_path / "run")
    path = tmp_path / "run" / name
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 4
    path.write_bytes({"truncated": content[: len(content) // 2], "empty": b"", "flipped": content}[damage])
    with pytest.raises(ValueError, match="is not a run that can be read"):
        load_run(tmp_path / "run")


@pytest.fixture(scope="module")
def saved_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "run"
    explore("maze-det", **QUICK, out=path)
    return path


def test_force_discards_an_unfinished_training(tmp_path):
    with pytest.raises(CutError):
        explore("maze-det", **QUICK, out=tmp_path / "run", checkpoint_updates=7, on_progress=cut_after(20))
    run = explore("maze-det", **{**QUICK, "seeds": (1,)}, out=tmp_path / "run", force=True)
    assert dataclasses.asdict(load_run(tmp_path / "run").config) == dataclasses.asdict(run.config)
