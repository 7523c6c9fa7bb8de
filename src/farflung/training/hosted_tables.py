"""What a training in worlds that are stepped on the host needs of them, and how that is for tables."""

from functools import partial
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from farflung.entropy.counts import Entropy, ragged_plug_in
from farflung.numerics.arrays import cumulative_sum
from farflung.numerics.compilation import REPRODUCIBLE
from farflung.numerics.noise import uniforms
from farflung.policies import TabularSoftmax, uniform_team
from farflung.policies.rollout import Trajectories
from farflung.training.metrics import Metrics, measure_ragged
from farflung.worlds.hosted.players import OVER, Episodes
from farflung.worlds.hosted.pool import Pool
from farflung.worlds.hosted.tables import HostedTable

_FIRST_CAPACITY = 1024
_GROWTH = 4

Shape = tuple[int, ...]
"""The numbers of seeds, batch elements, agents and trajectories."""


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


@runtime_checkable
class Lesson(Protocol):
    """How episodes are played by teams of one kind, and what is made of them."""

    outlook: Any
    """What an algorithm is told of the world."""

    def play(self, pool: Pool, keys: Key[Array, " seed"], number: int, team: Any, shape: Shape) -> Episodes:
        """The episodes of one update."""

    def grown(self, state: Any) -> Any:
        """The state of an algorithm with room for all that was met, and the outlook likewise."""

    def trajectories(self, episodes: Episodes, shape: Shape) -> Trajectories: ...
    def measure(self, team: Any, batch: Trajectories) -> Metrics: ...
    def num_steps(self, episodes: Episodes) -> int: ...
    def visits(self, episodes: Episodes, shape: Shape) -> Float[np.ndarray, "seed agent state"]:
        """How each agent's visits are spread over the states; where these are vectors, none are counted."""

    def features(self, episodes: Episodes, shape: Shape, most: int) -> np.ndarray | None:
        """Where agents went in the first elements of the batch, where states are vectors."""

    def told(self, team: Any) -> Any:
        """The team without what is there for states that were not met yet."""

    def blank(self, shape: Shape) -> Trajectories:
        """Trajectories of the same shapes as real ones."""

    def compile(self, keys: Key[Array, " seed"], team: Any, shape: Shape) -> None:
        """What `play` runs."""

    def uniform(self, num_agents: int) -> Any:
        """A team that acts uniformly at random, with one seed."""


class TableLesson:
    """Softmax tables, which grow where states are met that nobody knew of."""

    def __init__(self, world: HostedTable) -> None:
        self._world = world
        self.outlook = self._tables()

    def _tables(self) -> Tables:
        """With rows for all states, or for those that were met and more: how many only depends on their number."""
        world, capacity = self._world, _FIRST_CAPACITY
        while capacity < world.num_states:
            capacity *= _GROWTH
        return Tables(world.num_states if world.index.is_complete else capacity, world.num_actions, world.horizon)

    def play(self, pool: Pool, keys: Key[Array, " seed"], number: int, team: Any, shape: Shape) -> Episodes:
        horizon = self._world.horizon
        noise, seeds = draw(keys, number, (*shape[1:], horizon))
        rows, agents = players(shape)
        policies = agents + shape[2] * rows
        noise = np.asarray(noise).reshape(-1, horizon)
        player = self._world.player(np.asarray(_thresholds(team)), policies, noise)
        return pool.play(player, agents, np.asarray(seeds).reshape(-1))

    def grown(self, state: Any) -> Any:
        if self._world.num_states <= self.outlook.capacity:
            return state
        old, self.outlook = self.outlook, self._tables()
        return jax.tree.map(partial(_with_rows, old.num_states, self.outlook.num_states), state)

    def trajectories(self, episodes: Episodes, shape: Shape) -> Trajectories:
        states = np.where(episodes.states == OVER, self.outlook.capacity, episodes.states)
        horizon = self.outlook.horizon
        return Trajectories(
            jnp.asarray(states.reshape(*shape, horizon + 1)), jnp.asarray(episodes.actions.reshape(*shape, horizon))
        )

    def measure(self, team: Any, batch: Trajectories) -> Metrics:
        return _measure_tables(self.outlook, team, batch)

    def num_steps(self, episodes: Episodes) -> int:
        return int(np.count_nonzero(episodes.states[:, 1:] != OVER))

    def visits(self, episodes: Episodes, shape: Shape) -> Float[np.ndarray, "seed agent state"]:
        return visits(episodes.states, episodes.states != OVER, self._world.num_states, shape)

    def features(self, episodes: Episodes, shape: Shape, most: int) -> None:
        return None

    def told(self, team: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf[..., : self._world.num_states, :], team)

    def blank(self, shape: Shape) -> Trajectories:
        horizon = self.outlook.horizon
        return Trajectories(jnp.zeros((*shape, horizon + 1), jnp.int32), jnp.zeros((*shape, horizon), jnp.int32))

    def compile(self, keys: Key[Array, " seed"], team: Any, shape: Shape) -> None:
        jax.block_until_ready((draw(keys, 0, (*shape[1:], self._world.horizon)), _thresholds(team)))

    def uniform(self, num_agents: int) -> Any:
        return TabularSoftmax(uniform_team(self.outlook, num_agents).logits[None])


def players(shape: Shape) -> tuple[Int[np.ndarray, " episode"], Int[np.ndarray, " episode"]]:
    """The seed's row and the agent that each episode is played by."""
    rows, _, agents, _ = np.indices(shape, sparse=True)
    return np.broadcast_to(rows, shape).reshape(-1), np.broadcast_to(agents, shape).reshape(-1)


def visits(
    states: Int[np.ndarray, "episode times"], is_real: Bool[np.ndarray, "episode times"], num_states: int, shape: Shape
) -> Float[np.ndarray, "seed agent state"]:
    """How each agent's visits are spread over the states."""
    num_seeds, _, num_agents, _ = shape
    rows, agents = players(shape)
    owner = np.broadcast_to((rows * num_agents + agents)[:, None], states.shape)[is_real]
    counts = np.bincount(owner * num_states + states[is_real], minlength=num_seeds * num_agents * num_states)
    counts = counts.reshape(num_seeds, num_agents, num_states)
    return counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1)


def _with_rows(old: int, new: int, leaf: Array) -> Array:
    """A table of a team, or of its optimiser, with rows for more states: like the last, by which they were played so far."""
    if leaf.ndim < 2 or leaf.shape[-2] != old:
        return leaf
    return jnp.pad(leaf, [(0, 0)] * (leaf.ndim - 2) + [(0, new - old), (0, 0)], mode="edge")


@partial(jax.jit, static_argnames="shape")
def draw(
    keys: Key[Array, " seed"], number: Int[Array, ""], shape: Shape
) -> tuple[Float[Array, "seed ..."], Int[Array, "seed batch agent trajectory"]]:
    """What chance an update needs to play: noise, and the episodes' seeds."""
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
def _measure_tables(tables: Tables, team: TabularSoftmax, batch: Trajectories) -> Metrics:
    return jax.vmap(measure_ragged, (0, 0, None))(team, batch, tables.capacity)
