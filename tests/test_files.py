import os
import shutil
import subprocess
import sys

import pytest

from farflung.runs.destinations import locked
from farflung.runs.files import _with_numbered_ids

HOLD = """
import sys
from pathlib import Path
from farflung.runs.destinations import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def test_the_lock_of_another_process_is_an_error_until_that_process_ends(folder):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "locked\n"
        for _ in range(2):  # the first attempt must not erase the holder's name
            with pytest.raises(ValueError, match=rf"run is in use by process {holder.pid} on {os.uname().nodename}$"):
                locked(folder).__enter__()
        holder.kill()
        holder.wait()
        assert (folder / "lock").exists()
        with locked(folder):
            pass
    assert list(folder.iterdir()) == []


def test_a_holder_removes_no_lock_but_its_own(folder):
    with locked(folder):
        shutil.rmtree(folder)
        folder.mkdir()
        other = locked(folder)
        other.__enter__()
    with pytest.raises(ValueError, match="run is in use by process"), locked(folder):
        pass
    other.__exit__(None, None, None)
    assert list(folder.iterdir()) == []


def test_a_folder_may_be_renamed_while_it_is_locked(folder):
    with locked(folder):
        folder.rename(folder.with_name("renamed"))
        folder.mkdir()
        with locked(folder):
            assert [path.name for path in folder.iterdir()] == ["lock"]
        assert list(folder.iterdir()) == []


def test_a_lock_that_is_a_link_is_not_followed(folder, tmp_path):
    (tmp_path / "letter").write_text("dear")
    (folder / "lock").symlink_to(tmp_path / "letter")
    with pytest.raises(ValueError, match=r"cannot write to .*run"), locked(folder):
        pass
    assert (tmp_path / "letter").read_text() == "dear"


def test_the_ids_of_an_svg_don_t_depend_on_the_last_bits_of_its_layout():
    def svg(clip, marker):
        return f'<clipPath id="p{clip}"/><path id="m{marker}"/><g clip-path="url(#p{clip})"/><use href="#m{marker}"/>'.encode()

    assert _with_numbered_ids(svg("0123456789", "aaaaaaaaaa")) == _with_numbered_ids(svg("abcdefabcd", "0000000000"))
    assert _with_numbered_ids(svg("0123456789", "aaaaaaaaaa")) == svg("0", "1")
