"""Updates of host-stepped worlds: copies of an environment play, compiled code acts and learns."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, UInt

from farflung.algorithms import Algorithm
from farflung.algorithms.task import Task
from farflung.entropy.objective import ObjectiveIn
from farflung.numerics.arrays import cumulative_sum
from farflung.numerics.compilation import ONCE, REPRODUCIBLE
from farflung.numerics.noise import uniforms
from farflung.policies import TabularSoftmax, UniformPolicy, uniform_team
from farflung.policies.acting import one_of
from farflung.policies.rollout import Trajectories
from farflung.training.metrics import Metrics, measure_batch, normalized
from farflung.training.progress import (
    ELEMENTS_SHOWN,
    Arrays,
    Chunk,
    HostStatistics,
    PerSeed,
    Runner,
    TrainingState,
    are_finite,
    first_arrays,
    for_each_seed,
    restored,
    shown_of,
)
from farflung.worlds.hosted.players import OVER, Episodes, Player
from farflung.worlds.hosted.pool import Pool
from farflung.worlds.hosted.world import View

Shape = tuple[int, ...]
"""The numbers of seeds, batch elements, agents and trajectories."""


class HostedRunner(Runner):
    """Plays with copies of an environment on the host and learns in compiled code.

    Each episode has a seed and noise of its own, so that results don't depend on the number of copies and workers.
    """

    runs_ahead = False

    def __init__(
        self,
        algorithm: Algorithm | Sequence[Algorithm],
        world: Any,
        seeds: Sequence[int],
        training_state: TrainingState | None,
    ) -> None:
        self._world, self._view = world, world.view()
        self._algorithms = jax.tree.map(jnp.asarray, for_each_seed(algorithm, len(seeds)))
        self.arrays = _begin(self._view, self._algorithms, jnp.asarray(seeds, jnp.uint32))
        settings, num_agents = self._algorithms.rest, self.arrays.state.team.num_agents
        self._objective: ObjectiveIn | None = getattr(settings, "objective", None)
        self._task = None if getattr(settings, "task", None) is None else self._algorithms.algorithm.task
        self._shape: Shape = (len(seeds), settings.batch_size, num_agents, settings.num_trajectories)
        self._statistics = HostStatistics(np.zeros(0, np.int64), np.zeros((len(seeds), num_agents, 0)), 0)
        if training_state is not None:
            assert training_state.host_statistics is not None
            self.arrays = restored(self.arrays, training_state.leaves)
            self._statistics = training_state.host_statistics
        self._steps: list[int] = []
        self._shown = np.zeros((len(seeds), 0))
        self._no_records: Metrics | None = None

    def __enter__(self) -> "HostedRunner":
        self._pool: Pool = self._world.open(self._shape[2], math.prod(self._shape))
        return self

    def __exit__(self, *error: Any) -> None:
        self._pool.__exit__(*error)

    def advance(self, arrays: Arrays, first: int, last: int, recorded: Int[np.ndarray, " record"]) -> Chunk:
        if self._no_records is None:
            self._no_records = self._compile(arrays)
        metrics, is_finite = [self._no_records], _are_finite(arrays.state)
        for update in range(first + 1, last + 1):
            players = _players_of(self._view, self._algorithms, arrays.state)
            episodes = play(self._world, self._pool, arrays.keys, update - 1, players, self._shape)
            arrays = self._grown(arrays)
            batch = trajectories(self._view, episodes, self._shape)
            learned = _learn(self._view, self._algorithms, arrays, update, batch)
            is_finite = _are_finite(learned.state)
            if not np.asarray(is_finite).all():
                done = recorded[recorded <= update]
                return Chunk(update - 1, arrays, update, learned, done, self._joined(metrics), is_finite, self._shown)
            is_real = _is_real(episodes.states)
            self._statistics = self._statistics._replace(
                num_steps=self._statistics.num_steps + int(np.count_nonzero(is_real[:, 1:]))
            )
            if update in recorded:
                measured = _measure(self._view, self._objective, self._task, arrays.state.team, batch)
                metrics.append(jax.tree.map(lambda column: np.asarray(column)[:, None], measured))
                self._record(episodes, is_real)
            arrays = learned
        return Chunk(first, arrays, last, arrays, recorded, self._joined(metrics), is_finite, self._shown)

    def team(self, arrays: Arrays) -> Any:
        """Without table rows for states that were not met yet."""
        if self._world.projection is not None:
            return arrays.state.team
        return jax.tree.map(lambda leaf: leaf[..., : self._world.num_states, :], arrays.state.team)

    def host_statistics(self, recorded: Int[np.ndarray, " record"]) -> HostStatistics:
        steps, self._steps = self._steps[: len(recorded)], []
        return self._statistics._replace(steps=np.array(steps, np.int64))

    def _compile(self, arrays: Arrays) -> Metrics:
        """Compiles everything that an update runs, so that the first is not slower; returns a table of no records."""
        players = _players_of(self._view, self._algorithms, arrays.state)
        player, agents, _ = _draw_players(self._world, arrays.keys, 0, players, self._shape)
        num, idle = len(agents), np.zeros(self._pool.num_copies, np.int64)
        states, actions = player.blank(num)
        states[:] = 0
        player.act(states[idle, 0], idle, idle)
        rewards, is_terminated = np.zeros(actions.shape[:2], np.float32), np.zeros(num, bool)
        episodes = Episodes(states, actions, rewards, is_terminated, np.zeros(num, np.int32))
        batch = trajectories(self._view, episodes, self._shape)
        measured = _measure(self._view, self._objective, self._task, arrays.state.team, batch)
        jax.block_until_ready((measured, _learn(self._view, self._algorithms, arrays, 1, batch)))
        return jax.tree.map(lambda _: np.zeros((self._shape[0], 0), np.float32), measured)

    def _grown(self, arrays: Arrays) -> Arrays:
        """With table rows for all states that were met: new rows are like the last, by which new states were played."""
        old, new = self._view.num_states, self._world.num_states
        if self._world.projection is not None or new <= old:
            return arrays
        self._view = self._world.view()
        more = self._view.num_states - old

        def grown(leaf: Array) -> Array:
            if leaf.ndim < 2 or leaf.shape[-2] != old + 1:
                return leaf
            return jnp.pad(leaf, [(0, 0)] * (leaf.ndim - 2) + [(0, more), (0, 0)], mode="edge")

        return arrays._replace(state=jax.tree.map(grown, arrays.state))

    def _record(self, episodes: Episodes, is_real: Bool[np.ndarray, "episode times"]) -> None:
        self._steps.append(self._statistics.num_steps // self._shape[0])
        seen: dict[str, Any]
        states = episodes.states.reshape(*self._shape, *episodes.states.shape[1:])
        self._shown = np.stack([np.asarray(shown_of(self._world, own)) for own in states])
        if self._world.projection is None:
            states = _stayed(episodes)
            seen = {"visits": _visits(states, _is_real(states), self._world.num_states, self._shape)}
        else:
            seen = {"features": states[:, :ELEMENTS_SHOWN][..., list(self._world.projection.features)]}
        self._statistics = self._statistics._replace(**seen)

    def _joined(self, metrics: list[Metrics]) -> Metrics:
        joined = Metrics.joined(metrics)
        return joined._replace(normalized_entropy=normalized(joined.entropy, self._world.num_states))  # of those met by now


def measure_random(
    world: Any, num_agents: int, batch_size: int, num_trajectories: int, objective: ObjectiveIn | None = None
) -> tuple[Metrics, np.ndarray]:
    """The metrics of one batch of a team that acts uniformly at random, and a few of its episodes."""
    shape, keys = (1, batch_size, num_agents, num_trajectories), jr.key(0, impl="threefry2x32")[None]
    with world.open(num_agents, math.prod(shape)) as pool:
        episodes = play(world, pool, keys, 0, _random_team(world, num_agents), shape)
    view = world.view()  # with the states that were met
    batch = trajectories(view, episodes, shape)
    measured = _measure(view, objective, None, _random_team(world, num_agents), batch)
    return jax.tree.map(lambda values: np.asarray(values[0]), measured), np.asarray(shown_of(world, batch.states[0]))


def _random_team(world: Any, num_agents: int) -> Any:
    """A team that acts uniformly at random, with one seed."""
    if world.projection is not None:
        return UniformPolicy(world.actions, num_agents)
    return TabularSoftmax(uniform_team(world.view(), num_agents).logits[None])


def play(
    world: Any, pool: Pool, keys: Key[Array, " seed"], number: int, team: Any, shape: Shape, frames: Any = None
) -> Episodes:
    """The episodes of one update, for all seeds; `frames` gets what the environment renders, as `Pool.play` says."""
    return pool.play(*_draw_players(world, keys, number, team, shape), frames)


def play_once(
    world: Any, team: Any, element: int, num_trajectories: int, *, is_rendered: bool = False
) -> tuple[np.ndarray, dict[int, list[np.ndarray]]]:
    """The states [agent, trajectory, times, ...] of one batch element of a trained team, and each episode's frames."""
    world = world.with_environment().snapshot()
    world = world.rendered() if is_rendered else world
    shape, keys = (1, 1, team.num_agents, num_trajectories), jr.key(0, impl="threefry2x32")[None]
    frames: dict[int, list[np.ndarray]] = {}
    with world.open(team.num_agents, math.prod(shape)) as pool:
        of_one_seed = jax.tree.map(lambda leaf: leaf[None], team)
        episodes = play(world, pool, keys, element, of_one_seed, shape, frames if is_rendered else None)
    states = episodes.states if world.projection is not None else _stayed(episodes)
    return states.reshape(*shape[2:], *states.shape[1:]), frames


def _draw_players(
    world: Any, keys: Key[Array, " seed"], number: int, team: Any, shape: Shape
) -> tuple[Player, Int[np.ndarray, " episode"], Int[np.ndarray, " episode"]]:
    """A player with the noise of one update, and each episode's agent and seed."""
    uniforms_per_action = () if world.projection is None else (team.num_uniforms,)
    noise, seeds = _draw(keys, number, (*shape[1:], world.horizon, *uniforms_per_action))
    rows, agents = _players(shape)
    noise = np.asarray(noise).reshape(len(rows), *noise.shape[4:])
    player: Player
    if world.projection is None:
        player = world.player(np.asarray(_thresholds(team)), agents + shape[2] * rows, noise)
    else:
        player = NetworkPlayer(world, team, rows, agents, noise)
    return player, agents, np.asarray(seeds).reshape(-1)


def trajectories(view: View, episodes: Episodes, shape: Shape) -> Trajectories:
    """Episodes as compiled code takes them; a numbered state in which the environment ended an episode counts until T."""
    columns = (episodes.states, episodes.actions, episodes.rewards)
    states, actions, rewards = (array.reshape(*shape, *array.shape[1:]) for array in columns)
    more = {"rewards": jnp.asarray(rewards)}
    if view.projection is not None:
        broken = jnp.asarray(episodes.broken.reshape(shape))
        return Trajectories(jnp.asarray(states), jnp.asarray(actions), broken, **more)
    has_acted = states[..., 1:] != OVER
    acting = np.where(has_acted, states[..., :-1], view.num_states)
    stayed = _stayed(episodes).reshape(states.shape)
    counted = np.where(stayed == OVER, view.num_states, stayed)
    return Trajectories(jnp.asarray(counted), jnp.asarray(actions), acting=jnp.asarray(acting, counted.dtype), **more)


def _stayed(episodes: Episodes) -> Int[np.ndarray, "episode times"]:
    """The states of episodes as if agents stayed where the environment ended them, as in a table whose ends are absorbing."""
    states = episodes.states
    last = np.take_along_axis(states, np.count_nonzero(states != OVER, axis=1)[:, None] - 1, axis=1)
    return np.where((states == OVER) & episodes.is_terminated[:, None], last, states)


def _is_real(states: np.ndarray) -> Bool[np.ndarray, "episode times"]:
    """Which states lie within an episode."""
    return states != OVER if states.ndim == 2 else ~np.isnan(states[..., 0])


def _players(shape: Shape) -> tuple[Int[np.ndarray, " episode"], Int[np.ndarray, " episode"]]:
    """The seed's row and the agent of each episode."""
    rows, _, agents, _ = np.indices(shape).reshape(len(shape), -1)
    return rows, agents


def _visits(
    states: Int[np.ndarray, "episode times"], is_real: Bool[np.ndarray, "episode times"], num_states: int, shape: Shape
) -> Float[np.ndarray, "seed agent state"]:
    """How each agent's visits are spread over the states."""
    num_seeds, _, num_agents, _ = shape
    rows, agents = _players(shape)
    owner = np.broadcast_to((rows * num_agents + agents)[:, None], states.shape)[is_real]
    counts = np.bincount(owner * num_states + states[is_real], minlength=num_seeds * num_agents * num_states)
    counts = counts.reshape(num_seeds, num_agents, num_states)
    return counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1)


@dataclass(frozen=True, eq=False)
class NetworkPlayer:
    """Plays by networks: one call of compiled code for a step of all copies."""

    world: Any
    team: Any
    """With leading seed and agent axes."""
    rows: Int[np.ndarray, " episode"]
    """The seed's row of each episode."""
    agents: Int[np.ndarray, " episode"]
    noise: Float[np.ndarray, "episode time uniform"]

    @property
    def horizon(self) -> int:
        return self.noise.shape[1]

    def blank(self, num_episodes: int) -> tuple[np.ndarray, np.ndarray]:
        states = np.full((num_episodes, self.horizon + 1, self.world.state_size), np.nan, np.float32)
        return states, np.zeros((num_episodes, self.horizon, *self.world.actions.shape), self.world.actions.dtype)

    def see(self, observations: Any) -> np.ndarray:
        return self.world.vectors(observations)

    def is_sound(self, seen: np.ndarray) -> Bool[np.ndarray, " copy"]:
        return np.isfinite(seen).all(axis=1)

    def act(self, seen: np.ndarray, episodes: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        noise = self.noise[episodes, times]
        drawn, executed = _act(self.team, self.rows[episodes], self.agents[episodes], noise, times, seen)
        return np.asarray(drawn), self.world.for_simulator(np.asarray(executed))


@partial(jax.jit, compiler_options=ONCE)
def _begin(view: View, algorithms: PerSeed, seeds: UInt[Array, " seed"]) -> Arrays:
    init = jax.vmap(lambda each, key: each.algorithm.init(key, view))
    return first_arrays(seeds, view, partial(init, algorithms))


_are_finite = jax.jit(are_finite)


@partial(jax.jit, compiler_options=REPRODUCIBLE)
def _learn(view: View, algorithms: PerSeed, arrays: Arrays, update: Int[Array, ""], batch: Trajectories) -> Arrays:
    # One seed after the other: batched matrix products are not bit-identical across batch sizes, and playing takes far longer.
    each_seed = (algorithms, arrays.state, arrays.faults, batch)
    return Arrays(arrays.keys, *jax.lax.map(lambda each: each[0].learn(*each[1:], view, update), each_seed))


@partial(jax.jit, compiler_options=REPRODUCIBLE)
def _players_of(view: View, algorithms: PerSeed, state: Any) -> Any:
    return jax.vmap(lambda each, state: each.players(view, state))(algorithms, state)


@partial(jax.jit, static_argnums=1, compiler_options=REPRODUCIBLE)
def _measure(view: View, objective: ObjectiveIn | None, task: Task | None, team: Any, batch: Trajectories) -> Metrics:
    if view.projection is None:
        return jax.vmap(lambda task, team, batch: measure_batch(view, team, batch, objective, task))(task, team, batch)
    return jax.lax.map(lambda each: measure_batch(view, each[1], each[2], objective, each[0]), (task, team, batch))


@partial(jax.jit, static_argnames="shape")
def _draw(
    keys: Key[Array, " seed"], number: Int[Array, ""], shape: Shape
) -> tuple[Float[Array, "seed ..."], Int[Array, "seed batch agent trajectory"]]:
    """The randomness of an update: noise for the actions, and the seeds of the episodes."""
    noise_keys, seed_keys = jax.vmap(lambda key: jr.split(jr.fold_in(key, number)), out_axes=1)(keys)
    noise = jax.vmap(lambda key: uniforms(key, shape))(noise_keys)
    seeds = jax.vmap(lambda key: (jr.bits(key, shape[:3]) >> 1).astype(jnp.int32))(seed_keys)
    return noise, seeds


@partial(jax.jit, compiler_options=REPRODUCIBLE)
def _thresholds(team: TabularSoftmax) -> Float[Array, "policy step row action"]:
    cumulative = cumulative_sum(team.probabilities)
    if not team.is_time_dependent:
        cumulative = cumulative[:, :, None]
    return cumulative.reshape(-1, *cumulative.shape[2:])


@partial(jax.jit, compiler_options=REPRODUCIBLE)
def _act(
    team: Any,
    rows: Int[Array, " copy"],
    agents: Int[Array, " copy"],
    noise: Float[Array, "copy uniform"],
    times: Int[Array, " copy"],
    seen: Float[Array, "copy observation"],
) -> tuple[Array, Array]:
    """What each copy's policy draws, and what the world executes."""

    def act(row: Array, agent: Array, *inputs: Array) -> tuple[Array, Array]:
        policy = one_of(jax.tree.map(lambda leaf: leaf[row], team), agent)
        drawn = policy.sampler()(*inputs)
        return drawn, policy.executed(drawn)

    return jax.vmap(act)(rows, agents, noise, times, seen)
