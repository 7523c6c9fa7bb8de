import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
from tests.made_runs import rows_of

from farflung import explore, from_kernel, load_run, load_runs, save_run
from farflung.runs import run as runs
from farflung.runs.files import FORMAT_VERSION
from farflung.runs.pooling import pooled


@pytest.fixture(scope="module")
def run():
    return explore("maze-stoc", agents=2, batch_size=4, updates=30, log_every=7, seeds=(0, 3, 5), policy="time-dependent")


@pytest.fixture
def saved(run, tmp_path):
    save_run(run, tmp_path / "run")
    return tmp_path / "run"


def files(directory):
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_run_is_read_back_to_the_same_objects(run, saved):
    loaded = load_run(saved)
    assert loaded.config == run.config
    assert loaded.summary == json.loads(json.dumps(run.summary))
    np.testing.assert_array_equal(loaded.updates, run.updates)
    assert jax.tree.structure((loaded.world, loaded.policies)) == jax.tree.structure((run.world, run.policies))
    for found, expected in zip(
        jax.tree.leaves((loaded.metrics, loaded.world, loaded.policies)),
        jax.tree.leaves((run.metrics, run.world, run.policies)),
        strict=True,
    ):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def test_a_world_without_a_map_is_read_back(tmp_path):
    run = explore(from_kernel(np.eye(2)[::-1, None], [1.0, 0.0], horizon=2), agents=1, batch_size=1, updates=1, seeds=(0,))
    save_run(run, tmp_path / "pair")
    assert load_run(tmp_path / "pair").world.positions is None


def test_files_are_in_open_formats(saved):
    assert set(files(saved)) == {"config.json", "summary.json", "metrics.csv", "policies.npz", "world.npz", "playback.npz"}
    assert (saved / "metrics.csv").read_text().startswith("seed,update,steps,entropy,normalized_entropy,support,")
    with np.load(saved / "policies.npz", allow_pickle=False) as arrays:
        assert arrays["logits"].shape == (3, 2, 10, 43, 4)


def test_steps_count_every_copy_of_the_world(run):
    assert run.steps.tolist() == [update * 4 * 2 * 1 * 10 for update in run.updates.tolist()]


def test_final_values_average_over_the_last_percent():
    updates = np.array([1, 50, 100, 199, 200])
    metrics = runs.Metrics(*[np.arange(10, dtype=np.float32).reshape(2, 5)] * 7)
    assert runs.final_values(updates, metrics)["entropy"].tolist() == [3.5, 8.5]


def test_a_run_is_never_overwritten_without_force(run, saved):
    before = files(saved)
    with pytest.raises(ValueError, match=r"already holds a run.*--force"):
        save_run(run, saved)
    assert files(saved) == before
    save_run(dataclasses.replace(run, summary={**run.summary, "note": "new"}), saved, force=True)
    assert load_run(saved).summary["note"] == "new"
    assert [path.name for path in saved.parent.iterdir()] == ["run"]


def test_a_directory_with_other_things_in_it_is_never_replaced(run, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match="holds no run"):
        save_run(run, tmp_path, force=True)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_files_of_the_users_are_never_lost_to_force(run, saved, tmp_path):
    (saved / "notes.txt").write_text("insight")
    with pytest.raises(ValueError, match=r"holds more than a run \(notes.txt\)"):
        save_run(run, saved, force=True)
    assert (saved / "notes.txt").read_text() == "insight"
    other = tmp_path / "model"
    other.mkdir()
    (other / "config.json").write_text('{"hidden": 1}')
    with pytest.raises(ValueError, match="holds no run"):
        save_run(run, other, force=True)


def test_the_current_directory_keeps_its_identity(run, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    save_run(run, ".")
    assert load_run(".").config == run.config
    save_run(dataclasses.replace(run, summary={**run.summary, "note": "new"}), ".", force=True)
    assert load_run(tmp_path / "here").summary["note"] == load_run(".").summary["note"] == "new"


def test_a_link_to_a_directory_is_followed(run, tmp_path):
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    save_run(run, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert load_run(tmp_path / "target").config == run.config


def test_numbers_that_are_not_finite_are_null_in_json():
    assert runs.to_json({"a": [float("nan"), 1.5], "b": float("inf"), "c": "x"}) == '{"a": [null, 1.5], "b": null, "c": "x"}'


def test_an_unknown_seed_is_an_error(run):
    with pytest.raises(ValueError, match="seed 7 is not one of the run's: 0, 3, 5"):
        run.team(7)


def test_a_run_prints_in_one_line(run):
    entropy = run.metrics.entropy[:, -1].mean()
    assert str(run) == f"<Run in maze-stoc: 2 agents, 3 seeds, 30 updates, final entropy {entropy:.4f} nats>"


def test_an_empty_directory_is_used(run, tmp_path):
    (tmp_path / "empty").mkdir()
    save_run(run, tmp_path / "empty")
    assert load_run(tmp_path / "empty").config == run.config


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/farflung/run"])
def test_a_place_that_cannot_be_written_gives_one_line(run, tmp_path, place):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"cannot write|is a file") as error:
        save_run(run, tmp_path / place)
    assert "\n" not in str(error.value)


def test_a_write_that_fails_halfway_leaves_the_old_run_alone(run, saved, monkeypatch):
    before = files(saved)

    def full_disk(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full_disk)
    with pytest.raises(ValueError, match="No space left on device"):
        save_run(run, saved, force=True)
    assert files(saved) == before
    assert [path.name for path in saved.parent.iterdir()] == ["run"]


@pytest.mark.parametrize("name", ["config.json", "summary.json", "metrics.csv", "policies.npz", "world.npz"])
@pytest.mark.parametrize("damage", ["missing", "empty", "truncated"])
def test_a_damaged_run_gives_one_line(saved, name, damage):
    path = saved / name
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(b"" if damage == "empty" else path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match="is not a") as error:
        load_run(saved)
    assert "\n" not in str(error.value)


def test_a_run_from_before_there_were_presets_is_one_of_the_papers(saved, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(saved, old)
    header = json.loads((old / "config.json").read_text())
    known = ("world", "agents", "trajectories", "horizon", "slip", "batch_size", "updates", "learning_rate", "decay")
    known += ("optimizer", "credit", "policy", "single", "seeds", "log_every")
    header["config"] = {name: header["config"][name] for name in known}
    del header["checksum"]  # there was none
    (old / "config.json").write_text(json.dumps(header | {"format_version": 1}))
    config = load_run(old).config
    assert (config.preset, config.init_scale, config.entropy_bonus, config.steps_per_batch) == ("paper", 1.0, 0.0, 1)


def test_a_run_of_a_newer_format_is_refused(saved):
    header = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps({**header, "format_version": 99}))
    with pytest.raises(ValueError, match=f"it has format 99, .* reads up to {FORMAT_VERSION}: install a newer farflung"):
        load_run(saved)


def test_runs_of_the_same_settings_and_different_seeds_are_loaded_as_one(run, tmp_path):
    save_run(rows_of(run, 0, 2), tmp_path / "a")
    save_run(rows_of(run, 1), tmp_path / "b")
    (found,) = load_runs(tmp_path / "a", tmp_path / "b")
    assert found.config.seeds == (0, 5, 3)
    for seed in run.config.seeds:
        np.testing.assert_array_equal(found.team(seed).policies.logits, run.team(seed).policies.logits)
    expected = [run.metrics.entropy[run.config.seeds.index(seed)] for seed in found.config.seeds]
    np.testing.assert_array_equal(found.metrics.entropy, expected)
    assert sorted(found.summary["final"]["entropy"]) == sorted(run.summary["final"]["entropy"])
    assert found.summary["environment_steps"] == 2 * run.summary["environment_steps"]  # as the two parts say
    save_run(found, tmp_path / "together")
    assert load_run(tmp_path / "together").config == found.config


def test_a_seed_that_is_in_two_runs_and_runs_that_end_apart_are_told(run, tmp_path):
    save_run(run, tmp_path / "a")
    save_run(rows_of(run, 1), tmp_path / "b")
    with pytest.raises(ValueError, match=r"seed 3 of the same settings is in .*a and in .*b: leave one of them out"):
        load_runs(tmp_path / "a", tmp_path / "b")
    cut = dataclasses.replace(rows_of(run, 1), updates=run.updates[:2])
    with pytest.raises(ValueError, match="end after 30 and 7 updates"):
        pooled([rows_of(run, 0), cut])
    other = dataclasses.replace(run, config=dataclasses.replace(run.config, learning_rate=0.5))
    assert pooled([run, other]) == [run, other]
