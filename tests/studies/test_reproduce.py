import csv
import json
import shutil
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from matplotlib.image import imread
from pages import check_in_browser, check_self_contained, needs_browser

from farflung import Reproduce, load_run, reproduce
from farflung.cli import main, suites
from farflung.studies.reproduce.claims import Cell, claims
from farflung.studies.reproduce.report import write_report

CONFIG = Reproduce(worlds=("room-det", "maze-stoc"), agents=(2, 3), seeds=2, updates=20, datasets=3)


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


def test_every_part_is_trained_under_both_schedules_and_kept(found, folder):
    assert {schedule: len(runs) for schedule, runs in found.runs.items()} == {"code": 2 * 2 * 2, "text": 2 * 2 * 2}
    kept = load_run(folder / "runs" / "text" / "maze-stoc-3-single")
    assert (kept.config.learning_rate, kept.config.decay, kept.config.seeds) == (0.1, 0.999, (0, 1))
    run = found.runs["text"][Cell("maze-stoc", 3, "single")]
    np.testing.assert_array_equal(kept.policies.logits, run.policies.logits)
    code = found.runs["code"][Cell("maze-stoc", 3, "single")]
    assert not np.array_equal(code.policies.logits, run.policies.logits)


def test_a_part_is_what_explore_trains(found):
    from farflung import explore

    alone = explore("maze-stoc", agents=3, preset="paper", updates=20, seeds=(0, 1), learning_rate=0.1, decay=0.999)
    together = found.runs["text"][Cell("maze-stoc", 3, "team")]
    np.testing.assert_array_equal(alone.policies.logits, together.policies.logits)


def test_findings_have_a_value_per_seed_and_goal(found):
    findings = found.findings["code"]
    assert findings.worlds == ["room-det", "maze-stoc"]
    assert findings.agents == [2, 3]
    for kind in ("team", "single", "random"):
        cell = Cell("room-det", 3, kind)
        assert findings.dataset_entropy[cell].shape == (2, 3)
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
    findings = found.findings["code"]
    for (world, agents), ceiling in findings.ceilings.items():
        assert ceiling.exact == (world == "room-det")
        for kind in ("team", "single"):
            percent = findings.percent_of_ceiling(Cell(world, agents, kind))
            np.testing.assert_allclose(percent, 100 * findings.final[Cell(world, agents, kind)]["entropy"] / ceiling.bound)
            assert f"{percent.mean():.1f}%" in page.read_text(encoding="utf-8")
            assert (percent < 100).all()


def test_dataset_entropies_and_occupancies_are_those_of_the_policies(found):
    from farflung.training.metrics import occupancy

    for kind, num_policies in (("team", 2), ("single", 1)):
        cell = Cell("maze-stoc", 2, kind)
        run = found.runs["code"][cell]
        exact = found.findings["code"].occupancy[cell]
        assert exact.shape == (2, num_policies, 43)
        np.testing.assert_allclose(exact[1], occupancy(run.world, run.team(1).policies), atol=1e-6)
    # A dataset of 2 trajectories of 11 states: its entropy in nats is that of counts out of 22.
    nats = found.findings["code"].dataset_entropy[cell].flat[0] * np.log(43)
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
    for schedule, runs in found.runs.items():
        for cell, run in runs.items():
            np.testing.assert_array_equal(again.runs[schedule][cell].policies.logits, run.policies.logits)


def test_results_of_other_settings_or_versions_are_never_mixed(folder, found, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    other = Reproduce(worlds=("room-det",), agents=(2,), seeds=2, updates=21, schedule="code")
    with pytest.raises(ValueError, match=r"updates 20 instead of 21.*--force"):
        reproduce(other, copy)
    contents = json.loads((copy / "contents.json").read_text())
    (copy / "contents.json").write_text(json.dumps({**contents, "farflung": "0.0.1"}))
    with pytest.raises(ValueError, match=r"farflung 0\.0\.1 instead of"):
        reproduce(CONFIG, copy)
    (copy / "contents.json").write_text("{")
    with pytest.raises(ValueError, match="that cannot be read"):
        reproduce(CONFIG, copy)
    assert len(modified(copy)) == 16
    assert len(reproduce(other, copy, force=True).runs["code"]) == 2
    assert len(modified(copy)) == 2


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
    options = ["--worlds", "room-det", "--agents", "2", "--seeds", "2", "--updates", "20", "--schedule", "code", "--quiet"]
    assert main(["reproduce", *options, "--out", str(tmp_path / "out")]) == 130
    assert "the same command continues" in capsys.readouterr().err
    finished = "room-det-2-single" if calls[0].single else "room-det-2-team"  # whichever was compiled first
    assert {path.parent.name for path in modified(tmp_path / "out")} == {finished}


def test_a_full_disk_is_one_line_and_keeps_what_is_finished(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("farflung.cli.terminal.use_all_cores", lambda: None)
    honest, calls = np.savez_compressed, []

    def full(*arguments, **arrays):
        calls.append(arguments)
        if len(calls) > 2:
            raise OSError(28, "No space left on device")
        honest(*arguments, **arrays)

    monkeypatch.setattr(np, "savez_compressed", full)
    options = ["--worlds", "room-det", "--agents", "2", "--seeds", "2", "--updates", "20", "--schedule", "code"]
    assert main(["reproduce", *options, "--out", str(tmp_path / "out"), "--quiet"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "No space left on device" in line
    (kept,) = (tmp_path / "out" / "runs" / "code").iterdir()  # the one that was compiled first
    assert len(load_run(kept).config.seeds) == 2


def test_the_page_is_self_contained_and_every_section_is_in_the_contents(page):
    parsed = check_self_contained(page)
    assert {"summary", "claims", "settings", "deviations", "timings", "figure-learning-curves"} <= set(parsed.ids)
    assert len(parsed.images) == 9
    assert "Preview" not in page.read_text(encoding="utf-8")


def test_the_page_says_how_much_hangs_on_the_learning_rate(page, found):
    verdicts = [[claim.difference.verdict for claim in claims(findings)] for findings in found.findings.values()]
    same = sum(first == second for first, second in zip(*verdicts, strict=True))
    assert f"the same in {same} of {len(verdicts[0])} settings" in page.read_text(encoding="utf-8")


def test_a_preview_is_marked(found, tmp_path):
    import dataclasses

    quick = dataclasses.replace(found, config=dataclasses.replace(CONFIG))
    object.__setattr__(quick.config, "quick", True)
    (tmp_path / "out").mkdir()
    write_report(quick, tmp_path / "out", began=0.0)
    object.__setattr__(quick.config, "quick", False)
    assert 'class="preview">Preview' in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")


def test_figures_and_numbers_lie_beside_the_page(page, found):
    for path in (page.parent / "figures").glob("*.png"):
        assert path.with_suffix(".svg").is_file()
    assert len(list((page.parent / "figures").glob("*.png"))) == 9
    with (page.parent / "data" / "claims.csv").open() as file:
        rows = list(csv.DictReader(file))
    text = page.read_text(encoding="utf-8")
    assert len(rows) == 2 * 12 * 4
    for row in rows:
        assert f"<b>{float(row['difference']):+.3f}</b>" in text
        assert row["verdict"] in ("holds", "does not hold", "undecided")
    with (page.parent / "data" / "final.csv").open() as file:
        final = {
            (r["schedule"], r["world"], r["agents"], r["kind"], r["seed"], r["metric"]): r["value"]
            for r in csv.DictReader(file)
        }
    run = found.runs["code"][Cell("room-det", 2, "team")]
    assert float(final["code", "room-det", "2", "team", "1", "support"]) == run.summary["final"]["support"][1]


@needs_browser
def test_the_page_opens_in_a_browser_without_errors(page):
    check_in_browser(page)
