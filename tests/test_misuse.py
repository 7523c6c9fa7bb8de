"""Mistakes in Python: one line that says what was expected, as on the command line."""

import dataclasses
import pickle
import re

import gymnasium
import jax.random as jr
import numpy as np
import pytest
from numpy.typing import ArrayLike
from tests.fuzzing.broken import FIXTURES, VERSIONS

import farflung
from farflung.config.checks import check_positive, several, whole_seeds
from farflung.config.signatures import described, fits
from farflung.runs.files import to_csv

RUN = farflung.load_run(FIXTURES / VERSIONS[-1] / "runs" / "table")
DATA = farflung.load_dataset(FIXTURES / VERSIONS[-1] / "data" / "table.npz")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: farflung.load_run(3), "load_run(): path must be a text or a path, not 3"),
        (lambda: farflung.collect("path", 3), "collect(): run must be a Run, not 'path'"),
        (lambda: farflung.collect(RUN, None), "collect(): episodes must be a whole number, not None"),
        (lambda: farflung.gridworld(None), "gridworld(): text must be a text, not None"),
        (lambda: farflung.gridworld("S.", starts=3), "gridworld(): starts must be a sequence"),
        (lambda: farflung.gridworld("S.", starts=[3]), "gridworld(): starts must be a sequence"),
        (lambda: farflung.hosted(3), "hosted(): environment must be a text or a function, not 3"),
        (lambda: farflung.hosted(lambda: 3), "must make a gymnasium.Env, not 3"),
        (lambda: farflung.hosted("CartPole-v1", workers="2"), "hosted(): workers must be a whole number, not '2'"),
        (lambda: farflung.ceiling(3, 2), "ceiling(): world must be a text or a path or a World, not 3"),
        (lambda: farflung.film(RUN, None), "film(): path must be a text or a path, not None"),
        (lambda: farflung.save_run([], "x"), "save_run(): run must be a Run, not of the type list"),
        (lambda: farflung.from_minari(3), "a dataset is a Minari dataset or its id, not int"),
        (lambda: farflung.compare([1, 2]), "compare(): runs must be a"),
        (lambda: farflung.explore("room-det", loggers=5), "explore(): loggers must be a sequence"),
        (lambda: whole_seeds(5), "seeds must be whole numbers such as (0, 1, 2), not 5"),
        (lambda: farflung.explore("room-det", agnets=5), "unknown setting 'agnets' (did you mean 'agents'?)"),
        (lambda: farflung.explore("room-det", on_progress=5), "explore(): on_progress must be a function or None, not 5"),
        (lambda: farflung.softmax_team(jr.key(0), 3, 2), "softmax_team(): world must be a World or a View, not 3"),
        (lambda: farflung.train(None, 3, (0,), 1), "train(): algorithm must be"),
        (lambda: farflung.Dataset(*"abcdefgh"), "Dataset(): observations must be an array"),
        (lambda: farflung.Run(*[3] * 8), "Run(): config must be an Explore, not 3"),
        (lambda: farflung.Collect(3), "Collect(): run must be a text, not 3"),
        (lambda: farflung.OfflineLearning(None), "OfflineLearning(): dataset must be a text, not None"),
        (lambda: farflung.play(3, 3, 3, 3, 3), "play(): key must be an array"),
        (lambda: farflung.Discrete(0), "the number of actions must be at least 1, not 0"),
        (lambda: farflung.MultiDiscrete(3), "the numbers of actions must be a sequence such as (2, 3), not 3"),
        (lambda: farflung.Box("ab", (1,)), "the bounds of a Box must be numbers such as (-1, 1), not 'ab'"),
        (lambda: farflung.Box((0, np.nan), (1, 2)), "the bounds of a Box must be numbers"),
        (lambda: farflung.Box((0, 1), (1, 0)), "each number of a Box needs low up to high, not (0.0, 1.0) and (1.0, 0.0)"),
        (lambda: several("worlds", 3), "worlds must be a sequence, not 3"),
        (lambda: check_positive("seconds", 10**400), "seconds must be a positive number, not 1000"),
        (
            lambda: farflung.relabel(DATA, reward=lambda *_: np.full(DATA.num_transitions, np.nan)),
            "must return finite numbers",
        ),
        (lambda: farflung.relabel(DATA, reward=lambda *_: 1 / 0), "fails: ZeroDivisionError in line"),
    ],
)
def test_a_wrong_argument_is_named_in_one_line(call, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        call()
    assert "\n" not in str(error.value)


def test_logits_must_be_a_table():
    team = object.__new__(farflung.TabularSoftmax)  # in tests, jaxtyping refuses other logits before the class does
    object.__setattr__(team, "logits", 3)
    with pytest.raises(ValueError, match=r"logits must be an array \[\.\.\., state, action\], not 3"):
        team.__check_init__()


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (np.int64(3), int),
        (3, float),
        (np.float32(3), float),
        ([1, 2], tuple[int, ...]),
        (np.arange(3), tuple[int, ...]),
        (range(3), list[int]),
        (gymnasium.Wrapper, type),
        (None, int | None),
        (iter([1]), tuple[str, ...]),
        ([[0.5, 0.5]], ArrayLike),
        (np.eye(2), ArrayLike | None),
        (None, ArrayLike | None),
    ],
)
def test_what_functions_take_is_not_refused(value, kind):
    assert fits(value, kind)


def test_errors_describe_annotations_in_words():
    assert described(tuple[float, ...] | None) == "a sequence of numbers or None"


def test_public_functions_can_be_sent_to_another_process():
    assert pickle.loads(pickle.dumps(farflung.explore)) is farflung.explore


def test_a_missing_number_of_a_summary_is_an_error_of_one_line():
    runs = [dataclasses.replace(RUN, config=dataclasses.replace(RUN.config, batch_size=size)) for size in (4, 5)]
    runs[0].summary["ceiling"]["bound"] = float("nan")
    with pytest.raises(ValueError, match="is not a number for every seed: choose another metric"):
        farflung.compare(runs, "percent_of_ceiling")


def test_a_name_is_no_formula_in_a_spreadsheet():
    rows = [("world", "score"), ('=HYPERLINK("https://example.org")', -1.5), ("@x", "room-det")]
    assert to_csv(rows).splitlines() == ["world,score", '"\'=HYPERLINK(""https://example.org"")",-1.5', "'@x,room-det"]
