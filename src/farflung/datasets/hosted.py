"""Episodes of a team in a world that is stepped on the host."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np

from farflung.checks import whole_number
from farflung.datasets.episodes import Dataset, Source
from farflung.datasets.sources import NotDiscreteError, observed_world, spaces_of, spec_to_json
from farflung.environments import NoTableError, TabularMDP
from farflung.hosting.players import OVER, Episodes
from farflung.hosting.world import HostedWorld
from farflung.policies import TabularSoftmax

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
