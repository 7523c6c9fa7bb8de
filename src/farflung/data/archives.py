"""Datasets as single files: NumPy's npz, Parquet, and the HDF5 of d3rlpy's MDPDataset."""

import contextlib
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from farflung.config.checks import optional_package
from farflung.config.reading import check_unpacked, file_size, one_line_errors, read_arrays
from farflung.data.d3rlpy import write_d3rlpy
from farflung.data.episodes import Contents, Dataset, checked
from farflung.data.minari_reading import column_of, item_size
from farflung.data.sources import from_json, to_json
from farflung.runs.files import sync, umask

_EXTRA = "'farflung[data]'"
_KEY = "farflung"
_NPZ = ("observations", "actions", "rewards", "lengths", "terminated", "truncated", "agents")
_PARQUET = ("episode", "agent", "observation", "action", "reward", "next_observation", "terminated", "truncated")

Parts = Iterable[Dataset]
Writer = Callable[[Parts, Path], Contents]


def save_dataset(data: Dataset | Parts, path: str | Path, *, force: bool = False, staging: Path | None = None) -> Contents:
    """Writes a dataset, or the parts of one as they come, in the format that the file's name asks for.

    Args:
        path: ends with `.npz`, `.parquet`, or `.h5` for d3rlpy.
        force: replace a file that is already there.
        staging: a folder on the same disk to write in until the file is complete; by default a new one beside it.
    """
    path = Path(path)
    check_file(path, force)
    write = _WRITERS[path.suffix]
    with _appearing(path, staging) as new:
        return write([data] if isinstance(data, Dataset) else data, new)


def load_dataset(path: str | Path) -> Dataset:
    """Reads back a `.npz` or `.parquet` file that `save_dataset` has written."""
    path = Path(path)
    readers = {".npz": _read_npz, ".parquet": _read_parquet}
    if path.suffix not in readers:
        raise ValueError(f"{path} is neither an .npz nor a .parquet file")
    if not path.exists():
        raise ValueError(f"there is no file {path}")
    _check_packages(path)
    with one_line_errors(f"{path} is not a dataset that can be read"):
        return checked(readers[path.suffix](path))


def check_file(path: Path, force: bool) -> None:
    """Raises ValueError unless a dataset can be written to the file: better before the work than after."""
    if path.suffix not in _WRITERS:
        raise ValueError(f"a dataset's file ends with {', '.join(_WRITERS)}, unlike {path.name}")
    if path.is_dir():
        raise ValueError(f"{path} is a directory, not a file")
    if path.exists() and not force:
        raise ValueError(f"{path} exists already: choose another file, or replace it with --force")
    _check_packages(path)


def _check_packages(path: Path) -> None:
    if path.suffix != ".npz":
        optional_package("pyarrow" if path.suffix == ".parquet" else "h5py", _EXTRA)


def _write_npz(parts: Parts, path: Path) -> Contents:
    """Writes the columns to files of their own while they come in, and packs these when their lengths are known."""
    contents = Contents()
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".farflung-") as folder, contextlib.ExitStack() as stack:
        files = {name: stack.enter_context(Path(folder, name).open("w+b")) for name in _NPZ}
        for part in contents.counting(parts):
            for name, file in files.items():
                file.write(np.ascontiguousarray(getattr(part, name)).data)
        last = contents.latest
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for name, file in files.items():
                values = getattr(last, name)
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    _pack(file, entry, values.dtype, (contents.num_episodes, *values.shape[1:]))
            with archive.open(f"{_KEY}.npy", "w") as entry:
                np.lib.format.write_array(entry, np.array(to_json(contents)), allow_pickle=False)
    return contents


def _pack(file: IO[bytes], entry: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_2_0(entry, header)
    file.seek(0)
    while block := file.read(2**20):
        entry.write(block)


def _read_npz(path: Path) -> Dataset:
    arrays = read_arrays(path)
    return Dataset(**{name: arrays[name] for name in _NPZ}, source=from_json(str(arrays[_KEY])))


def _write_parquet(parts: Parts, path: Path) -> Contents:
    """One row for each step, with the observation before and after it."""
    pyarrow, parquet = optional_package("pyarrow", _EXTRA), optional_package("pyarrow.parquet", _EXTRA)
    contents = Contents()
    writer: Any = None
    try:
        for part in contents.counting(parts):
            columns = _parquet_columns(part, contents.num_episodes - len(part))
            table = pyarrow.table({name: _parquet_column(pyarrow, values) for name, values in columns.items()})
            writer = writer or parquet.ParquetWriter(path, table.schema, compression="zstd")
            writer.write_table(table)
        description = to_json(contents)
        writer.add_key_value_metadata({_KEY: description})
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
        "time": each(times),
        "observation": steps.observations,
        "action": steps.actions,
        "reward": steps.rewards,
        "next_observation": steps.next_observations,
        "terminated": each(is_last & dataset.terminated[:, None]),
        "truncated": each(is_last & dataset.truncated[:, None]),
    }


def _parquet_column(pyarrow: Any, values: np.ndarray) -> Any:
    if values.ndim == 1:
        return pyarrow.array(values)
    return pyarrow.FixedSizeListArray.from_arrays(values.reshape(-1), values.shape[1])


def _read_parquet(path: Path) -> Dataset:
    size = file_size(path)
    parquet = optional_package("pyarrow.parquet", _EXTRA)
    with parquet.ParquetFile(path) as file:
        source = from_json((file.metadata.metadata or {})[_KEY.encode()].decode())
        row_size = sum(item_size(file.schema_arrow.field(name).type) for name in _PARQUET)
        check_unpacked(file.metadata.num_rows * row_size, size)
        table = file.read(columns=list(_PARQUET))
    columns = {name: column_of(table[name]) for name in _PARQUET}
    starts = np.diff(columns["episode"], prepend=-1)
    if not len(starts) or not np.isin(starts, (0, 1)).all() or starts[0] != 1:
        raise ValueError("its episodes are not numbered from 0 on, one after the other")
    lengths = np.bincount(columns["episode"]).astype(np.int32)
    check_unpacked(len(lengths) * (int(lengths.max()) + 1) * row_size, size)  # as arrays [episode, time]
    last = np.cumsum(lengths) - 1
    is_step = np.arange(lengths.max()) < lengths[:, None]

    def by_episode(name: str, first_column: int = 0) -> np.ndarray:
        values = columns[name]
        array = np.zeros((len(lengths), lengths.max() + first_column, *values.shape[1:]), values.dtype)
        array[:, first_column:][is_step] = values
        return array

    observations = by_episode("next_observation", 1)
    observations[:, 0] = columns["observation"][last - lengths + 1]
    return Dataset(
        observations,
        by_episode("action"),
        by_episode("reward"),
        lengths,
        columns["terminated"][last],
        columns["truncated"][last],
        columns["agent"][last],
        source,
    )


_WRITERS: dict[str, Writer] = {".npz": _write_npz, ".parquet": _write_parquet, ".h5": write_d3rlpy}


@contextlib.contextmanager
def _appearing(path: Path, staging: Path | None) -> Iterator[Path]:
    """A file to write that appears under its name only when it is complete."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=staging or path.parent, prefix=f".{path.name}-") as folder:
            new = Path(folder, path.name)
            yield new
            new.chmod(0o666 & ~umask())
            sync(new)
            new.replace(path)
    except OSError as error:
        raise ValueError(f"cannot write to {path}: {error.strerror or error}") from None
