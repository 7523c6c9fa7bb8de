"""How far a training is: what it yields while it runs, and what it takes to continue it later."""

import abc
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial, reduce
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, Num, UInt

from farflung.algorithms import Algorithm
from farflung.numerics.spread import gathered
from farflung.policies.rollout import Trajectories
from farflung.training.metrics import Metrics
from farflung.training.processes import on_host

ELEMENTS_SHOWN = 8
"""Batch elements of which the episodes are saved, to be looked at."""
RECORDS_PER_CHUNK = 64
"""The most records of a chunk of updates."""
_MOMENTS = 20
_AGENTS_SHOWN, _TIMES_SHOWN, _NUMBERS_SHOWN = 64, 256, 16_384
"""The most agents (or trajectories of one policy), times, and numbers of a seed's episodes that are kept of one moment."""


class Faults(NamedTuple):
    """How often a world gave a state that is not finite, and when it first did."""

    number: Int[Array, "*seed"]
    first_update: Int[Array, "*seed"]
    first_step: Int[Array, "*seed"]

    def after(self, update: Int[Array, ""], broken: Int[Array, "batch agent trajectory"]) -> "Faults":
        """With the faults of one more update."""
        found = jnp.sum(broken > 0, dtype=jnp.int32)
        step = jnp.min(jnp.where(broken > 0, broken, jnp.iinfo(jnp.int32).max))
        is_first = (self.number == 0) & (found > 0)
        return Faults(
            self.number + found, jnp.where(is_first, update, self.first_update), jnp.where(is_first, step, self.first_step)
        )


class Arrays(NamedTuple):
    """All arrays of a training, with a leading seed axis."""

    keys: Key[Array, " seed"]
    state: Any
    """The algorithm's state, which holds the team."""
    faults: Faults | None
    """For worlds whose observations are vectors."""


def first_arrays(seeds: UInt[Array, " seed"], world: Any, init: Callable[[Key[Array, " seed"]], Any]) -> Arrays:
    """The arrays before the first update, with the states that `init` makes from a key for each seed."""
    keys = jax.vmap(partial(jr.key, impl="threefry2x32"))(seeds)
    init_keys, train_keys = jax.vmap(jr.split, out_axes=1)(keys)
    no_faults = Faults(*(jnp.zeros(len(seeds), jnp.int32) for _ in Faults._fields))
    return Arrays(train_keys, init(init_keys), None if world.projection is None else no_faults)


class HostStatistics(NamedTuple):
    """Statistics of a host-stepped world, whose episodes may end early and whose dynamics are not known."""

    steps: Int[np.ndarray, " record"]
    """The environment steps of a seed's team up to each record, averaged over the seeds."""
    visits: Float[np.ndarray, "seed agent state"]
    """How each agent's visits are spread over the states, in the batch of the last record."""
    num_steps: int
    """Environment steps of all seeds so far."""
    features: Float[np.ndarray, "seed element agent trajectory times feature"] | None = None
    """Where observations are vectors: the features in some elements of that batch; NaN after an episode's end."""


Shown = (
    Int[np.ndarray | Array, "seed element agent trajectory times"]
    | Float[np.ndarray | Array, "seed element agent trajectory times feature"]
)
"""A few episodes, to look at: the numbers of the states, or the features where states are vectors."""


class Moments(NamedTuple):
    """A few episodes of all seeds at several moments of a training, to look at."""

    updates: Int[np.ndarray, " moment"] = np.zeros(0, np.int64)
    shown: Num[np.ndarray, "moment seed ..."] = np.zeros((0, 0))

    def added(self, update: int, shown: Shown) -> "Moments":
        """With the episodes of one more moment."""
        new = np.asarray(shown)[None]
        return Moments(np.append(self.updates, update), np.concatenate([self.shown, new]) if len(self.updates) else new)


NO_MOMENTS = Moments()


class Divergence(NamedTuple):
    """The first update after which a team was no longer finite."""

    update: int
    row: int
    """The seed's row."""
    agent: int | None
    """The first agent that diverged; None if only what all agents share did."""


class TrainingState(NamedTuple):
    """All that a training needs to continue: it ends, bit for bit, as it would have ended without a break."""

    update: int
    leaves: Sequence[np.ndarray]
    """The leaves of `Arrays`, with a row for each seed."""
    host_statistics: HostStatistics | None = None


class Progress(NamedTuple):
    """A training after `update` updates, and the records since the last progress."""

    update: int
    recorded: Int[np.ndarray, " record"]
    """The updates that were recorded."""
    metrics: Metrics
    """NumPy arrays [seed, record]."""
    padded_team: Any
    num_seeds: int
    host_statistics: HostStatistics | None = None
    arrays: Arrays | None = None
    """Padded to a multiple of the number of devices, as `padded_team` is."""
    divergence: Divergence | None = None
    """Why training stops here: the next update would not be finite."""
    shown: Shown | None = None
    """Episodes of the last recorded batch."""
    gathered: Callable[[Any], Any] | None = None
    """If the agents are spread over processes: brings arrays together, in all processes at the same time."""

    @property
    def team(self) -> Any:
        """With leading seed and agent axes."""
        padded = self.padded_team if self.gathered is None else self.gathered(self.arrays).state.team
        return jax.tree.map(lambda leaf: leaf[: self.num_seeds], padded)

    @property
    def faults(self) -> Faults | None:
        """The faults of each seed, for worlds whose observations are vectors."""
        assert self.arrays is not None
        return jax.tree.map(lambda leaf: on_host(leaf)[: self.num_seeds], self.arrays.faults)

    @property
    def training_state(self) -> TrainingState:
        """On the host."""
        arrays = self.arrays if self.gathered is None else self.gathered(self.arrays)
        leaves = [np.asarray(unwrapped(leaf))[: self.num_seeds] for leaf in jax.tree.leaves(arrays)]
        return TrainingState(self.update, leaves, self.host_statistics)


class Chunk(NamedTuple):
    """Updates that ran in one go: where they started, where they ended, and what they recorded."""

    first: int
    """The update that was done before the chunk."""
    before: Arrays
    last: int
    after: Arrays
    recorded: Int[np.ndarray, " record"]
    metrics: Metrics
    is_finite: Bool[Array, " seed"]
    shown: Shown


class Runner(AbstractContextManager["Runner"]):
    """Runs updates for all seeds; runners differ in how a batch is played."""

    runs_ahead = True
    """Whether `advance` returns before the devices are done, so that the next chunk can be queued."""
    arrays: Arrays
    """Where the training starts."""

    def __exit__(self, *error: Any) -> None:
        pass

    @abc.abstractmethod
    def advance(self, arrays: Arrays, first: int, last: int, recorded: Int[np.ndarray, " record"]) -> Chunk:
        """Runs the updates after `first` up to `last` and measures the batches of those that are recorded.

        A runner may stop at an update after which a team is not finite.
        """

    def team(self, arrays: Arrays) -> Any:
        """The teams of all seeds."""
        return arrays.state.team

    def gathered(self, arrays: Arrays) -> Arrays:
        """The arrays with all agents, where these are spread over processes."""
        return arrays

    def host_statistics(self, recorded: Int[np.ndarray, " record"]) -> HostStatistics | None:
        return None


class PerSeed(eqx.Module):
    """One algorithm for each seed: numbers and arrays have a leading seed axis, and the rest is the same for all."""

    arrays: Any
    rest: Any = eqx.field(static=True)

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm of one seed, under `vmap`."""
        return eqx.combine(self.arrays, self.rest)

    def players(self, world: Any, state: Any) -> Any:
        """The team that plays the next batch of one seed: the one that learns, unless the algorithm names another."""
        own = getattr(self.algorithm, "players", None)
        return state.team if own is None else own(world, state)

    def learn(
        self,
        state: Any,
        faults: Faults | None,
        batch: Trajectories,
        world: Any,
        update: Int[Array, ""],
        mesh_axis: str | None = None,
    ) -> tuple[Any, Faults | None]:
        """The state and the faults of one seed after an update."""
        if faults is not None:
            faults = None if batch.broken is None else faults.after(update, gathered(batch.broken, mesh_axis, 1))
        return self.algorithm.learn(world, state, batch), faults


def for_all_seeds(algorithm: Any, num_seeds: int) -> Sequence[Any]:
    algorithms = algorithm if isinstance(algorithm, Sequence) else [algorithm] * num_seeds
    if len(algorithms) != num_seeds:
        raise ValueError(f"expected one algorithm for all seeds or one for each of the {num_seeds}, not {len(algorithms)}")
    return algorithms


def for_each_seed(algorithm: Algorithm | Sequence[Algorithm], num_seeds: int) -> PerSeed:
    """The algorithms of all seeds, which share a program."""
    algorithms = for_all_seeds(algorithm, num_seeds)
    parts = [eqx.partition(each, _is_traced) for each in algorithms]
    if any(not eqx.tree_equal(rest, parts[0][1]) for _, rest in parts):
        raise ValueError("algorithms that train side by side may differ in numbers and arrays only")
    return PerSeed(
        jax.tree.map(lambda *leaves: np.stack([_single(leaf) for leaf in leaves]), *(each for each, _ in parts)), parts[0][1]
    )


def _is_traced(leaf: Any) -> bool:
    return isinstance(leaf, float | np.floating | np.ndarray | jax.Array)


def _single(leaf: Any) -> np.ndarray:
    return np.asarray(leaf, np.float32 if np.issubdtype(np.asarray(leaf).dtype, np.floating) else None)


def restored(expected: Any, leaves: Sequence[np.ndarray], put: Any = jnp.asarray, *further: Sequence[Any]) -> Any:
    """A tree like `expected` with the leaves of a `TrainingState`.

    Args:
        put: places an array with a row for each seed on the devices.
        further: more arguments of `put`, for each leaf.
    """
    found, structure = jax.tree.flatten(expected)
    if [(leaf.shape[1:], leaf.dtype) for leaf in leaves] != [(data.shape[1:], data.dtype) for data in map(unwrapped, found)]:
        raise ValueError("the checkpoint does not fit the settings of the training")
    return jax.tree.unflatten(structure, [like(old, put(*leaf)) for old, *leaf in zip(found, leaves, *further, strict=True)])


def are_finite(state: Any) -> Bool[Array, " seed"]:
    """Whether all numbers of each seed's state are finite."""
    leaves = jax.tree.leaves(state)
    numbers = [leaf.reshape(len(leaf), -1) for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return reduce(jnp.logical_and, [jnp.all(jnp.isfinite(each), axis=1) for each in numbers], jnp.ones(len(leaves[0]), bool))


def check_first(state: Any) -> None:
    """Raises ValueError if the state before the first update is not finite."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and not np.isfinite(leaf).all():
            raise ValueError(
                f"the algorithm's state{jax.tree_util.keystr(path)} is not finite before the first update: "
                "for pgpse, lower init_scale; in an algorithm of your own, let init return finite numbers only"
            )


def divergence_of(update: int, team: Any, is_finite: Bool[np.ndarray, " seed"]) -> Divergence:
    """Which agent of the first diverged seed is not finite."""
    row = int(np.argmin(is_finite))
    axes = jax.tree.map(lambda _: 0, team) if isinstance(team.axes, int) else team.axes
    own = jax.tree.leaves(jax.tree.map(lambda leaf, axis: None if axis is None else np.asarray(leaf[row]), team, axes))
    is_bad = np.any([~np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1) for leaf in own], axis=0)
    return Divergence(update, row, int(np.argmax(is_bad)) if is_bad.any() else None)


def record_schedule(num_updates: int, log_every: int | None = None) -> list[int]:
    """The updates whose batch is measured: the first, every `log_every`-th, and the last 1%, which make up the final values."""
    if log_every is None:
        log_every = min(1000, max(1, min(25, num_updates // 20), num_updates // 200))
    first_of_last = last_percent(num_updates)
    step = 1 + (num_updates - first_of_last) // 1000  # a thousand are enough for a mean
    return sorted({1, *range(log_every, num_updates + 1, log_every), *range(num_updates, first_of_last - 1, -step)})


def moments_of(num_updates: int, log_every: int | None = None) -> list[int]:
    """About twenty of the recorded updates, to look at: closer together in the beginning, where a team learns fastest."""
    recorded = np.array(record_schedule(num_updates, log_every))
    wanted = 1 + (num_updates - 1) * np.linspace(0, 1, _MOMENTS) ** 2
    return np.unique(recorded[np.abs(recorded[:, None] - wanted).argmin(axis=0)]).tolist()


def shown_of(world: Any, states: Array | np.ndarray) -> Any:
    """The episodes of a seed's batch that are shown: of the first batch elements and agents, at most so many times.

    Args:
        states: [batch, agent, trajectory, times], or [..., observation] where states are vectors.
    """
    num_times = states.shape[3]
    shown = states[:ELEMENTS_SHOWN, :_AGENTS_SHOWN, :_AGENTS_SHOWN, :: -(-num_times // _TIMES_SHOWN)]
    if world.projection is not None:
        shown = world.projection.project(jnp.asarray(shown))
    return shown[: max(1, _NUMBERS_SHOWN * len(shown) // math.prod(shown.shape))]


def last_percent(num_updates: int) -> int:
    """The first update of the last 1%."""
    return num_updates - max(1, num_updates // 100) + 1


def unwrapped(leaf: Any) -> Any:
    return jr.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def like(old: Any, new: Any) -> Any:
    return jr.wrap_key_data(new, impl=jr.key_impl(old)) if jnp.issubdtype(old.dtype, jax.dtypes.prng_key) else new
