"""Checks that every page must pass."""

import base64
import contextlib
import hashlib
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest


class Page(HTMLParser):
    """The sections, links, images and tags of a page."""

    def __init__(self, text):
        super().__init__()
        self.sections, self.links, self.images, self.tags, self.ids = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append(tag)
        self.sections += [attributes["id"]] if tag == "section" else []
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links += [attributes["href"]] if tag == "a" else []
        self.images += [attributes] if tag == "img" else []


def check_self_contained(path):
    """The page loads nothing from elsewhere, its policy allows its own script and style alone, and all sections are listed."""
    text = path.read_text(encoding="utf-8")
    parsed = Page(text)
    within = [link for link in parsed.links if link.startswith("#")]
    assert [f"#{name}" for name in parsed.sections] == within[: len(parsed.sections)]
    assert {f"#{name}" for name in parsed.sections} <= set(within) <= {f"#{name}" for name in parsed.ids}
    assert all((path.parent / link).is_file() for link in parsed.links if not link.startswith("#"))
    assert all(image["src"].startswith("data:image/svg+xml;base64,") and image["alt"] for image in parsed.images)
    check_policy(text)
    assert not re.search(r"(src|href)=\"(https?:)?//", text)
    return parsed


def cells_without_link(path):
    """The texts of all cells of tables that lead nowhere, without settings and without empty cells."""
    text = path.read_text(encoding="utf-8")
    tables = re.findall(r"<table>(.*?)</table>", text, re.DOTALL)
    cells = [cell for table in tables for cell in re.findall(r"<td[^>]*>(.*?)</td>", table, re.DOTALL)]
    return [re.sub("<.*?>", " ", cell).strip() for cell in cells if "<a " not in cell and cell.strip()]


def check_policy(text):
    """The content security policy allows the page's own script and style by their digests, and images in it."""
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[1].replace("&#39;", "'")
    digests = {
        name: [
            base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in re.findall(pattern, text, re.DOTALL)
        ]
        for name, pattern in (("script", "<script>(.*?)</script>"), ("style", "<style>(.*?)</style>"))
    }
    (script,), (style,) = digests.values()
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    assert len(re.findall("<script", text)) == 2  # the other one is data


def chromium():
    return next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)


needs_browser = pytest.mark.skipif(
    chromium() is None, reason="no Chromium is installed, so the page is not opened in a browser"
)


@contextlib.contextmanager
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    switches = ("no-sandbox", "disable-gpu", "disable-background-networking", "disable-component-update", "disable-sync")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=chromium(), args=[f"--{switch}" for switch in switches])
        yield opened
        opened.close()


def objections(tab):
    """What axe-core finds inaccessible on a page: the rule, and the first element that breaks it."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    return [(each["id"], each["nodes"][0]["html"]) for each in axe.Axe().run(tab).response["violations"]]


def check_in_browser(path, check_more=lambda tab: None):
    """The page opens without errors on a wide light and a narrow dark screen, links work, and axe has no objections."""
    problems = []
    with browser() as opened:
        for width, scheme in ((1280, "light"), (390, "dark")):
            tab = opened.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            tab.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
            tab.on("pageerror", lambda error: problems.append(str(error)))
            tab.on("requestfailed", lambda request: problems.append(request.url))
            tab.goto(Path(path).as_uri())
            tab.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
            assert tab.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 100)")
            chart = tab.locator(".chart svg").filter(visible=True).first
            chart.hover()
            assert re.search(r"\d.*: .* \d", tab.locator(".reading:not(:empty)").inner_text())
            assert not tab.locator(".still").first.is_visible()
            tab.emulate_media(media="print")
            assert tab.locator(".still").filter(visible=True).count()
            assert not tab.locator(".charts").filter(visible=True).count()
            tab.emulate_media(media="screen")
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
            for link in tab.query_selector_all("nav a"):
                link.click()
                target = link.get_attribute("href")
                assert tab.evaluate("selector => document.querySelector(selector).getBoundingClientRect().top", target) < 900
            check_more(tab)
            assert objections(tab) == []
            assert problems == []
