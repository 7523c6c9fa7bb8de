import csv
import json

import numpy as np
import pytest
from pages import cells_without_link, check_in_browser, check_self_contained, needs_browser

from farflung import Ablate, ablate
from farflung.cli import main
from farflung.config import CREDITS
from farflung.runs.run import final_values
from farflung.studies.ablate.experiment import (
    BASELINES,
    DEFAULTS,
    LEARNING_RATES,
    PARTS,
    STAGES,
    Pair,
    Setting,
    name_of,
    steps_to,
)
from farflung.studies.ablate.report import _plots, is_ordered, write_ablation

pytestmark = pytest.mark.bits

CONFIG = Ablate(
    worlds=("room-det",),
    agents=(2,),
    credits=("total", "causal"),
    optimizers=("adam",),
    objectives=("own+2*skills",),
    seeds=2,
    updates=12,
    paper_updates=16,
    batches=3,
)
ROOM = Setting("room-det", 2)
OBJECTIVE = "objective own+2*skills"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ablation") / "out"


@pytest.fixture(scope="module")
def found(folder):
    return ablate(CONFIG, folder)


@pytest.fixture(scope="module")
def page(found, folder):
    write_ablation(found, folder, began=0.0)
    return folder / "index.html"


def test_every_variant_is_trained(found):
    pairs = [name_of(Pair(credit, "adam"), rate) for credit in CONFIG.credits for rate in LEARNING_RATES["adam"]]
    assert {name for _, name in found.runs} == {"paper", DEFAULTS, "halfway", *PARTS, *BASELINES, *pairs, OBJECTIVE}
    for name, run in ((name, run) for (_, name), run in found.runs.items()):
        assert run.config.updates == {"paper": 16, "halfway": 6}.get(name, 12)
    assert found.runs[ROOM, "paper"].config.preset == "paper"
    for name, changes in PARTS.items():
        config = found.runs[ROOM, name].config
        assert {key: getattr(config, key) for key in changes} == changes


def test_the_defaults_are_those_of_explore(found):
    same = found.runs[ROOM, name_of(Pair("causal", "adam"), 0.15)]
    np.testing.assert_array_equal(found.runs[ROOM, DEFAULTS].metrics.entropy, same.metrics.entropy)


def test_halfway_is_halfway_of_the_defaults(found):
    whole, half = found.runs[ROOM, DEFAULTS], found.runs[ROOM, "halfway"]
    shared = np.intersect1d(whole.updates, half.updates)
    assert len(shared) >= 3
    of_whole = whole.metrics.entropy[:, np.isin(whole.updates, shared)]
    np.testing.assert_array_equal(of_whole, half.metrics.entropy[:, np.isin(half.updates, shared)])


def test_the_best_learning_rate_is_that_with_the_highest_entropy(found):
    for pair, rate in found.rates.items():
        finals = {
            each: final_values(run.updates, run.metrics)["entropy"].mean()
            for each in LEARNING_RATES[pair.optimizer]
            for run in [found.runs[ROOM, name_of(pair, each)]]
        }
        assert finals[rate] == max(finals.values())


def test_steps_are_counted_up_to_the_first_record_at_a_level(found):
    run = found.runs[ROOM, DEFAULTS]
    mean = run.metrics.entropy.mean(axis=0)
    assert steps_to(run, 0.0) == run.updates[0] * 40 * 2 * 8
    assert steps_to(run, float(mean.max()) + 1) is None
    level = float(np.sort(mean)[-2])
    assert steps_to(run, level) == run.updates[np.flatnonzero(mean >= level)[0]] * 640


def test_variances_are_ordered_at_the_start(found):
    assert set(found.variances) == {(ROOM, stage) for stage in STAGES}
    assert is_ordered(found.variances[ROOM, "start"])
    assert not is_ordered(dict.fromkeys(CREDITS, 1.0))


def test_started_again_it_trains_nothing(found, folder, monkeypatch):
    monkeypatch.setattr("farflung.studies.suite.begin", lambda *_: pytest.fail("something is trained again"))
    again = ablate(CONFIG, folder)
    assert again.rates == found.rates
    np.testing.assert_array_equal(again.runs[ROOM, DEFAULTS].metrics.entropy, found.runs[ROOM, DEFAULTS].metrics.entropy)


def test_the_page_has_the_numbers(page, found):
    parsed = check_self_contained(page)
    assert len(parsed.images) == 3
    text = page.read_text(encoding="utf-8")
    assert f"{found.outcome(ROOM, DEFAULTS).percentages.mean():.2f}%" in text
    assert f"{found.variances[ROOM, 'end']['causal']:.3g}" in text
    with (page.parent / "data" / "objectives.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["objective"] == "own+2*skills" and row["metric"] == "diversity"]
    run = found.runs[ROOM, OBJECTIVE]
    assert run.config.objective == "own+2*skills"
    assert [float(row["value"]) for row in rows] == final_values(run.updates, run.metrics)["diversity"].tolist()
    with (page.parent / "data" / "percentages.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["variant"] == "independent"]
    assert [float(row["percent_of_ceiling"]) for row in rows] == found.outcome(ROOM, "independent").percentages.tolist()


def test_every_number_leads_to_a_run(page, found):
    assert cells_without_link(page) == [f"{rate:g}" for rate in found.rates.values()]


def test_legends_are_not_cut_off_where_there_is_one_world(found):
    for plot in _plots(found).values():
        figure = plot.draw()
        figure.draw_without_rendering()
        for legend in figure.legends:
            box = legend.get_window_extent()
            assert 0 <= box.x0 < box.x1 <= figure.bbox.width, plot.title


@needs_browser
def test_the_page_opens_in_a_browser_without_errors(page):
    check_in_browser(page)


def test_the_command_prints_a_summary_and_keeps_other_folders_apart(found, page, capsys):
    sizes = [
        "--credits",
        "total",
        "causal",
        "--optimizers",
        "adam",
        "--updates",
        "12",
        "--paper-updates",
        "16",
        "--batches",
        "3",
    ]
    arguments = ["--worlds", "room-det", "--agents", "2", "--seeds", "2", *sizes, "--out", str(page.parent)]
    assert main(["ablate", *arguments, "--json", "--quiet"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["settings"]
    assert row["defaults"] == found.outcome(ROOM, DEFAULTS).percentages.mean()
    assert main(["reproduce", "--out", str(page.parent)]) == 2
    assert "choose another directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"credits": ()}, "at least one of the credits"),
        ({"optimizers": ("adm",)}, "did you mean 'adam'"),
        ({"batches": 1}, "at least 2"),
        ({"worlds": ()}, "worlds must be one or more"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Ablate(**settings)
