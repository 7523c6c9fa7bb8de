"""Jobs as Ray tasks: with explicit resources, a bounded number in flight, and results in run directories that all nodes see."""

import contextlib
import os
import re
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from farflung.config import Launching
from farflung.runs import interrupts
from farflung.scale.jobs import Failures, Job, environment_of
from farflung.scale.local import attempted
from farflung.worlds.hosted.actors import check_ray, connected

_SECONDS_TO_STOP = 10.0
_FEWEST_IN_FLIGHT = 8
"""A cluster that grows on demand must see some."""


class OnRay:
    """Runs jobs on a Ray cluster: the one at an address, the one that this program is connected to, or one of its own."""

    def __init__(self, options: Launching) -> None:
        check_ray()
        self._options, self._environment = options, environment_of(options)

    def run(self, jobs: Sequence[Job], on_wait: Callable[[], None]) -> Iterator[tuple[Job, Failures]]:
        with _connection(self._options.address) as ray:
            options = self._options
            self._check_room(ray)
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
                            failures = dict.fromkeys(job.runs, _reason(error))
                        yield job, failures
            finally:
                for reference in running:
                    ray.cancel(reference)
                if running:  # they write checkpoints before they end
                    ray.wait(list(running), num_returns=len(running), timeout=_SECONDS_TO_STOP)

    def _check_room(self, ray: Any) -> None:
        """Raises ValueError if no node has the resources of a job: Ray would wait for such a node without a word."""
        options = self._options
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(node.get("CPU", 0) >= options.cpus and node.get("GPU", 0) >= options.gpus for node in nodes):
            most = {kind: max((node.get(kind, 0) for node in nodes), default=0) for kind in ("CPU", "GPU")}
            has = f"{most['CPU']:g} CPUs and {most['GPU']:g} GPUs at most"
            told = f"a job needs {options.cpus} CPUs and {options.gpus:g} GPUs, and a node of this Ray cluster has {has}"
            if options.address is None and not os.environ.get("RAY_ADDRESS"):
                raise ValueError(f"{told}: choose other --cpus and --gpus")
            warnings.warn(f"{told}: jobs wait until there is a larger one", RuntimeWarning, stacklevel=2)

    def _most_in_flight(self, ray: Any) -> int:
        if self._options.in_flight is not None:
            return self._options.in_flight
        have = ray.cluster_resources()
        room = [have.get("CPU", 0) // self._options.cpus]
        if self._options.gpus:
            room.append(have.get("GPU", 0) // self._options.gpus)
        return max(_FEWEST_IN_FLIGHT, 2 * int(min(room)))


@contextlib.contextmanager
def _connection(address: str | None) -> Iterator[Any]:
    """Ray, connected until the end of the block, unless the program was connected already."""
    import ray

    was_connected = ray.is_initialized()
    try:
        yield connected(address)
    finally:
        if not was_connected:
            ray.shutdown()


def _reason(error: Exception) -> str:
    """What has happened, in one line: of an error in a job the last line, which names the exception; of Ray's own the first."""
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line).strip() for line in str(error).splitlines()]
    lines = list(filter(None, lines)) or [type(error).__name__]
    return lines[-1] if hasattr(error, "cause") and hasattr(error, "traceback_str") else lines[0]


def in_environment(job: Job, environment: Mapping[str, str]) -> Failures:
    """Runs a job in a process of its own."""
    os.environ.update(environment)
    return attempted(job)
