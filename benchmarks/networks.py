"""Where an update of networks spends its time, and how long a team takes until it covers a world."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import tyro

POINT_GAP, MOUNTAIN_CAR = 5.30, 0.98
"""The targets: nats over the cells in one batch element; share of the cells that can be reached, in 17 repetitions."""
_REACHABLE = 354
"""Of MountainCar's 400 cells, by a breadth-first search over its states within an episode."""
_REPETITIONS, _MEASUREMENTS = 17, 40
_KINDS: dict[str, dict[str, dict[str, Any]]] = {
    "point-gap": {"actor-critic": {"updates": 2000}, "PGPSE": {"algorithm": "pgpse", "batch_size": 32, "updates": 500}},
    "mountain-car": {
        "actor-critic": {"updates": 400},
        "PGPSE": {"algorithm": "pgpse", "batch_size": 8, "decay": 0.99, "updates": 200},
    },
}
"""The defaults, with a number of updates; and how networks were trained before there was an actor-critic."""


@dataclass(frozen=True)
class Networks:
    """Time the parts of one update with farflung's defaults, one seed; with --targets, time whole trainings."""

    worlds: tuple[str, ...] = ("point-gap", "mountain-car")
    repeats: int = 3
    """Times that each part is measured; the best counts."""
    targets: bool = False
    """Train until point-gap has 5.30 nats, and until 98% of MountainCar's cells are visited."""
    seeds: int = 3
    """Of the whole trainings, one after the other."""


def measure(name: str, repeats: int) -> dict[str, float]:
    """Seconds of each part; on a CPU, seconds of all its cores, so that other programs on the machine don't count."""
    import jax
    import jax.random as jr

    from farflung import make_world
    from farflung.algorithms.actor_critic import actor_critic
    from farflung.algorithms.pgpse import pgpse
    from farflung.config import Explore
    from farflung.policies.rollout import acted_in, play

    world: Any = make_world(name)
    algorithm = pgpse(Explore(name, algorithm="pgpse", batch_size=16).resolved(has_vectors=True), world)
    critic = actor_critic(
        Explore(name, algorithm="actor-critic", batch_size=algorithm.batch_size).resolved(has_vectors=True), world
    )
    clock = time.process_time if jax.default_backend() == "cpu" else time.perf_counter
    seconds: dict[str, float] = {}

    def timed(part: str, function: Callable[..., Any], *arguments: Any) -> Any:
        program = jax.jit(function)
        result = jax.block_until_ready(program(*arguments))
        found = []
        for _ in range(repeats):
            began = clock()
            jax.block_until_ready(program(*arguments))
            found.append(clock() - began)
        seconds[part] = min(found)
        return result

    state = jax.jit(lambda key: algorithm.init(key, world))(jr.key(0))
    sizes = (algorithm.batch_size, algorithm.num_trajectories)
    played = timed("rollout", lambda key, team: play(key, team, world, *sizes), jr.key(1), state.team)
    weights = timed("credit", lambda states: algorithm.weights(world, states, state.team), played.states)
    acted = acted_in(played)
    for part, bonus in (("one gradient", None), ("one gradient with the entropy bonus", 1e-6)):
        timed(part, lambda team, *batch, bonus=bonus: team.gradient(*batch, bonus), state.team, acted, played.actions, weights)
    timed(
        f"credit and {algorithm.steps_per_batch} optimiser steps", lambda *given: algorithm.learn(world, *given), state, played
    )
    judged = jax.jit(lambda key: critic.init(key, world))(jr.key(0))
    timed(
        f"actor-critic: {critic.steps_per_batch} steps in {critic.num_minibatches} parts",
        lambda *given: critic.learn(world, *given),
        judged,
        played,
    )
    return seconds


class Reached(NamedTuple):
    """When a training reached its target, or where it ended."""

    is_reached: bool
    value: float
    steps: int
    cpu_seconds: float
    """Without compilation and measurements."""


def to_target(name: str, kind: str, seed: int) -> Reached:
    """Trains a team with a schedule of fixed length until it reaches the target of its world."""
    import jax
    import jax.random as jr
    import numpy as np

    from farflung import Explore, make_world, train
    from farflung.algorithms.chosen import algorithm_for
    from farflung.policies.rollout import play
    from farflung.runs.run import steps_per_update

    world: Any = make_world(name)
    config = Explore(name, **_KINDS[name][kind]).resolved(has_vectors=True)
    algorithm = algorithm_for(config, world)
    pauses = np.linspace(0, config.updates, _MEASUREMENTS + 1).round().astype(int)[1:].tolist()

    def value(progress: Any) -> float:
        if name == "point-gap":
            return float(np.asarray(progress.metrics.entropy)[0, -1])
        team = jax.tree.map(lambda leaf: leaf[0], progress.team)
        states = play(jr.key(0), team, world, _REPETITIONS, 1).states
        return len(np.unique(world.projection.cells(states))) / _REACHABLE

    trained, target = 0.0, POINT_GAP if name == "point-gap" else MOUNTAIN_CAR
    training = train(algorithm, world, (seed,), config.updates, config.updates // _MEASUREMENTS, pauses)
    next(training)
    began, latest = time.process_time(), 0.0
    for progress in training:
        trained += time.process_time() - began
        if progress.update in pauses and len(progress.recorded):
            latest = value(progress)
            if latest >= target:
                break
        began = time.process_time()
    return Reached(latest >= target, latest, progress.update * steps_per_update(config, world), trained)


def print_targets(config: Networks) -> None:
    for name in config.worlds:
        for kind in _KINDS[name]:
            for seed in range(config.seeds):
                found = to_target(name, kind, seed)
                what = "reaches" if found.is_reached else "ends at"
                value = f"{found.value:.3f} nats" if name == "point-gap" else f"{found.value:.1%} of the cells"
                print(
                    f"{name}, {kind}, seed {seed}: {what} {value} after {found.steps / 1e6:.2f} M steps, "
                    f"{found.cpu_seconds:.0f} CPU s",
                    flush=True,
                )


def main(config: Networks) -> None:
    if config.targets:
        print_targets(config)
        return
    for name in config.worlds:
        print(f"one update in {name}")
        for part, seconds in measure(name, config.repeats).items():
            print(f"  {part:38} {1e3 * seconds:9.1f} ms", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Networks))
