"""Does entropy in the space of a random encoder explore? Cells that teams reach in a MiniGrid of which they see only pixels.

`python -m benchmarks.pixels` trains a team on rendered frames, and counts the cells (agent_pos) that it and random actions
reach: neither the policies nor the entropy ever saw these.
"""

import argparse
import json
from typing import Any

import numpy as np

import farflung
from farflung.policies import UniformPolicy
from farflung.training.hosted import play_once

SIZE = 16


def cells(world: Any, team: Any, repetitions: int) -> list[int]:
    """The number of different cells that a team visits together, in each of some repetitions."""
    counter = farflung.hosted(  # the same frames and seeds; agent_pos is recorded beside the frames
        world.settings["environment"],
        horizon=world.horizon,
        observe="pixels",
        features=("agent_pos",),
        **world.settings["options"],
    )
    places = [play_once(counter, team, element, 1)[0][..., -2:].reshape(-1, 2) for element in range(repetitions)]
    return [len(np.unique(each[np.isfinite(each).all(axis=1)], axis=0)) for each in places]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=4)
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--horizon", type=int, default=64)
    parser.add_argument("--repetitions", type=int, default=20)
    options = parser.parse_args()
    world = farflung.hosted(
        f"minigrid:MiniGrid-Empty-{SIZE}x{SIZE}-v0",
        horizon=options.horizon,
        observe="pixels",
        features="encoder",
        render_mode="rgb_array",
        tile_size=4,
        highlight=False,
    )
    run = farflung.explore(
        world, agents=options.agents, updates=options.updates, batch_size=options.batch_size, seeds=(0,), live=False
    )
    trained = cells(world, run.team(seed=0).policies, options.repetitions)
    random = cells(world, UniformPolicy(world.actions, options.agents), options.repetitions)
    found = {"cells": (SIZE - 2) ** 2, "trained": float(np.mean(trained)), "random": float(np.mean(random))}
    entropies = np.asarray(run.metrics.particle_entropy)
    entropy = {"first": float(entropies[0, 0]), "last": float(entropies[0, -1])}
    print(json.dumps({**found, "entropy": entropy}))


if __name__ == "__main__":
    main()
