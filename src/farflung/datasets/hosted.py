"""Episodes of a team in a world that is stepped on the host."""

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from farflung.checks import whole_number
from farflung.datasets.episodes import Dataset, Source, vector_episodes
from farflung.datasets.sources import NotDiscreteError, observed_world, read_space, spaces_of, spec_to_json
from farflung.environments import Bounds, Choices, NoTableError, TabularMDP
from farflung.hosting.networks import NetworkPlayer
from farflung.hosting.players import OVER, Episodes
from farflung.hosting.vectors import VectorWorld
from farflung.hosting.world import HostedWorld
from farflung.policies import NeuralPolicy, TabularSoftmax, UniformPolicy

_TRANSITIONS_PER_PART = 2**16


def play_hosted(
    world: HostedWorld, team: TabularSoftmax, episodes: int, random_seed: int, metadata: Mapping[str, Any]
) -> Iterator[Dataset]:
    """Episodes in parts; all at the end if new states may be met, since then only it is known how many there are."""
    world = world.made().as_it_is()  # states that are met here are not the run's
    played = _played(world, team, episodes, random_seed)
    if not world.index.is_complete:
        played = iter(list(played))
    source, first_observation = _source(world, metadata)
    first, num_agents = 0, team.num_agents
    for part in played:
        agents = (first + np.arange(len(part.states), dtype=np.int32)) % num_agents
        first += len(agents)
        is_seen, is_step = part.states != OVER, part.states[:, 1:] != OVER
        actions = np.asarray(world.actions)[part.actions] if "features" not in source.metadata else part.actions
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


def _played(world: HostedWorld, team: TabularSoftmax, episodes: int, random_seed: int) -> Iterator[Episodes]:
    left, num_agents = whole_number("episodes", episodes), team.num_agents
    per_part = max(1, _TRANSITIONS_PER_PART // (num_agents * world.horizon)) * num_agents
    probabilities = np.asarray(team.probabilities)
    if not team.is_time_dependent:
        probabilities = probabilities[:, None]
    # A state that the team has never met is played at random.
    unknown = np.full((*probabilities.shape[:2], 1, world.num_actions), 1 / world.num_actions)
    thresholds = np.cumsum(np.concatenate([probabilities, unknown], axis=2), axis=-1)
    with world.open(num_agents, min(left, per_part)) as pool:
        for part in range(-(-left // per_part)):
            generator = np.random.default_rng([random_seed, part])
            noise = generator.random((per_part, world.horizon))
            seeds = generator.integers(2**31 - 1, size=per_part)
            number = min(per_part, left - part * per_part)
            agents = np.arange(number) % num_agents
            yield pool.play(world.player(thresholds, agents, noise[:number]), agents, seeds[:number])


def play_vectors(
    world: VectorWorld, team: NeuralPolicy | UniformPolicy, episodes: int, random_seed: int, metadata: Mapping[str, Any]
) -> Iterator[Dataset]:
    """Episodes of networks in a world of vectors, in parts."""
    world = world.made()
    source = _vector_source(world, metadata)
    left, num_agents = whole_number("episodes", episodes), team.num_agents
    per_part = max(1, _TRANSITIONS_PER_PART // (num_agents * world.horizon)) * num_agents
    of_one_seed = jax.tree.map(lambda leaf: leaf[None], team)
    with world.open(num_agents, min(left, per_part)) as pool:
        for part in range(-(-left // per_part)):
            generator = np.random.default_rng([random_seed, part])
            noise = generator.random((per_part, world.horizon, team.num_uniforms), np.float32)
            seeds = generator.integers(2**31 - 1, size=per_part)
            number = min(per_part, left - part * per_part)
            agents = np.arange(number) % num_agents
            player = NetworkPlayer(world, of_one_seed, np.zeros(number, np.int64), agents, noise[:number])
            played = pool.play(player, agents, seeds[:number])
            is_step = np.isfinite(played.states[:, 1:]).all(axis=-1)
            yield vector_episodes(
                played.states,
                np.asarray(team.executed(jnp.asarray(played.actions))),
                source,
                agents=agents.astype(np.int32),
                lengths=is_step.sum(axis=1, dtype=np.int32),
                terminated=played.is_terminated,
                rewards=played.rewards,
            )


def _vector_source(world: VectorWorld, metadata: Mapping[str, Any]) -> Source:
    """Where the episodes are from; the environment itself, where its observations are what the networks see."""
    actions = world.actions.num if isinstance(world.actions, Choices) else world.actions
    anything = Bounds((-math.inf,) * world.observation_size, (math.inf,) * world.observation_size)
    assert world.make is not None
    if world.settings and world.observe is None and isinstance(world.observation_space, gymnasium.spaces.Box):
        with contextlib.closing(world.make()) as environment:
            specification = None if environment.spec is None else spec_to_json(environment.spec)
            seen = read_space(environment.observation_space) if len(world.observation_space.shape) == 1 else anything
            is_plain = seen is not anything and read_space(environment.action_space) == actions
            return Source(seen, actions, None, specification if is_plain else None, metadata, world.projection)
    return Source(anything, actions, None, None, metadata, world.projection)


def _source(world: HostedWorld, metadata: Mapping[str, Any]) -> tuple[Source, int]:
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
