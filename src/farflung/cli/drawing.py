"""Processes that draw figures side by side, started early so that they are ready when there is something to draw."""

import contextlib
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context

from farflung.cli.terminal import num_cores

_FEWEST_CORES = 8
_NUM_PROCESSES = 4


@contextlib.contextmanager
def drawing_processes() -> Iterator[Executor | None]:
    """A pool of processes, or None where there are too few cores for it to pay."""
    if num_cores() < _FEWEST_CORES:
        yield None
        return
    with ProcessPoolExecutor(_NUM_PROCESSES, mp_context=get_context("spawn"), initializer=_prepare) as pool:
        for _ in range(_NUM_PROCESSES):
            pool.submit(os.getpid)
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)


def _prepare() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one that they draw for decides what becomes of an interrupt
    os.environ["JAX_PLATFORMS"] = "cpu"
    import farflung.studies.reproduce.report  # noqa: F401
