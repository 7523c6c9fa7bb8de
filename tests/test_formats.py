"""Files of every version that there has been are read, and those of a newer one refused; `tests/fixtures/make.py` made them."""

import json
import shutil

import jax
import numpy as np
import pytest
from tests.fuzzing.broken import FIXTURES, VERSIONS, forget_checksums, pack, unpack

from farflung import TabularMDP, VectorWorld, from_minari, load_dataset, load_run, resume
from farflung.data.episodes import states_of
from farflung.runs.destinations import open_collection
from farflung.runs.files import FORMAT_VERSION
from farflung.worlds.hosted.tables import HostedTable
from farflung.worlds.hosted.vectors import HostedVectors

RUNS = {
    "table": ("maze-stoc", TabularMDP, (0, 5), [1.53629, 1.360644], [48, 96, 192, 288], 83.484527),
    "neural": ("point-gap", VectorWorld, (3,), [1.477899], [64, 128, 256, 384], 9.99252),
    "hosted": ("FrozenLake-v1", HostedTable, (1,), [1.221569], [50, 95, 188, 299], 527.634801),
    "vectors": ("CartPole-v1", HostedVectors, (2,), [1.365357], [64, 128, 256, 384], 12.426425),
}
"""The world, its kind, the seeds, their last entropies, the steps at each record, the sum of all parameters' magnitudes."""
CHANGED = {("v4", "hosted"): ("FrozenLake-v1", HostedTable, (1,), [1.447982], [50, 91, 173, 281], 446.388189)}
"""Since version 4, times after an episode's end have no weight in host-stepped tables."""


def test_there_are_files_of_the_version_that_is_written():
    assert [f"v{number}" for number in range(2, FORMAT_VERSION + 1)] == VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", RUNS)
def test_a_run_of_every_version_is_read(version, kind):
    world, kind_of_world, seeds, entropies, steps, magnitude = CHANGED.get((version, kind), RUNS[kind])
    run = load_run(FIXTURES / version / "runs" / kind)
    assert (run.config.world, run.config.seeds, run.steps.tolist()) == (world, seeds, steps)
    assert isinstance(run.world, kind_of_world)
    assert run.metrics.entropy[:, -1] == pytest.approx(entropies, rel=1e-5)
    assert run.summary["final"]["entropy"] == pytest.approx(entropies, rel=1e-5)
    found = sum(np.abs(np.asarray(leaf, np.float64)).sum() for leaf in jax.tree.leaves(run.policies))
    assert found == pytest.approx(magnitude, rel=1e-5)
    assert (run.paths is not None) == (kind in ("neural", "vectors"))
    assert (run.host_statistics is not None) == (kind in ("hosted", "vectors"))


@pytest.mark.parametrize("version", VERSIONS[1:])  # version 2 had no checkpoints
@pytest.mark.parametrize("kind", ["table", "hosted"])
def test_an_unfinished_training_of_every_version_resumes(version, kind, tmp_path):
    shutil.copytree(FIXTURES / version / "unfinished" / kind, tmp_path / "run")
    run, (world, _, seeds, entropies, _, magnitude) = resume(tmp_path / "run"), CHANGED.get((version, kind), RUNS[kind])
    assert (run.config.world, run.config.seeds) == (world, seeds)
    assert run.metrics.entropy[:, -1] == pytest.approx(entropies, rel=1e-5)
    assert np.abs(np.asarray(run.policies.logits, np.float64)).sum() == pytest.approx(magnitude, rel=1e-5)


@pytest.mark.parametrize("version", VERSIONS)
def test_datasets_of_every_version_and_kind_are_read(version, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(FIXTURES / version / "minari"))
    for suffix in ("npz", "parquet"):
        table, points = (load_dataset(FIXTURES / version / "data" / f"{name}.{suffix}") for name in ("table", "points"))
        assert (len(table), table.num_transitions, table.observations.sum(), table.actions.sum()) == (4, 24, 680, 42)
        assert (len(points), points.num_transitions) == (2, 16)
        assert points.observations.sum() == pytest.approx(-9.079193, rel=1e-5)
        np.testing.assert_array_equal(from_minari("farflung/table-v0").observations, table.observations[:2])
        np.testing.assert_array_equal(from_minari("farflung/points-v0").observations, points.observations)
    theirs = from_minari("others/lake-v0")
    assert (len(theirs), theirs.num_transitions, theirs.observations.sum(), theirs.actions.sum()) == (2, 9, 69, 13)
    assert states_of(theirs)[0].num_states == 16


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("command", ["reproduce", "ablate"])
def test_a_folder_of_results_of_every_version_is_opened(version, command, tmp_path):
    shutil.copytree(FIXTURES / version / command, tmp_path / "results")
    open_collection(tmp_path / "results", {"farflung": "0.1.0", "updates": 6, "seeds": [0, 5]})
    with pytest.raises(ValueError, match="with updates 6 instead of 7"):
        open_collection(tmp_path / "results", {"farflung": "0.1.0", "updates": 7, "seeds": [0, 5]})


@pytest.mark.parametrize("name", ["config.json", "summary.json", "policies.npz", "world.npz", "paths.npz"])
def test_a_newer_file_of_a_run_is_refused_in_one_line(name, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(FIXTURES / VERSIONS[-1] / "runs" / "neural", run)
    forget_checksums(run)
    if name.endswith(".json"):
        content = json.loads((run / name).read_text())
        assert content["format_version"] == FORMAT_VERSION
        (run / name).write_text(json.dumps(content | {"format_version": 99}))
    else:
        content = unpack(run / name)
        assert content["format_version"] == FORMAT_VERSION
        (run / name).write_bytes(pack(content | {"format_version": 99}))
    with pytest.raises(ValueError, match=f"format 99.*reads up to {FORMAT_VERSION}: install a newer farflung") as error:
        load_run(run)
    assert "\n" not in str(error.value)


def test_a_newer_dataset_or_folder_of_results_is_refused_in_one_line(tmp_path):
    arrays = unpack(FIXTURES / VERSIONS[-1] / "data" / "table.npz")
    about = json.loads(str(arrays["farflung"]))
    assert about["format_version"] == FORMAT_VERSION
    (tmp_path / "new.npz").write_bytes(pack(arrays | {"farflung": json.dumps(about | {"format_version": 99})}))
    with pytest.raises(ValueError, match="format 99"):
        load_dataset(tmp_path / "new.npz")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "contents.json").write_text('{"format_version": 99, "farflung": "9.0"}')
    with pytest.raises(ValueError, match=r"that cannot be read \(it has format 99, of farflung '9\.0'"):
        open_collection(tmp_path / "results", {"farflung": "0.1.0"})
