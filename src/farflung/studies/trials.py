"""Trainings from configs: begun, which compiles, and finished, which makes runs of them."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import chain
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from farflung.algorithms import PGPSE
from farflung.config import Explore
from farflung.runs import interrupts
from farflung.runs import run as runs
from farflung.runs.checkpoints import Checkpoint, Checkpointer
from farflung.runs.interrupts import Stopped
from farflung.runs.metrics_table import MetricsTable
from farflung.runs.run import Run
from farflung.runs.teams import networks_of
from farflung.training.divergence import TrainingMonitor
from farflung.training.hosted import train_hosted
from farflung.training.loop import train
from farflung.training.metrics import Metrics, normalized
from farflung.training.progress import HostStatistics, Progress, TrainingState
from farflung.worlds.world import World

_MOST_LOGITS = 2_000_000
_LEAST_GROWTH = 1e-3


class Status(NamedTuple):
    """What a progress display needs to know."""

    update: int
    num_updates: int
    steps_per_second: float
    normalized_entropy: float | None
    """As last recorded, averaged over the seeds; None before that."""
    support: float | None


@dataclass(frozen=True)
class Trials:
    """Configs that train side by side, compiled and ready to go."""

    configs: Sequence[Explore]
    worlds: Sequence[World]
    """Of each config."""
    start: Progress
    progress: Iterator[Progress]
    compile_seconds: float

    @property
    def steps_per_update(self) -> int:
        pairs = zip(self.configs, self.worlds, strict=True)
        return sum(runs.steps_per_update(config, world) * len(config.seeds) for config, world in pairs)


def begin(
    configs: Sequence[Explore],
    worlds: Sequence[World],
    num_successors: int | None = None,
    training_state: TrainingState | None = None,
) -> Trials:
    """Compiles the training of configs that differ in numbers and worlds alone.

    Args:
        worlds: that of each config.
        num_successors: to which the worlds' lists are widened, for worlds that differ in that.
        training_state: of an earlier training, from which it goes on.
    """
    began = time.perf_counter()
    config = configs[0]
    algorithm = algorithm_of(configs, worlds[0])
    seeds, schedule = config.seeds * len(configs), (config.updates, config.log_every, pause_every(config), training_state)
    if worlds[0].is_hosted:
        progress = train_hosted(algorithm, worlds[0], seeds, *schedule)
    elif worlds[0].table is None:
        progress = train(algorithm, worlds[0], seeds, *schedule)
    else:
        tables = [world.table for world in worlds if world.table is not None]
        played = [world.widened(num_successors or world.num_successors) for world in tables]
        is_shared = all(world is worlds[0] for world in worlds)
        each = played[0] if is_shared else [world for world in played for _ in config.seeds]
        progress = train(algorithm, each, seeds, *schedule)
    start = next(progress)
    return Trials(configs, worlds, start, progress, time.perf_counter() - began)


def algorithm_of(configs: Sequence[Explore], world: World) -> PGPSE:
    config = configs[0]

    def by_seed(name: str) -> Float[np.ndarray, " seed"]:
        return np.repeat([getattr(config, name) for config in configs], len(config.seeds))

    return PGPSE(
        num_agents=config.num_policies,
        num_trajectories=config.trajectories_per_policy,
        batch_size=config.batch_size,
        optimizer=config.optimizer,
        learning_rate=by_seed("learning_rate"),
        decay=by_seed("decay"),
        credit=config.credit,
        num_combinations=config.combinations,
        is_independent=config.independent,
        is_time_dependent=is_time_dependent(config, world),
        networks=networks_of(config) if config.is_neural else None,
        init_scale=by_seed("init_scale"),
        entropy_bonus=by_seed("entropy_bonus") if any(config.entropy_bonus for config in configs) else None,
        bonus_decay=by_seed("bonus_decay"),
        steps_per_batch=config.steps_per_batch,
        clip=by_seed("clip"),
    )


def is_time_dependent(config: Explore, world: World) -> bool:
    """Whether the policies get a table for each time: if asked for, or with `auto` where that is sure to stay small."""
    if world.projection is not None:
        return False
    num_logits = config.num_policies * world.horizon * world.num_states * world.num_actions
    is_small = num_logits <= _MOST_LOGITS and world.knows_all_states
    return config.policy == "time-dependent" or (config.policy == "auto" and is_small)


def finish(
    trials: Trials,
    on_progress: Callable[[Status], None] | None = None,
    on_records: Callable[[Int[np.ndarray, " record"], Int[np.ndarray, " record"], Metrics], None] | None = None,
    checkpointer: Checkpointer | None = None,
    checkpoint: Checkpoint | None = None,
) -> list[Run]:
    """Trains to the end and returns a run per config; after an interrupt what there is, if something was recorded.

    Args:
        on_records: told what was recorded at which updates, after how many steps of a seed, each once and soon.
        checkpointer: writes checkpoints, from time to time and at the end.
        checkpoint: from which the trials go on.
    """
    num_updates = trials.configs[0].updates
    latest, is_interrupted, is_flat = trials.start, False, False
    trouble, seeds = TrainingMonitor(trials.configs, trials.worlds, latest), trials.configs[0].seeds * len(trials.configs)
    records = checkpoint.records if checkpoint else checkpointer.new_metrics_table() if checkpointer else MetricsTable(seeds)
    before = checkpoint.seconds if checkpoint else 0.0
    if records and on_records is not None:
        on_records(*records.table())
    began, num_before = time.perf_counter(), _num_steps(trials, latest)

    def seconds() -> float:
        return before + time.perf_counter() - began

    try:
        for reached in chain([latest], trials.progress):
            is_diverged = trouble.has_diverged(reached)
            if is_diverged and reached.divergence is None:
                break
            latest = reached
            steps = _steps(trials, latest)
            records.add(latest.recorded, steps, latest.metrics)
            if on_records is not None and len(latest.recorded):
                on_records(latest.recorded, steps, latest.metrics)
            if on_progress is not None and latest is not trials.start:
                rate = (_num_steps(trials, latest) - num_before) / (time.perf_counter() - began)
                on_progress(Status(latest.update, num_updates, rate, *records.shown))
            is_interrupted = interrupts.asked() is not None and latest.update < num_updates
            is_flat = _is_due(trials.configs[0], latest.update) and _is_flat(records)
            if is_diverged or is_interrupted or is_flat or trouble.is_too_much(latest):
                break
            if checkpointer is not None and checkpointer.is_due(latest):
                checkpointer.write(latest, records, seconds())
    except KeyboardInterrupt:
        is_interrupted = True
    finally:
        if is_interrupted:
            jax.block_until_ready(jax.live_arrays())  # what was under way must not outlive the process
        if checkpointer is not None and latest.update > 0 and records:
            checkpointer.write(latest, records, seconds())
    if not records:
        if trouble.reason:
            raise ValueError(trouble.reason)
        raise Stopped
    recorded, steps, table = records.table()
    finished = []
    for number, (config, world) in enumerate(zip(trials.configs, trials.worlds, strict=True)):
        rows = slice(number * len(config.seeds), (number + 1) * len(config.seeds))
        own = jax.tree.map(lambda column, rows=rows: column[rows], table)
        world = world.snapshot()  # only now is it known how many states there are
        if world.is_hosted and world.projection is None:
            own = own._replace(normalized_entropy=normalized(own.entropy, world.num_states))
        # On one device from here on: what is spread over several does not mix with a user's other arrays.
        team = jax.tree.map(lambda leaf, rows=rows: jnp.asarray(np.asarray(leaf)[rows]), latest.padded_team)
        summary = _summary(trials, config, world, latest, seconds())
        summary |= {"is_interrupted": is_interrupted, "is_stopped_early": is_flat and latest.update < num_updates}
        summary |= trouble.as_json()
        summary["final"] = {name: values.tolist() for name, values in runs.final_values(recorded, own).items()}
        finished.append(Run(config, world, recorded, own, team, summary, _counted(latest, steps, rows, world)))
    return finished


def _counted(latest: Progress, steps: Int[np.ndarray, " record"], rows: slice, world: World) -> HostStatistics | None:
    if latest.host_statistics is None:
        return None
    visits = latest.host_statistics.visits[rows]
    num_more = world.num_states - visits.shape[-1] if world.projection is None else 0
    with_all = np.pad(visits, ((0, 0), (0, 0), (0, num_more)))
    features = None if latest.host_statistics.features is None else latest.host_statistics.features[rows]
    return HostStatistics(steps, with_all, latest.host_statistics.num_steps, features)


def _steps(trials: Trials, progress: Progress) -> Int[np.ndarray, " record"]:
    """The environment steps of one seed's team up to each record."""
    if progress.host_statistics is not None:
        return progress.host_statistics.steps
    return progress.recorded.astype(np.int64) * runs.steps_per_update(trials.configs[0], trials.worlds[0])


def _num_steps(trials: Trials, progress: Progress) -> int:
    """The environment steps of all seeds so far."""
    if progress.host_statistics is not None:
        return progress.host_statistics.num_steps
    return progress.update * trials.steps_per_update


def pause_every(config: Explore) -> int | None:
    """After how many updates it is checked whether the curve has become flat; always the same, whatever the machine's speed."""
    return max(1, config.updates // 20) if config.stop_when_flat else None


def _is_due(config: Explore, update: int) -> bool:
    interval = pause_every(config)
    return interval is not None and update >= 4 * interval and update % interval == 0


def _is_flat(records: MetricsTable) -> bool:
    updates, _, metrics = records.table()
    return has_stopped_growing(updates, np.asarray(metrics.entropy))


def has_stopped_growing(updates: Int[np.ndarray, " record"], entropy: Float[np.ndarray, "seed record"]) -> bool:
    """Whether the mean entropy of the latest quarter of the updates is not 0.1% above that of the quarter before."""
    mean = entropy.mean(axis=0, dtype=np.float64)
    last = updates > updates[-1] * 3 / 4
    before = (updates > updates[-1] / 2) & ~last
    return bool(before.any() and mean[last].mean() < (1 + _LEAST_GROWTH) * mean[before].mean())


def _summary(trials: Trials, config: Explore, world: World, latest: Progress, seconds: float) -> dict[str, object]:
    steps = _num_steps(trials, latest)
    summary = {
        "farflung": version("farflung"),
        "world": config.world,
        "states": world.num_states,
        "actions": world.num_actions,
        "horizon": world.horizon,
        "agents": config.agents,
        "single": config.single,
        "updates": latest.update,
        "seeds": list(config.seeds),
        "environment_steps": steps // len(trials.configs),
        "seconds": seconds,
        "compile_seconds": trials.compile_seconds,
        "steps_per_second": steps / seconds,
        "device": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
    }
    if world.is_hosted:
        num_episodes = config.batch_size * config.agents * config.trajectories * len(config.seeds)
        summary["hosted"] = world.about_stepping(config.num_policies, num_episodes)
    return summary
