"""How long a command takes to begin: `farflung explore` from the second run on, and `farflung --help`, as ratios in one run."""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import tyro

JAX = "import jax; jax.devices()"
BARE = """
import dataclasses, sys, tyro

@dataclasses.dataclass(frozen=True)
class Options:
    \"\"\"What a command takes.\"\"\"
{options}

def run(options: Options) -> None:
    \"\"\"Run a command.\"\"\"

commands = {{f"command{{number}}": run for number in range(11)}}
tyro.extras.subcommand_cli_from_dict(commands, prog="bare", args=["--help"], config=(tyro.conf.OmitArgPrefixes,))
""".format(options="\n".join(f'    option_{number}: int = {number}\n    """What it is."""' for number in range(40)))
CLI = "import sys; from farflung.cli import main; sys.exit(main())"  # as the installed command does


@dataclass(frozen=True)
class Startup:
    """Time the first and the second `farflung explore maze-det`, and `farflung --help`, each in a new process."""

    repeats: int = 3
    """Times that each is measured, in turns; the medians count."""
    json: bool = False
    """Print one JSON object instead of a table."""


@dataclass(frozen=True)
class Result:
    """Seconds of the whole process, and of all its threads on all cores."""

    jax: tuple[float, float]
    """`import jax; jax.devices()`."""
    first: tuple[float, float]
    """`farflung explore maze-det` with an empty cache of compiled programs."""
    second: tuple[float, float]
    """The same again."""
    training: float
    """Seconds that the second took for its updates alone."""
    bare: tuple[float, float]
    """The help of a tyro program with as many commands and options."""
    help: tuple[float, float]
    """`farflung --help`."""

    @property
    def explore_ratio(self) -> float:
        """What the second run takes beside its training, relative to starting JAX."""
        return (self.second[0] - self.training) / self.jax[0]

    @property
    def help_ratio(self) -> float:
        return self.help[0] / self.bare[0]


def _seconds(code: str, arguments: Sequence[str] = (), cache: Path | None = None) -> tuple[float, float]:
    """The wall-clock time and the CPU time of a Python process."""
    further = {} if cache is None else {"XDG_CACHE_HOME": str(cache)}
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", code, *arguments], check=True, stdout=subprocess.DEVNULL, env={**os.environ, **further}
    )
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(config: Startup) -> Result:
    found: dict[str, list[tuple[float, float]]] = {}
    training = []
    for _ in range(config.repeats):
        with tempfile.TemporaryDirectory() as folder:
            cache, out = Path(folder) / "cache", Path(folder) / "run"
            explore = ("explore", "maze-det", "--quiet", "--force", "--out", str(out))
            found.setdefault("jax", []).append(_seconds(JAX))
            found.setdefault("first", []).append(_seconds(CLI, explore, cache))
            found.setdefault("second", []).append(_seconds(CLI, explore, cache))
            training.append(json.loads((out / "summary.json").read_text(encoding="utf-8"))["seconds"])
            found.setdefault("bare", []).append(_seconds(BARE))
            found.setdefault("help", []).append(_seconds(CLI, ["--help"]))
    medians = {
        name: (statistics.median(wall for wall, _ in pairs), statistics.median(cpu for _, cpu in pairs))
        for name, pairs in found.items()
    }
    return Result(**medians, training=statistics.median(training))


def main(config: Startup) -> None:
    result = measure(config)
    if config.json:
        print(json.dumps(asdict(result) | {"explore_ratio": result.explore_ratio, "help_ratio": result.help_ratio}))
        return
    print("starting up: wall-clock seconds (CPU seconds)")
    rows = {"import jax; jax.devices()": result.jax, "explore maze-det, first": result.first}
    rows |= {"explore maze-det, second": result.second, "bare tyro help": result.bare, "farflung --help": result.help}
    for name, (wall, cpu) in rows.items():
        print(f"  {name:28} {wall:6.2f} ({cpu:.2f})")
    print(f"  the second without its {result.training:.2f} s of training: {result.explore_ratio:.2f} x starting JAX")
    print(f"  farflung --help: {result.help_ratio:.2f} x the help of a bare tyro program")


if __name__ == "__main__":
    main(tyro.cli(Startup, config=(tyro.conf.FlagCreatePairsOff,)))
