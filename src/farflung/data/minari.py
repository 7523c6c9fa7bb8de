"""Minari datasets: written as the episodes come, and read back as arrays."""

import contextlib
import itertools
import json
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
from farflung.config.reading import check_unpacked, one_line_errors
from farflung.data.episodes import Contents, Dataset, Source, checked, joined
from farflung.data.minari_reading import Episode, check_metadata, episodes_of, folder_size, registered
from farflung.data.sources import from_json, observed_world, read_space, to_json, write_space
from farflung.runs import interrupts
from farflung.runs.files import sync
from farflung.worlds.projection import Box
from farflung.worlds.vectors import VectorWorld

_EXTRA = "'farflung[data]'"
_KEY = "farflung"
_ROOT, _NAMESPACE = "MINARI_DATASETS_PATH", "namespace_metadata.json"
_EPISODES_AT_ONCE = 1000


def to_minari(
    data: Dataset | Iterable[Dataset],
    dataset_id: str,
    *,
    data_format: str = "hdf5",
    force: bool = False,
    staging: Path | None = None,
) -> Contents:
    """Writes a dataset, or the parts of one as they come, so that `minari.load_dataset(dataset_id)` finds it.

    Args:
        data_format: `hdf5`, the fastest to write, `arrow`, a tenth of the size, or `parquet`.
        force: replace a dataset that is already there.
        staging: a folder on the same disk to write in until the dataset is complete; by default a new one among the datasets.
    """
    with _appearing(dataset_id, force, staging):
        contents = Contents()
        storage: Any = None
        for part in contents.counting([data] if isinstance(data, Dataset) else data):
            storage = storage or _new(dataset_id, part, data_format)
            storage.update_episodes(_buffers(part))
            storage.update_episode_metadata(
                _episode_metadata(part), range(contents.num_episodes - len(part), contents.num_episodes)
            )
        metadata = json.loads(to_json(contents))
        del storage.get_size
        storage.update_metadata({_KEY: metadata, "dataset_size": storage.get_size()})
    return contents


def from_minari(dataset: Any) -> Dataset:
    """The episodes of a Minari dataset, or of its id, whoever made it, if observations and actions are discrete or vectors."""
    minari = optional_package("minari", _EXTRA)
    name = dataset if isinstance(dataset, str) else dataset.id
    if isinstance(dataset, str) and not (minari_path(name) / "data").is_dir():
        raise ValueError(f"there is no Minari dataset {name} (looked in {minari_path(name)}); see minari list local")
    with one_line_errors(f"the Minari dataset {name} cannot be read"):
        if isinstance(dataset, str):
            check_metadata(minari_path(name) / "data")
            dataset = minari.load_dataset(name)
        return checked(_read_all(dataset))


def _read_all(dataset: Any) -> Dataset:
    source, size = _source(dataset), folder_size(Path(dataset.storage.data_path))
    episodes, parts, longest = episodes_of(dataset), [], 0
    while some := list(itertools.islice(episodes, _EPISODES_AT_ONCE)):
        longest = max(longest, *(episode.num_bytes for episode in some))
        check_unpacked(longest * dataset.total_episodes, size)  # as arrays [episode, time]
        parts.append(_read(some, source, dataset))
    return joined(parts)


def minari_path(dataset_id: str) -> Path:
    """Where Minari keeps a dataset: below `MINARI_DATASETS_PATH` if that is set, else in the user's home."""
    check_dataset_id(dataset_id)
    storage = optional_package("minari.storage", _EXTRA)
    try:
        return Path(storage.get_dataset_path(dataset_id))
    except OSError as error:
        raise ValueError(f"Minari cannot keep datasets in {error.filename}: {error.strerror}") from None


def check_is_new(dataset_id: str, force: bool) -> None:
    """Raises ValueError if there is such a dataset already and it may not be replaced: better before the work than after."""
    path = minari_path(dataset_id)
    if path.exists() and not force:
        raise ValueError(f"there is a Minari dataset {dataset_id} already: choose another id, or replace it with --force")
    if path.exists() and not (path / "data").is_dir():
        raise ValueError(f"{path} is no Minari dataset, so it is not replaced: choose another id")


@contextlib.contextmanager
def _appearing(dataset_id: str, force: bool, staging: Path | None) -> Iterator[None]:
    """Has Minari write a dataset elsewhere, so that it appears, or takes the place of the old one, only when it is complete."""
    check_is_new(dataset_id, force)
    path = minari_path(dataset_id)
    try:
        with tempfile.TemporaryDirectory(prefix=".farflung-", dir=staging or minari_path("any-v0").parent) as folder:
            with _datasets_in(folder):
                yield
                new = minari_path(dataset_id)
            for file in new.rglob("*"):
                sync(file)
            path.parent.mkdir(parents=True, exist_ok=True)
            for described in Path(folder).rglob(_NAMESPACE):
                place = minari_path("any-v0").parent / described.relative_to(folder)
                if not place.exists():
                    described.replace(place)
            with interrupts.uninterrupted():
                if path.exists():
                    path.rename(Path(folder, "old"))
                new.rename(path)
    except OSError as error:
        raise ValueError(f"cannot write to {path}: {error.strerror or error}") from None


@contextlib.contextmanager
def _datasets_in(folder: str) -> Iterator[None]:
    before = os.environ.get(_ROOT)
    os.environ[_ROOT] = folder
    try:
        yield
    finally:
        os.environ.pop(_ROOT)
        if before is not None:
            os.environ[_ROOT] = before


def _new(dataset_id: str, first: Dataset, data_format: str) -> Any:
    minari = optional_package("minari", _EXTRA)
    source = first.source
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is no author and no link
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
            raise ValueError(f"{str(error).splitlines()[0]}: pip install {_EXTRA}") from None
    # Arrow's storage adds up the sizes of all files after each episode, which takes hours for ten thousand of them.
    dataset.storage.get_size = lambda: 0.0
    return dataset.storage


def _buffers(dataset: Dataset) -> Iterator[Any]:
    make = optional_package("minari.data_collector", _EXTRA).EpisodeBuffer
    observations, actions = _as_minari_has_them(dataset.observations), _as_minari_has_them(dataset.actions)
    is_last = np.arange(dataset.actions.shape[1]) == dataset.lengths[:, None] - 1
    terminations, truncations = is_last & dataset.terminated[:, None], is_last & dataset.truncated[:, None]
    for episode, length in enumerate(dataset.lengths.tolist()):
        yield make(
            observations=observations[episode, : length + 1],
            actions=actions[episode, :length],
            rewards=dataset.rewards[episode, :length],
            terminations=terminations[episode, :length],
            truncations=truncations[episode, :length],
            infos={},  # Minari cannot print an episode of an HDF5 file without
        )


def _as_minari_has_them(column: np.ndarray) -> np.ndarray:
    return column.astype(np.int64) if np.issubdtype(column.dtype, np.integer) else column


def _episode_metadata(dataset: Dataset) -> Iterator[dict[str, Any]]:
    team = dataset.source.metadata.get("team")
    for agent in dataset.agents.tolist():
        yield {"agent": agent} if team is None else {"agent": agent, "policy": f"{team}/agent-{agent}"}


def _source(dataset: Any) -> Source:
    ours = dataset.storage.metadata.get(_KEY)
    if ours is not None:
        return from_json(json.dumps(ours))
    observations, actions = read_space(dataset.observation_space), read_space(dataset.action_space)
    if dataset.env_spec is None:
        return Source(observations, actions)
    about = (dataset.env_spec.to_json(), {"dataset": dataset.id})
    spec = registered(dataset.env_spec)
    if spec is None:
        return Source(observations, actions, None, *about)
    try:
        environment = gymnasium.make(spec)
        if isinstance(observations, Box):
            world = getattr(environment.unwrapped, "world", None)
            if not isinstance(world, VectorWorld):  # others call other things so
                return Source(observations, actions, None, *about)
            return Source(observations, actions, world, *about, world.projection)
        return Source(observations, actions, observed_world(environment), *about)
    except Exception:  # with the options of a file an environment may raise anything
        return Source(observations, actions, None, *about)


def _read(episodes: list[Episode], source: Source, spaces: Any) -> Dataset:
    lengths = np.array([len(episode.rewards) for episode in episodes], np.int32)
    agents = np.array([episode.agent for episode in episodes], np.int32)
    shape = (len(episodes), int(lengths.max()))
    observations = _blank(spaces.observation_space, shape[0], shape[1] + 1)
    actions = _blank(spaces.action_space, *shape)
    paid_in = np.result_type(np.float32, *{np.asarray(episode.rewards).dtype for episode in episodes})
    rewards = np.zeros(shape, paid_in)
    for row, (episode, length) in enumerate(zip(episodes, lengths.tolist(), strict=True)):
        observations[row, : length + 1] = episode.observations
        actions[row, :length] = episode.actions
        rewards[row, :length] = episode.rewards
    terminated, truncated = (
        np.array([bool(getattr(episode, name)[-1]) for episode in episodes]) for name in ("terminations", "truncations")
    )
    return Dataset(observations, actions, rewards, lengths, terminated, truncated, agents, source)


def _blank(space: gymnasium.Space[Any], *shape: int) -> np.ndarray:
    """Numbers as int32, vectors as floats as precise as they are."""
    is_discrete = isinstance(space, gymnasium.spaces.Discrete)
    return np.zeros((*shape, *(space.shape or ())), np.int32 if is_discrete else np.result_type(space.dtype, np.float32))
