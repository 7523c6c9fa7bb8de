"""Does entropy in the space of a random encoder explore? Cells that teams reach, of which neither policies nor entropy know.

`python -m benchmarks.encoder minigrid` trains teams that see the rendered frames of a MiniGrid, and
`python -m benchmarks.encoder craftax` teams that see Craftax-Classic's symbols. Both maximise entropy over encodings of what
they see. A team and a team with random actions then play the same number of episodes, and the cells on the map that each
reaches are counted.
"""

import json
import resource
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import tyro


@dataclass(frozen=True)
class Encoder:
    """Count the cells that teams reach which explore in the space of a random encoder, and those of random actions."""

    environment: tyro.conf.Positional[Literal["minigrid", "craftax"]]
    agents: int = 4
    updates: int = 40
    batch_size: int = 4
    horizon: int = 64
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    repetitions: int = 20
    """Episodes of each team in which cells are counted."""
    env_options: dict[str, Any] = field(default_factory=dict)
    """Options of the environment, such as a layout of Craftax."""


Count = Callable[[Any, int], list[int]]
"""The number of different cells that a team visits together in each repetition, given a seed for its episodes."""


def minigrid(config: Encoder) -> tuple[Any, Count]:
    import farflung
    from farflung.training.hosted import play_once

    name = "minigrid:MiniGrid-Empty-16x16-v0"
    frames = {"render_mode": "rgb_array", "tile_size": 4, "highlight": False} | config.env_options
    about: dict[str, Any] = {"horizon": config.horizon, "observe": "pixels", **frames}
    counter = farflung.hosted(name, features=("agent_pos",), **about)  # it records agent_pos beside the frames

    def count(team: Any, seed: int) -> list[int]:
        elements = range(seed * config.repetitions, (seed + 1) * config.repetitions)
        return [different(play_once(counter, team, element, 1)[0][..., -2:]) for element in elements]

    return farflung.hosted(name, features="encoder", **about), count


def craftax(config: Encoder) -> tuple[Any, Count]:
    import jax
    import jax.random as jr

    import farflung

    name = "craftax:Craftax-Classic-Symbolic-v1"
    about: dict[str, Any] = {"horizon": config.horizon, "env_options": config.env_options}
    counter = farflung.make_world(name, **about)  # it records row and column beside the symbols
    play = jax.jit(lambda key, team: farflung.play(key, team, counter, config.repetitions, 1).states)

    def count(team: Any, seed: int) -> list[int]:
        return [different(places) for places in np.asarray(play(jr.key(seed), team))[..., -2:]]

    return farflung.make_world(name, features="encoder", **about), count


def different(places: np.ndarray) -> int:
    """How many different cells there are among the places, without the NaNs after an episode's end."""
    cells = places.reshape(-1, 2)
    return len(np.unique(cells[np.isfinite(cells).all(axis=1)], axis=0))


def main(config: Encoder) -> None:
    import farflung
    from farflung.policies import UniformPolicy
    from farflung.runs.statistics import mean_difference

    world, count = {"minigrid": minigrid, "craftax": craftax}[config.environment](config)
    settings: dict[str, Any] = {"agents": config.agents, "updates": config.updates, "batch_size": config.batch_size}
    run = farflung.explore(world, seeds=config.seeds, live=False, **settings)
    random = UniformPolicy(world.actions, config.agents)
    trained_cells = np.array([np.mean(count(run.team(seed).policies, seed)) for seed in config.seeds])
    random_cells = np.array([np.mean(count(random, seed)) for seed in config.seeds])
    used = resource.getrusage(resource.RUSAGE_SELF)
    entropies = np.asarray(run.metrics.particle_entropy)
    found = {
        "trained": trained_cells.tolist(),
        "random": random_cells.tolist(),
        "difference": mean_difference(trained_cells, random_cells)._asdict() if len(config.seeds) > 1 else None,
        "entropy": {"first": entropies[:, 0].tolist(), "last": entropies[:, -1].tolist()},
        "cpu_seconds": round(used.ru_utime + used.ru_stime),
    }
    print(json.dumps(found, default=float))


if __name__ == "__main__":
    main(tyro.cli(Encoder))
