"""What each of 10,000 states adds to the entropy of six agents, by farflung and by brute force in NumPy, in one run."""

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import tyro


@dataclass(frozen=True)
class Particles:
    """Time the nearest-neighbour gains of random walks in the plane, for few long trajectories and for many short ones."""

    neighbours: int = 4
    repeats: int = 5
    """Times that farflung is measured; the best counts. Brute force is measured once."""
    json: bool = False
    """Print one JSON object instead of a table."""


@dataclass(frozen=True)
class Result:
    agents: int
    trajectories: int
    times: int
    seconds: float
    brute_seconds: float
    largest_difference: float
    """Between the two, as a share of the largest gain."""


def measure(config: Particles, agents: int, trajectories: int, times: int) -> Result:
    import jax
    import jax.numpy as jnp
    import numpy as np

    from farflung.entropy.nearest import nearest_neighbours

    walks = np.cumsum(np.random.default_rng(0).normal(size=(agents, trajectories, times, 2)), axis=2).astype(np.float32)
    states, gains = jnp.asarray(walks), jax.jit(nearest_neighbours(config.neighbours).gains)
    found = np.asarray(gains(states))  # compiles
    seconds = min(_seconds(lambda: jax.block_until_ready(gains(states))) for _ in range(config.repeats))
    expected: list[Any] = []
    brute_seconds = _seconds(lambda: expected.append(_brute_force(walks, config.neighbours)))
    difference = np.max(np.abs(found - expected[0])) / np.max(np.abs(found))
    return Result(agents, trajectories, times, seconds, brute_seconds, float(difference))


def _seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _brute_force(states: Any, neighbours: int) -> Any:
    """All distances, one trajectory at a time."""
    import numpy as np
    from scipy.special import digamma

    num_times, num_features = states.shape[2:]
    points = states.reshape(-1, num_features)
    num_seen = len(points) - num_times + np.arange(num_times)
    log_ball = num_features / 2 * math.log(math.pi) - math.lgamma(num_features / 2 + 1)
    is_hidden = np.arange(num_times)[None] >= np.arange(num_times)[:, None]
    gains = []
    for first in range(0, len(points), num_times):
        own = slice(first, first + num_times)
        squared = sum((column[own, None] - column[None]) ** 2 for column in points.T)
        squared[:, own][is_hidden] = np.inf
        nearest = np.sqrt(np.partition(squared, neighbours - 1)[:, neighbours - 1])
        gains.append(digamma(num_seen + 1) - digamma(neighbours) + log_ball + num_features * np.log(np.maximum(nearest, 1e-3)))
    return np.stack(gains).reshape(states.shape[:3]) / len(points)


def main(config: Particles) -> None:
    results = [measure(config, 6, 1, 1667), measure(config, 6, 26, 64)]
    if config.json:
        print(json.dumps([asdict(result) for result in results]))
        return
    print(f"nearest-neighbour gains in the plane, {config.neighbours} neighbours")
    for each in results:
        name = f"{each.agents} agents x {each.trajectories} x {each.times}"
        ratio = each.brute_seconds / each.seconds
        print(f"  {name:22} {each.seconds:7.3f} s   brute force in NumPy {each.brute_seconds:7.3f} s   ratio {ratio:5.1f}")


if __name__ == "__main__":
    main(tyro.cli(Particles))
