"""Jobs as a Slurm job array, by submitit. A preempted job writes its checkpoints, is queued again, and continues from them."""

import os
import shlex
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from farflung.config import Launching
from farflung.runs import interrupts
from farflung.runs.files import own_folder
from farflung.scale.jobs import Failures, Job, environment_of
from farflung.scale.local import attempted

_MOST_REQUEUES = 10_000
_MOST_IN_FLIGHT = 256


class OnSlurm:
    """Submits jobs as one array and waits for their results."""

    def __init__(self, options: Launching, logs: Path, cluster: str = "slurm") -> None:
        """`cluster` is submitit's name for where jobs run; `local` runs them on this machine, for tests."""
        try:
            import submitit
        except ImportError:
            raise ValueError("the launcher slurm needs submitit: pip install '.[slurm]', in a clone of farflung") from None
        # submitit reads pickled objects from its folder, and these can be any program: nobody else may have put one there.
        self._logs, folder = logs, logs / uuid.uuid4().hex
        safe = f"{shlex.quote(sys.executable)} -P"  # or else a job would look for modules in the current folder first
        on_slurm = {"slurm_max_num_timeout": _MOST_REQUEUES, "slurm_python": safe} if cluster == "slurm" else {}
        try:
            self._executor = submitit.AutoExecutor(folder=folder, cluster=cluster, **on_slurm)
        except RuntimeError as error:
            raise ValueError(f"the launcher slurm must be started where Slurm's srun and sbatch are: {error}") from None
        pairs = dict(pair.partition("=")[::2] for pair in options.slurm_options or ())
        known = {name.removeprefix("slurm_") for name in self._executor._valid_parameters() if name.startswith("slurm_")}
        given: dict[str, Any] = {f"slurm_{name}": value for name, value in pairs.items() if name in known}
        if others := {name: value for name, value in pairs.items() if name not in known}:
            given["slurm_additional_parameters"] = others
        if options.partition is not None:
            given["slurm_partition"] = options.partition
        self._executor.update_parameters(
            name="farflung",
            timeout_min=options.minutes,
            cpus_per_task=options.cpus,
            gpus_per_node=int(options.gpus),
            slurm_array_parallelism=options.in_flight or _MOST_IN_FLIGHT,
            **given,
        )
        self._environment = environment_of(options)

    def run(self, jobs: Sequence[Job], on_wait: Callable[[], None]) -> Iterator[tuple[Job, Failures]]:
        from submitit.core.utils import FailedJobError

        for folder in (self._logs.parent, self._logs, self._executor.folder):
            own_folder(folder)
        try:
            submitted = self._executor.map_array(_Requeued(self._environment), list(jobs))
        except (FailedJobError, OSError) as error:
            raise ValueError(f"Slurm does not take the jobs: {_last_line(error)}") from None
        running = dict(zip(submitted, jobs, strict=True))
        try:
            while running:
                for each, job in [pair for pair in running.items() if pair[0].done()]:
                    del running[each]
                    yield job, _outcome(each, job)
                interrupts.check()
                on_wait()
                time.sleep(1 if running else 0)
        finally:
            for each in running:
                each.cancel()


class _Requeued:
    """A job as submitit takes it: its preemption signal stops the work at a safe place, and then the job is queued again."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def __call__(self, job: Job) -> Failures:
        import submitit

        os.environ.update(self._environment)
        number = getattr(signal, f"SIG{submitit.JobEnvironment().USR_SIG}")
        requeue: Any = signal.getsignal(number)
        failures: Failures | None = None
        try:
            with interrupts.stoppable():
                signal.signal(number, lambda *_: interrupts.ask(signal.SIGTERM))
                failures = attempted(job)
        except (KeyboardInterrupt, SystemExit):  # stopped: what was trained is in checkpoints
            pass
        finally:
            signal.signal(number, requeue)
        if failures is None:
            requeue(number, None)  # ends the process
            raise AssertionError
        return failures

    def checkpoint(self, job: Job) -> Any:
        """What submitit runs when the job starts again."""
        import submitit

        return submitit.helpers.DelayedSubmission(self, job)


def _outcome(submitted: Any, job: Job) -> Failures:
    if (error := submitted.exception()) is None:
        return dict(submitted.result())
    return dict.fromkeys(job.runs, _last_line(error))


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" -")]
    return lines[-1] if lines else type(error).__name__
