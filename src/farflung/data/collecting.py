"""Episodes of a trained team, as many as one likes, in parts of bounded size."""

import dataclasses
from collections import deque
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from farflung.config import Explore
from farflung.config.checks import whole_number, whole_seeds
from farflung.data.episodes import Dataset, Source, cut, joined, vector_episodes
from farflung.data.goals import Place, observation_at, relabel
from farflung.data.hosted import play_hosted, play_vectors
from farflung.data.sources import source_of
from farflung.numerics.compilation import ReproducibleIfWorld
from farflung.policies import TabularSoftmax, UniformPolicy
from farflung.policies.rollout import Trajectories, play
from farflung.runs.run import Run, typical_seed
from farflung.worlds.tabular import TabularMDP
from farflung.worlds.vectors import VectorWorld
from farflung.worlds.world import World

_TRANSITIONS_PER_PART = 2**18
_VECTOR_TRANSITIONS_PER_PART = 2**15
"""Fewer, as a step may take a simulator much longer and a part is always played whole."""


def collect(
    run: Run,
    episodes: int,
    *,
    seed: int | None = None,
    random_seed: int = 0,
    goal: Place = (),
    goal_radius: float | None = None,
    random: bool = False,
) -> Dataset:
    """Lets the team of a run play and returns what it has seen, in the numbers of the environment that the world is from.

    Episode i is played by agent i modulo the number of agents. The first episodes are the same however many there are.

    Args:
        seed: which of the run's trained teams plays; by default the one whose final entropy is the median.
        random_seed: for the noise of actions and world.
        goal: row and column of a goal, or an observation, that the episodes are relabelled with; where states are vectors, a
            point of the projection's features.
        goal_radius: how near a vector must come to it; in a point maze by default a step's size.
        random: let random actions play instead of the team.
    """
    return joined(
        collect_parts(run, episodes, seed=seed, random_seed=random_seed, goal=goal, goal_radius=goal_radius, random=random)
    )


def collect_parts(
    run: Run,
    episodes: int,
    *,
    seed: int | None = None,
    random_seed: int = 0,
    goal: Place = (),
    goal_radius: float | None = None,
    random: bool = False,
) -> Iterator[Dataset]:
    """What `collect` returns in parts of bounded size, each played while the one before is used."""
    aim = (goal, goal_radius)
    return finish_parts(play_parts(run, episodes, *aim, seed=seed, random_seed=random_seed, random=random), *aim)


def finish_parts(parts: Iterator[Dataset], goal: Place = (), goal_radius: float | None = None) -> Iterator[Dataset]:
    """Parts as they are used: where states are numbered as they are met, each now knows those that any of them has met."""
    for part in parts:
        if not _may_grow(part):
            yield part
            continue
        met = [part, *parts]  # how many states there are, only the last one knows
        for each in met:
            yield _relabelled(dataclasses.replace(each, source=met[-1].source), goal, goal_radius)


def play_parts(
    run: Run,
    episodes: int,
    goal: Place = (),
    goal_radius: float | None = None,
    *,
    seed: int | None = None,
    random_seed: int = 0,
    random: bool = False,
    first_part: int = 0,
    before: Dataset | None = None,
) -> Iterator[Dataset]:
    """Parts as they are played, for `finish_parts`; one is the same whether those before it are played or not.

    Args:
        first_part: with which to begin.
        before: the part before that, with the states that were met by then, where only these are known.
    """
    seed = typical_seed(run) if seed is None else seed
    world, config = run.world, run.config
    team = random_team(world) if random else run.team(seed).policies
    metadata = {**_about(config, seed, is_random=random), "random_seed": random_seed}
    if goal_radius is not None and not goal:
        raise ValueError("a goal's radius needs a goal")
    if world.is_hosted and world.projection is None:
        (random_seed,) = whole_seeds([random_seed])
        parts = play_hosted(world, team, episodes, random_seed, metadata, first_part, before)
    elif world.is_hosted:
        (random_seed,) = whole_seeds([random_seed])
        parts = play_vectors(world, team, episodes, random_seed, metadata, first_part)
    else:
        parts = play_compiled(world, team, episodes, random_seed, source_of(run, metadata), first_part)
    return (part if _may_grow(part) else _relabelled(part, goal, goal_radius) for part in parts)


def random_team(world: World) -> Any:
    """Who takes random actions in a world."""
    if world.projection is not None:
        return UniformPolicy(world.actions)
    return TabularSoftmax(jnp.zeros((1, world.num_states, world.num_actions)))


def _about(config: Explore, seed: int, *, is_random: bool) -> dict[str, Any]:
    if is_random:
        return {"algorithm": "random actions", "description": f"What random actions saw in {config.world}"}
    kind = "single" if config.single else "independent" if config.independent else "agents"
    return {
        "algorithm": "PGPSE",
        "description": f"What {_players(config)} saw that learnt to explore {config.world} without reward",
        "team": f"{Path(config.world).stem}-{config.agents}-{kind}/seed-{seed}",
        "config": config.as_json(),
    }


def _may_grow(part: Dataset) -> bool:
    """Whether its states may have been numbered as they were met."""
    return "features" in part.source.metadata


def _relabelled(part: Dataset, goal: Place, radius: float | None) -> Dataset:
    if not goal:
        return part
    return relabel(part, goal=goal if part.has_vectors else observation_at(part.source, goal), radius=radius)


def _players(config: Explore) -> str:
    return "one agent" if config.single or config.agents == 1 else f"{config.agents} agents"


def play_compiled(
    world: TabularMDP | VectorWorld, team: Any, episodes: int, random_seed: int, source: Source, first_part: int = 0
) -> Iterator[Dataset]:
    """Episodes of any team in a world, in parts of bounded size.

    They depend on nothing but the world, the team and the seed, not on the number of devices.
    """
    left = whole_number("episodes", episodes)
    (random_seed,) = whole_seeds([random_seed])
    num_agents = team.num_agents
    is_continuous = world.projection is not None
    at_once = _VECTOR_TRANSITIONS_PER_PART if is_continuous else _TRANSITIONS_PER_PART
    num_rounds = max(1, at_once // (num_agents * world.horizon))
    num_parts = -(-left // (num_rounds * num_agents))
    left -= first_part * num_rounds * num_agents
    devices = jax.local_devices()
    copies = [jax.device_put((jr.key(random_seed), team, world), device) for device in devices[:num_parts]]
    finish: Any = _vectors_as_dataset if is_continuous else _as_dataset

    playing: deque[Trajectories] = deque()
    for part in count(first_part):
        while len(playing) < len(copies) and part + len(playing) < num_parts:
            number = part + len(playing)
            playing.append(_play[world](*copies[number % len(copies)], number, num_rounds))
        if not playing:
            return
        dataset = finish(playing.popleft(), world=world, source=source, num_agents=num_agents, num_episodes=left)
        left -= len(dataset)
        yield dataset


@partial(ReproducibleIfWorld, static_argnums=4)
def _play(key: PRNGKeyArray, team: Any, world: Any, part: Array, num_rounds: int) -> Trajectories:
    """Episodes with the actions that the world was told."""
    if world.projection is not None and world.may_end_early:
        # With one more action it shows whether the state after the last one has ended the episode.
        world = dataclasses.replace(world, horizon=world.horizon + 1)
    played = play(jr.fold_in(key, part), team, world, num_rounds, 1)
    if world.projection is None:
        return played
    told = jax.vmap(team.executed)(played.actions.reshape(-1, *played.actions.shape[4:]))
    return played._replace(actions=told.reshape(played.actions.shape))


def _vectors_as_dataset(
    trajectories: Trajectories, *, world: VectorWorld, source: Source, num_agents: int, num_episodes: int
) -> Dataset:
    states, actions, broken = (array.reshape(-1, *array.shape[3:])[:num_episodes] for array in map(np.asarray, trajectories))
    num_seen = np.isfinite(states).all(axis=-1).sum(axis=1, dtype=np.int32)
    if num_seen.min() < 2:
        raise ValueError("an episode was over before its first step, and a dataset has no place for such")
    return vector_episodes(
        states[:, : world.horizon + 1],
        actions[:, : world.horizon],
        source,
        agents=np.arange(len(states), dtype=np.int32) % num_agents,
        lengths=np.minimum(num_seen - 1, world.horizon),
        terminated=(num_seen <= actions.shape[1]) & (broken == 0),
    )


def _as_dataset(
    trajectories: Trajectories, *, world: TabularMDP, source: Source, num_agents: int, num_episodes: int
) -> Dataset:
    states, actions = (np.asarray(array).reshape(-1, array.shape[-1])[:num_episodes] for array in trajectories[:2])
    assert source.world is not None
    labels = np.asarray(source.world.labels)
    is_numbered = np.array_equal(labels, np.arange(len(labels)))
    ended = np.zeros(len(states), bool)
    played = Dataset(
        observations=states if is_numbered else labels[states],
        actions=actions,
        rewards=_rewards(world, states, actions),
        lengths=np.full(len(states), world.horizon, np.int32),
        terminated=ended,
        truncated=~ended,
        agents=np.arange(len(states), dtype=np.int32) % num_agents,
        source=source,
    )
    is_end = (np.asarray(world.successors) == np.arange(world.num_states)[:, None, None]).all(axis=(1, 2))
    return cut(played, is_end[states[:, 1:]]) if is_end.any() else played


def _rewards(world: TabularMDP, states: np.ndarray, actions: np.ndarray) -> Any:
    rewards = np.asarray(world.rewards)
    if not rewards.any():
        return np.zeros(actions.shape, np.float32)
    before, after = states[:, :-1], states[:, 1:]
    outcome = (np.asarray(world.successors)[before, actions] == after[..., None]).argmax(axis=-1)
    return rewards[before, actions, outcome]
