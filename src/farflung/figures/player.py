"""The interactive page of a run: its curves, and episodes of its team at several moments of the training."""

import base64
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, Num

from farflung.config import Explore
from farflung.figures import planes
from farflung.figures.pages import as_data, policy, render, source
from farflung.figures.style import ceiling_label, team_label
from farflung.policies import TabularSoftmax
from farflung.runs.metrics_table import Columns
from farflung.runs.run import Playback, Run, is_finished
from farflung.runs.statistics import final_table
from farflung.training.metrics import Metrics
from farflung.worlds.world import World

_ENDED = 65_535
"""Stands for a place after an episode's end; places are numbers below it."""
_DIGITS = 5
_RANDOM, _BEST = "random actions", "the best walks"
_MOST_ARROWS = 100_000
_MOST_RANKED = 10
_MOST_CELLS = 48
_LABELS = {
    "objective": "objective",
    "normalized_entropy": "state entropy / log(states)",
    "entropy": "state entropy (nats)",
    "support": "distinct states visited",
    "particle_entropy": "k-NN entropy (nats)",
    "mixture_entropy": "mixture entropy (nats)",
    "individual_entropy": "individual entropy (nats)",
    "diversity": "diversity (nats)",
    "trajectory_entropy": "trajectory entropy (nats)",
    "policy_entropy": "policy entropy (nats)",
}
"""The metrics of a page, the most important first, with the labels of their axes."""
_OF_CELLS = {
    "normalized_entropy": "cell entropy / log(cells)",
    "entropy": "cell entropy (nats)",
    "support": "distinct cells visited",
}
"""The labels where states are vectors: these metrics count the cells of a grid."""


def run_page(runs: Sequence[dict[str, Any]], title: str, *, live: str = "", home: bool = False) -> str:
    """The HTML of a page that shows runs side by side; it needs no other file and no network.

    Args:
        runs: what `described` returns for each.
        live: the address to ask for news of trainings in progress.
        home: whether the page leads back to a table of runs.
    """
    sources = ("img-src data:", *(["connect-src 'self'"] if live else []))
    has_picture = any("figure.png" in run["files"] for run in runs)
    return _page("run.html.j2", "player.js", title, runs, *sources, live=live, home=home, has_picture=has_picture)


def overview_page(rows: Sequence[Mapping[str, Any]], title: str) -> str:
    """The HTML of a page with a sortable table of runs."""
    return _page("overview.html.j2", "overview.js", title, rows, "img-src data:", "connect-src 'self'")


def thumbnail(run: Mapping[str, Any]) -> dict[str, Any] | None:
    """A small picture of where the team of a described run goes in its last episodes: cells in ten shades."""
    plane, playback = run["plane"], run["playback"]
    if plane is None:
        return None
    columns, rows = plane["columns"], plane["rows"]
    is_free = np.array([letter == "1" for letter in plane["free"]]).reshape(columns, rows)
    visits = np.zeros((columns, rows))
    if playback is not None:
        numbers = np.frombuffer(base64.b64decode(playback["moments"][-1]["points"]), "<u2").reshape(-1, 2)
        left, bottom, right, top = plane["view"]
        points = np.array([left, bottom]) + numbers[numbers[:, 0] != _ENDED] / (_ENDED - 1) * [right - left, top - bottom]
        shares = (points - plane["low"]) / np.subtract(plane["high"], plane["low"])
        cells = np.clip((shares * [columns, rows]).astype(int), 0, [columns - 1, rows - 1])
        np.add.at(visits, tuple(cells.T), 1)
    block = -(-max(columns, rows) // _MOST_CELLS)
    sums, is_open = _in_blocks(visits, block).sum(axis=(1, 3)), _in_blocks(is_free, block).any(axis=(1, 3))
    shades = np.ceil(9 * np.sqrt(sums / max(sums.max(), 1))).astype(int)
    letters = np.where(is_open | (sums > 0), shades.astype(str), ".").T
    across = letters if plane["rowsPointDown"] else letters[::-1]
    return {"columns": len(shades), "rows": len(across), "shades": "".join(across.ravel())}


def _in_blocks(cells: np.ndarray, size: int) -> np.ndarray:
    """Cells as an array [column, column in the block, row, row in the block]; blocks at an edge are filled up."""
    padded = np.pad(cells, [(0, -length % size) for length in cells.shape])
    return padded.reshape(padded.shape[0] // size, size, padded.shape[1] // size, size)


def _page(template: str, script_name: str, title: str, data: Sequence[Any], *sources: str, **values: Any) -> str:
    """A page whose script draws it from data; its policy allows this script and style, and nothing that data may contain."""
    script, style = source("curves.js") + source("asked.js") + source(script_name), source("page.css") + source("player.css")
    allowed = policy(script, style, *sources)
    parts = {"data": as_data(list(data)), "script": script, "style": style, "policy": allowed}
    return render(template, title=title, **parts, **values)


def described(run: Run, title: str, *, beside: Sequence[dict[str, Any]] = (), files: Sequence[str] = ()) -> dict[str, Any]:
    """A run as JSON for its page.

    Args:
        beside: other runs to compare it with, as this function describes them.
        files: names of files beside the page, to link to.
    """
    shown, summary = run.is_spaced, run.summary
    final = {name.replace(" ", "_"): " ".join(filter(None, (mean, interval))) for name, mean, interval, _ in final_table(run)}
    task, labels = summary.get("transfer", {}), _labels(run.world)
    facts = {
        **_task_facts(task, final.pop("objective", "") if task else ""),
        **{f"final {labels.get(name, name.replace('_', ' '))}": value for name, value in final.items()},
        "environment steps, all seeds": f"{summary['environment_steps']:,}",
        "time to train": f"{summary['seconds']:.1f} s, and {summary['compile_seconds']:.1f} s to compile",
        "device": summary["device"],
        "farflung": summary["farflung"],
    }
    about = _about(run.config, run.world, title)
    return {
        **about,
        "about": about["about"] + _ending(run),
        "isInterrupted": not is_finished(run),
        **_curves(run.config, run.world, run.updates[shown], run.steps[shown], _rows(run.metrics, shown), summary),
        **_played(run.world, run.playback, planes.goal_area(run.world, task)),
        **({"command": task["command"]} if task else {}),
        "arrows": _arrows(run),
        "body": _body(run),
        "facts": [[name, str(value)] for name, value in facts.items()],
        "files": list(files),
        "beside": list(beside),
        "isLive": False,
        "version": str(run.updates[-1]),
    }


def _ending(run: Run) -> str:
    """What a page adds about a training that ended before its last update."""
    done = f" It ended after {run.summary['updates']:,}"
    if because := run.summary.get("stopped_because"):
        return f"{done}, by an error: {because}"
    if not is_finished(run):
        return f"{done}, interrupted: farflung resume continues it."
    return f"{done}, since the objective had stopped growing." if run.summary.get("is_stopped_early") else ""


def _task_facts(task: Mapping[str, Any], final: str) -> dict[str, str]:
    """What a page says about the task that was learned, and about what came before."""
    if not task:
        return {}
    ranking = [f"agent {row['agent']}: {row['mean_return']:.3f}" for row in task["ranking"]]
    more = f" and {len(ranking) - _MOST_RANKED} more" if len(ranking) > _MOST_RANKED else ""
    return {
        "task": task["task"],
        "final return": final,
        "mean return before learning (agents from 0)": ", ".join(ranking[:_MOST_RANKED]) + more,
        f"best episode of agent {task['ranking'][0]['agent']} before learning": task.get("shown_path", ""),
        "mean return of random actions": f"{task['random_return']:.3f}",
        "steps of exploration": f"{task['exploration_steps']:,}",
        "steps to choose an agent": f"{task['selection_steps']:,}",
    }


def described_unfinished(
    config: Explore, world: World, title: str, records: Columns | None, playback: Playback | None
) -> dict[str, Any]:
    """A training in progress as JSON for its page."""
    updates, steps, metrics = (np.zeros(0, int), np.zeros(0, int), None) if records is None else records
    done = int(updates[-1]) if len(updates) else 0
    now = f"{done:,} of {config.updates:,} updates are done." if done else "begins: the program is being compiled."
    about = _about(config, world, title)
    return {
        **about,
        **_curves(config, world, updates, steps, metrics, {}),
        **_played(world, playback),
        "about": f"{about['about']} Training{':' if done else ''} {now}",
        "arrows": None,
        "body": None,
        "facts": [],
        "files": [],
        "beside": [],
        "isLive": True,
        "version": f"{done} {0 if playback is None else len(playback.updates)}",
    }


def _about(config: Explore, world: World, title: str) -> dict[str, Any]:
    seeds = f"{len(config.seeds)} seed{'s' * (len(config.seeds) > 1)}"
    who = team_label(config) + ", each for its own entropy" * config.independent
    about = f"{who} in {config.world}, horizon {world.horizon:,}, {config.updates:,} updates, {seeds}."
    settings = [
        [name.replace("_", " "), ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)]
        for name, value in dataclasses.asdict(config).items()
        if value is not None
    ]
    command = config.command_in(world.arguments)
    return {"title": title, "who": who, "about": about, "command": command, "settings": settings, "horizon": world.horizon}


def _curves(
    config: Explore,
    world: World,
    updates: Int[np.ndarray, " record"],
    steps: Int[np.ndarray, " record"],
    metrics: Metrics | None,
    summary: Mapping[str, Any],
) -> dict[str, Any]:
    columns = {} if metrics is None else metrics.columns
    ceiling, randoms = summary.get("ceiling"), summary.get("random", {})
    if "transfer" in summary:
        randoms = {**randoms, "objective": summary["transfer"]["random_return"]}
    curves = {}
    for name, label in _labels(world).items():
        if name in columns:
            bounds = {"entropy": "bound", "normalized_entropy": "normalized_bound"}
            bound = ceiling[bounds[name]] if ceiling is not None and name in bounds else None
            curves[name] = {
                "label": f"return, {summary['transfer']['task']}" if name == "objective" and "transfer" in summary else label,
                "values": [list(map(_rounded, row)) for row in np.asarray(columns[name], float)],
                "random": _rounded(randoms.get(name)),
                "ceiling": _rounded(bound),
                "ceilingLabel": "" if ceiling is None else ceiling_label(ceiling["exact"]),
            }
    return {
        "seeds": list(config.seeds),
        "updates": updates.tolist(),
        "steps": steps.tolist(),
        "metrics": curves,
        "final": {name: _rounded(float(np.mean(values))) for name, values in summary.get("final", {}).items()},
    }


def _labels(world: World) -> dict[str, str]:
    return _LABELS | (_OF_CELLS if world.projection is not None else {})


def _rows(metrics: Metrics, shown: Bool[np.ndarray, " record"]) -> Metrics:
    return jax.tree.map(lambda column: np.asarray(column)[:, shown], metrics)


def _rounded(number: float | None) -> float | None:
    return None if number is None or not math.isfinite(number) else float(f"{number:.{_DIGITS}g}")


def _played(world: World, playback: Playback | None, goal: tuple[float, float, float, float] | None = None) -> dict[str, Any]:
    """The plane, and the episodes as points in it; both are None if states have no place to be drawn at."""
    if world.projection is None and world.positions is None:
        return {"plane": None, "playback": None}
    plane = planes.plane_of(world)
    scenes: dict[str, Float[np.ndarray, "element agent trajectory times 2"]] = {}
    if playback is not None:
        scenes = {
            f"update {update:,}": _points(world, episodes)
            for update, episodes in zip(playback.updates, playback.moments, strict=True)
        }
        if playback.random is not None:
            scenes[_RANDOM] = _points(world, playback.random)
        if playback.best is not None:
            scenes[_BEST] = _points(world, playback.best[None, :, None])
    places = np.concatenate([np.array([plane.low, plane.high]), *(points.reshape(-1, 2) for points in scenes.values())])
    low, high = np.nanmin(places, axis=0), np.nanmax(places, axis=0)
    drawn = {
        "low": plane.low,
        "high": plane.high,
        "view": [*low.tolist(), *high.tolist()],
        "columns": plane.is_free.shape[0],
        "rows": plane.is_free.shape[1],
        "free": "".join("1" if each else "0" for each in plane.is_free.ravel()),
        "walls": plane.walls,
        "shiftingWalls": plane.shifting_walls,
        "letters": plane.letters,
        "goals": [] if goal is None else [goal],
        "isMap": world.projection is None,
        "isToScale": plane.is_to_scale,
        "rowsPointDown": plane.rows_point_down,
        "wraps": [axis in plane.angles for axis in (0, 1)],
        "names": plane.names,
    }
    if playback is None:
        return {"plane": drawn, "playback": None}
    others = {name: _scene(world, points, name, None, low, high) for name, points in scenes.items() if name in (_RANDOM, _BEST)}
    moments = [
        _scene(world, points, name, int(update), low, high)
        for update, (name, points) in zip(playback.updates, scenes.items(), strict=False)
    ]
    return {"plane": drawn, "playback": {"seed": int(playback.seed), "moments": moments, "others": others}}


def _points(world: World, episodes: Num[np.ndarray, "element agent trajectory times *feature"]) -> np.ndarray:
    """The place of each state in the plane; NaN after an episode's end."""
    if world.projection is not None:
        return planes.points_of(np.asarray(episodes, float))
    cells = np.append(planes.cells_on_map(world) + 0.5, [[np.nan, np.nan]], axis=0)
    return cells[np.where(episodes < 0, world.num_states, np.minimum(episodes, world.num_states))]


def _scene(
    world: World,
    points: Float[np.ndarray, "element agent trajectory times 2"],
    label: str,
    update: int | None,
    low: Float[np.ndarray, "2"],
    high: Float[np.ndarray, "2"],
) -> dict[str, Any]:
    """Episodes as 16-bit numbers between two corners of the plane."""
    meaning = "agent" if points.shape[1] > 1 or points.shape[2] == 1 else "trajectory"
    shares = (points - low) / np.maximum(high - low, 1e-12)
    numbers = np.where(np.isfinite(shares).all(axis=-1, keepdims=True), np.round(shares * (_ENDED - 1)), _ENDED)
    return {
        "label": label,
        "update": update,
        "kind": meaning,
        "stride": -(-(world.horizon + 1) // points.shape[3]),
        "shape": [points.shape[0], points.shape[1] * points.shape[2], points.shape[3]],
        "points": base64.b64encode(numbers.astype("<u2").tobytes()).decode(),
    }


def _body(run: Run) -> dict[str, Any] | None:
    """The limbs of the bodies in the recorded poses, as 16-bit numbers between two corners of space; None without a body."""
    if run.poses is None:
        return None
    ends, radii = run.world.limbs(np.asarray(run.poses, float))
    if not np.isfinite(ends).any():
        return None
    low, high = np.nanmin(ends, axis=(0, 1, 2, 3)), np.nanmax(ends, axis=(0, 1, 2, 3))
    shares = (ends - low) / np.maximum(high - low, 1e-12)
    is_there = np.isfinite(shares).all(axis=(2, 3, 4), keepdims=True)
    numbers = np.where(is_there, np.round(np.where(is_there, shares, 0.0) * (_ENDED - 1)), _ENDED)
    return {
        "low": [_rounded(each) for each in low],
        "high": [_rounded(each) for each in high],
        "radii": [_rounded(each) for each in radii],
        "shape": list(ends.shape[:3]),
        "stride": -(-(run.world.horizon + 1) // ends.shape[1]),
        "points": base64.b64encode(numbers.astype("<u2").tobytes()).decode(),
    }


def _arrows(run: Run) -> dict[str, Any] | None:
    """For each agent, time and state of a map: where the likeliest action of the trained policy leads, and its probability."""
    world, team = run.world, run.policies
    if (
        run.playback is None
        or world.positions is None
        or (table := world.table) is None
        or not isinstance(team, TabularSoftmax)
    ):
        return None
    logits = np.asarray(run.team(run.playback.seed).policies.logits)
    with np.errstate(over="ignore"):  # where a training diverged, differences of logits may be infinite
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probabilities = weights / weights.sum(axis=-1, keepdims=True)
    if not team.is_time_dependent:
        probabilities = probabilities[:, None]
    if probabilities[..., 0].size > _MOST_ARROWS:
        return None
    places = planes.cells_on_map(world) + 0.5
    moves = places[np.asarray(table.successors)] - places[:, None, None]  # [state, action, successor, axis]
    leads = np.einsum("saj,sajx->sax", np.diff(np.asarray(table.cumulative_probability), axis=-1, prepend=0.0), moves)
    likeliest = probabilities.argmax(axis=-1)
    ahead = leads[np.arange(table.num_states), likeliest]  # [agent, time, state, axis]
    length = np.maximum(np.linalg.norm(ahead, axis=-1, keepdims=True), 1.0)
    arrows = np.concatenate([ahead / length, probabilities.max(axis=-1, keepdims=True)], axis=-1)
    return {"times": arrows.shape[1], "places": places.tolist(), "agents": np.round(arrows, 2).tolist()}
