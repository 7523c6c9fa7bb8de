import shutil

import pytest

from farflung.runs.files import locked


def test_who_leaves_removes_no_lock_but_its_own(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    with locked(folder):
        shutil.rmtree(folder)
        folder.mkdir()
        other = locked(folder)
        other.__enter__()
    with pytest.raises(ValueError, match="run is in use by process"), locked(folder):
        pass
    other.__exit__(None, None, None)
    assert list(folder.iterdir()) == []


def test_a_lock_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "letter").write_text("dear")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "lock").symlink_to(tmp_path / "letter")
    with pytest.raises(ValueError, match=r"cannot write to .*run"), locked(tmp_path / "run"):
        pass
    assert (tmp_path / "letter").read_text() == "dear"
