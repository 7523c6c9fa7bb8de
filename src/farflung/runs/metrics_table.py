"""The metrics table of a training: one row per seed and recorded update, in memory and as CSV."""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from farflung.config.reading import MOST_BYTES_OF_TABLE, file_size, read_text, spend
from farflung.runs.files import append, to_csv
from farflung.training.metrics import Metrics

_TIMES_PARSED = 10
"""The most memory for the lines and the numbers of a table, as a multiple of its text."""
_LONGEST_HEADER = 1000

Columns = tuple[Int[np.ndarray, " record"], Int[np.ndarray, " record"], Metrics]
"""The recorded updates, the environment steps of one seed's team up to each, and the metrics [seed, record]."""


def column_names(metrics: Iterable[str]) -> list[str]:
    """The first row of a metrics table."""
    return ["seed", "update", "steps", *metrics]


def table_rows(
    seeds: Sequence[int],
    updates: Int[np.ndarray, " record"],
    steps: Int[np.ndarray, " record"],
    metrics: Metrics,
    *,
    by_seed: bool = False,
) -> Iterator[list[Any]]:
    """The rows of a metrics table: update by update, or seed by seed."""
    values = np.stack([np.asarray(column) for column in metrics.columns.values()], axis=-1).tolist()  # [seed, record, metric]
    counts = list(zip(updates.tolist(), steps.tolist(), strict=True))
    rows, records = range(len(seeds)), range(len(counts))
    order = product(rows, records) if by_seed else ((row, record) for record, row in product(records, rows))
    return ([seeds[row], *counts[record], *values[row][record]] for row, record in order)


def write_table(path: Path, seeds: Sequence[int], updates: np.ndarray, steps: np.ndarray, metrics: Metrics) -> None:
    """Writes the metrics table of a finished run, seed by seed."""
    rows = table_rows(seeds, updates, steps, metrics, by_seed=True)
    path.write_bytes(to_csv([column_names(metrics.columns), *rows], "\r\n").encode())


def read_table(path: Path, seeds: Sequence[int], num_updates: int) -> Columns:
    """Reads the metrics table of a finished run, seed by seed, whose training had `num_updates` at most."""
    return _parse(path.name, read_text(path, MOST_BYTES_OF_TABLE), seeds, num_updates, by_seed=True)


def _parse(name: str, text: str, seeds: Sequence[int], num_updates: int | None, *, by_seed: bool) -> Columns:
    spend(_TIMES_PARSED * len(text))
    names, *lines = text.splitlines() or [""]
    found = names.split(",")
    measured = [metric for metric in Metrics._fields if metric in found or metric not in Metrics._field_defaults]
    if found != column_names(measured):
        raise ValueError(f"{name} has other columns than {', '.join(column_names(Metrics._fields))}")
    table = np.loadtxt(lines, delimiter=",", ndmin=2) if lines else np.zeros((0, 0))
    num_columns = names.count(",") + 1
    if not lines or table.shape[1] != num_columns or len(table) % len(seeds):
        raise ValueError(f"{name} is not complete")
    # Either order becomes [seed, record, column].
    table = table.reshape(len(seeds), -1, num_columns) if by_seed else table.reshape(-1, len(seeds), num_columns).swapaxes(0, 1)
    counts = table[0, :, 1:3]
    with np.errstate(invalid="ignore", over="ignore"):
        are_counts = ((counts >= 0) & (counts < 2.0**63) & (counts % 1 == 0)).all()
        values = np.moveaxis(table[..., 3:], -1, 0).astype(np.float32)
    is_in_order = are_counts and (np.diff(counts[:, 0], prepend=0) >= 1).all()
    is_too_long = num_updates is not None and counts[-1, 0] > num_updates
    is_of_others = (table[..., 0] != np.array(seeds)[:, None]).any() or (table[..., 1] != counts[:, 0]).any()
    if not is_in_order or is_too_long or is_of_others:
        raise ValueError(f"{name} has other seeds or updates than its training")
    updates, steps = counts.T.astype(np.int64)
    return updates, steps, Metrics(**dict(zip(measured, values, strict=True)))


class MetricsTable:
    """The metrics table of a training in progress: new rows in memory, older rows in a growing CSV file if there is a path."""

    def __init__(self, seeds: Sequence[int], path: Path | None = None, num_bytes: int = 0, checksum: int = 0) -> None:
        """Of the file, only `num_bytes` with this CRC-32 belong to the table; the next `flush` cuts off all others."""
        self._seeds, self._path, self.num_bytes, self.checksum = tuple(seeds), path, num_bytes, checksum
        self._latest: list[Columns] = []
        self.shown: tuple[float, float] | tuple[None, None] = (None, None)
        """The latest normalised entropy and support, averaged over the seeds."""

    def __bool__(self) -> bool:
        return bool(self._latest) or self.num_bytes > 0

    def add(self, updates: Int[np.ndarray, " record"], steps: Int[np.ndarray, " record"], metrics: Metrics) -> None:
        if len(updates):
            self._latest.append((updates, steps, metrics))
            self.shown = (float(np.mean(metrics.normalized_entropy[:, -1])), float(np.mean(metrics.support[:, -1])))

    def flush(self) -> None:
        """Appends the rows in memory to the file; if that fails, they stay in memory."""
        if self._path is None or not self._latest:
            return
        measured = list(self._latest[0][2].columns)
        names = [column_names(measured)]
        if self.num_bytes > 0:  # written by an older version, the file may lack metrics that there are now
            names, measured = [], self._header()
        latest = [(updates, steps, metrics.only(measured)) for updates, steps, metrics in self._latest]
        rows = [row for columns in latest for row in table_rows(self._seeds, *columns)]
        added = to_csv([*names, *rows]).encode()
        append(self._path, added, self.num_bytes)
        self.num_bytes, self.checksum = self.num_bytes + len(added), zlib.crc32(added, self.checksum)
        self._latest.clear()

    def table(self, num_updates: int | None = None) -> Columns:
        """The whole table; raises ValueError if its file is damaged or has a record after `num_updates`."""
        parts = [] if self.num_bytes == 0 else [self._read(num_updates)]
        updates, steps, metrics = zip(*parts, *self._latest, strict=True)
        return np.concatenate(updates), np.concatenate(steps), Metrics.joined(metrics)

    def _header(self) -> list[str]:
        """The metrics in the file."""
        assert self._path is not None
        with self._path.open(encoding="utf-8") as file:
            found = file.readline(_LONGEST_HEADER).rstrip("\r\n").split(",")
        return [name for name in Metrics._fields if name in found]

    def _read(self, num_updates: int | None) -> Columns:
        assert self._path is not None
        content = b""
        if file_size(self._path) >= self.num_bytes:
            spend(self.num_bytes)
            with self._path.open("rb") as file:
                content = file.read(self.num_bytes)
        if not content or zlib.crc32(content) != self.checksum:
            raise ValueError(f"{self._path} is damaged")
        return _parse(self._path.name, content.decode(), self._seeds, num_updates, by_seed=False)
