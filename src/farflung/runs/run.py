"""A training run, and its directory on disk: open formats, written atomically, read back to the same objects."""

import hashlib
import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num

from farflung.algorithms import Algorithm
from farflung.config import Explore
from farflung.config.checks import check_text
from farflung.config.options import ACTOR_CRITIC, ALGORITHM
from farflung.config.reading import check_version, file_size, member, read_arrays, read_object, reading, spend
from farflung.policies import TabularSoftmax, networks_of, neural_team
from farflung.policies.acting import TrainedTeam
from farflung.runs.destinations import CONFIG, UNFINISHED, Destination, claimed
from farflung.runs.files import FORMAT_VERSION, archive, save_figure, to_json, write_errors
from farflung.runs.metrics_table import read_table, write_table
from farflung.training.metrics import Metrics
from farflung.training.progress import HostStatistics, last_percent
from farflung.worlds.kinds import read_world
from farflung.worlds.named import as_world
from farflung.worlds.tabular import TabularMDP
from farflung.worlds.world import World

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METRICS, SUMMARY = "metrics.csv", "summary.json"
POLICIES, WORLD, PATHS, PLAYBACK, POSES = "policies.npz", "world.npz", "paths.npz", "playback.npz", "poses.npz"
MOST_POSED, MOST_POSES = 8, 150
"""Agents whose bodies are drawn, and poses of each."""
PAGE = "index.html"
_DATA = (METRICS, POLICIES, WORLD, PATHS, PLAYBACK, SUMMARY)
_FILES = {CONFIG, *_DATA, PAGE, POSES, "figure.png", "figure.svg", "film.gif"}
_DEFAULTS_OF_FORMAT_1 = {"preset": "paper"}
_LEAF = "network"
_BYTES_PER_PLACE = 100
"""The memory that a page needs for each state of an episode."""
_TEXTS = ("farflung", "world", "device", "stopped_because")
_TYPES: dict[str, Any] = (
    dict.fromkeys(("states", "actions", "horizon", "agents", "updates", "environment_steps"), int)
    | dict.fromkeys(("seconds", "compile_seconds", "steps_per_second"), int | float)
    | dict.fromkeys(("single", "is_interrupted", "is_stopped_early"), bool)
    | dict.fromkeys(("final", "random", "ceiling", "hosted", "objective", "transfer"), dict)
    | dict.fromkeys(("percent_of_ceiling", "seeds"), list)
)


class Paths(NamedTuple):
    """The paths of one trained team in a few episodes of each agent."""

    seed: int | Int[np.ndarray, ""]
    """The seed of the team, whose final entropy is the median."""
    features: Float[np.ndarray, "element agent trajectory times feature"]
    """The features of the world's projection; NaN after the end of an episode."""


Episodes = Num[np.ndarray, "element agent trajectory times *feature"]
"""The states of a few episodes: their numbers, -1 or the number of states after an episode's end; or features."""


class Playback(NamedTuple):
    """Episodes to look at: how one seed's team goes at several moments of its training, and others to compare it with."""

    seed: int
    """The seed of the team, whose final entropy is the median."""
    updates: Int[np.ndarray, " moment"]
    moments: Num[np.ndarray, "moment element agent trajectory times *feature"]
    random: Episodes | None = None
    """Of random actions."""
    best: Int[np.ndarray, "agent times"] | None = None
    """The walks that reach the ceiling, if they are known."""


@dataclass(frozen=True)
class Run:
    """The result of a training: settings, world, metrics, trained policies and a summary."""

    config: Explore
    world: World
    updates: Int[np.ndarray, " record"]
    """The updates that were recorded."""
    metrics: Metrics
    """NumPy arrays [seed, record]."""
    policies: Any
    """A `TabularSoftmax`, or where states are vectors a `NeuralPolicy`, with leading seed and agent axes."""
    summary: dict[str, Any]
    """The content of `summary.json`."""
    host_statistics: HostStatistics | None = None
    """Statistics of a host-stepped world."""
    paths: Paths | None = None
    """Only where states are vectors."""
    playback: Playback | None = None
    """What the run's page plays; runs of older versions have none."""
    poses: Float[np.ndarray, "path times position"] | None = None
    """Of a world with a body: its poses in the first recorded episode of a few agents; NaN after the end of an episode."""

    def __repr__(self) -> str:
        entropy = final_values(self.updates, self.metrics)["entropy"].mean()
        about = f"{self.config.agents} agents, {len(self.config.seeds)} seeds, {self.updates[-1]:,} updates"
        return f"<Run in {self.config.world}: {about}, final entropy {entropy:.4f} nats>"

    @property
    def table(self) -> TabularMDP:
        """The world with its transition table; raises ValueError if it has none."""
        if self.world.table is None:
            raise ValueError(f"{self.config.world} has no transition table: its dynamics are not known")
        return self.world.table

    @property
    def steps(self) -> Int[np.ndarray, " record"]:
        """The environment steps of one seed's team up to each record."""
        if self.host_statistics is not None:
            return self.host_statistics.steps
        return self.updates.astype(np.int64) * steps_per_update(self.config, self.world)

    @property
    def is_spaced(self) -> Bool[np.ndarray, " record"]:
        """Which records to draw in a curve: all but the dense ones of the last 1%, of which only the very last."""
        return (self.updates < last_percent(int(self.updates[-1]))) | (self.updates == self.updates[-1])

    def team(self, seed: int) -> TrainedTeam:
        """The team of one seed, ready to act: `run.team(seed).agent(i).act(key, observation)`."""
        if seed not in self.config.seeds:
            raise ValueError(f"seed {seed} is not one of the run's: {', '.join(map(str, self.config.seeds))}")
        row = self.config.seeds.index(seed)
        return TrainedTeam(jax.tree.map(lambda leaf: leaf[row], self.policies), self.world)


def steps_per_update(config: Explore, world: World) -> int:
    """The environment steps of one seed's team in one update: B m K T."""
    return config.batch_size * config.agents * config.trajectories * world.horizon


def final_values(updates: Int[np.ndarray, " record"], metrics: Metrics) -> dict[str, Float[np.ndarray, " seed"]]:
    """Each metric of each seed, averaged over the last 1% of the updates."""
    is_last = updates >= last_percent(int(updates[-1]))
    return {name: np.asarray(values)[:, is_last].mean(axis=1, dtype=np.float64) for name, values in metrics.columns.items()}


def typical_seed(run: Run) -> int:
    """The seed whose final entropy is the median one."""
    final = final_values(run.updates, run.metrics)["entropy"]
    return run.config.seeds[int(np.argsort(final)[(len(final) - 1) // 2])]


def check_destination(place: Destination, force: bool) -> None:
    """Raises ValueError unless a run may be saved there."""
    others = place.others()
    if place.is_begun:  # other files may lie beside it: saving replaces only those of a run
        if not force:
            advice = f"finish it with farflung resume {place.name}, or discard it with --force"
            raise ValueError(f"{place.name} holds an unfinished training: {advice}")
    elif others:
        if not _is_run(place.folder):
            raise ValueError(f"{place.name} is not empty and holds no run: choose another directory")
        if not force:
            raise ValueError(f"{place.name} already holds a run: choose another directory, or replace it with --force")
        if more := sorted(others - _FILES):
            raise ValueError(f"{place.name} holds more than a run ({more[0]}), so it is not replaced: choose another directory")


def save_run(
    run: Run,
    path: str | Path | Destination,
    *,
    force: bool = False,
    figures: Mapping[str, "Figure"] | None = None,
    page: str | None = None,
) -> None:
    """Writes a run, its figures and its page as a directory, which appears under its name only when it is complete."""
    with claimed(path) as place, write_errors(place.name):
        check_destination(place, force)
        new = place.fresh()
        _write(run, new, figures or {})
        if page is not None:
            (new / PAGE).write_text(page, encoding="utf-8")
        place.publish(_FILES, _FILES, is_final=is_finished(run))


def files_of(run: Run) -> list[str]:
    """The files that a run is saved as, without figures and its page: first those that a reader can open."""
    parts = {PATHS: run.paths, PLAYBACK: run.playback, POSES: run.poses}
    return [METRICS, SUMMARY, CONFIG, POLICIES, WORLD, *(name for name, part in parts.items() if part is not None)]


def is_finished(run: Run) -> bool:
    """Whether there is nothing to resume: the training was neither interrupted nor stopped by an error."""
    return not run.summary.get("is_interrupted") and "stopped_because" not in run.summary


def finished_run(place: Destination, config: Explore, world: World) -> Run | None:
    """The finished run that lies there, if the same version has trained it with these settings in this world."""
    if place.is_begun or not (place.folder / CONFIG).is_file():
        return None
    try:
        found = load_run(place.folder)
    except ValueError:
        return None
    is_same = found.config == config and found.world.identity == world.identity
    is_same = is_same and read_object(place.folder / CONFIG)["farflung"] == version("farflung")
    return found if is_same and is_finished(found) else None


def discard_run(path: Path) -> None:
    """Removes the directory of a run, whatever state it is in."""
    try:
        shutil.rmtree(path)
    except OSError as error:
        raise ValueError(f"cannot remove {path}: {error.strerror or error}") from None


def load_run(path: str | Path, *, world: Any = None, algorithm: Algorithm | None = None) -> Run:
    """Reads a run that `save_run` has written.

    Args:
        world: the world of the run, as `explore` takes it; needed only if the run records it as custom:NAME, or by the name
            of a class.
        algorithm: the algorithm of the run, if it is not one of farflung's: it knows the shape of its team.
    """
    path = Path(path)
    if not path.exists():
        raise ValueError(f"there is no run {path}: give the directory that farflung explore has written")
    if (path / UNFINISHED).is_dir() and not (path / CONFIG).exists():
        raise ValueError(f"{path} holds an unfinished training: finish it with farflung resume {path}")
    with reading(f"{path} is not a run that can be read", *(path / name for name in _FILES)):
        header = read_object(member(path, CONFIG))
        config = read_config(header)
        check_files(header, path)
        summary = read_summary(read_object(member(path, SUMMARY)))
        updates, _, metrics = read_table(member(path, METRICS), config.seeds, config.updates)
        saved = world_from(member(path, WORLD)) if world is None or not as_world(world).knows_all_states else None
        if world is None:
            world = saved
        elif saved is not None:
            world = as_world(world).snapshot()
            world.add_states_of(saved)
        else:
            world = as_world(world)
        arrays = read_versioned(member(path, POLICIES))
        policies = team_from_arrays(arrays, config, world, algorithm)
        host_statistics = read_host_statistics(arrays, config, len(updates))
        paths = None
        if (path / PATHS).exists():
            played = read_versioned(member(path, PATHS))
            check_paths(played, config, world)
            paths = Paths(played["seed"], played["features"])
        playback = read_playback(member(path, PLAYBACK), config, world) if (path / PLAYBACK).exists() else None
        poses = read_poses(member(path, POSES), world) if (path / POSES).exists() else None
    return Run(config, world, updates, metrics, policies, summary, host_statistics, paths, playback, poses)


def _write(run: Run, directory: Path, figures: Mapping[str, "Figure"]) -> None:
    summary = {**run.summary, "format_version": FORMAT_VERSION}
    (directory / SUMMARY).write_text(to_json(summary, indent=2) + "\n", encoding="utf-8")
    write_table(directory / METRICS, run.config.seeds, run.updates, run.steps, run.metrics)
    (directory / WORLD).write_bytes(world_to_bytes(run.world))
    # The features of host-stepped episodes are in the file of the paths.
    statistics = {} if run.host_statistics is None else run.host_statistics._replace(features=None)._asdict()
    team = team_to_arrays(run.policies)
    (directory / POLICIES).write_bytes(versioned_archive(team | statistics))
    if run.paths is not None:
        (directory / PATHS).write_bytes(versioned_archive(run.paths._asdict()))
    if run.playback is not None:
        (directory / PLAYBACK).write_bytes(versioned_archive(run.playback._asdict()))
    checksums = {path.name: digest(path) for path in sorted(directory.iterdir())}
    (directory / CONFIG).write_text(write_header(run.config, run.summary["farflung"], sha256=checksums), encoding="utf-8")
    if run.poses is not None:  # without a checksum, like the figures: older versions refuse files that they don't know
        (directory / POSES).write_bytes(versioned_archive({"poses": run.poses}))
    for name, figure in figures.items():
        save_figure(figure, directory / name)


def _is_run(path: Path) -> bool:
    try:
        header = read_object(path / CONFIG)
    except (OSError, ValueError):
        return False
    return {"format_version", "farflung", "config"} <= header.keys()


def write_header(config: Explore, farflung: str, **more: Any) -> str:
    """The text of `config.json`: the config, further entries, and a checksum of both."""
    header = {"format_version": FORMAT_VERSION, "farflung": farflung, "config": config.as_json(), **more}
    return json.dumps(header | {"checksum": _checksum(header)}, indent=2) + "\n"


def read_config(header: Mapping[str, Any]) -> Explore:
    """The config in the content of `config.json`."""
    number = check_version(header["format_version"], FORMAT_VERSION, header.get("farflung"))
    if "checksum" in header and header["checksum"] != _checksum({key: header[key] for key in header if key != "checksum"}):
        raise ValueError(f"{CONFIG} is damaged")
    settings = {"algorithm": ALGORITHM} | (_DEFAULTS_OF_FORMAT_1 if number < 2 else {}) | header["config"]
    if settings["algorithm"] == ACTOR_CRITIC:
        settings = {"warm_up": 0.0} | settings
    if "entropy" in settings:  # until version 3 of the format, the objective had this name
        old = settings["entropy"]
        settings = {name: value for name, value in settings.items() if name != "entropy"} | {"objective": old}
    given: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    return Explore(**given)


def _checksum(header: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    spend(file_size(path))  # not of its memory, but a file with holes has no end
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_files(header: Mapping[str, Any], directory: Path) -> None:
    """Raises ValueError if a file has changed since the run was saved; older runs have no checksums."""
    for name, expected in dict(header.get("sha256", {})).items():
        if name not in _DATA:
            raise ValueError(f"a run has no file {str(name)[:80]!r}")
        if digest(member(directory, name)) != expected:
            raise ValueError(f"{name} is damaged")


def read_summary(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of `summary.json` with its types checked; null stands for numbers that were not finite."""
    summary = dict(content)
    check_version(summary.pop("format_version", None), FORMAT_VERSION, summary.get("farflung"))
    for name in summary.keys() & {*_TEXTS}:
        check_text(name, summary[name])
    for name in summary.keys() & _TYPES.keys():
        if not isinstance(summary[name], _TYPES[name]) or (_TYPES[name] is int and isinstance(summary[name], bool)):
            raise ValueError(f"{name} in {SUMMARY} has the wrong type {type(summary[name]).__name__}")
    for name in summary.keys() & {"final", "random", "percent_of_ceiling"}:
        summary[name] = _numbers(summary[name])
    if "ceiling" in summary:
        of_ceiling = {
            name: _numbers(value) for name, value in summary["ceiling"].items() if name in ("bound", "normalized_bound")
        }
        summary["ceiling"] = {**summary["ceiling"], **of_ceiling}
    if "objective" in summary:
        about = dict(summary["objective"])
        check_text("objective", about["name"])
        summary["objective"] = about | {name: _numbers(about[name]) for name in ("bound", "below_bound") if name in about}
    return summary


def _numbers(values: Any) -> Any:
    """Numbers from `summary.json`, or lists or dictionaries of them."""
    if isinstance(values, dict):
        return {name: _numbers(value) for name, value in values.items()}
    if isinstance(values, list):
        return [_numbers(value) for value in values]
    if values is not None and not isinstance(values, int | float):
        raise ValueError(f"a metric in {SUMMARY} is not a number")
    return math.nan if values is None else values


def versioned_archive(arrays: Mapping[str, Any]) -> bytes:
    """NumPy's compressed archive of the arrays that are not None, with the format version."""
    return archive({"format_version": FORMAT_VERSION, **arrays})


def read_versioned(file: Path | bytes) -> dict[str, np.ndarray]:
    """The arrays of an archive that holds its format version."""
    arrays = read_arrays(file)
    check_version(arrays.pop("format_version", None), FORMAT_VERSION)
    return arrays


def world_to_bytes(world: World) -> bytes:
    """A world as the content of its file."""
    return versioned_archive(world.to_arrays())


def world_from(file: Path | bytes) -> World:
    """The world in a file, or in the content of a file."""
    return read_world(read_versioned(file))


def read_host_statistics(arrays: Mapping[str, np.ndarray], config: Explore, num_records: int) -> HostStatistics | None:
    """The statistics of a host-stepped world, if `policies.npz` has any."""
    if "visits" not in arrays:
        return None
    steps, visits, total = arrays["steps"], arrays["visits"], arrays["num_steps"]
    if steps.shape != (num_records,) or not np.issubdtype(steps.dtype, np.integer) or (np.diff(steps, prepend=0) < 0).any():
        raise ValueError("steps must be whole numbers that grow from record to record")
    check_visits(visits, config)
    return HostStatistics(steps, visits, int(total))


def check_visits(visits: np.ndarray, config: Explore) -> None:
    """Raises ValueError unless visits are shares for each seed, agent and state."""
    if visits.ndim != 3 or visits.shape[:2] != (len(config.seeds), config.num_policies) or visits.dtype.kind != "f":
        raise ValueError(f"visits must be shares [seed, agent, state], not {visits.shape} of {visits.dtype}")


def check_paths(arrays: Mapping[str, np.ndarray], config: Explore, world: World) -> None:
    """Raises ValueError unless the arrays are the fields of `Paths` in this world."""
    seed, features = arrays["seed"], arrays["features"]
    if world.projection is None or set(arrays) != {"seed", "features"}:
        raise ValueError(f"{PATHS} must hold a seed and features of a world whose states are vectors, and nothing else")
    width = len(world.projection.features)
    if features.dtype.kind != "f" or features.ndim != 5 or features.shape[-1] != width or 0 in features.shape:
        raise ValueError(f"paths must be [element, agent, trajectory, time, {width} features], not {features.shape}")
    if seed.shape != () or seed.dtype.kind not in "iu" or int(seed) not in config.seeds:
        raise ValueError(f"the seed in {PATHS} is not one of the run's")


def read_poses(file: Path, world: World) -> Float[np.ndarray, "path times position"]:
    """The poses in `poses.npz`, checked."""
    arrays = read_versioned(file)
    poses = arrays.get("poses", np.zeros(0))
    is_small = poses.ndim == 3 and 0 < poses.shape[0] <= MOST_POSED and 0 < poses.shape[1] <= MOST_POSES
    if set(arrays) != {"poses"} or not is_small or poses.dtype != np.float32 or poses.shape[2] != world.pose_size:
        raise ValueError(f"{POSES} must hold poses [path, time, {world.pose_size} positions] alone, not {poses.shape}")
    return poses


def read_playback(file: Path, config: Explore, world: World) -> Playback:
    """The episodes in `playback.npz`, all of which are checked."""
    arrays = read_versioned(file)
    if not {"seed", "updates", "moments"} <= arrays.keys() <= set(Playback._fields):
        raise ValueError(f"{PLAYBACK} has {', '.join(sorted(arrays))[:200]}")
    seed, updates, moments = arrays["seed"], arrays["updates"], arrays["moments"]
    if seed.shape != () or seed.dtype.kind not in "iu" or int(seed) not in config.seeds:
        raise ValueError(f"the seed in {PLAYBACK} is not one of the run's")
    check_moments(updates, config.updates)
    if moments.shape[:1] != updates.shape or not len(updates):
        raise ValueError(f"{PLAYBACK} has moments {moments.shape} of {len(updates)} updates")
    spend(_BYTES_PER_PLACE * sum(array.size for array in arrays.values()))
    for episodes in (*moments, *([arrays["random"]] if "random" in arrays else [])):
        check_episodes(episodes, config, world)
    best = arrays.get("best")
    if best is not None:
        check_episodes(np.expand_dims(best, (0, 2)) if best.ndim else best, config, world)
    return Playback(int(seed), updates, moments, arrays.get("random"), best)


def check_moments(updates: np.ndarray, most: int) -> None:
    """Raises ValueError unless these are updates in ascending order, at most `most`."""
    is_right = updates.ndim == 1 and updates.dtype.kind in "iu" and (np.diff(updates, prepend=0) > 0).all()
    if not is_right or (updates > most).any():
        raise ValueError("moments must be whole numbers of updates that grow")


def check_episodes(episodes: np.ndarray, config: Explore, world: World) -> None:
    """Raises ValueError unless these are states, or features, of episodes in this world."""
    kinds, num_axes = ("iu", 4) if world.projection is None else ("f", 5)
    shape = episodes.shape
    is_right = episodes.dtype.kind in kinds and len(shape) == num_axes and 0 not in shape and shape[3] <= world.horizon + 1
    if is_right and world.projection is None:
        is_right = bool((episodes >= -1).all() and (episodes <= world.num_states).all())
    elif is_right and world.projection is not None:
        is_right = shape[4] == len(world.projection.features)
    if not is_right or shape[1] * shape[2] > config.agents * config.trajectories:
        raise ValueError(f"episodes of this run cannot be an array {shape} of {episodes.dtype}")


def team_to_arrays(team: Any) -> dict[str, Any]:
    """The arrays of a team, by name."""
    if isinstance(team, TabularSoftmax):
        return {"logits": team.logits, "is_time_dependent": team.is_time_dependent}
    return {_LEAF + jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(team)}


def team_from_arrays(
    arrays: Mapping[str, np.ndarray], config: Explore, world: World, algorithm: Algorithm | None = None
) -> Any:
    """The team whose arrays a file holds, each checked against the shape that the config, or the algorithm, asks for."""
    if "logits" in arrays and world.projection is None:
        return _tables(arrays, config, world)
    if algorithm is not None:
        expected = eqx.filter_eval_shape(lambda key: algorithm.init(key, world.view()).team, jr.key(0))
    elif ":" in config.algorithm:
        raise ValueError(f"its team was trained by {config.algorithm}: give that, as load_run(path, algorithm=...)")
    elif not config.is_neural or world.projection is None:
        raise ValueError("networks are for observations that are vectors, and tables for numbered states")
    else:
        expected = eqx.filter_eval_shape(neural_team, jr.key(0), world, config.num_policies, networks_of(config))
        if not any(name.startswith(f"{_LEAF}.common") for name in arrays):  # runs from before shared trunks had a common head
            expected = eqx.tree_at(lambda team: team.common, expected, None, is_leaf=lambda part: part is None)
        if not any(name.startswith(f"{_LEAF}.normalizer") for name in arrays):  # a learner that started from another's team
            expected = eqx.tree_at(lambda team: team.normalizer, expected, None, is_leaf=lambda part: part is None)

    def checked(path: Any, leaf: jax.ShapeDtypeStruct) -> Array:
        array = arrays[_LEAF + jax.tree_util.keystr(path)]
        if array.shape != (len(config.seeds), *leaf.shape) or array.dtype.kind not in "biuf":
            raise ValueError(f"the networks have a part of the shape {array.shape}, not {(len(config.seeds), *leaf.shape)}")
        return jnp.asarray(array, leaf.dtype)

    return jax.tree_util.tree_map_with_path(checked, expected)


def _tables(arrays: Mapping[str, np.ndarray], config: Explore, world: World) -> TabularSoftmax:
    logits, is_time_dependent = arrays["logits"], bool(arrays["is_time_dependent"])
    times = (world.horizon,) if is_time_dependent else ()
    expected = (len(config.seeds), config.num_policies, *times, world.num_states, world.num_actions)
    if logits.shape != expected or logits.dtype.kind != "f":
        raise ValueError(f"the policies are a table of the shape {logits.shape} of {logits.dtype}, not {expected} of numbers")
    return TabularSoftmax(jnp.asarray(logits, jnp.float32), is_time_dependent)
