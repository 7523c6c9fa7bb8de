"""Where an update of networks spends its time: rollout, credit (neighbours), gradient, optimiser steps, actor-critic."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tyro


@dataclass(frozen=True)
class Networks:
    """Time the parts of one update with farflung's defaults, one seed."""

    worlds: tuple[str, ...] = ("point-gap", "mountain-car")
    repeats: int = 3
    """Times that each part is measured; the best counts."""


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
    algorithm = pgpse(Explore(name).resolved(has_vectors=True), world)
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


def main(config: Networks) -> None:
    for name in config.worlds:
        print(f"one update in {name}")
        for part, seconds in measure(name, config.repeats).items():
            print(f"  {part:38} {1e3 * seconds:9.1f} ms", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Networks))
