"""Small files that would fill the memory: each is refused before it is unpacked."""

import json
import shutil
import struct

import h5py
import numpy as np
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import pytest
from tests.fuzzing.broken import FIXTURES, VERSIONS

from farflung import from_minari, load_dataset
from farflung.config import reading
from farflung.data.columns import read_columns

NEWEST = FIXTURES / VERSIONS[-1]
POINTS = "farflung/points-v0"
ROWS = 10**6


@pytest.fixture
def minari(tmp_path, monkeypatch):
    shutil.copytree(NEWEST / "minari", tmp_path / "minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path / "minari"


def is_refused(read, *arguments):
    before = pyarrow.default_memory_pool().max_memory()
    with pytest.raises(ValueError, match="bytes of memory, more than the limit") as error:
        read(*arguments)
    assert "\n" not in str(error.value)
    assert pyarrow.default_memory_pool().max_memory() - before < 2 * 10**6


def test_an_archive_behind_a_hole_gets_no_more_memory_for_that(tmp_path):
    with (tmp_path / "data.npz").open("wb") as file:
        file.seek(9 * 2**30)
        file.write((NEWEST / "data" / "table.npz").read_bytes())
    is_refused(load_dataset, tmp_path / "data.npz")


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_arrow_buffers_that_say_they_are_huge_are_not_unpacked(minari, codec):
    (path,) = (minari / POINTS / "data" / "0").glob("*.arrow")
    table = pyarrow.ipc.open_file(path).read_all()
    zeros = np.zeros(4096)
    forged = table.slice(0, 1).take([0] * 4096).set_column(table.column_names.index("rewards"), "rewards", [zeros])
    options = pyarrow.ipc.IpcWriteOptions(compression=codec)
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_file(file, forged.schema, options=options) as writer:
        writer.write_table(forged)
    columns, _ = read_columns(path, ["rewards"], "arrow")
    assert columns["rewards"].shape == (4096,)
    content, size = path.read_bytes(), struct.pack("<q", zeros.nbytes)
    assert size in content
    path.write_bytes(content.replace(size, struct.pack("<q", 2**33)))
    is_refused(from_minari, POINTS)


def varint(number):
    """As Thrift's compact protocol writes a whole number."""
    number, found = 2 * number, b""
    while number > 0x7F:
        number, found = number >> 7, found + bytes([number & 0x7F | 0x80])
    return found + bytes([number])


def test_parquet_whose_footer_says_less_than_its_pages_is_not_unpacked(tmp_path, monkeypatch):
    source = pyarrow.parquet.read_table(NEWEST / "data" / "table.parquet")
    columns = {field.name: np.zeros(ROWS, field.type.to_pandas_dtype()) for field in source.schema}
    table = pyarrow.table(columns).replace_schema_metadata(source.schema.metadata)
    path = tmp_path / "many.parquet"
    options = {"use_dictionary": False, "compression": "zstd", "row_group_size": ROWS, "write_statistics": False}
    pyarrow.parquet.write_table(table, path, **options)
    names = ["episode", "observation"]
    assert read_columns(path, names, "parquet")[0]["observation"].shape == (ROWS,)
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    fewer = content[footer:].replace(varint(ROWS), varint(30_000))
    assert len(fewer) == len(content) - footer
    path.write_bytes(content[:footer] + fewer)
    assert pyarrow.parquet.read_metadata(path).num_rows == 30_000
    monkeypatch.setattr(reading, "MOST_BYTES_UNPACKED", 10**6)
    monkeypatch.setattr(reading, "MOST_TIMES_UNPACKED", 1)
    is_refused(read_columns, path, names, "parquet")


def test_a_chunk_of_hdf5_that_is_larger_than_its_column_is_not_unpacked(minari):
    path = minari / "others" / "lake-v0" / "data" / "main_data.hdf5"
    with h5py.File(path, "a") as file:
        old = file["episode_0/observations"][()]
        del file["episode_0/observations"]
        made = file["episode_0"].create_dataset("observations", old.shape, "i8", maxshape=(None,), chunks=(2**28,))
        assert made.nbytes < 100
    is_refused(from_minari, "others/lake-v0")


def test_values_of_json_count_with_what_python_needs_for_them(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MOST_BYTES_UNPACKED", 10**7)
    arrays = dict(np.load(NEWEST / "data" / "table.npz"))
    arrays["farflung"] = np.array(json.dumps(json.loads(str(arrays["farflung"])) | {"more": [[]] * 10**5}))
    assert arrays["farflung"].nbytes < 2 * 10**6
    np.savez_compressed(tmp_path / "data.npz", **arrays)
    is_refused(load_dataset, tmp_path / "data.npz")


@pytest.mark.parametrize("side", [4, 700])
def test_the_map_of_an_environment_has_a_limit(minari, side):
    path = minari / "others" / "lake-v0" / "data" / "metadata.json"
    metadata = json.loads(path.read_text())
    spec = json.loads(metadata["env_spec"])
    spec["kwargs"] = {"desc": ["S" + "F" * (side - 1)] * side, "is_slippery": False}
    path.write_text(json.dumps(metadata | {"env_spec": json.dumps(spec)}))
    if side == 4:
        assert from_minari("others/lake-v0").source.world.num_states == 16
    else:
        is_refused(from_minari, "others/lake-v0")


def test_arrow_metadata_that_hide_how_buffers_are_packed_are_refused(tmp_path):
    table = pyarrow.table({"rewards": np.zeros(3)})
    for version in pyarrow.ipc.MetadataVersion.V4, pyarrow.ipc.MetadataVersion.V5:
        options = pyarrow.ipc.IpcWriteOptions(metadata_version=version)
        with pyarrow.ipc.new_file(tmp_path / f"{version}.arrow", table.schema, options=options) as writer:
            writer.write_table(table)
    assert read_columns(tmp_path / "4.arrow", ["rewards"], "arrow")[0]["rewards"].shape == (3,)
    with pytest.raises(ValueError, match="old version of Arrow's metadata"):
        read_columns(tmp_path / "3.arrow", ["rewards"], "arrow")


def test_hdf5_that_is_packed_is_not_unpacked(minari):
    path = minari / "others" / "lake-v0" / "data" / "main_data.hdf5"
    with h5py.File(path, "a") as file:
        old = file["episode_0/rewards"][()]
        del file["episode_0/rewards"]
        file["episode_0"].create_dataset("rewards", data=old, compression="gzip")
    with pytest.raises(ValueError, match="rewards of episode 0 are packed, which Minari never does"):
        from_minari("others/lake-v0")


def test_hdf5_whose_attributes_are_no_numbers_is_refused(minari):
    with h5py.File(minari / "others" / "lake-v0" / "data" / "main_data.hdf5", "a") as file:
        file["episode_0"].attrs["seed"] = np.zeros(1000)
    with pytest.raises(ValueError, match="the seed of an episode must be a whole number"):
        from_minari("others/lake-v0")


@pytest.fixture
def pages(tmp_path):
    """A Parquet file whose one column has a dictionary, and where the page after that begins."""
    path = tmp_path / "pages.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"x": [1.5, 2.5] * 10}), path, compression="none", write_statistics=False)
    chunk = pyarrow.parquet.read_metadata(path).row_group(0).column(0)
    assert read_columns(path, ["x"], "parquet")[0]["x"].shape == (20,)
    return path, chunk.data_page_offset


def test_the_header_of_a_parquet_page_ends(pages):
    path, page = pages
    content = bytearray(path.read_bytes())
    content[page : page + 8] = b"\x19\xf7" + bytes([0x80] * 5) + b"\x40"  # a list of 2^41 numbers of 8 bytes
    path.write_bytes(content)
    with pytest.raises(ValueError, match="a header that is too long"):
        read_columns(path, ["x"], "parquet")


@pytest.mark.parametrize(
    ("header", "forged"),
    [
        (b"\x4c\x15\x04\x15\x00", b"\x4c\x15\x7e\x15\x00"),  # a dictionary with 63 values instead of 2
        (b"\x2c\x15\x28\x15\x10", b"\x2c\x15\x7e\x15\x10"),  # a page with 63 values instead of 20
        (b"\x2c\x15\x28\x15\x10", b"\x2c\x15\x28\x15\x0a"),  # DELTA_BINARY_PACKED
    ],
)
def test_a_parquet_page_with_more_values_than_its_column_or_an_odd_encoding_is_refused(pages, header, forged):
    path, *_ = pages
    content = path.read_bytes()
    assert content.count(header) == 1
    path.write_bytes(content.replace(header, forged))
    with pytest.raises(ValueError, match="a page has too many values, or an encoding"):
        read_columns(path, ["x"], "parquet")
