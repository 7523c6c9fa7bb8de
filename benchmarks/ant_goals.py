"""Sparse goals on the plane for MuJoCo's Ant: a team and one policy explore, and then goals are learned from what they found.

    python -m benchmarks.ant_goals                # sizes for one GPU
    python -m benchmarks.ant_goals --tiny         # a check that it runs, on any machine

It explores as `python -m benchmarks.robots` does, with its first team size, and prints that comparison too. Each goal pays 1
when the torso comes near it.
Goals are then learned by PPO from the agent of the team that reaches them most often, from the best of as many random networks,
from the one policy, and from scratch with and without a bonus for new places; all at the same number of environment steps after
the choice. The table has the share of episodes that reach their goal. It needs farflung[robotics].
"""

import json
import math
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from benchmarks.robots import Robots, table, train_all

STARTS = ("team", "one policy", "random", "scratch", "entropy")
_WEIGHT = 0.02
"""Of the bonus for new places beside the goal's reward, as in `farflung transfer-study`."""


@dataclass(frozen=True)
class AntGoals:
    """Explore, then learn goals on a circle around the start."""

    explore: tyro.conf.OmitArgPrefixes[Robots] = field(default_factory=Robots)
    goals: int = 8
    distance: float = 8.0
    """Of the goals from the start, in metres."""
    radius: float = 1.0
    """Metres within which a goal is reached."""
    goal_seeds: int = 3
    """Explorations from which goals are learned."""
    episodes: int = 8
    """Of each agent, by which the best one for a goal is chosen."""
    goal_batch: int = 64
    """Episodes in an update."""
    goal_updates: int = 40
    tiny: bool = False
    """Check that it runs: sizes that any machine can do."""


def places(config: AntGoals) -> list[tuple[float, float]]:
    """The goals."""
    angles = 2 * np.pi * np.arange(config.goals) / config.goals
    return [(float(config.distance * np.cos(angle)), float(config.distance * np.sin(angle))) for angle in angles]


def main(config: AntGoals) -> None:
    import jax
    import jax.random as jr

    from farflung import train
    from farflung.algorithms.actor_critic import ActorCritic
    from farflung.algorithms.task import Goal
    from farflung.policies import Networks, neural_team
    from farflung.runs.statistics import mean_and_interval
    from farflung.studies.transfer import start_from
    from farflung.studies.transfer_study.experiment import reached

    began = time.perf_counter()
    world, teams, measured = train_all(config.explore)
    print(*table(measured), sep="\n")
    num_agents = config.explore.agents[0]
    goals = [Goal(np.asarray(place, np.float32), np.float32(config.radius)) for place in places(config)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *goals)
    networks = Networks(config.explore.hidden)
    starts: dict[str, list[Any]] = {kind: [] for kind in STARTS}
    for seed in range(config.goal_seeds):
        key = jr.fold_in(jr.key(seed), 7)
        new = {"random": neural_team(key, world, num_agents, networks, scale=1.0)}
        explored = {
            kind: jax.tree.map(lambda leaf, row=row * config.explore.seeds + seed: leaf[row], teams)
            for row, kind in enumerate(config.explore.kinds)
        }
        for kind, team in (explored | new).items():
            is_reached = np.asarray(reached(key, team, world, stacked, config.episodes)[0])
            best = is_reached.mean(axis=1).argmax(axis=1)  # the agents of the one policy are all alike
            starts[kind] += [start_from(team, int(agent)) for agent in best]
        scratch = neural_team(jr.fold_in(key, 1), world, 1, networks)
        starts["scratch"] += [scratch] * len(goals)
        starts["entropy"] += [scratch] * len(goals)
    algorithms = [
        ActorCritic(
            1, batch_size=config.goal_batch, networks=networks, learning_rate=0.001, entropy_bonus=0.01,
            bonus_decay=math.exp(-5 / config.goal_updates), steps_per_batch=16, task=goals[number % len(goals)],
            intrinsic=_WEIGHT if kind == "entropy" else 0.0, initial=initial,
        )
        for kind in STARTS for number, initial in enumerate(starts[kind])
    ]  # fmt: skip
    rows, updates = [], []
    every = max(1, config.goal_updates // 8)
    for progress in train(algorithms, world, range(len(algorithms)), config.goal_updates, log_every=every):
        rows.append(np.asarray(progress.metrics.objective))
        updates += progress.recorded.tolist()
    shape = (len(STARTS), config.goal_seeds, len(goals), -1)
    success = np.concatenate(rows, axis=1).reshape(shape)
    steps = np.array(updates) * config.goal_batch * config.explore.horizon
    explored_steps = measured.steps[-1]
    chosen = config.episodes * num_agents * config.explore.horizon
    print(f"\n{len(goals)} goals, {config.distance:g} m away, {config.goal_seeds} seeds: share of episodes that reach them")
    print(f"exploration: {explored_steps:,} steps once; the choice of an agent: {chosen:,} steps for all goals together")
    print("steps for each goal, millions " + " ".join(f"{each / 1e6:6.2f}" for each in steps))
    for kind, own in zip(STARTS, success, strict=True):
        mean, half = mean_and_interval(own.mean(axis=1))
        spread = "" if half is None else f"   last: +- {half[-1]:.2f} (95%, over the seeds)"
        print(f"{kind:28}  " + " ".join(f"{each:6.2f}" for each in mean) + spread)
    print(f"{time.perf_counter() - began:.0f} s in all")
    if config.explore.out is not None:
        found = {"success": dict(zip(STARTS, success.tolist(), strict=True)), "steps": steps.tolist()}
        config.explore.out.write_text(json.dumps(asdict(measured) | found), encoding="utf-8")


if __name__ == "__main__":
    config = tyro.cli(AntGoals)
    if config.tiny:
        small = Robots(
            agents=(2,),
            batch_size=(2,),
            horizon=5,
            steps=40,
            every=1,
            seeds=1,
            engine="jax",
            minibatches=2,
            hidden=(8,),
            out=Path("x"),
        )
        config = AntGoals(small, goals=2, distance=0.3, goal_seeds=1, episodes=2, goal_batch=2, goal_updates=2)
    main(config)
