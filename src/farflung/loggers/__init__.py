"""Loggers follow a training while it runs: TensorBoard, a CSV file, Weights & Biases, trackio, or a class of your own."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from farflung.config import LOGGERS
from farflung.config.checks import check_name
from farflung.loggers.local import CSV, TensorBoard
from farflung.loggers.logger import Logger, LoggerWarning, Record
from farflung.loggers.trackers import Trackio, Wandb
from farflung.runs.files import new_folder

__all__ = ["CSV", "Logger", "LoggerWarning", "Record", "TensorBoard", "Trackio", "Wandb", "resolved"]


@contextlib.contextmanager
def resolved(loggers: Sequence[Logger | str], parent: Path, name: str) -> Iterator[list[Logger]]:
    """The loggers themselves; those given by name write to one new folder in `parent`."""
    for logger in loggers:
        if not isinstance(logger, Logger):
            check_name("logger", logger, LOGGERS)
    if not any(isinstance(logger, str) for logger in loggers):
        yield [logger for logger in loggers if not isinstance(logger, str)]
        return
    with new_folder(parent, name) as folder:
        known: dict[str, Logger] = {
            "tensorboard": TensorBoard(folder),
            "csv": CSV(folder),
            "wandb": Wandb(group=folder.name, directory=folder),
            "trackio": Trackio(group=folder.name),
        }
        yield [known[logger] if isinstance(logger, str) else logger for logger in dict.fromkeys(loggers)]
