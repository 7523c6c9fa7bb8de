import contextlib
import io
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest

from farflung.config import PRESETS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_examples_in_the_readme_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trained, mapped = re.findall(r"```python\n(.*?)```", README, flags=re.S)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(trained, {})
    assert re.search(r"row and column \[\d", output.getvalue()), output.getvalue()
    assert [path.name for path in tmp_path.iterdir()] == ["team"]
    with contextlib.redirect_stdout(output):
        exec(mapped, {})
    assert len(re.findall(r"0\.\d+", output.getvalue())) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["team"]


SMALL = "--worlds room-det --agents 2 --seeds 2 --updates 20 --schedule code --estimator sum"
FEWER = {"make run": SMALL, "make test": "--numprocesses 0 tests/test_noise.py"}  # make takes its ARGS from the environment


def test_the_first_commands_work_one_after_the_other_in_a_fresh_clone(tmp_path):
    clone, environment = tmp_path / "farflung", tmp_path / "farflung" / ".venv"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    environment.mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):  # CI installs an environment in its own fresh clone
        (environment / name).symlink_to(Path(sys.prefix) / name)
    (environment / "installed").touch()
    commands = [
        line.partition("#")[0].strip() for line in re.search(r"```\n(make run.*?)```", README, flags=re.S)[1].splitlines()
    ]
    assert [command.split()[0] for command in commands] == ["make", "make", "source", "farflung"]
    script = "set -e\n" + "\n".join(f'ARGS="{FEWER.get(command, "")}"; {command}' for command in commands)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PYTEST"))}
    variables = {**inherited, "PYTHONPATH": str(clone / "src"), "ARGS": ""}
    done = subprocess.run(["bash", "-c", script], cwd=clone, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (clone / "reproduction" / "index.html").exists()
    assert "passed" in done.stdout
    assert (clone / "runs" / "maze-stoc-6-agents" / "figure.png").exists()


def test_every_link_to_a_file_leads_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_every_command_line_in_the_readme_is_understood(capsys):
    from farflung.cli import _parse

    blocks = "".join(text for _, text in re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.M | re.S))
    lines = re.findall(r"^farflung (.+?)(?:  +#.*)?$", blocks, flags=re.M)
    assert len(lines) >= 5
    for line in lines:
        assert callable(_parse(line.split()))


BRIEFLY = {"maze_to_offline_rl": ["--help"]}  # it would compile for more than a minute


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_every_example_runs(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for preset in PRESETS.values():
        monkeypatch.setitem(preset, "updates", 200)  # as many as the examples ask for would take seconds each
    monkeypatch.setattr(sys, "argv", [str(path), *BRIEFLY.get(path.stem, ())])
    registered = dict(gymnasium.registry)
    gymnasium.registry.pop("KeyRooms-v0", None)  # a page of the docs may have registered it
    try:
        with contextlib.suppress(SystemExit):
            runpy.run_path(str(path), run_name="__main__")
    finally:
        gymnasium.registry.clear()
        gymnasium.registry.update(registered)
    assert capsys.readouterr().out
