"""Nothing in the current folder runs unless the user names it; and stdout is for the JSON alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fuzzing.broken import FIXTURES, VERSIONS

COMMAND = Path(sys.executable).with_name("farflung")
RUN = FIXTURES / VERSIONS[-1] / "runs" / "table"
QUICK = ("--agents", "2", "--batch-size", "2", "--updates", "1", "--seeds", "0")
OWN = """
import gymnasium, os, sys
import own_parts
print("imported")
class Env(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Discrete(3), gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        print("reset")
        os.write(1, b"raw")
        return own_parts.START, {}
    def step(self, action):
        if own_parts.EXITS:
            sys.exit(0)
        return int(action), 0.0, False, False, {}
gymnasium.register("Own-v0", entry_point=Env, max_episode_steps=2)
"""


def farflung(folder, *arguments, streams="", **environment):
    """The exit code, stdout and stderr of a process, whose streams a shell may close."""
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1] / "src"), os.environ.get("PYTHONPATH")]))
    ended = subprocess.run(
        ["sh", "-c", f'exec "$0" "$@" {streams}', str(COMMAND), *map(str, arguments)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path, "MPLCONFIGDIR": str(folder / "settings")} | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return ended.returncode, ended.stdout, ended.stderr


@pytest.fixture
def traps(tmp_path):
    """Modules that libraries look for, some of them only in processes that farflung starts."""
    for name in ("filelock", "etils", "zstandard", "flatbuffers", "jax_plugins", "tokenize", "multiprocessing", "own_typo"):
        (tmp_path / f"{name}.py").write_text(f"import os; os.mkdir({str(tmp_path / 'trapped')!r})")
    (tmp_path / "matplotlibrc").write_text("animation.ffmpeg_path: ./any_program\nfont.size: 70\n")
    (tmp_path / "own_world.py").write_text(OWN)
    (tmp_path / "own_parts.py").write_text("START, EXITS = 0, False")
    yield tmp_path
    assert not (tmp_path / "trapped").exists()


def test_what_libraries_look_for_is_not_imported_from_the_current_folder(traps):
    code, _, errors = farflung(traps, "collect", RUN, "--episodes", 2, "--format", "npz", "--out", "x.npz", "--quiet")
    assert (code, errors) == (0, "")


def test_a_module_that_the_user_names_is_imported_with_its_own_imports_and_json_stays_pure(traps):
    arguments = ("explore", "own_world:Own-v0", *QUICK, "--hosted", "--workers", 2, "--out", "run", "--json", "--quiet")
    code, output, errors = farflung(traps, *arguments)
    assert code == 0, errors
    assert json.loads(output)["hosted"]["workers"] == 2
    assert output.count("\n") == 1
    assert {"imported", "reset", "raw"} <= set(errors.replace("raw", "\nraw\n").split())
    code, _, errors = farflung(traps, "collect", "run", "--episodes", 2, "--format", "npz", "--quiet")
    assert code == 2
    assert "own_world, which is not installed" in errors


@pytest.mark.parametrize("workers", [0, 1])
def test_an_environment_that_exits_has_failed(traps, workers):
    (traps / "own_parts.py").write_text("START, EXITS = 0, True")
    arguments = ("explore", "own_world:Own-v0", *QUICK, "--hosted", "--workers", workers, "--out", "run", "--quiet")
    code, _, errors = farflung(traps, *arguments)
    assert code == 2
    assert errors.splitlines()[-1].startswith("farflung: own_world:Own-v0 failed (SystemExit: 0) in an episode with seed")


@pytest.mark.parametrize("streams", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_trouble(traps, streams):
    arguments = ("explore", "own_world:Own-v0", *QUICK, "--hosted", "--out", "run", "--json", "--quiet")
    code, output, errors = farflung(traps, *arguments, streams=streams)
    assert code == 0
    assert "Traceback" not in errors
    assert output == "" if ">&-" in streams.replace("2>&-", "") else json.loads(output)["world"] == "own_world:Own-v0"


def test_an_error_never_goes_to_stdout(tmp_path):
    assert farflung(tmp_path, "explore", "nowhere", streams="2>&-") == (2, "", "")
