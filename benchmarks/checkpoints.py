"""The shares of the training time that checkpoints and episodes to look at take, and whether memory stays constant."""

import json
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import tyro


@dataclass(frozen=True)
class Checkpoints:
    """Train a team of the paper's size and measure the time of its checkpoints and of the episodes to look at."""

    world: str = "maze-stoc"
    agents: int = 6
    updates: int = 10_000
    """Updates, with the paper's preset."""
    between: int = 500
    """Updates between two checkpoints; far fewer than by default, so that there are enough checkpoints to measure."""
    pairs: int = 5
    """Trainings with and without episodes to look at, in turns."""
    json: bool = False
    """Print one JSON object instead of text."""


@dataclass(frozen=True)
class Result:
    training_seconds: float
    checkpoints: int
    seconds_each: float
    share_by_default: float
    """Share of the training time with the default, one checkpoint every two minutes."""
    share_as_run: float
    """Share of the training time with the checkpoints of this benchmark."""
    megabytes_at_a_tenth: float
    megabytes_at_the_end: float
    """Resident memory."""
    share_of_playback: float
    """How much more CPU time a training takes that keeps episodes to look at, relative to one that keeps none: the median."""


def measure(config: Checkpoints) -> Result:
    from farflung.runs.checkpoints import MINUTES, Checkpointer
    from farflung.studies.explore import explore

    seconds: list[float] = []
    resident: list[float] = []
    write = Checkpointer.write

    def timed(*arguments: object) -> None:
        began = time.perf_counter()
        write(*arguments)  # type: ignore[arg-type]
        seconds.append(time.perf_counter() - began)
        resident.append(_megabytes())

    Checkpointer.write = timed  # type: ignore[method-assign, assignment]
    try:
        with tempfile.TemporaryDirectory() as folder:
            run = explore(
                config.world,
                agents=config.agents,
                preset="paper",
                updates=config.updates,
                out=Path(folder, "run"),
                checkpoint_updates=config.between,
                live=False,
            )
    finally:
        Checkpointer.write = write  # type: ignore[method-assign]
    training = float(run.summary["seconds"])
    each = sum(seconds) / len(seconds)
    return Result(
        training,
        len(seconds),
        each,
        each / (60 * MINUTES),
        sum(seconds) / training,
        resident[len(resident) // 10],
        resident[-1],
        statistics.median(
            _cpu_seconds(config, keeps=True) / _cpu_seconds(config, keeps=False) - 1 for _ in range(config.pairs)
        ),
    )


def _cpu_seconds(config: Checkpoints, *, keeps: bool) -> float:
    """The CPU time of a training in all threads, without compilation.

    Without episodes, none are taken from the batches or written for viewers.
    """
    import jax

    from farflung.studies.explore import explore
    from farflung.studies.trials import finish

    def timed(*arguments: Any, **options: Any) -> Any:
        began = time.process_time()
        found = finish(*arguments, **options)
        seconds.append(time.process_time() - began)
        return found

    jax.clear_caches()
    seconds: list[float] = []
    with ExitStack() as stack:
        stack.enter_context(patch("farflung.studies.explore.finish", timed))
        if not keeps:
            stack.enter_context(patch("farflung.studies.trials.moments_of", return_value=[]))
            stack.enter_context(patch("farflung.training.compiled.shown_of", lambda world, states: states[:0]))
            stack.enter_context(patch("farflung.studies.view.LiveRun._write_soon"))
        out = Path(stack.enter_context(tempfile.TemporaryDirectory()), "run")
        run = explore(config.world, agents=config.agents, preset="paper", updates=config.updates, out=out, live=False)
    if (run.playback is not None) != keeps:
        raise RuntimeError("the benchmark no longer reaches what keeps episodes")
    return sum(seconds)


def _megabytes() -> float:
    status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return sum(int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS"))


def main(config: Checkpoints) -> None:
    found = measure(config)
    if config.json:
        print(json.dumps(asdict(found)))
        return
    print(
        f"checkpoints: {found.checkpoints} in {found.training_seconds:.1f} s, {1000 * found.seconds_each:.1f} ms each: "
        f"{found.share_as_run:.2%} of the time, {found.share_by_default:.3%} with one every two minutes; "
        f"memory {found.megabytes_at_a_tenth:.0f} MB after a tenth, {found.megabytes_at_the_end:.0f} MB at the end"
    )
    print(f"episodes to look at: {found.share_of_playback:+.2%} of the training's CPU time (median of {config.pairs} pairs)")


if __name__ == "__main__":
    main(tyro.cli(Checkpoints, description=Checkpoints.__doc__))
