"""Episodes of a team in a world that is stepped on the host."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from farflung.config.checks import whole_number
from farflung.data.episodes import Dataset, Source, vector_episodes
from farflung.data.sources import NotDiscreteError, observed_world, read_space, spaces_of, spec_to_json, vector_source
from farflung.policies import NeuralPolicy, TabularSoftmax, UniformPolicy
from farflung.training.hosted_vectors import NetworkPlayer
from farflung.worlds.gymnasium_table import NoTableError
from farflung.worlds.hosted.indexing import Met
from farflung.worlds.hosted.players import OVER, Episodes, Player
from farflung.worlds.hosted.tables import HostedTable
from farflung.worlds.hosted.vectors import HostedVectors
from farflung.worlds.hosted.world import HostedWorld
from farflung.worlds.tabular import TabularMDP

_TRANSITIONS_PER_PART = 2**16


def play_hosted(
    world: HostedTable,
    team: TabularSoftmax,
    episodes: int,
    random_seed: int,
    metadata: Mapping[str, Any],
    first_part: int = 0,
    before: Dataset | None = None,
) -> Iterator[Dataset]:
    """Episodes in parts; where new states may be met, each knows those that were met by its end.

    Args:
        before: the part before the first one.
    """
    world = world.with_environment().snapshot()  # states that are met here are not the run's
    if before is not None and isinstance(world.index, Met):
        world.index.know(np.asarray(before.source.metadata["features"], np.int64))
    for part in _played(world, team, episodes, random_seed, first_part):
        source, first_observation = _source(world, metadata)
        agents = np.arange(len(part.states), dtype=np.int32) % team.num_agents  # each part begins with the first
        is_seen, is_step = part.states != OVER, part.states[:, 1:] != OVER
        actions = np.asarray(world.env_actions)[part.actions] if "features" not in source.metadata else part.actions
        yield Dataset(
            observations=np.where(is_seen, part.states + first_observation, 0),
            actions=np.where(is_step, actions, 0),
            rewards=part.rewards,
            lengths=is_step.sum(axis=1, dtype=np.int32),
            terminated=part.is_terminated,
            truncated=~part.is_terminated,
            agents=agents,
            source=source,
        )


def _played(
    world: HostedTable, team: TabularSoftmax, episodes: int, random_seed: int, first_part: int = 0
) -> Iterator[Episodes]:
    probabilities = np.asarray(team.probabilities)
    if not team.is_time_dependent:
        probabilities = probabilities[:, None]
    # A state that the team has never met is played at random.
    unknown = np.full((*probabilities.shape[:2], 1, world.num_actions), 1 / world.num_actions)
    thresholds = np.cumsum(np.concatenate([probabilities, unknown], axis=2), axis=-1)

    def player(agents: Int[np.ndarray, " episode"], noise: Float[np.ndarray, "episode time"]) -> Player:
        return world.player(thresholds, agents, noise)

    def draw(generator: np.random.Generator, shape: tuple[int, int]) -> Float[np.ndarray, "episode time"]:
        return generator.random(shape)

    return _in_parts(world, team.num_agents, episodes, random_seed, draw, player, first_part)


def play_vectors(
    world: HostedVectors,
    team: NeuralPolicy | UniformPolicy,
    episodes: int,
    random_seed: int,
    metadata: Mapping[str, Any],
    first_part: int = 0,
) -> Iterator[Dataset]:
    """Episodes of networks in a world of vectors, in parts."""
    world = world.with_environment()
    source = _vector_source(world, metadata)
    of_one_seed = jax.tree.map(lambda leaf: leaf[None], team)

    def draw(generator: np.random.Generator, shape: tuple[int, int]) -> Float[np.ndarray, "episode time uniform"]:
        return generator.random((*shape, team.num_uniforms), np.float32)

    def player(agents: Int[np.ndarray, " episode"], noise: Float[np.ndarray, "episode time uniform"]) -> Player:
        return NetworkPlayer(world, of_one_seed, np.zeros(len(agents), np.int64), agents, noise)

    for part in _in_parts(world, team.num_agents, episodes, random_seed, draw, player, first_part):
        is_step = np.isfinite(part.states[:, 1:]).all(axis=-1)
        yield vector_episodes(
            part.states,
            np.asarray(team.executed(jnp.asarray(part.actions))),
            source,
            agents=np.arange(len(part.states), dtype=np.int32) % team.num_agents,
            lengths=is_step.sum(axis=1, dtype=np.int32),
            terminated=part.is_terminated,
            rewards=part.rewards,
        )


def _in_parts(
    world: HostedWorld,
    num_agents: int,
    episodes: int,
    random_seed: int,
    draw: Callable[[np.random.Generator, tuple[int, int]], np.ndarray],
    player: Callable[[Int[np.ndarray, " episode"], np.ndarray], Player],
    first_part: int,
) -> Iterator[Episodes]:
    """Episodes in parts of bounded size, each of which begins with the first agent.

    Args:
        draw: the noise of so many episodes and times.
        player: who plays the episodes of these agents with this noise.
    """
    left = whole_number("episodes", episodes)
    per_part = max(1, _TRANSITIONS_PER_PART // (num_agents * world.horizon)) * num_agents
    with world.open(num_agents, min(left, per_part)) as pool:
        for part in range(first_part, -(-left // per_part)):
            generator = np.random.default_rng([random_seed, part])
            noise = draw(generator, (per_part, world.horizon))
            seeds = generator.integers(2**31 - 1, size=per_part)
            number = min(per_part, left - part * per_part)
            agents = np.arange(number) % num_agents
            yield pool.play(player(agents, noise[:number]), agents, seeds[:number])


def _vector_source(world: HostedVectors, metadata: Mapping[str, Any]) -> Source:
    """Where the episodes are from; the environment itself, where its observations are what the networks see."""
    assert world.make is not None
    space = world.observation_space
    if not (world.settings and world.observe is None and isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 1):
        return vector_source(world, None, None, metadata)
    with contextlib.closing(world.make()) as environment:
        found = vector_source(world, read_space(environment.observation_space), None, metadata)
        if environment.spec is None or read_space(environment.action_space) != found.actions:
            return found
        return dataclasses.replace(found, environment=spec_to_json(environment.spec))


def _source(world: HostedTable, metadata: Mapping[str, Any]) -> tuple[Source, int]:
    """Where the episodes are from, and the observation that is made in the first state.

    Where states are not simply numbers that the environment shows, the dataset has our own and says what they stand for.
    """
    if world.make is not None and world.settings and world.observe is None and world.index.is_complete:
        with contextlib.closing(world.make()) as environment:
            space = environment.observation_space
            specification = None if environment.spec is None else spec_to_json(environment.spec)
            with contextlib.suppress(NotDiscreteError):
                num_observations, num_actions = spaces_of(space, environment.action_space)
                first = int(getattr(space, "start", 0))
                return Source(num_observations, num_actions, _table(environment), specification, metadata), first
    features = {"features": world.index.features.tolist()}
    return Source(world.num_states, world.num_actions, None, None, {**metadata, **features}), 0


def _table(environment: gymnasium.Env[Any, Any]) -> TabularMDP | None:
    try:
        return observed_world(environment)
    except NoTableError:
        return None
