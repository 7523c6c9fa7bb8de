"""Train a team on one world: the work behind `farflung explore`."""

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from farflung import figures
from farflung.bounds.ceilings import Ceiling, ceiling, ceiling_by_counting
from farflung.config import Explore
from farflung.config.checks import check_checkpoints
from farflung.figures import notebook
from farflung.loggers import Logger, resolved
from farflung.loggers.logger import LoggerGroup, finals_of
from farflung.numerics.compilation import REPRODUCIBLE, ReproducibleIfWorld
from farflung.policies import TabularSoftmax, UniformPolicy, uniform_team
from farflung.policies.rollout import play
from farflung.runs import interrupts
from farflung.runs import run as runs
from farflung.runs.checkpoints import MINUTES, Checkpointer, new_checkpoints, open_checkpoints
from farflung.runs.run import Paths, Run, typical_seed
from farflung.studies.trials import Status, begin, finish
from farflung.training.divergence import check_num_samples, share_of_duplicates
from farflung.training.hosted import measure_random
from farflung.training.metrics import Metrics, measure, measure_vectors, normalized
from farflung.training.progress import ELEMENTS_SHOWN
from farflung.worlds.hosted.pool import SimulatorWarning
from farflung.worlds.named import make_world
from farflung.worlds.tabular import TabularMDP
from farflung.worlds.world import World

_CEILING_SECONDS = 5
_LOGS = Path("logs")


def explore(
    world: str | Path | World,
    *,
    out: str | Path | None = None,
    force: bool = False,
    on_progress: Callable[[Status], None] | None = None,
    loggers: Sequence[Logger | str] = (),
    live: bool = True,
    checkpoint_minutes: float = MINUTES,
    checkpoint_updates: int | None = None,
    **settings: Any,
) -> Run:
    """Trains a team of agents to visit, together, as many different states as evenly as possible.

    An interrupt (Ctrl-C) ends the training early and returns, and saves, what there is; `resume` goes on with it.

    >>> run = explore("room-det", agents=2, updates=20, seeds=(0, 1))
    >>> run.metrics.entropy.shape == (2, len(run.updates))
    True

    Args:
        world: a world, or its name as `farflung explore` takes it.
        out: the directory to save the run in; by default nothing is written.
        force: replace a run that is already there.
        on_progress: called a few times a second.
        loggers: what follows the training; `tensorboard`, `csv`, `wandb` and `trackio` write to a new folder in `logs`.
        live: in a notebook, show the curve while it is learnt, unless there is an `on_progress`.
        checkpoint_minutes: how often everything that it takes to go on is written to `out`.
        checkpoint_updates: after how many updates that is done at the latest.
        settings: the other fields of `farflung.Explore`, such as `agents`, `updates` and `seeds`.
    """
    check_checkpoints(checkpoint_minutes, checkpoint_updates)
    environment: World
    if isinstance(world, World):
        if settings.get("horizon") is not None or settings.get("slip") is not None:
            raise ValueError("horizon and slip are part of the world that was given")
        config = Explore(world.name, **settings)
        environment = world.with_environment()
    else:
        config = Explore(str(world), **settings)
        environment = make_world(config.world, horizon=config.horizon, slip=config.slip)
    if environment.projection is not None:
        config = config.with_networks()
        check_num_samples(config, environment.projection, environment.horizon)
    else:
        config = config.with_tables()
    if out is None:
        return _train(config, environment, None, on_progress, loggers, live=live)
    out = Path(out)
    runs.check_destination(out, force)
    with new_checkpoints(out, config, environment, checkpoint_minutes, checkpoint_updates) as checkpointer:
        return _train(config, environment, checkpointer, on_progress, loggers, live=live)


def resume(
    path: str | Path,
    *,
    world: World | None = None,
    on_progress: Callable[[Status], None] | None = None,
    loggers: Sequence[Logger | str] = (),
    live: bool = True,
    checkpoint_minutes: float = MINUTES,
    checkpoint_updates: int | None = None,
) -> Run:
    """Goes on with a training that was cut short; on the same kind of device it ends, bit for bit, as if nothing had happened.

    Args:
        path: the directory that its run was to be saved in.
        world: that of the run, where only the program that began it can make it again.
    """
    check_checkpoints(checkpoint_minutes, checkpoint_updates)
    with open_checkpoints(Path(path), world, checkpoint_minutes, checkpoint_updates) as checkpointer:
        return _train(checkpointer.config, checkpointer.world, checkpointer, on_progress, loggers, live=live)


def _train(
    config: Explore,
    world: World,
    checkpointer: Checkpointer | None,
    on_progress: Callable[[Status], None] | None,
    loggers: Sequence[Logger | str],
    *,
    live: bool,
) -> Run:
    """Trains from the start, or from where a checkpoint stands, and has the run saved where there is a checkpointer."""
    checkpoint = None if checkpointer is None else checkpointer.latest()
    if checkpoint is not None and checkpoint.world is not None:
        world.add_states_of(checkpoint.world)
    name = config.name if checkpointer is None else checkpointer.out.resolve().name
    with (
        contextlib.nullcontext() if checkpointer is None else checkpointer.resume_hint(),
        interrupts.stoppable(),
        resolved(loggers, _LOGS, name) as chosen,
        LoggerGroup(config) as followers,
    ):
        for logger in chosen:
            followers.add(logger)
        if checkpointer is not None:
            checkpointer.check_alone()  # a logger may have put its files there
        if on_progress is not None:
            on_progress(Status(0, config.updates, 0.0, None, None))
        with ThreadPoolExecutor(1) as pool:  # the ceiling is computed while the team trains
            highest = pool.submit(_ceiling, config, world)
            if live and on_progress is None and notebook.is_notebook():
                followers.add(notebook.LiveCurve(highest))
            trials = begin([config], [world], training_state=None if checkpoint is None else checkpoint.training_state)
            (run,) = finish(trials, on_progress, followers.log, checkpointer, checkpoint)
        baseline = _baseline(config, world)
        percentages = highest.result().percentage(np.asarray(run.summary["final"]["entropy"])).tolist()
        further = {
            **({} if baseline is None else {"random": baseline}),
            "ceiling": highest.result().as_json(),
            "percent_of_ceiling": percentages,
        }
        run = _with_paths(dataclasses.replace(run, summary={**run.summary, **further}))
        followers.finals = finals_of(run.summary)
        if checkpointer is not None:
            runs.save_run(run, checkpointer.out, force=True, figures={"figure": figures.explored(run)})
            if not run.summary["is_interrupted"] and "stopped_because" not in run.summary:
                checkpointer.discard()
    return run


def _baseline(config: Explore, world: World) -> dict[str, float] | None:
    """The metrics of random actions; None if a simulator cannot stand them, for which no training must be lost."""
    try:
        return {name: float(value) for name, value in _of_random_actions(config, world).columns.items()}
    except ValueError as error:
        if not world.is_hosted:
            raise
        warnings.warn(f"random actions were not measured: {error}", SimulatorWarning, stacklevel=3)
        return None


def _with_paths(run: Run) -> Run:
    """With a few episodes of the typical team, to look at; where only a simulator can play, those of the last record."""
    if run.world.projection is None:
        return run
    seed, projection = typical_seed(run), run.world.projection
    if run.host_statistics is not None:
        assert run.host_statistics.features is not None
        features = run.host_statistics.features[run.config.seeds.index(seed)]
    else:
        played = _play[run.world](
            jr.key(0), run.team(seed).policies, run.world, ELEMENTS_SHOWN, run.config.trajectories_per_policy
        )
        features = np.asarray(projection.project(played.states))
    paths = Paths(seed, features)
    if projection.neighbours == 0:
        return dataclasses.replace(run, paths=paths)
    alike = share_of_duplicates(run.config.world, paths.features, projection)
    return dataclasses.replace(run, paths=paths, summary={**run.summary, "alike": alike})


def _ceiling(config: Explore, world: World) -> Ceiling:
    if world.table is not None:
        return ceiling(world, config.agents, trajectories=config.trajectories, time_limit=_CEILING_SECONDS)
    num_samples = config.agents * config.trajectories * (world.horizon + 1)
    return ceiling_by_counting(num_samples, world.num_states if world.knows_all_states else None)


def _of_random_actions(config: Explore, world: World) -> Metrics:
    if world.is_hosted and world.projection is None:
        num_states = world.num_states  # that of the run: random actions may find more
        found = measure_random(world.snapshot(), config.agents, config.batch_size, config.trajectories)
        return found._replace(normalized_entropy=normalized(found.entropy, num_states))
    if world.is_hosted:
        return measure_random(world, config.agents, config.batch_size, config.trajectories)
    if world.projection is not None:
        team = UniformPolicy(world.actions, config.agents)
        batch = _play[world](jr.key(0), team, world, config.batch_size, config.trajectories)
        return measure_vectors(team, batch, world.projection, world.num_states)
    assert world.table is not None
    return random_baseline(config, world.table)


def random_baseline(config: Explore, world: TabularMDP) -> Metrics:
    """The metrics of a team that acts uniformly at random, over about a million steps."""
    per_element = config.agents * config.trajectories * world.horizon
    batch_size = int(np.clip(1_000_000 // max(per_element, world.num_states), 4, 4096))
    return _measure(jr.key(0), uniform_team(world, config.agents), world, batch_size, config.trajectories)


_play = ReproducibleIfWorld(play, static_argnums=(3, 4))


@partial(jax.jit, static_argnums=(3, 4), compiler_options=REPRODUCIBLE)
def _measure(key: PRNGKeyArray, team: TabularSoftmax, world: TabularMDP, batch_size: int, num_trajectories: int) -> Metrics:
    return measure(team, play(key, team, world, batch_size, num_trajectories), world.num_states)
