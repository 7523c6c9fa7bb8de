"""Episodes of Minari datasets, of which anyone may be the author: looked at before they are read, and nothing is run."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from farflung.config.checks import optional_package
from farflung.config.reading import MOST_VALUES, check_unpacked, file_size, member, parse_object, read_object

_EXTRA = "'farflung[data]'"
_METADATA, _HDF5 = "metadata.json", "main_data.hdf5"
_SPACES = ("observation_space", "action_space")
_DTYPES = ("float16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64")


class Episode(NamedTuple):
    """The columns of one episode, and who played it."""

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray
    agent: int

    @property
    def num_bytes(self) -> int:
        return sum(getattr(self, name).nbytes for name in _COLUMNS)


_COLUMNS = Episode._fields[:-1]


def check_metadata(path: Path) -> None:
    """Raises ValueError if Minari could not open a dataset without risk: it makes spaces of any size, and environments."""
    metadata = read_object(member(path, _METADATA))
    for name in _SPACES:
        if name not in metadata:  # without one, Minari makes the environment to see it, which may be any program
            raise ValueError(f"it does not say its {name}")
        _check_space(parse_object(metadata[name]))
    num_episodes = metadata["total_episodes"]
    if num_episodes == 0:
        raise ValueError("there are no episodes")
    if not isinstance(num_episodes, int) or not 0 < num_episodes <= folder_size(path):
        raise ValueError(f"there are not as many as {num_episodes} episodes")


def folder_size(path: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(each.lstat().st_size for each in path.rglob("*"))


def _check_space(space: dict[str, Any]) -> None:
    kind, shape = space["type"], tuple(space.get("shape", ()))
    if kind not in ("Discrete", "Box") or (kind == "Box" and len(shape) != 1):
        described = f"{str(kind)[:40]}{shape or ''}"
        raise ValueError(f"only numbers from 0 on and vectors can be read, of the spaces Discrete and Box, not {described}")
    if kind == "Box" and not (np.shape(space["low"]) == np.shape(space["high"]) == shape):
        raise ValueError(f"the bounds of a space have another shape than {shape}")
    if kind == "Box" and space["dtype"] not in _DTYPES:
        raise ValueError(f"a vector is of one of {', '.join(_DTYPES)}")
    if kind == "Discrete" and not 0 < space["n"] + space["start"] <= MOST_VALUES:
        raise ValueError(f"no more than {MOST_VALUES:,} observations or actions can be told apart")


def registered(spec: EnvSpec) -> EnvSpec | None:
    """The specification of an environment that is installed here; None for others, which could be any program.

    The file says how to make it, and that counts for the options only: what is called is what Gymnasium knows by this id.
    """
    known = gymnasium.registry.get(spec.id)
    if known is None or spec.additional_wrappers:
        return None
    if spec.id.startswith("farflung/"):  # modules have moved since the first datasets
        spec.entry_point, spec.vector_entry_point = known.entry_point, known.vector_entry_point
    return spec if spec.entry_point == known.entry_point else None


def episodes_of(dataset: Any) -> Iterator[Episode]:
    """The episodes of a Minari dataset, without what else its author has put there."""
    storage = dataset.storage
    read = _read_hdf5 if storage.FORMAT == "hdf5" else _read_arrow
    return read(Path(storage.data_path), storage.FORMAT, [int(index) for index in dataset.episode_indices])


def _read_hdf5(path: Path, _: str, indices: Iterable[int]) -> Iterator[Episode]:
    h5py = optional_package("h5py", _EXTRA)
    size, unpacked = file_size(member(path, _HDF5)), 0
    with h5py.File(path / _HDF5, "r") as file:
        for index in indices:
            group, columns = _own(h5py, file, f"episode_{index}", h5py.Group), {}
            for name in _COLUMNS:
                column = _own(h5py, group, name, h5py.Dataset)
                if column.is_virtual or column.external or column.dtype.kind not in "biuf":
                    raise ValueError(f"{name} of episode {index} lie in another file, or are no numbers")
                unpacked += column.nbytes
                check_unpacked(unpacked, size)
                columns[name] = np.asarray(column[()])
            yield Episode(**columns, agent=int(group.attrs.get("agent", 0)))


def _own(h5py: Any, group: Any, name: str, kind: type) -> Any:
    """What a group holds itself: links lead anywhere, also to other files."""
    if not isinstance(group.get(name, getlink=True), h5py.HardLink) or not isinstance(group[name], kind):
        raise ValueError(f"{name} is no part of the file itself")
    return group[name]


def _read_arrow(path: Path, data_format: str, indices: Iterable[int]) -> Iterator[Episode]:
    """Minari's Arrow and Parquet files have one row for each observation: the last of all else is blank."""
    datasets = optional_package("pyarrow.dataset", _EXTRA)
    for index in indices:
        folder = member(path, str(index))
        names = sorted(each.name for each in folder.iterdir() if not each.name.startswith((".", "_", _METADATA)))
        files = [member(folder, name) for name in names]
        size = sum(map(file_size, files))
        found = datasets.dataset([str(each) for each in files], format=data_format)
        row_size = sum(item_size(found.schema.field(name).type) for name in _COLUMNS)
        check_unpacked(found.count_rows() * row_size, size)
        table = found.to_table(columns=list(_COLUMNS))
        rows = {name: table.num_rows - (name != "observations") for name in _COLUMNS}
        columns = {name: column_of(table[name])[: rows[name]] for name in _COLUMNS}
        agent = read_object(member(folder, _METADATA)).get("agent", 0)
        yield Episode(**columns, agent=int(agent))


def item_size(kind: Any) -> int:
    """Bytes of a value in a column of Arrow's: a number, a yes or no, or a vector."""
    types = optional_package("pyarrow.types", _EXTRA)
    if types.is_fixed_size_list(kind):
        return kind.list_size * item_size(kind.value_type)
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        raise ValueError(f"a column of {kind} holds no numbers")
    return max(1, kind.bit_width // 8)


def column_of(column: Any) -> np.ndarray:
    """A column of Arrow's as an array."""
    if column.null_count:
        raise ValueError("a value is missing")
    size = getattr(column.type, "list_size", None)
    return column.to_numpy() if size is None else column.combine_chunks().flatten().to_numpy().reshape(-1, size)
