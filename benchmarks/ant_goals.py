"""Sparse goals on the plane for Ant: a team explores once, and then learns each goal from its best agent or from scratch.

    python -m benchmarks.ant_goals                # sizes for one GPU
    python -m benchmarks.ant_goals --tiny         # a check that it runs, on any machine

Prints for each goal the success rate of the best agent before it learns, and after it or a new policy has learned, with
the same environment steps in total: those of exploration, divided among the goals, are added to the new policy's. It needs
farflung[robotics].
"""

import argparse
import json
import time
from typing import Any

import numpy as np

import farflung


def goals_around(num_goals: int, distance: float) -> list[tuple[float, float]]:
    """Goals on a circle around the start."""
    angles = 2 * np.pi * np.arange(num_goals) / num_goals
    return [(float(distance * np.cos(angle)), float(distance * np.sin(angle))) for angle in angles]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="a check that it runs")
    tiny = parser.parse_args().tiny
    agents, batch_size, horizon, updates, learning = (2, 2, 5, 1, 1) if tiny else (64, 16, 200, 60, 60)
    goals = goals_around(1 if tiny else 8, 4.0)
    began = time.perf_counter()
    explored = farflung.explore(
        "ant", agents=agents, batch_size=batch_size, horizon=horizon, updates=updates, seeds=(0,), algorithm="actor-critic",
        policy="shared-trunk",
    )  # fmt: skip
    per_update = 64 * horizon if not tiny else 2 * horizon
    shared = explored.summary["environment_steps"] // (len(goals) * per_update)
    sizes: dict[str, Any] = {"goal_radius": 1.0, "episodes": 1 if tiny else 4, "batch_size": per_update // horizon}
    rows = []
    for goal in goals:
        tuned = farflung.transfer(explored, goal=goal, updates=learning, **sizes)
        # With the steps of exploration as further updates.
        scratch = farflung.transfer(explored, goal=goal, updates=learning + shared, method="scratch", **sizes)
        about = tuned.summary["transfer"]
        row = {
            "goal": goal,
            "best agent": about["ranking"][0]["mean_return"],
            "from the best agent": tuned.summary["final"]["objective"][0],
            "from scratch": scratch.summary["final"]["objective"][0],
            "seconds": time.perf_counter() - began,
        }
        rows.append(row)
        print(json.dumps(row), flush=True)
    means = {
        name: float(np.mean([row[name] for row in rows])) for name in ("best agent", "from the best agent", "from scratch")
    }
    print(json.dumps({"explored steps": explored.summary["environment_steps"], **means}))


if __name__ == "__main__":
    main()
