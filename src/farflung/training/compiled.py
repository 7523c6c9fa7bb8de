"""Updates of compiled worlds: one program for many updates.

The seeds are spread over the devices of a process. If several processes train together, so are the agents, over the processes
and the devices that the seeds leave: each device has the policies of its agents, plays them and learns them.
"""

import contextlib
import dataclasses
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Int, PRNGKeyArray, UInt

from farflung.algorithms import Algorithm
from farflung.algorithms.pgpse import PGPSE
from farflung.numerics import spread
from farflung.numerics.arrays import runs_on_cpu
from farflung.numerics.compilation import ONCE, REPRODUCIBLE, ReproducibleIfWorld
from farflung.numerics.programs import program
from farflung.policies.rollout import Trajectories, play
from farflung.training.metrics import Metrics, measure_batch, measured_in
from farflung.training.processes import Kind, Message, Processes, lost_if_failed, on_host
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
    for_all_seeds,
    for_each_seed,
    like,
    restored,
    shown_of,
    unwrapped,
)
from farflung.worlds.world import CompiledWorld

_COPIES_TOGETHER = 12288
"""On a GPU, a robot's simulator waits for one small kernel after the other: up to about as many copies, it takes hardly longer
for more. Its results are not reproducible there anyway, so several seeds learn side by side."""


class _Layout(NamedTuple):
    """How a training is laid over devices; one of the things that a program is compiled for."""

    mesh: Mesh
    """With the axes seed and agent."""
    has_worlds: bool
    """Whether each seed has its own world."""
    state_specs: tuple[PartitionSpec, ...] = ()
    structure: Any = None
    """Where agents are spread over devices: how each array of the algorithm's state is, and the structure of that state."""

    @property
    def devices(self) -> list[jax.Device]:
        return list(np.asarray(self.mesh.devices).flat)

    @property
    def mesh_axis(self) -> str | None:
        """The axis along which agents are spread; None if all are on one device."""
        return None if self.structure is None else "agent"

    @property
    def arrays(self) -> Any:
        """How the arrays of a training are spread."""
        if self.structure is None:
            return _BY_SEED
        return Arrays(_BY_SEED, jax.tree.unflatten(self.structure, self.state_specs), _BY_SEED)  # type: ignore[arg-type]


_BY_SEED, _EVERYWHERE = PartitionSpec("seed"), PartitionSpec()


class CompiledRunner(Runner):
    """Plays and learns in compiled code, all seeds side by side."""

    def __init__(
        self,
        algorithm: Algorithm | Sequence[Algorithm],
        world: CompiledWorld | Sequence[CompiledWorld],
        seeds: Sequence[int],
        training_state: TrainingState | None,
        processes: Processes | None = None,
    ) -> None:
        has_worlds = isinstance(world, Sequence)
        self._processes = processes
        if processes is None:
            devices = np.array(jax.local_devices()[: len(seeds)])[:, None]
            self._layout = _Layout(_mesh(devices), has_worlds)
        else:
            one = algorithm[0] if isinstance(algorithm, Sequence) else algorithm
            self._layout = _spread_layout(one, world, len(seeds), processes)
            if self._layout.mesh_axis is not None:
                algorithm = [dataclasses.replace(each, mesh_axis="agent") for each in for_all_seeds(algorithm, len(seeds))]
        num_rows = self._layout.mesh.shape["seed"]
        rows = np.pad(np.arange(len(seeds)), (0, -len(seeds) % num_rows), mode="edge")

        def by_seed(values: np.ndarray, spec: PartitionSpec = _BY_SEED) -> Array:
            return _put(np.asarray(values)[rows], NamedSharding(self._layout.mesh, spec))

        if isinstance(world, Sequence):
            self._world = jax.tree.map(by_seed, _stacked(world, len(seeds)))
        else:
            everywhere = NamedSharding(self._layout.mesh, _EVERYWHERE)
            self._world = jax.tree.map(lambda leaf: _put(leaf, everywhere), world)
        self._algorithm = jax.tree.map(by_seed, for_each_seed(algorithm, len(seeds)))
        keys = by_seed(np.asarray(seeds, np.uint32))
        beginning = (self._world, self._algorithm, keys)
        self.arrays: Arrays = program(_begin, (self._layout,), beginning, self._layout.devices)(*beginning)
        if training_state is not None:
            specs = [_BY_SEED, *self._layout.state_specs]  # of the keys and the state
            specs += [_BY_SEED] * (len(training_state.leaves) - len(specs))
            self.arrays = restored(self.arrays, training_state.leaves, by_seed, specs)
        self._program: Any = None
        if processes is not None:
            self.runs_ahead = False  # each message waits for the work before it
            processes.remember(self.arrays)

    def advance(self, arrays: Arrays, first: int, last: int, recorded: Int[np.ndarray, " record"]) -> Chunk:
        padded = np.pad(recorded, (0, RECORDS_PER_CHUNK - len(recorded)))
        given = (self._world, self._algorithm, arrays, (first, last, padded, len(recorded)))
        if self._processes is not None and self._processes.leads:
            self._processes.send(Kind.ADVANCE, *self._processes.naming(arrays), first, last, *recorded.tolist())
        with lost_if_failed() if self._processes is not None else contextlib.nullcontext():
            if self._program is None:
                self._program = program(_advance[self._world], (self._layout,), given, self._layout.devices)
            found = self._program(*given)
            if self._processes is not None:
                jax.block_until_ready(found)
        after, metrics, shown, is_finite = found
        if self._processes is not None:
            self._processes.remember(after)
            metrics, shown, is_finite = jax.tree.map(on_host, (metrics, shown, is_finite))
        return Chunk(first, arrays, last, after, recorded, metrics, is_finite, shown)

    def gathered(self, arrays: Arrays) -> Arrays:
        if self._processes is None:
            return arrays
        if self._processes.leads:
            self._processes.send(Kind.GATHER, *self._processes.naming(arrays))
        with lost_if_failed():
            whole = _gather(self._layout.mesh, jax.tree.map(unwrapped, arrays))
            return jax.tree.map(like, arrays, jax.tree.map(on_host, whole))

    def follow(self, message: Message) -> None:
        """Does what the first process does."""
        assert self._processes is not None
        arrays, numbers = self._processes.named(message.numbers)
        if message.kind is Kind.GATHER:
            self.gathered(arrays)
        else:
            first, last, *recorded = numbers
            self.advance(arrays, first, last, np.array(recorded, np.int64))


def _mesh(devices: np.ndarray) -> Mesh:
    return Mesh(devices, ("seed", "agent"), axis_types=(AxisType.Auto, AxisType.Auto))


def _spread_layout(algorithm: Algorithm, world: Any, num_seeds: int, processes: Processes) -> _Layout:
    """Spreads the seeds over the devices of each process, and the agents over the processes and the devices that are left."""
    check_can_be_spread(algorithm, world, processes.count)
    assert isinstance(algorithm, PGPSE)
    own = [[device for device in jax.devices() if device.process_index == number] for number in range(processes.count)]
    num_devices = min(map(len, own))
    num_rows = max(number for number in range(1, min(num_devices, num_seeds) + 1) if num_devices % number == 0)
    left = math.gcd(num_devices // num_rows, algorithm.num_agents // processes.count)
    mesh = _mesh(np.concatenate([np.array(each[: num_rows * left]).reshape(num_rows, left) for each in own], axis=1))
    if mesh.shape["agent"] == 1:
        return _Layout(mesh, has_worlds=False)

    def state(num_agents: int) -> Any:
        sized = dataclasses.replace(algorithm, num_agents=num_agents)
        return jax.eval_shape(lambda key: sized.init(key, world), jax.eval_shape(lambda: jr.key(0)))

    def spec(leaf: Any, of_more: Any) -> PartitionSpec:
        return _BY_SEED if leaf.shape == of_more.shape else PartitionSpec("seed", "agent")

    leaves, structure = jax.tree.flatten(state(algorithm.num_agents))
    more = jax.tree.leaves(state(2 * algorithm.num_agents))  # arrays that all agents share stay as they are
    return _Layout(mesh, False, tuple(map(spec, leaves, more)), structure)


def check_can_be_spread(algorithm: Algorithm, world: Any, num_processes: int) -> None:
    """Raises ValueError if the agents of a training cannot be spread over processes."""
    if not isinstance(algorithm, PGPSE):
        name = type(algorithm).__name__
        raise ValueError(
            f"--distributed spreads the agents of the algorithm pgpse over processes, and this one is {name}: "
            "choose --algorithm pgpse"
        )
    if world.is_hosted:
        raise ValueError("--distributed is for worlds that are stepped in compiled code: this one is stepped on the host")
    if algorithm.num_agents % num_processes:
        raise ValueError(
            f"--distributed gives each of {num_processes} processes as many agents: "
            f"choose a multiple of {num_processes}, not {algorithm.num_agents}"
        )


def _put(values: Any, sharding: NamedSharding) -> Array:
    if sharding.is_fully_addressable:
        return jax.device_put(values, sharding)
    values = np.asarray(values)
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])


@partial(jax.jit, static_argnums=0, compiler_options=REPRODUCIBLE)
def _gather(mesh: Mesh, arrays: Any) -> Any:
    """The arrays with all agents in each process."""
    return jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, NamedSharding(mesh, _BY_SEED)), arrays)


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


def _over_world_and_seeds(function: Any, world: CompiledWorld, has_worlds: bool, num_copies: int = 1) -> Any:
    """The function of a world, and of what each seed has of its own, for all seeds.

    Args:
        num_copies: how many copies of the world the function steps for a seed.
    """
    if world.table is not None:
        return lambda *own: jax.vmap(function, (0 if has_worlds else None, *[0] * len(own)))(world, *own)
    if world.is_reproducible or runs_on_cpu():
        # One after the other: batched matrix products are not bit-identical across batch sizes.
        return lambda *own: jax.lax.map(lambda each: function(world, *each), own)

    def by_groups(*own: Any) -> Any:
        num_together = min(len(jax.tree.leaves(own)[0]), max(1, _COPIES_TOGETHER // num_copies))
        return jax.lax.map(lambda each: function(world, *each), own, batch_size=num_together)

    return by_groups


@partial(jax.jit, static_argnums=0, compiler_options=ONCE)
def _begin(layout: _Layout, world: CompiledWorld, algorithm: PerSeed, seeds: UInt[Array, " seed"]) -> Arrays:
    has_worlds = layout.has_worlds

    def begin(world: CompiledWorld, algorithms: PerSeed, seeds: Array) -> Arrays:
        init = _over_world_and_seeds(lambda world, each, key: each.algorithm.init(key, world), world, has_worlds)
        arrays = first_arrays(seeds, world, partial(init, algorithms))
        if layout.mesh_axis is None:
            return arrays
        leaves = zip(jax.tree.leaves(arrays.state), layout.state_specs, strict=True)
        own = [leaf if spec == _BY_SEED else spread.own_part(leaf, layout.mesh_axis, 1) for leaf, spec in leaves]
        return arrays._replace(state=jax.tree.unflatten(layout.structure, own))

    specs = (_BY_SEED if has_worlds else _EVERYWHERE, _BY_SEED, _BY_SEED)
    return _over_devices(begin, layout, specs, layout.arrays)(world, algorithm, seeds)


@partial(ReproducibleIfWorld, static_argnums=0)
def _advance(
    layout: _Layout,
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
    objective, has_worlds, mesh_axis = getattr(algorithm.rest, "objective", None), layout.has_worlds, layout.mesh_axis

    def advance(world: CompiledWorld, plan: Any, algorithm: PerSeed, arrays: Arrays) -> tuple[Arrays, Metrics, Array, Array]:
        (first, last, recorded, num_records), (keys, state, faults) = plan, arrays
        num_copies = math.prod(sizes) * state.team.num_agents

        def update(index: Array, carry: tuple[Any, Faults | None]) -> tuple[Any, Faults | None]:
            def update_one(world: CompiledWorld, each: PerSeed, key: Array, state: Any, faults: Any) -> tuple[Any, Any]:
                batch = _play(world, each.players(world, state), key, index, *sizes, mesh_axis)
                return each.learn(state, faults, batch, world, index + 1, mesh_axis)

            return _over_world_and_seeds(update_one, world, has_worlds, num_copies)(algorithm, keys, *carry)

        def measured(index: Array, state: Any) -> tuple[Metrics, Array]:
            def measure_one(world: CompiledWorld, each: PerSeed, key: Array, state: Any) -> tuple[Metrics, Array]:
                own = _play(world, each.players(world, state), key, index, *sizes, mesh_axis)
                team, batch = spread.gathered_team(state.team, mesh_axis), spread.gathered(own, mesh_axis, 1)
                task = getattr(each.algorithm, "task", None)
                return measure_batch(world, team, batch, objective, task), shown_of(world, batch.states)

            return _over_world_and_seeds(measure_one, world, has_worlds, num_copies)(algorithm, keys, state)

        def record(row: Array, carry: tuple[Array, Any, Metrics, Array]) -> tuple[Array, Any, Metrics, Array]:
            done, learned, *seen = carry
            index = jnp.where(row < num_records, recorded[row] - 1, last)
            learned = jax.lax.fori_loop(done, index, update, learned)

            def with_row(table: Metrics, _: Array) -> tuple[Metrics, Array]:
                values, shown = measured(index, learned[0])
                return jax.tree.map(lambda column, value: column.at[:, row].set(value), table, values), shown

            return index, learned, *jax.lax.cond(row < num_records, with_row, lambda *seen: seen, *seen)

        has_objective = objective is not None or getattr(algorithm.rest, "task", None) is not None
        num_agents = state.team.num_agents * spread.num_parts(mesh_axis)
        columns = measured_in(world, (num_agents, sizes[1]), has_objective)
        table = jax.tree.map(lambda _: jnp.zeros((len(keys), RECORDS_PER_CHUNK)), columns)

        def show_one(world: CompiledWorld, each: PerSeed, key: Array, state: Any) -> Array:
            own = _play(world, state.team, key, first, *sizes, mesh_axis).states
            return shown_of(world, spread.gathered(own, mesh_axis, 1))

        # The shape of what `measured` shows, without tracing its metrics once more.
        expected = jax.eval_shape(_over_world_and_seeds(show_one, world, has_worlds), algorithm, keys, state)
        nothing = jnp.zeros(expected.shape, expected.dtype)
        # One round for each record, and one more that runs the remaining updates and measures nothing.
        _, (state, faults), table, shown = jax.lax.fori_loop(
            0, num_records + 1, record, (first, (state, faults), table, nothing)
        )
        is_finite = are_finite(state)
        if mesh_axis is not None:
            is_finite = jax.lax.pmin(is_finite.astype(jnp.int32), mesh_axis) > 0
        return Arrays(keys, state, faults), table, shown, is_finite

    specs = (_BY_SEED if has_worlds else _EVERYWHERE, _EVERYWHERE, _BY_SEED, layout.arrays)
    return _over_devices(advance, layout, specs, (layout.arrays, _BY_SEED, _BY_SEED, _BY_SEED))(world, plan, algorithm, arrays)


# Compiled as a part of what calls it, but traced only once for both callers.
@partial(jax.jit, static_argnums=(4, 5, 6))
def _play(
    world: CompiledWorld,
    team: Any,
    key: PRNGKeyArray,
    index: Int[Array, ""],
    batch_size: int,
    num_trajectories: int,
    mesh_axis: str | None,
) -> Trajectories:
    return play(jr.fold_in(key, index), team, world, batch_size, num_trajectories, mesh_axis)


def _over_devices(function: Any, layout: _Layout, in_specs: Any, out_specs: Any) -> Any:
    """Divides the seeds, and the agents where these are spread, among the devices."""
    return jax.shard_map(function, mesh=layout.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
