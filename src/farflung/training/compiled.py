"""Updates of compiled worlds: one program for many updates, with the seeds spread over all devices."""

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Int, PRNGKeyArray, UInt

from farflung.algorithms import Algorithm
from farflung.numerics.compilation import ONCE, ReproducibleIfWorld
from farflung.policies.rollout import Trajectories, play
from farflung.training.metrics import Metrics, measure_batch, measured_in
from farflung.training.progress import (
    RECORDS_PER_CHUNK,
    Arrays,
    Chunk,
    Faults,
    PerSeed,
    Runner,
    Shown,
    TrainingState,
    are_finite,
    first_arrays,
    for_each_seed,
    restored,
    shown_of,
)
from farflung.worlds.world import CompiledWorld

_tracing = threading.Lock()


class CompiledRunner(Runner):
    """Plays and learns in compiled code, all seeds side by side."""

    def __init__(
        self,
        algorithm: Algorithm | Sequence[Algorithm],
        world: CompiledWorld | Sequence[CompiledWorld],
        seeds: Sequence[int],
        training_state: TrainingState | None,
    ) -> None:
        devices = jax.local_devices()[: len(seeds)]
        self._mesh = Mesh(np.array(devices), ("seed",), axis_types=(AxisType.Auto,))
        rows = np.pad(np.arange(len(seeds)), (0, -len(seeds) % len(devices)), mode="edge")

        def spread(values: np.ndarray) -> Array:
            return jax.device_put(np.asarray(values)[rows], NamedSharding(self._mesh, PartitionSpec("seed")))

        self._has_worlds = isinstance(world, Sequence)
        if isinstance(world, Sequence):
            self._world = jax.tree.map(spread, _stacked(world, len(seeds)))
        else:
            self._world = jax.device_put(world, NamedSharding(self._mesh, PartitionSpec()))
        self._algorithm = jax.tree.map(spread, for_each_seed(algorithm, len(seeds)))
        keys = spread(np.asarray(seeds, np.uint32))
        self.arrays: Arrays = _compiled(_begin, self._mesh, self._has_worlds, self._world, self._algorithm, keys)
        if training_state is not None:
            self.arrays = restored(self.arrays, training_state.leaves, spread)
        self._is_compiled = False

    def advance(self, arrays: Arrays, first: int, last: int, recorded: Int[np.ndarray, " record"]) -> Chunk:
        padded = np.pad(recorded, (0, RECORDS_PER_CHUNK - len(recorded)))
        program = _advance[self._world]
        run = program if self._is_compiled else partial(_compiled, program)
        self._is_compiled = True
        shared = (self._mesh, self._has_worlds, self._world, self._algorithm)
        after, metrics, shown, is_finite = run(*shared, arrays, (first, last, padded, len(recorded)))
        return Chunk(first, arrays, last, after, recorded, metrics, is_finite, shown)


def _stacked(worlds: Sequence[CompiledWorld], num_seeds: int) -> CompiledWorld:
    """One world with a leading axis for the seeds."""
    if len(worlds) != num_seeds:
        raise ValueError(f"expected one world for all seeds or one for each of the {num_seeds}, not {len(worlds)}")
    shapes = [(jax.tree.structure(world), [leaf.shape for leaf in jax.tree.leaves(world)]) for world in worlds]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError(
            "worlds that train side by side must have one shape: as many states, actions, successors, starts and steps"
        )
    return jax.tree.map(lambda *leaves: np.stack(leaves), *worlds)


def _over_world_and_seeds(function: Any, world: CompiledWorld, has_worlds: bool) -> Any:
    """The function of a world, and of what each seed has of its own, for all seeds."""
    if world.table is not None:
        return lambda *own: jax.vmap(function, (0 if has_worlds else None, *[0] * len(own)))(world, *own)
    # One after the other: batched matrix products are not bit-identical across batch sizes.
    return lambda *own: jax.lax.map(lambda each: function(world, *each), own)


def _compiled(function: Any, *arguments: Any) -> Any:
    """Calls a jitted function that may not be compiled yet.

    Threads trace one after the other, since they share one interpreter, and compile side by side: so the first of many is
    ready long before the last.
    """
    with _tracing:
        lowered = function.lower(*arguments)
    lowered.compile()
    return function(*arguments)


@partial(jax.jit, static_argnums=(0, 1), compiler_options=ONCE)
def _begin(mesh: Mesh, has_worlds: bool, world: CompiledWorld, algorithm: PerSeed, seeds: UInt[Array, " seed"]) -> Arrays:
    def begin(world: CompiledWorld, algorithms: PerSeed, seeds: Array) -> Arrays:
        init = _over_world_and_seeds(lambda world, each, key: each.algorithm.init(key, world), world, has_worlds)
        return first_arrays(seeds, world, partial(init, algorithms))

    return _over_seeds(begin, mesh, (has_worlds, True, True))(world, algorithm, seeds)


@partial(ReproducibleIfWorld, static_argnums=(0, 1))
def _advance(
    mesh: Mesh,
    has_worlds: bool,
    world: CompiledWorld,
    algorithm: PerSeed,
    arrays: Arrays,
    plan: tuple[Int[Array, ""], Int[Array, ""], Int[Array, " record"], Int[Array, ""]],
) -> tuple[Arrays, Metrics, Shown, Bool[Array, " seed"]]:
    """Runs the updates after the first number of `plan` up to the second and measures the batches of those that are recorded.

    All updates are one piece of compiled code, whatever is recorded, so that recording changes nothing. The batch of a recorded
    update is played once more for that, with the same key.
    """

    sizes = (algorithm.rest.batch_size, algorithm.rest.num_trajectories)
    objective = getattr(algorithm.rest, "objective", None)

    def advance(world: CompiledWorld, plan: Any, algorithm: PerSeed, arrays: Arrays) -> tuple[Arrays, Metrics, Array, Array]:
        (first, last, recorded, num_records), (keys, state, faults) = plan, arrays

        def update(index: Array, carry: tuple[Any, Faults | None]) -> tuple[Any, Faults | None]:
            def update_one(world: CompiledWorld, each: PerSeed, key: Array, state: Any, faults: Any) -> tuple[Any, Any]:
                return each.learn(state, faults, _play(world, state.team, key, index, *sizes), world, index + 1)

            return _over_world_and_seeds(update_one, world, has_worlds)(algorithm, keys, *carry)

        def measured(index: Array, state: Any) -> tuple[Metrics, Array]:
            def measure_one(world: CompiledWorld, each: PerSeed, key: Array, state: Any) -> tuple[Metrics, Array]:
                batch = _play(world, state.team, key, index, *sizes)
                return measure_batch(world, state.team, batch, objective), shown_of(world, batch.states)

            return _over_world_and_seeds(measure_one, world, has_worlds)(algorithm, keys, state)

        def record(row: Array, carry: tuple[Array, Any, Metrics, Array]) -> tuple[Array, Any, Metrics, Array]:
            done, learned, *seen = carry
            index = jnp.where(row < num_records, recorded[row] - 1, last)
            learned = jax.lax.fori_loop(done, index, update, learned)

            def with_row(table: Metrics, _: Array) -> tuple[Metrics, Array]:
                values, shown = measured(index, learned[0])
                return jax.tree.map(lambda column, value: column.at[:, row].set(value), table, values), shown

            return index, learned, *jax.lax.cond(row < num_records, with_row, lambda *seen: seen, *seen)

        columns = measured_in(world, (state.team.num_agents, sizes[1]), objective)
        table = jax.tree.map(lambda _: jnp.zeros((len(keys), RECORDS_PER_CHUNK)), columns)
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(measured, first, state)[1])
        # One round for each record, and one more that runs the remaining updates and measures nothing.
        _, (state, faults), table, shown = jax.lax.fori_loop(
            0, num_records + 1, record, (first, (state, faults), table, nothing)
        )
        return Arrays(keys, state, faults), table, shown, are_finite(state)

    return _over_seeds(advance, mesh, (has_worlds, False, True, True))(world, plan, algorithm, arrays)


# Compiled as a part of what calls it, but traced only once for both callers.
@partial(jax.jit, static_argnums=(4, 5))
def _play(
    world: CompiledWorld, team: Any, key: PRNGKeyArray, index: Int[Array, ""], batch_size: int, num_trajectories: int
) -> Trajectories:
    return play(jr.fold_in(key, index), team, world, batch_size, num_trajectories)


def _over_seeds(function: Any, mesh: Mesh, has_seeds: Sequence[bool]) -> Any:
    """Divides the seeds among the devices, where an argument has an axis for them; every device gets the other arguments."""
    specs = tuple(PartitionSpec("seed") if each else PartitionSpec() for each in has_seeds)
    return jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=PartitionSpec("seed"), check_vma=False)
