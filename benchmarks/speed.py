"""How many environment steps a second, learning included: farflung, a per-step loop and a Numba loop, in one run."""

import importlib.util
import json
import os
import platform
import statistics
import time
from dataclasses import asdict, dataclass

import tyro


@dataclass(frozen=True)
class Speed:
    """Time PGPSE on Maze-stoc: farflung, a Python loop over the steps of a vector environment, and a loop compiled by Numba."""

    agents: int = 6
    batch_size: int = 40
    seeds: int = 6
    """Seeds that farflung trains side by side; a multiple of the number of devices keeps all of them busy."""
    updates: int = 5000
    """Updates that farflung is timed over."""
    loop_updates: int = 30
    """Updates that the loop is timed over."""
    repeats: int = 3
    """Times that each is measured, in turns; the medians of the rates count, and the best of the CPU times."""
    json: bool = False
    """Print one JSON object instead of a table."""


@dataclass(frozen=True)
class Result:
    world: str
    agents: int
    batch_size: int
    seeds: int
    device: str
    compile_seconds: float
    steps_per_second: float
    loop_steps_per_second: float
    ratio: float
    numba_steps_per_second: float | None
    """Of the Numba loop on all cores; None if Numba is not installed."""
    steps_per_cpu_second: float
    """Of farflung, in a second of CPU time: other programs on the machine don't count."""
    numba_steps_per_cpu_second: float | None


def measure(config: Speed) -> Result:
    import jax  # after the number of devices is set

    from benchmarks import per_step
    from farflung import MAZE, PGPSE, make_tabular_world, train
    from farflung.config.checks import num_cores

    world = make_tabular_world("maze-stoc")
    algorithm = PGPSE(config.agents, batch_size=config.batch_size)
    steps = config.updates * config.batch_size * config.agents * world.horizon * config.seeds
    fast, slow, by_hand, compile_seconds = [], [], [], 0.0
    seconds, numba_seconds = [], []
    for repeat in range(config.repeats):
        began = time.perf_counter()
        training = train(algorithm, world, range(config.seeds), config.updates)
        next(training)
        if repeat == 0:
            compile_seconds = time.perf_counter() - began
        began, before = time.perf_counter(), time.process_time()
        for _ in training:
            pass
        fast.append(steps / (time.perf_counter() - began))
        seconds.append(time.process_time() - before)
        loop = per_step.train(
            MAZE,
            slip=0.2,
            horizon=world.horizon,
            num_agents=config.agents,
            batch_size=config.batch_size,
            num_updates=config.loop_updates,
            learning_rate=0.15,
            seed=repeat,
        )
        slow.append(loop.steps_per_second)
        if importlib.util.find_spec("numba") is not None:
            from benchmarks import numba_loop

            before = time.process_time()
            written = numba_loop.train(
                world,
                num_agents=config.agents,
                batch_size=config.batch_size,
                num_updates=config.updates,
                learning_rate=0.15,
                seeds=num_cores(),
                num_threads=num_cores(),
            )
            by_hand.append(written.steps_per_second)
            numba_seconds.append(time.process_time() - before)
    device = f"{jax.local_device_count()} x {jax.local_devices()[0].device_kind} ({platform.machine()})"
    rates = statistics.median(fast), statistics.median(slow)
    numba_rate = statistics.median(by_hand) if by_hand else None
    sizes = (config.agents, config.batch_size, config.seeds)
    numba_steps = steps // config.seeds * num_cores()
    by_cpu_time = steps / min(seconds), numba_steps / min(numba_seconds[1:] or numba_seconds) if numba_seconds else None
    return Result("maze-stoc", *sizes, device, compile_seconds, *rates, rates[0] / rates[1], numba_rate, *by_cpu_time)


def main() -> None:
    config = tyro.cli(Speed, config=(tyro.conf.FlagCreatePairsOff,))
    from farflung.cli.terminal import use_all_cores
    from farflung.config.checks import num_cores

    use_all_cores()
    result = measure(config)
    if config.json:
        print(json.dumps(asdict(result)))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"PGPSE on {result.world}, m = {result.agents}, B = {result.batch_size}, learning included")
    for name in ("", "seeds", "environment steps a second", "a second of CPU time", "ratio"):
        table.add_column(name, justify="left" if not name else "right")
    table.add_row("Python loop over a Gymnasium vector environment", "1", f"{result.loop_steps_per_second:,.0f}", "", "1")
    if result.numba_steps_per_second is not None:
        ratio = result.numba_steps_per_second / result.loop_steps_per_second
        name = f"hand-written Numba loop, {num_cores()} cores, one seed each"
        rates = f"{result.numba_steps_per_second:,.0f}", f"{result.numba_steps_per_cpu_second:,.0f}"
        table.add_row(name, f"{num_cores()}", *rates, f"{ratio:,.0f}")
    on_cpu = f"{result.steps_per_cpu_second:,.0f}" if "cpu" in result.device else ""
    rates = f"{result.steps_per_second:,.0f}", on_cpu
    table.add_row(f"farflung on {result.device}", f"{result.seeds:,}", *rates, f"{result.ratio:,.0f}")
    console = Console()
    console.print(table)
    console.print(f"farflung's compilation took {result.compile_seconds:.1f} s, not counted above. {os.cpu_count()} cores.")


if __name__ == "__main__":
    main()
