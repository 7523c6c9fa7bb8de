"""Jobs one after another in this process."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from farflung.scale.jobs import Failures, Job


class Locally:
    """Runs each job in this process, which knows how far it is."""

    def __init__(self, on_progress: Callable[[Job, Any], None]) -> None:
        self._on_progress = on_progress

    def run(self, jobs: Sequence[Job], on_wait: Callable[[], None]) -> Iterator[tuple[Job, Failures]]:
        for job in jobs:
            on_wait()
            yield job, attempted(job, lambda status, job=job: self._on_progress(job, status))


def attempted(job: Job, on_progress: Callable[..., None] | None = None) -> Failures:
    """Runs a job; an error becomes a failure of all its runs."""
    try:
        return job(on_progress)
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        return dict.fromkeys(job.runs, reason)
