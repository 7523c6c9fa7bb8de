"""Jobs as Ray tasks: with explicit resources, a bounded number in flight, and results in run directories that all nodes see."""

import contextlib
import logging
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from farflung.config import Launching
from farflung.config.checks import num_cores
from farflung.runs import interrupts
from farflung.scale.jobs import Failures, Job, environment_of
from farflung.scale.local import attempted

_FEWEST_IN_FLIGHT = 8
"""A cluster that grows on demand must see some."""
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""No usage statistics are sent, and nothing is printed about GPUs that a task does not ask for."""


class OnRay:
    """Runs jobs on a Ray cluster: the one at an address, the one that this program is connected to, or one of its own."""

    def __init__(self, options: Launching) -> None:
        for name, value in _QUIET.items():
            os.environ.setdefault(name, value)
        try:
            import ray  # noqa: F401
        except ImportError:
            raise ValueError("the launcher ray needs Ray: pip install '.[ray]', in a clone of farflung") from None
        self._options, self._environment = options, environment_of(options)

    def run(self, jobs: Sequence[Job], on_wait: Callable[[], None]) -> Iterator[tuple[Job, Failures]]:
        with connected(self._options.address) as ray:
            options = self._options
            resources = {"num_cpus": options.cpus, "num_gpus": options.gpus}
            # Ray starts a task again whose process or node was lost; the job continues from its checkpoints.
            task = ray.remote(**resources, max_retries=options.retries)(in_environment)
            waiting, running = deque(jobs), dict[Any, Job]()
            try:
                while waiting or running:
                    while waiting and len(running) < self._most_in_flight(ray):
                        job = waiting.popleft()
                        running[task.remote(job, self._environment)] = job
                    ended, _ = ray.wait(list(running), timeout=1)
                    interrupts.check()
                    on_wait()
                    for reference in ended:
                        job = running.pop(reference)
                        try:
                            failures = ray.get(reference)
                        except ray.exceptions.RayError as error:
                            reason = next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)
                            failures = dict.fromkeys(job.runs, reason)
                        yield job, failures
            finally:
                for reference in running:
                    ray.cancel(reference)  # what it has trained since its last checkpoint is lost

    def _most_in_flight(self, ray: Any) -> int:
        if self._options.in_flight is not None:
            return self._options.in_flight
        have = ray.cluster_resources()
        room = [have.get("CPU", 0) // self._options.cpus]
        if self._options.gpus:
            room.append(have.get("GPU", 0) // self._options.gpus)
        return max(_FEWEST_IN_FLIGHT, 2 * int(min(room)))


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Ray, connected to a cluster until the end of the block, unless the program was connected already."""
    import ray

    if ray.is_initialized():
        yield ray
        return
    own: dict[str, Any] = {"num_cpus": num_cores(), "include_dashboard": False} if address is None else {}
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **own)
        if threading.current_thread() is threading.main_thread():  # Ray's own handlers would end the process at once
            for number, handler in handlers.items():
                signal.signal(number, handler)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ValueError(f"cannot connect to Ray at {address or 'this machine'}: {str(error).splitlines()[0]}") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def in_environment(job: Job, environment: Mapping[str, str]) -> Failures:
    """Runs a job in a process of its own."""
    os.environ.update(environment)
    return attempted(job)
