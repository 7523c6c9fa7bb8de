import csv
import json
import re
import shutil
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from matplotlib.image import imread
from pages import Page, cells_without_link, check_in_browser, check_self_contained, needs_browser

from farflung import Reproduce, explore, load_run, reproduce
from farflung.cli import main, suites
from farflung.studies.reproduce.claims import Cell, Training, claims
from farflung.studies.reproduce.report import training_name, write_report
from farflung.training.metrics import occupancy

pytestmark = pytest.mark.bits

CONFIG = Reproduce(worlds=("room-det", "maze-stoc"), agents=(2, 3), seeds=2, updates=20, datasets=3)
CODE, TEXT = Training("code", "sum"), Training("text", "sum")
TRAININGS = [CODE, Training("code", "mean"), TEXT, Training("text", "mean")]

SMALLEST = (
    *("reproduce", "--worlds", "room-det", "--agents", "2", "--seeds", "2", "--updates", "20"),
    *("--schedule", "code", "--estimator", "sum", "--quiet"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("reproduction") / "out"


@pytest.fixture(scope="module")
def found(folder):
    return reproduce(CONFIG, folder)


@pytest.fixture(scope="module")
def page(found, folder):
    write_report(found, folder, began=0.0)
    return folder / "index.html"


def test_every_part_is_trained_under_both_schedules_and_estimators_and_kept(found, folder):
    assert {training: len(runs) for training, runs in found.runs.items()} == dict.fromkeys(TRAININGS, 2 * 2 * 2)
    kept = load_run(folder / "runs" / "text" / "maze-stoc-3-single")
    assert (kept.config.learning_rate, kept.config.decay, kept.config.seeds) == (0.1, 0.999, (0, 1))
    run = found.runs[TEXT][Cell("maze-stoc", 3, "single")]
    np.testing.assert_array_equal(kept.policies.logits, run.policies.logits)
    code = found.runs[CODE][Cell("maze-stoc", 3, "single")]
    assert not np.array_equal(code.policies.logits, run.policies.logits)


def test_the_mean_over_trajectories_is_a_smaller_step_of_the_single_agent(found, folder):
    mean, cell = Training("code", "mean"), Cell("maze-stoc", 3, "single")
    averaged = load_run(folder / "runs" / "code-mean" / "maze-stoc-3-single")
    np.testing.assert_array_equal(averaged.policies.logits, found.runs[mean][cell].policies.logits)
    first = explore("maze-stoc", agents=3, single=True, preset="paper", updates=20, seeds=(0, 1), learning_rate=0.15 / 3)
    np.testing.assert_allclose(averaged.policies.logits, first.policies.logits, atol=1e-4)
    team = Cell("maze-stoc", 3, "team")
    assert found.runs[mean][team] is found.runs[CODE][team]  # each agent plays one trajectory


def test_independent_agents_are_parts_of_the_largest_team_of_them(found, folder):
    run = load_run(folder / "runs" / "code" / "room-det-3-independent")
    exact = found.findings[CODE].occupancy
    for agents in (2, 3):
        np.testing.assert_allclose(
            exact[Cell("room-det", agents, "independent")][1], occupancy(run.world, run.team(1).policies)[:agents], atol=1e-6
        )
        assert exact[Cell("room-det", agents, "untrained")].shape == (2, agents, 43)


def test_a_part_is_what_explore_trains(found):
    alone = explore("maze-stoc", agents=3, preset="paper", updates=20, seeds=(0, 1), learning_rate=0.1, decay=0.999)
    together = found.runs[TEXT][Cell("maze-stoc", 3, "team")]
    np.testing.assert_array_equal(alone.policies.logits, together.policies.logits)


def test_findings_have_a_value_per_seed_and_goal(found):
    findings = found.findings[CODE]
    assert findings.worlds == ["room-det", "maze-stoc"]
    assert findings.agents == [2, 3]
    for kind in ("team", "single", "random"):
        cell = Cell("room-det", 3, kind)
        assert findings.dataset_entropy[cell].shape == (2, 3 * 8)
        assert findings.growth[cell].shape == (2, 3 * 10)
        np.testing.assert_allclose(findings.growth[cell][:, 2], findings.dataset_entropy[cell].mean(axis=1), rtol=1e-5)
        assert (findings.dataset_entropy[cell] <= np.log(3 * 9) / np.log(43)).all()
        assert findings.success[cell].shape == (2, 42)
        assert ((findings.success[cell] >= 0) & (findings.success[cell] <= 1)).all()
    assert set(findings.untrained_success) == {"room-det", "maze-stoc"}


def test_other_processes_draw_the_same_figures(found, page, tmp_path):
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=suites.prepare_drawing) as pool:
        write_report(found, tmp_path, began=0.0, executor=pool)
    for path in (page.parent / "figures").glob("*.png"):
        np.testing.assert_array_equal(imread(tmp_path / "figures" / path.name), imread(path))


def test_every_part_knows_its_ceiling(found, page):
    findings = found.findings[CODE]
    for (world, agents), ceiling in findings.ceilings.items():
        assert ceiling.exact == (world == "room-det")
        for kind in ("team", "single"):
            percent = findings.percent_of_ceiling(Cell(world, agents, kind))
            np.testing.assert_allclose(percent, 100 * findings.final[Cell(world, agents, kind)]["entropy"] / ceiling.bound)
            assert f"{percent.mean():.1f}%" in page.read_text(encoding="utf-8")
            assert (percent < 100).all()


def test_dataset_entropies_and_occupancies_are_those_of_the_policies(found):
    for kind, num_policies in (("team", 2), ("single", 1)):
        cell = Cell("maze-stoc", 2, kind)
        run = found.runs[CODE][cell]
        exact = found.findings[CODE].occupancy[cell]
        assert exact.shape == (2, num_policies, 43)
        np.testing.assert_allclose(exact[1], occupancy(run.world, run.team(1).policies), atol=1e-6)
    # A dataset of 2 trajectories of 11 states: its entropy in nats is that of counts out of 22.
    nats = found.findings[CODE].dataset_entropy[cell].flat[0] * np.log(43)
    possible = {round(-sum(c / 22 * np.log(c / 22) for c in counts), 4) for counts in partitions(22, 22)}
    assert round(float(nats), 4) in possible


def partitions(total, largest):
    if total == 0:
        yield ()
    for first in range(min(total, largest), 0, -1):
        for rest in partitions(total - first, first):
            yield (first, *rest)


def modified(folder):
    return {path: path.stat().st_mtime_ns for path in (folder / "runs").rglob("policies.npz")}


@pytest.mark.parametrize("name", ["policies.npz", "config.json", "metrics.csv"])
def test_started_again_it_trains_only_what_is_missing_or_damaged(found, folder, tmp_path, name):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    shutil.rmtree(copy / "runs" / "code" / "room-det-2-team")
    damaged = copy / "runs" / "text" / "room-det-3-single" / name
    damaged.write_bytes(damaged.read_bytes()[:100])
    before, notes = modified(copy), []
    again = reproduce(CONFIG, copy, on_note=notes.append)
    after = modified(copy)
    changed = {path.parent.name for path in after if after[path] != before.get(path)}
    assert changed == {"room-det-2-team", "room-det-3-single"}
    (note,) = notes
    assert "room-det-3-single" in note
    assert "trained again" in note
    for training, runs in found.runs.items():
        for cell, run in runs.items():
            np.testing.assert_array_equal(again.runs[training][cell].policies.logits, run.policies.logits)


def test_results_of_other_settings_or_versions_are_never_mixed(folder, found, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    other = Reproduce(worlds=("room-det",), agents=(2,), seeds=2, updates=21, schedule="code", estimator="sum")
    with pytest.raises(ValueError, match=r"updates 20 instead of 21.*--force"):
        reproduce(other, copy)
    contents = json.loads((copy / "contents.json").read_text())
    (copy / "contents.json").write_text(json.dumps({**contents, "farflung": "0.0.1"}))
    with pytest.raises(ValueError, match=r"farflung 0\.0\.1 instead of"):
        reproduce(CONFIG, copy)
    (copy / "contents.json").write_text("{")
    with pytest.raises(ValueError, match="that cannot be read"):
        reproduce(CONFIG, copy)
    assert len(modified(copy)) == 2 * 8 + 2 * 4 + 2
    assert len(reproduce(other, copy, force=True).runs[CODE]) == 2
    assert len(modified(copy)) == 3


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match="holds no results"):
        reproduce(CONFIG, tmp_path, force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_interrupt_keeps_what_is_finished(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("farflung.cli.terminal.use_all_cores", lambda: None)
    from farflung.studies import suite as module

    honest, calls = module.finish, []

    def interrupted(*arguments):
        calls.append(arguments[0].configs[0])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return honest(*arguments)

    monkeypatch.setattr(module, "finish", interrupted)
    assert main([*SMALLEST, "--out", str(tmp_path / "out")]) == 130
    assert "the same command continues" in capsys.readouterr().err
    kind = "single" if calls[0].single else "independent" if calls[0].independent else "team"  # whichever was compiled first
    assert {path.parent.name for path in modified(tmp_path / "out")} == {f"room-det-2-{kind}"}


def test_a_full_disk_is_one_line_and_keeps_what_is_finished(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("farflung.cli.terminal.use_all_cores", lambda: None)
    honest, calls = np.savez_compressed, []

    def full(*arguments, **arrays):
        calls.append(arguments)
        if len(calls) > 3:  # a run has three archives
            raise OSError(28, "No space left on device")
        honest(*arguments, **arrays)

    monkeypatch.setattr(np, "savez_compressed", full)
    assert main([*SMALLEST, "--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "No space left on device" in line
    (kept,) = (tmp_path / "out" / "runs" / "code").iterdir()  # the one that was compiled first
    assert len(load_run(kept).config.seeds) == 2


def test_the_page_is_self_contained_and_every_section_is_in_the_contents(page):
    parsed = check_self_contained(page)
    assert parsed.sections[:2] == ["answer", "learning"]
    assert {"verdicts", "settings", "deviations", "timings", "samples", "frank-wolfe"} <= set(parsed.sections)
    assert {f"data/{path.name}" for path in (page.parent / "data").iterdir()} <= set(parsed.links)
    assert {"runs/code/maze-stoc-3-team/index.html", "runs/text-mean/maze-stoc-3-single/index.html"} <= set(parsed.links)
    assert len(parsed.images) == 4 * 9 + 4
    assert "Preview" not in page.read_text(encoding="utf-8")


def test_every_number_of_one_setting_leads_to_a_run(page):
    elsewhere = r"not measured|.*computed exactly.*"  # theorems
    assert [text for text in cells_without_link(page) if not re.fullmatch(elsewhere, text, re.DOTALL)] == []
    links = Page(page.read_text(encoding="utf-8")).links
    team, single = (links.count(f"runs/text/maze-stoc-3-{kind}/index.html") for kind in ("team", "single"))
    assert team > 2 * 10  # all estimators share the team's run
    assert single == 1 + 1  # the percentage of the ceiling, and the claim about the uniform distribution
    assert links.count("#claim-1") == 4 + 4  # the answer to the paper's question, and all claims at a glance


def test_the_page_says_how_much_hangs_on_the_training(page, found):
    by_setting = {}
    for findings in found.findings.values():
        for claim in claims(findings, found.theorems):
            by_setting.setdefault((claim.statement, claim.world, claim.agents), set()).add(claim.verdict)
    same = sum(len(verdicts) == 1 for verdicts in by_setting.values())
    assert f"in {same} of {len(by_setting)} settings" in page.read_text(encoding="utf-8")


def test_a_preview_is_marked(found, tmp_path):
    import dataclasses

    quick = dataclasses.replace(found, config=dataclasses.replace(CONFIG))
    object.__setattr__(quick.config, "quick", True)
    (tmp_path / "out").mkdir()
    write_report(quick, tmp_path / "out", began=0.0)
    object.__setattr__(quick.config, "quick", False)
    text = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert 'class="preview">Preview: room-det and maze-stoc with m = 2 and 3 only' in text
    assert "20 updates, 2 seeds" in text


def test_the_preview_trains_some_settings_of_the_full_page_in_full():
    quick, full = Reproduce(quick=True), Reproduce()
    assert (quick.updates, quick.seed_values, quick.datasets) == (full.updates, full.seed_values, full.datasets)
    assert set(quick.worlds) < set(full.worlds)
    assert set(quick.agents) < set(full.agents)
    assert (quick.schedules, quick.estimators) == (("code",), ("sum",))


def test_figures_and_numbers_lie_beside_the_page(page, found):
    figures = page.parent / "figures"
    assert len(list(figures.glob("*.svg"))) == 4 * 9 + 4
    assert {path.stem for path in figures.glob("*.png")} == {
        path.stem for path in figures.glob("*.svg") if not path.stem.endswith(("code-mean", "text-sum", "text-mean"))
    }
    with (page.parent / "data" / "claims.csv").open() as file:
        rows = list(csv.DictReader(file))
    text = page.read_text(encoding="utf-8")
    assert len(rows) == 4 * (20 * 4 + 6) + 2 * 4  # independent agents are trained under one learning rate
    for row in rows:
        assert f">{float(row['difference']):+.3f}<" in text
        assert row["verdict"] in ("holds", "does not hold", "undecided")
        assert float(row["p_holm"]) >= float(row["p_value"])
    with (page.parent / "data" / "final.csv").open() as file:
        final = {
            (r["schedule"], r["estimator"], r["world"], r["agents"], r["kind"], r["seed"], r["metric"]): r["value"]
            for r in csv.DictReader(file)
        }
    run = found.runs[CODE][Cell("room-det", 2, "team")]
    assert float(final["code", "sum", "room-det", "2", "team", "1", "support"]) == run.summary["final"]["support"][1]


@needs_browser
def test_the_page_opens_in_a_browser_and_switches_between_trainings(page, found):
    def switch(tab):
        for training in found.findings:
            tab.get_by_role("radio", name=training_name(training), exact=True).check()
            shown = tab.evaluate(
                "[...document.querySelectorAll('.training')].filter(each => each.checkVisibility()).map(each => each.className)"
            )
            assert set(shown) == {f"training {training}"}
            assert len(shown) > 40
        tab.evaluate("document.querySelectorAll('details').forEach(each => each.open = false)")
        for section, number in (("answer", 1), ("verdicts", 20)):
            tab.locator(f"#{section} td a[href='#claim-{number}']").first.click()
            assert tab.locator(f"#claim-{number}").is_visible()  # in an opened part of the page
            assert tab.evaluate(f"document.getElementById('claim-{number}').getBoundingClientRect().top") < 900

    check_in_browser(page, switch)
