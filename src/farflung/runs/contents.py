"""What the files of a run say, each checked against the others: anyone may have written them."""

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from farflung.config import Explore
from farflung.config.checks import check_text
from farflung.config.reading import MOST_BYTES_OF_TABLE, check_version, file_size, member, read_arrays, read_text
from farflung.runs.files import FORMAT_VERSION
from farflung.training.metrics import Metrics
from farflung.training.progress import HostStatistics
from farflung.worlds.world import World

_BEFORE_PRESETS = {"preset": "paper"}  # what runs of format 1 don't say
_CHECKED = {"metrics.csv", "paths.npz", "policies.npz", "summary.json", "world.npz"}
_TEXTS = ("farflung", "world", "device", "stopped_because")
_COUNTS = ("states", "actions", "horizon", "agents", "updates", "environment_steps")
_SECONDS = ("seconds", "compile_seconds", "steps_per_second")
_CLAIMS = ("single", "is_interrupted", "is_stopped_early")


def write_header(config: Explore, farflung: str, **more: Any) -> str:
    """What `config.json` holds: the config, and a checksum of all that is said."""
    header = {"format_version": FORMAT_VERSION, "farflung": farflung, "config": config.as_json(), **more}
    return json.dumps(header | {"checksum": _checksum(header)}, indent=2) + "\n"


def read_config(header: Mapping[str, Any]) -> Explore:
    """The config in what `config.json` holds."""
    version = check_version(header["format_version"], FORMAT_VERSION, header.get("farflung"))
    if "checksum" in header and header["checksum"] != _checksum({key: header[key] for key in header if key != "checksum"}):
        raise ValueError("config.json is damaged")
    settings = (_BEFORE_PRESETS if version < 2 else {}) | header["config"]
    given: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    return Explore(**given)


def digests_of(directory: Path) -> dict[str, str]:
    """The checksums of all files in a directory."""
    return {path.name: _digest(path) for path in sorted(directory.iterdir())}


def check_files(header: Mapping[str, Any], directory: Path) -> None:
    """Raises ValueError if a file of a run is not what it was when the run was saved; older runs have no checksums."""
    for name, digest in dict(header.get("sha256", {})).items():
        if name not in _CHECKED:
            raise ValueError(f"a run has no file {str(name)[:80]!r}")
        if _digest(member(directory, name)) != digest:
            raise ValueError(f"{name} is damaged")


def fingerprint(path: str | Path) -> str:
    """What tells a run on disk from any other: its config has the checksums of all its files."""
    return _digest(Path(path) / "config.json")


def _checksum(header: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()


def _digest(path: Path) -> str:
    file_size(path)  # raises ValueError if it is no file
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_summary(kept: Mapping[str, Any]) -> dict[str, Any]:
    """What `summary.json` holds, if what others rely on is of the right kind; numbers that weren't finite are null there."""
    summary = dict(kept)
    check_version(summary.pop("format_version", None), FORMAT_VERSION, summary.get("farflung"))
    for name in summary.keys() & {*_TEXTS}:
        check_text(name, summary[name])
    kinds: dict[str, Any] = dict.fromkeys(_COUNTS, int) | dict.fromkeys(_SECONDS, int | float) | dict.fromkeys(_CLAIMS, bool)
    kinds |= {"final": dict, "random": dict, "ceiling": dict, "percent_of_ceiling": list, "seeds": list, "hosted": dict}
    for name in summary.keys() & kinds.keys():
        if not isinstance(summary[name], kinds[name]) or (kinds[name] is int and isinstance(summary[name], bool)):
            raise ValueError(f"{name} in summary.json is of the kind {type(summary[name]).__name__}")
    numbers = [*summary.get("random", {}).values(), *summary.get("percent_of_ceiling", ())]
    for values in summary.get("final", {}).values():
        numbers += values if isinstance(values, list) else [values]
    numbers += [value for name, value in summary.get("ceiling", {}).items() if name in ("bound", "normalized_bound")]
    if not all(number is None or isinstance(number, int | float) for number in numbers):
        raise ValueError("a metric in summary.json is not a number")
    return summary


def read_metrics(path: Path, config: Explore) -> tuple[Int[np.ndarray, " record"], Metrics]:
    """The recorded updates and what was recorded, as `metrics.csv` has them."""
    lines = read_text(path, MOST_BYTES_OF_TABLE).splitlines()
    expected = ["seed", "update", "steps", *Metrics._fields]
    names = lines[0].split(",") if lines else []
    if names not in (expected, expected[:-1]):  # the last is of worlds whose states are vectors
        raise ValueError(f"{path.name} has other columns than {', '.join(expected)}")
    if len(lines) < 2:
        raise ValueError(f"{path.name} is not complete")
    table = np.loadtxt(io.StringIO("\n".join(lines[1:])), delimiter=",", ndmin=2)
    if table.shape[1] != len(names) or len(table) % len(config.seeds):
        raise ValueError(f"{path.name} is not complete")
    by_seed = table.reshape(len(config.seeds), -1, len(names))
    updates = by_seed[0, :, 1]
    is_in_order = (np.diff(updates, prepend=0) >= 1).all() and (updates % 1 == 0).all() and updates[-1] <= config.updates
    if not is_in_order or (by_seed[..., 1] != updates).any() or (by_seed[..., 0].T - config.seeds).any():
        raise ValueError(f"{path.name} has other seeds or updates than the config")
    with np.errstate(over="ignore"):
        values = np.moveaxis(by_seed[..., 3:], -1, 0).astype(np.float32)
    return updates.astype(np.int64), Metrics(*values)


def read_versioned(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file that says its version."""
    arrays = read_arrays(path)
    check_version(arrays.pop("format_version", None), FORMAT_VERSION)
    return arrays


def counts_of(learnt: Mapping[str, np.ndarray], config: Explore, num_records: int) -> HostStatistics | None:
    """What was counted of a world that was stepped on the host."""
    if "visits" not in learnt:
        return None
    steps, visits, total = learnt["steps"], learnt["visits"], learnt["num_steps"]
    if steps.shape != (num_records,) or not np.issubdtype(steps.dtype, np.integer) or (np.diff(steps, prepend=0) < 0).any():
        raise ValueError("steps are whole numbers that grow from record to record")
    check_visits(visits, config)
    return HostStatistics(steps, visits, int(total))


def check_visits(visits: np.ndarray, config: Explore) -> None:
    if visits.ndim != 3 or visits.shape[:2] != (len(config.seeds), config.num_policies) or visits.dtype.kind != "f":
        raise ValueError(f"visits are shares [seed, agent, state], not {visits.shape} of {visits.dtype}")


def checked_paths(arrays: Mapping[str, np.ndarray], config: Explore, world: World) -> dict[str, Any]:
    """The fields of `Paths`."""
    seed, features = arrays["seed"], arrays["features"]
    if world.projection is None or set(arrays) != {"seed", "features"}:
        raise ValueError("paths are of worlds whose states are vectors: of one seed, and their features")
    width = len(world.projection.features)
    if features.dtype.kind != "f" or features.ndim != 5 or features.shape[-1] != width or 0 in features.shape:
        raise ValueError(f"paths are [element, agent, trajectory, time, {width} features], not {features.shape}")
    if seed.shape != () or seed.dtype.kind not in "iu" or int(seed) not in config.seeds:
        raise ValueError("paths are of another seed than one of the run's")
    return {"seed": seed, "features": features}
