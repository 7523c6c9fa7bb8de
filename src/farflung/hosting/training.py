"""The long loop for worlds that are stepped outside JAX: copies play, compiled code learns."""

import math
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key, UInt

from farflung.checks import whole_number, whole_seeds
from farflung.entropy import Entropy, ragged_plug_in
from farflung.hosting.pool import OVER, Episodes, Pool
from farflung.hosting.world import HostedWorld
from farflung.metrics import Metrics, measure_ragged, normalized
from farflung.noise import uniforms
from farflung.policies import TabularSoftmax, uniform_team
from farflung.rollout import Trajectories
from farflung.tables import cumulative_sum
from farflung.training import Algorithm, Counted, Progress, record_schedule

_FIRST_CAPACITY = 1024
_SECONDS_PER_PROGRESS = 0.25


class Tables(eqx.Module):
    """What is learnt in a hosted world: one row for each state that it has or may yet have, and one for `OVER`, the last."""

    capacity: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)

    @property
    def num_states(self) -> int:
        return self.capacity + 1

    @property
    def entropy(self) -> Entropy:
        return ragged_plug_in(self.capacity)


def train_hosted(
    algorithm: Any,
    world: HostedWorld,
    seeds: Sequence[int],
    num_updates: int,
    log_every: int | None = None,
    pause_every: int | None = None,
) -> Iterator[Progress]:
    """Like `training.train`, for a world whose copies are stepped on the host.

    Each episode has a seed and noise of its own, so that with states that are numbered through their space, a seed's numbers
    depend on neither the other seeds nor the number of copies and workers.
    """
    seeds, num_updates = whole_seeds(seeds), whole_number("num_updates", num_updates)
    algorithm = jax.tree.map(lambda leaf: jnp.broadcast_to(jnp.asarray(leaf, jnp.float32), (len(seeds),)), algorithm)
    tables = _tables(world)
    keys, state = _begin(tables, algorithm, jnp.asarray(seeds, jnp.uint32))
    stops = set(record_schedule(num_updates, log_every))
    shape = (len(seeds), algorithm.batch_size, algorithm.num_agents, algorithm.num_trajectories)

    recorded: list[int] = []
    metrics: list[Metrics] = []
    steps: list[int] = []
    num_steps, visits = 0, np.zeros((len(seeds), algorithm.num_agents, world.num_states))

    def progress(update: int) -> Progress:
        nothing = Metrics(*[np.zeros((len(seeds), 0), np.float32)] * 7)
        table = Metrics.joined([nothing, *(jax.tree.map(lambda column: np.asarray(column)[:, None], part) for part in metrics)])
        table = table._replace(normalized_entropy=normalized(table.entropy, world.num_states))  # of those met by now
        counted = Counted(np.array(steps, np.int64), visits, num_steps)
        team = jax.tree.map(lambda leaf: leaf[..., : world.num_states, :], state.team)
        told = Progress(update, np.array(recorded, np.int64), table, team, len(seeds), counted)
        for kept in (recorded, metrics, steps):
            kept.clear()
        return told

    nothing = Trajectories(jnp.zeros((*shape, world.horizon + 1), jnp.int32), jnp.zeros((*shape, world.horizon), jnp.int32))
    _compile(tables, algorithm, keys, state, nothing)
    with world.open(algorithm.num_agents, math.prod(shape)) as pool:
        yield progress(0)
        told = time.perf_counter()
        for update in range(1, num_updates + 1):
            episodes = _play(pool, world, keys, update - 1, state.team, shape)
            if world.num_states > tables.capacity:
                grown = _tables(world)
                state = jax.tree.map(partial(_with_rows, tables.num_states, grown.num_states), state)
                tables = grown
            batch = _trajectories(episodes, tables, shape)
            num_steps += int(np.count_nonzero(episodes.states[:, 1:] != OVER))
            if update in stops:
                metrics.append(_measure(tables, state.team, batch))
                recorded.append(update)
                steps.append(num_steps // len(seeds))
                visits = _visits(episodes, world.num_states, shape)
            state = _learn(tables, algorithm, state, batch)
            is_due = pause_every is not None and update % pause_every == 0
            if is_due or update == num_updates or time.perf_counter() - told > _SECONDS_PER_PROGRESS:
                yield progress(update)
                told = time.perf_counter()


def measure_random(world: HostedWorld, num_agents: int, batch_size: int, num_trajectories: int) -> Metrics:
    """The metrics of one batch of a team that acts uniformly at random."""
    shape = (1, batch_size, num_agents, num_trajectories)

    def uniform(tables: Tables) -> TabularSoftmax:
        return TabularSoftmax(uniform_team(tables, num_agents).logits[None])

    with world.open(num_agents, math.prod(shape)) as pool:
        episodes = _play(pool, world, jr.key(0, impl="threefry2x32")[None], 0, uniform(_tables(world)), shape)
    tables = _tables(world)  # with the states that were met
    batch = _trajectories(episodes, tables, shape)
    return jax.tree.map(lambda values: np.asarray(values[0]), _measure(tables, uniform(tables), batch))


def _compile(tables: Tables, algorithm: Algorithm, keys: Key[Array, " seed"], state: Any, batch: Trajectories) -> None:
    """Compiles what every update runs, before anybody measures how long one takes."""
    jax.block_until_ready(
        (
            _prepare(keys, 0, state.team, batch.actions.shape[1:]),
            _measure(tables, state.team, batch),
            _learn(tables, algorithm, state, batch),
        )
    )


def _tables(world: HostedWorld) -> Tables:
    """With rows for all the states that there are, or for at least twice as many as were met."""
    doubled = max(_FIRST_CAPACITY, 1 << (2 * world.num_states - 1).bit_length())
    return Tables(world.num_states if world.index.is_complete else doubled, world.num_actions, world.horizon)


def _play(
    pool: Pool, world: HostedWorld, keys: Key[Array, " seed"], number: int, team: TabularSoftmax, shape: tuple[int, ...]
) -> Episodes:
    thresholds, noise, seeds = _prepare(keys, number, team, (*shape[1:], world.horizon))
    num_seeds, _, num_agents, _ = shape
    agents = np.broadcast_to(np.arange(num_agents)[:, None], shape)
    policies = agents + num_agents * np.arange(num_seeds)[:, None, None, None]
    return pool.play(
        world.index,
        np.asarray(thresholds),
        policies.reshape(-1),
        agents.reshape(-1),
        np.asarray(noise).reshape(-1, world.horizon),
        np.asarray(seeds).reshape(-1),
    )


def _trajectories(episodes: Episodes, tables: Tables, shape: tuple[int, ...]) -> Trajectories:
    states = np.where(episodes.states == OVER, tables.capacity, episodes.states)
    return Trajectories(
        jnp.asarray(states.reshape(*shape, tables.horizon + 1)), jnp.asarray(episodes.actions.reshape(*shape, tables.horizon))
    )


def _visits(episodes: Episodes, num_states: int, shape: tuple[int, ...]) -> Float[np.ndarray, "seed agent state"]:
    """How each agent's visits are spread over the states."""
    num_seeds, _, num_agents, _ = shape
    states = np.moveaxis(episodes.states.reshape(*shape, -1), 2, 1).reshape(num_seeds * num_agents, -1)
    owner = np.broadcast_to(np.arange(len(states))[:, None], states.shape)[states != OVER]
    counts = np.bincount(owner * num_states + states[states != OVER], minlength=len(states) * num_states)
    counts = counts.reshape(num_seeds, num_agents, num_states)
    return counts / counts.sum(axis=-1, keepdims=True)


def _with_rows(old: int, new: int, leaf: Array) -> Array:
    """A table of a team, or of its optimiser, with rows for more states: like the last, by which they were played so far."""
    if leaf.ndim < 2 or leaf.shape[-2] != old:
        return leaf
    return jnp.pad(leaf, [(0, 0)] * (leaf.ndim - 2) + [(0, new - old), (0, 0)], mode="edge")


@jax.jit
def _begin(tables: Tables, algorithm: Algorithm, seeds: UInt[Array, " seed"]) -> tuple[Key[Array, " seed"], Any]:
    keys = jax.vmap(partial(jr.key, impl="threefry2x32"))(seeds)
    init_keys, train_keys = jax.vmap(jr.split, out_axes=1)(keys)
    return train_keys, jax.vmap(lambda algorithm, key: algorithm.init(key, tables))(algorithm, init_keys)


@partial(jax.jit, static_argnames="shape")
def _prepare(
    keys: Key[Array, " seed"], number: Int[Array, ""], team: TabularSoftmax, shape: tuple[int, ...]
) -> tuple[
    Float[Array, "policy step row action"],
    Float[Array, "seed batch agent trajectory time"],
    Int[Array, "seed batch agent trajectory"],
]:
    """All that an update needs to play: the policies as cumulative probabilities, noise, and the episodes' seeds."""
    noise_keys, seed_keys = jax.vmap(lambda key: jr.split(jr.fold_in(key, number)), out_axes=1)(keys)
    cumulative = cumulative_sum(team.probabilities)
    if not team.is_time_dependent:
        cumulative = cumulative[:, :, None]
    noise = jax.vmap(lambda key: uniforms(key, shape))(noise_keys)
    seeds = jax.vmap(lambda key: (jr.bits(key, shape[:-1]) >> 1).astype(jnp.int32))(seed_keys)
    return cumulative.reshape(-1, *cumulative.shape[2:]), noise, seeds


@jax.jit
def _learn(tables: Tables, algorithm: Algorithm, state: Any, batch: Trajectories) -> Any:
    # One seed after the other, so that the last bits of its sums depend on no other; playing takes far longer anyway.
    return jax.lax.map(lambda each: each[0].learn(tables, *each[1:]), (algorithm, state, batch))


@jax.jit
def _measure(tables: Tables, team: TabularSoftmax, batch: Trajectories) -> Metrics:
    return jax.vmap(measure_ragged, (0, 0, None))(team, batch, tables.capacity)
