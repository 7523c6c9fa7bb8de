import pytest
from tests.made_runs import made_continuous_run

from farflung import save_run
from farflung.cli import main


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "gap"
    save_run(made_continuous_run(num_steps=3, agents=2, seeds=(0,)), path)
    return path


def test_a_film_lies_beside_the_run_and_is_not_overwritten(trained, capsys):
    assert main(["film", str(trained), "--seconds", "0.5"]) == 0
    size = (trained / "film.gif").stat().st_size
    assert 100 < size < 1e6
    assert f"written to {trained / 'film.gif'} ({size / 1000:.1f} KB)" in capsys.readouterr().out
    assert main(["film", str(trained)]) == 2
    assert "film.gif exists already" in capsys.readouterr().err
    assert main(["film", str(trained), "--seconds", "0.5", "--force", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--element", "-1"], "element must be a whole number from 0 to 2147483647, not -1"),
        (["--fps", "0"], "fps must be at least 1"),
        (["--fps", "2147483647"], "fps must be at most 100"),
        (["--seconds", "0"], "seconds must be a positive number"),
        (["--out", "film.mov"], "a film's file ends with .gif or .mp4"),
        (["--out", "nowhere/film.gif"], "there is no directory nowhere"),
        (["--out", "film.mp4"], "an .mp4 needs ffmpeg, which is not on the PATH"),
    ],
)
def test_a_mistake_is_one_line(arguments, message, trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    assert main(["film", str(trained), *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("farflung: ")
    assert message in line
    assert list(tmp_path.iterdir()) == []
