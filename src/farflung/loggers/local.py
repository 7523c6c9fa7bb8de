"""Loggers that write files: event files for TensorBoard, and CSV tables."""

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from farflung.config import Explore
from farflung.loggers.logger import Finals, Record, final, hyperparameters
from farflung.runs.files import to_csv, to_json
from farflung.runs.metrics_table import column_names


class TensorBoard:
    """Writes event files, in one folder per seed; TensorBoard's HParams page shows hyperparameters and final values."""

    def __init__(self, directory: str | Path) -> None:
        self._shown = Path(directory)
        self._directory = self._shown.absolute()  # an environment may change the current directory
        self._writers: dict[int, Any] = {}
        self._last_step = 0
        self._end: Any = None

    def __str__(self) -> str:
        return f"tensorboard --logdir {self._shown}"

    def start(self, config: Explore) -> None:
        # Not a SummaryWriter: it writes from a thread, and if a full disk ends that thread, the training waits for it forever.
        from tensorboardX.event_file_writer import EventsWriter

        self._config = config
        for seed in config.seeds:
            folder = self._directory / f"seed-{seed}"
            folder.mkdir(parents=True)
            self._writers[seed] = EventsWriter(str(folder / "events"))

    def log(self, records: Sequence[Record]) -> None:
        if self._end is None:
            self._announce(records[0].metrics)
        for record in records:
            values = {f"team/{name}": value for name, value in record.metrics.items()}
            self._write(record.seed, _scalars(values | {"update": record.update}), record.steps)
            self._last_step = record.steps
        for writer in self._writers.values():
            writer.flush()

    def _announce(self, metrics: Iterable[str]) -> None:
        """Declares the hyperparameters and the final values, whose names are known from the first record."""
        from tensorboardX.summary import hparams

        names = [f"final/{name}" for name in (*metrics, "percent_of_ceiling")]
        for seed in self._writers:
            experiment, session, self._end = hparams(hyperparameters(self._config, seed), dict.fromkeys(names))
            self._write(seed, experiment, 0)
            self._write(seed, session, 0)

    def close(self, finals: Finals) -> None:
        for seed, values in finals.items():
            self._write(seed, _scalars(final(values)), self._last_step)
            self._write(seed, self._end, self._last_step)
        while self._writers:
            self._writers.popitem()[1].close()

    def _write(self, seed: int, summary: Any, step: int) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._writers[seed].write_event(Event(wall_time=time.time(), step=step, summary=summary))


class CSV:
    """Writes a folder: `config.json`, `metrics.csv`, which grows during training, and at the end `final.csv`."""

    def __init__(self, directory: str | Path) -> None:
        self._shown = Path(directory)
        self._directory = self._shown.absolute()  # an environment may change the current directory
        self._file: TextIO | None = None
        self._is_empty = True

    def __str__(self) -> str:
        return str(self._shown / "metrics.csv")

    def start(self, config: Explore) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._file = self._new("metrics.csv")
        with self._new("config.json") as file:
            file.write(to_json(config.as_json(), indent=2) + "\n")

    def log(self, records: Sequence[Record]) -> None:
        rows: list[Sequence[object]] = [column_names(records[0].metrics)] if self._is_empty else []
        rows += [[*counts, *metrics.values()] for *counts, metrics in records]
        assert self._file is not None
        self._file.write(to_csv(rows))  # in one piece, so that other readers find whole rows
        self._file.flush()
        self._is_empty = False

    def close(self, finals: Finals) -> None:
        if self._file is not None:
            self._file.close()
        if finals:
            names = list(next(iter(finals.values())))
            with self._new("final.csv") as file:
                file.write(to_csv([["seed", *names], *([seed, *values.values()] for seed, values in finals.items())]))

    def _new(self, name: str) -> TextIO:
        return (self._directory / name).open("x", newline="", encoding="utf-8")


def _scalars(values: Mapping[str, float]) -> Any:
    from tensorboardX.proto.summary_pb2 import Summary

    return Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
