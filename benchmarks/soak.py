"""A long loop of trainings, datasets and reports that are killed at random moments, and must end as if they were not."""

import hashlib
import itertools
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import tyro

_RUN = "import sys; from farflung.cli import main; sys.exit(main())"
_KILLS_IN_A_ROW = 5
_TO_ABLATE = ("--worlds", "room-det", "--agents", "2", "--credits", "total", "causal", "--optimizers", "adam", "--seeds", "2")
_ABLATE = ("ablate", *_TO_ABLATE, "--updates", "100", "--paper-updates", "500", "--batches", "20", "--quiet", "--out", "page")
_TRAIN = ("--seeds", "0", "1", "--quiet", "--checkpoint-minutes", "0.01", "--out", "run")


@dataclass(frozen=True)
class Soak:
    """Kill and go on until the time is up, and compare every result with that of a process that nobody killed."""

    minutes: float = 60.0
    """How long the loop goes on, after the results to compare with were made."""
    kills: int | None = None
    """End after so many kills already."""
    tasks: tuple[str, ...] = ("tables", "networks", "hosted", "collect", "reproduce", "ablate")
    """What is killed, in turns."""
    seed: int = 0
    """Of the moments of the kills."""
    json: bool = False
    """Print one JSON object instead of text."""


@dataclass(frozen=True)
class Task:
    """A command that is killed, what goes on with it, and the files that must not depend on that."""

    begin: tuple[str, ...]
    go_on: tuple[str, ...]
    results: tuple[str, ...]
    """Patterns of their names."""
    begun: str = ""
    """What exists as soon as there is something to go on with."""


TASKS = {
    "tables": Task(
        ("explore", "maze-stoc", "--agents", "4", "--updates", "4000", *_TRAIN),
        ("resume", "run", "--quiet"),
        ("run/metrics.csv", "run/policies.npz"),
        "run/unfinished/config.json",
    ),
    "networks": Task(
        ("explore", "point-gap", "--agents", "3", "--batch-size", "8", "--updates", "150", *_TRAIN),
        ("resume", "run", "--quiet"),
        ("run/metrics.csv", "run/policies.npz", "run/paths.npz"),
        "run/unfinished/config.json",
    ),
    "hosted": Task(
        ("explore", "FrozenLake-v1", "--hosted", "--agents", "3", "--batch-size", "8", "--updates", "150", *_TRAIN),
        ("resume", "run", "--quiet"),
        ("run/metrics.csv", "run/policies.npz"),
        "run/unfinished/config.json",
    ),
    "collect": Task(
        ("collect", "trained", "--episodes", "400000", "--format", "npz", "--out", "data.npz", "--quiet"),
        ("collect", "trained", "--episodes", "400000", "--format", "npz", "--out", "data.npz", "--quiet"),
        ("data.npz",),
    ),
    "reproduce": Task(
        ("reproduce", "--quick", "--quiet", "--out", "report"),
        ("reproduce", "--quick", "--quiet", "--out", "report"),
        ("report/data/[!t]*.csv",),
    ),
    "ablate": Task(_ABLATE, _ABLATE, ("page/data/*.csv",)),
}


@dataclass
class Seen:
    """What was seen of one task."""

    kills: int = 0
    finished: int = 0
    differing: int = 0
    failed: list[str] = field(default_factory=list)
    left_behind: list[str] = field(default_factory=list)
    most_megabytes: float = 0.0
    """Of resident memory in one process."""
    most_files: int = 0
    """Open in one process at a time."""


def main(config: Soak) -> int:
    generator, tell = random.Random(config.seed), (lambda *_: None) if config.json else print
    with tempfile.TemporaryDirectory(prefix="farflung-soak-") as name:
        root = Path(name)
        run(("explore", "maze-det", "--agents", "3", "--updates", "200", "--quiet", "--out", "trained"), root, Seen())
        wanted, seconds = {}, {}
        for task in config.tasks:
            began = time.monotonic()
            folder, undisturbed = fresh(root, task), Seen()
            run(TASKS[task].begin, folder, undisturbed)
            if undisturbed.failed:
                sys.exit(f"{task} fails by itself: {undisturbed.failed[0]}")
            wanted[task], seconds[task] = digests(TASKS[task], folder), time.monotonic() - began
            tell(f"{task}: {seconds[task]:.1f} s, {len(wanted[task])} files to compare")
        seen = {task: Seen() for task in config.tasks}
        end = time.monotonic() + 60 * config.minutes

        def is_over() -> bool:
            return time.monotonic() > end or (
                config.kills is not None and sum(each.kills for each in seen.values()) >= config.kills
            )

        while not is_over():
            for task in config.tasks:
                folder = fresh(root, task)
                survive(TASKS[task], folder, seen[task], partial(generator.uniform, 0, 0.6 * seconds[task]), is_over)
                seen[task].finished += 1
                seen[task].differing += digests(TASKS[task], folder) != wanted[task]
                seen[task].left_behind += [str(path.relative_to(folder)) for path in folder.rglob(".*")]
                tell(f"{task}: {seen[task]}")
    if config.json:
        print(json.dumps({task: asdict(each) for task, each in seen.items()}))
    return int(any(each.differing or each.failed or each.left_behind for each in seen.values()))


def survive(task: Task, folder: Path, seen: Seen, delay: Callable[[], float], is_over: Callable[[], bool]) -> None:
    """Begins, kills and goes on until the task is finished; after a few kills it is let through, to make way for the next."""
    for number in itertools.count():
        command = task.go_on if (folder / task.begun).exists() else (*task.begin, "--force") if task.begun else task.begin
        if run(command, folder, seen, None if is_over() or number == _KILLS_IN_A_ROW else delay()):
            return
        seen.kills += 1


def run(command: tuple[str, ...], folder: Path, seen: Seen, kill_after: float | None = None) -> bool:
    """Whether a command got to its end before it was to be killed."""
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", _RUN, *command], cwd=folder, stderr=subprocess.PIPE, text=True)
    while process.poll() is None:
        seen.most_megabytes, seen.most_files = (
            max(seen.most_megabytes, megabytes(process.pid)),
            max(seen.most_files, num_files(process.pid)),
        )
        if kill_after is not None and time.monotonic() - began > kill_after:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            return False
        time.sleep(0.05)
    _, told = process.communicate()
    if process.returncode:
        seen.failed.append(f"{' '.join(command)}: exit {process.returncode}: {told[-500:]}")
    return True


def fresh(root: Path, task: str) -> Path:
    folder = root / task
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "trained").symlink_to(root / "trained")
    return folder


def digests(task: Task, folder: Path) -> dict[str, str]:
    paths = sorted(path for pattern in task.results for path in folder.glob(pattern))
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def megabytes(process: int) -> float:
    return sum(int(line.split()[1]) / 1024 for line in lines(f"/proc/{process}/status") if line.startswith("VmRSS"))


def num_files(process: int) -> int:
    try:
        return len(list(Path(f"/proc/{process}/fd").iterdir()))
    except OSError:
        return 0


def lines(path: str) -> Iterator[str]:
    try:
        yield from Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Soak, description=Soak.__doc__)))
