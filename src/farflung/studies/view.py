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
from farflung.config.reading import member, one_line_errors, parse_object, read_object, read_text, reading
from farflung.runs.destinations import CONFIG, UNFINISHED, claimed, claimed_file, is_held
from farflung.runs.files import to_json, write_atomically, write_results
from farflung.runs.metrics_table import Columns
from farflung.runs.run import PAGE, Playback, Run, files_of, load_run, read_config
from farflung.training.metrics import Metrics
from farflung.training.progress import NO_MOMENTS, Moments
from farflung.worlds.world import World

if TYPE_CHECKING:
    from starlette.applications import Starlette

_LIVE = "live.json"
_SECONDS_BETWEEN = 1.0
_MOST_BESIDE, _MOST_NEIGHBOURS, _MOST_RUNS = 3, 100, 1000
_DEEPEST, _MOST_FOLDERS = 4, 5000
"""How deep below a folder its runs are looked for, and in how many folders."""
_MOST_BYTES = 32 * 2**20
_PICTURES = ("figure.png", "figure.svg")
_Stamps = tuple[tuple[int, ...], ...]
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
        from farflung.figures.player import described_unfinished  # needs Jinja2

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
    files = [*(_PICTURES if has_picture else ()), *files_of(run)]
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
        for path in _folders_beside(folder):
            with contextlib.suppress(ValueError), one_line_errors(f"{path} cannot be shown"):
                other = read_config(read_object(path / CONFIG))
                if len(found) < _MOST_BESIDE and _task(other) == _task(run.config) and _who(other) != _who(run.config):
                    loaded = load_run(path)
                    if loaded.world.identity == run.world.identity:
                        found.append((path, loaded))
    return found


def _folders_beside(folder: Path) -> list[Path]:
    return sorted(path for path in folder.parent.iterdir() if path.name != folder.name)[:_MOST_NEIGHBOURS]


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


def _finished(run: Run, folder: Path, *, beside: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """The JSON of a run that was read from a folder; raises an error if it cannot be shown."""
    from farflung.figures.player import described

    found = described(run, printable(folder.name), beside=beside)
    return _checked(found | {"facts": [*found["facts"], ["files", printable(str(folder))]]})


def _task(config: Explore) -> tuple[Any, ...]:
    return config.world, config.agents, config.trajectories, config.horizon, config.slip


def _who(config: Explore) -> tuple[Any, ...]:
    return config.single, config.independent


class Viewed:
    """The folders that a server shows: runs, finished or not, each known by its number alone."""

    def __init__(self, paths: Sequence[str | Path]) -> None:
        self._paths = [Path(path) for path in paths]
        for path in self._paths:
            if not path.is_dir():
                found = "this is a file" if path.exists() else "there is no such directory"
                raise ValueError(f"{path} cannot be shown: {found}; name a run, or a folder in which runs lie or will appear")
        self.is_overview = not all(map(_is_run, self._paths))
        self.title = "Runs in " + " and ".join(printable(path.resolve().name or str(path)) for path in self._paths)
        self.folders: list[Path] = []
        self.titles: list[str] = []
        self._described: dict[tuple[int, bool], tuple[_Stamps, dict[str, Any]]] = {}
        self._rows: dict[int, tuple[_Stamps, dict[str, Any]]] = {}
        self._lock = threading.RLock()  # requests are answered in several threads
        self.look()

    def look(self) -> None:
        """Finds the runs that are there; a run keeps its number as long as the server runs."""
        found = list(dict.fromkeys(folder for path in self._paths for folder in _runs_in(path)))
        with self._lock:
            known = {*self.folders}
            if new := [folder for folder in found if folder not in known]:
                self.folders += new
                self.titles = _titles(self.folders)

    def describe(self, number: int, *, is_alone: bool = False) -> dict[str, Any]:
        """The JSON of a run; a finished one is read once, until something is trained there or beside it.

        Args:
            is_alone: whether no other run is on the page: then it is compared with those that lie beside it.
        """
        folder = self.folders[number]
        with self._lock:
            stamps = _stamps(folder, is_alone=is_alone)
            kept = self._described.get((number, is_alone))
            if kept is None or kept[0] != stamps or not stamps:
                kept = stamps, self._read(number, is_alone=is_alone)
                if stamps:
                    self._described[number, is_alone] = kept
            return kept[1]

    def _read(self, number: int, *, is_alone: bool = False) -> dict[str, Any]:
        folder, title = self.folders[number], self.titles[number]
        if (folder / CONFIG).is_file() and not _is_training(folder):
            run = load_run(folder)
            with reading(f"{folder} cannot be shown"):
                return _finished(run, folder, beside=_beside(run, folder) if is_alone else ())
        with reading(f"{folder} holds no training in progress"):
            if not _is_run(folder):
                raise ValueError("it was removed, or moved to another place")
            unfinished = member(folder, UNFINISHED)
            if (unfinished / _LIVE).is_file():
                found = _checked(parse_object(read_text(member(unfinished, _LIVE), _MOST_BYTES)))
                return found if is_held(unfinished) else _interrupted(found, title)
            return {**_NOTHING_YET, "title": title, "about": f"{title} has not begun to train."}

    def shown(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """The JSON of the runs of one page, with titles that tell them apart."""
        return [self.describe(number, is_alone=len(numbers) == 1) | {"title": self.titles[number]} for number in numbers]

    def rows(self) -> list[dict[str, Any]]:
        """What the overview shows of each run that is there; a finished one is read once."""
        with self._lock:
            return [self._row(number) for number, folder in enumerate(self.folders) if _is_run(folder)]

    def _row(self, number: int) -> dict[str, Any]:
        title, stamps = self.titles[number], _stamps(self.folders[number])
        if number not in self._rows or self._rows[number][0] != stamps or not stamps:
            try:
                row = _row(number, self._read(number))
            except (OSError, ValueError) as error:
                row = {"number": number, "problem": str(error)}
            self._rows[number] = stamps, row
        return self._rows[number][1] | {"title": title}


def _stamps(folder: Path, *, is_alone: bool = False) -> _Stamps:
    """Others as soon as a run is trained in a folder, or beside it if that is compared with it; none before it is finished."""
    if not (own := _stamp(folder)) or _is_training(folder):
        return ()
    return (own, *filter(None, map(_stamp, _folders_beside(folder)))) if is_alone else (own,)


def _stamp(folder: Path) -> tuple[int, ...]:
    try:
        about = (folder / CONFIG).stat()
    except OSError:
        return ()
    return about.st_ino, about.st_mtime_ns, about.st_size


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
    "final": {},
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
    json.dumps([run, _row(0, run)], allow_nan=False)
    return run


def _runs_in(path: Path) -> list[Path]:
    """The path itself if it is a run, or the runs in it and in its folders."""
    with reading(f"{path} cannot be shown"):
        found, waiting, num_folders = [], [(path, 0)], 0
        while waiting:
            folder, depth = waiting.pop()
            num_folders += 1
            if num_folders > _MOST_FOLDERS:
                raise ValueError(f"there are more than {_MOST_FOLDERS:,} folders to look for runs in: name one of them")
            # A folder inside may be somebody else's, or may be removed just now.
            with contextlib.suppress(OSError) if depth else contextlib.nullcontext():
                if _is_run(folder):
                    found.append(folder.resolve())
                elif depth < _DEEPEST:
                    inner = sorted(each for each in folder.iterdir() if not each.name.startswith("."))
                    waiting += [(each, depth + 1) for each in reversed(inner) if each.is_dir() and not each.is_symlink()]
            if len(found) > _MOST_RUNS:
                raise ValueError(f"there are more than {_MOST_RUNS:,} runs in it: name a folder with fewer")
    return found


def _titles(folders: Sequence[Path]) -> list[str]:
    """The names of folders, after as many of their parents as tell them apart."""
    titles = []
    for folder in folders:
        alike, depth = [other for other in folders if other.name == folder.name and other != folder], 1
        while any(other.parts[-depth:] == folder.parts[-depth:] for other in alike):
            depth += 1
        titles.append(printable("/".join(folder.parts[-depth:])))
    return titles


def _is_run(path: Path) -> bool:
    return (path / CONFIG).is_file() or (path / UNFINISHED / CONFIG).is_file()


def _is_training(path: Path) -> bool:
    """Whether a process trains there now: for the first time, or once more after an interruption."""
    with contextlib.suppress(OSError, ValueError):
        unfinished = member(path, UNFINISHED)
        # What an interrupted training has left is older than the run that it has saved.
        is_newer = (unfinished / _LIVE).stat().st_mtime_ns > (
            (path / CONFIG).stat().st_mtime_ns if (path / CONFIG).is_file() else 0
        )
        return is_newer and is_held(unfinished)
    return False


def _row(number: int, run: dict[str, Any]) -> dict[str, Any]:
    from farflung.figures.player import thumbnail

    def last(metric: str) -> float | None:
        if metric in run["final"]:
            return run["final"][metric]
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
        "picture": thumbnail(run),
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
        runs, address = viewed.shown(numbers), "&".join(f"run={number}" for number in numbers)
        title = " and ".join(run["title"] for run in runs)
        return html(run_page(runs, title, live=f"/data?{address}", home=viewed.is_overview))

    def numbers_of(request: Request) -> list[int]:
        chosen = [int(text) for text in request.query_params.getlist("run") if text.isdecimal() and len(text) < 6]
        return [number for number in dict.fromkeys(chosen) if number < len(viewed.folders)]

    def home(request: Request) -> Response:
        viewed.look()
        chosen = numbers_of(request)
        if viewed.is_overview and not chosen:
            return html(overview_page(viewed.rows(), viewed.title))
        return shown(chosen or range(len(viewed.folders)))

    def rows(_: Request) -> Response:
        viewed.look()
        return JSONResponse(viewed.rows(), headers=_HEADERS)

    def data(request: Request) -> Response:
        return JSONResponse(viewed.shown(numbers_of(request)), headers=_HEADERS)

    def problem(_: Request, error: Exception) -> Response:
        return JSONResponse({"error": str(error)}, 404, headers=_HEADERS)

    return Starlette(
        routes=[
            Route("/", guarded(home)),
            Route("/data", guarded(data)),
            Route("/rows", guarded(rows)),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(names), www_redirect=False)],
        exception_handlers={ValueError: problem, OSError: problem},
    )


def _is_equal(given: str, token: str) -> bool:
    """Whether somebody knows the token; the time that this takes tells nothing about it."""
    return hmac.compare_digest(given.encode(), token.encode())
