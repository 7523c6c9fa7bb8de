"""Teams of networks in worlds of vectors that are stepped on the host."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from farflung.numerics.compilation import REPRODUCIBLE
from farflung.policies import NeuralPolicy, UniformPolicy
from farflung.policies.rollout import Trajectories
from farflung.training.hosted_tables import Shape, draw, players
from farflung.training.metrics import Metrics, measure_vectors
from farflung.worlds.hosted.players import Episodes
from farflung.worlds.hosted.pool import Pool
from farflung.worlds.hosted.vectors import HostedVectors, View
from farflung.worlds.projection import Box


class VectorLesson:
    """Networks, which see vectors."""

    def __init__(self, world: HostedVectors) -> None:
        self._world = world
        self.outlook = world.view

    def play(self, pool: Pool, keys: Key[Array, " seed"], number: int, team: Any, shape: Shape) -> Episodes:
        noise, seeds = draw(keys, number, self._noise_shape(team, shape))
        rows, agents = players(shape)
        noise = np.asarray(noise).reshape(len(rows), *noise.shape[-2:])
        return pool.play(NetworkPlayer(self._world, team, rows, agents, noise), agents, np.asarray(seeds).reshape(-1))

    def grown(self, state: Any) -> Any:
        return state

    def trajectories(self, episodes: Episodes, shape: Shape) -> Trajectories:
        states, actions = (array.reshape(*shape, *array.shape[1:]) for array in (episodes.states, episodes.actions))
        return Trajectories(jnp.asarray(states), jnp.asarray(actions), jnp.asarray(episodes.broken.reshape(shape)))

    def measure(self, team: Any, batch: Trajectories) -> Metrics:
        return _measure_vectors(self.outlook, team, batch)

    def num_steps(self, episodes: Episodes) -> int:
        return int(np.count_nonzero(~np.isnan(episodes.states[:, 1:, 0])))

    def visits(self, episodes: Episodes, shape: Shape) -> Float[np.ndarray, "seed agent state"]:
        return np.zeros((shape[0], shape[2], 0))  # the cells of a grid may be millions; who wants them has the paths

    def features(self, episodes: Episodes, shape: Shape, most: int) -> np.ndarray:
        states = episodes.states.reshape(*shape, *episodes.states.shape[1:])[:, :most]
        return states[..., list(self.outlook.projection.features)]

    def told(self, team: Any) -> Any:
        return team

    def blank(self, shape: Shape) -> Trajectories:
        horizon, size = self._world.horizon, self._world.observation_size
        actions: Any = jnp.zeros((*shape, horizon), jnp.int32)
        if isinstance(self._world.actions, Box):
            actions = jnp.zeros((*shape, horizon, self._world.actions.size))
        return Trajectories(jnp.zeros((*shape, horizon + 1, size)), actions, jnp.zeros(shape, jnp.int32))

    def compile(self, keys: Key[Array, " seed"], team: Any, shape: Shape) -> None:
        copies = self._world.num_copies(shape[2], int(np.prod(shape)))
        noise = np.zeros((copies, team.num_uniforms), np.float32)
        nobody, nothing = np.zeros(copies, np.int64), np.zeros((copies, self._world.observation_size), np.float32)
        acted = _act(team, nobody, nobody, noise, nobody, nothing)
        jax.block_until_ready((draw(keys, 0, self._noise_shape(team, shape)), acted))

    def uniform(self, num_agents: int) -> Any:
        return UniformPolicy(self._world.actions, num_agents)

    def _noise_shape(self, team: Any, shape: Shape) -> Shape:
        return (*shape[1:], self._world.horizon, team.num_uniforms)


class NetworkPlayer:
    """Plays by networks: one call of compiled code for a step of all copies."""

    def __init__(
        self,
        world: HostedVectors,
        team: NeuralPolicy | UniformPolicy,
        rows: Int[np.ndarray, " episode"],
        agents: Int[np.ndarray, " episode"],
        noise: Float[np.ndarray, "episode time uniform"],
    ) -> None:
        """
        Args:
            team: with leading seed and agent axes.
            rows: which seed's team plays an episode.
            agents: who of it plays an episode.
            noise: uniform numbers for each action.
        """
        self.horizon = noise.shape[1]
        self._world, self._team, self._rows, self._agents, self._noise = world, team, rows, agents, noise

    def blank(self, num_episodes: int) -> tuple[np.ndarray, np.ndarray]:
        states = np.full((num_episodes, self.horizon + 1, self._world.observation_size), np.nan, np.float32)
        if isinstance(self._world.actions, Box):
            return states, np.zeros((num_episodes, self.horizon, self._world.actions.size), np.float32)
        return states, np.zeros((num_episodes, self.horizon), np.int32)

    def see(self, observations: Any) -> np.ndarray:
        return self._world.vectors(observations)

    def is_sound(self, seen: np.ndarray) -> Bool[np.ndarray, " copy"]:
        return np.isfinite(seen).all(axis=1)

    def act(self, seen: np.ndarray, episodes: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        noise = self._noise[episodes, times]
        drawn, executed = _act(self._team, self._rows[episodes], self._agents[episodes], noise, times, seen)
        return np.asarray(drawn), self._world.for_simulator(np.asarray(executed))


@partial(jax.jit, compiler_options=REPRODUCIBLE)
def _act(
    team: NeuralPolicy | UniformPolicy,
    rows: Int[Array, " copy"],
    agents: Int[Array, " copy"],
    noise: Float[Array, "copy uniform"],
    times: Int[Array, " copy"],
    seen: Float[Array, "copy observation"],
) -> tuple[Array, Array]:
    """What each copy's policy draws, and what the world is told."""
    policies: Any = team
    if isinstance(team, NeuralPolicy):  # what a team shares has an axis for the seeds alone
        policies = jax.tree.map(lambda leaf, axis: leaf[rows] if axis is None else leaf[rows, agents], team, team.axes)

    def act(policy: NeuralPolicy | UniformPolicy, *inputs: Array) -> tuple[Array, Array]:
        drawn = policy.sampler()(*inputs)
        return drawn, policy.executed(drawn)

    return jax.vmap(act)(policies, noise, times, seen)


@partial(jax.jit, compiler_options=REPRODUCIBLE)
def _measure_vectors(view: View, team: NeuralPolicy | UniformPolicy, batch: Trajectories) -> Metrics:
    def measured(each: tuple[Any, Trajectories]) -> Metrics:
        return measure_vectors(*each, view.projection, view.projection.num_cells)

    return jax.lax.map(measured, (team, batch))
