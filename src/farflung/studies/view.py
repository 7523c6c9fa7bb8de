"""Runs in a browser: `farflung view`, and what a training in progress leaves for it."""

import contextlib
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from farflung.config import Explore
from farflung.config.checks import check_text
from farflung.config.reading import member, parse_object, read_bytes, read_object, read_text, reading
from farflung.runs.destinations import CONFIG, UNFINISHED
from farflung.runs.files import to_json
from farflung.runs.metrics_table import Columns
from farflung.runs.run import Playback, Run, load_run, read_config
from farflung.training.metrics import Metrics
from farflung.training.progress import Moments
from farflung.worlds.world import World

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request

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
        self._about, self._file = (config, world, name), folder / _LIVE
        self._records: list[Columns] = []
        self._moments = Moments()
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
        new = self._file.with_name(f".{_LIVE}")
        with contextlib.suppress(OSError):  # of no importance to the training; nothing waits for the disk
            new.write_text(content, encoding="utf-8")
            new.replace(self._file)


def page_of(run: Run, folder: Path, *, has_picture: bool = True) -> str:
    """The page of a run that is about to be saved in a folder.

    Args:
        has_picture: whether the run is saved with its figure; its page then compares it with runs that lie beside it.
    """
    from farflung.figures.player import described, run_page

    others = _beside(run, folder) if has_picture else {}
    beside = [{**described(other, name), "arrows": None} for name, other in others.items()]
    files = [*([_PICTURE] if has_picture else []), "metrics.csv", "summary.json", "config.json"]
    return run_page([described(run, folder.name, beside=beside, files=files)], folder.name)


def _beside(run: Run, folder: Path) -> dict[str, Run]:
    """Finished runs next to a folder that differ from a run in who is trained: a team, one policy, or independent agents."""
    found: dict[str, Run] = {}
    with contextlib.suppress(OSError):
        neighbours = sorted(path for path in folder.parent.iterdir() if path.name != folder.name)[:_MOST_NEIGHBOURS]
        for path in neighbours:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                other = read_config(read_object(path / CONFIG))
                if len(found) < _MOST_BESIDE and _task(other) == _task(run.config) and _who(other) != _who(run.config):
                    loaded = load_run(path)
                    if loaded.world.identity == run.world.identity:
                        found[path.name] = loaded
    return found


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
        from farflung.figures.player import described

        folder = self.folders[number]
        with self._lock:
            if number in self._described:
                return self._described[number]
            if (folder / CONFIG).is_file():
                self._described[number] = described(load_run(folder), folder.name)
                return self._described[number]
        with reading(f"{folder} holds no training in progress"):
            unfinished = member(folder, UNFINISHED)
            if (unfinished / _LIVE).is_file():
                return _checked(parse_object(read_text(member(unfinished, _LIVE), _MOST_BYTES)))
            return _checked({**_NOTHING_YET, "title": folder.name, "about": f"{folder.name} has not begun to train."})

    def rows(self) -> list[dict[str, Any]]:
        """What the overview shows of each run."""
        rows = []
        for number, folder in enumerate(self.folders):
            try:
                rows.append(_row(number, self.describe(number), has_picture=(folder / _PICTURE).is_file()))
            except (OSError, ValueError) as error:
                rows.append({"number": number, "title": folder.name, "problem": str(error)})
        return rows


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
    "isLive": True,
    "version": "",
}


def _checked(live: dict[str, Any]) -> dict[str, Any]:
    """A description from a file; raises ValueError if it lacks a part."""
    if missing := sorted({*_NOTHING_YET, "title", "about"} - live.keys()):
        raise ValueError(f"{_LIVE} has no {missing[0]}")
    check_text("title", live["title"])
    return live


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
        "isLive": run["isLive"],
        "picture": f"runs/{number}/{_PICTURE}" if has_picture else None,
    }


def application(paths: Sequence[str | Path], names: Sequence[str] = ("127.0.0.1", "localhost", "[::1]")) -> "Starlette":
    """The web application of `farflung view`: pages of runs, and nothing else that lies on the disk.

    Runs have numbers in addresses, so that no address names a file. A request with another host name is refused: a page of
    somebody else's cannot read runs under a name of its own.

    Args:
        names: host names under which the server may be addressed.
    """
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.responses import HTMLResponse, JSONResponse, Response
    from starlette.routing import Route

    from farflung.figures.player import overview_page, run_page

    viewed = Viewed(paths)

    def html(text: str) -> Response:
        return HTMLResponse(text, headers=_HEADERS)

    def shown(numbers: Sequence[int]) -> Response:
        runs = [viewed.describe(number) for number in numbers]
        title = " and ".join(run["title"] for run in runs)
        return html(run_page(runs, title, live="/data?" + "&".join(f"run={number}" for number in numbers)))

    def numbers_of(request: "Request") -> list[int]:
        chosen = [int(text) for text in request.query_params.getlist("run") if text.isdecimal() and len(text) < 6]
        return [number for number in dict.fromkeys(chosen) if number < len(viewed.folders)]

    def home(request: "Request") -> Response:
        chosen = numbers_of(request)
        if viewed.is_overview and not chosen:
            return html(overview_page(viewed.rows()))
        return shown(chosen or range(len(viewed.folders)))

    def data(request: "Request") -> Response:
        return JSONResponse([viewed.describe(number) for number in numbers_of(request)], headers=_HEADERS)

    def picture(request: "Request") -> Response:
        number = int(request.path_params["number"])
        if number >= len(viewed.folders):
            raise ValueError("there is no such run")
        with reading("there is no picture"):
            content = read_bytes(member(viewed.folders[number], _PICTURE))
        return Response(content, media_type="image/png", headers=_HEADERS)

    def problem(_: "Request", error: Exception) -> Response:
        return JSONResponse({"error": str(error)}, 404, headers=_HEADERS)

    return Starlette(
        routes=[Route("/", home), Route("/data", data), Route(f"/runs/{{number:int}}/{_PICTURE}", picture)],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(names), www_redirect=False)],
        exception_handlers={ValueError: problem, OSError: problem},
    )
