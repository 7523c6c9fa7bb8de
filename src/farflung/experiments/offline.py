"""Learn from a dataset to reach every state: the work behind `farflung offline`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from farflung.config import OfflineLearning
from farflung.datasets import Dataset, from_minari, load_dataset
from farflung.datasets.collecting import play_parts
from farflung.datasets.episodes import joined, states_of
from farflung.environments import TabularMDP
from farflung.experiments.collecting import untrained_success
from farflung.offline import QLearning, Transitions, goal_success, goals_of, num_goal_uniforms
from farflung.policies import uniform_team

_MOST_NUMBERS = 2**25
_FILES = (".npz", ".parquet")

OnProgress = Callable[[int, int], None]


class Reached(NamedTuple):
    """How often offline Q-learning leads to each goal."""

    world: TabularMDP
    """Its `labels` are the dataset's observations."""
    num_transitions: int
    goals: Int[np.ndarray, " goal"]
    """States of the world."""
    success: Float[np.ndarray, "seed goal"]
    random_success: Float[np.ndarray, "seed goal"]
    """With as many episodes of random actions for a dataset."""
    untrained: float
    """The mean over all goals without any data."""


def learn_offline(dataset: Dataset | str | Path, *, on_progress: OnProgress | None = None, **settings: Any) -> Reached:
    """Learns from a dataset, for each state that no episode starts in, how to get there, and tries it out.

    Args:
        dataset: a dataset, Minari's id of one, or a `.npz` or `.parquet` file.
        on_progress: called with how many goals are done, of how many.
        settings: the other fields of `farflung.OfflineLearning`, such as `batches` and `seeds`.
    """
    if isinstance(dataset, Dataset):
        config = OfflineLearning("custom", **settings)
    else:
        config = OfflineLearning(str(dataset), **settings)
        is_file = config.dataset.endswith(_FILES) or Path(config.dataset).is_file()
        dataset = load_dataset(config.dataset) if is_file else from_minari(config.dataset)
    world, steps = states_of(dataset)
    team = uniform_team(world, 1)
    _, random_steps = states_of(joined(play_parts(world, team, len(dataset), config.seeds[0], dataset.source)))
    goals = goals_of(world)
    found = []
    for number, each in enumerate((steps, random_steps)):

        def report(done: int, number: int = number) -> None:
            if on_progress is not None:
                on_progress(done + number * goals.size, 2 * goals.size)

        columns = (each.observations, each.actions, each.next_observations, len(each.actions))
        found.append(
            _success(config, world, Transitions(*(jnp.asarray(column, jnp.int32) for column in columns)), goals, report)
        )
    untrained = float(untrained_success(jr.key(config.seeds[0]), world, goals))
    return Reached(world, len(steps.actions), np.asarray(goals), found[0], found[1], untrained)


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
