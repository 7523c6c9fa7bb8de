import contextlib
import importlib
import io
import os
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.fuzzing.broken import FIXTURES, VERSIONS, examples

from farflung.cli import COMMANDS, main
from farflung.cli.arguments import _types

RUN = str(FIXTURES / VERSIONS[-1] / "runs" / "table")
DATASET = str(FIXTURES / VERSIONS[-1] / "data" / "table.npz")
WORK = {
    "farflung.cli.sweep": "launched",
    "farflung.studies.explore": "begin",
    "farflung.data.collecting": "play_parts",
    "farflung.data.offline": "learn_offline",
    "farflung.studies.compare.comparison": "compare",
    "farflung.figures.film": "film",
    "farflung.bounds.ceilings": "ceiling",
    "farflung.studies.frank_wolfe.experiment": "frank_wolfe",
    "farflung.studies.concentration.experiment": "concentration",
    "farflung.studies.reproduce.experiment": "reproduce",
    "farflung.studies.ablate.experiment": "ablate",
    "farflung.studies.transfer": "transfer_config",
    "farflung.studies.transfer_study.experiment": "study_transfer",
    "uvicorn": "Server",
}
"""Where each command begins with what takes long, and all that was asked for must be checked."""
BEGUN = "so far, so good"
NUMBERS = ["", "0", "1", "2", "-1", "0.5", "nan", "inf", "-inf", "1e400", "9" * 20, "9" * 5000, "2147483648", "1_0", "٣"]
SIGNS = ["--", "-", "=", "x=y", "\x00", "\ud800", "\x1b[31m", "[red]x", "🤖", "../..", "/", ".", "~", "/dev/null", "a" * 5000]
PLACES = [
    "room-det",
    "map.txt",
    "empty.txt",
    "point-gap",
    "FrozenLake-v1",
    "CartPole-v1",
    "os:Nothing-v0",
    ":",
    "a:b",
    RUN,
    DATASET,
]
NAMES = ["adam", "total", "neural", "paper", "csv", "npz", "milp", "text", "farflung/maze-v0", "gravity=1", "render_mode=1"]
STRANGE = st.sampled_from([*NUMBERS, *SIGNS, *PLACES, *NAMES])
VALUES = STRANGE | st.text(max_size=6) | st.integers().map(str) | st.floats().map(str)


@pytest.fixture(scope="module", autouse=True)
def without_the_work():
    """Everything but what takes long."""

    def stop(*_args, **_settings):
        raise ValueError(BEGUN)

    with pytest.MonkeyPatch.context() as patch:
        for module, name in WORK.items():
            patch.setattr(importlib.import_module(module), name, stop)
        patch.setattr("webbrowser.open", lambda _: None)
        patch.setattr("farflung.cli.terminal.use_all_cores", lambda: None)  # the tests' JAX is configured already
        yield


@contextlib.contextmanager
def in_a_folder():
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["MINARI_DATASETS_PATH"] = folder
        Path("map.txt").write_text("S.\n.#\n")
        Path("empty.txt").write_text("")
        try:
            yield Path(folder)
        finally:
            os.chdir(before)


def ends_well(arguments):
    """Whatever is asked for: a result, or one line and nothing on disk."""
    output, errors = io.StringIO(), io.StringIO()
    with in_a_folder() as folder:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            try:
                code = main(arguments)
            except SystemExit as end:
                code = end.code
        if code == 2:
            *progress, line = errors.getvalue().splitlines()
            assert not progress or line.endswith(BEGUN)
            assert line.startswith("farflung: "), line
            assert line.isprintable()
        else:
            assert code in (0, None), (code, errors.getvalue())
        left = {path.name for path in folder.iterdir()} - {"map.txt", "empty.txt", "namespace_metadata.json"}
        assert not left, left


@pytest.mark.parametrize("command", COMMANDS)
@examples(0.4)
@given(data=st.data())
def test_any_options_end_in_a_result_or_one_line(command, data):
    names = st.sampled_from(sorted(_types(COMMANDS[command])))
    some = st.tuples(names, st.lists(VALUES, max_size=3)).map(lambda pair: [pair[0], *pair[1]])
    options = [word for words in data.draw(st.lists(some, max_size=4)) for word in words]
    ends_well([command, *data.draw(st.lists(VALUES, max_size=2)), *options])


@examples(1)
@given(st.lists(st.sampled_from([*COMMANDS, "--help", "--version"]) | VALUES, max_size=4))
def test_any_words_end_in_a_result_or_one_line(words):
    ends_well(words)
