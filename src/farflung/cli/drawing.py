"""Processes that draw figures in parallel, started early so that they are ready in time."""

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
    """A pool of processes, or None if there are too few cores."""
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles interrupts
    os.environ["JAX_PLATFORMS"] = "cpu"
    import farflung.studies.reproduce.report  # noqa: F401
