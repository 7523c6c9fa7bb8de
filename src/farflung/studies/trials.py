"""Trainings from configs: `begin` compiles them, `finish` trains them and makes runs."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import accumulate, chain
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from farflung.algorithms import Algorithm
from farflung.algorithms.pgpse import PGPSE, pgpse, side_by_side
from farflung.config import Explore
from farflung.runs import interrupts
from farflung.runs.checkpoints import Checkpoint, Checkpointer
from farflung.runs.interrupts import Stopped
from farflung.runs.metrics_table import Columns, MetricsTable
from farflung.runs.run import Playback, Run, final_values, steps_per_update, typical_seed
from farflung.training.divergence import TrainingMonitor
from farflung.training.loop import train
from farflung.training.metrics import Metrics, normalized
from farflung.training.processes import Processes
from farflung.training.progress import NO_MOMENTS, HostStatistics, Moments, Progress, TrainingState, moments_of
from farflung.worlds.world import World

_LEAST_GROWTH = 1e-3


class Status(NamedTuple):
    """What a progress display shows."""

    update: int
    num_updates: int
    steps_per_second: float
    normalized_entropy: float | None
    """As last recorded, averaged over the seeds; None before the first record."""
    support: float | None


@dataclass(frozen=True)
class Trials:
    """Configs that train side by side, compiled and ready to go."""

    configs: Sequence[Explore]
    worlds: Sequence[World]
    """The world of each config."""
    start: Progress
    progress: Iterator[Progress]
    compile_seconds: float

    @property
    def rows(self) -> list[slice]:
        """The rows of each config's seeds."""
        ends = list(accumulate(len(config.seeds) for config in self.configs))
        return [slice(end - len(config.seeds), end) for config, end in zip(self.configs, ends, strict=True)]

    def num_steps(self, progress: Progress) -> int:
        """The environment steps of all seeds so far."""
        if progress.host_statistics is not None:
            return progress.host_statistics.num_steps
        pairs = zip(self.configs, self.worlds, strict=True)
        return progress.update * sum(steps_per_update(config, world) * len(config.seeds) for config, world in pairs)

    def steps(self, progress: Progress) -> Int[np.ndarray, " record"]:
        """The environment steps of one seed's team up to each record."""
        if progress.host_statistics is not None:
            return progress.host_statistics.steps
        return progress.recorded.astype(np.int64) * steps_per_update(self.configs[0], self.worlds[0])


def begin(
    configs: Sequence[Explore],
    worlds: Sequence[World],
    num_successors: int | None = None,
    training_state: TrainingState | None = None,
    algorithms: Sequence[Algorithm] | None = None,
    processes: Processes | None = None,
) -> Trials:
    """Compiles the training of configs that differ in numbers and worlds alone.

    Args:
        worlds: the world of each config.
        num_successors: to which the worlds' lists are widened, for worlds that differ in that.
        training_state: where an earlier training stopped; this one continues from there.
        algorithms: of each seed, instead of the PGPSE that the configs ask for.
        processes: that share the agents.
    """
    began = time.perf_counter()
    config = configs[0]
    each = algorithms
    if each is None:
        shared = side_by_side([pgpse(config, worlds[0]) for config in configs])
        each = [one for one, config in zip(shared, configs, strict=True) for _ in config.seeds]
    world: World | list[World] = worlds[0]
    tables = [world.table.widened(num_successors or world.table.num_successors) for world in worlds if world.table is not None]
    if tables:
        is_shared = all(world is worlds[0] for world in worlds)
        world = tables[0] if is_shared else [table for table in tables for _ in config.seeds]
    seeds = config.seeds * len(configs)
    pauses = {*moments_of(config.updates, config.log_every), *_checks_for_a_flat_curve(config)}
    progress = train(each, world, seeds, config.updates, config.log_every, pauses, training_state, processes)
    return Trials(configs, worlds, next(progress), progress, time.perf_counter() - began)


def algorithm_of(configs: Sequence[Explore], world: World) -> PGPSE:
    """The algorithm of the first config, with the structure that all of them share."""
    return side_by_side([pgpse(config, world) for config in configs])[0]


def finish(
    trials: Trials,
    on_progress: Callable[[Status], None] | None = None,
    on_records: Callable[[Int[np.ndarray, " record"], Int[np.ndarray, " record"], Metrics], None] | None = None,
    checkpointers: Sequence[Checkpointer] = (),
    checkpoints: Sequence[Checkpoint] = (),
    on_moment: Callable[[Moments], None] | None = None,
) -> list[Run]:
    """Trains to the end and returns a run per config; after an interrupt, runs of what was recorded until then.

    Args:
        on_records: called with the updates, steps and metrics of new records, of the seeds of all configs.
        checkpointers: of each config; they write checkpoints, from time to time and at the end.
        checkpoints: of each config; from them, which have the same update, the trials continue.
        on_moment: called with the episodes to look at, when there are new ones.
    """
    num_updates = trials.configs[0].updates
    latest, is_interrupted, is_flat = trials.start, False, False
    monitor = TrainingMonitor(trials.configs, trials.worlds, latest)
    tables = [each.records for each in checkpoints] or [each.new_metrics_table() for each in checkpointers]
    tables = tables or [MetricsTable(config.seeds) for config in trials.configs]
    moments = _side_by_side([each.moments for each in checkpoints]) if checkpoints else NO_MOMENTS
    to_show = set(moments_of(num_updates, trials.configs[0].log_every))
    seconds_before = max((each.seconds for each in checkpoints), default=0.0)
    if all(tables) and on_records is not None:
        on_records(*_together(tables))
    began, steps_before = time.perf_counter(), trials.num_steps(latest)

    def seconds() -> float:
        return seconds_before + time.perf_counter() - began

    def write_checkpoints() -> None:
        state = latest.training_state
        for checkpointer, table, rows in zip(checkpointers, tables, trials.rows, strict=True):
            own = state._replace(leaves=[leaf[rows] for leaf in state.leaves])
            checkpointer.write(own, table, seconds(), moments_of_rows(moments, rows))

    try:
        for reached in chain([latest], trials.progress):
            is_diverged = monitor.has_diverged(reached)
            if is_diverged and reached.divergence is None:
                break
            latest = reached
            steps = trials.steps(latest)
            for table, rows in zip(tables, trials.rows, strict=True):
                table.add(latest.recorded, steps, of_rows(latest.metrics, rows))
            if on_records is not None and len(latest.recorded):
                on_records(latest.recorded, steps, latest.metrics)
            if latest.shown is not None and latest.update in to_show and latest.update in latest.recorded:
                moments = moments.added(latest.update, latest.shown)
                if on_moment is not None:
                    on_moment(moments)
            if on_progress is not None and latest is not trials.start:
                rate = (trials.num_steps(latest) - steps_before) / (time.perf_counter() - began)
                on_progress(Status(latest.update, num_updates, rate, *_shown(tables)))
            is_interrupted = interrupts.asked() is not None and latest.update < num_updates
            is_flat = _is_flat(trials.configs[0], latest.update, tables)
            if is_diverged or is_interrupted or is_flat or monitor.has_too_many_faults(latest):
                break
            if any(checkpointer.is_due(latest.update) for checkpointer in checkpointers):
                write_checkpoints()
    except KeyboardInterrupt:
        is_interrupted = True
    finally:
        if is_interrupted:
            jax.block_until_ready(jax.live_arrays())  # work that is still queued must not outlive the process
        if checkpointers and latest.update > 0 and all(tables):
            write_checkpoints()
    if not all(tables):
        if monitor.reason:
            raise ValueError(monitor.reason)
        raise Stopped
    finished, trained = [], latest.team
    for config, world, table, rows in zip(trials.configs, trials.worlds, tables, trials.rows, strict=True):
        recorded, steps, own = table.table()
        world = world.snapshot()
        if world.is_hosted and world.projection is None:  # only now is the number of states known
            own = own._replace(normalized_entropy=normalized(own.entropy, world.num_states))
        # On one device from here on: arrays spread over several devices don't mix with a user's other arrays.
        team = jax.tree.map(lambda leaf, rows=rows: jax.device_put(np.asarray(leaf)[rows]), trained)
        summary = _summary(trials, config, world, latest, seconds())
        summary |= {"is_interrupted": is_interrupted, "is_stopped_early": is_flat and latest.update < num_updates}
        summary |= monitor.as_json()
        if "broken_episodes" in summary and latest.faults is not None:
            summary["broken_episodes"] = int(latest.faults.number[rows].sum())
        summary["final"] = {name: values.tolist() for name, values in final_values(recorded, own).items()}
        run = Run(config, world, recorded, own, team, summary, _host_statistics(latest, steps, rows, world))
        if len(moments.updates):
            seed = typical_seed(run)
            played = moments.shown[:, rows][:, config.seeds.index(seed)]
            run = dataclasses.replace(run, playback=Playback(seed, moments.updates, played))
        finished.append(run)
    return finished


def of_rows(metrics: Metrics, rows: slice) -> Metrics:
    """The metrics of the seeds in these rows."""
    return jax.tree.map(lambda column: column[rows], metrics)


def _together(tables: Sequence[MetricsTable]) -> Columns:
    """The tables of configs that train side by side, as one."""
    columns = [table.table() for table in tables]
    updates, steps, _ = columns[0]
    return updates, steps, jax.tree.map(lambda *parts: np.concatenate(parts), *(metrics for _, _, metrics in columns))


def _shown(tables: Sequence[MetricsTable]) -> tuple[float, float] | tuple[None, None]:
    """The latest normalised entropy and support, averaged over all configs."""
    shown = [each for table in tables if (each := table.shown)[0] is not None]
    entropy, support = np.mean(np.array(shown, float), axis=0).tolist() if shown else (None, None)
    return entropy, support


def moments_of_rows(moments: Moments, rows: slice) -> Moments:
    """The episodes of the seeds in these rows."""
    return moments._replace(shown=moments.shown[:, rows]) if len(moments.updates) else moments


def _side_by_side(each: Sequence[Moments]) -> Moments:
    return Moments(each[0].updates, np.concatenate([moments.shown for moments in each], axis=1)) if len(each) > 1 else each[0]


def joined_state(states: Sequence[TrainingState]) -> TrainingState:
    """The states of trainings that are at the same update, to continue them side by side."""
    if len(states) == 1:
        return states[0]
    leaves = [np.concatenate(parts) for parts in zip(*(state.leaves for state in states), strict=True)]
    return TrainingState(states[0].update, leaves)


def _host_statistics(latest: Progress, steps: Int[np.ndarray, " record"], rows: slice, world: World) -> HostStatistics | None:
    found = latest.host_statistics
    if found is None:
        return None
    visits = found.visits[rows]
    num_more = world.num_states - visits.shape[-1] if world.projection is None else 0
    features = None if found.features is None else found.features[rows]
    return HostStatistics(steps, np.pad(visits, ((0, 0), (0, 0), (0, num_more))), found.num_steps, features)


def _checks_for_a_flat_curve(config: Explore) -> range:
    """The updates after which a training may stop because its curve is flat; they don't depend on the machine's speed."""
    interval = max(1, config.updates // 20)
    return range(4 * interval, config.updates + 1, interval) if config.stop_when_flat else range(0)


def _is_flat(config: Explore, update: int, tables: Sequence[MetricsTable]) -> bool:
    if update not in _checks_for_a_flat_curve(config):
        return False
    updates, _, metrics = _together(tables)
    return has_stopped_growing(updates, np.asarray(metrics.maximized))


def has_stopped_growing(updates: Int[np.ndarray, " record"], values: Float[np.ndarray, "seed record"]) -> bool:
    """Whether the mean value of the latest quarter of the updates is not 0.1% above that of the quarter before."""
    mean = values.mean(axis=0, dtype=np.float64)
    last = updates > updates[-1] * 3 / 4
    before = (updates > updates[-1] / 2) & ~last
    return bool(before.any() and mean[last].mean() < mean[before].mean() + _LEAST_GROWTH * abs(mean[before].mean()))


def _summary(trials: Trials, config: Explore, world: World, latest: Progress, seconds: float) -> dict[str, object]:
    steps = trials.num_steps(latest)
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
