"""What a training records while it goes on: a table that grows, in memory and on disk."""

import csv
import io
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int

from farflung.config.reading import file_size
from farflung.runs.files import append
from farflung.training.metrics import Metrics


class MetricsTable:
    """What a training has recorded: the latest in memory, all that came before in a file that grows, if there is one."""

    def __init__(self, seeds: Sequence[int], path: Path | None = None, num_bytes: int = 0, checksum: int = 0) -> None:
        """
        Args:
            num_bytes: of the file that count; what comes after them is cut off.
            checksum: of these, by CRC-32.
        """
        self._seeds, self._path, self.num_bytes, self.checksum = tuple(seeds), path, num_bytes, checksum
        self._latest: list[tuple[np.ndarray, np.ndarray, Metrics]] = []
        self.shown: tuple[float, float] | tuple[None, None] = (None, None)
        """The normalised entropy and the support as last added, averaged over the seeds."""

    def __bool__(self) -> bool:
        return bool(self._latest) or self.num_bytes > 0

    def add(self, updates: Int[np.ndarray, " record"], steps: Int[np.ndarray, " record"], metrics: Metrics) -> None:
        if len(updates):
            self._latest.append((updates, steps, metrics))
            self.shown = (float(np.mean(metrics.normalized_entropy[:, -1])), float(np.mean(metrics.support[:, -1])))

    def flush(self) -> None:
        """Writes what is in memory to the file; if that fails, it stays in memory."""
        if self._path is None or not self._latest:
            return
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if self.num_bytes == 0:
            writer.writerow(["seed", "update", "steps", *self._latest[0][2].columns])
        for updates, steps, metrics in self._latest:
            table = np.stack(list(metrics.columns.values()), axis=-1)
            for record, (update, taken) in enumerate(zip(updates.tolist(), steps.tolist(), strict=True)):
                rows = zip(self._seeds, table[:, record].tolist(), strict=True)
                writer.writerows([seed, update, taken, *values] for seed, values in rows)
        added = text.getvalue().encode()
        append(self._path, added, self.num_bytes)
        self.num_bytes, self.checksum = self.num_bytes + len(added), zlib.crc32(added, self.checksum)
        self._latest.clear()

    def table(self) -> tuple[Int[np.ndarray, " record"], Int[np.ndarray, " record"], Metrics]:
        """The updates that were recorded, the steps that a seed's team had taken by then, and the metrics [seed, record]."""
        parts = [] if self.num_bytes == 0 else [self._read()]
        updates, steps, metrics = zip(*parts, *self._latest, strict=True)
        return np.concatenate(updates), np.concatenate(steps), Metrics.joined(metrics)

    def _read(self) -> tuple[np.ndarray, np.ndarray, Metrics]:
        assert self._path is not None
        file_size(self._path)  # raises ValueError if it is no file
        with self._path.open("rb") as file:
            content = file.read(self.num_bytes)
        if len(content) < self.num_bytes or zlib.crc32(content) != self.checksum:
            raise ValueError(f"{self._path} is damaged")
        names, *lines = content.decode().splitlines()
        table = np.loadtxt(lines, delimiter=",", ndmin=2).reshape(-1, len(self._seeds), names.count(",") + 1)
        columns = np.moveaxis(table[..., 3:], -1, 0).astype(np.float32)
        return table[:, 0, 1].astype(np.int64), table[:, 0, 2].astype(np.int64), Metrics(*columns.transpose(0, 2, 1))
