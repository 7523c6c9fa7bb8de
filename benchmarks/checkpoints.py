"""What checkpoints cost of the training time, in one run, and whether memory stays flat."""

import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True)
class Checkpoints:
    """Train a team of the paper's size and time its checkpoints."""

    world: str = "maze-stoc"
    agents: int = 6
    updates: int = 10_000
    """With the paper's preset."""
    between: int = 500
    """Updates between two checkpoints: far more often than by default, so that there are enough to measure."""
    json: bool = False
    """Print one JSON object instead of text."""


@dataclass(frozen=True)
class Result:
    training_seconds: float
    checkpoints: int
    seconds_each: float
    share_by_default: float
    """Of the training time, with one every two minutes, as by default."""
    share_as_run: float
    """Of the training time, as often as here."""
    megabytes_at_a_tenth: float
    megabytes_at_the_end: float
    """Of resident memory."""


def measure(config: Checkpoints) -> Result:
    from farflung.runs.checkpoints import MINUTES, Checkpointer
    from farflung.studies.explore import explore

    seconds: list[float] = []
    resident: list[float] = []
    honest = Checkpointer.write

    def timed(*arguments: object) -> None:
        began = time.perf_counter()
        honest(*arguments)  # type: ignore[arg-type]
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
        Checkpointer.write = honest  # type: ignore[method-assign]
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
    )


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


if __name__ == "__main__":
    main(tyro.cli(Checkpoints, description=Checkpoints.__doc__))
