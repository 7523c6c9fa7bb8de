"""The transfer study with MuJoCo's Ant on one GPU: goals on the plane, and all ways to begin with the same steps in total.

    python -m benchmarks.ant_goals                # sizes for one H200: about ten minutes
    python -m benchmarks.ant_goals --budget       # what it would do, and how long that takes
    python -m benchmarks.ant_goals --tiny         # all of it in small, on any machine, in a point maze

It is `farflung transfer-study` for a world that needs a GPU: a team, independent agents, one policy and MAP-Elites explore.
Each goal is then learned by PPO from the best of them, from the best of as many random networks, and from scratch: alone, with
an entropy bonus, and with curiosity. Exploration and the choice of an agent count, so those who don't explore learn for longer.
The page, the claims and the numbers are those of the study. Explorers train as in `python -m benchmarks.robots`.

Goals are 4 m away with a radius of 1.5 m: after 25 updates the places of 64 agents fill a circle of about 4 m, so that an agent
comes to each goal now and then. At 8 m and 1 m, the best of 64 agents reached a goal in one episode of twenty, and no goal was
solved. It needs farflung[robotics], farflung[archive] and farflung[compare].
"""

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from benchmarks.robots import Robots, train_all

_KIND_OF = {"team": "team", "one policy": "single", "independent": "independent"}
_STEP_SECONDS, _COPY_SECONDS = 0.0114, 0.97e-6
"""Seconds in which all copies take a step: so much, and so much more for each copy. From the steps a second on one H200, with
learning, for 2 and 10 trainings of 1,024 copies side by side (153,000 and 480,000)."""
_COMPILE_SECONDS = 150
_NUM_WAYS, _EXPLORING = 8, 4


@dataclass(frozen=True)
class AntGoals:
    """Explore, then learn goals on a circle around the start, from all beginnings."""

    explore: tyro.conf.OmitArgPrefixes[Robots] = field(
        default_factory=lambda: Robots(agents=(64,), batch_size=(16,), steps=5_120_000, seeds=3)
    )
    goals: int = 4
    distance: float = 4.0
    """Of the goals from the start, in metres."""
    radius: float = 1.5
    """Metres within which a goal is reached."""
    episodes: int = 4
    """Of each agent, by which the best one for a goal is chosen."""
    goal_batch: int = 256
    """Episodes in an update for a goal."""
    goal_updates: int = 12
    """Updates for a goal after exploration; who does not explore has more, for the same steps in total."""
    goal_gradient_steps: int = 32
    generation: int = 1024
    """Policies in a generation of MAP-Elites."""
    page: Path = Path("ant-goals")
    """Folder for the page, the figures and the numbers."""
    budget: bool = False
    """Print the budget, and do nothing else."""
    tiny: bool = False
    """Check that it runs: a point maze with small numbers, on any machine."""


def main(config: AntGoals) -> None:
    began = time.perf_counter()
    steps = _print_budget(config)
    if config.budget:
        return

    import jax

    from farflung.config import TransferStudy
    from farflung.runs import program_cache
    from farflung.studies.transfer import agent_of
    from farflung.studies.transfer_study.experiment import Sizes, Study, compare_starts
    from farflung.studies.transfer_study.goals import StudyWorld
    from farflung.studies.transfer_study.report import write_study
    from farflung.studies.transfer_study.results import SOLVED

    program_cache.keep_programs()

    def report(number: int, what: str) -> None:
        print(f"{time.perf_counter() - began:4.0f} s: {what}", flush=True)

    teams: dict[str, list[Any]] = {}
    for kinds in (("team", "one policy"), ("independent",)):
        report(0, f"{' and '.join(kinds)} explore")
        world, trained, _ = train_all(replace(config.explore, kinds=kinds), is_measured=False)
        for number in range(len(kinds) * config.explore.seeds):
            kind = _KIND_OF[kinds[number // config.explore.seeds]]
            own = jax.tree.map(lambda leaf, number=number: leaf[number], trained)
            # Agents that never part are one policy, and there is nothing to choose.
            teams.setdefault(kind, []).append(agent_of(own, 0) if kind == "single" else own.separate())
    studied = StudyWorld(config.explore.robot, world, _goals(config, world), int(np.prod(world.projection.bins[:2])))
    study = TransferStudy(
        agents=config.explore.agents[0], goals=config.goals, episodes=config.episodes,
        updates=config.explore.updates_of(config.explore.agents[0], config.explore.batch_size[0]),
        learning_updates=config.goal_updates, seeds=config.explore.seeds,
    )  # fmt: skip
    sizes = Sizes(
        batch_size=config.goal_batch, hidden=config.explore.hidden, steps_per_batch=config.goal_gradient_steps,
        num_minibatches=8, generation=config.generation, are_seeds_together=True,
    )  # fmt: skip
    found = compare_starts(study, config.explore.robot, studied, teams, steps, report, sizes)
    config.page.mkdir(parents=True, exist_ok=True)
    (config.page / "results.npz").write_bytes(found.to_bytes())
    summary = write_study(Study(study, [found], []), config.page / "page", began)
    print(f"\n{config.goals} goals, {config.explore.seeds} seeds, {found.most_steps:,.0f} steps for each way to begin and seed")
    print(f"{'':10} as a start  in the end  goals solved ({100 * SOLVED:.0f}%)  area  last steps")
    for kind, own in found.learning.items():
        shares = own.before.mean(), own.success[..., -1].mean(), own.final.mean(), own.area(found.most_steps).mean()
        print("{:11} {:10.2f} {:11.2f} {:19.2f} {:5.2f}".format(kind, *shares) + f" {own.steps[-1]:11,.0f}")
    print(f"{time.perf_counter() - began:.0f} s in all; see {summary['page']}")


def _goals(config: AntGoals, world: Any) -> np.ndarray:
    """Places on a circle around the start, with the radius."""
    angles = 2 * np.pi * (np.arange(config.goals) + 0.5) / config.goals
    center = np.array([[np.mean(own) for own in zip(world.projection.low[:2], world.projection.high[:2], strict=True)]])
    places = center + config.distance * np.column_stack([np.cos(angles), np.sin(angles)])
    return np.column_stack([places, np.full(config.goals, config.radius)]).astype(np.float32)


def _print_budget(config: AntGoals) -> int:
    """Prints how many steps and about how many seconds all parts take; returns the steps of exploration."""
    own = config.explore
    agents, batch_size, horizon, seeds = own.agents[0], own.batch_size[0], own.horizon, own.seeds
    updates, copies = own.updates_of(agents, batch_size), agents * batch_size
    explored = updates * copies * horizon
    chosen = config.episodes * agents * horizon
    per_update = config.goal_batch * horizon
    most = explored + config.goals * (config.goal_updates * per_update + chosen)
    num_updates = most // (config.goals * per_update)
    generations = max(1, explored // (config.generation * 2 * horizon))
    parts = {
        "team and one policy explore": (updates, 2 * seeds * copies),
        "independent agents explore": (updates, seeds * copies),
        "MAP-Elites": (generations, seeds * 2 * config.generation),
        "those that explored learn goals": (config.goal_updates, _EXPLORING * seeds * config.goals * config.goal_batch),
        "all others learn goals": (num_updates, (_NUM_WAYS - _EXPLORING) * seeds * config.goals * config.goal_batch),
    }
    print(f"steps in total, for each of {_NUM_WAYS} ways to begin and each of {seeds} seeds: {most:,}")
    learned = config.goal_updates * per_update
    print(f"  exploration {explored:,}; for each goal {chosen:,} to choose an agent and {learned:,} to learn")
    print(f"  who does not explore has {num_updates} updates for each goal, who does {config.goal_updates}")
    seconds = float(_COMPILE_SECONDS)
    for what, (number, together) in parts.items():
        part = number * horizon * (_STEP_SECONDS + _COPY_SECONDS * together)
        seconds += part
        print(f"  {what:34} {number:4} updates of {together:6,} copies  {part:4.0f} s")
    print(f"  about {seconds:.0f} s on one H200, with {_COMPILE_SECONDS} s of compilation\n", flush=True)
    return explored


def _tiny(config: AntGoals) -> AntGoals:
    small = Robots(
        robot="point-four-rooms", agents=(3,), batch_size=(4,), horizon=30, steps=1080, seeds=2, minibatches=2, hidden=(8,),
    )  # fmt: skip
    return replace(
        config, explore=small, goals=2, distance=0.5, radius=0.2, episodes=2, goal_batch=4, goal_updates=3,
        goal_gradient_steps=8, generation=10,
    )  # fmt: skip


if __name__ == "__main__":
    asked = tyro.cli(AntGoals)
    main(_tiny(asked) if asked.tiny else asked)
