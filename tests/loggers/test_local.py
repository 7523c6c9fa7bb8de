import json
import struct

import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData
from tensorboardX.record_writer import masked_crc32c

import farflung
from farflung.loggers import CSV, TensorBoard

QUICK = {"agents": 2, "batch_size": 4, "preset": "paper", "updates": 40, "log_every": 7, "seeds": (0, 3)}
WORLD = farflung.gridworld("S...\n....", horizon=4)


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """A run, the content of the CSV file after each call of the logger, and the folder of the logs."""
    directory = tmp_path_factory.mktemp("logs")
    watched = []

    class Watching(CSV):
        def log(self, records):
            super().log(records)
            watched.append((directory / "metrics.csv").read_text())

    run = farflung.explore(WORLD, **QUICK, loggers=[TensorBoard(directory), Watching(directory)])
    return run, watched, directory


def events(folder):
    """The events of a folder's only file; each record's checksums must hold."""
    (path,) = folder.iterdir()
    data, found = path.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        body = data[12 : 12 + length]
        checksums = struct.unpack("<I", data[8:12]) + struct.unpack("<I", data[12 + length : 16 + length])
        assert checksums == (masked_crc32c(data[:8]), masked_crc32c(body))
        found.append(Event.FromString(body))
        data = data[16 + length :]
    return found


def scalars(folder, tag):
    return [(event.step, value.simple_value) for event in events(folder) for value in event.summary.value if value.tag == tag]


def test_event_files_hold_each_seeds_curves_over_environment_steps(logged):
    run, _, directory = logged
    for row, seed in enumerate(run.config.seeds):
        folder = directory / f"seed-{seed}"
        assert events(folder)[0].file_version == "brain.Event:2"
        for name, values in run.metrics.columns.items():
            assert scalars(folder, f"team/{name}") == list(zip(run.steps.tolist(), values[row].tolist(), strict=True))
        assert [update for _, update in scalars(folder, "update")] == run.updates.tolist()


def test_event_files_hold_hyperparameters_and_final_values(logged):
    run, _, directory = logged
    found = events(directory / "seed-3")
    (settings,) = [
        HParamsPluginData.FromString(value.metadata.plugin_data.content).session_start_info.hparams
        for event in found
        for value in event.summary.value
        if value.tag == "_hparams_/session_start_info"
    ]
    assert settings["world"].string_value == "custom"
    assert (settings["agents"].number_value, settings["seed"].number_value) == (2, 3)
    assert settings["learning_rate"].number_value == run.config.learning_rate
    ((step, value),) = scalars(directory / "seed-3", "final/percent_of_ceiling")
    assert (step, value) == (run.steps[-1], pytest.approx(run.summary["percent_of_ceiling"][1]))
    assert found[-1].summary.value[0].tag == "_hparams_/session_end_info"


def test_only_metrics_that_were_measured_are_declared(logged):
    run, _, directory = logged
    (declared,) = [
        HParamsPluginData.FromString(value.metadata.plugin_data.content).experiment.metric_infos
        for event in events(directory / "seed-3")
        for value in event.summary.value
        if value.tag == "_hparams_/experiment"
    ]
    expected = {*run.metrics.columns, "percent_of_ceiling"}
    assert {info.name.tag for info in declared} == {f"final/{name}" for name in expected}
    assert "particle_entropy" not in expected


def test_the_csv_file_holds_exactly_what_the_run_does(logged):
    run, _, directory = logged
    table = np.genfromtxt(directory / "metrics.csv", delimiter=",", names=True)
    assert table.dtype.names == ("seed", "update", "steps", *run.metrics.columns)
    for row, seed in enumerate(run.config.seeds):
        own = table[table["seed"] == seed]
        np.testing.assert_array_equal(own["update"], run.updates)
        np.testing.assert_array_equal(own["steps"], run.steps)
        for name, values in run.metrics.columns.items():
            np.testing.assert_array_equal(own[name].astype(np.float32), values[row])


def test_the_csv_file_grows_by_whole_rows_while_the_team_learns(logged):
    run, watched, directory = logged
    assert len(watched) > 1
    for earlier, later in zip(watched, [*watched[1:], (directory / "metrics.csv").read_text()], strict=True):
        assert later.startswith(earlier)
        assert earlier.endswith("\n")
        assert {line.count(",") for line in earlier.splitlines()} == {2 + len(run.metrics.columns)}


def test_config_and_final_values_lie_beside_the_csv_file(logged):
    run, _, directory = logged
    assert json.loads((directory / "config.json").read_text())["agents"] == 2
    final = np.genfromtxt(directory / "final.csv", delimiter=",", names=True)
    assert final["seed"].tolist() == [0, 3]
    assert final["support"].tolist() == run.summary["final"]["support"]


@pytest.mark.parametrize("logger", [TensorBoard, CSV])
def test_a_former_log_is_never_overwritten(logged, logger):
    _, _, directory = logged
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=f"cannot log to {logger.__name__}: .* already exists: choose another directory"):
        farflung.explore(WORLD, updates=10**9, loggers=[logger(directory)])
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before
