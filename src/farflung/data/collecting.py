"""Datasets of a trained team in any world: any number of episodes, in parts of bounded size that survive an interruption."""

import contextlib
import dataclasses
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from farflung.config import Explore
from farflung.config.checks import check_playing, free_memory, whole_number, whole_seeds
from farflung.config.options import ALGORITHM
from farflung.data.archives import load_dataset, write_dataset
from farflung.data.episodes import Dataset, Source, blank_after_ends, cut, joined, vector_episodes
from farflung.data.goals import Place, Reward, relabel
from farflung.data.sources import hosted_table_source, hosted_vector_source, source_of
from farflung.data.stages import stages
from farflung.numerics.compilation import ReproducibleIfWorld
from farflung.policies import NeuralPolicy, TabularSoftmax, UniformPolicy
from farflung.policies.rollout import Trajectories, play
from farflung.runs import interrupts
from farflung.runs.checkpoints import CheckpointWarning
from farflung.runs.destinations import Destination
from farflung.runs.files import complete_file, write_errors
from farflung.runs.run import Run, typical_seed
from farflung.training.hosted import NetworkPlayer
from farflung.worlds.hosted.players import OVER, Episodes, Player
from farflung.worlds.world import World

_TRANSITIONS_PER_PART = 2**18
_VECTOR_TRANSITIONS_PER_PART = 2**15
"""Fewer, as a simulator's step may take much longer, and a part is always played to its end."""
_HOSTED_TRANSITIONS_PER_PART = 2**16
_BYTES_PER_NUMBER = 16
"""The least memory for each number of an observation or action, until it is in the dataset."""


def collect(
    run: Run,
    episodes: int,
    *,
    seed: int | None = None,
    random_seed: int = 0,
    goal: int | Place = (),
    goal_radius: float | None = None,
    reward: Reward | str | None = None,
    random: bool = False,
    epsilon: float = 0.0,
    temperature: float = 1.0,
    checkpoints: int | None = None,
) -> Dataset:
    """Plays episodes with the team of a run; observations and actions are those of the world's environment.

    Agent i modulo the number of agents plays episode i. A longer dataset begins with the episodes of a shorter one.

    Args:
        seed: the seed of the trained team that plays; by default the seed with the median final entropy.
        random_seed: seed of the noise in actions and world.
        goal: relabels the episodes with a goal: its row and column, or an observation; if states are vectors, a point of the
            projection's features.
        goal_radius: distance within which a vector has reached the goal; in a point maze by default the size of a step.
        reward: a function of observations, actions and next observations that gives each step's reward, or its MODULE:NAME.
        random: play random actions instead of the team's.
        epsilon: probability of a random action in place of the team's.
        temperature: above 1, the policies are flatter: discrete actions have the probabilities p^(1/temperature), normalised,
            and the Gaussians of vectors temperature times the variance.
        checkpoints: number of stages of the training, equally spaced from the untrained to the trained team, that take turns.
            The team is trained again for that. With m agents, agent i of the dataset is agent i modulo m of stage i // m.
    """
    options: dict[str, Any] = {"goal": goal, "goal_radius": goal_radius, "reward": reward}
    options |= {"epsilon": epsilon, "temperature": temperature, "checkpoints": checkpoints}
    options |= {"seed": seed, "random_seed": random_seed, "random": random}
    return joined(collect_parts(run, episodes, **options))


def collect_parts(
    run: Run,
    episodes: int,
    *,
    goal: int | Place = (),
    goal_radius: float | None = None,
    reward: Reward | str | None = None,
    **options: Any,
) -> Iterator[Dataset]:
    """The dataset of `collect`, with the same options, in parts of bounded size; while one is used, the next is played."""
    task = (goal, goal_radius, reward)
    return finish_parts(play_parts(run, episodes, *task, **options), *task)


def finish_parts(
    parts: Iterator[Dataset], goal: int | Place = (), goal_radius: float | None = None, reward: Reward | str | None = None
) -> Iterator[Dataset]:
    """Finishes parts whose states were numbered as they were met: each part gets the states of all parts, and the task."""
    for part in parts:
        if not _may_grow(part):
            yield part
            continue
        all_parts = [part, *parts]  # only the last part knows the number of states
        for each in all_parts:
            yield _relabelled(dataclasses.replace(each, source=all_parts[-1].source), goal, goal_radius, reward)


def play_parts(
    run: Run,
    episodes: int,
    goal: int | Place = (),
    goal_radius: float | None = None,
    reward: Reward | str | None = None,
    *,
    seed: int | None = None,
    random_seed: int = 0,
    random: bool = False,
    epsilon: float = 0.0,
    temperature: float = 1.0,
    checkpoints: int | None = None,
    first_part: int = 0,
    before: Dataset | None = None,
) -> Iterator[Dataset]:
    """Plays the parts of a dataset for `finish_parts`, from number `first_part` on; `before` is the part before these."""
    check_playing(random, epsilon, temperature, checkpoints)
    seed = typical_seed(run) if seed is None else seed
    world, config = run.world, run.config
    metadata = {**_about(config, seed, is_random=random), "random_seed": random_seed}
    team = random_team(world) if random else run.team(seed).policies
    if checkpoints is not None:
        metadata["agents_per_checkpoint"] = team.num_agents
        team, metadata["checkpoints"] = stages(run, seed, checkpoints)
        if episodes < team.num_agents:
            raise ValueError(f"{checkpoints} checkpoints with their agents need at least {team.num_agents} episodes")
    if (epsilon, temperature) != (0, 1):
        if not hasattr(team, "softened"):
            raise ValueError("epsilon and temperature need farflung's policies, tables or networks: this team has its own")
        metadata |= {"epsilon": epsilon, "temperature": temperature}
        team = team.softened(epsilon, temperature)
    if goal_radius is not None and not _is_given(goal):
        raise ValueError("goal_radius needs a goal: give both, or none")
    if reward is not None and _is_given(goal):
        raise ValueError("a dataset has either a goal or a reward function, not both")
    if world.is_hosted:
        parts = play_hosted(world, team, episodes, random_seed, metadata, first_part, before)
    else:
        parts = play_compiled(world, team, episodes, random_seed, source_of(run, metadata), first_part)
    return (part if _may_grow(part) else _relabelled(part, goal, goal_radius, reward) for part in parts)


def _about(config: Explore, seed: int, *, is_random: bool) -> dict[str, Any]:
    if is_random:
        return {"algorithm": "random actions", "description": f"What random actions saw in {config.world}"}
    kind = "single" if config.single else "independent" if config.independent else "agents"
    players = "one agent" if config.single or config.agents == 1 else f"{config.agents} agents"
    return {
        "algorithm": "PGPSE" if config.algorithm == ALGORITHM else config.algorithm,
        "description": f"What {players} saw that learnt to explore {config.world} without reward",
        "team": f"{Path(config.world).stem}-{config.agents}-{kind}/seed-{seed}",
        "config": config.as_json(),
    }


def _may_grow(part: Dataset) -> bool:
    """Whether later parts may have more states, because states are numbered as they are met."""
    return "features" in part.source.metadata


def _is_given(goal: int | Place) -> bool:
    return not isinstance(goal, Sequence) or len(goal) > 0


def _relabelled(part: Dataset, goal: int | Place, radius: float | None, reward: Reward | str | None) -> Dataset:
    if reward is not None:
        return relabel(part, reward=reward)
    return relabel(part, goal=goal, goal_radius=radius) if _is_given(goal) else part


@contextlib.contextmanager
def begun_parts(place: Destination, about: Mapping[str, Any], *, force: bool = False) -> Iterator[Path]:
    """The folder that holds the parts of a dataset until it is complete.

    Raises ValueError if it holds parts of a dataset about anything else, which `force` discards.
    """
    with write_errors(place.name):
        place.begin(about, force=force)
    try:
        yield place.unfinished
    finally:
        if not _path(place.unfinished, 0).exists():
            place.discard()


def resumed_parts(folder: Path, play: Callable[[int, Dataset | None], Iterator[Dataset]]) -> Iterator[Dataset]:
    """The parts that the folder holds, then those that are played from a number on, given the part before; these are saved."""
    first, before = 0, None
    while (path := _path(folder, first)).exists():
        try:
            before = load_dataset(path)
        except ValueError as error:
            warnings.warn(f"{error}; it is played again", CheckpointWarning, stacklevel=2)
            break
        yield before
        first += 1
    for number, part in enumerate(play(first, before), first):
        with interrupts.uninterrupted(), complete_file(_path(folder, number)) as new:
            write_dataset(part, new)
        yield part


def _path(folder: Path, number: int) -> Path:
    return folder / f"part-{number:06d}.npz"


def random_team(world: World) -> Any:
    """A team of one agent that takes random actions."""
    if world.projection is not None:
        return UniformPolicy(world.actions)
    return TabularSoftmax(jnp.zeros((1, world.num_states, world.num_actions)))


def play_compiled(
    world: World, team: Any, episodes: int, random_seed: int, source: Source, first_part: int = 0
) -> Iterator[Dataset]:
    """Plays episodes in a compiled world; the number of devices does not change them."""
    world = world.with_environment()
    episodes = whole_number("episodes", episodes)
    (random_seed,) = whole_seeds([random_seed])
    has_vectors = world.projection is not None
    most = _VECTOR_TRANSITIONS_PER_PART if has_vectors else _TRANSITIONS_PER_PART
    num_rounds = max(1, most // (team.num_agents * world.horizon))
    per_part = num_rounds * team.num_agents
    _check_steps(world, per_part)
    num_parts = -(-episodes // per_part)
    devices = jax.local_devices()[:num_parts]
    copies = [jax.device_put((jr.key(random_seed), team, world), device) for device in devices]
    to_dataset = _from_vectors if has_vectors else _from_states
    playing: deque[Trajectories] = deque()
    for part in range(first_part, num_parts):
        for number in range(part + len(playing), min(part + len(copies), num_parts)):
            playing.append(_play[world](*copies[number % len(copies)], number, num_rounds))
        num_episodes = min(per_part, episodes - part * per_part)
        agents = np.arange(num_episodes, dtype=np.int32) % team.num_agents
        yield to_dataset(playing.popleft(), world, source, agents)


def _check_steps(world: World, num_episodes: int) -> None:
    """Raises ValueError if the memory does not hold episodes that are played at once: a file may ask for any horizon."""
    num_numbers = 2 if world.projection is None else world.observation_size + 1
    needed, free = _BYTES_PER_NUMBER * num_numbers * num_episodes * world.horizon, free_memory()
    if needed > free:
        memory = f"would take about {needed / 2**30:.1f} GiB of memory, but only {free / 2**30:.1f} GiB are free"
        raise ValueError(f"{num_episodes:,} episodes of {world.horizon:,} steps, which are played at once, {memory}")


@partial(ReproducibleIfWorld, static_argnums=4)
def _play(key: PRNGKeyArray, team: Any, world: Any, part: Array, num_rounds: int) -> Trajectories:
    """Plays one part; the actions are those that the world executes."""
    if world.projection is not None and world.may_end_early:
        # One more action shows whether the state after the last one has ended the episode.
        world = dataclasses.replace(world, horizon=world.horizon + 1)
    played = play(jr.fold_in(key, part), team, world, num_rounds, 1)
    if world.projection is None:
        return played
    executed = jax.vmap(team.executed)(played.actions.reshape(-1, *played.actions.shape[4:]))
    return played._replace(actions=executed.reshape(played.actions.shape))


def _from_vectors(played: Trajectories, world: World, source: Source, agents: Int[np.ndarray, " episode"]) -> Dataset:
    states, actions, broken = (array.reshape(-1, *array.shape[3:])[: len(agents)] for array in map(np.asarray, played[:3]))
    num_seen = np.isfinite(states).all(axis=-1).sum(axis=1, dtype=np.int32)
    if num_seen.min() < 2:
        raise ValueError("an episode was over before its first step, and an episode of a dataset has at least one step")
    return vector_episodes(
        states[:, : world.horizon + 1],
        actions[:, : world.horizon],
        source,
        agents=agents,
        lengths=np.minimum(num_seen - 1, world.horizon),
        terminated=(num_seen <= actions.shape[1]) & (broken == 0),
    )


def _from_states(played: Trajectories, world: World, source: Source, agents: Int[np.ndarray, " episode"]) -> Dataset:
    states, actions = (np.asarray(array).reshape(-1, array.shape[-1])[: len(agents)] for array in played[:2])
    assert world.table is not None
    assert source.world is not None
    assert source.world.table is not None
    labels, successors = np.asarray(source.world.table.labels), np.asarray(world.table.successors)
    rewards = np.zeros(actions.shape, np.float32)
    if (reward_table := np.asarray(world.table.rewards)).any():
        before, after = states[:, :-1], states[:, 1:]
        outcome = (successors[before, actions] == after[..., None]).argmax(axis=-1)
        rewards = reward_table[before, actions, outcome]
    is_numbered = np.array_equal(labels, np.arange(len(labels)))
    terminated = np.zeros(len(states), bool)
    dataset = Dataset(
        observations=states if is_numbered else labels[states],
        actions=actions,
        rewards=rewards,
        lengths=np.full(len(states), world.horizon, np.int32),
        terminated=terminated,
        truncated=~terminated,
        agents=agents,
        source=source,
    )
    is_end = (successors == np.arange(world.num_states)[:, None, None]).all(axis=(1, 2))
    return cut(dataset, is_end[states[:, 1:]]) if is_end.any() else dataset


def play_hosted(
    world: World,
    team: Any,
    episodes: int,
    random_seed: int,
    metadata: Mapping[str, Any],
    first_part: int = 0,
    before: Dataset | None = None,
) -> Iterator[Dataset]:
    """Plays episodes in a host-stepped world; the source of a part, also of the one `before`, has the states met so far."""
    episodes = whole_number("episodes", episodes)
    (random_seed,) = whole_seeds([random_seed])
    hosted = world.with_environment().snapshot().hosted  # the run does not learn the states that are met here
    assert hosted is not None
    world = hosted
    players = (_Tables if world.projection is None else _Networks)(world, team, metadata)
    if before is not None and not world.knows_all_states:
        world.add_states(np.asarray(before.source.metadata["features"], np.int64))
    num_agents = team.num_agents
    per_part = max(1, _HOSTED_TRANSITIONS_PER_PART // (num_agents * world.horizon)) * num_agents
    _check_steps(world, per_part)
    widths = None if before is None else {name: info.shape[2:] for name, info in before.infos.items()}
    with hosted.open(num_agents, min(episodes, per_part), has_infos=True) as pool:
        for part in range(first_part, -(-episodes // per_part)):
            generator = np.random.default_rng([random_seed, part])
            noise = players.draw(generator, (per_part, world.horizon))
            seeds = generator.integers(2**31 - 1, size=per_part)
            agents = np.arange(min(per_part, episodes - part * per_part)) % num_agents
            played = pool.play(players.player(agents, noise[: len(agents)]), agents, seeds[: len(agents)])
            if widths is None:
                widths = {name: info.shape[2:] for name, info in played.infos.items()}
            yield players.dataset(played._replace(infos=_with(widths, played)), agents.astype(np.int32))


def _with(widths: Mapping[str, tuple[int, ...]], played: Episodes) -> dict[str, np.ndarray]:
    """The infos of the first part, also in the parts after it: all parts need the same columns."""
    blank = {name: np.full((*played.states.shape[:2], *width), np.nan) for name, width in widths.items()}
    return blank | {name: info for name, info in played.infos.items() if widths.get(name) == info.shape[2:]}


class _Tables:
    """Plays by tables in a host-stepped world of numbered states."""

    def __init__(self, world: Any, team: TabularSoftmax, metadata: Mapping[str, Any]) -> None:
        self._world, self._metadata = world, metadata
        probabilities = np.asarray(team.probabilities)
        if not team.is_time_dependent:
            probabilities = probabilities[:, None]
        # In a state that the team has never met, actions are random.
        unknown = np.full((*probabilities.shape[:2], 1, world.num_actions), 1 / world.num_actions)
        self._thresholds = np.cumsum(np.concatenate([probabilities, unknown], axis=2), axis=-1)

    def draw(self, generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        return generator.random(shape)

    def player(self, agents: Int[np.ndarray, " episode"], noise: np.ndarray) -> Player:
        return self._world.player(self._thresholds, agents, noise)

    def dataset(self, played: Episodes, agents: Int[np.ndarray, " episode"]) -> Dataset:
        source, first_observation = hosted_table_source(self._world, self._metadata)
        is_step = played.states[:, 1:] != OVER
        actions = played.actions if "features" in source.metadata else np.asarray(self._world.env_actions)[played.actions]
        dataset = Dataset(
            observations=played.states + first_observation,
            actions=actions,
            rewards=played.rewards,
            lengths=is_step.sum(axis=1, dtype=np.int32),
            terminated=played.is_terminated,
            truncated=~played.is_terminated,
            agents=agents,
            source=source,
            seeds=played.seeds,
            infos=played.infos,
        )
        return blank_after_ends(dataset)


class _Networks:
    """Plays by networks in a host-stepped world of vectors."""

    def __init__(self, world: Any, team: NeuralPolicy | UniformPolicy, metadata: Mapping[str, Any]) -> None:
        self._world, self._team, self._source = world, team, hosted_vector_source(world, metadata)
        self._of_one_seed = jax.tree.map(lambda leaf: leaf[None], team)

    def draw(self, generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        return generator.random((*shape, self._team.num_uniforms), np.float32)

    def player(self, agents: Int[np.ndarray, " episode"], noise: np.ndarray) -> Player:
        return NetworkPlayer(self._world, self._of_one_seed, np.zeros(len(agents), np.int64), agents, noise)

    def dataset(self, played: Episodes, agents: Int[np.ndarray, " episode"]) -> Dataset:
        is_step = np.isfinite(played.states[:, 1:]).all(axis=-1)
        return vector_episodes(
            played.states,
            np.asarray(self._team.executed(jnp.asarray(played.actions))),
            self._source,
            agents=agents,
            lengths=is_step.sum(axis=1, dtype=np.int32),
            terminated=played.is_terminated,
            rewards=played.rewards,
            seeds=played.seeds,
            infos=played.infos,
        )
