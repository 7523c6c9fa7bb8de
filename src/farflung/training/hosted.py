"""The long loop for worlds that are stepped outside JAX: copies play, compiled code learns."""

import math
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key, UInt

from farflung.config.checks import whole_number, whole_seeds
from farflung.numerics.compilation import ONCE, REPRODUCIBLE
from farflung.policies.rollout import Trajectories
from farflung.training.hosted_tables import Lesson, TableLesson
from farflung.training.hosted_vectors import VectorLesson
from farflung.training.loop import Algorithm
from farflung.training.metrics import Metrics, normalized
from farflung.training.progress import (
    ELEMENTS_SHOWN,
    NOT_FINITE,
    Divergence,
    HostStatistics,
    Progress,
    TrainingState,
    are_finite,
    divergence_of,
    record_schedule,
    restored,
)

_SECONDS_PER_PROGRESS = 0.25


def train_hosted(
    algorithm: Any,
    world: Any,
    seeds: Sequence[int],
    num_updates: int,
    log_every: int | None = None,
    pause_every: int | None = None,
    training_state: TrainingState | None = None,
) -> Iterator[Progress]:
    """Like `training.train`, for a world whose copies are stepped on the host.

    Each episode has a seed and noise of its own, so that with states that are numbered through their space, a seed's numbers
    depend on neither the other seeds nor the number of copies and workers; with networks, the last bits of products of matrices
    may.
    """
    seeds, num_updates = whole_seeds(seeds), whole_number("num_updates", num_updates)
    algorithm = jax.tree.map(lambda leaf: jnp.broadcast_to(jnp.asarray(leaf, jnp.float32), (len(seeds),)), algorithm)
    lesson = lesson_in(world)
    keys, state = _begin(lesson.outlook, algorithm, jnp.asarray(seeds, jnp.uint32))
    first, num_steps, visits, features = 0, 0, np.zeros((len(seeds), algorithm.num_agents, 0)), None
    if training_state is not None:
        assert training_state.host_statistics is not None
        first, (_, visits, num_steps, features) = training_state.update, training_state.host_statistics
        keys, state = restored((keys, state), training_state.leaves)
    stops = set(record_schedule(num_updates, log_every))
    shape = (len(seeds), algorithm.batch_size, algorithm.num_agents, algorithm.num_trajectories)

    recorded: list[int] = []
    metrics: list[Metrics] = []
    steps: list[int] = []
    nothing = jax.tree.map(lambda _: np.zeros((len(seeds), 0), np.float32), _compile(lesson, algorithm, keys, state, shape))

    def progress(update: int, divergence: Divergence | None = None) -> Progress:
        table = Metrics.joined([nothing, *(jax.tree.map(lambda column: np.asarray(column)[:, None], part) for part in metrics)])
        table = table._replace(normalized_entropy=normalized(table.entropy, world.num_states))  # of those met by now
        host_statistics = HostStatistics(np.array(steps, np.int64), visits, num_steps, features)
        faults = jax.tree.map(np.asarray, getattr(state, "faults", None))
        team, learnt = lesson.told(state.team), (keys, state)
        told = Progress(
            update, np.array(recorded, np.int64), table, team, len(seeds), host_statistics, faults, learnt, divergence
        )
        for kept in (recorded, metrics, steps):
            kept.clear()
        return told

    with world.open(algorithm.num_agents, math.prod(shape)) as pool:
        if not np.asarray(_are_finite(state)).all():
            raise ValueError(NOT_FINITE)
        yield progress(first)
        told = time.perf_counter()
        for update in range(first + 1, num_updates + 1):
            episodes = lesson.play(pool, keys, update - 1, state.team, shape)
            state = lesson.grown(state)
            batch = lesson.trajectories(episodes, shape)
            learnt = _learn(lesson.outlook, algorithm, state, batch)
            if not (finite := np.asarray(_are_finite(learnt))).all():
                yield progress(update - 1, divergence_of(update, learnt.team, finite))
                return
            num_steps += lesson.num_steps(episodes)
            if update in stops:
                metrics.append(lesson.measure(state.team, batch))
                recorded.append(update)
                steps.append(num_steps // len(seeds))
                visits, features = lesson.visits(episodes, shape), lesson.features(episodes, shape, ELEMENTS_SHOWN)
            state = learnt
            is_due = pause_every is not None and update % pause_every == 0
            if is_due or update == num_updates or time.perf_counter() - told > _SECONDS_PER_PROGRESS:
                yield progress(update)
                told = time.perf_counter()


def lesson_in(world: Any) -> Lesson:
    return TableLesson(world) if world.projection is None else VectorLesson(world)


def measure_random(world: Any, num_agents: int, batch_size: int, num_trajectories: int) -> Metrics:
    """The metrics of one batch of a team that acts uniformly at random."""
    shape, key = (1, batch_size, num_agents, num_trajectories), jr.key(0, impl="threefry2x32")
    lesson = lesson_in(world)
    with world.open(num_agents, math.prod(shape)) as pool:
        episodes = lesson.play(pool, key[None], 0, lesson.uniform(num_agents), shape)
    lesson = lesson_in(world)  # with the states that were met
    measured = lesson.measure(lesson.uniform(num_agents), lesson.trajectories(episodes, shape))
    return jax.tree.map(lambda values: np.asarray(values[0]), measured)


def _compile(lesson: Lesson, algorithm: Algorithm, keys: Key[Array, " seed"], state: Any, shape: tuple[int, ...]) -> Metrics:
    """Compiles what every update runs, before anybody measures how long one takes, and returns what is measured."""
    batch = lesson.blank(shape)
    lesson.compile(keys, state.team, shape)
    return jax.block_until_ready((lesson.measure(state.team, batch), _learn(lesson.outlook, algorithm, state, batch)))[0]


@partial(jax.jit, compiler_options=ONCE)
def _begin(outlook: Any, algorithm: Algorithm, seeds: UInt[Array, " seed"]) -> tuple[Key[Array, " seed"], Any]:
    keys = jax.vmap(partial(jr.key, impl="threefry2x32"))(seeds)
    init_keys, train_keys = jax.vmap(jr.split, out_axes=1)(keys)
    return train_keys, jax.vmap(lambda algorithm, key: algorithm.init(key, outlook))(algorithm, init_keys)


_are_finite = jax.jit(are_finite)


@partial(jax.jit, compiler_options=REPRODUCIBLE)
def _learn(outlook: Any, algorithm: Algorithm, state: Any, batch: Trajectories) -> Any:
    # One seed after the other, so that the last bits of its sums depend on no other; playing takes far longer anyway.
    return jax.lax.map(lambda each: each[0].learn(outlook, *each[1:]), (algorithm, state, batch))
