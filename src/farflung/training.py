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
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, UInt

from farflung.checks import whole_number, whole_seeds
from farflung.environments import Environment, TabularMDP
from farflung.environments.continuous import ContinuousWorld
from farflung.metrics import Metrics, measure, measure_continuous
from farflung.policies import Team
from farflung.rollout import Faults, Trajectories

_SECONDS_PER_CHUNK = 0.25
_RECORDS_PER_CHUNK = 64
ELEMENTS_SHOWN = 8
"""Of a batch, where a few episodes are kept to be looked at."""
_tracing = threading.Lock()


@runtime_checkable
class Algorithm(Protocol):
    """A way to train a team: a pytree of settings with pure functions, whose state holds the `team`.

    Settings that are numbers or arrays with one for each seed are leaves: they can change without compiling anew.
    """

    def init(self, key: PRNGKeyArray, environment: Any) -> Any: ...
    def sample(self, key: PRNGKeyArray, environment: Environment, state: Any) -> Trajectories: ...
    def learn(self, environment: Any, state: Any, trajectories: Trajectories) -> Any: ...


class Counted(NamedTuple):
    """What only who stepped a world can tell: its episodes may end early, and its dynamics are not known."""

    steps: Int[np.ndarray, " record"]
    """The environment steps that a seed's team had taken at each record, on average over the seeds."""
    visits: Float[np.ndarray, "seed agent state"]
    """How each agent's visits are spread over the states, in the batch of the last record."""
    num_steps: int
    """Environment steps that the teams of all seeds have taken by now."""
    features: Float[np.ndarray, "seed element agent trajectory times feature"] | None = None
    """Where states are vectors: their projection in some elements of that batch; not a number after an episode's end."""


class Progress(NamedTuple):
    """Where training stands after `update` updates, and what was recorded since the last time."""

    update: int
    recorded: Int[np.ndarray, " record"]
    """The updates that were recorded."""
    metrics: Metrics
    """NumPy arrays [seed, record]."""
    padded_team: Team
    num_seeds: int
    counted: Counted | None = None
    """For worlds that are stepped on the host."""
    faults: Faults | None = None
    """For worlds whose states are vectors, of each seed."""

    @property
    def team(self) -> Team:
        """With leading seed and agent axes."""
        return jax.tree.map(lambda leaf: leaf[: self.num_seeds], self.padded_team)


def train(
    algorithm: Algorithm,
    environment: TabularMDP | ContinuousWorld | Sequence[TabularMDP],
    seeds: Sequence[int],
    num_updates: int,
    log_every: int | None = None,
    pause_every: int | None = None,
) -> Iterator[Progress]:
    """Trains one team per seed and yields where it stands: once before the first update, when all is compiled, and then a few
    times a second.

    A seed's numbers depend on nothing but the seed: not on the other seeds and their worlds, the number of devices or what is
    recorded when.

    Args:
        environment: one for all seeds, or one for each, all of the same shape.
        log_every: updates between records.
        pause_every: updates after which, among other times, it is told where training stands.
    """
    seeds, num_updates = whole_seeds(seeds), whole_number("num_updates", num_updates)
    devices = jax.local_devices()[: len(seeds)]
    mesh = Mesh(np.array(devices), ("seed",), axis_types=(AxisType.Auto,))
    rows = np.pad(np.arange(len(seeds)), (0, -len(seeds) % len(devices)), mode="edge")

    def spread(values: np.ndarray) -> Array:
        return jax.device_put(values[rows], NamedSharding(mesh, PartitionSpec("seed")))

    if isinstance(environment, Environment):
        environment = jax.device_put(environment, NamedSharding(mesh, PartitionSpec()))
    else:
        environment = jax.tree.map(spread, _stacked(environment, len(seeds)))
    algorithm = jax.tree.map(lambda leaf: spread(np.broadcast_to(np.asarray(leaf, np.float32), len(seeds))), algorithm)
    keys, state = _compiled(_begin, mesh, environment, algorithm, spread(np.asarray(seeds, np.uint32)))

    stops = np.array(record_schedule(num_updates, log_every))
    update, updates_per_chunk = 0, 0
    pending: tuple[int, Int[np.ndarray, " record"], Any, Metrics] | None = None

    def progress(update: int, recorded: Int[np.ndarray, " record"], state: Any, metrics: Metrics) -> Progress:
        on_host = jax.tree.map(lambda leaf: np.asarray(leaf)[: len(seeds), : len(recorded)], metrics)
        faults = jax.tree.map(lambda leaf: np.asarray(leaf)[: len(seeds)], getattr(state, "faults", None))
        return Progress(update, recorded, on_host, state.team, len(seeds), faults=faults)

    while update < num_updates:
        started = time.perf_counter()
        end = min(update + updates_per_chunk, num_updates)
        if pause_every is not None:
            end = min(end, (update // pause_every + 1) * pause_every)
        recorded = stops[(stops > update) & (stops <= end)]
        if len(recorded) > _RECORDS_PER_CHUNK:
            recorded = recorded[:_RECORDS_PER_CHUNK]
            end = int(recorded[-1])
        padded = np.pad(recorded, (0, _RECORDS_PER_CHUNK - len(recorded)))
        advance = partial(_compiled, _advance) if updates_per_chunk == 0 else _advance
        state, metrics = advance(mesh, environment, algorithm, keys, state, update, end, padded, len(recorded))
        # What came before is waited for and handed out while the devices work on this chunk.
        if pending is not None:
            yield progress(*pending)
        pending, update = (end, recorded, state, metrics), end
        if updates_per_chunk == 0:
            jax.block_until_ready(metrics)
        is_short = time.perf_counter() - started < _SECONDS_PER_CHUNK
        updates_per_chunk = max(1, updates_per_chunk * 2 if is_short else updates_per_chunk // 2)
    if pending is not None:
        yield progress(*pending)


def record_schedule(num_updates: int, log_every: int | None = None) -> list[int]:
    """The updates whose batch is measured: the first, every `log_every`-th, and the last 1%, which make up the final values."""
    if log_every is None:
        log_every = min(1000, max(25, num_updates // 200))
    first_of_last = last_percent(num_updates)
    step = 1 + (num_updates - first_of_last) // 1000  # a thousand are enough for a mean
    return sorted({1, *range(log_every, num_updates + 1, log_every), *range(num_updates, first_of_last - 1, -step)})


def last_percent(num_updates: int) -> int:
    """The first update of the last 1%."""
    return num_updates - max(1, num_updates // 100) + 1


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


def _axis(environment: Environment) -> int | None:
    """The seeds' axis as `vmap` takes it: None where they share a world."""
    return 0 if isinstance(environment, TabularMDP) and environment.successors.ndim == 4 else None


def _for_each_seed(function: Any, environment: Environment) -> Any:
    """The function of a world, and of what each seed has of its own, for all seeds."""
    if isinstance(environment, TabularMDP):
        return lambda *own: jax.vmap(function, (_axis(environment), *[0] * len(own)))(environment, *own)
    # One after the other: the last bits of a network's sums would depend on how many are computed side by side.
    return lambda *own: jax.lax.map(lambda each: function(environment, *each), own)


def _measured(environment: Environment, team: Any, trajectories: Trajectories) -> Metrics:
    if isinstance(environment, ContinuousWorld):
        return measure_continuous(team, trajectories, environment.projection, environment.num_free_cells)
    assert isinstance(environment, TabularMDP)
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


# It runs once: compiling it less thoroughly takes half the time.
@partial(jax.jit, static_argnums=0, compiler_options={"xla_backend_optimization_level": 0})
def _begin(
    mesh: Mesh, environment: Environment, algorithm: Algorithm, seeds: UInt[Array, " seed"]
) -> tuple[Key[Array, " seed"], Any]:
    def begin(environment: Environment, algorithm: Algorithm, seeds: Array) -> tuple[Array, Any]:
        keys = jax.vmap(partial(jr.key, impl="threefry2x32"))(seeds)
        init_keys, train_keys = jax.vmap(jr.split, out_axes=1)(keys)
        init = _for_each_seed(lambda environment, algorithm, key: algorithm.init(key, environment), environment)
        return train_keys, init(algorithm, init_keys)

    return _over_seeds(begin, mesh, (_axis(environment), 0, 0))(environment, algorithm, seeds)


@partial(jax.jit, static_argnums=0)
def _advance(
    mesh: Mesh,
    environment: Environment,
    algorithm: Algorithm,
    keys: Key[Array, " seed"],
    state: Any,
    first: Int[Array, ""],
    last: Int[Array, ""],
    recorded: Int[Array, " record"],
    num_records: Int[Array, ""],
) -> tuple[Any, Metrics]:
    """Runs the updates after `first` up to `last` and measures the batches of those that are recorded.

    All updates are one piece of compiled code, whatever is recorded, so that recording changes nothing. The batch of a recorded
    update is sampled once more for that, with the same key.
    """

    def advance(
        environment: Environment,
        first: Array,
        last: Array,
        recorded: Array,
        num_records: Array,
        algorithm: Algorithm,
        keys: Array,
        state: Any,
    ) -> tuple[Any, Metrics]:
        def update(index: Array, state: Any) -> Any:
            def update_one(environment: Environment, algorithm: Algorithm, key: Array, state: Any) -> Any:
                return algorithm.learn(environment, state, _sample(environment, algorithm, key, index, state))

            return _for_each_seed(update_one, environment)(algorithm, keys, state)

        def measured(index: Array, state: Any) -> Metrics:
            def measure_one(environment: Environment, algorithm: Algorithm, key: Array, state: Any) -> Metrics:
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
        return state, table

    mapped = _over_seeds(advance, mesh, (_axis(environment), None, None, None, None, 0, 0, 0))
    return mapped(environment, first, last, recorded, num_records, algorithm, keys, state)


# Compiled as a part of what calls it, but traced only once for both callers.
@jax.jit
def _sample(
    environment: Environment, algorithm: Algorithm, key: PRNGKeyArray, index: Int[Array, ""], state: Any
) -> Trajectories:
    return algorithm.sample(jr.fold_in(key, index), environment, state)


def _over_seeds(function: Any, mesh: Mesh, axes: Sequence[int | None]) -> Any:
    """Divides the seeds among the devices, where an argument has an axis for them; what has none, each device gets."""
    specs = tuple(PartitionSpec() if axis is None else PartitionSpec("seed") for axis in axes)
    return jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=PartitionSpec("seed"), check_vma=False)
