import contextlib
import dataclasses
import json
import re
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
from tests.studies.pages import browser, needs_browser

import farflung
from farflung.cli import main
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
        assert get(f"{address}/runs/1/figure.png")[0] == 200
        for path in (
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
        for path in ("/runs/7/figure.png", "/runs/-1/figure.png", "/runs/0/figure.png"):  # a saved run has no picture
            assert get(address + path)[0] == 404, path
        assert get(f"{address}/", Host="evil.example")[0] == 400
        assert json.loads(get(f"{address}/data?run=0&run=99&run=x")[2])[0]["title"] == HOSTILE


def test_only_who_knows_the_token_sees_runs(runs):
    with served(runs) as address:
        port = urllib.parse.urlsplit(address).port
        for path in ("/", "/data?run=0", "/runs/1/figure.png", "/?token=", "/?token=a", f"/?token={TOKEN}x", "/?token=%C3%A4"):
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
        assert [row["title"] for row in rows if "problem" not in row] == ["x", "team"]


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
        (["view", "nowhere"], "nowhere cannot be shown: there is no such directory"),
        (["view", "."], "is no run, and there are no runs in it"),
        (["view", ".", "--port", "70000"], "port must be a whole number from 0 to 65535, not 70000"),
    ],
)
def test_a_mistake_is_one_line(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line


@needs_browser
def test_runs_are_sorted_compared_and_updated_in_the_browser(runs, tmp_path):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
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
            tab.click("thead button >> nth=0")
            assert tab.evaluate(names) == ["team", HOSTILE]
            assert axe.Axe().run(tab).response["violations"] == []
            for box in tab.query_selector_all("tbody input"):
                box.check()
            tab.click("#compare")
            tab.wait_for_selector("canvas >> nth=1")
            assert tab.inner_text("figcaption >> nth=1").startswith(HOSTILE)
        with served(tmp_path / "live") as address:
            tab.goto(f"{address}/?token={TOKEN}", wait_until="networkidle")
            assert "has not begun to train" in tab.inner_text("#introduction")
            folder = tmp_path / "live" / "unfinished"
            with locked(folder), LiveRun(config, world, "live", folder) as live:
                tab.wait_for_selector("text=the program is being compiled")
                live.show(Moments().added(1, episodes))
                time.sleep(1)
                live.log(np.array([1]), np.array([24]), made_metrics(0.5))
                tab.wait_for_selector("text=Training: 1 of 10 updates.")
                assert "update 1" in tab.inner_text("figcaption >> nth=0")
                assert "step 8 of 8" in tab.inner_text("figcaption >> nth=0")  # reduced motion: the end of the episode
            tab.wait_for_selector("text=live was interrupted after 1 updates or later")
    assert problems == []


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
