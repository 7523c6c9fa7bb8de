"""Datasets as single files: NumPy's npz, Parquet, and the HDF5 of d3rlpy's `MDPDataset`."""

import contextlib
import json
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from shutil import copyfileobj
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped

from farflung.config.checks import optional_package
from farflung.config.reading import read_arrays, reading, spend
from farflung.data.columns import EXTRA, read_columns
from farflung.data.episodes import Contents, Dataset, checked, from_columns, padded
from farflung.data.sources import from_json, size_of, source_to_json, to_json
from farflung.runs.destinations import Destination, claimed_file
from farflung.runs.files import write_errors

KEY = "farflung"
"""The name of the text with a dataset's source, in every format."""
_SIZE = "farflung_size"
"""The name of the text with the size of a dataset, in a Parquet file."""
_MOST_NUMBERS = 2**22
_INFO, _NEXT_INFO = "info/", "next_info/"
_FURTHER = re.compile(r"seed|(next_)?info/[^.]+")
"""The columns that a Parquet file may lack."""
_PARQUET = ("episode", "agent", "observation", "action", "reward", "next_observation", "terminated", "truncated")

Parts = Iterable[Dataset]
Writer = Callable[[Parts, Path], Contents]


def save_dataset(data: Dataset | Parts, path: str | Path | Destination, *, force: bool = False) -> Contents:
    """Writes a dataset, or its parts one by one; the file's suffix is the format.

    Args:
        path: ends with `.npz`, `.parquet`, or `.h5` for d3rlpy.
        force: replace an existing file.
    """
    with claimed_file(path) as place, write_errors(place.name):
        if not isinstance(path, Destination):
            place.check_unbegun(force=force)
        check_file(place, force)
        contents = write_dataset(data, place.fresh() / place.path.name)
        place.publish((place.path.name,) if force else ())
    return contents


def write_dataset(data: Dataset | Parts, path: Path) -> Contents:
    """Writes a dataset to a file that nobody reads before it is complete."""
    return _WRITERS[path.suffix]([data] if isinstance(data, Dataset) else data, path)


def load_dataset(path: str | Path) -> Dataset:
    """Reads a `.npz` or `.parquet` file that `save_dataset` has written."""
    path = Path(path)
    readers = {".npz": _read_npz, ".parquet": _read_parquet}
    if path.suffix not in readers:
        raise ValueError(f"{path} is neither an .npz nor a .parquet file; load a Minari dataset with from_minari")
    if not path.exists():
        raise ValueError(f"there is no file {path}")
    _check_package(path)
    with reading(f"{path} is not a dataset that can be read", path):
        return checked(readers[path.suffix](path))


def check_file(place: Destination, force: bool) -> None:
    """Raises ValueError if a dataset cannot be written to the file; call it before collecting the dataset."""
    if place.path.suffix not in _WRITERS:
        raise ValueError(f"a dataset's file ends with {', '.join(_WRITERS)}, unlike {place.path.name}")
    place.check_new(force=force)
    _check_package(place.path)


def _check_package(path: Path) -> None:
    if path.suffix != ".npz":
        optional_package("pyarrow" if path.suffix == ".parquet" else "h5py", EXTRA)


def _write_npz(parts: Parts, path: Path) -> Contents:
    """Writes each column to a temporary file, and packs the files when the number of episodes is known."""
    contents = Contents()
    with contextlib.ExitStack() as stack:
        files: dict[str, Any] = {}
        for part in contents.counting(parts):
            files = files or {name: stack.enter_context(tempfile.TemporaryFile(dir=path.parent)) for name in part.columns}
            for name, file in files.items():
                file.write(np.ascontiguousarray(part.columns[name]).data)
        last = contents.latest
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for name, file in files.items():
                values = last.columns[name]
                shape = (contents.num_episodes, *values.shape[1:])
                header = {"descr": np.lib.format.dtype_to_descr(values.dtype), "fortran_order": False, "shape": shape}
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array_header_2_0(entry, header)
                    file.seek(0)
                    copyfileobj(file, entry, 2**20)
            with archive.open(f"{KEY}.npy", "w") as entry:
                np.lib.format.write_array(entry, np.array(to_json(contents)), allow_pickle=False)
    return contents


def _read_npz(path: Path) -> Dataset:
    arrays = read_arrays(path)
    return from_columns(arrays, from_json(str(arrays[KEY])))


def _write_parquet(parts: Parts, path: Path) -> Contents:
    """Writes one row for each step, with the observations before and after it."""
    pyarrow, parquet = optional_package("pyarrow", EXTRA), optional_package("pyarrow.parquet", EXTRA)
    contents = Contents()
    writer: Any = None
    try:
        for part in contents.counting(parts):
            columns = _parquet_columns(part, contents.num_episodes - len(part))
            table = pyarrow.table({name: _parquet_column(pyarrow, values) for name, values in columns.items()})
            if writer is None:
                # Readers look in the metadata of the schema, which is written before the size is known.
                schema = table.schema.with_metadata({KEY: source_to_json(contents.source)})
                writer = parquet.ParquetWriter(path, schema, compression="zstd")
            writer.write_table(table.cast(writer.schema))
        size = json.dumps(size_of(contents))  # raises ValueError if there was no part, and so no writer
        writer.add_key_value_metadata({_SIZE: size})
    finally:
        if writer is not None:
            writer.close()
    return contents


def _parquet_columns(dataset: Dataset, first_episode: int) -> dict[str, np.ndarray]:
    steps, is_step = dataset.steps(), dataset.is_step
    times = np.arange(dataset.actions.shape[1], dtype=np.int32)
    is_last = times == dataset.lengths[:, None] - 1
    episodes = np.arange(first_episode, first_episode + len(dataset))

    def each(column: np.ndarray) -> np.ndarray:
        return np.broadcast_to(column, is_step.shape)[is_step]

    return {
        "episode": each(episodes[:, None]),
        "agent": each(dataset.agents[:, None]),
        **({} if dataset.seeds is None else {"seed": each(dataset.seeds[:, None])}),
        "time": each(times),
        "observation": steps.observations,
        "action": steps.actions,
        "reward": steps.rewards,
        "next_observation": steps.next_observations,
        **{f"{_INFO}{name}": info[:, :-1][is_step] for name, info in dataset.infos.items()},
        **{f"{_NEXT_INFO}{name}": info[:, 1:][is_step] for name, info in dataset.infos.items()},
        "terminated": each(is_last & dataset.terminated[:, None]),
        "truncated": each(is_last & dataset.truncated[:, None]),
    }


def _parquet_column(pyarrow: Any, values: np.ndarray) -> Any:
    if values.ndim == 1:
        return pyarrow.array(values)
    return pyarrow.FixedSizeListArray.from_arrays(values.reshape(-1), values.shape[1])


def _read_parquet(path: Path) -> Dataset:
    columns, metadata = read_columns(path, _PARQUET, "parquet", is_optional=_FURTHER.fullmatch)
    size = metadata.get(_SIZE.encode())
    source = from_json(metadata[KEY.encode()].decode(), None if size is None else size.decode())
    starts = np.diff(columns["episode"], prepend=-1)
    if not len(starts) or not np.isin(starts, (0, 1)).all() or starts[0] != 1:
        raise ValueError("its episodes must be numbered 0, 1, 2 and so on, and are not")
    lengths = np.bincount(columns["episode"]).astype(np.int32)
    row_size = sum(column.nbytes for column in columns.values()) // len(starts)
    spend(len(lengths) * (int(lengths.max()) + 1) * row_size)  # as arrays [episode, time]
    last = np.cumsum(lengths) - 1
    is_step = np.arange(lengths.max()) < lengths[:, None]

    def of_steps(name: str) -> np.ndarray:
        array = np.zeros((*is_step.shape, *columns[name].shape[1:]), columns[name].dtype)
        array[is_step] = columns[name]
        return array

    def of_observations(name: str) -> np.ndarray:
        first = columns[name][last - lengths + 1]
        return np.concatenate([first[:, None], of_steps(f"next_{name}")], axis=1)

    return Dataset(
        of_observations("observation"),
        of_steps("action"),
        of_steps("reward"),
        lengths,
        columns["terminated"][last],
        columns["truncated"][last],
        columns["agent"][last],
        source,
        columns["seed"][last] if "seed" in columns else None,
        {name.removeprefix(_INFO): of_observations(name) for name in columns if name.startswith(_INFO)},
    )


def to_d3rlpy(dataset: Dataset, *, one_hot: bool = True) -> Any:
    """A dataset as d3rlpy's `MDPDataset`.

    Args:
        one_hot: turn numbered observations into one-hot vectors, from which networks can learn.
    """
    d3rlpy = optional_package("d3rlpy", "--no-deps d3rlpy, and what docs/datasets.md lists (alone, it replaces Gymnasium)")
    columns = d3rlpy_columns(dataset)
    if not dataset.has_vectors:
        numbers = columns["observations"]
        columns["observations"] = (
            _one_hot(numbers, dataset.source.num_observations) if one_hot else numbers[:, None].astype(np.float32)
        )
    actions, kinds = dataset.source.actions, d3rlpy.constants.ActionSpace
    kind, size = (kinds.DISCRETE, actions) if isinstance(actions, int) else (kinds.CONTINUOUS, actions.size)
    return d3rlpy.dataset.MDPDataset(**columns, action_space=kind, action_size=size)


def d3rlpy_columns(dataset: Dataset) -> dict[str, Shaped[np.ndarray, "row *feature"]]:
    """The columns of an `MDPDataset`, with numbered observations as numbers.

    d3rlpy stores no observation after the last action, and needs none if the world has ended the episode. In a truncated
    episode the last observation is a row of its own, with an unused action and reward; otherwise the last step would be lost.
    """
    has_own_row = ~dataset.terminated
    num_rows = dataset.lengths + has_own_row
    is_row = np.arange(dataset.observations.shape[1]) < num_rows[:, None]
    is_last = np.arange(dataset.observations.shape[1]) == num_rows[:, None] - 1

    return {
        "observations": dataset.observations[is_row],
        "actions": padded(dataset.actions, 1)[is_row],
        "rewards": padded(dataset.rewards, 1)[is_row].astype(np.float32),
        "terminals": (is_last & dataset.terminated[:, None])[is_row].astype(np.float32),
        "timeouts": (is_last & has_own_row[:, None])[is_row].astype(np.float32),
    }


def _one_hot(observations: Int[np.ndarray, " row"], size: int) -> Float[np.ndarray, "row feature"]:
    vectors = np.zeros((len(observations), size), np.float32)
    vectors[np.arange(len(observations)), observations] = 1
    return vectors


def _write_d3rlpy(parts: Parts, path: Path) -> Contents:
    """Writes the columns of an `MDPDataset` to one HDF5 file, in the layout of d3rlpy 1."""
    h5py = optional_package("h5py", EXTRA)
    contents = Contents()
    with h5py.File(path, "w") as file:

        def append(name: str, values: np.ndarray) -> None:
            if name not in file:
                shape = (0, *values.shape[1:])
                file.create_dataset(
                    name, shape, values.dtype, chunks=True, maxshape=(None, *shape[1:]), compression="gzip", compression_opts=1
                )
            file[name].resize(len(file[name]) + len(values), axis=0)
            file[name][-len(values) :] = values

        for part in contents.counting(parts):
            columns = d3rlpy_columns(part)
            columns["episode_terminals"] = columns["terminals"] + columns["timeouts"]  # d3rlpy 1 reads this column
            for name, values in columns.items():
                if name == "observations" and not part.has_vectors:
                    size = part.source.num_observations
                    at_once = max(1, _MOST_NUMBERS // size)
                    for first in range(0, len(values), at_once):
                        append(name, _one_hot(values[first : first + at_once], size))
                else:
                    append(name, values.reshape(len(values), -1) if name in ("actions", "rewards") else values)
        file.create_dataset(KEY, data=to_json(contents))
    return contents


_WRITERS: dict[str, Writer] = {".npz": _write_npz, ".parquet": _write_parquet, ".h5": _write_d3rlpy}
