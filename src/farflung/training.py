"""The long loop: compiled chunks of updates, with all seeds side by side on all devices."""

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from farflung.environments import TabularMDP
from farflung.metrics import Metrics, measure
from farflung.policies import TabularSoftmax
from farflung.rollout import Trajectories

_SECONDS_PER_CHUNK = 0.25
_RECORDS_PER_CHUNK = 64


class Algorithm(Protocol):
    """A way to train a team: hashable settings with two pure functions."""

    def init(self, key: PRNGKeyArray, environment: TabularMDP) -> Any: ...
    def step(self, key: PRNGKeyArray, environment: TabularMDP, state: Any) -> tuple[Any, Trajectories]: ...
    def __hash__(self) -> int: ...


class Progress(NamedTuple):
    """Where training stands after `update` updates, and what was recorded since the last time."""

    update: int
    recorded: Int[np.ndarray, " record"]
    """The updates that were recorded."""
    metrics: Metrics
    """NumPy arrays [seed, record]."""
    padded_team: TabularSoftmax
    num_seeds: int

    @property
    def team(self) -> TabularSoftmax:
        """With leading seed and agent axes."""
        return jax.tree.map(lambda leaf: leaf[: self.num_seeds], self.padded_team)


def train(
    algorithm: Algorithm, environment: TabularMDP, seeds: Sequence[int], num_updates: int, log_every: int | None = None
) -> Iterator[Progress]:
    """Trains one team per seed and yields where it stands: once before the first update, when all is compiled, and then a few
    times a second.

    A seed's numbers depend on nothing but the seed: not on the other seeds, the number of devices or what is recorded when.
    """
    devices = jax.local_devices()[: len(seeds)]
    mesh = Mesh(np.array(devices), ("seed",), axis_types=(AxisType.Auto,))
    num_padding = -len(seeds) % len(devices)
    padded_seeds = np.array([*seeds, *[seeds[-1]] * num_padding], np.uint32)
    environment = jax.device_put(environment, NamedSharding(mesh, PartitionSpec()))
    keys, carry = _begin(algorithm, mesh, environment, padded_seeds)

    stops = np.array(record_schedule(num_updates, log_every))
    update, updates_per_chunk = 0, 0
    pending: tuple[int, Int[np.ndarray, " record"], TabularSoftmax, Metrics] | None = None

    def progress(update: int, recorded: Int[np.ndarray, " record"], team: TabularSoftmax, metrics: Metrics) -> Progress:
        on_host = jax.tree.map(lambda leaf: np.asarray(leaf)[: len(seeds), : len(recorded)], metrics)
        return Progress(update, recorded, on_host, team, len(seeds))

    while update < num_updates:
        started = time.perf_counter()
        limit = update + updates_per_chunk
        recorded = stops[(stops > update) & (stops <= limit)][:_RECORDS_PER_CHUNK]
        end = int(recorded[-1]) if len(recorded) else min(limit, num_updates)
        gaps = np.zeros(_RECORDS_PER_CHUNK, np.int32)
        gaps[: max(1, len(recorded))] = np.diff(recorded, prepend=update) if len(recorded) else end - update
        carry, metrics = _advance(algorithm, mesh, environment, keys, carry, update, gaps, max(1, len(recorded)))
        # What came before is waited for and handed out while the devices work on this chunk.
        if pending is not None:
            yield progress(*pending)
        pending, update = (end, recorded, carry.state.team, metrics), end
        if updates_per_chunk == 0:
            jax.block_until_ready(metrics)
        is_short = time.perf_counter() - started < _SECONDS_PER_CHUNK
        updates_per_chunk = max(1, updates_per_chunk * 2 if is_short else updates_per_chunk // 2)
    if pending is not None:
        yield progress(*pending)


def record_schedule(num_updates: int, log_every: int | None = None) -> list[int]:
    """The updates whose batch is measured: the first, every `log_every`-th, and all of the last 1%, which make up final values."""
    if log_every is None:
        log_every = max(10, num_updates // 500)
    first_of_last = last_percent(num_updates)
    return sorted({1, *range(log_every, num_updates + 1, log_every), *range(first_of_last, num_updates + 1)})


def last_percent(num_updates: int) -> int:
    """The first update of the last 1%."""
    return num_updates - max(1, num_updates // 100) + 1


class _Carry(NamedTuple):
    state: Any
    trajectories: Trajectories


@partial(jax.jit, static_argnums=(0, 1))
def _begin(
    algorithm: Algorithm, mesh: Mesh, environment: TabularMDP, seeds: Int[Array, " seed"]
) -> tuple[PRNGKeyArray, _Carry]:
    def begin(environment: TabularMDP, seeds: Array) -> tuple[Array, _Carry]:
        keys = jax.vmap(partial(jr.key, impl="threefry2x32"))(seeds)
        init_keys, train_keys = jax.vmap(jr.split, out_axes=1)(keys)
        state = jax.vmap(algorithm.init, (0, None))(init_keys, environment)
        _, trajectories = jax.eval_shape(jax.vmap(algorithm.step, (0, None, 0)), init_keys, environment, state)
        return train_keys, _Carry(state, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), trajectories))

    return _over_seeds(begin, mesh, num_shared=1)(environment, seeds)


@partial(jax.jit, static_argnums=(0, 1))
def _advance(
    algorithm: Algorithm,
    mesh: Mesh,
    environment: TabularMDP,
    keys: PRNGKeyArray,
    carry: _Carry,
    first_update: int,
    gaps: Int[Array, " record"],
    num_records: int,
) -> tuple[_Carry, Metrics]:
    """Runs `gaps[i]` updates and measures the last one's batch, for each i: all updates are one piece of compiled code."""

    def advance(
        environment: TabularMDP, first_update: Array, gaps: Array, num_records: Array, keys: Array, carry: _Carry
    ) -> tuple[_Carry, Metrics]:
        def update(index: Array, carry: _Carry) -> _Carry:
            def step(key: PRNGKeyArray, state: Any) -> tuple[Any, Trajectories]:
                return algorithm.step(jr.fold_in(key, index), environment, state)

            return _Carry(*jax.vmap(step)(keys, carry.state))

        def measured(carry: _Carry) -> Metrics:
            return jax.vmap(measure, (0, 0, None))(carry.state.team, carry.trajectories, environment.num_states)

        def record(index: Array, loop: tuple[Array, _Carry, Metrics]) -> tuple[Array, _Carry, Metrics]:
            first, carry, metrics = loop
            last = first + gaps[index]
            carry = jax.lax.fori_loop(first, last, update, carry)
            return last, carry, jax.tree.map(lambda column, value: column.at[:, index].set(value), metrics, measured(carry))

        columns = jax.eval_shape(measured, carry)
        empty = jax.tree.map(lambda value: jnp.zeros((*value.shape, _RECORDS_PER_CHUNK), value.dtype), columns)
        _, carry, metrics = jax.lax.fori_loop(0, num_records, record, (first_update, carry, empty))
        return carry, metrics

    mapped = _over_seeds(advance, mesh, num_shared=4)
    return mapped(environment, first_update, gaps, num_records, keys, carry)


def _over_seeds(function: Any, mesh: Mesh, num_shared: int) -> Any:
    def mapped(*arguments: PyTree[Array]) -> Any:
        specs = tuple(PartitionSpec() if i < num_shared else PartitionSpec("seed") for i in range(len(arguments)))
        return jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=PartitionSpec("seed"), check_vma=False)(*arguments)

    return mapped
