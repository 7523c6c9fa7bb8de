"""Jobs, and the loop that launches them, tells of failures and tries again."""

import importlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from farflung.config import Launching
from farflung.worlds.hosted.modules import find_here

Failures = dict[str, str]
"""Why runs failed, by their names."""


@dataclass(frozen=True)
class Job:
    """Work for one process, whose results are run directories: a function, and its arguments as plain objects."""

    function: str
    """MODULE:NAME; imported where the job runs. It takes the arguments, and `on_progress`, and returns failures."""
    runs: tuple[str, ...]
    """The names of the runs that the job trains."""
    arguments: Mapping[str, Any]
    modules: tuple[str, ...] = ()
    """Names of a user's own parts, whose modules may lie in the current folder."""
    folder: str = field(default_factory=lambda: str(Path.cwd()))
    """The current folder, which relative paths begin from; all machines must see it."""

    def __call__(self, on_progress: Callable[..., None] | None = None) -> Failures:
        if str(Path.cwd()) != self.folder:
            if not Path(self.folder).is_dir():
                raise ValueError(f"{self.folder} is not on this machine: sweep in a directory that all machines see")
            os.chdir(self.folder)
        find_here(*self.modules)
        module, _, name = self.function.partition(":")
        with warnings.catch_warnings():
            return dict(getattr(importlib.import_module(module), name)(**self.arguments, on_progress=on_progress))

    def only(self, names: Sequence[str]) -> "Job":
        """The job for some of its runs; the others are finished, and are not trained again anyway."""
        return replace(self, runs=tuple(names))


@runtime_checkable
class Launcher(Protocol):
    """Runs jobs; a new kind is a module beside this one, and a line in `made`."""

    def run(self, jobs: Sequence[Job], on_wait: Callable[[], None]) -> Iterator[tuple[Job, Failures]]:
        """Yields each job when it has ended, with the failures of its runs.

        Args:
            on_wait: called every second or so, between jobs.
        """


def made(options: Launching, logs: Path) -> Launcher:
    """The launcher of a name.

    Args:
        logs: a folder for what a launcher writes about its jobs, which all machines see.
    """
    if options.launcher == "ray":
        from farflung.scale.on_ray import OnRay

        return OnRay(options)
    if options.launcher == "slurm":
        from farflung.scale.on_slurm import OnSlurm

        return OnSlurm(options, logs)
    raise ValueError("jobs of the launcher local run in this process")


def environment_of(options: Launching) -> dict[str, str]:
    """The environment variables of a job, set before it imports JAX."""
    own = {"JAX_NUM_CPU_DEVICES": str(options.cpus), "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "")}
    if 0 < options.gpus < 1:  # otherwise, the first job on a GPU would take most of its memory
        own["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    return own


def launch(
    launcher: Launcher,
    jobs: Sequence[Job],
    *,
    retries: int,
    on_wait: Callable[[], None] = lambda: None,
    on_note: Callable[[str], None] = lambda _: None,
) -> Failures:
    """Runs all jobs, and those that fail again; returns the failures that remain."""
    failures: Failures = {}
    for attempt in range(retries + 1):
        failures, again = {}, []
        for job, failed in launcher.run(jobs, on_wait):
            failures |= failed
            if failed:
                again.append(job.only(list(failed)))
        if not again:
            break
        jobs = again
        for name, reason in failures.items() if attempt < retries else ():
            on_note(f"{name} failed: {reason}; it is tried again")
    return failures
