"""The contents of a run's files: header, checksums, world and team, validated, since anyone may have written them."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from farflung.algorithms import Algorithm
from farflung.config import Explore
from farflung.config.checks import check_text
from farflung.config.reading import check_version, file_size, member, read_arrays
from farflung.policies import TabularSoftmax, networks_of, neural_team
from farflung.runs.files import FORMAT_VERSION, archive
from farflung.training.progress import HostStatistics
from farflung.worlds.kinds import read_world
from farflung.worlds.world import World

CONFIG, METRICS, SUMMARY = "config.json", "metrics.csv", "summary.json"
POLICIES, WORLD, PATHS = "policies.npz", "world.npz", "paths.npz"
_DEFAULTS_OF_FORMAT_1 = {"preset": "paper"}
_LEAF = "network"
_TEXTS = ("farflung", "world", "device", "stopped_because")
_TYPES: dict[str, Any] = (
    dict.fromkeys(("states", "actions", "horizon", "agents", "updates", "environment_steps"), int)
    | dict.fromkeys(("seconds", "compile_seconds", "steps_per_second"), int | float)
    | dict.fromkeys(("single", "is_interrupted", "is_stopped_early"), bool)
    | dict.fromkeys(("final", "random", "ceiling", "hosted"), dict)
    | dict.fromkeys(("percent_of_ceiling", "seeds"), list)
)


def write_header(config: Explore, farflung: str, **more: Any) -> str:
    """The text of `config.json`: the config, further entries, and a checksum of both."""
    header = {"format_version": FORMAT_VERSION, "farflung": farflung, "config": config.as_json(), **more}
    return json.dumps(header | {"checksum": _checksum(header)}, indent=2) + "\n"


def read_config(header: Mapping[str, Any]) -> Explore:
    """The config in the content of `config.json`."""
    version = check_version(header["format_version"], FORMAT_VERSION, header.get("farflung"))
    if "checksum" in header and header["checksum"] != _checksum({key: header[key] for key in header if key != "checksum"}):
        raise ValueError(f"{CONFIG} is damaged")
    settings = (_DEFAULTS_OF_FORMAT_1 if version < 2 else {}) | header["config"]
    given: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    return Explore(**given)


def _checksum(header: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    file_size(path)  # raises ValueError unless it is a regular file
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_files(header: Mapping[str, Any], directory: Path) -> None:
    """Raises ValueError if a file has changed since the run was saved; older runs have no checksums."""
    for name, expected in dict(header.get("sha256", {})).items():
        if name not in (METRICS, POLICIES, WORLD, SUMMARY, PATHS):
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
    numbers = [*summary.get("random", {}).values(), *summary.get("percent_of_ceiling", ())]
    for values in summary.get("final", {}).values():
        numbers += values if isinstance(values, list) else [values]
    numbers += [value for name, value in summary.get("ceiling", {}).items() if name in ("bound", "normalized_bound")]
    if not all(number is None or isinstance(number, int | float) for number in numbers):
        raise ValueError(f"a metric in {SUMMARY} is not a number")
    return summary


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
