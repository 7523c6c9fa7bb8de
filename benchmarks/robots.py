"""A team against one policy on a robot, on a GPU: the entropy of their places while they learn, and steps a second."""

import json
import math
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import tyro

KINDS = ("team", "one policy")


@dataclass(frozen=True)
class Robots:
    """Train a team, and one policy with as many trajectories; print the entropy of their places while they learn.

    The one policy is a team whose agents never part: all learn side by side in one program, and differ in nothing else. Places
    are counted in the robot's own grid, and in a square so large that no robot leaves it.
    """

    robot: str = "ant"
    agents: int = 64
    batch_size: int = 16
    horizon: int = 200
    updates: int = 70
    seeds: int = 5
    engine: str = "warp"
    """Simulator: warp, or jax."""
    solver_iterations: int = 1
    """Newton steps for the contact forces."""
    kinds: tuple[str, ...] = KINDS
    """team and one policy; or independent, agents that maximise their own entropy."""
    policy: str = "shared-trunk"
    """What the agents of a team share: shared-trunk, or neural for nothing."""
    warm_up: float = 0.2
    """Share of the updates in which a team learns as one policy; in as many updates after that, its agents part."""
    combinations: int = 1
    learning_rate: float = 5e-4
    decay: float = 1.0
    hidden: tuple[int, ...] = (128, 128)
    minibatches: int = 16
    epochs: int = 4
    """Times that a batch is learned from."""
    entropy_bonus: float = 0.003
    every: int = 10
    """Updates between two measurements."""
    elements: int = 4
    """Batch elements that are played for a measurement."""
    half_width: float = 60.0
    """Half the side of the large square, in metres; it has 100 x 100 cells."""
    out: Path | None = None
    """A file for the results, in JSON."""
    draw: Path | None = None
    """Train nothing: draw the results in this file into --figure."""
    figure: Path = Path("robots.png")


@dataclass
class Measured:
    """What was measured while all kinds learned; numbers are [measurement][kind][seed]."""

    settings: dict[str, Any]
    updates: list[int]
    entropy: list[Any]
    """Over the robot's own grid, in nats."""
    cells: list[Any]
    large_entropy: list[Any]
    """Over the large square."""
    seconds: list[float]
    """Wall clock since the beginning, with compilation."""
    paths: list[Any]
    """One episode of each agent of the first seed's teams at the end: [kind][agent][time][feature]."""
    steps_per_second: float
    """Environment steps of all seeds and kinds, learning and measurements included, without compilation."""


class Trained(NamedTuple):
    world: Any
    teams: Any
    """Of all kinds and seeds: kind by kind, along the first axis."""
    measured: Measured


def robot_world(config: Robots) -> Any:
    """The robot, whose episodes all have the same length; or any other world by its name, to try things out."""
    from farflung import make_world
    from farflung.config.options import ROBOTS

    if config.robot not in ROBOTS:
        return make_world(config.robot, horizon=config.horizon)
    options: dict[str, Any] = {"engine": config.engine, "solver_iterations": config.solver_iterations}
    return make_world(config.robot, horizon=config.horizon, env_options=options | {"ends_when_unhealthy": False})


def train_all(config: Robots, *, is_measured: bool = True) -> Trained:
    """Trains all kinds and seeds side by side.

    Args:
        is_measured: whether the entropy is measured and episodes are recorded on the way, which takes two more programs.
    """
    import jax
    import jax.random as jr
    import numpy as np

    from farflung import Explore, train
    from farflung.algorithms.actor_critic import actor_critic
    from farflung.entropy.counts import entropy_of_counts
    from farflung.numerics.arrays import count_by_index
    from farflung.policies.rollout import play

    began = time.perf_counter()
    world = robot_world(config)
    settings = Explore(
        config.robot, agents=config.agents, batch_size=config.batch_size, updates=config.updates, algorithm="actor-critic",
        policy=config.policy, hidden=config.hidden, warm_up=config.warm_up, combinations=config.combinations,
        learning_rate=config.learning_rate, decay=config.decay, minibatches=config.minibatches,
        steps_per_batch=config.minibatches * config.epochs, entropy_bonus=config.entropy_bonus,
    )  # fmt: skip
    if "independent" in config.kinds:
        if len(config.kinds) > 1:
            raise ValueError("independent agents share nothing and have no warm-up, so they train in a program of their own")
        settings = replace(settings, independent=True, policy="neural", warm_up=0.0)
    of_team = actor_critic(settings, world)
    never = replace(of_team, warm_up_updates=10.0 * config.updates)
    algorithms = [never if kind == "one policy" else of_team for kind in config.kinds for _ in range(config.seeds)]
    seeds = list(range(len(algorithms)))  # the kinds have seeds of their own
    grids = world.projection, replace(
        world.projection, low=(-config.half_width,) * 2, high=(config.half_width,) * 2, bins=(100, 100)
    )  # fmt: skip

    @jax.jit
    def measured(world: Any, teams: Any, key: Any) -> Any:
        def of_team(team: Any) -> Any:
            states = play(key, team, world, config.elements, 1).states
            counts = [
                jax.vmap(lambda own, size=grid.num_cells: count_by_index(own, size))(grid.cells(states)) for grid in grids
            ]
            own, large = (entropy_of_counts(each, states[0, ..., 0].size).mean() for each in counts)
            return own, (counts[0] > 0).sum(axis=-1).mean(), large

        return jax.vmap(of_team)(teams)

    found = Measured(asdict(config) | {"out": None, "draw": None, "figure": None}, [], [], [], [], [], [], math.nan)
    per_update = config.batch_size * config.agents * config.horizon
    compiled: tuple[int, float] | None = None
    pauses = range(0, config.updates + 1, config.every)
    for progress in train(algorithms, world, seeds, config.updates, log_every=config.updates, pause_at=pauses):
        jax.block_until_ready(progress.padded_team)
        now = time.perf_counter()
        if progress.update and compiled is None:
            compiled = progress.update, now
        elif compiled is not None:
            steps = (progress.update - compiled[0]) * per_update * len(seeds)
            found.steps_per_second = steps / (now - compiled[1])
        if progress.update not in pauses or not is_measured:
            continue
        shape = (len(config.kinds), config.seeds)
        values = [np.asarray(each).reshape(shape) for each in measured(world, progress.team, jr.key(progress.update))]
        found.updates.append(progress.update)
        for name, value in zip(("entropy", "cells", "large_entropy"), values, strict=True):
            getattr(found, name).append(value.tolist())
        found.seconds.append(time.perf_counter() - began)
        about = "; ".join(
            f"{kind} {own.mean():.3f} nats, {cells.mean():.0f} cells, large square {large.mean():.3f}"
            for kind, own, cells, large in zip(config.kinds, *values, strict=True)
        )
        print(f"{progress.update:4} updates, {progress.update * per_update / 1e6:5.1f} M steps, {now - began:4.0f} s: {about}",
              flush=True)  # fmt: skip
    print(f"{found.steps_per_second:,.0f} environment steps a second, learning included, {len(seeds)} trainings side by side")
    if not is_measured:
        return Trained(world, progress.team, found)
    first = jax.tree.map(lambda leaf: leaf[:: config.seeds], progress.team)
    played = jax.jit(lambda world, team: play(jr.key(0), team, world, 1, 1).states)
    for row in range(len(config.kinds)):
        team = jax.tree.map(lambda leaf, row=row: leaf[row], first)
        places = world.projection.project(played(world, team))[0, :, 0]
        found.paths.append(np.asarray(places).round(2).tolist())
    return Trained(world, progress.team, found)


def compare(config: Robots, measured: Measured) -> None:
    """Prints the team's lead at each measurement, with Welch's 95% intervals over the seeds."""
    import numpy as np

    from farflung.runs.statistics import mean_difference

    print("team minus one policy, nats (95% interval): own grid; large square")
    for update, *values in zip(measured.updates, measured.entropy, measured.large_entropy, strict=True):
        leads = [mean_difference(*np.array(value)) for value in values]
        print(f"{update:4} updates: " + "; ".join(f"{each.value:+.3f} ({each.low:+.3f} to {each.high:+.3f})" for each in leads))


def draw(measured: dict[str, Any], path: Path) -> None:
    """The entropy over both squares while all learn, and one episode of each agent at the end."""
    import numpy as np
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    from farflung.runs.statistics import mean_and_interval

    settings, half_width = measured["settings"], 30.0
    kinds, agents = settings["kinds"], settings["agents"]
    figure = Figure(figsize=(3.6 * (2 + len(kinds)), 3.7), layout="constrained")
    panels = figure.subplots(1, 2 + len(kinds))
    steps = np.array(measured["updates"]) * settings["batch_size"] * agents * settings["horizon"] / 1e6
    squares = ("entropy", "24 m square, 40 x 40 cells"), ("large_entropy", "120 m square, 100 x 100 cells")
    for axes, (name, about) in zip(panels[:2], squares, strict=True):
        for number, kind in enumerate(kinds):
            mean, half = mean_and_interval(np.moveaxis(np.array(measured[name])[:, number], 1, 0))
            axes.plot(steps, mean, color=f"C{number}", label=kind)
            if half is not None:
                axes.fill_between(steps, mean - half, mean + half, color=f"C{number}", alpha=0.2, linewidth=0)
        axes.set(title=about, xlabel="million environment steps", ylabel="entropy (nats)")
        axes.grid(alpha=0.3)
    panels[0].legend()
    for axes, kind, own in zip(panels[2:], kinds, measured["paths"], strict=True):
        for number, places in enumerate(np.array(own)):
            axes.plot(*places.T, linewidth=0.8, color=colormaps["viridis"](number / max(1, len(own) - 1)))
        limits = (-half_width, half_width)
        axes.set(title=f"{kind}: {len(own)} episodes", aspect="equal", xlim=limits, ylim=limits, xlabel="x (m)", ylabel="y (m)")
    figure.savefig(path, dpi=110, metadata={"Software": None})


def main(config: Robots) -> None:
    if config.draw is not None:
        draw(json.loads(config.draw.read_text(encoding="utf-8")), config.figure)
        return
    measured = train_all(config).measured
    if config.out is not None:
        config.out.write_text(json.dumps(asdict(measured)), encoding="utf-8")
    if config.kinds == KINDS and config.seeds > 1:
        compare(config, measured)


if __name__ == "__main__":
    main(tyro.cli(Robots))
