"""Datasets whose authors mean no good."""

import json
import shutil

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from tests.fuzzing.broken import FIXTURES, VERSIONS, pack, unpack

from farflung import from_minari, load_dataset

DATA = FIXTURES / VERSIONS[-1] / "data"
LAKE = "others/lake-v0"


@pytest.fixture
def minari(tmp_path, monkeypatch):
    shutil.copytree(FIXTURES / VERSIONS[-1] / "minari", tmp_path / "minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path / "minari"


def change_metadata(minari, **changes):
    path = minari / LAKE / "data" / "metadata.json"
    path.write_text(json.dumps({name: value for name, value in (json.loads(path.read_text()) | changes).items() if value}))


def hostile_environment(trace):
    made = {"id": "FrozenLake-v1", "entry_point": "os:mkdir", "kwargs": {"path": str(trace)}, "additional_wrappers": []}
    return json.dumps(made | {"reward_threshold": None, "nondeterministic": False, "max_episode_steps": 4})


@pytest.mark.parametrize("has_spaces", [True, False])
def test_an_environment_that_is_any_program_is_not_run(minari, tmp_path, has_spaces):
    change_metadata(minari, env_spec=hostile_environment(tmp_path / "trace"))
    if has_spaces:
        found = from_minari(LAKE)
        assert (len(found), found.source.world) == (2, None)
    else:
        change_metadata(minari, observation_space=None)
        with pytest.raises(ValueError, match="does not say its observation_space"):
            from_minari(LAKE)
    assert not (tmp_path / "trace").exists()


def test_wrappers_of_an_environment_are_not_run(minari, tmp_path):
    path = minari / LAKE / "data" / "metadata.json"
    spec = json.loads(json.loads(path.read_text())["env_spec"])
    wrapper = {"name": "x", "entry_point": "os:mkdir", "kwargs": {"path": str(tmp_path / "trace")}}
    change_metadata(minari, env_spec=json.dumps(spec | {"additional_wrappers": [wrapper]}))
    assert from_minari(LAKE).source.world is None
    assert not (tmp_path / "trace").exists()


def external(file, path):
    other = path.with_name("other.hdf5")
    with h5py.File(other, "w") as elsewhere:
        elsewhere["secret"] = np.zeros(4)
    file["episode_0/observations"] = h5py.ExternalLink(str(other), "/secret")


def soft(file, _):
    file["episode_0/observations"] = h5py.SoftLink("/episode_1/observations")


def raw(file, path):
    secret = path.with_name("secret")
    secret.write_bytes(bytes(32))
    file["episode_0"].create_dataset("observations", (4,), "i8", external=[(str(secret), 0, 32)])


def virtual(file, path):
    layout = h5py.VirtualLayout((4,), "i8")
    layout[:] = h5py.VirtualSource(str(path), "episode_1/observations", (4,))
    file["episode_0"].create_virtual_dataset("observations", layout)


def huge(file, _):
    file["episode_0"].create_dataset("observations", (10**12,), "i8", chunks=(10**6,))


def of_text(file, _):
    file["episode_0"].create_dataset("observations", (4,), h5py.string_dtype())


def a_group(file, _):
    file["episode_0"].create_group("observations")


@pytest.mark.parametrize("trick", [external, soft, raw, virtual, huge, of_text, a_group])
def test_hdf5_that_leads_elsewhere_or_to_too_much_is_refused(minari, trick):
    path = minari / LAKE / "data" / "main_data.hdf5"
    with h5py.File(path, "a") as file:
        del file["episode_0/observations"]
        trick(file, path)
    with pytest.raises(ValueError, match=r"no part of the file itself|lie in another file|bytes of memory") as error:
        from_minari(LAKE)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"total_episodes": 10**15},
        {"observation_space": '{"type": "Box", "dtype": "float32", "shape": [1000000000], "low": 0, "high": 1}'},
        {"observation_space": '{"type": "Box", "dtype": "U1000000000", "shape": [1], "low": [0], "high": [1]}'},
        {"observation_space": '{"type": "Discrete", "dtype": "int64", "start": 0, "n": 1000000000000}'},
        {"observation_space": '{"type": "MultiBinary", "n": 1000000000000}'},
        {"data_format": "pickle"},
        {"env_spec": "[" * 100_000},
    ],
)
def test_metadata_that_ask_for_too_much_are_refused(minari, changes):
    change_metadata(minari, **changes)
    with pytest.raises(ValueError, match="cannot be read") as error:
        from_minari(LAKE)
    assert "\n" not in str(error.value)


def test_files_of_a_minari_dataset_lie_in_its_folder(minari):
    data = minari / "farflung" / "points-v0" / "data"
    (data / "1").rename(minari / "elsewhere")
    (data / "1").symlink_to(minari / "elsewhere")
    with pytest.raises(ValueError, match="1 leads out of its directory"):
        from_minari("farflung/points-v0")


def test_parquet_that_would_unfold_is_refused(tmp_path):
    """One long episode among a million short ones is a huge table."""
    table = pyarrow.parquet.read_table(DATA / "table.parquet")
    rows = 2 * 10**5
    repeated = pyarrow.table(
        {name: pyarrow.array([table[name][0].as_py()]).take(np.zeros(rows, int)) for name in table.column_names}
    )
    numbers = np.concatenate([np.zeros(rows // 2, int), np.arange(1, rows // 2 + 1)])
    many = repeated.set_column(table.column_names.index("episode"), "episode", pyarrow.array(numbers))
    pyarrow.parquet.write_table(
        many.replace_schema_metadata(pyarrow.parquet.read_metadata(DATA / "table.parquet").metadata),
        tmp_path / "many.parquet",
        compression="zstd",
    )
    with pytest.raises(ValueError, match="bytes of memory"):
        load_dataset(tmp_path / "many.parquet")


def test_numbers_that_no_world_has_are_refused(tmp_path):
    arrays = unpack(DATA / "table.npz")
    for name, value in (("observations", 43), ("observations", -1), ("actions", 4), ("lengths", 7), ("agents", -1)):
        broken = {key: np.array(array) for key, array in arrays.items()}
        broken[name].flat[0] = value
        (tmp_path / "data.npz").write_bytes(pack(broken))
        with pytest.raises(ValueError, match="is not a dataset that can be read"):
            load_dataset(tmp_path / "data.npz")
