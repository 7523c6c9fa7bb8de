import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.studies.pages import browser, needs_browser

import farflung
from farflung.cli import COMMANDS, _parse, main

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^(<!-- run(?: with ([^\n]+))? -->\n)?```(\w*)[^\n]*\n(.*?)^```$", flags=re.M | re.S)
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")
IS_UPDATING = "UPDATE_DOCS" in os.environ
PAGES = {page.stem: page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").glob("*.md"))}
TESTED_ELSEWHERE = {page: found[1] for page, text in PAGES.items() if (found := re.search(r"<!-- tested in (\S+) -->", text))}


@pytest.mark.parametrize("page", [page for page, text in PAGES.items() if "```" in text and page not in TESTED_ELSEWHERE])
def test_a_page_runs_from_top_to_bottom_and_shows_what_comes_out(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))  # pages import the programs that they include
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    monkeypatch.setattr("farflung.cli.terminal.use_all_cores", lambda: None)  # the tests' JAX is configured already
    names: dict[str, object] = {}
    output, updated = "", PAGES[page]
    for is_run, further, language, text in BLOCK.findall(PAGES[page]):
        if language == "text":
            if IS_UPDATING:
                updated = updated.replace(text, with_numbers_of(text, output))
            else:
                assert_shown(text, output)
            continue
        if language == "python":
            exec(compile(text, page, "exec"), names)
        else:
            for line in re.findall(r"^farflung (.+)$", text, flags=re.M):
                arguments = shlex.split(line, comments=True)
                assert main([*arguments, *further.split()]) == 0 if is_run else callable(_parse(arguments))
        output = capsys.readouterr().out
    if IS_UPDATING:
        (ROOT / "docs" / f"{page}.md").write_text(updated, encoding="utf-8")


def test_what_is_tested_elsewhere_is_tested():
    for page, test in TESTED_ELSEWHERE.items():
        assert f"{page}.md" in (ROOT / test).read_text(encoding="utf-8")


def assert_shown(text, output):
    """Each line that a page shows is one of the output, in the same order; numbers may be off by a little, times by any."""
    lines = iter(output.splitlines())
    for shown in filter(str.strip, text.splitlines()):
        assert any(is_alike(shown, line) for line in lines), f"the output does not go on with {shown!r}:\n{output}"


def with_numbers_of(text, output):
    """The lines that a page shows, as they are in the output now."""
    lines, shown = iter(output.splitlines()), []
    for line in text.splitlines():
        now = line if not line.strip() else next((now for now in lines if words(now) == words(line)), None)
        assert now is not None, f"the output does not go on with {line!r}:\n{output}"
        shown.append(now)
    return "\n".join(line.rstrip() for line in shown) + "\n"


def words(line):
    return NUMBER.split(re.sub(r"[\d.]+ s\b", "s", " ".join(line.split())))


def is_alike(shown, line):
    if words(shown) != words(line):
        return False
    shown, line = (re.sub(r"[\d.]+ s\b", "s", " ".join(each.split())) for each in (shown, line))
    numbers, expected = ([float(n.replace(",", "")) for n in NUMBER.findall(each)] for each in (line, shown))
    return numbers == pytest.approx(expected, rel=0.03, abs=0.0101)  # one in the second decimal place


def test_every_public_name_is_in_the_reference():
    listed = re.findall(r"^::: (\S+)", PAGES["api"], flags=re.M)
    assert set(farflung.__all__) - {"loggers"} <= {name.rpartition(".")[-1] for name in listed}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    path = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(path)]
    built = subprocess.run(command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return path


def test_the_site_is_complete_and_loads_nothing_from_elsewhere(site, capsys):
    pages = {page.stem: page.read_text(encoding="utf-8") for page in site.glob("*.html")}
    assert set(PAGES) <= set(pages)
    for html in pages.values():
        assert not re.search(r'<(?:script|img|iframe)[^>]*src="(?:https?:)?//|<link[^>]*stylesheet" href="(?:https?:)?//', html)
        assert "arithmatex" not in html
        assert not re.search(r"--8\s*(<|&lt;)", html)  # a program that was to be included
    assert "<math" in pages["theory"]
    assert "<math" in pages["api"]
    for command in COMMANDS:
        with pytest.raises(SystemExit):
            main([command, "--help"])
        options = set(re.findall(r"--\w[\w-]*", capsys.readouterr().out)) - {"--help"}
        section = pages["cli"].split(f'id="{command}"')[1].split("<h2")[0]
        assert options <= set(re.findall(r"<code>(--[\w-]+)", section))


@needs_browser
def test_the_site_is_searched_without_a_server(site):
    with browser() as opened:
        tab = opened.new_page()
        tab.goto(f"{(site / 'index.html').as_uri()}?q=ceiling")
        titles = tab.locator(".md-search-result__item h1")
        titles.first.wait_for()
        assert "Know the best possible" in titles.all_inner_texts()
