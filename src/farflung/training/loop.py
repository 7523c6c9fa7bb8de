"""The long loop: compiled chunks of updates, with all seeds side by side on all devices."""

import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Int, Key, PRNGKeyArray, UInt

from farflung.config.checks import whole_number, whole_seeds
from farflung.numerics.compilation import ONCE, ReproducibleIfWorld
from farflung.policies.rollout import Trajectories
from farflung.training.metrics import Metrics, measure, measure_vectors
from farflung.training.progress import (
    NOT_FINITE,
    Divergence,
    Progress,
    TrainingState,
    are_finite,
    divergence_of,
    record_schedule,
    restored,
)
from farflung.worlds.tabular import TabularMDP
from farflung.worlds.world import CompiledWorld

_SECONDS_PER_CHUNK = 0.25
_RECORDS_PER_CHUNK = 64
_tracing = threading.Lock()


class _Chunk(NamedTuple):
    """Where updates that ran in one go have led, and what they recorded."""

    update: int
    recorded: Int[np.ndarray, " record"]
    state: Any
    metrics: Metrics
    are_finite: Bool[Array, " seed"]


@runtime_checkable
class Algorithm(Protocol):
    """A way to train a team: a pytree of settings with pure functions, whose state holds the `team`.

    Settings that are numbers or arrays with one for each seed are leaves: they can change without compiling anew.
    """

    def init(self, key: PRNGKeyArray, environment: Any) -> Any: ...
    def sample(self, key: PRNGKeyArray, environment: CompiledWorld, state: Any) -> Trajectories: ...
    def learn(self, environment: Any, state: Any, trajectories: Trajectories) -> Any: ...


def train(
    algorithm: Algorithm,
    environment: Any,
    seeds: Sequence[int],
    num_updates: int,
    log_every: int | None = None,
    pause_every: int | None = None,
    training_state: TrainingState | None = None,
) -> Iterator[Progress]:
    """Trains one team per seed and yields where it stands: once before the first update, when all is compiled, and then a few
    times a second.

    It ends early where what is learnt would no longer be finite.

    A seed's numbers depend on nothing but the seed: not on the other seeds and their worlds, the number of devices or what is
    recorded when.

    Args:
        environment: one for all seeds, or one for each, all of the same shape.
        log_every: updates between records.
        pause_every: updates after which, among other times, it is told where training stands.
        training_state: of an earlier training with the same arguments, from which it goes on.
    """
    seeds, num_updates = whole_seeds(seeds), whole_number("num_updates", num_updates)
    devices = jax.local_devices()[: len(seeds)]
    mesh = Mesh(np.array(devices), ("seed",), axis_types=(AxisType.Auto,))
    rows = np.pad(np.arange(len(seeds)), (0, -len(seeds) % len(devices)), mode="edge")

    def spread(values: np.ndarray) -> Array:
        return jax.device_put(values[rows], NamedSharding(mesh, PartitionSpec("seed")))

    if isinstance(environment, CompiledWorld):
        environment = jax.device_put(environment, NamedSharding(mesh, PartitionSpec()))
    else:
        environment = jax.tree.map(spread, _stacked(environment, len(seeds)))
    algorithm = jax.tree.map(lambda leaf: spread(np.broadcast_to(np.asarray(leaf, np.float32), len(seeds))), algorithm)
    keys, state = _compiled(_begin, mesh, environment, algorithm, spread(np.asarray(seeds, np.uint32)))

    stops = np.array(record_schedule(num_updates, log_every))
    update, updates_per_chunk = 0, 0
    if training_state is not None:
        update, (keys, state) = training_state.update, restored((keys, state), training_state.leaves, spread)
    pending: _Chunk | None = None

    def advance(state: Any, first: int, last: int, recorded: Int[np.ndarray, " record"]) -> _Chunk:
        padded = np.pad(recorded, (0, _RECORDS_PER_CHUNK - len(recorded)))
        program = _advance[environment]
        run = partial(_compiled, program) if pending is None else program
        return _Chunk(last, recorded, *run(mesh, environment, algorithm, keys, state, first, last, padded, len(recorded)))

    def is_sound(chunk: _Chunk) -> bool:
        return bool(np.asarray(chunk.are_finite)[: len(seeds)].all())

    def progress(chunk: _Chunk, divergence: Divergence | None = None) -> Progress:
        on_host = jax.tree.map(lambda leaf: np.asarray(leaf)[: len(seeds), : len(chunk.recorded)], chunk.metrics)
        faults = jax.tree.map(lambda leaf: np.asarray(leaf)[: len(seeds)], getattr(chunk.state, "faults", None))
        learnt, team = (keys, chunk.state), chunk.state.team
        return Progress(chunk.update, chunk.recorded, on_host, team, len(seeds), None, faults, learnt, divergence)

    def before_divergence(sound: _Chunk, diverged: _Chunk) -> Progress:
        """Where the last sound update of a chunk led, found by halving what was run."""
        recorded, metrics = diverged.recorded, diverged.metrics
        while diverged.update - sound.update > 1:
            middle = (sound.update + diverged.update) // 2
            tried = advance(sound.state, sound.update, middle, recorded[:0])
            sound, diverged = (tried, diverged) if is_sound(tried) else (sound, tried)
        finite = np.asarray(diverged.are_finite)[: len(seeds)]
        divergence = divergence_of(diverged.update, diverged.state.team, finite)
        measured = recorded[recorded <= sound.update]
        return progress(sound._replace(recorded=measured, metrics=metrics), divergence)

    while update < num_updates or pending is None:
        started = time.perf_counter()
        end = min(update + updates_per_chunk, num_updates)
        if pause_every is not None:
            end = min(end, (update // pause_every + 1) * pause_every)
        recorded = stops[(stops > update) & (stops <= end)]
        if len(recorded) > _RECORDS_PER_CHUNK:
            recorded = recorded[:_RECORDS_PER_CHUNK]
            end = int(recorded[-1])
        following = advance(state, update, end, recorded)
        # What came before is waited for and handed out while the devices work on this chunk.
        if pending is None:
            if not is_sound(jax.block_until_ready(following)):
                raise ValueError(NOT_FINITE)
            sound = following  # nothing was learnt in it
        elif is_sound(pending):
            sound = pending
            yield progress(pending)
        else:
            yield before_divergence(sound, pending)
            return
        pending, update, state = following, end, following.state
        is_short = time.perf_counter() - started < _SECONDS_PER_CHUNK
        updates_per_chunk = max(1, updates_per_chunk * 2 if is_short else updates_per_chunk // 2)
    yield progress(pending) if is_sound(pending) else before_divergence(sound, pending)


def _stacked(worlds: Sequence[TabularMDP], num_seeds: int) -> TabularMDP:
    """One world with a leading axis for the seeds."""
    if len(worlds) != num_seeds:
        raise ValueError(f"expected one world for all seeds or one for each of the {num_seeds}, not {len(worlds)}")
    shapes = [(jax.tree.structure(world), [leaf.shape for leaf in jax.tree.leaves(world)]) for world in worlds]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError(
            "worlds that train side by side must have one shape: as many states, actions, successors, starts and steps"
        )
    return jax.tree.map(lambda *leaves: np.stack(leaves), *worlds)


def _axis(environment: CompiledWorld) -> int | None:
    """The seeds' axis as `vmap` takes it: None where they share a world."""
    return 0 if environment.table is not None and environment.table.successors.ndim == 4 else None


def _for_each_seed(function: Any, environment: CompiledWorld) -> Any:
    """The function of a world, and of what each seed has of its own, for all seeds."""
    if environment.table is not None:
        return lambda *own: jax.vmap(function, (_axis(environment), *[0] * len(own)))(environment, *own)
    # One after the other: the last bits of a network's sums would depend on how many are computed side by side.
    return lambda *own: jax.lax.map(lambda each: function(environment, *each), own)


def _measured(environment: CompiledWorld, team: Any, trajectories: Trajectories) -> Metrics:
    if environment.projection is not None:
        return measure_vectors(team, trajectories, environment.projection, environment.num_states)
    return measure(team, trajectories, environment.num_states)


def _compiled(function: Any, *arguments: Any) -> Any:
    """Calls a jitted function that may not be compiled yet.

    Threads trace one after the other, since they share one interpreter, and compile side by side: so the first of many is
    ready long before the last.
    """
    with _tracing:
        lowered = function.lower(*arguments)
    lowered.compile()
    return function(*arguments)


@partial(jax.jit, static_argnums=0, compiler_options=ONCE)
def _begin(
    mesh: Mesh, environment: CompiledWorld, algorithm: Algorithm, seeds: UInt[Array, " seed"]
) -> tuple[Key[Array, " seed"], Any]:
    def begin(environment: CompiledWorld, algorithm: Algorithm, seeds: Array) -> tuple[Array, Any]:
        keys = jax.vmap(partial(jr.key, impl="threefry2x32"))(seeds)
        init_keys, train_keys = jax.vmap(jr.split, out_axes=1)(keys)
        init = _for_each_seed(lambda environment, algorithm, key: algorithm.init(key, environment), environment)
        return train_keys, init(algorithm, init_keys)

    return _over_seeds(begin, mesh, (_axis(environment), 0, 0))(environment, algorithm, seeds)


@partial(ReproducibleIfWorld, static_argnums=0)
def _advance(
    mesh: Mesh,
    environment: CompiledWorld,
    algorithm: Algorithm,
    keys: Key[Array, " seed"],
    state: Any,
    first: Int[Array, ""],
    last: Int[Array, ""],
    recorded: Int[Array, " record"],
    num_records: Int[Array, ""],
) -> tuple[Any, Metrics, Bool[Array, " seed"]]:
    """Runs the updates after `first` up to `last` and measures the batches of those that are recorded.

    All updates are one piece of compiled code, whatever is recorded, so that recording changes nothing. The batch of a recorded
    update is sampled once more for that, with the same key.
    """

    def advance(
        environment: CompiledWorld,
        first: Array,
        last: Array,
        recorded: Array,
        num_records: Array,
        algorithm: Algorithm,
        keys: Array,
        state: Any,
    ) -> tuple[Any, Metrics, Array]:
        def update(index: Array, state: Any) -> Any:
            def update_one(environment: CompiledWorld, algorithm: Algorithm, key: Array, state: Any) -> Any:
                return algorithm.learn(environment, state, _sample(environment, algorithm, key, index, state))

            return _for_each_seed(update_one, environment)(algorithm, keys, state)

        def measured(index: Array, state: Any) -> Metrics:
            def measure_one(environment: CompiledWorld, algorithm: Algorithm, key: Array, state: Any) -> Metrics:
                return _measured(environment, state.team, _sample(environment, algorithm, key, index, state))

            return _for_each_seed(measure_one, environment)(algorithm, keys, state)

        def record(row: Array, carry: tuple[Array, Any, Metrics]) -> tuple[Array, Any, Metrics]:
            done, state, table = carry
            index = jnp.where(row < num_records, recorded[row] - 1, last)
            state = jax.lax.fori_loop(done, index, update, state)

            def with_row(table: Metrics) -> Metrics:
                return jax.tree.map(lambda column, value: column.at[:, row].set(value), table, measured(index, state))

            return index, state, jax.lax.cond(row < num_records, with_row, lambda table: table, table)

        columns = jax.eval_shape(measured, first, state)
        table = jax.tree.map(lambda _: jnp.zeros((len(keys), _RECORDS_PER_CHUNK)), columns)
        # One round for each record, and one more that runs what is left and measures nothing.
        _, state, table = jax.lax.fori_loop(0, num_records + 1, record, (first, state, table))
        return state, table, are_finite(state)

    mapped = _over_seeds(advance, mesh, (_axis(environment), None, None, None, None, 0, 0, 0))
    return mapped(environment, first, last, recorded, num_records, algorithm, keys, state)


# Compiled as a part of what calls it, but traced only once for both callers.
@jax.jit
def _sample(
    environment: CompiledWorld, algorithm: Algorithm, key: PRNGKeyArray, index: Int[Array, ""], state: Any
) -> Trajectories:
    return algorithm.sample(jr.fold_in(key, index), environment, state)


def _over_seeds(function: Any, mesh: Mesh, axes: Sequence[int | None]) -> Any:
    """Divides the seeds among the devices, where an argument has an axis for them; what has none, each device gets."""
    specs = tuple(PartitionSpec() if axis is None else PartitionSpec("seed") for axis in axes)
    return jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=PartitionSpec("seed"), check_vma=False)
