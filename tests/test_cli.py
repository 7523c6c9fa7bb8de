import json
import os
import signal
import subprocess
import sys
import time

import pytest

from farflung import load_run
from farflung.cli import main
from farflung.runs.files import FORMAT_VERSION

QUICK = ["--agents", "2", "--batch-size", "4", "--updates", "30", "--seeds", "0", "1"]
SOON_COMPILED = ["explore", "maze-det", "--preset", "paper", "--agents", "2", "--quiet"]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("farflung.cli.terminal.use_all_cores", lambda: None)  # the tests' JAX is configured already


def test_explore_prints_a_table_and_saves_a_run(tmp_path, capsys):
    assert main(["explore", "maze-det", *QUICK]) == 0
    output = capsys.readouterr().out
    assert "normalized entropy" in output
    assert "mean of 2 seeds" in output
    assert "runs/maze-det-2-agents" in output
    assert load_run(tmp_path / "runs" / "maze-det-2-agents").config.updates == 30


def test_a_second_run_gets_a_directory_of_its_own(tmp_path):
    for _ in range(2):
        assert main(["explore", "maze-det", *QUICK, "--quiet"]) == 0
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"maze-det-2-agents", "maze-det-2-agents-2"}


def test_json_is_the_only_thing_on_stdout(tmp_path, capsys):
    assert main(["explore", "maze-det", *QUICK, "--out", "here", "--json"]) == 0
    captured = capsys.readouterr()
    summary = json.loads(captured.out)
    assert {**summary, "format_version": FORMAT_VERSION} == json.loads((tmp_path / "here" / "summary.json").read_text())
    assert len(summary["final"]["entropy"]) == 2
    assert "normalized entropy" in captured.err


def test_quiet_prints_nothing(capsys):
    assert main(["explore", "maze-det", *QUICK, "--quiet"]) == 0
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_every_option_reaches_the_run(tmp_path):
    options = "--agents 3 --trajectories 2 --horizon 5 --slip 0.1 --batch-size 2 --updates 4 --learning-rate 0.01 --decay 0.9"
    more = "--optimizer adam --credit total --policy time-dependent --single --seeds 4 --log-every 2 --out o --quiet"
    assert main(["explore", "maze-stoc", *options.split(), *more.split()]) == 0
    run = load_run(tmp_path / "o")
    config = run.config
    assert (config.agents, config.trajectories, config.horizon, config.slip, config.batch_size) == (3, 2, 5, 0.1, 2)
    assert (config.updates, config.learning_rate, config.decay, config.optimizer) == (4, 0.01, 0.9, "adam")
    assert (config.policy, config.single, config.seeds, config.log_every) == ("time-dependent", True, (4,), 2)
    assert run.policies.logits.shape == (1, 1, 5, 43, 4)
    assert run.updates.tolist() == [1, 2, 4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explore"], "explore needs WORLD"),
        (["explore", "maze-dt"], "unknown world 'maze-dt' (did you mean 'maze-det'?)"),
        (["explore", "maze-det", "--agent", "3"], "did you mean --agents?"),
        (["explore", "maze-det", "--agents", "three"], "--agents takes a whole number, not 'three'"),
        (["explore", "maze-det", "--seeds", "1", "x"], "--seeds takes whole numbers, not 'x'"),
        (["explore", "maze-det", "--slip", "x"], "--slip takes a number, not 'x'"),
        (["explore", "maze-det", "--agents"], "--agents needs a value"),
        (["explore", "maze-det", "room-det"], "unexpected argument 'room-det'"),
        (["explore", "--resume", "run"], "use the command farflung resume RUN"),
        (["explore", "--resume=run", "--agents", "3"], "use the command farflung resume RUN"),
        (["resume"], "resume needs RUN"),
        (["resume", "run"], "run holds no unfinished training"),
        (["explore", "maze-det", "--agents", "0"], "agents must be at least 1, not 0"),
        (["explore", "maze-det", "--updates", "0"], "updates must be at least 1, not 0"),
        (["explore", "maze-det", "--slip", "2"], "slip is a probability between 0 and 1, not 2.0"),
        (["explore", "maze-det", "--optimizer", "sdg"], "unknown optimizer 'sdg' (did you mean 'sgd'?): choose sgd, adam"),
        (["explore", "maze-det", "--credit", "all"], "unknown credit 'all'"),
        (["explore", "maze-det", "--seeds"], "at least one seed is needed"),
        (["explore", "maze-det", "--out", "/proc/x/y"], "cannot write to /proc/x/y"),
        (["explore", "CartPole-v1", "--features", "4"], "features has numbers from 0 to 3"),
        (["explore", "CartPole-v1", "--env-options", "gravity"], "--env-options takes pairs KEY=VALUE, not 'gravity'"),
        (["explore", "CartPole-v1", "--env-options", "bins=3"], "env_options cannot set bins: use the option bins itself"),
        (["explore", "CartPole-v1", "--make", "gravity=1"], "unknown option --make"),
        (["explore", "CartPole-v1", "--policy", "stationary"], "the states of CartPole-v1 are vectors"),
        (
            ["explore", "CartPole-v1", "--horizon", "1", "--agents", "2"],
            "neighbours must be below 4, the number",
        ),
        (["explore", "point-gap", "--neighbours", "1000"], "neighbours must be below 390"),
        (
            ["explore", "point-gap", "--features", "0"],
            "point-gap has no option features: choose from bins",
        ),
        (["explore", "point-gap", "--env-options", "engine=warp"], "the recipe of a world does not know 'engine'"),
        (["explore", "ant", "--env-options", "ends_when_unhealthy=no"], "ends_when_unhealthy is true or false, not 'no'"),
        (["explore", "maze-det", "--hidden", "8"], "hidden is for networks, and maze-det has numbered states"),
        (["explroe", "maze-det"], "unknown command 'explroe' (did you mean 'explore'?): choose explore"),
        (["explore", "a" * 300], "unknown world"),
        (["explore", ""], "unknown world ''"),
        (["explore", "maze-det", "--batch-size", "0"], "batch-size must be at least 1"),
        (["reproduce", "--worlds", "room-dt"], "unknown world 'room-dt' (did you mean 'room-det'?)"),
        (["reproduce", "--agents", "0"], "agents must be at least 1"),
        (["reproduce", "--schedule", "txt"], "unknown schedule 'txt' (did you mean 'text'?)"),
        (["reproduce", "--out", "/proc/x/y"], "cannot write to /proc/x/y"),
    ],
)
def test_a_mistake_is_one_line_on_stderr_and_exit_code_2(arguments, message, capsys, tmp_path):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("farflung: ")
    assert message in line
    assert list(tmp_path.iterdir()) == []


def test_a_bad_map_is_one_line_and_exit_code_2(tmp_path, capsys):
    (tmp_path / "map.txt").write_text("S..\n....\n")
    assert main(["explore", "map.txt"]) == 2
    assert capsys.readouterr().err == "farflung: map.txt: the map is ragged: line 2 has 4 cells, line 1 has 3\n"


def test_a_run_is_kept_unless_forced(tmp_path, capsys):
    assert main(["explore", "maze-det", *QUICK, "--out", "run", "--quiet"]) == 0
    before = (tmp_path / "run" / "metrics.csv").read_bytes()
    assert main(["explore", "maze-det", *QUICK, "--out", "run", "--quiet"]) == 0  # the same settings: it is done already
    assert main(["explore", "maze-det", *QUICK, "--learning-rate", "0.01", "--out", "run"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "already holds a run" in line
    assert (tmp_path / "run" / "metrics.csv").read_bytes() == before
    assert main(["explore", "maze-det", *QUICK, "--learning-rate", "0.01", "--out", "run", "--quiet", "--force"]) == 0
    assert load_run(tmp_path / "run").config.learning_rate == 0.01


def test_ctrl_c_saves_and_exits_with_130(tmp_path, monkeypatch, capsys):
    from farflung.studies import trials as module

    honest = module.train

    def interrupted(*arguments):
        for number, progress in enumerate(honest(*arguments)):
            if number == 5:
                raise KeyboardInterrupt
            yield progress

    monkeypatch.setattr(module, "train", interrupted)
    assert main(["explore", "maze-det", *QUICK, "--out", "run"]) == 130
    assert "updates are saved: continue with farflung resume run" in capsys.readouterr().err
    assert load_run(tmp_path / "run").summary["is_interrupted"]


def interrupted_run(out):
    """Starts a run that would take hours, and interrupts it once it trains."""
    code = f"""
import os, signal
from farflung.studies import trials
signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background may have inherited that it's ignored
honest = trials.train
def train(*arguments):
    for number, progress in enumerate(honest(*arguments)):
        if number == 13:
            os.kill(os.getpid(), signal.SIGINT)
        yield progress
trials.train = train
from farflung.cli import main
raise SystemExit(main([*{SOON_COMPILED}, "--updates", "100000000", "--seeds", "0", "--out", {str(out)!r}]))
"""
    return run_python(code)


def test_a_real_interrupt_keeps_the_run(tmp_path):
    result = interrupted_run(tmp_path / "run")
    assert result.returncode == 130, result.stderr
    run = load_run(tmp_path / "run")
    assert run.summary["is_interrupted"]
    assert 0 < run.summary["updates"] < 100_000_000
    assert len(run.updates) > 1
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_an_end_that_is_asked_for_while_jax_is_imported_is_heard():
    code = """
import os, signal, sys
class Asking:
    def find_spec(self, name, *_):
        if name == "jax":
            os.kill(os.getpid(), signal.SIGTERM)
sys.meta_path.insert(0, Asking())
from farflung.cli import main
sys.exit(main(["explore", "maze-det"]))
"""
    result = run_python(code)
    assert (result.returncode, result.stderr) == (143, "farflung: interrupted\n")


def test_a_run_that_is_complete_is_no_interrupted_one(tmp_path, monkeypatch, capsys):
    from farflung.runs import run as runs

    save = runs.save_run

    def asked_to_end(*arguments, **options):
        os.kill(os.getpid(), signal.SIGTERM)
        save(*arguments, **options)

    monkeypatch.setattr(runs, "save_run", asked_to_end)
    assert main([*SOON_COMPILED, "--updates", "30", "--seeds", "0", "--out", "run"]) == 0
    assert capsys.readouterr().err == ""
    assert not load_run(tmp_path / "run").summary["is_interrupted"]


def test_a_command_with_nothing_to_keep_ends_at_once_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    def asked_to_end(*_, **__):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)

    monkeypatch.setattr("farflung.studies.frank_wolfe.experiment.solve", asked_to_end)
    assert main(["frank-wolfe", "room-det", "--quiet"]) == 143
    assert capsys.readouterr().err == "farflung: interrupted\n"
    assert list(tmp_path.iterdir()) == []


def test_two_runs_at_once_both_survive(tmp_path):
    options = [*SOON_COMPILED, "--updates", "100", "--seeds"]
    command = [sys.executable, "-c", "import sys; from farflung.cli import main; sys.exit(main(sys.argv[1:]))", *options]
    processes = [subprocess.Popen([*command, str(seed)], cwd=tmp_path) for seed in (0, 1)]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    assert {load_run(path).config.seeds for path in (tmp_path / "runs").iterdir()} == {(0,), (1,)}


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["explore", "--help"], ["--version"], ["explore", "maze-dt"], ["explore", "maze-det", "--agents", "0"]],
)
def test_help_and_mistakes_do_not_wait_for_jax(arguments):
    code = (
        f"import contextlib, sys\nfrom farflung.cli import main\n"
        f"with contextlib.suppress(SystemExit):\n    main({arguments})\nassert 'jax' not in sys.modules"
    )
    result = run_python(code)
    assert result.returncode == 0, result.stderr


def test_help_names_every_option():
    result = run_python("from farflung.cli import main; main(['explore', '--help'])")
    options = (
        "agents trajectories horizon slip batch-size updates learning-rate decay optimizer credit policy single seeds log-every"
    )
    for option in [*options.split(), *["out", "force", "quiet", "json", "log", "log-dir"]]:
        assert f"--{option}" in result.stdout


def test_importing_the_library_changes_no_configuration_of_jax():
    result = run_python(
        "import jax\nbefore = dict(jax.config.values)\nimport farflung\n"
        "for name in farflung.__all__: getattr(farflung, name)\n"
        "assert dict(jax.config.values) == before\nassert jax.local_device_count() == 1"
    )
    assert result.returncode == 0, result.stderr


def test_from_the_command_line_every_core_is_a_device():
    result = run_python(
        "import os, jax\nfrom farflung.cli.terminal import use_all_cores\nuse_all_cores()\n"
        "assert jax.local_device_count() == len(os.sched_getaffinity(0))"
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("more", [["--force"], ["--updates", "5"], ["--agents", "3", "--seeds", "2"]])
def test_a_resumed_run_takes_no_other_settings(more, capsys):
    assert main(["resume", "run", *more]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"unknown option {more[0]}" in line
    assert line.endswith("resume uses the original settings; drop the other options")


def test_an_interrupted_run_is_resumed(tmp_path, monkeypatch, capsys):
    from farflung.studies import trials as module

    honest = module.train

    def interrupted(*arguments):
        for number, progress in enumerate(honest(*arguments)):
            if number == 5:
                raise KeyboardInterrupt
            yield progress

    with monkeypatch.context() as patched:
        patched.setattr(module, "train", interrupted)
        assert main(["explore", "maze-det", *QUICK, "--out", "run", "--quiet"]) == 130
    assert main(["resume", "run", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["updates"] == 30
    assert "saved in run" in captured.err
    assert not load_run(tmp_path / "run").summary["is_interrupted"]


def test_naming_the_world_of_a_run_again_imports_its_module(tmp_path, monkeypatch):
    (tmp_path / "module_of_a_world.py").write_text("world = object()\n")
    found = []

    def stop(path, **_):
        found.append((str(path), sys.modules.pop("module_of_a_world").world is not None))
        raise ValueError("so far, so good")

    monkeypatch.setattr("farflung.studies.explore.resume", stop)
    monkeypatch.setattr("farflung.runs.run.load_run", stop)
    for command in ("resume", "collect", "film"):
        assert main([command, "run", "--world", "module_of_a_world:world"]) == 2
    assert found == [("run", True)] * 3


def test_options_of_the_world_are_passed_on(monkeypatch):
    asked = []

    def make_world(name, **options):
        asked.append((name, {key: value for key, value in options.items() if value is not None}))
        raise ValueError("so far, so good")

    monkeypatch.setattr("farflung.worlds.named.make_world", make_world)
    options = ["--env-options", "gravity=9.8", "name=moon", "on=true", "--bins", "3", "4", "--horizon", "9", "--copies", "64"]
    assert main(["explore", "CartPole-v1", *options]) == 2
    given = {"env_options": {"gravity": 9.8, "name": "moon", "on": True}, "bins": (3, 4), "horizon": 9}
    assert asked == [("CartPole-v1", given)]
