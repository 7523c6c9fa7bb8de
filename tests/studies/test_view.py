import contextlib
import dataclasses
import json
import re
import shutil
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import uvicorn
from tests.made_runs import made_metrics
from tests.studies.pages import browser, needs_browser, objections

import farflung
from farflung.cli import main
from farflung.figures.player import described, run_page, thumbnail
from farflung.runs.destinations import locked
from farflung.studies.view import _NOTHING_YET, LiveRun, Viewed, application, page_of
from farflung.training.progress import Moments

SMALL = {"agents": 2, "batch_size": 4, "preset": "paper", "updates": 10, "seeds": (0, 1)}
HOSTILE = "a<img src=x onerror=alert(1)>"
TOKEN = "a-secret"


@contextlib.contextmanager
def served(*paths):
    """The address of a server that shows these runs."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        settings = {"log_config": None, "log_level": "critical", "ws": "none", "lifespan": "off"}
        server = uvicorn.Server(uvicorn.Config(application(paths, TOKEN), **settings))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def get(address, **headers):
    """The status, the headers and the content of an answer to a browser that has the token."""
    port = urllib.parse.urlsplit(address).port
    headers = {"Cookie": f"farflung-{port}={TOKEN}"} | headers
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers)) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    run = farflung.explore(farflung.gridworld("S..\n...", horizon=3), out=folder / "team", **SMALL)
    farflung.save_run(run, folder / HOSTILE)
    return folder


def test_a_server_shows_runs_and_no_other_file(runs):
    (runs / "secret.txt").write_text("secret")
    with served(runs) as address:
        status, headers, content = get(f"{address}/")
        assert status == 200
        assert b"default-src &#39;none&#39;" in content
        assert headers["X-Frame-Options"] == "DENY"
        for path in (
            "/figure.png",
            "/runs/1/figure.png",
            "/runs",
            "/runs/",
            "/runs/0/config.json",
            "/runs/0/../secret.txt",
            "/secret.txt",
            "/runs/0/%2e%2e/secret.txt",
        ):
            status, _, content = get(address + path)
            assert status == 404, path
            assert b"secret" not in content
        assert get(f"{address}/", Host="evil.example")[0] == 400
        assert json.loads(get(f"{address}/data?run=0&run=99&run=x")[2])[0]["title"] == HOSTILE


def test_only_who_knows_the_token_sees_runs(runs):
    with served(runs) as address:
        port = urllib.parse.urlsplit(address).port
        for path in ("/", "/data?run=0", "/rows", "/?token=", "/?token=a", f"/?token={TOKEN}x", "/?token=%C3%A4"):
            for cookie in ("", f"farflung-{port}=", f"farflung-{port}=x", f"farflung-{port + 1}={TOKEN}"):
                status, headers, content = get(address + path, Cookie=cookie)
                assert (status, headers["Set-Cookie"]) == (403, None), path
                assert b"open the address that farflung view has printed" in content
        status, headers, content = get(f"{address}/?run=1&token={TOKEN}&run=0", Cookie="")
        assert status == 200
        assert content.endswith(b'<meta http-equiv="refresh" content="0; url=/?run=1&amp;run=0">')
        assert headers["Set-Cookie"] == f"farflung-{port}={TOKEN}; HttpOnly; Path=/; SameSite=strict"


def test_the_browsers_process_does_not_show_the_token(runs, monkeypatch, capsys):
    opened = []

    def open_page(address):
        page = Path(urllib.request.url2pathname(urllib.parse.urlsplit(address).path))
        opened.append((address, page.read_text(), page.parent.stat().st_mode & 0o077))

    monkeypatch.setattr("webbrowser.open", open_page)
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: None)
    assert main(["view", str(runs)]) == 0
    token = re.search(r"http://127\.0\.0\.1:\d+/\?token=(\S{40,})", capsys.readouterr().out)[1]
    ((address, page, permissions),) = opened
    assert token not in address
    assert token in page
    assert permissions == 0


def test_runs_in_inner_folders_have_titles_that_tell_them_apart(runs, tmp_path):
    run = farflung.load_run(runs / "team")
    for name in ("a/team", "b/team", "b/single", "a/b/c/d/too deep", ".hidden/team", "paper/runs/code/maze"):
        farflung.save_run(run, tmp_path / name)
    viewed = Viewed([tmp_path, tmp_path / "b"])  # a run is shown once
    assert viewed.titles == ["a/team", "single", "b/team", "maze"]
    assert [row["title"] for row in viewed.rows()] == viewed.titles
    assert [run["title"] for run in viewed.shown([0, 2])] == ["a/team", "b/team"]


def test_a_table_follows_runs_that_begin_are_removed_or_trained_again(runs, tmp_path):
    viewed = Viewed([tmp_path])
    assert (viewed.rows(), viewed.title) == ([], f"Runs in {tmp_path.name}")
    (tmp_path / "new" / "unfinished").mkdir(parents=True)
    (tmp_path / "new" / "unfinished" / "config.json").write_text("{}")
    viewed.look()
    assert [(row["title"], row["state"], row["updates"]) for row in viewed.rows()] == [("new", "training", 0)]
    shutil.rmtree(tmp_path / "new" / "unfinished")
    assert viewed.rows() == []
    with pytest.raises(ValueError, match="new holds no training in progress: it was removed, or moved to another place"):
        viewed.describe(0)
    run = farflung.load_run(runs / "team")
    farflung.save_run(run, tmp_path / "new")
    (row,) = viewed.rows()
    assert (row["state"], row["entropy"]) == ("finished", pytest.approx(np.mean(run.summary["final"]["entropy"]), rel=1e-4))
    described, alone = viewed.describe(0), viewed.describe(0, is_alone=True)
    assert (viewed.describe(0), viewed.describe(0, is_alone=True)) == (described, alone)
    assert viewed.describe(0) is described
    farflung.save_run(dataclasses.replace(run, config=dataclasses.replace(run.config, independent=True)), tmp_path / "alone")
    assert [other["title"] for other in viewed.describe(0, is_alone=True)["beside"]] == ["alone"]
    (tmp_path / "new" / "config.json").write_text("{")
    viewed.look()
    assert ["problem" in row for row in viewed.rows()] == [True, False]


def test_a_thumbnail_shows_the_cells_that_the_last_episodes_visit(runs):
    run = farflung.load_run(runs / "team")
    moments = np.array(run.playback.moments)
    moments[-1] = 4  # the middle of the lower row
    moments[-1, ..., 0] = 0
    found = described(dataclasses.replace(run, playback=run.playback._replace(moments=moments)), "team")
    assert thumbnail(found) == {"columns": 3, "rows": 2, "shades": "600090"}
    assert thumbnail(found | {"playback": None}) == {"columns": 3, "rows": 2, "shades": "000000"}
    assert thumbnail(found | {"plane": None}) is None
    wide = np.zeros((100, 3), bool)
    wide[:99] = True
    plane = found["plane"] | {"columns": 100, "rows": 3, "free": "".join("01"[int(each)] for each in wide.ravel())}
    picture = thumbnail(found | {"plane": plane, "playback": None})
    assert (picture["columns"], picture["rows"]) == (34, 1)  # blocks of three cells
    assert picture["shades"] == 33 * "0" + "."


def test_a_damaged_run_is_told_beside_the_others(runs, tmp_path):
    (tmp_path / "good").symlink_to(runs / "team")  # a link leads out of the folder
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "config.json").write_text("{")
    farflung.save_run(run := farflung.load_run(runs / "team"), tmp_path / "team")
    farflung.save_run(dataclasses.replace(run, summary={"farflung": "0.1.0"}), tmp_path / "less")
    begun = json.dumps({**_NOTHING_YET, "title": "x", "about": "x"})
    for name, live in {"text": begun.replace("{}", '"x"'), "number": begun.replace("[]", "NaN"), "odd\udcff": begun}.items():
        (tmp_path / name / "unfinished").mkdir(parents=True)
        (tmp_path / name / "unfinished" / "config.json").write_text("{}")
        (tmp_path / name / "unfinished" / "live.json").write_text(live)
    with served(tmp_path) as address:
        page = get(f"{address}/")[2].decode()
        rows = json.loads(page.partition('id="runs">')[2].partition("</script>")[0])
        assert [row["title"] for row in rows if "problem" in row] == ["bad", "less", "number", "text"]
        assert [row["title"] for row in rows if "problem" not in row] == ["odd\\udcff", "team"]
        assert [
            json.loads(get(f"{address}/data?run={row['number']}")[2])[0]["title"] for row in rows if "problem" not in row
        ] == [
            "odd\\udcff",
            "team",
        ]
        for row in rows:
            if "problem" in row:
                status, _, content = get(f"{address}/data?run={row['number']}")
                assert (status, json.loads(content)) == (404, {"error": row["problem"]})


def test_episodes_whose_page_would_fill_the_memory_are_not_read(runs, tmp_path, monkeypatch):
    run = farflung.load_run(runs / "team")
    playback = run.playback._replace(updates=np.array([1]), moments=np.zeros((1, 100_000, 2, 1, 4), np.int8))
    farflung.save_run(dataclasses.replace(run, playback=playback), tmp_path / "run")
    monkeypatch.setattr("farflung.config.reading.MOST_BYTES_UNPACKED", 10**6)
    with pytest.raises(ValueError, match=r"would take \d+,\d+,\d+ bytes of memory"):
        farflung.load_run(tmp_path / "run")


def test_a_hostile_neighbour_and_an_odd_name_are_no_reason_to_have_no_page(runs, tmp_path):
    run = farflung.load_run(runs / "team")
    other = dataclasses.replace(run, config=dataclasses.replace(run.config, independent=True))
    farflung.save_run(other, tmp_path / "good")
    farflung.save_run(dataclasses.replace(other, summary={"farflung": "0.1.0"}), tmp_path / "bad")
    page = page_of(run, tmp_path / "odd\udcff")
    (shown,) = json.loads(page.partition('id="runs">')[2].partition("</script>")[0])
    assert shown["title"] == "odd\\udcff"
    assert [each["title"] for each in shown["beside"]] == ["good"]
    page.encode()


def test_a_training_in_progress_can_be_watched_from_its_beginning(tmp_path):
    seen = []

    def on_progress(status):
        live = tmp_path / "run" / "unfinished" / "live.json"
        if status.update == 0:
            return
        for _ in range(1000):
            if live.exists():
                break
            time.sleep(0.01)
        seen.append(json.loads(live.read_text()))

    farflung.explore("room-det", out=tmp_path / "run", on_progress=on_progress, **SMALL)
    assert seen[0]["title"] == "run"
    assert seen[0]["isLive"]
    assert seen[0]["plane"]["columns"] == 11
    assert not (tmp_path / "run" / "unfinished").exists()


def test_watching_changes_no_result(tmp_path):
    plain = farflung.explore("room-det", **SMALL)
    watched = farflung.explore("room-det", out=tmp_path / "run", **SMALL)
    np.testing.assert_array_equal(plain.policies.logits, watched.policies.logits)
    np.testing.assert_array_equal(plain.playback.moments, watched.playback.moments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["view"], "at least one run is needed: farflung view RUN"),
        (["view", "nowhere"], "nowhere cannot be shown: there is no such directory; name a run, or a folder in which runs lie"),
        (["view", "file"], "file cannot be shown: this is a file; name a run, or a folder in which runs lie or will appear"),
        (["view", ".", "--port", "70000"], "port must be a whole number from 0 to 65535, not 70000"),
    ],
)
def test_a_mistake_is_one_line(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line


def narrow_and_dark(tab):
    """The page fits on a phone in the dark, and axe has no objections there."""
    tab.set_viewport_size({"width": 360, "height": 740})
    tab.emulate_media(color_scheme="dark")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    assert objections(tab) == []
    tab.set_viewport_size({"width": 1280, "height": 900})
    tab.emulate_media(color_scheme="light")


@needs_browser
def test_runs_are_sorted_compared_and_updated_in_the_browser(runs, tmp_path):
    world, config, problems = farflung.make_world("room-det"), farflung.Explore("room-det", **SMALL), []
    (tmp_path / "live" / "unfinished").mkdir(parents=True)
    (tmp_path / "live" / "unfinished" / "config.json").write_text("{}")
    episodes = np.zeros((2, 1, 2, 1, world.horizon + 1), np.int32)
    with browser() as opened:
        tab = opened.new_page(reduced_motion="reduce")
        tab.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        tab.on("pageerror", lambda error: problems.append(str(error)))
        with served(runs) as address:
            tab.goto(f"{address}/?token={TOKEN}", wait_until="networkidle")
            names = "[...document.querySelectorAll('tbody th a')].map(link => link.textContent)"
            assert tab.evaluate(names) == [HOSTILE, "team"]
            assert tab.locator("tbody canvas").count() == 2
            tab.click("thead button >> nth=0")
            assert tab.evaluate(names) == ["team", HOSTILE]
            assert objections(tab) == []
            narrow_and_dark(tab)
            for number in range(2):
                tab.check(f"tbody input >> nth={number}")
            tab.click("#compare")
            tab.wait_for_selector("canvas >> nth=1")
            assert tab.inner_text("figcaption >> nth=1").startswith(HOSTILE)
            assert objections(tab) == []
            narrow_and_dark(tab)
        with served(tmp_path / "live") as address:
            tab.goto(f"{address}/?token={TOKEN}", wait_until="networkidle")
            assert "has not begun to train" in tab.inner_text("#introduction")
            assert not tab.is_visible("text=About")
            assert objections(tab) == []
            folder = tmp_path / "live" / "unfinished"
            with locked(folder), LiveRun(config, world, "live", folder) as live:
                tab.wait_for_selector("text=the program is being compiled")
                live.show(Moments().added(1, episodes))
                time.sleep(1)
                live.log(np.array([1]), np.array([24]), made_metrics(0.5))
                tab.wait_for_selector(
                    "text=2 agents in room-det, horizon 8, 10 updates, 2 seeds. Training: 1 of 10 updates are done."
                )
                assert "update 1" in tab.inner_text("figcaption >> nth=0")
                assert "step 8 of 8" in tab.inner_text("figcaption >> nth=0")  # reduced motion: the end of the episode
            tab.wait_for_selector("text=live was interrupted after 1 updates or later")
        tab.wait_for_selector("#news:has-text('farflung view is no longer running')")
    assert {*problems} == {"Failed to load resource: net::ERR_CONNECTION_REFUSED"}  # when the server has ended


@needs_browser
def test_a_folder_is_watched_from_before_its_first_training_until_the_server_ends(tmp_path):
    world, config, problems = farflung.make_world("room-det"), farflung.Explore("room-det", **SMALL), []
    with browser() as opened:
        tab = opened.new_page(reduced_motion="reduce")
        tab.on("pageerror", lambda error: problems.append(str(error)))
        with served(tmp_path) as address:
            tab.goto(f"{address}/?token={TOKEN}", wait_until="networkidle")
            assert tab.inner_text("h1") == f"Runs in {tmp_path.name}"
            assert "A training that begins in this folder appears by itself" in tab.inner_text("#none")
            unfinished = tmp_path / HOSTILE / "unfinished"
            unfinished.mkdir(parents=True)
            (unfinished / "config.json").write_text("{}")
            tab.wait_for_selector(f"tbody th a:text-is({json.dumps(HOSTILE)})")
            tab.focus("tbody input")
            tab.keyboard.press("Space")
            with locked(unfinished), LiveRun(config, world, HOSTILE, unfinished):
                tab.wait_for_selector("tbody canvas")  # the map, before the first update
                assert tab.evaluate("document.activeElement.checked")  # a reader stays where she was
                tab.click("tbody th a")
                tab.wait_for_selector("text=the program is being compiled")
                assert tab.inner_text("h1") == HOSTILE
                assert "before the first update" in tab.inner_text("#panels figcaption")
                tab.click("text=All runs")
                tab.wait_for_selector("tbody canvas")
            shutil.rmtree(unfinished)
            tab.wait_for_selector("#none")
            assert not tab.is_visible("#news")
        tab.wait_for_selector("#news:has-text('farflung view is no longer running: this page shows the last state.')")
    assert problems == []


@needs_browser
def test_levels_have_their_run_s_name_and_colour_where_runs_differ(runs, tmp_path):
    first = described(farflung.load_run(runs / "team"), "first")
    second = json.loads(json.dumps(first)) | {"title": "second"}
    second["metrics"]["entropy"]["ceiling"] = 9.0
    path = tmp_path / "index.html"
    path.write_text(run_page([first, second], "both"), encoding="utf-8")
    with browser() as opened:
        tab = opened.new_page(reduced_motion="reduce")
        tab.goto(path.as_uri())
        tab.select_option("#metric", "entropy")
        keys = tab.locator("#chart .keys li").all_inner_texts()
        (label,) = {first["metrics"]["entropy"]["ceilingLabel"]}
        assert keys == ["first", "second", "random actions", f"{label} (first)", f"{label} (second)"]
        strokes = tab.evaluate("[...document.querySelectorAll('#chart .keys path')].map(each => each.getAttribute('stroke'))")
        assert strokes[3:] == strokes[:2]
        tab.focus("#chart svg[role]")
        tab.keyboard.press("ArrowLeft")
        assert f"{label} (second) 9" in tab.inner_text("#reading")


def test_a_training_whose_process_was_killed_is_interrupted_and_one_on_another_machine_is_not(tmp_path):
    folder = tmp_path / "run" / "unfinished"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    with locked(folder), LiveRun(farflung.Explore("room-det", **SMALL), farflung.make_world("room-det"), "run", folder):
        pass
    viewed = Viewed([tmp_path])

    def state():
        return [row["state"] for row in viewed.rows()]

    assert state() == ["interrupted"]
    with locked(folder):
        assert state() == ["training"]
        kept = (folder / "lock").read_bytes()
    (folder / "lock").write_bytes(kept)  # as a killed process leaves it
    assert state() == ["interrupted"]
    (folder / "lock").write_bytes(b" process 1 on another-machine\n")
    assert state() == ["training"]


def test_a_run_that_was_interrupted_says_so_and_is_live_while_it_is_resumed(runs, tmp_path):
    run, folder = farflung.load_run(runs / "team"), tmp_path / "run" / "unfinished"
    for more, words in (
        ({"is_interrupted": True}, "It ended after 10, interrupted: farflung resume continues it."),
        ({"stopped_because": "a reason"}, "It ended after 10, by an error: a reason"),
    ):
        found = described(dataclasses.replace(run, summary=run.summary | more), "run")
        assert found["about"].endswith(words)
        assert found["isInterrupted"]
    early = described(dataclasses.replace(run, summary=run.summary | {"is_stopped_early": True}), "run")
    assert early["about"].endswith("2 seeds. It ended after 10, since the objective had stopped growing.")
    assert not early["isInterrupted"]
    farflung.save_run(dataclasses.replace(run, summary=run.summary | {"is_interrupted": True}), tmp_path / "run")
    viewed = Viewed([tmp_path])

    def state():
        return [(row["state"], viewed.describe(row["number"], is_alone=True)["isLive"]) for row in viewed.rows()]

    assert state() == [("interrupted", False)]
    folder.mkdir(exist_ok=True)
    with locked(folder):
        assert state() == [("interrupted", False)]  # another command is at work
        with LiveRun(run.config, run.world, "run", folder):
            pass
        assert state() == [("training", True)]
    assert state() == [("interrupted", False)]
