"""Nothing in the current folder runs unless the user names it; and stdout is for the JSON alone."""

import importlib
import json
import os
import resource
import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium
import pytest
from tests.fuzzing.broken import FIXTURES, VERSIONS

from farflung import explore, hosted
from farflung.cli import main
from farflung.config.reading import member
from farflung.worlds.hosted.modules import OwnModules, find_here
from farflung.worlds.hosted.pool import SimulatorWarning

COMMAND = Path(sys.executable).with_name("farflung")
RUN = FIXTURES / VERSIONS[-1] / "runs" / "table"
QUICK = ("--agents", "2", "--batch-size", "2", "--updates", "1", "--seeds", "0")
OWN = """
import atexit, gymnasium, os
import own_parts
print("imported")
atexit.register(print, "at exit")
class Env(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Discrete(3), gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        print("reset")
        os.write(1, b"raw")
        return own_parts.START, {}
    def step(self, action):
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
    (tmp_path / "own_parts.py").write_text("START = 0")
    yield tmp_path
    assert not (tmp_path / "trapped").exists()


def test_what_libraries_look_for_is_not_imported_from_the_current_folder(traps):
    code, _, errors = farflung(traps, "collect", RUN, "--episodes", 2, "--format", "npz", "--out", "x.npz", "--quiet")
    assert (code, errors) == (0, "")


def test_settings_of_matplotlib_are_not_read_from_the_current_folder(traps):
    code = "from farflung.cli import main; main(['explore', 'x']); import matplotlib; print(matplotlib.rcParams['font.size'])"
    ended = subprocess.run([sys.executable, "-P", "-c", code], cwd=traps, capture_output=True, text=True, check=False)
    assert ended.stdout == "10.0\n"


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


@pytest.mark.parametrize("streams", [">&-", "2>&-", ">&- 2>&-"])
def test_nothing_goes_to_another_stream_if_one_is_closed(tmp_path, streams):
    version, error = (farflung(tmp_path, *arguments, streams=streams) for arguments in (["--version"], ["explore", "nowhere"]))
    assert (version[0], version[2], error[0], error[1]) == (0, "", 2, "")
    assert version[1].startswith("farflung") == (streams == "2>&-")
    assert error[2].startswith("farflung: unknown world") == (streams == ">&-")


def test_an_environment_may_print_into_closed_streams(traps):
    arguments = ("explore", "own_world:Own-v0", *QUICK, "--hosted", "--out", "run", "--json", "--quiet")
    assert farflung(traps, *arguments, streams=">&- 2>&-") == (0, "", "")
    assert (traps / "run" / "summary.json").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
def test_json_does_not_need_room_for_messages(tmp_path):
    command = ("ceiling", "room-det", "--agents", "1", "--horizon", "3", "--json")
    code, output, _ = farflung(tmp_path, *command, streams="2>/dev/full")
    assert code == 0
    assert json.loads(output)["exact"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("farflung.cli.terminal.use_all_cores", lambda: None)  # the tests' JAX is configured already
    yield tmp_path
    find_here()


def test_an_environment_may_lie_beside_the_module_that_registers_it(here):
    (here / "own_registry.py").write_text("import gymnasium; gymnasium.register('Beside-v0', entry_point='own_beside:Env')")
    (here / "own_beside.py").write_text(OWN.replace("own_parts.START", "0").replace("import own_parts", ""))
    find_here("own_registry:Beside-v0")
    assert hosted("own_registry:Beside-v0", horizon=2).num_states == 3
    find_here()
    with pytest.raises(ImportError):
        importlib.import_module("own_parts")


def test_an_installed_module_that_the_user_names_finds_nothing_here(here, tmp_path_factory, monkeypatch):
    installed = tmp_path_factory.mktemp("installed")
    (installed / "own_installed.py").write_text("import own_optional")
    (here / "own_optional.py").write_text("")
    monkeypatch.syspath_prepend(installed)
    find_here("own_installed:World")
    with pytest.raises(ImportError, match="own_optional"):
        importlib.import_module("own_installed")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("./bad", "", "must be a name such as my_module, not './bad'"),
        (".", "", "must be a name such as my_module, not '.'"),
        ("bad1", "def (", "the module of 'bad1:X' fails: SyntaxError: invalid syntax"),
        ("bad2", "raise SystemExit(0)", "the module of 'bad2:X' fails: SystemExit: 0"),
        ("bad3", "1 / 0", "the module of 'bad3:X' fails: ZeroDivisionError: division by zero"),
        ("bad4", "", "the module bad4 has no world 'X'"),
        ("bad5", "import own_typo", "the module of 'bad5:X' cannot be imported: No module named 'own_typo'"),
    ],
)
def test_a_module_that_cannot_be_imported_is_one_line(here, capsys, name, content, message):
    if name.isidentifier():
        (here / f"{name}.py").write_text(content)
    assert main(["explore", f"{name}:X"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


class Failing(gymnasium.Env):
    """An environment that fails, or exits, when it is made, stepped or closed."""

    observation_space, action_space = gymnasium.spaces.Discrete(3), gymnasium.spaces.Discrete(2)

    def __init__(self, when="step", error=SystemExit):
        self.when, self.error = when, error
        self._fail("init")

    def _fail(self, now):
        if now == self.when:
            raise self.error(0)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        self._fail("step")
        return int(action), 0.0, False, False, {}


gymnasium.register("Failing-v0", entry_point=Failing, max_episode_steps=2)


@pytest.mark.parametrize("error", [SystemExit, ZeroDivisionError])
@pytest.mark.parametrize(
    ("when", "message"),
    [
        ("init", r"Gymnasium cannot make 'Failing-v0': \w+ in line \d+ of test_current_folder.py: 0"),
        ("step", r"Failing-v0 failed \(\w+: 0\)"),
    ],
)
def test_an_environment_that_exits_or_raises_has_failed(when, message, error):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SimulatorWarning)  # it is tried again
        with pytest.raises(ValueError, match=message):
            explore(hosted("Failing-v0", when=when, error=error), agents=2, batch_size=2, updates=1, seeds=(0,))


def test_too_little_address_space_is_reported_before_jax_aborts(here, capsys, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (10**9, resource.RLIM_INFINITY))
    assert main(["explore", "room-det"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "ulimit -v is 976,562, and at least 2,621,440 are needed" in line


def test_a_link_to_itself_is_an_error_of_one_line(tmp_path):
    (tmp_path / "runs").symlink_to("runs")
    with pytest.raises(ValueError, match="runs leads out of its directory"):
        member(tmp_path, "runs")


def test_parts_of_packages_that_lie_in_several_folders_are_left_to_python(tmp_path, monkeypatch):
    for number in range(2):
        (tmp_path / str(number) / "split_package").mkdir(parents=True)
        monkeypatch.syspath_prepend(tmp_path / str(number))
    (tmp_path / "0" / "split_package" / "part.py").write_text("VALUE = 3\n")
    monkeypatch.setattr(sys, "meta_path", [OwnModules(str(tmp_path), {"split_package"}), *sys.meta_path])
    assert importlib.import_module("split_package.part").VALUE == 3
