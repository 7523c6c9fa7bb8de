"""Runs in a browser: `farflung view`, and what a training in progress leaves for it."""

import contextlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from farflung.config import Explore
from farflung.config.checks import check_text, printable
from farflung.config.reading import member, one_line_errors, parse_object, read_bytes, read_object, read_text, reading
from farflung.runs.destinations import CONFIG, UNFINISHED, claimed, claimed_file, is_held
from farflung.runs.files import to_json, write_atomically, write_results
from farflung.runs.metrics_table import Columns
from farflung.runs.run import PAGE, Playback, Run, load_run, read_config
from farflung.training.metrics import Metrics
from farflung.training.progress import NO_MOMENTS, Moments
from farflung.worlds.world import World

if TYPE_CHECKING:
    from starlette.applications import Starlette

_LIVE = "live.json"
_SECONDS_BETWEEN = 1.0
_MOST_BESIDE, _MOST_NEIGHBOURS, _MOST_RUNS = 3, 100, 1000
_MOST_BYTES = 32 * 2**20
_PICTURE = "figure.png"
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class LiveRun:
    """Writes what `farflung view` shows of a training in progress, at most once a second and in a thread of its own."""

    def __init__(self, config: Explore, world: World, name: str, folder: Path) -> None:
        self._about, self._file = (config, world, printable(name)), folder / _LIVE
        self._records: list[Columns] = []
        self._moments = NO_MOMENTS
        self._next_time = 0.0
        self._pool = ThreadPoolExecutor(1)
        self._pending: Future[None] | None = None

    def __enter__(self) -> "LiveRun":
        self._write_soon()
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def log(self, updates: Int[np.ndarray, " record"], steps: Int[np.ndarray, " record"], metrics: Metrics) -> None:
        """Adds records."""
        self._records.append((updates, steps, metrics))
        self._write_soon()

    def show(self, moments: Moments) -> None:
        """Shows these episodes instead of the former ones."""
        self._moments = moments
        self._write_soon()

    def _write_soon(self) -> None:
        is_free = self._pending is None or self._pending.done()
        if is_free and time.monotonic() >= self._next_time:
            self._next_time = time.monotonic() + _SECONDS_BETWEEN
            self._pending = self._pool.submit(self._write, tuple(self._records), self._moments)

    def _write(self, records: Sequence[Columns], moments: Moments) -> None:
        from farflung.figures.player import described_unfinished  # imports matplotlib

        config, _, _ = self._about
        columns = None
        if records:
            updates, steps, metrics = zip(*records, strict=True)
            columns = np.concatenate(updates), np.concatenate(steps), Metrics.joined(metrics)
        playback = Playback(config.seeds[0], moments.updates, moments.shown[:, 0]) if len(moments.updates) else None
        content = to_json(described_unfinished(*self._about, columns, playback))
        with contextlib.suppress(OSError):  # of no importance to the training, which doesn't wait for the disk
            write_atomically(self._file, content, is_lasting=False)


def page_of(run: Run, folder: Path, *, has_picture: bool = True) -> str:
    """The page of a run that is about to be saved in a folder.

    Args:
        has_picture: whether the run is saved with its figure; its page then compares it with runs that lie beside it.
    """
    from farflung.figures.player import described, run_page

    title, others = printable(folder.name), _beside(run, folder) if has_picture else []
    files = [*([_PICTURE] if has_picture else []), "metrics.csv", "summary.json", "config.json"]
    return run_page([described(run, title, beside=others, files=files)], title)


def _beside(run: Run, folder: Path) -> list[dict[str, Any]]:
    """What a page shows of the runs next to it."""
    found: list[dict[str, Any]] = []
    for path, other in _neighbours(run, folder):
        with contextlib.suppress(ValueError), one_line_errors(f"{path} cannot be shown"):
            found.append({**_finished(other, path), "arrows": None, "body": None})
    return found


def _neighbours(run: Run, folder: Path) -> list[tuple[Path, Run]]:
    """Finished runs next to a folder that differ from a run in who is trained: a team, one policy, or independent agents."""
    found: list[tuple[Path, Run]] = []
    with contextlib.suppress(OSError):
        neighbours = sorted(path for path in folder.parent.iterdir() if path.name != folder.name)[:_MOST_NEIGHBOURS]
        for path in neighbours:
            with contextlib.suppress(ValueError), one_line_errors(f"{path} cannot be shown"):
                other = read_config(read_object(path / CONFIG))
                if len(found) < _MOST_BESIDE and _task(other) == _task(run.config) and _who(other) != _who(run.config):
                    loaded = load_run(path)
                    if loaded.world.identity == run.world.identity:
                        found.append((path, loaded))
    return found


def refresh_neighbours(run: Run, folder: Path) -> None:
    """Writes the pages of runs next to a run that was just saved in a folder again: now they can be compared with it."""
    for path, other in _neighbours(run, folder):
        if path.is_symlink() or not (path / PAGE).is_file():
            continue
        # Another process may be at work there, or the run may be somebody else's.
        with (
            contextlib.suppress(ValueError),
            one_line_errors(f"{path} is not refreshed"),
            claimed(path),
            claimed_file(path / PAGE) as place,
        ):
            write_results(place.fresh(), {PAGE: lambda _, run=other, folder=path: page_of(run, folder)})
            place.publish((PAGE,))


def _finished(run: Run, folder: Path) -> dict[str, Any]:
    """The JSON of a run that was read from a folder; raises an error if it cannot be shown."""
    from farflung.figures.player import described

    return _checked(described(run, printable(folder.name)))


def _task(config: Explore) -> tuple[Any, ...]:
    return config.world, config.agents, config.trajectories, config.horizon, config.slip


def _who(config: Explore) -> tuple[Any, ...]:
    return config.single, config.independent


class Viewed:
    """The folders that a server shows: runs, finished or not, each known by its number alone."""

    def __init__(self, paths: Sequence[str | Path]) -> None:
        self.folders = [folder for path in paths for folder in _runs_in(Path(path))]
        self.is_overview = len(self.folders) > 1 and len(paths) == 1
        self._described: dict[int, dict[str, Any]] = {}
        self._lock = threading.Lock()

    def describe(self, number: int) -> dict[str, Any]:
        """The JSON of a run; a finished one is read once."""
        folder = self.folders[number]
        with self._lock:
            if number in self._described:
                return self._described[number]
            if (folder / CONFIG).is_file():
                run = load_run(folder)
                with reading(f"{folder} cannot be shown"):
                    self._described[number] = _finished(run, folder)
                return self._described[number]
        name = printable(folder.name)
        with reading(f"{folder} holds no training in progress"):
            unfinished = member(folder, UNFINISHED)
            if (unfinished / _LIVE).is_file():
                found = _checked(parse_object(read_text(member(unfinished, _LIVE), _MOST_BYTES)))
                return found if is_held(unfinished) else _interrupted(found, name)
            return {**_NOTHING_YET, "title": name, "about": f"{name} has not begun to train."}

    def rows(self) -> list[dict[str, Any]]:
        """What the overview shows of each run."""
        rows = []
        for number, folder in enumerate(self.folders):
            try:
                rows.append(_row(number, self.describe(number), has_picture=(folder / _PICTURE).is_file()))
            except (OSError, ValueError) as error:
                rows.append({"number": number, "title": printable(folder.name), "problem": str(error)})
        return rows


def _interrupted(run: dict[str, Any], name: str) -> dict[str, Any]:
    """What is shown of a training whose process has ended before it was done."""
    done, about = run["updates"][-1] if run["updates"] else 0, "farflung resume continues it, if it has kept a checkpoint."
    return {**run, "about": f"{name} was interrupted after {done:,} updates or later: {about}", "isInterrupted": True,
            "version": f"{run['version']} interrupted"}  # fmt: skip


_NOTHING_YET: dict[str, Any] = {
    "command": "",
    "settings": [],
    "facts": [],
    "files": [],
    "beside": [],
    "horizon": 0,
    "seeds": [],
    "updates": [],
    "steps": [],
    "metrics": {},
    "plane": None,
    "playback": None,
    "arrows": None,
    "body": None,
    "isLive": True,
    "version": "",
}


def _checked(run: dict[str, Any]) -> dict[str, Any]:
    """A description from files; raises any error if it lacks a part, or if a page or a table cannot show it."""
    if missing := sorted({*_NOTHING_YET, "title", "about"} - run.keys()):
        raise ValueError(f"{_LIVE} has no {missing[0]}")
    check_text("title", run["title"])
    json.dumps([run, _row(0, run, has_picture=False)], allow_nan=False)
    return run


def _runs_in(path: Path) -> list[Path]:
    """The path itself if it is a run, or the runs in it."""
    with reading(f"{path} cannot be shown"):
        if not path.is_dir():
            raise ValueError("there is no such directory")
        if _is_run(path):
            return [path.resolve()]
        found = sorted(each.resolve() for each in path.iterdir() if each.is_dir() and not each.is_symlink() and _is_run(each))
    if not found:
        raise ValueError(f"{path} is no run, and there are no runs in it")
    if len(found) > _MOST_RUNS:
        raise ValueError(f"{path} has {len(found):,} runs, and at most {_MOST_RUNS:,} can be shown")
    return found


def _is_run(path: Path) -> bool:
    return (path / CONFIG).is_file() or (path / UNFINISHED / CONFIG).is_file()


def _row(number: int, run: dict[str, Any], *, has_picture: bool) -> dict[str, Any]:
    def last(metric: str) -> float | None:
        values = run["metrics"].get(metric, {}).get("values") or []
        ends = [row[-1] for row in values if row and row[-1] is not None]
        return sum(ends) / len(ends) if ends else None

    return {
        "number": number,
        "title": run["title"],
        "about": run["about"],
        "entropy": last("entropy"),
        "normalized": last("normalized_entropy"),
        "support": last("support"),
        "updates": run["updates"][-1] if run["updates"] else 0,
        "state": "interrupted" if run.get("isInterrupted") else "training" if run["isLive"] else "finished",
        "picture": f"runs/{number}/{_PICTURE}" if has_picture else None,
    }


def application(
    paths: Sequence[str | Path], token: str, names: Sequence[str] = ("127.0.0.1", "localhost", "[::1]")
) -> "Starlette":
    """The web application of `farflung view`: pages of runs, and nothing else that lies on the disk.

    Runs have numbers in addresses, so that no address names a file. A request with another host name is refused: a page of
    somebody else's cannot read runs under a name of its own. Other users of this machine can reach the server, but they don't
    know the token.

    Args:
        token: the secret in the address that opens the runs; a browser keeps it as a cookie from then on.
        names: host names under which the server may be addressed.
    """
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, JSONResponse, Response
    from starlette.routing import Route

    from farflung.figures.player import overview_page, run_page

    viewed = Viewed(paths)

    def guarded(answer: Callable[[Request], Response]) -> Callable[[Request], Response]:
        """Answers only a request with the token: in its address, which is stored as a cookie, or as that cookie."""

        def ask(request: Request) -> Response:
            cookie = f"farflung-{request.url.port}"  # a browser sends the cookies of one host to all of its ports
            if _is_equal(request.query_params.get("token", ""), token):
                # A page that goes on, not a redirect: a browser that came from elsewhere would not send a strict cookie there.
                rest = [f"run={number}" for number in numbers_of(request)]
                target = f"/{'?' * bool(rest)}{'&amp;'.join(rest)}"
                page = html(f'<link rel="icon" href="data:,"><meta http-equiv="refresh" content="0; url={target}">')
                page.set_cookie(cookie, token, httponly=True, samesite="strict")
                return page
            if _is_equal(request.cookies.get(cookie, ""), token):
                return answer(request)
            return JSONResponse({"error": "open the address that farflung view has printed"}, 403, headers=_HEADERS)

        return ask

    def html(text: str) -> Response:
        return HTMLResponse(text, headers=_HEADERS)

    def shown(numbers: Sequence[int]) -> Response:
        runs = [viewed.describe(number) for number in numbers]
        title = " and ".join(run["title"] for run in runs)
        return html(run_page(runs, title, live="/data?" + "&".join(f"run={number}" for number in numbers)))

    def numbers_of(request: Request) -> list[int]:
        chosen = [int(text) for text in request.query_params.getlist("run") if text.isdecimal() and len(text) < 6]
        return [number for number in dict.fromkeys(chosen) if number < len(viewed.folders)]

    def home(request: Request) -> Response:
        chosen = numbers_of(request)
        if viewed.is_overview and not chosen:
            return html(overview_page(viewed.rows()))
        return shown(chosen or range(len(viewed.folders)))

    def data(request: Request) -> Response:
        return JSONResponse([viewed.describe(number) for number in numbers_of(request)], headers=_HEADERS)

    def picture(request: Request) -> Response:
        number = int(request.path_params["number"])
        if number >= len(viewed.folders):
            raise ValueError("there is no such run")
        with reading("there is no picture"):
            content = read_bytes(member(viewed.folders[number], _PICTURE))
        return Response(content, media_type="image/png", headers=_HEADERS)

    def problem(_: Request, error: Exception) -> Response:
        return JSONResponse({"error": str(error)}, 404, headers=_HEADERS)

    return Starlette(
        routes=[
            Route("/", guarded(home)),
            Route("/data", guarded(data)),
            Route(f"/runs/{{number:int}}/{_PICTURE}", guarded(picture)),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(names), www_redirect=False)],
        exception_handlers={ValueError: problem, OSError: problem},
    )


def _is_equal(given: str, token: str) -> bool:
    """Whether somebody knows the token; the time that this takes tells nothing about it."""
    return hmac.compare_digest(given.encode(), token.encode())
