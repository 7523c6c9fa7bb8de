"""What Ray actors cost against local worker processes for a slow simulator, in turns, and what more nodes bring."""

import json
import logging
import statistics
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import gymnasium
import tyro


@dataclass(frozen=True)
class Actors:
    """Time episodes of a simulator that sleeps in each step, in worker processes and in Ray actors."""

    milliseconds: float = 5.0
    """Time of a step of the simulator."""
    workers: int = 2
    horizon: int = 50
    repeats: int = 9
    """Times that both are measured, in turns."""
    nodes: tuple[int, ...] = (1, 2, 4)
    """Numbers of Ray nodes, all of them on this machine, with four actors each."""
    json: bool = False
    """Print one JSON object instead of a table."""


@dataclass(frozen=True)
class Result:
    milliseconds: float
    local: float
    """Median time of a step of all workers, in milliseconds."""
    ray: float
    ratios: list[float]
    """Of the times of each turn, in increasing order."""
    overhead: float
    """Their median."""
    steps_per_second: dict[int, float]
    """By the number of nodes."""


class Sleeper(gymnasium.Env[Any, Any]):
    """A simulator whose steps take a while, and no CPU."""

    observation_space, action_space = gymnasium.spaces.Discrete(8), gymnasium.spaces.Discrete(2)

    def __init__(self, seconds: float) -> None:
        self._seconds, self._state = seconds, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self._state = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        time.sleep(self._seconds)
        self._state = (self._state + int(action)) % 8
        return self._state, 0.0, False, False, {}


@contextmanager
def opened(config: Actors, workers: int, launcher: str) -> Iterator[Any]:
    """A function that plays an episode in every worker, and returns the seconds of a step."""
    import numpy as np

    from farflung.worlds.hosted.tables import hosted

    made = partial(Sleeper, config.milliseconds / 1000)
    world: Any = hosted(made, horizon=config.horizon, workers=workers, launcher=launcher)
    agents, noise = np.zeros(workers, np.int64), np.random.default_rng(0).random((workers, config.horizon))
    thresholds = np.broadcast_to(np.array([0.5, 1.0]), (1, 1, world.num_states + 1, 2))
    with world.open(1, workers) as pool:

        def play() -> float:
            player = world.player(thresholds, agents, noise)
            began = time.perf_counter()
            pool.play(player, agents, 1 + np.arange(workers))
            return (time.perf_counter() - began) / config.horizon

        play()
        yield play


@contextmanager
def cluster(num_nodes: int) -> Iterator[None]:
    """A Ray cluster of several node processes with four CPUs each, as Ray counts them."""
    import ray
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
    try:
        for _ in range(num_nodes - 1):
            made.add_node(num_cpus=4)
        ray.init(address=made.address, log_to_driver=False, logging_level=logging.ERROR)
        yield
    finally:
        ray.shutdown()
        made.shutdown()


def measure(config: Actors) -> Result:
    with opened(config, config.workers, "local") as local, opened(config, config.workers, "ray") as actors:
        turns = [(local(), actors()) for _ in range(config.repeats)]
    import ray

    ray.shutdown()
    by_nodes = {}
    for number in config.nodes:
        with cluster(number), opened(config, 4 * number, "ray") as play:
            by_nodes[number] = 4 * number / statistics.median(play() for _ in range(config.repeats))
    ratios = sorted(after / before for before, after in turns)
    local_time, actors_time = (1000 * statistics.median(column) for column in zip(*turns, strict=True))
    return Result(config.milliseconds, local_time, actors_time, ratios, statistics.median(ratios), by_nodes)


def main(config: Actors) -> None:
    warnings.simplefilter("ignore")
    result = measure(config)
    if config.json:
        print(json.dumps(asdict(result)))
        return
    print(f"{config.workers} copies of a simulator of {result.milliseconds:g} ms a step, {config.repeats} turns, medians")
    print(f"  worker processes        {result.local:8.2f} ms a step")
    print(f"  Ray actors              {result.ray:8.2f} ms a step")
    print(f"  ratio                   {result.overhead:8.2f} (from {result.ratios[0]:.2f} to {result.ratios[-1]:.2f})")
    for number, rate in result.steps_per_second.items():
        print(f"  {number} nodes, {4 * number:2} actors {rate:17,.0f} steps/s")


if __name__ == "__main__":
    main(tyro.cli(Actors))
