"""The training loop: chunks of updates, until all are done or a team diverges."""

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any

import jax
import numpy as np

from farflung.algorithms import Algorithm
from farflung.config.checks import whole_number, whole_seeds
from farflung.training.compiled import CompiledRunner
from farflung.training.hosted import HostedRunner
from farflung.training.processes import Processes
from farflung.training.progress import (
    RECORDS_PER_CHUNK,
    Chunk,
    Divergence,
    Progress,
    Runner,
    TrainingState,
    check_first,
    divergence_of,
    record_schedule,
)
from farflung.worlds.named import as_world
from farflung.worlds.world import World

_SECONDS_PER_CHUNK = 0.25


def train(
    algorithm: Algorithm | Sequence[Algorithm],
    world: Any,
    seeds: Sequence[int],
    num_updates: int,
    log_every: int | None = None,
    pause_at: Iterable[int] = (),
    training_state: TrainingState | None = None,
    processes: Processes | None = None,
) -> Iterator[Progress]:
    """Trains one team per seed; yields its progress once before the first update, and then a few times a second.

    Training ends early if a team would no longer be finite. The results of a seed depend on nothing but the seed: not on the
    other seeds, the number of devices, or what is recorded when. (Batched matrix products are not bit-identical across batch
    sizes, so for host-stepped worlds with networks the number of copies may change the last bits.)

    >>> import farflung
    >>> algorithm, world = farflung.PGPSE(num_agents=2, batch_size=4), farflung.make_world("room-det")
    >>> *_, last = train(algorithm, world, seeds=(0, 1), num_updates=3)
    >>> last.update, last.team.num_agents
    (3, 2)

    Args:
        algorithm: one for all seeds, or one for each, which may differ in numbers and arrays.
        world: one for all seeds, as `explore` takes it, or a list of transition tables of one shape, one for each seed.
        log_every: updates between records.
        pause_at: numbers of updates after which progress is always yielded.
        training_state: where an earlier training with the same arguments stopped; this one continues from there.
        processes: that share the agents of the team; this one is the first of them.
    """
    seeds, num_updates = whole_seeds(seeds), whole_number("num_updates", num_updates)
    stops = np.array(record_schedule(num_updates, log_every))
    pauses = np.array(sorted({*pause_at, num_updates}))
    first = 0 if training_state is None else training_state.update
    if not isinstance(world, list | tuple):
        world = as_world(world)
    is_hosted = isinstance(world, World) and world.is_hosted
    runner: Runner
    if is_hosted:
        runner = HostedRunner(algorithm, world, seeds, training_state)
    else:
        runner = CompiledRunner(algorithm, world, seeds, training_state, processes)
    gathered = None if processes is None else runner.gathered

    def chunks() -> Iterator[Chunk]:
        """Chunks that take about a quarter of a second each; the first has no updates, and compiles everything."""
        done, size, arrays = first, 0, runner.arrays
        while True:
            started = time.perf_counter()
            last = min(done + size, num_updates, *pauses[pauses > done][:1].tolist())
            recorded = stops[(stops > done) & (stops <= last)]
            if len(recorded) > RECORDS_PER_CHUNK:
                recorded = recorded[:RECORDS_PER_CHUNK]
                last = int(recorded[-1])
            chunk = runner.advance(arrays, done, last, recorded)
            yield chunk
            if last == num_updates:
                return
            done, arrays = last, chunk.after
            is_short = time.perf_counter() - started < _SECONDS_PER_CHUNK
            size = max(1, size * 2 if is_short else size // 2)

    def is_sound(chunk: Chunk) -> bool:
        return bool(np.asarray(chunk.is_finite)[: len(seeds)].all())

    def progress(chunk: Chunk, divergence: Divergence | None = None) -> Progress:
        metrics = jax.tree.map(lambda leaf: np.asarray(leaf)[: len(seeds), : len(chunk.recorded)], chunk.metrics)
        statistics = runner.host_statistics(chunk.recorded)
        team, shown = runner.team(chunk.after), np.asarray(chunk.shown)[: len(seeds)]
        sizes = (team, len(seeds), statistics, chunk.after)
        return Progress(chunk.last, chunk.recorded, metrics, *sizes, divergence, shown, gathered)

    def before_divergence(chunk: Chunk) -> Progress:
        """The progress after the last sound update of a chunk, which is found by bisection."""
        recorded, metrics, start = chunk.recorded, chunk.metrics, (chunk.first, chunk.before)
        while chunk.last - start[0] > 1:
            tried = runner.advance(start[1], start[0], (start[0] + chunk.last) // 2, recorded[:0])
            if is_sound(tried):
                start = tried.last, tried.after
            else:
                chunk = tried
        done, arrays = start
        divergence = divergence_of(
            chunk.last, runner.team(runner.gathered(chunk.after)), np.asarray(chunk.is_finite)[: len(seeds)]
        )
        sound = chunk._replace(last=done, after=arrays, recorded=recorded[recorded <= done], metrics=metrics)
        return progress(sound, divergence)

    with runner:
        ahead = chunks()
        start = jax.block_until_ready(next(ahead))
        if not is_sound(start):
            check_first(runner.gathered(start.after).state)
        # If the runner runs ahead, each chunk is yielded after the next one was queued, so that the devices never wait.
        queued = (chunk for chunk, _ in pairwise(chain([start], ahead, [start])))
        for chunk in queued if runner.runs_ahead else chain([start], ahead):
            if not is_sound(chunk):
                yield before_divergence(chunk)
                return
            yield progress(chunk)
