"""Episodes as arrays: what a dataset holds, whatever it is stored as."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike
from scipy.stats import entropy

from farflung.environments import TabularMDP

Reward = Callable[[np.ndarray, np.ndarray, np.ndarray], ArrayLike]
"""What steps pay: a function of the observations, the actions and the next observations of many steps at once."""


@dataclass(frozen=True)
class Source:
    """Where episodes come from: what can be seen and done there, and what is known of the place."""

    num_observations: int
    num_actions: int
    world: TabularMDP | None = None
    """A world in which `labels[s]` is what is seen in state s."""
    environment: str | None = None
    """The specification of the Gymnasium environment, as JSON."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """What else is known, such as who played; for JSON."""


class Steps(NamedTuple):
    """Single steps of all episodes, one after the other."""

    observations: Int[np.ndarray, " step"]
    actions: Int[np.ndarray, " step"]
    next_observations: Int[np.ndarray, " step"]
    rewards: Float[np.ndarray, " step"]


@dataclass(frozen=True)
class Dataset:
    """Episodes with one observation more than actions; what lies beyond the end of an episode is zero."""

    observations: Int[np.ndarray, "episode times"]
    actions: Int[np.ndarray, "episode time"]
    rewards: Float[np.ndarray, "episode time"]
    lengths: Int[np.ndarray, " episode"]
    """Actions in each episode."""
    terminated: Bool[np.ndarray, " episode"]
    """Which episodes the world has ended."""
    truncated: Bool[np.ndarray, " episode"]
    """Which episodes were cut off, by a limit of time for instance."""
    agents: Int[np.ndarray, " episode"]
    """Who played."""
    source: Source

    def __post_init__(self) -> None:
        num_episodes, num_times = self.observations.shape
        if self.actions.shape != (num_episodes, num_times - 1) or self.rewards.shape != self.actions.shape:
            shapes = f"{self.observations.shape}, {self.actions.shape} and {self.rewards.shape}"
            raise ValueError(f"an episode has one observation more than actions and rewards: {shapes} don't fit")
        if any(len(column) != num_episodes for column in (self.lengths, self.terminated, self.truncated, self.agents)):
            raise ValueError(f"lengths, terminated, truncated and agents need one entry for each of {num_episodes} episodes")
        if num_episodes and not 1 <= self.lengths.min() <= self.lengths.max() < num_times:
            raise ValueError(f"each episode has 1 to {num_times - 1} actions")

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def num_transitions(self) -> int:
        return int(self.lengths.sum())

    @property
    def is_step(self) -> Bool[np.ndarray, "episode time"]:
        """Which entries of `actions` belong to an episode."""
        return np.arange(self.actions.shape[1]) < self.lengths[:, None]

    @property
    def is_observed(self) -> Bool[np.ndarray, "episode times"]:
        """Which entries of `observations` belong to an episode."""
        return np.arange(self.observations.shape[1]) <= self.lengths[:, None]

    def steps(self) -> Steps:
        before, after, mask = self.observations[:, :-1], self.observations[:, 1:], self.is_step
        return Steps(before[mask], self.actions[mask], after[mask], self.rewards[mask])

    def visits(self) -> Int[np.ndarray, " observation"]:
        """How often each observation was made."""
        return np.bincount(self.observations[self.is_observed], minlength=self.source.num_observations)

    def rows(self, first: int, last: int) -> "Dataset":
        """The episodes from `first` on and before `last`."""
        return dataclasses.replace(self, **{name: getattr(self, name)[first:last] for name in _COLUMNS})


_COLUMNS = [field.name for field in dataclasses.fields(Dataset) if field.name != "source"]


@dataclass
class Contents:
    """What a dataset turns out to hold, counted while it comes in."""

    num_episodes: int = 0
    num_transitions: int = 0
    visits: Int[np.ndarray, " observation"] = field(default_factory=lambda: np.zeros(0, np.int64))
    last: Dataset | None = None

    def counting(self, parts: Iterable[Dataset]) -> Iterator[Dataset]:
        """The parts of a dataset, each counted before it is handed on."""
        for part in parts:
            if self.last is not None and _kind(part) != _kind(self.last):
                raise ValueError("the parts of a dataset need arrays of one width and of the same types, and the same spaces")
            self.num_episodes += len(part)
            self.num_transitions += part.num_transitions
            self.visits = part.visits() if self.last is None else self.visits + part.visits()
            self.last = part
            yield part

    @property
    def latest(self) -> Dataset:
        if self.last is None:
            raise ValueError("there are no episodes")
        return self.last

    @property
    def source(self) -> Source:
        return self.latest.source

    @property
    def entropy(self) -> float:
        """Of all that was observed, in nats."""
        return float(entropy(self.visits))


def _kind(part: Dataset) -> tuple[object, ...]:
    types = tuple(getattr(part, name).dtype for name in _COLUMNS)
    return part.actions.shape[1:], types, part.source.num_observations, part.source.num_actions


def joined(parts: Iterable[Dataset]) -> Dataset:
    """One dataset of many, whose episodes may be limited differently."""
    parts = list(parts)
    num_actions = max((part.actions.shape[1] for part in parts), default=0)
    if num_actions == 0:
        raise ValueError("there are no episodes")

    def column(name: str) -> np.ndarray:
        arrays = [getattr(part, name) for part in parts]
        if arrays[0].ndim == 2:
            width = num_actions + (name == "observations")
            arrays = [np.pad(array, ((0, 0), (0, width - array.shape[1]))) for array in arrays]
        return np.concatenate(arrays)

    return Dataset(**{name: column(name) for name in _COLUMNS}, source=parts[0].source)


def in_pieces(parts: Iterable[Dataset], num_episodes: int) -> Iterator[Dataset]:
    """The same episodes, at most so many at once."""
    for part in parts:
        for first in range(0, len(part), num_episodes):
            yield part.rows(first, first + num_episodes)


def cut(dataset: Dataset, arrives: Bool[np.ndarray, "episode time"]) -> Dataset:
    """The same episodes, ended by the world at the first step that `arrives`."""
    arrives = arrives & dataset.is_step
    has_arrived = arrives.any(axis=1)
    if not has_arrived.any():
        return dataset
    lengths = np.where(has_arrived, arrives.argmax(axis=1) + 1, dataset.lengths).astype(dataset.lengths.dtype)
    shorter = dataclasses.replace(dataset, lengths=lengths)
    return dataclasses.replace(
        shorter,
        observations=dataset.observations * shorter.is_observed,
        actions=dataset.actions * shorter.is_step,
        rewards=dataset.rewards * shorter.is_step,
        terminated=dataset.terminated | has_arrived,
        truncated=dataset.truncated & ~has_arrived,
    )


def relabel(dataset: Dataset, *, goal: int | None = None, reward: Reward | None = None) -> Dataset:
    """The same episodes for another task.

    Args:
        goal: an observation; to arrive there pays 1 and ends the episode, everything else pays 0.
        reward: what steps pay; the episodes stay as they are.
    """
    if (goal is None) == (reward is None):
        raise ValueError("relabel takes either a goal or a reward")
    if goal is not None:
        _check_goal(dataset.source, goal)
        arrives = dataset.observations[:, 1:] == goal
        paid = (arrives & dataset.is_step).astype(np.float32)
        source = dataclasses.replace(dataset.source, metadata={**dataset.source.metadata, "goal": int(goal)})
        return cut(dataclasses.replace(dataset, rewards=paid, source=source), arrives)
    assert reward is not None
    steps = dataset.steps()
    found = np.asarray(reward(steps.observations, steps.actions, steps.next_observations), np.float64)
    if found.shape != steps.rewards.shape:
        raise ValueError(f"the reward function must return {len(steps.rewards)} numbers, one for each step, not {found.shape}")
    rewards = np.zeros(dataset.actions.shape, dataset.rewards.dtype)
    rewards[dataset.is_step] = found
    return dataclasses.replace(dataset, rewards=rewards)


def observation_at(source: Source, goal: tuple[int, ...]) -> int:
    """The observation that a user means by its number, or by a row and a column of the map."""
    if len(goal) == 1:
        _check_goal(source, goal[0])
        return goal[0]
    if source.world is None or source.world.positions is None:
        raise ValueError("this world is no map: give the goal as one observation instead of a row and a column")
    (found,) = np.nonzero((np.asarray(source.world.positions) == np.asarray(goal)).all(axis=1))
    if not len(found):
        raise ValueError(f"the goal ({goal[0]}, {goal[1]}) is no cell that can be reached from the start")
    return int(source.world.labels[int(found[0])])


def _check_goal(source: Source, goal: int) -> None:
    if not 0 <= goal < source.num_observations:
        raise ValueError(f"a goal is an observation from 0 to {source.num_observations - 1}, not {goal}")


def states_of(dataset: Dataset) -> tuple[TabularMDP, Steps]:
    """The world of a dataset, and its steps with the world's states in place of the observations."""
    world = dataset.source.world
    if world is None:
        raise ValueError("the world that the dataset is from is not known: neither a table of it nor its environment is stored")
    index = np.full(dataset.source.num_observations, -1, np.int32)
    index[np.asarray(world.labels)] = np.arange(world.num_states)
    steps = dataset.steps()
    states, next_states = index[steps.observations], index[steps.next_observations]
    if min(states.min(initial=0), next_states.min(initial=0)) < 0:
        raise ValueError("the dataset has observations that cannot be made in its world")
    return world, steps._replace(observations=states, next_observations=next_states)
