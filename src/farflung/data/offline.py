"""Learn from a dataset to reach every state: the work behind `farflung offline`."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from farflung.config import OfflineLearning
from farflung.data import Dataset, from_minari, load_dataset
from farflung.data.collecting import play_compiled, random_team
from farflung.data.episodes import joined, states_of
from farflung.data.implicit_q_learning import Experience, ImplicitQLearning, reach_goals, spread_goals
from farflung.data.q_learning import QLearning, Transitions, goal_success, goals_of, num_goal_uniforms, untrained_success
from farflung.worlds.point_maze import PointMaze
from farflung.worlds.tabular import TabularMDP

_MOST_NUMBERS = 2**25
_FILES = (".npz", ".parquet")

OnProgress = Callable[[int, int], None]


class Reached(NamedTuple):
    """How often what was learnt offline leads to each goal."""

    config: OfflineLearning
    world: TabularMDP | PointMaze
    """Of a table, `labels` are the dataset's observations."""
    num_transitions: int
    goals: Int[np.ndarray, " goal"] | Float[np.ndarray, "goal 2"]
    """States of the world, or points in it."""
    success: Float[np.ndarray, "seed goal"]
    random_success: Float[np.ndarray, "seed goal"]
    """With as many episodes of random actions for a dataset; not a number if nobody asked for that."""
    untrained: float
    """The mean over all goals without any data."""
    radius: float | None = None
    """In a maze: how near to come to a goal."""


def learn_offline(
    dataset: Dataset | str | Path, *, on_progress: OnProgress | None = None, against_random: bool = True, **settings: Any
) -> Reached:
    """Learns from a dataset how to get to each state that no episode starts in, or to goals all over a maze, and tries it out.

    Args:
        dataset: a dataset, Minari's id of one, or a `.npz` or `.parquet` file.
        on_progress: called with how many goals are done, of how many.
        against_random: learn from as many episodes of random actions also.
        settings: the other fields of `farflung.OfflineLearning`, such as `batches` and `seeds`.
    """
    if isinstance(dataset, Dataset):
        config = OfflineLearning("custom", **settings)
    else:
        config = OfflineLearning(str(dataset), **settings)
        is_file = config.dataset.endswith(_FILES) or Path(config.dataset).is_file()
        dataset = load_dataset(config.dataset) if is_file else from_minari(config.dataset)
    learn = _learn_places if dataset.has_vectors else _learn_states
    settled = config.settled(has_vectors=dataset.has_vectors)
    return learn(settled, dataset, against_random, on_progress or (lambda done, total: None))


def _learn_places(config: OfflineLearning, dataset: Dataset, against_random: bool, on_progress: OnProgress) -> Reached:
    """In a maze: one training for each seed and dataset, as many at once as there are devices."""
    world = dataset.source.world
    if not isinstance(world, PointMaze):
        raise ValueError("where states are vectors, goals can be tried only in point mazes, and the dataset is from none")
    goals, radius = spread_goals(world, config.goals)
    if len(goals) == 0:
        raise ValueError(f"{config.goals} goals are too few for any to lie apart from the start: ask for more")
    settings = ImplicitQLearning(
        radius if config.goal_radius is None else config.goal_radius,
        batch_size=config.batch_size,
        learning_rate=config.learning_rate,
        discount=config.discount,
        num_episodes=config.attempts if world.num_reset_uniforms else 1,  # else all attempts are alike
        max_steps=config.max_steps,
    )
    datasets = [dataset, *_random_actions(world, config, dataset, against_random)]
    experiences = [Experience(*map(jnp.asarray, data.steps()[:3])) for data in datasets]
    tasks = [(jr.key(seed), world, experience) for experience in experiences for seed in config.seeds]
    devices = jax.local_devices()
    found: list[np.ndarray] = []
    for first in range(0, len(tasks), len(devices)):
        on_progress(first * len(goals), len(tasks) * len(goals))
        running = [
            reach_goals(*jax.device_put((*task, jnp.asarray(goals)), device), config.batches, settings)
            for task, device in zip(tasks[first : first + len(devices)], devices, strict=False)
        ]
        found.extend(map(np.asarray, running))
    untrained = reach_goals(*jax.device_put((*tasks[0], jnp.asarray(goals)), devices[0]), 0, settings)
    on_progress(len(tasks) * len(goals), len(tasks) * len(goals))
    rates = np.full((2, len(config.seeds), len(goals)), np.nan, np.float32)
    rates[: len(datasets)] = np.reshape(found, (len(datasets), *rates.shape[1:]))
    by_chance = float(np.mean(untrained))
    return Reached(config, world, dataset.num_transitions, goals, rates[0], rates[1], by_chance, settings.radius)


def _learn_states(config: OfflineLearning, dataset: Dataset, against_random: bool, on_progress: OnProgress) -> Reached:
    world, steps = states_of(dataset)
    all_steps = [steps, *(states_of(data)[1] for data in _random_actions(world, config, dataset, against_random))]
    goals = goals_of(world)
    found = []
    for number, each in enumerate(all_steps):

        def report(done: int, number: int = number) -> None:
            on_progress(done + number * goals.size, len(all_steps) * goals.size)

        columns = (each.observations, each.actions, each.next_observations, len(each.actions))
        found.append(
            _success(config, world, Transitions(*(jnp.asarray(column, jnp.int32) for column in columns)), goals, report)
        )
    untrained = float(untrained_success(jr.key(config.seeds[0]), world, goals))
    random_success = found[1] if against_random else np.full_like(found[0], np.nan)
    return Reached(config, world, len(steps.actions), np.asarray(goals), found[0], random_success, untrained)


def _random_actions(
    world: TabularMDP | PointMaze, config: OfflineLearning, dataset: Dataset, against_random: bool
) -> Iterator[Dataset]:
    if against_random:
        yield joined(play_compiled(world, random_team(world), len(dataset), config.seeds[0], dataset.source))


def _success(
    config: OfflineLearning, world: TabularMDP, data: Transitions, goals: Int[Array, " goal"], report: Callable[[int], None]
) -> Float[np.ndarray, "seed goal"]:
    """All goals, as many side by side as memory allows."""
    settings = QLearning(
        config.batches, config.batch_size, config.learning_rate, config.discount, config.attempts, config.max_steps
    )
    fitting = _MOST_NUMBERS // (num_goal_uniforms(world, settings) * len(config.seeds))
    at_once = int(np.clip(fitting, 1, goals.size))
    padded = jnp.pad(goals, (0, -goals.size % at_once), mode="edge")
    seed_keys = jnp.stack([jr.key(seed) for seed in config.seeds])
    found = []
    for number, block in enumerate(padded.reshape(-1, at_once)):
        report(min(number * at_once, goals.size))
        keys = jax.vmap(partial(jr.fold_in, data=number))(seed_keys)
        found.append(np.asarray(_reach(keys, world, data, block, settings)))
    report(goals.size)
    return np.concatenate(found, axis=1)[:, : goals.size]


@partial(jax.jit, static_argnames="settings")
def _reach(
    keys: Key[Array, " seed"], world: TabularMDP, data: Transitions, goals: Int[Array, " goal"], settings: QLearning
) -> Float[Array, "seed goal"]:
    def one_seed(key: Key[Array, ""]) -> Float[Array, " goal"]:
        return goal_success(key[None], world, jax.tree.map(lambda leaf: leaf[None], data), goals, settings)[0]

    return jax.vmap(one_seed)(keys)
