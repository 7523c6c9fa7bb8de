"""A team against one policy on a robot, on a GPU, and thousands of agents: entropy while they learn, time and memory."""

import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import tyro

TEAM, CAREFUL, ONE, INDEPENDENT = "team", "careful team", "one policy", "independent"
TARGETS = {"nats": 6.35, "million steps": 13.0, "minutes": 3.0, "steps a second": 400_000.0}
"""For the Ant on one H200: a team's entropy over the 24 m square, by when, and the speed with learning included."""


@dataclass(frozen=True)
class Robots:
    """Train teams, and one policy with as many trajectories, on a robot; then time single updates of thousands of agents.

    The one policy is a team whose agents never part: all learn side by side in one program, and differ in nothing else. Places
    are counted in the robot's own grid, and in a square so large that no robot leaves it. By default, everything is done within
    ten minutes on one H200: what is left to train after that is not trained.
    """

    robot: str = "ant"
    agents: tuple[int, ...] = (64, 6)
    """Team sizes, one comparison after the other."""
    batch_size: tuple[int, ...] = (16, 42)
    """Batch elements per update, for each team size."""
    horizon: int = 200
    steps: int = 14_000_000
    """Environment steps of each training, at least."""
    minutes: float = 9.5
    """Trainings stop, complete or not, where the next measurement would come later than this."""
    seeds: int = 5
    engine: str = "warp"
    """Simulator: warp, or jax."""
    solver_iterations: int = 1
    """Newton steps for the contact forces."""
    kinds: tuple[str, ...] = (TEAM, ONE)
    """Of team, "careful team", whose own steps are shorter by the root of the number of agents, and "one policy". Four seeds of
    all three are as many copies of 64 agents as one program holds side by side. Or independent alone: agents that maximise
    their own entropy."""
    policy: str = "neural"
    """What the agents of a team share: neural (nothing), shared-trunk or conditioned."""
    warm_up: float = 0.1
    """Share of the updates in which a team learns as one policy; in as many updates after that, its agents part. If
    agents share parts, 0 is better in point worlds."""
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
    many: tuple[str, ...] = ("point-maze:4096", "ant:1024")
    """Worlds and numbers of agents of which single updates are timed, before the last comparison."""
    many_policy: str = "neural"
    out: Path | None = None
    """A file for the results, in JSON; it is written after each part."""
    draw: Path | None = None
    """Train nothing: draw the results in this file into --figure, a figure for each team size."""
    figure: Path = Path("robots.png")

    def updates_of(self, agents: int, batch_size: int) -> int:
        return math.ceil(self.steps / (batch_size * agents * self.horizon))


@dataclass
class Measured:
    """What was measured while all kinds learned; numbers are [measurement][kind][seed]."""

    settings: dict[str, Any]
    updates: list[int]
    steps: list[int]
    """Environment steps of each training."""
    entropy: list[Any]
    """Over the robot's own grid, in nats."""
    cells: list[Any]
    large_entropy: list[Any]
    """Over the large square."""
    seconds: list[float]
    """Wall clock since the beginning of the comparison, with compilation."""
    paths: list[Any]
    """One episode of each agent of the first seed's teams at the end: [kind][agent][time][feature]."""
    steps_per_second: float
    """Environment steps of all seeds and kinds, learning and measurements included, without compilation."""


class Trained(NamedTuple):
    world: Any
    teams: Any
    """Of all kinds and seeds: kind by kind, along the first axis."""
    measured: Measured


def robot_world(config: Robots, name: str = "") -> Any:
    """The robot, whose episodes all have the same length; or another world, which has its own horizon if it is named here."""
    from farflung import make_world
    from farflung.config.options import ROBOTS

    if name and name not in ROBOTS:
        return make_world(name)
    name = name or config.robot
    if name not in ROBOTS:
        return make_world(name, horizon=config.horizon)
    options: dict[str, Any] = {"engine": config.engine, "solver_iterations": config.solver_iterations}
    return make_world(name, horizon=config.horizon, env_options=options | {"ends_when_unhealthy": False})


def train_all(
    config: Robots,
    *,
    agents: int | None = None,
    batch_size: int | None = None,
    deadline: float = math.inf,
    is_measured: bool = True,
) -> Trained:
    """Trains all kinds and seeds side by side, for a team size (default: the first).

    Args:
        deadline: of `time.perf_counter`; the training ends with the last measurement before it.
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
    agents, batch_size = agents or config.agents[0], batch_size or config.batch_size[0]
    per_update = batch_size * agents * config.horizon
    updates = config.updates_of(agents, batch_size)
    settings = Explore(
        config.robot, agents=agents, batch_size=batch_size, updates=updates, algorithm="actor-critic",
        policy=config.policy, hidden=config.hidden, warm_up=config.warm_up, combinations=config.combinations,
        learning_rate=config.learning_rate, decay=config.decay, minibatches=config.minibatches,
        steps_per_batch=config.minibatches * config.epochs, entropy_bonus=config.entropy_bonus,
    )  # fmt: skip
    if INDEPENDENT in config.kinds:
        if len(config.kinds) > 1:
            raise ValueError("independent agents share nothing and have no warm-up, so they train in a program of their own")
        settings = replace(settings, independent=True, policy="neural", warm_up=0.0)
    of_team = actor_critic(settings, world)
    never = replace(of_team, warm_up_updates=10.0 * updates)
    by_kind = {TEAM: of_team, CAREFUL: replace(of_team, own_share=agents**-0.5), ONE: never, INDEPENDENT: of_team}
    algorithms = [by_kind[kind] for kind in config.kinds for _ in range(config.seeds)]
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

    about_all = asdict(config) | {"agents": agents, "batch_size": batch_size, "out": None, "draw": None, "figure": None}
    found = Measured(about_all, [], [], [], [], [], [], [], math.nan)
    compiled: tuple[int, float] | None = None
    last = began
    pauses = range(0, updates + 1, config.every)
    for progress in train(algorithms, world, seeds, updates, log_every=updates, pause_at=pauses):
        jax.block_until_ready(progress.padded_team)
        now = time.perf_counter()
        if progress.update and compiled is None:
            compiled = progress.update, now
        elif compiled is not None:
            steps = (progress.update - compiled[0]) * per_update * len(seeds)
            found.steps_per_second = steps / (now - compiled[1])
        if not is_measured or (progress.update not in pauses and progress.update != updates):
            continue
        shape = (len(config.kinds), config.seeds)
        values = [np.asarray(each).reshape(shape) for each in measured(world, progress.team, jr.key(progress.update))]
        found.updates.append(progress.update)
        found.steps.append(progress.update * per_update)
        for name, value in zip(("entropy", "cells", "large_entropy"), values, strict=True):
            getattr(found, name).append(value.tolist())
        found.seconds.append(time.perf_counter() - began)
        about = "; ".join(
            f"{kind} {own.mean():.3f} nats, {cells.mean():.0f} cells, large square {large.mean():.3f}"
            for kind, own, cells, large in zip(config.kinds, *values, strict=True)
        )
        print(f"{progress.update:4} updates, {found.steps[-1] / 1e6:5.2f} M steps, {now - began:4.0f} s: {about}", flush=True)
        lasted, last = time.perf_counter() - last, time.perf_counter()
        if last + lasted > deadline and progress.update < updates:
            print(f"stopped after {found.steps[-1] / 1e6:.2f} of {updates * per_update / 1e6:.2f} M steps: the time is up")
            break
    print(
        f"{found.steps_per_second:,.0f} environment steps a second, learning and measurements included, {len(seeds)} trainings "
        f"side by side (target for the Ant: {TARGETS['steps a second']:,.0f})"
    )
    if not is_measured:
        return Trained(world, progress.team, found)
    first = jax.tree.map(lambda leaf: leaf[:: config.seeds], progress.team)
    played = jax.jit(lambda world, team: play(jr.key(0), team, world, 1, 1).states)
    for row in range(len(config.kinds)):
        team = jax.tree.map(lambda leaf, row=row: leaf[row], first)
        places = world.projection.project(played(world, team))[0, :, 0]
        found.paths.append(np.asarray(places).round(2).tolist())
    return Trained(world, progress.team, found)


def table(measured: Measured) -> Iterator[str]:
    """In Markdown: means over the seeds, and the team's lead with Welch's 95% intervals, at each measurement."""
    import numpy as np

    from farflung.runs.statistics import mean_difference

    kinds = list(measured.settings["kinds"])
    teams = [kind for kind in kinds if kind != ONE and ONE in kinds and measured.settings["seeds"] > 1]
    squares = {"entropy": "own square", "large_entropy": "large square"}
    heads = ["million steps", "seconds", *[f"{kind}, {square}" for square in squares.values() for kind in kinds]]
    heads += [f"{kind} minus {ONE}, {square} (95% interval)" for square in squares.values() for kind in teams]
    yield "| " + " | ".join(heads) + " |"
    yield "|" + " ---: |" * len(heads)
    for row, (steps, seconds) in enumerate(zip(measured.steps, measured.seconds, strict=True)):
        values = [np.array(getattr(measured, name)[row]) for name in squares]
        cells = [f"{steps / 1e6:.2f}", f"{seconds:.0f}", *[f"{own.mean():.3f}" for value in values for own in value]]
        for value in values:
            for kind in teams:
                lead = mean_difference(value[kinds.index(kind)], value[kinds.index(ONE)])
                cells.append(f"{lead.value:+.3f} ({lead.low:+.3f} to {lead.high:+.3f})")
        yield "| " + " | ".join(cells) + " |"


def reached(measured: Measured) -> Iterator[str]:
    """When each kind's mean entropy has reached the target."""
    import numpy as np

    nats, steps, minutes, _ = TARGETS.values()
    yield f"Target for the Ant: {nats} nats within {steps:g} million steps and {minutes:g} minutes"
    for number, kind in enumerate(measured.settings["kinds"]):
        means = np.array(measured.entropy)[:, number].mean(axis=1)
        when = np.flatnonzero(means >= nats)
        if not len(when):
            yield f"  {kind}: not reached; the highest mean is {means.max():.3f}"
            continue
        taken, seconds = measured.steps[when[0]] / 1e6, measured.seconds[when[0]]
        verdict = "met" if taken <= steps and seconds <= 60 * minutes else "missed"
        yield f"  {kind}: after {taken:.2f} million steps and {seconds:.0f} s with compilation: {verdict}"


def time_update(config: Robots, name: str, agents: int) -> dict[str, Any]:
    """Seconds and memory of an update with a batch of one: rollout, gains, gradient steps."""
    import jax
    import jax.random as jr

    from farflung import Explore
    from farflung.algorithms.actor_critic import actor_critic
    from farflung.policies.rollout import play

    world = robot_world(config, name)
    settings = Explore(
        name, algorithm="actor-critic", agents=agents, batch_size=1, policy=config.many_policy, hidden=config.hidden
    )
    algorithm = actor_critic(settings, world)

    def update(world: Any, state: Any, key: Any) -> Any:
        return algorithm.learn(world, state, play(key, state.team, world, 1, 1))

    state = jax.jit(lambda key: algorithm.init(key, world))(jr.key(0))
    began = time.perf_counter()
    compiled = jax.jit(update).lower(world, state, jr.key(1)).compile()
    compilation = time.perf_counter() - began
    memory: Any = compiled.memory_analysis()
    planned = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    state = jax.block_until_ready(compiled(world, state, jr.key(1)))
    seconds = []
    for number in range(3):
        began = time.perf_counter()
        state = jax.block_until_ready(compiled(world, state, jr.key(2 + number)))
        seconds.append(time.perf_counter() - began)
    peak = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    found = {
        "world": name, "agents": agents, "policy": config.many_policy, "steps": agents * world.horizon,
        "seconds": min(seconds), "compilation": compilation, "planned_bytes": planned, "peak_bytes_of_process": peak,
    }  # fmt: skip
    print(
        f"{name}, {agents:,} agents ({config.many_policy}, batch of 1): {found['steps']:,} steps in {min(seconds):.2f} s an "
        f"update, learning included; {planned / 1e6:,.0f} MB as XLA plans it; compiled in {compilation:.0f} s",
        flush=True,
    )
    return found


def draw(measured: dict[str, Any], path: Path) -> None:
    """The entropy over both squares while all learn, and one episode of each agent at the end."""
    import numpy as np
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    from farflung.runs.statistics import mean_and_interval

    settings, half_width = measured["settings"], 30.0
    kinds = settings["kinds"]
    figure = Figure(figsize=(3.6 * (2 + len(kinds)), 3.7), layout="constrained")
    panels = figure.subplots(1, 2 + len(kinds))
    steps = np.array(measured["steps"]) / 1e6
    squares = ("entropy", "its own square"), ("large_entropy", "a square of 120 m, 100 x 100 cells")
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
        for number, measured in enumerate(json.loads(config.draw.read_text(encoding="utf-8"))["comparisons"]):
            stem = config.figure.stem + f"-{measured['settings']['agents']}" * (number > 0)
            draw(measured, config.figure.with_stem(stem))
        return
    deadline = time.perf_counter() + 60 * config.minutes
    results: dict[str, list[Any]] = {"comparisons": [], "many": []}

    def keep() -> None:
        if config.out is not None:
            config.out.write_text(json.dumps(results), encoding="utf-8")

    for number, (agents, batch_size) in enumerate(zip(config.agents, config.batch_size, strict=True)):
        if number == len(config.agents) - 1:
            for each in config.many:
                world, _, size = each.partition(":")
                results["many"].append(time_update(config, world, int(size)))
                keep()
        print(f"\n{config.robot}, {agents} agents, batches of {batch_size}, {config.seeds} seeds", flush=True)
        measured = train_all(config, agents=agents, batch_size=batch_size, deadline=deadline).measured
        results["comparisons"].append(asdict(measured))
        keep()
        print(*table(measured), *reached(measured), sep="\n", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Robots))
