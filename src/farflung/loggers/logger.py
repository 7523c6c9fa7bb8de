"""The protocol of a logger, and the group of loggers that follows one training."""

import contextlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from farflung.config import Explore
from farflung.runs.metrics_table import table_rows
from farflung.training.metrics import Metrics

Finals = Mapping[int, Mapping[str, float]]
"""The final values of each seed, by name; empty if the training failed."""


class Record(NamedTuple):
    """The metrics of one seed's team at one update."""

    seed: int
    update: int
    steps: int
    """Environment steps of the seed's team so far."""
    metrics: Mapping[str, float]


@runtime_checkable
class Logger(Protocol):
    """Follows one training: `start` is called first, then `log` a few times a second, and `close` at the end."""

    def start(self, config: Explore) -> None: ...
    def log(self, records: Sequence[Record]) -> None: ...
    def close(self, finals: Finals) -> None: ...


class LoggerWarning(UserWarning):
    """A logger has failed; training continues without it."""


class LoggerGroup:
    """The loggers of one training; if one of them fails, the training and the other loggers continue."""

    def __init__(self, config: Explore) -> None:
        self.finals: Finals = {}
        self._config = config
        self._loggers: list[Logger] = []

    def add(self, logger: Logger) -> None:
        """Starts a logger; raises ValueError if that fails, since the training has not started yet."""
        self._loggers.append(logger)  # first, so that it is closed even if an interrupt stops its start
        try:
            logger.start(self._config)
        except Exception as error:
            self._drop(logger)
            raise ValueError(f"cannot log to {type(logger).__name__}: {_one_line(error)}") from None

    def log(self, updates: Int[np.ndarray, " record"], steps: Int[np.ndarray, " record"], metrics: Metrics) -> None:
        """Passes the metrics of these updates to all loggers, as one record per update and seed."""
        if not self._loggers:
            return
        rows = table_rows(self._config.seeds, updates, steps, metrics)
        names = tuple(metrics.columns)
        records = [
            Record(seed, update, num_steps, dict(zip(names, values, strict=True))) for seed, update, num_steps, *values in rows
        ]
        for logger in tuple(self._loggers):
            try:
                logger.log(records)
            except Exception as error:
                self._drop(logger)
                _warn(logger, error)

    def __enter__(self) -> "LoggerGroup":
        return self

    def __exit__(self, *_: object) -> None:
        for logger in self._loggers:
            try:
                logger.close(self.finals)
            except (Exception, KeyboardInterrupt) as error:  # Ctrl-C during a slow upload must not lose the run
                _warn(logger, error)

    def _drop(self, logger: Logger) -> None:
        self._loggers.remove(logger)
        with contextlib.suppress(Exception):
            logger.close({})


def finals_of(summary: Mapping[str, Any]) -> Finals:
    """The final values of each seed, from the summary of a run."""
    columns = {**summary["final"], "percent_of_ceiling": summary["percent_of_ceiling"]}
    return {seed: {name: values[row] for name, values in columns.items()} for row, seed in enumerate(summary["seeds"])}


def hyperparameters(config: Explore, seed: int) -> dict[str, Any]:
    """The settings of one seed, as experiment trackers show them."""
    settings = config.as_json()
    del settings["seeds"]
    return settings | {"seed": seed}


def final(values: Mapping[str, float]) -> dict[str, float]:
    """Final values, under names that no metric of an update has."""
    return {f"final/{name}": value for name, value in values.items()}


def _warn(logger: Logger, error: BaseException) -> None:
    warnings.warn(f"{type(logger).__name__} has stopped logging: {_one_line(error)}", LoggerWarning, stacklevel=2)


def _one_line(error: BaseException) -> str:
    if isinstance(error, FileExistsError):
        return f"{error.filename} already exists: choose another directory"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.strerror}: {error.filename}"
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__
