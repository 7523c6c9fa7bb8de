"""How many transitions a second a team's episodes come in, and what writing them costs, in one run."""

import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

if TYPE_CHECKING:
    from farflung import Run


@dataclass(frozen=True)
class Collecting:
    """Time `farflung collect` with a trained team on Maze-stoc: alone, and with each format that it can write."""

    agents: int = 6
    episodes: int = 1_000_000
    """Episodes that are collected, and written to single files."""
    minari_episodes: int = 2_000
    """Episodes that are written as Minari datasets."""
    loop_episodes: int = 1_000
    """Episodes that a Python loop over the steps of the Gymnasium environment collects."""
    repeats: int = 3
    """Times that each is measured, in turns; the best counts, since nothing makes a machine faster than it is."""
    json: bool = False
    """Print one JSON object instead of a table."""


@dataclass(frozen=True)
class Result:
    agents: int
    episodes: dict[str, int]
    transitions_per_second: dict[str, float]
    bytes_per_transition: dict[str, float]


def measure(config: Collecting) -> Result:
    from farflung import explore, save_dataset, to_minari
    from farflung.data import collect_parts

    run = explore("maze-stoc", agents=config.agents, seeds=(0,))
    transitions = run.world.horizon

    def alone(_: Path) -> None:
        for _part in collect_parts(run, config.episodes):
            pass

    def to_file(suffix: str) -> Callable[[Path], Any]:
        return lambda folder: save_dataset(collect_parts(run, config.episodes), folder / f"data{suffix}")

    def to_format(name: str) -> Callable[[Path], Any]:
        return lambda _: to_minari(collect_parts(run, config.minari_episodes), "bench-v0", data_format=name)

    ways: dict[str, tuple[int, Callable[[Path], Any]]] = {
        "Python loop, Gymnasium": (config.loop_episodes, lambda _: _loop(run, config.loop_episodes)),
        "nothing written": (config.episodes, alone),
        "npz": (config.episodes, to_file(".npz")),
        "Parquet": (config.episodes, to_file(".parquet")),
        "HDF5 for d3rlpy": (config.episodes, to_file(".h5")),
        "Minari as HDF5": (config.minari_episodes, to_format("hdf5")),
        "Minari as Arrow": (config.minari_episodes, to_format("arrow")),
    }
    alone(Path())  # compiles
    seconds, sizes = dict.fromkeys(ways, float("inf")), dict.fromkeys(ways, 0)
    for _ in range(config.repeats):
        for name, (_episodes, work) in ways.items():
            with tempfile.TemporaryDirectory() as folder:
                os.environ["MINARI_DATASETS_PATH"] = folder
                began = time.perf_counter()
                work(Path(folder))
                seconds[name] = min(seconds[name], time.perf_counter() - began)
                sizes[name] = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    num_transitions = {name: episodes * transitions for name, (episodes, _) in ways.items()}
    return Result(
        config.agents,
        {name: episodes for name, (episodes, _) in ways.items()},
        {name: number / seconds[name] for name, number in num_transitions.items()},
        {name: sizes[name] / number for name, number in num_transitions.items()},
    )


def _loop(run: "Run", num_episodes: int) -> None:
    """The same data as one would collect it with Gymnasium: step by step, one agent after the other."""
    import gymnasium
    import numpy as np

    from farflung.data.sources import environment_spec

    spec = environment_spec(run.config, run.table)
    assert spec is not None
    environment = gymnasium.make(spec)
    team = run.team(0).policies
    probabilities = np.asarray(team.probabilities)
    if not team.is_time_dependent:
        probabilities = np.repeat(probabilities[:, None], run.world.horizon, axis=1)
    cumulative = np.cumsum(probabilities, axis=-1)
    generator = np.random.default_rng(0)
    for episode in range(num_episodes):
        table = cumulative[episode % len(cumulative)]
        observation, _ = environment.reset(seed=episode)
        observations, actions = [observation], []
        for time_step in range(run.world.horizon):
            action = min(int(np.searchsorted(table[time_step, observation], generator.random(), side="right")), 3)
            observation, *_ = environment.step(action)
            observations.append(observation)
            actions.append(action)


def main() -> None:
    config = tyro.cli(Collecting, config=(tyro.conf.FlagCreatePairsOff,))
    from farflung.cli.terminal import use_all_cores

    use_all_cores()
    result = measure(config)
    if config.json:
        print(json.dumps(asdict(result)))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Collecting from {result.agents} agents on maze-stoc: farflung, by what is written")
    for name in ("", "episodes", "transitions/s", "ratio", "bytes"):
        table.add_column(name, justify="left" if not name else "right")
    slowest = next(iter(result.transitions_per_second.values()))
    for name, rate in result.transitions_per_second.items():
        size = f"{result.bytes_per_transition[name]:,.1f}" if result.bytes_per_transition[name] else ""
        ratio = rate / slowest
        table.add_row(
            name, f"{result.episodes[name]:,}", f"{rate:,.0f}", f"{ratio:,.0f}" if ratio >= 1 else f"{ratio:.2f}", size
        )
    console = Console()
    console.print(table)
    console.print(f"bytes: for each transition; compilation is not counted; {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
