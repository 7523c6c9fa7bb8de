"""Time to solution: from a cold start to the entropy that the paper's algorithm has after 10,000 updates."""

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

import tyro

WORLD, AGENTS, PAPER_UPDATES = "maze-det", 6, 10_000
COLD_START = """
import math, sys
from farflung import explore
from farflung.cli.terminal import use_all_cores

use_all_cores()
level, world, agents = float(sys.argv[1]), sys.argv[2], int(sys.argv[3])

def on_progress(status):
    if status.normalized_entropy is not None and status.normalized_entropy >= level:
        print(status.update, flush=True)
        sys.exit()

explore(world, agents=agents, log_every=5, on_progress=on_progress)
"""


@dataclass(frozen=True)
class Solution:
    """Time `farflung explore` with its defaults, in a new process, until it passes what the paper's preset has at its end."""

    loop_updates: int = 30
    """Updates that the per-step loop is timed over."""
    repeats: int = 3
    """Times that the cold start is measured; the median counts."""
    json: bool = False
    """Print one JSON object instead of a table."""


@dataclass(frozen=True)
class Result:
    world: str
    agents: int
    paper_entropy: float
    """Normalised, after the paper's 10,000 updates, measured in this run."""
    loop_seconds: float
    """Extrapolated from the loop's steps a second."""
    preset_seconds: float
    """farflung with the paper's preset, five seeds side by side, without compilation."""
    seconds: float
    """farflung with its defaults, five seeds, from the start of the process."""
    updates: int
    """By then, at most."""
    ratio: float


def measure(config: Solution) -> Result:
    from benchmarks import per_step
    from farflung import MAZE, explore

    paper = explore(WORLD, agents=AGENTS, preset="paper")
    level = sum(paper.summary["final"]["normalized_entropy"]) / len(paper.config.seeds)
    found = []
    for _ in range(config.repeats):
        began = time.perf_counter()
        command = [sys.executable, "-c", COLD_START, str(level), WORLD, str(AGENTS)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            last_update = int(process.stdout.readline())
            found.append((time.perf_counter() - began, last_update))
    seconds, updates = sorted(found)[len(found) // 2]
    loop = per_step.train(
        MAZE,
        slip=0.0,
        horizon=paper.world.horizon,
        num_agents=AGENTS,
        batch_size=paper.config.batch_size,
        num_updates=config.loop_updates,
        learning_rate=0.15,
        seed=0,
    )
    loop_seconds = int(paper.steps[-1]) / loop.steps_per_second
    preset_seconds = paper.summary["seconds"]
    return Result(WORLD, AGENTS, level, loop_seconds, preset_seconds, seconds, updates, loop_seconds / seconds)


def main() -> None:
    config = tyro.cli(Solution, config=(tyro.conf.FlagCreatePairsOff,))
    from farflung.cli.terminal import use_all_cores

    use_all_cores()
    result = measure(config)
    if config.json:
        print(json.dumps(asdict(result)))
        return
    from rich.console import Console
    from rich.table import Table

    title = (
        f"Seconds to the paper's final entropy ({result.paper_entropy:.3f} of log 43) on {result.world}, m = {result.agents}"
    )
    table = Table(title=title)
    for name in ("", "seeds", "seconds"):
        table.add_column(name, justify="left" if not name else "right")
    table.add_row("the paper's algorithm, Python loop (extrapolated)", "1", f"{result.loop_seconds:,.0f}")
    table.add_row("the paper's algorithm, farflung, without compilation", "5", f"{result.preset_seconds:.1f}")
    table.add_row("farflung explore, cold start to solution", "5", f"{result.seconds:.1f}")
    console = Console()
    console.print(table)
    console.print(f"{result.ratio:,.0f} times faster than the loop; {result.updates} updates were enough.")


if __name__ == "__main__":
    main()
