import json

import hypothesis.strategies as st
import pyarrow.parquet
import pytest
from hypothesis import given
from tests.fuzzing.broken import (
    FIXTURES,
    VERSIONS,
    changed,
    changed_arrays,
    damages,
    examples,
    one_line_errors_only,
    pack,
    temporary_copy,
    unpack,
)

from farflung import from_minari, load_dataset
from farflung.data.episodes import Contents, states_of

DATA, MINARI = FIXTURES / VERSIONS[-1] / "data", FIXTURES / VERSIONS[-1] / "minari"
IDS = ("farflung/table-v0", "farflung/points-v0", "others/lake-v0")


def look_at(dataset):
    """As commands do that learn from it."""
    list(Contents().counting([dataset]))
    if not dataset.has_vectors:
        states_of(dataset)


@pytest.mark.parametrize("name", ["table.npz", "points.npz", "table.parquet", "points.parquet"])
@examples(0.4)
@given(damage=damages())
def test_a_broken_file_is_an_error_of_one_line(name, damage):
    with temporary_copy(DATA) as folder:
        damage(folder / name)
        with one_line_errors_only():
            look_at(load_dataset(folder / name))


@pytest.mark.parametrize("name", ["table.npz", "points.npz"])
@examples(0.6)
@given(data=st.data())
def test_arrays_with_other_contents_are_an_error_of_one_line(name, data):
    arrays = unpack(DATA / name)
    if data.draw(st.booleans()):
        arrays["farflung"] = json.dumps(data.draw(changed(json.loads(str(arrays["farflung"])))))
    else:
        arrays = data.draw(changed_arrays(arrays))
    with temporary_copy(DATA) as folder:
        (folder / name).write_bytes(pack(arrays))
        with one_line_errors_only():
            look_at(load_dataset(folder / name))


@pytest.mark.parametrize("name", ["table.parquet", "points.parquet"])
@examples(0.5)
@given(data=st.data())
def test_columns_with_other_contents_are_an_error_of_one_line(name, data):
    table = pyarrow.parquet.read_table(DATA / name)
    about = json.loads(pyarrow.parquet.read_metadata(DATA / name).metadata[b"farflung"])
    place = data.draw(st.integers(0, table.num_columns - 1))
    how, value = data.draw(st.integers(0, 3)), data.draw(st.sampled_from([0, 1, -1, 2**40, None, 0.5, "x", [1.0], True]))
    if how == 0:
        about = data.draw(changed(about))
    elif how == 1:
        table = table.remove_column(place)
    elif how == 2:
        table = table.set_column(place, table.column_names[place], pyarrow.array([value] * table.num_rows))
    else:
        table = table.slice(data.draw(st.integers(0, table.num_rows)))
    table = table.replace_schema_metadata({"farflung": json.dumps(about)})
    with temporary_copy(DATA) as folder:
        pyarrow.parquet.write_table(table, folder / name)
        with one_line_errors_only():
            look_at(load_dataset(folder / name))


@pytest.mark.parametrize("dataset_id", IDS)
@examples(0.3)
@given(data=st.data(), damage=damages())
def test_a_minari_dataset_with_a_broken_file_is_an_error_of_one_line(dataset_id, data, damage):
    with temporary_copy(MINARI) as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(folder))
        damage(data.draw(st.sampled_from([path for path in sorted((folder / dataset_id).rglob("*")) if path.is_file()])))
        with one_line_errors_only():
            look_at(from_minari(dataset_id))


@pytest.mark.parametrize("dataset_id", IDS)
@examples(0.4)
@given(data=st.data())
def test_minari_metadata_with_other_contents_are_an_error_of_one_line(dataset_id, data):
    with temporary_copy(MINARI) as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(folder))
        path = folder / dataset_id / "data" / "metadata.json"
        metadata = json.loads(path.read_text())
        inner = data.draw(st.sampled_from(["observation_space", "action_space", "env_spec", ""]))
        if inner in metadata:
            metadata[inner] = json.dumps(data.draw(changed(json.loads(metadata[inner]))))
        else:
            metadata = data.draw(changed(metadata))
        path.write_text(json.dumps(metadata))
        with one_line_errors_only():
            look_at(from_minari(dataset_id))


def test_what_was_not_broken_is_read(monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(MINARI))
    for dataset in (*map(load_dataset, sorted(DATA.iterdir())), *map(from_minari, IDS)):
        look_at(dataset)
        assert len(dataset) in (2, 4)
