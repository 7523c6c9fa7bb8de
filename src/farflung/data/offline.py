"""Offline learning: policies that are learnt from a dataset, for many goals or from its rewards, and how good they are."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, overload

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from farflung.config import OfflineLearning
from farflung.config.checks import check_text
from farflung.config.imports import name_of
from farflung.config.options import OFFLINE_METRICS
from farflung.config.reading import member, one_line_errors, read_object
from farflung.data.archives import load_dataset
from farflung.data.collecting import play_compiled, random_team
from farflung.data.episodes import Dataset, Steps, joined, states_of
from farflung.data.maze_goals import MazeGoals, reach_goals, spread_goals
from farflung.data.minari import from_minari
from farflung.data.networks import Experience, Learning
from farflung.data.q_learning import QLearning, Transitions, goal_success, goals_of, num_goal_uniforms, untrained_success
from farflung.data.rewards import Learned, learn_rewards
from farflung.data.sources import place_of
from farflung.worlds.projection import read_numbers
from farflung.worlds.tabular import TabularMDP
from farflung.worlds.world import World

_MOST_NUMBERS = 2**25
_FILES = (".npz", ".parquet")

OnProgress = Callable[[int, int], None]


class Reached(NamedTuple):
    """How often the policies that were learnt offline reach each goal."""

    config: OfflineLearning
    world: World
    """A point maze, or a tabular world whose `labels` are the dataset's observations."""
    num_transitions: int
    goals: Int[np.ndarray, " goal"] | Float[np.ndarray, "goal 2"]
    """States of a tabular world, or points of a maze."""
    success: Float[np.ndarray, "seed goal"]
    random_success: Float[np.ndarray, "seed goal"]
    """The same for a dataset of as many episodes of random actions; NaN if that was not asked for."""
    untrained: float
    """The mean success rate over all goals without any data."""
    radius: float | None = None
    """In a maze: the distance within which a goal is reached."""
    place: str = "custom"
    """The name of the world."""

    @property
    def task_name(self) -> str:
        """What was to be learnt, and where."""
        return f"goals in {self.place}"


class OfflineScores(NamedTuple):
    """The results of offline learning by seed, as a comparison needs them."""

    task: str
    """What was to be learnt, and where."""
    method: str
    dataset: str
    values: Mapping[str, Sequence[float] | Float[np.ndarray, " seed"]]
    """Of each seed: the `success` rate over all goals, or the mean `return`, and the `score` if a reference is known."""

    @staticmethod
    def of(found: "Reached | Learned | OfflineScores") -> "OfflineScores":
        """The scores of a result of `learn_offline`."""
        if isinstance(found, OfflineScores):
            return found
        if isinstance(found, Reached):
            values = {"success": found.success.mean(axis=1)}
        else:
            values = {"return": found.returns.mean(axis=1)}
            if found.scores is not None:
                values["score"] = found.scores
        return OfflineScores(found.task_name, found.config.method, found.config.dataset, values)


def load_scores(folder: str | Path) -> OfflineScores:
    """Reads the scores from a folder that `farflung offline` has written."""
    folder = Path(folder)
    with one_line_errors(f"{folder} has no results of farflung offline that can be read"):
        found = read_object(member(folder, "summary.json"))
        for name in ("task_name", "method", "dataset"):
            check_text(name, found[name])
        values = {name: read_numbers(name, found[name]["seeds"]) for name in OFFLINE_METRICS if found.get(name) is not None}
        return OfflineScores(found["task_name"], found["method"], found["dataset"], values)


@overload
def learn_offline(dataset: Dataset | str | Path, *, task: Literal["goals"], **settings: Any) -> Reached: ...
@overload
def learn_offline(dataset: Dataset | str | Path, *, task: Literal["rewards"], **settings: Any) -> Learned: ...
@overload
def learn_offline(dataset: Dataset | str | Path, *, task: str | None = None, **settings: Any) -> Any: ...
def learn_offline(
    dataset: Dataset | str | Path,
    *,
    task: str | None = None,
    on_progress: OnProgress | None = None,
    against_random: bool = True,
    **settings: Any,
) -> Reached | Learned:
    """Learns from a dataset and tests what was learnt.

    If the dataset has rewards, one policy is learnt from them and tested in the dataset's environment (`Learned`). Otherwise,
    a policy is learnt for every state in which no episode starts, or for goals all over a maze (`Reached`).

    Args:
        dataset: a dataset, the id of a Minari dataset, or an `.npz` or `.parquet` file.
        task: `rewards` or `goals`; by default the rewards if there are any.
        on_progress: called with the number of finished goals, or policies, and the number of all.
        against_random: learn goals also from as many episodes of random actions.
        settings: the other fields of `farflung.OfflineLearning`, such as `method`, `batches` and `seeds`; `reward` may also be
            the function itself.
    """
    if callable(reward := settings.get("reward")):
        settings["reward"] = _importable(reward)
    named: dict[str, Any] = {"task": task}
    if isinstance(dataset, Dataset):
        config = OfflineLearning("custom", **settings, **named)
    else:
        config = OfflineLearning(str(dataset), **settings, **named)
        is_file = config.dataset.endswith(_FILES) or Path(config.dataset).is_file()
        dataset = load_dataset(config.dataset) if is_file else from_minari(config.dataset)
    has_rewards = config.reward is not None or bool(dataset.rewards.any())
    config = config.resolved(has_vectors=dataset.has_vectors, has_rewards=has_rewards)
    report = on_progress or (lambda done, total: None)
    if config.task == "rewards":
        return learn_rewards(config, dataset, report)
    learn = _learn_places if dataset.has_vectors else _learn_states
    return learn(config, dataset, against_random, report)


def _importable(reward: Any) -> str:
    name = name_of(reward)
    if name.startswith("custom:"):
        raise ValueError(
            f"the test in the environment imports the reward function, but Python cannot import {name.partition(':')[2]}: "
            "define it in a module of its own, not in a script, a notebook or another function"
        )
    return name


def _learn_places(config: OfflineLearning, dataset: Dataset, against_random: bool, on_progress: OnProgress) -> Reached:
    """Implicit Q-learning in a maze: one training for each seed and dataset, as many at once as there are devices."""
    world = None if dataset.source.world is None else dataset.source.world.maze
    if world is None:
        raise ValueError(
            "with vectors as states, goals can be tested only in point mazes, and this dataset is from another world without "
            "rewards: collect it with --goal, or give rewards with --reward MODULE:NAME"
        )
    goals, radius = spread_goals(world, config.goals)
    if len(goals) == 0:
        raise ValueError(f"with {config.goals} goals, none lies apart from the start: ask for more goals")
    learning = Learning("iql", config.batch_size, config.learning_rate, config.discount, value_bounds=(0.0, 1.0))
    settings = MazeGoals(
        radius if config.goal_radius is None else config.goal_radius,
        learning,
        num_episodes=config.attempts if world.num_reset_uniforms else 1,  # from a single start all attempts are alike
        max_steps=config.max_steps,
    )
    datasets = [dataset, _random_actions(world, config, dataset)] if against_random else [dataset]
    experiences = [Experience(*map(jnp.asarray, data.steps())) for data in datasets]
    tasks = [(jr.key(seed), world, experience, jnp.asarray(goals)) for experience in experiences for seed in config.seeds]
    devices, total = jax.local_devices(), len(tasks) * len(goals)
    rates: list[np.ndarray] = []
    for first in range(0, len(tasks), len(devices)):
        on_progress(first * len(goals), total)
        running = [
            reach_goals(*jax.device_put(task, device), config.batches, settings)
            for task, device in zip(tasks[first : first + len(devices)], devices, strict=False)
        ]
        rates.extend(map(np.asarray, running))
    untrained = float(np.mean(reach_goals(*jax.device_put(tasks[0], devices[0]), 0, settings)))
    on_progress(total, total)
    success, *random = np.reshape(rates, (len(datasets), len(config.seeds), len(goals)))
    random_success = random[0] if random else np.full_like(success, np.nan)
    results = (goals, success, random_success, untrained, settings.radius)
    return Reached(config, world, dataset.num_transitions, *results, place_of(dataset.source))


def _learn_states(config: OfflineLearning, dataset: Dataset, against_random: bool, on_progress: OnProgress) -> Reached:
    """Tabular Q-learning: one table for each goal, seed and dataset."""
    world, steps = states_of(dataset)
    goals, rates = goals_of(world), []
    datasets = [steps, states_of(_random_actions(world, config, dataset))[1]] if against_random else [steps]
    for number, data in enumerate(datasets):

        def report(done: int, number: int = number) -> None:
            on_progress(done + number * goals.size, len(datasets) * goals.size)

        rates.append(_success(config, world, data, goals, report))
    untrained = float(untrained_success(jr.key(config.seeds[0]), world, goals))
    random_success = rates[1] if against_random else np.full_like(rates[0], np.nan)
    results = (np.asarray(goals), rates[0], random_success, untrained)
    return Reached(config, world, len(steps.actions), *results, place=place_of(dataset.source))


def _random_actions(world: World, config: OfflineLearning, dataset: Dataset) -> Dataset:
    return joined(play_compiled(world, random_team(world), len(dataset), config.seeds[0], dataset.source))


def _success(
    config: OfflineLearning, world: TabularMDP, steps: Steps, goals: Int[Array, " goal"], report: Callable[[int], None]
) -> Float[np.ndarray, "seed goal"]:
    """The success rates of all goals, in blocks as large as memory allows."""
    settings = QLearning(
        config.batches, config.batch_size, config.learning_rate, config.discount, config.attempts, config.max_steps
    )
    columns = (steps.observations, steps.actions, steps.next_observations, len(steps.actions))
    data = Transitions(*(jnp.asarray(column, jnp.int32)[None] for column in columns))  # one dataset
    fitting = _MOST_NUMBERS // (num_goal_uniforms(world, settings) * len(config.seeds))
    at_once = int(np.clip(fitting, 1, goals.size))
    padded = jnp.pad(goals, (0, -goals.size % at_once), mode="edge")
    seed_keys = jnp.stack([jr.key(seed) for seed in config.seeds])
    rates = []
    for number, block in enumerate(padded.reshape(-1, at_once)):
        report(min(number * at_once, goals.size))
        keys = jax.vmap(partial(jr.fold_in, data=number))(seed_keys)
        reach = jax.vmap(lambda key, block=block: goal_success(key[None], world, data, block, settings)[0])
        rates.append(np.asarray(reach(keys)))
    report(goals.size)
    return np.concatenate(rates, axis=1)[:, : goals.size]
