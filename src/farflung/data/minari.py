"""Minari datasets: written part by part, and read as arrays without running any program that a file names."""

import contextlib
import errno
import itertools
import json
import math
import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator
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
    spend_on_options,
)
from farflung.data.archives import KEY
from farflung.data.columns import EXTRA, read_columns
from farflung.data.episodes import Contents, Dataset, Source, checked, joined
from farflung.data.sources import from_json, observed_world, read_space, to_json, write_space
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
_WITH_OPTIONS = ("gymnasium.envs.toy_text.", "farflung.")

_Episode = tuple[dict[str, np.ndarray], int]
"""The columns of one episode, and its agent."""


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
    place: Destination | None = None,
) -> Contents:
    """Writes a dataset, or its parts one by one, for `minari.load_dataset(dataset_id)`.

    Args:
        data_format: `hdf5`, the fastest to write, `arrow`, a tenth of the size, or `parquet`.
        force: replace an existing dataset.
        place: the destination, if it is locked already, as `claimed_dataset` yields it.
    """
    with _new_dataset(dataset_id, force, place):
        contents = Contents()
        storage: Any = None
        for part in contents.counting([data] if isinstance(data, Dataset) else data):
            storage = storage or _new(dataset_id, part, data_format)
            _check_room(storage, part)
            storage.update_episodes(_buffers(part))
            team = part.source.metadata.get("team")
            about = (
                {"agent": agent} | ({} if team is None else {"policy": f"{team}/agent-{agent}"})
                for agent in part.agents.tolist()
            )
            storage.update_episode_metadata(about, range(contents.num_episodes - len(part), contents.num_episodes))
        metadata = json.loads(to_json(contents))
        del storage.get_size
        storage.update_metadata({KEY: metadata, "dataset_size": storage.get_size()})
    return contents


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
    numbers = part.observations.nbytes + part.actions.nbytes + part.rewards.nbytes
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


def _new(dataset_id: str, first: Dataset, data_format: str) -> Any:
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
                observation_space=write_space(source.observations, first.observations.dtype),
                action_space=write_space(source.actions, first.actions.dtype),
                algorithm_name=source.metadata.get("algorithm"),
                description=source.metadata.get("description"),
                requirements=[f"farflung>={version('farflung')}"] if '"farflung/' in (source.environment or "") else None,
                data_format=data_format,
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
    for episode, length in enumerate(dataset.lengths.tolist()):
        yield make(
            observations=observations[episode, : length + 1],
            actions=actions[episode, :length],
            rewards=dataset.rewards[episode, :length],
            terminations=terminations[episode, :length],
            truncations=truncations[episode, :length],
            infos={},  # without infos, Minari cannot print an episode of an HDF5 file
        )


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


def _check_space(space: dict[str, Any]) -> None:
    kind, shape = space["type"], tuple(space.get("shape", ()))
    if kind not in ("Discrete", "Box") or (kind == "Box" and len(shape) != 1):
        described = f"{str(kind)[:40]}{shape or ''}"
        raise ValueError(f"only numbers from 0 on and vectors can be read, of the spaces Discrete and Box, not {described}")
    if kind == "Box" and not (np.shape(space["low"]) == np.shape(space["high"]) == shape):
        raise ValueError(f"the bounds of a space have another shape than {shape}")
    if kind == "Box" and space["dtype"] not in _DTYPES:
        raise ValueError(f"a vector's type must be one of {', '.join(_DTYPES)}")
    if kind == "Discrete" and not 0 < space["n"] + space["start"] <= MOST_VALUES:
        raise ValueError(f"a discrete space must have 1 to {MOST_VALUES:,} values")


def _read_all(dataset: Any, path: Path) -> Dataset:
    source, parts, longest = _source(dataset), [], 0
    read = _read_hdf5 if dataset.storage.FORMAT == "hdf5" else _read_arrow
    episodes = read(path, dataset.storage.FORMAT, [int(index) for index in dataset.episode_indices])
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
    if dataset.env_spec is None:
        return Source(observations, actions)
    about = (dataset.env_spec.to_json(), {"dataset": dataset.id})
    unknown = Source(observations, actions, None, *about)
    spec = _installed(dataset.env_spec)
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


def _installed(spec: EnvSpec) -> EnvSpec | None:
    """The specification of an environment that is installed here; None for any other, which could be any program.

    The program is the one that Gymnasium has registered for the id. Only options of Gymnasium's tables and of farflung's worlds
    are taken from the file: those of others could ask for anything.
    """
    known = gymnasium.registry.get(spec.id)
    if known is None or spec.additional_wrappers:
        return None
    if spec.id.startswith("farflung/"):  # older datasets name modules that have moved
        spec.entry_point, spec.vector_entry_point = known.entry_point, known.vector_entry_point
    spec.kwargs.pop("render_mode", None)  # no window opens for a file
    if not str(known.entry_point).startswith(_WITH_OPTIONS) and spec.kwargs != known.kwargs:
        return None
    spend_on_options(spec.kwargs)
    return spec if spec.entry_point == known.entry_point else None


def _read(episodes: list[_Episode], source: Source, spaces: Any) -> Dataset:
    """Episodes as arrays: numbers as int32, vectors and rewards as floats of at least 32 bits."""
    lengths = np.array([len(columns["rewards"]) for columns, _ in episodes], np.int32)
    agents = np.array([agent for _, agent in episodes], np.int32)
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
    return Dataset(observations, actions, rewards, lengths, terminated, truncated, agents, source)


def _blank(space: gymnasium.Space[Any], *shape: int) -> np.ndarray:
    is_discrete = isinstance(space, gymnasium.spaces.Discrete)
    return np.zeros((*shape, *(space.shape or ())), np.int32 if is_discrete else np.result_type(space.dtype, np.float32))


def _read_hdf5(path: Path, _: str, indices: Iterable[int]) -> Iterator[_Episode]:
    h5py = optional_package("h5py", EXTRA)
    spend(file_size(member(path, _HDF5)))

    def own(group: Any, name: str, kind: type) -> Any:
        # A link could lead anywhere, also to other files.
        if not isinstance(group.get(name, getlink=True), h5py.HardLink) or not isinstance(group[name], kind):
            raise ValueError(f"{name} is no part of the file itself")
        return group[name]

    with h5py.File(path / _HDF5, "r") as file:
        for index in indices:
            group, columns = own(file, f"episode_{index}", h5py.Group), {}
            for name in _COLUMNS:
                column = own(group, name, h5py.Dataset)
                if column.is_virtual or column.external or column.dtype.kind not in "biuf":
                    raise ValueError(f"{name} of episode {index} lie in another file, or are no numbers")
                # Chunks are unpacked as a whole, even if the column is shorter.
                spend(max(column.nbytes, math.prod(column.chunks or ()) * column.dtype.itemsize))
                columns[name] = np.asarray(column[()])
            yield columns, int(group.attrs.get("agent", 0))


def _read_arrow(path: Path, data_format: str, indices: Iterable[int]) -> Iterator[_Episode]:
    """Reads Minari's Arrow and Parquet files, which have one row per observation; other columns are blank in the last row."""
    for index in indices:
        folder = member(path, str(index))
        names = sorted(each.name for each in folder.iterdir() if not each.name.startswith((".", "_", _METADATA)))
        found = [read_columns(member(folder, name), _COLUMNS, data_format)[0] for name in names]
        columns = {name: np.concatenate([each[name] for each in found]) for name in _COLUMNS}
        columns = {name: each if name == "observations" else each[:-1] for name, each in columns.items()}
        yield columns, int(read_object(member(folder, _METADATA)).get("agent", 0))
