"""What follows a training, and how it gets to know of it."""

import contextlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from farflung.config import Explore
from farflung.training.metrics import Metrics

Finals = Mapping[int, Mapping[str, float]]
"""What each seed ended with, by name; empty if the training came to nothing."""


class Record(NamedTuple):
    """What was measured of one seed's team at one update."""

    seed: int
    update: int
    steps: int
    """The environment steps of the seed's team so far."""
    metrics: Mapping[str, float]


@runtime_checkable
class Logger(Protocol):
    """Follows one training: `start` comes first, then `log` a few times a second with what is new, and `close` always last."""

    def start(self, config: Explore) -> None: ...
    def log(self, records: Sequence[Record]) -> None: ...
    def close(self, finals: Finals) -> None: ...


class LoggerWarning(UserWarning):
    """A logger has failed, and the training goes on without it."""


class LoggerGroup:
    """Loggers that follow one training, which is not lost if one of them fails."""

    def __init__(self, config: Explore) -> None:
        self.finals: Finals = {}
        self._config = config
        self._loggers: list[Logger] = []

    def add(self, logger: Logger) -> None:
        """Starts a logger; a ValueError if that fails, as the training has not begun yet."""
        self._loggers.append(logger)  # from now on it is closed, even if its start is interrupted
        try:
            logger.start(self._config)
        except Exception as error:
            self._drop(logger)
            raise ValueError(f"cannot log to {type(logger).__name__}: {_gist(error)}") from None

    def log(self, updates: Int[np.ndarray, " record"], steps: Int[np.ndarray, " record"], metrics: Metrics) -> None:
        """Hands on what was recorded at these updates, after so many environment steps."""
        records = self._records(updates, steps, metrics) if self._loggers else []
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
            except (Exception, KeyboardInterrupt) as error:  # impatience with a slow network must not lose the run either
                _warn(logger, error)

    def _drop(self, logger: Logger) -> None:
        self._loggers.remove(logger)
        with contextlib.suppress(Exception):
            logger.close({})

    def _records(
        self, updates: Int[np.ndarray, " record"], steps: Int[np.ndarray, " record"], metrics: Metrics
    ) -> list[Record]:
        columns = metrics.columns
        table = np.stack([np.asarray(values) for values in columns.values()], axis=-1).tolist()  # [seed, record, metric]
        return [
            Record(seed, update, num_steps, dict(zip(columns, table[row][column], strict=True)))
            for column, (update, num_steps) in enumerate(zip(updates.tolist(), steps.tolist(), strict=True))
            for row, seed in enumerate(self._config.seeds)
        ]


def finals_of(summary: Mapping[str, Any]) -> Finals:
    """What the seeds of a run ended with."""
    columns = {**summary["final"], "percent_of_ceiling": summary["percent_of_ceiling"]}
    return {seed: {name: values[row] for name, values in columns.items()} for row, seed in enumerate(summary["seeds"])}


def hyperparameters(config: Explore, seed: int) -> dict[str, Any]:
    """The settings of one seed's training."""
    settings = config.as_json()
    del settings["seeds"]
    return settings | {"seed": seed}


def final(values: Mapping[str, float]) -> dict[str, float]:
    """Final values by names that keep them apart from those of an update."""
    return {f"final/{name}": value for name, value in values.items()}


def _warn(logger: Logger, error: BaseException) -> None:
    message = f"{type(logger).__name__} logs no more: {_gist(error)}"
    warnings.warn(message, LoggerWarning, stacklevel=2)


def _gist(error: BaseException) -> str:
    """An error in one line."""
    if isinstance(error, FileExistsError):
        return f"{error.filename} already exists: choose another directory"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.strerror}: {error.filename}"
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__
