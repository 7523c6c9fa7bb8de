"""Names from files are shown literally: on pages, in notebooks, figures and terminals."""

import dataclasses
import io
import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import rich.table
from tests.fuzzing.broken import FIXTURES, VERSIONS
from tests.studies.pages import Page, check_policy

from farflung import load_run
from farflung.cli import main, terminal
from farflung.figures import explored, notebook
from farflung.figures.pages import Chart, Picture, Table, Value, render

RUNS = FIXTURES / VERSIONS[-1] / "runs"
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style></script><script>alert(1)</script>",
    "javascript:alert(1)",
    "[x](javascript:alert(1)) **bold**",
    "' onmouseover='alert(1)",
    "&lt;script&gt;",
)


def assert_harmless(html, num_images=0, num_scripts=0):
    page = Page(html)
    assert not {"iframe", "object", "svg"} & set(page.tags)
    assert page.tags.count("script") == num_scripts
    if num_scripts:
        check_policy(html)
    assert len(page.images) == num_images
    assert all(set(image) <= {"alt", "src", "width"} for image in page.images)
    assert all(link.startswith(("#", "data/")) for link in page.links)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_page_runs_nothing_that_it_is_given(text):
    chart = Chart(text, [{"title": text, "xs": [1], "ys": [0.5]}], [{"title": text, "value": 0.5}], text, text, text, text)
    facts, pictures = {text: text}, [Picture(text, text, text, text.encode(), [chart])]
    table = Table([text], [(text, [text, Value(text, text), Value(text, text, (text, text))])], text, [text], [text])
    config = SimpleNamespace(quick=True, updates=1, paper_updates=1, seeds=text, batches=text)
    shared = {"config": config, "version": text, "seconds": 1.0, "pictures": pictures, "settings": facts}
    numbers = {"num_runs": 1, "environment_steps": 1, "training_seconds": 1.0, "compile_seconds": 1.0}
    claim = {"id": text, "statement": text, "where": text, "unit": text, "tables": {text: table}, "held": {text: text}}
    picture = {"title": text, "by_training": {text: text}}
    section = {"id": text, "title": text, "text": text, "pictures": [picture], "claims": [claim], "data": [text]}
    counted = dict.fromkeys(("offline", "early", "diverse", "lower_entropy"), (1, 2, 3))
    answer = {**counted, "headline": text, "first": text, "entropy": table, "rounds": [text, text], "overtaken": None}
    reproduced = {"preview": text, "answer": answer, "sections": [section], "leads": {text: table}, "trainings": []}
    reproduced |= {"verdicts": table, "ceilings": table, "num_claims": dict.fromkeys(("verdicts", "undone"), 1)}
    html = render("reproduce.html.j2", **shared, **numbers, **reproduced)
    assert_harmless(html, num_images=1, num_scripts=2)
    tables = dict.fromkeys(("summary", "percentages", "parts", "variances", "together", "objectives"), table) | {
        "steps": [table]
    }
    texts = {"learning_rates": text, "stages": text, "verdicts": [text]}
    html = render("ablate.html.j2", **shared, times_fewer=[], num_ordered=1, num_variances=1, **tables, **texts)
    assert_harmless(html, num_images=1, num_scripts=2)
    image = {"title": text, "width": text, "png": text.encode()}
    assert_harmless(render("notebook.html.j2", facts=facts, image=image, table=table, player=None), num_images=1)


@pytest.mark.parametrize("text", HOSTILE[1:2])
def test_a_notebook_runs_nothing_that_a_run_is_called(text):
    for kind in ("hosted", "vectors"):
        world = load_run(RUNS / kind).world
        named = {"projection": dataclasses.replace(world.projection, names=(text, text))} if kind == "vectors" else {}
        assert_harmless(notebook.world_html(dataclasses.replace(world, name=text, **named)))
    run = load_run(RUNS / "table")
    called = dataclasses.replace(run, config=dataclasses.replace(run.config, world=text))
    assert_harmless(notebook.run_html(called), num_images=1)


def test_a_name_is_no_formula_in_a_figure():
    run = load_run(RUNS / "table")
    figure = explored(dataclasses.replace(run, config=dataclasses.replace(run.config, world=r"$\nonsense{$")))
    figure.savefig(io.BytesIO(), format="png", dpi=20)
    assert r"\nonsense{" in figure.get_suptitle()


def test_a_terminal_shows_names_as_they_are(capsys):
    name = "[red]x[/red] \x1b[31m:smile: \x07 [link=https://example.org]y"
    table = rich.table.Table(title=name)
    table.add_column(name)
    table.add_row(name)
    console = terminal.console()
    console.print(table)
    console.print(name)
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert shown.count(r"[red]x[/red] \x1b[31m:smile:") >= 2


def test_a_run_whose_name_steers_the_terminal_is_refused_in_one_line(tmp_path, capsys):
    shutil.copytree(RUNS / "table", tmp_path / "run")
    header = json.loads((tmp_path / "run" / "config.json").read_text())
    header["config"]["world"] = "\x1b]0;owned\x07\nfarflung: fine"
    del header["checksum"]  # as anyone can
    (tmp_path / "run" / "config.json").write_text(json.dumps(header))
    assert main(["film", str(tmp_path / "run")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.isprintable()
    assert "printable characters" in line


@pytest.mark.parametrize("arguments", [["explore", "--help"], ["--version"]])
def test_a_closed_pipe_ends_a_command_quietly(arguments):
    code = f"import sys; from farflung.cli import main; sys.exit(main({arguments}))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 141


def test_a_full_disk_for_the_output_is_one_line():
    code = "import sys; from farflung.cli import main; sys.exit(main(['--version']))"
    with open("/dev/full", "w") as full:  # noqa: PTH123
        ended = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (2, "farflung: No space left on device\n")
