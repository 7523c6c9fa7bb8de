"""Minari datasets: written part by part, and read as arrays without running any program that a file names."""

import contextlib
import errno
import itertools
import json
import math
import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from farflung.config import check_dataset_id
from farflung.config.checks import optional_package
from farflung.config.reading import (
    MOST_VALUES,
    file_size,
    member,
    parse_object,
    read_object,
    reading,
    size_on_disk,
    spend,
)
from farflung.data.archives import KEY
from farflung.data.columns import EXTRA, read_columns
from farflung.data.episodes import Contents, Dataset, Source, checked, joined
from farflung.data.sources import from_json, installed, observed_world, parts_in, read_parts, read_space, to_json, write_space
from farflung.runs.destinations import Destination, claimed_file
from farflung.runs.files import write_errors
from farflung.worlds.point_maze import POINT_MAZE
from farflung.worlds.projection import Box

_ROOT, _NAMESPACE = "MINARI_DATASETS_PATH", "namespace_metadata.json"
_METADATA, _HDF5 = "metadata.json", "main_data.hdf5"
_DTYPES = ("float16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64")
_COLUMNS = ("observations", "actions", "rewards", "terminations", "truncations")
_EPISODES_AT_ONCE = 1000
_BYTES_PER_EPISODE = 2**14
"""What HDF5 needs for an episode beside its numbers."""

_SEEN = "observations"

_Episode = tuple[dict[str, np.ndarray], Mapping[str, Any]]
"""The columns of one episode, and its metadata."""


def minari_path(dataset_id: str) -> Path:
    """The folder of a Minari dataset: below `MINARI_DATASETS_PATH` if that is set, else in the user's home."""
    check_dataset_id(dataset_id)
    storage = optional_package("minari.storage", EXTRA)
    try:
        return Path(storage.get_dataset_path(dataset_id))
    except OSError as error:
        raise ValueError(f"Minari cannot store datasets in {error.filename}: {error.strerror}") from None


def claimed_dataset(dataset_id: str) -> contextlib.AbstractContextManager[Destination]:
    """The place of a dataset among Minari's, locked until the end of the block."""
    return claimed_file(minari_path(dataset_id), more=(_NAMESPACE,))


def check_is_new(dataset_id: str, place: Destination, force: bool) -> None:
    """Raises ValueError if a dataset with this id may not be written; call it before collecting the dataset."""
    if place.path.exists() and not force:
        raise ValueError(f"there is a Minari dataset {dataset_id} already: choose another id, or replace it with --force")
    if place.path.exists() and not (place.path / "data").is_dir():
        raise ValueError(f"{place.path} is no Minari dataset, so it is not replaced: choose another id")


def to_minari(
    data: Dataset | Iterable[Dataset],
    dataset_id: str,
    *,
    data_format: str = "hdf5",
    force: bool = False,
    author: str | None = None,
    author_email: str | None = None,
    code_permalink: str | None = None,
    place: Destination | None = None,
) -> Contents:
    """Writes a dataset, or its parts one by one, for `minari.load_dataset(dataset_id)`.

    Args:
        data_format: `hdf5`, the fastest to write, `arrow`, a tenth of the size, or `parquet`.
        force: replace an existing dataset.
        author: the dataset's author, for its metadata; likewise `author_email`, and `code_permalink`, a link to the code.
        place: the destination, if it is locked already, as `claimed_dataset` yields it.
    """
    with _new_dataset(dataset_id, force, place):
        contents = Contents()
        storage: Any = None
        for part in contents.counting([data] if isinstance(data, Dataset) else data):
            about = {"author": author, "author_email": author_email, "code_permalink": code_permalink}
            storage = storage or _new(dataset_id, part, data_format, **about)
            _check_room(storage, part)
            storage.update_episodes(_buffers(part))
            players = (_player(part.source, agent) for agent in part.agents.tolist())
            storage.update_episode_metadata(players, range(contents.num_episodes - len(part), contents.num_episodes))
        metadata = json.loads(to_json(contents))
        del storage.get_size
        storage.update_metadata({KEY: metadata, "dataset_size": storage.get_size()})
    return contents


def _player(source: Source, agent: int) -> dict[str, Any]:
    """The metadata of an episode: the number of the agent, and the policy with which it was played."""
    if (team := source.metadata.get("team")) is None:
        return {"agent": agent}
    if (updates := source.metadata.get("checkpoints")) is None:
        return {"agent": agent, "policy": f"{team}/agent-{agent}"}
    stage, number = divmod(agent, source.metadata["agents_per_checkpoint"])
    if stage >= len(updates):
        raise ValueError(f"agent {agent} is of stage {stage}, and the dataset has {len(updates)} stages, numbered from 0")
    return {"agent": agent, "policy": f"{team}/update-{updates[stage]}/agent-{number}"}


@contextlib.contextmanager
def _new_dataset(dataset_id: str, force: bool, claimed: Destination | None) -> Iterator[None]:
    """Makes Minari write to the folder of what is unfinished; a complete dataset is published."""
    with claimed_dataset(dataset_id) if claimed is None else contextlib.nullcontext(claimed) as place, write_errors(place.name):
        if claimed is None:
            place.check_unbegun(force=force)
        check_is_new(dataset_id, place, force)
        root, name = minari_path("any-v0").parent, place.path.name
        with tempfile.TemporaryDirectory(prefix=".minari-", dir=place.unfinished) as folder:
            with _minari_root(folder):
                yield
            new = place.fresh()
            Path(folder, dataset_id).rename(new / name)
            for namespace in Path(folder).rglob(_NAMESPACE):
                where = root / namespace.relative_to(folder)
                if not where.exists():
                    namespace.replace(new / _NAMESPACE if where.parent.resolve() == place.folder else where)
        place.publish((name,) if force else ())


def _check_room(storage: Any, part: Dataset) -> None:
    """Raises OSError if the disk is too full for the episodes, since HDF5 may crash the process when it finds out."""
    if storage.FORMAT != "hdf5" or not hasattr(os, "posix_fallocate"):
        return
    folder = Path(storage.data_path)
    numbers = sum(column.nbytes for column in part.columns.values())
    size = 2 * numbers + len(part) * _BYTES_PER_EPISODE  # whole numbers take twice the room there
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            os.posix_fallocate(file.fileno(), (folder / _HDF5).stat().st_size, size)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):  # others: the disk cannot reserve room
                raise


@contextlib.contextmanager
def _minari_root(folder: str) -> Iterator[None]:
    before = os.environ.get(_ROOT)
    os.environ[_ROOT] = folder
    try:
        yield
    finally:
        os.environ.pop(_ROOT)
        if before is not None:
            os.environ[_ROOT] = before


def _new(dataset_id: str, first: Dataset, data_format: str, **about: str | None) -> Any:
    """The storage of a new, empty Minari dataset with the spaces of the first part."""
    minari = optional_package("minari", EXTRA)
    source = first.source
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Minari warns of a missing author and link
        try:
            dataset = minari.create_dataset_from_buffers(
                dataset_id,
                [],
                env=None if source.environment is None else EnvSpec.from_json(source.environment),
                observation_space=_observation_space(first),
                action_space=write_space(source.actions, first.actions.dtype),
                algorithm_name=source.metadata.get("algorithm"),
                description=source.metadata.get("description"),
                requirements=[f"farflung>={version('farflung')}"] if '"farflung' in (source.environment or "") else None,
                data_format=data_format,
                **about,
            )
        except ImportError as error:
            raise ValueError(f"{str(error).splitlines()[0]}: pip install {EXTRA}") from None
    # Arrow's storage adds up the sizes of all files after each episode, which takes hours for ten thousand of them.
    dataset.storage.get_size = lambda: 0.0
    return dataset.storage


def _buffers(dataset: Dataset) -> Iterator[Any]:
    make = optional_package("minari.data_collector", EXTRA).EpisodeBuffer
    observations, actions = (
        column.astype(np.int64) if np.issubdtype(column.dtype, np.integer) else column
        for column in (dataset.observations, dataset.actions)
    )
    is_last = np.arange(dataset.actions.shape[1]) == dataset.lengths[:, None] - 1
    terminations, truncations = is_last & dataset.terminated[:, None], is_last & dataset.truncated[:, None]
    parts, infos = parts_in(dataset.source), _infos(dataset)
    for episode, length in enumerate(dataset.lengths.tolist()):
        seen = observations[episode, : length + 1]
        yield make(
            seed=None if dataset.seeds is None else int(dataset.seeds[episode]),
            observations={name: seen[:, first:last].reshape(len(seen), *shape) for name, (first, last, shape) in parts.items()}
            or seen,
            actions=actions[episode, :length],
            rewards=dataset.rewards[episode, :length],
            terminations=terminations[episode, :length],
            truncations=truncations[episode, :length],
            infos={name: _told(column[episode, : length + 1]) for name, column in infos.items()},  # Minari cannot print None
        )


def _told(info: np.ndarray) -> Any:
    """An info as Minari's Arrow files need it, which cannot be read if single numbers are an array."""
    return info.tolist() if info.ndim == 1 else info


def _infos(dataset: Dataset) -> dict[str, np.ndarray]:
    """What the environment shows as `info`: as it was recorded, or on a map the row and column of each state."""
    if dataset.infos:
        return dict(dataset.infos)
    world = None if dataset.source.world is None else dataset.source.world.table
    if world is None or world.positions is None or '"farflung/' not in (dataset.source.environment or ""):
        return {}
    places = np.zeros((dataset.source.num_observations, 2), np.int64)
    places[np.asarray(world.labels)] = np.asarray(world.positions)
    return {"position": places[dataset.observations]}


def _observation_space(first: Dataset) -> gymnasium.Space[Any]:
    space = first.source.observations
    if not isinstance(space, Box) or not (parts := parts_in(first.source)):
        return write_space(space, first.observations.dtype)
    low, high = (np.asarray(bound, first.observations.dtype) for bound in (space.low, space.high))
    boxes: dict[str, gymnasium.Space[Any]] = {
        name: gymnasium.spaces.Box(low[begin:end].reshape(shape), high[begin:end].reshape(shape), dtype=low.dtype.type)
        for name, (begin, end, shape) in parts.items()
    }
    return gymnasium.spaces.Dict(boxes)


def from_minari(dataset: Any) -> Dataset:
    """Reads a Minari dataset by any author, given the dataset or its id; its spaces must be discrete or vectors."""
    minari = optional_package("minari", EXTRA)
    if not isinstance(dataset, str | minari.MinariDataset):
        raise ValueError(f"a dataset is a Minari dataset or its id, not {type(dataset).__name__}")
    name = dataset if isinstance(dataset, str) else dataset.id
    if isinstance(dataset, str) and not (minari_path(name) / "data").is_dir():
        raise ValueError(f"there is no Minari dataset {name} (looked in {minari_path(name)}); see minari list local")
    path = minari_path(name) / "data" if isinstance(dataset, str) else Path(dataset.storage.data_path)
    with reading(f"the Minari dataset {name} cannot be read", path):
        if isinstance(dataset, str):
            _check_metadata(path)
            dataset = minari.load_dataset(name)
        return checked(_read_all(dataset, path))


def _check_metadata(path: Path) -> None:
    """Raises ValueError if Minari cannot open a dataset safely: Minari makes spaces of any size, and environments."""
    metadata = read_object(member(path, _METADATA))
    for name in ("observation_space", "action_space"):
        if name not in metadata:  # Minari would make the environment to get its space, and that may run any program
            raise ValueError(f"it does not say its {name}")
        _check_space(parse_object(metadata[name]))
    num_episodes = metadata["total_episodes"]
    if num_episodes == 0:
        raise ValueError("there are no episodes")
    if not isinstance(num_episodes, int) or not 0 < num_episodes <= size_on_disk([path]):
        raise ValueError(f"there are not as many as {num_episodes} episodes")


def _check_space(space: dict[str, Any], *, is_part: bool = False) -> None:
    kind, shape = space["type"], tuple(space.get("shape") or ())
    if kind == "Dict" and not is_part and space["subspaces"]:
        for part in space["subspaces"].values():
            if part["type"] != "Box":
                raise ValueError(f"of a Dict, only entries of the space Box can be read, not of {str(part['type'])[:40]}")
            _check_space(part, is_part=True)
        return
    if kind not in ("Discrete", "Box") or (kind == "Box" and len(shape) != 1 and not is_part):
        described = f"{str(kind)[:40]}{shape or ''}"
        raise ValueError(f"only numbers from 0 on and vectors can be read: the spaces Discrete, Box and Dict, not {described}")
    if kind == "Box" and not (np.shape(space["low"]) == np.shape(space["high"]) == shape):
        raise ValueError(f"the bounds of a space have another shape than {shape}")
    if kind == "Box" and space["dtype"] not in _DTYPES:
        raise ValueError(f"a vector's type must be one of {', '.join(_DTYPES)}")
    if kind == "Discrete" and not 0 < space["n"] + space["start"] <= MOST_VALUES:
        raise ValueError(f"a discrete space must have 1 to {MOST_VALUES:,} values")


def _read_all(dataset: Any, path: Path) -> Dataset:
    source, parts, longest = _source(dataset), [], 0
    read = _read_hdf5 if dataset.storage.FORMAT == "hdf5" else _read_arrow
    indices = [int(index) for index in dataset.episode_indices]
    episodes = read(path, dataset.storage.FORMAT, indices, list(parts_in(source)))
    while some := list(itertools.islice(episodes, _EPISODES_AT_ONCE)):
        longest, before = max(longest, *(sum(each.nbytes for each in columns.values()) for columns, _ in some)), longest
        spend((longest - before) * dataset.total_episodes)  # as arrays [episode, time]
        parts.append(_read(some, source, dataset))
    return joined(parts)


def _source(dataset: Any) -> Source:
    ours = dataset.storage.metadata.get(KEY)
    if ours is not None:
        return from_json(json.dumps(ours))
    observations, actions = read_space(dataset.observation_space), read_space(dataset.action_space)
    metadata = {"dataset": dataset.id, **read_parts(dataset.observation_space), **_references(dataset.storage.metadata)}
    if dataset.env_spec is None:
        return Source(observations, actions, metadata=metadata)
    about = (dataset.env_spec.to_json(), metadata)
    unknown = Source(observations, actions, None, *about)
    spec = None if dataset.env_spec.additional_wrappers else installed(dataset.env_spec)
    if spec is None:
        return unknown
    try:
        environment: Any = gymnasium.make(spec)
        if not isinstance(observations, Box):
            return Source(observations, actions, observed_world(environment), *about)
        if spec.id != POINT_MAZE:
            return unknown
        world = environment.unwrapped.world
        return Source(observations, actions, world, *about, world.projection)
    except Exception:  # with the options of a file, an environment may raise anything
        return unknown


def _references(metadata: Mapping[str, Any]) -> dict[str, float]:
    """The returns that count as 0 and 1 in Minari's normalised scores."""
    found = {name: metadata.get(name) for name in ("ref_min_score", "ref_max_score")}
    return {name: float(value) for name, value in found.items() if isinstance(value, int | float) and np.isfinite(value)}


def _read(episodes: list[_Episode], source: Source, spaces: Any) -> Dataset:
    """Episodes as arrays: numbers as int32, vectors and rewards as floats of at least 32 bits."""
    lengths = np.array([len(columns["rewards"]) for columns, _ in episodes], np.int32)
    agents = np.array([int(about.get("agent", 0)) for _, about in episodes], np.int32)
    has_seeds = all("seed" in about for _, about in episodes)
    seeds = np.array([int(about["seed"]) for _, about in episodes], np.int64) if has_seeds else None
    shape = (len(episodes), int(lengths.max()))
    observations = _blank(spaces.observation_space, shape[0], shape[1] + 1)
    actions = _blank(spaces.action_space, *shape)
    rewards = np.zeros(shape, np.result_type(np.float32, *{columns["rewards"].dtype for columns, _ in episodes}))
    for row, ((columns, _), length) in enumerate(zip(episodes, lengths.tolist(), strict=True)):
        observations[row, : length + 1] = columns["observations"]
        actions[row, :length] = columns["actions"]
        rewards[row, :length] = columns["rewards"]
    terminated, truncated = (
        np.array([bool(columns[name][-1]) for columns, _ in episodes]) for name in ("terminations", "truncations")
    )
    return Dataset(observations, actions, rewards, lengths, terminated, truncated, agents, source, seeds)


def _blank(space: gymnasium.Space[Any], *shape: int) -> np.ndarray:
    if isinstance(space, gymnasium.spaces.Discrete):
        return np.zeros(shape, np.int32)
    boxes = list(space.spaces.values()) if isinstance(space, gymnasium.spaces.Dict) else [space]
    size = sum(int(np.prod(box.shape or ())) for box in boxes)
    return np.zeros((*shape, size), np.result_type(np.float32, *(box.dtype for box in boxes)))


def _read_hdf5(path: Path, _: str, indices: Iterable[int], parts: Sequence[str]) -> Iterator[_Episode]:
    h5py = optional_package("h5py", EXTRA)
    spend(file_size(member(path, _HDF5)))

    def own(group: Any, name: str, kind: type) -> Any:
        # A link could lead anywhere, also to other files.
        if not isinstance(group.get(name, getlink=True), h5py.HardLink) or not isinstance(group[name], kind):
            raise ValueError(f"{name} is no part of the file itself")
        return group[name]

    def numbers(group: Any, name: str, index: int) -> np.ndarray:
        column = own(group, name, h5py.Dataset)
        if column.is_virtual or column.external or column.dtype.kind not in "biuf":
            raise ValueError(f"{name} of episode {index} lie in another file, or are no numbers")
        if column.id.get_create_plist().get_nfilters():  # HDF5 unpacks a chunk whatever its size turns out to be
            raise ValueError(f"{name} of episode {index} are packed, which Minari never does: see h5repack -f NONE")
        # Chunks are unpacked as a whole, even if the column is shorter.
        spend(max(column.nbytes, math.prod(column.chunks or ()) * column.dtype.itemsize))
        return np.asarray(column[()])

    def attribute(group: Any, name: str) -> int:
        about = group.attrs.get_id(name)
        if about.shape != () or about.dtype.kind not in "iu":
            raise ValueError(f"the {name} of an episode must be a whole number")
        return int(group.attrs[name])

    with h5py.File(path / _HDF5, "r") as file:
        for index in indices:
            group = own(file, f"episode_{index}", h5py.Group)
            columns = {name: numbers(group, name, index) for name in _COLUMNS if name != _SEEN or not parts}
            if parts:
                columns[_SEEN] = _joined([numbers(own(group, _SEEN, h5py.Group), name, index) for name in parts])
            yield columns, {name: attribute(group, name) for name in ("agent", "seed") if name in group.attrs}


def _read_arrow(path: Path, data_format: str, indices: Iterable[int], parts: Sequence[str]) -> Iterator[_Episode]:
    """Reads Minari's Arrow and Parquet files, which have one row per observation; other columns are blank in the last row."""
    for index in indices:
        folder = member(path, str(index))
        names = sorted(each.name for each in folder.iterdir() if not each.name.startswith((".", "_", _METADATA)))
        found = [read_columns(member(folder, name), _COLUMNS, data_format)[0] for name in names]
        columns = {name: np.concatenate([each[name] for each in found]) for name in found[0]}
        columns = {name: each if name.startswith(_SEEN) else each[:-1] for name, each in columns.items()}
        if parts:
            columns[_SEEN] = _joined([columns.pop(f"{_SEEN}.{name}") for name in parts])
        yield columns, read_object(member(folder, _METADATA))


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """The entries of observations that are dictionaries as vectors."""
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)
