import io
import json
import os
import pickle
import zipfile

import numpy as np
import pytest

from farflung.config import reading
from farflung.config.reading import check_version, member, parse_object, read_arrays, read_object, read_text


def archive(*members, compression=zipfile.ZIP_DEFLATED):
    """A zip file of names and contents."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as packed:
        for name, content in members:
            packed.writestr(name, content)
    return file.getvalue()


def header(shape, dtype="<f4"):
    """The header that NumPy writes before the numbers of an array."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()


def test_arrays_are_read_as_numpy_has_written_them(tmp_path):
    arrays = {"a": np.arange(6).reshape(2, 3), "b": np.asfortranarray(np.eye(3)), "c": np.array("text"), "d": np.array(True)}
    np.savez_compressed(tmp_path / "arrays.npz", **arrays)
    found = read_arrays(tmp_path / "arrays.npz")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


class Boom:
    def __reduce__(self):
        return os.mkdir, ("/tmp/farflung-was-here",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not an archive"),
        (b"PK\x05\x06", "is not an archive"),
        (archive(("x.npy", pickle.dumps(Boom()))), "magic string"),
        (archive(("x.npy", header((1,), "|O") + pickle.dumps([Boom()]))), "must hold numbers or a text, not object"),
        (archive(("x.npy", header((10**12,)) + b"1234")), "x.npy is not complete: its header has the shape"),
        (archive(("x.npy", header((2**40, 0)))), None),
        (archive(("x.npy", header((-1, -1)) + b"1234")), "is not complete"),
        (archive(("x.npy", header((2,), "<U4") + bytes(32))), "must hold numbers or a text"),
        (archive(("../x.txt", b"1")), "is not an array"),
        (archive(("x.npy", b"1"), compression=zipfile.ZIP_LZMA), "is not an array"),
        (archive(*[(f"{number}.npy", header(())) for number in range(1001)]), "1,001 arrays"),
    ],
)
def test_a_file_that_is_no_archive_of_arrays_is_refused_in_one_line(content, message):
    if message is None:
        assert read_arrays(content)["x"].size == 0
        return
    with pytest.raises(ValueError, match=message) as error:
        read_arrays(content)
    assert "\n" not in str(error.value)
    assert not os.path.exists("/tmp/farflung-was-here")  # noqa: PTH110


def test_a_bomb_is_not_unpacked(monkeypatch):
    monkeypatch.setattr(reading, "MOST_BYTES_UNPACKED", 10**6)
    zeros = archive(("x.npy", header((10**6,)) + bytes(4 * 10**6)))
    assert len(zeros) < 10_000
    with pytest.raises(ValueError, match=r"would take 4,000,\d+ bytes of memory"):
        read_arrays(zeros)
    dense = archive(("x.npy", header((10**6,)) + np.random.default_rng(0).bytes(4 * 10**6)))
    assert read_arrays(dense)["x"].size == 10**6  # a hundred times the size of the file is always fine


def test_two_arrays_of_one_name_are_refused():
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = archive(("x.npy", header(()) + bytes(4)), ("x.npy", header(()) + bytes(4)))
    with pytest.raises(ValueError, match="two arrays of the same name"):
        read_arrays(twice)


def test_no_link_leads_out_of_a_directory(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").symlink_to(tmp_path / "secret")
    (tmp_path / "run" / "other.json").symlink_to(tmp_path / "run" / "own")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    for name in ("config.json", "../secret", "/etc/hostname"):
        with pytest.raises(ValueError, match="leads out of its directory"):
            member(tmp_path / "run", name)
    assert member(tmp_path / "link", "other.json") == tmp_path / "link" / "other.json"


def test_only_files_of_a_sensible_size_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe is not a file"):
        read_text(tmp_path / "pipe")
    (tmp_path / "long").write_text("x" * 11)
    with pytest.raises(ValueError, match="long has 11 bytes, more than the limit of 10"):
        read_text(tmp_path / "long", 10)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested too deeply"),
        ("[]", "must be a JSON object, not list"),
        ("{", "Expecting"),
        ("9" * 5000, "4300 digits"),
    ],
)
def test_a_text_that_is_no_json_object_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        parse_object(text)


def test_a_broken_json_file_is_named(tmp_path):
    (tmp_path / "summary.json").write_text("{'a': 1}")
    with pytest.raises(ValueError, match=r"summary\.json: Expecting"):
        read_object(tmp_path / "summary.json")


def test_a_newer_format_is_refused_and_an_older_one_read():
    assert [check_version(version, 3) for version in (None, 1, 3, np.array(2))] == [1, 1, 3, 2]
    with pytest.raises(ValueError, match=r"it has format 4, of farflung '9\.9', and this farflung reads up to 3: install"):
        check_version(4, 3, "9.9")
    for strange in (0, -1, "3", True, 2.0, [], np.zeros(2), json.loads("1e9")):
        with pytest.raises(ValueError, match="whole number from 1 on"):
            check_version(strange, 3)
