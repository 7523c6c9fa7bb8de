"""Train a team on one world: the work behind `farflung explore`."""

import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.random as jr
import numpy as np

from farflung import figures, runs
from farflung.algorithms import PGPSE
from farflung.config import Explore
from farflung.environments import TabularMDP, make_world
from farflung.metrics import Metrics, measure
from farflung.policies import uniform_team
from farflung.rollout import play
from farflung.runs import Run
from farflung.training import train


class Status(NamedTuple):
    """What a progress display needs to know."""

    update: int
    num_updates: int
    steps_per_second: float
    normalized_entropy: float | None
    """As last recorded, averaged over the seeds; None before that."""
    support: float | None


def explore(
    world: str | TabularMDP,
    *,
    out: str | Path | None = None,
    force: bool = False,
    on_progress: Callable[[Status], None] | None = None,
    **settings: Any,
) -> Run:
    """Trains a team of agents to visit, together, as many different states as evenly as possible.

    An interrupt (Ctrl-C) ends the training early and returns, and saves, what there is.

    >>> run = explore("room-det", agents=2, updates=20, seeds=(0, 1))
    >>> run.metrics.entropy.shape == (2, len(run.updates))
    True

    Args:
        world: a world, or its name as `farflung explore` takes it.
        out: the directory to save the run in; by default nothing is written.
        force: replace a run that is already there.
        on_progress: called a few times a second.
        settings: the other fields of `farflung.Explore`, such as `agents`, `updates` and `seeds`.
    """
    if isinstance(world, TabularMDP):
        if settings.get("horizon") is not None or settings.get("slip") is not None:
            raise ValueError("horizon and slip are part of the world that was given")
        config, environment = Explore("custom", **settings), world
    else:
        config = Explore(world, **settings)
        environment = make_world(config.world, horizon=config.horizon, slip=config.slip)
    if out is not None:
        runs.check_destination(Path(out), force)
    run = _train(config, environment, on_progress)
    if out is not None:
        runs.save_run(run, Path(out), force=force, figures={"figure": figures.explored(run)})
    return run


def _train(config: Explore, world: TabularMDP, on_progress: Callable[[Status], None] | None) -> Run:
    per_update = runs.steps_per_update(config, world) * len(config.seeds)
    updates, metrics = [], []
    latest, is_interrupted = None, False
    began = time.perf_counter()
    try:
        for progress in train(_algorithm(config), world, config.seeds, config.updates, config.log_every):
            if latest is None:
                compile_seconds = time.perf_counter() - began
                began = time.perf_counter()
            latest = progress
            updates.append(progress.recorded)
            metrics.append(progress.metrics)
            if on_progress is not None:
                rate = progress.update * per_update / (time.perf_counter() - began)
                shown = next((m for m in reversed(metrics) if m.entropy.size), None)
                on_progress(
                    Status(
                        progress.update,
                        config.updates,
                        rate,
                        None if shown is None else float(shown.normalized_entropy[:, -1].mean()),
                        None if shown is None else float(shown.support[:, -1].mean()),
                    )
                )
    except KeyboardInterrupt:
        is_interrupted = True
        if not any(len(recorded) for recorded in updates):
            raise
    assert latest is not None
    seconds = time.perf_counter() - began
    recorded = np.concatenate(updates)
    columns = Metrics(*(np.concatenate(column, axis=1) for column in zip(*metrics, strict=True)))
    summary = {
        "farflung": version("farflung"),
        "world": config.world,
        "states": world.num_states,
        "actions": world.num_actions,
        "horizon": world.horizon,
        "agents": config.agents,
        "single": config.single,
        "updates": latest.update,
        "is_interrupted": is_interrupted,
        "seeds": list(config.seeds),
        "environment_steps": latest.update * per_update,
        "seconds": seconds,
        "compile_seconds": compile_seconds,
        "steps_per_second": latest.update * per_update / seconds,
        "device": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
        "final": {name: values.tolist() for name, values in runs.final_values(recorded, columns).items()},
        "random": {name: float(value) for name, value in random_baseline(config, world)._asdict().items()},
    }
    return Run(config, world, recorded, columns, latest.team, summary)


def _algorithm(config: Explore) -> PGPSE:
    return PGPSE(
        num_agents=1 if config.single else config.agents,
        num_trajectories=config.trajectories * (config.agents if config.single else 1),
        batch_size=config.batch_size,
        optimizer=config.optimizer,
        learning_rate=config.learning_rate,
        decay=config.decay,
        credit=config.credit,
        is_time_dependent=config.policy == "time-dependent",
    )


def random_baseline(config: Explore, world: TabularMDP) -> Metrics:
    """The metrics of a team that acts uniformly at random, over about a million steps."""
    per_element = config.agents * config.trajectories * world.horizon
    batch_size = int(np.clip(1_000_000 // max(per_element, world.num_states), 4, 4096))
    return _measure_random(world, config.agents, batch_size, config.trajectories)


@partial(jax.jit, static_argnums=(1, 2, 3))
def _measure_random(world: TabularMDP, num_agents: int, batch_size: int, num_trajectories: int) -> Metrics:
    team = uniform_team(world, num_agents)
    return measure(team, play(jr.key(0), team, world, batch_size, num_trajectories), world.num_states)
