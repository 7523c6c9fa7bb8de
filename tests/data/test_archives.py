import dataclasses
import json

import numpy as np
import pyarrow.parquet
import pytest
from tests.data.teams import COLUMNS, assert_same, assert_same_episodes, make_run

from farflung import collect, load_dataset, relabel, save_dataset
from farflung.data.episodes import in_pieces


@pytest.fixture(scope="module")
def data():
    """Episodes that end early and such that don't."""
    return collect(make_run("FrozenLake-v1", horizon=12), 50)


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
@pytest.mark.parametrize("at_once", [50, 7])
def test_a_file_is_read_back(data, tmp_path, suffix, at_once):
    contents = save_dataset(in_pieces([data], at_once), tmp_path / f"data{suffix}")
    assert (contents.num_episodes, contents.num_transitions) == (50, data.num_transitions)
    found = load_dataset(tmp_path / f"data{suffix}")
    assert_same(found, data)
    assert found.source.environment == data.source.environment
    np.testing.assert_array_equal(found.source.world.successors, data.source.world.successors)
    assert [path.name for path in tmp_path.iterdir()] == [f"data{suffix}"]


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_a_dataset_that_was_read_is_written_with_the_same_bytes(data, tmp_path, suffix):
    """As the parts of an interrupted collection are."""
    save_dataset(data, tmp_path / f"first{suffix}")
    save_dataset(load_dataset(tmp_path / f"first{suffix}"), tmp_path / f"second{suffix}")
    assert (tmp_path / f"first{suffix}").read_bytes() == (tmp_path / f"second{suffix}").read_bytes()


def test_other_programs_read_the_files(data, tmp_path):
    save_dataset(data, tmp_path / "data.npz")
    with np.load(tmp_path / "data.npz", allow_pickle=False) as arrays:
        for name in COLUMNS:
            np.testing.assert_array_equal(arrays[name], getattr(data, name))
    save_dataset(data, tmp_path / "data.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "data.parquet").to_pydict()
    steps = data.steps()
    assert table["observation"] == steps.observations.tolist()
    assert table["next_observation"] == steps.next_observations.tolist()
    assert table["action"] == steps.actions.tolist()
    assert table["reward"] == steps.rewards.tolist()
    assert np.bincount(table["episode"]).tolist() == data.lengths.tolist()
    assert sum(table["terminated"]) == data.terminated.sum()
    assert sum(table["terminated"]) + sum(table["truncated"]) == 50


def test_a_file_is_kept_unless_forced(data, tmp_path):
    path = tmp_path / "data.npz"
    save_dataset(data, path)
    with pytest.raises(ValueError, match="exists already"):
        save_dataset(relabel(data, goal=3), path)

    def failing():
        yield data
        raise OSError(28, "No space left on device")

    with pytest.raises(ValueError, match="No space left on device"):
        save_dataset(failing(), path, force=True)
    assert_same_episodes(load_dataset(path), data)
    save_dataset(data.rows(0, 3), path, force=True)
    assert len(load_dataset(path)) == 3


@pytest.mark.parametrize("name", ["data.npz", "data.parquet"])
@pytest.mark.parametrize("damage", ["missing", "empty", "truncated", "foreign"])
def test_a_damaged_file_is_an_error_of_one_line(data, tmp_path, name, damage):
    path = tmp_path / name
    if damage == "foreign" and name == "data.npz":
        np.savez(path, x=np.zeros(3))
    elif damage == "foreign":
        pyarrow.parquet.write_table(pyarrow.table({"x": [1]}), path)
    elif damage != "missing":
        save_dataset(data, path)
        path.write_bytes(b"" if damage == "empty" else path.read_bytes()[:-300])
    with pytest.raises(ValueError, match=r"there is no file|is not a dataset that can be read") as error:
        load_dataset(path)
    assert "\n" not in str(error.value)


def test_a_name_says_the_format(data, tmp_path):
    with pytest.raises(ValueError, match=r"ends with \.npz, \.parquet, \.h5, unlike data\.csv"):
        save_dataset(data, tmp_path / "data.csv")
    with pytest.raises(ValueError, match=r"neither an \.npz nor a \.parquet file"):
        load_dataset(tmp_path / "data.h5")


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_no_parts_or_parts_that_do_not_fit_are_refused_and_leave_no_file(data, tmp_path, suffix):
    path = tmp_path / f"data{suffix}"
    with pytest.raises(ValueError, match="there are no episodes"):
        save_dataset([], path)
    other = dataclasses.replace(data, rewards=data.rewards.astype(np.float64))
    with pytest.raises(ValueError, match="of the same types"):
        save_dataset([data, other], path)
    assert list(tmp_path.iterdir()) == []


def test_relabelled_rewards_keep_their_type(data, tmp_path):
    paid = relabel(data, reward=lambda states, actions, after: after / 7)
    save_dataset([data, paid], tmp_path / "data.npz")
    np.testing.assert_array_equal(load_dataset(tmp_path / "data.npz").rewards[50:], paid.rewards)


def test_the_metadata_of_parquet_are_where_readers_look(data, tmp_path):
    save_dataset(in_pieces([data], 20), tmp_path / "data.parquet")
    for metadata in (
        pyarrow.parquet.read_schema(tmp_path / "data.parquet").metadata,
        pyarrow.parquet.read_table(tmp_path / "data.parquet").schema.metadata,
    ):
        assert json.loads(metadata[b"farflung"])["config"]["world"] == "FrozenLake-v1"
    size = json.loads(pyarrow.parquet.read_metadata(tmp_path / "data.parquet").metadata[b"farflung_size"])
    assert (size["episodes"], size["transitions"]) == (50, data.num_transitions)
    assert (size["states"], size["pairs"]) == (np.count_nonzero(data.visits()), data.pairs().sum())
    assert load_dataset(tmp_path / "data.parquet").source.metadata["pairs"] == size["pairs"]
