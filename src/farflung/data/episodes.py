"""Episodes as arrays: what a dataset holds, whatever it is stored as."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import entropy

from farflung.worlds.projection import Box, Projection
from farflung.worlds.tabular import TabularMDP
from farflung.worlds.vectors import VectorWorld


@dataclass(frozen=True)
class Source:
    """Where episodes come from: what can be seen and done there, and what is known of the place."""

    observations: int | Box
    """How many there are, or the bounds of vectors."""
    actions: int | Box
    world: TabularMDP | VectorWorld | None = None
    """Of a table, `labels[s]` is what is seen in state s."""
    environment: str | None = None
    """The specification of the Gymnasium environment, as JSON."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """What else is known, such as who played; for JSON."""
    projection: Projection | None = None
    """Of observations that are vectors: the features that goals are given in, and the grid on which coverage is counted."""

    @property
    def num_observations(self) -> int:
        """Where they are not vectors."""
        assert isinstance(self.observations, int)
        return self.observations

    @property
    def num_actions(self) -> int:
        """Where they are not vectors."""
        assert isinstance(self.actions, int)
        return self.actions


class Steps(NamedTuple):
    """Single steps of all episodes, one after the other."""

    observations: Int[np.ndarray, " step"] | Float[np.ndarray, "step feature"]
    actions: Int[np.ndarray, " step"] | Float[np.ndarray, "step action"]
    next_observations: Int[np.ndarray, " step"] | Float[np.ndarray, "step feature"]
    rewards: Float[np.ndarray, " step"]


@dataclass(frozen=True)
class Dataset:
    """Episodes with one observation more than actions; what lies beyond the end of an episode is zero."""

    observations: Int[np.ndarray, "episode times"] | Float[np.ndarray, "episode times feature"]
    actions: Int[np.ndarray, "episode time"] | Float[np.ndarray, "episode time action"]
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
        num_episodes, num_times = self.observations.shape[:2]
        if not self.actions.shape[:2] == self.rewards.shape == (num_episodes, num_times - 1):
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

    @property
    def has_vectors(self) -> bool:
        """Whether observations are vectors."""
        return self.observations.ndim == 3

    def visits(self) -> Int[np.ndarray, " observation"]:
        """How often each observation was made; of vectors, how often each cell of the projection's grid was visited."""
        if not self.has_vectors:
            return np.bincount(self.observations[self.is_observed], minlength=self.source.num_observations)
        projection = self.source.projection
        if projection is None:
            return np.zeros(0, np.int64)
        cells = np.asarray(projection.cells(jnp.asarray(self.observations)))
        return np.bincount(cells[self.is_observed], minlength=projection.num_cells)[: projection.num_cells]

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
    def can_be_tried(self) -> bool:
        """Whether it is known where a policy that was learnt from the data could try to reach goals."""
        world = self.source.world
        return world is not None and (world.table is not None or bool(world.starts))

    @property
    def entropy(self) -> float | None:
        """Of all that was observed, in nats; of vectors, that of the cells of a grid, if there is one."""
        return float(entropy(self.visits)) if self.visits.size else None


def _kind(part: Dataset) -> tuple[object, ...]:
    types = tuple(getattr(part, name).dtype for name in _COLUMNS)
    return part.observations.shape[1:], part.actions.shape[1:], types, part.source.observations, part.source.actions


def joined(parts: Iterable[Dataset]) -> Dataset:
    """One dataset of many, whose episodes may be limited differently."""
    parts = list(parts)
    num_actions = max((part.actions.shape[1] for part in parts), default=0)
    if num_actions == 0:
        raise ValueError("there are no episodes")

    def column(name: str) -> np.ndarray:
        arrays = [getattr(part, name) for part in parts]
        if arrays[0].ndim > 1:
            width = num_actions + (name == "observations")
            arrays = [_padded(array, width - array.shape[1]) for array in arrays]
        return np.concatenate(arrays)

    return Dataset(**{name: column(name) for name in _COLUMNS}, source=parts[0].source)


def checked(dataset: Dataset) -> Dataset:
    """The dataset, if its numbers are what its source says: they may come from anyone."""
    source = dataset.source
    for name, space in (("observations", source.observations), ("actions", source.actions)):
        column = getattr(dataset, name)
        if isinstance(space, Box):
            if column.ndim != 3 or column.shape[-1] != space.size or column.dtype.kind != "f":
                raise ValueError(f"{name} are vectors of {space.size} numbers, not {column.shape} of {column.dtype}")
        elif column.ndim != 2 or column.dtype.kind not in "iu" or column.min(initial=0) < 0 or column.max(initial=0) >= space:
            raise ValueError(f"{name} are whole numbers from 0 to {space - 1}, and these are not")
    kinds = {"rewards": "f", "lengths": "iu", "terminated": "b", "truncated": "b", "agents": "iu"}
    for name, kind in kinds.items():
        column = getattr(dataset, name)
        if column.dtype.kind not in kind or column.ndim != (2 if name == "rewards" else 1):
            raise ValueError(f"{name} cannot be {column.dtype} of the shape {column.shape}")
    if dataset.agents.min(initial=0) < 0:
        raise ValueError("agents are numbered from 0 on")
    world = source.world
    if world is not None and world.table is not None:
        if source.actions != world.num_actions:
            raise ValueError(f"the dataset has {source.actions} actions, and its world {world.num_actions}")
        if not isinstance(source.observations, int) or int(world.table.labels.max()) >= source.observations:
            raise ValueError("the world of the dataset has more observations than the dataset")
    elif world is not None and (not dataset.has_vectors or dataset.observations.shape[-1] != world.observation_size):
        raise ValueError("the world of the dataset has other observations than the dataset")
    return dataset


def _padded(array: np.ndarray, num_times: int) -> np.ndarray:
    return np.pad(array, ((0, 0), (0, num_times), *((0, 0),) * (array.ndim - 2)))


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
    return _blank_after_ends(
        dataclasses.replace(
            dataset,
            lengths=lengths,
            terminated=dataset.terminated | has_arrived,
            truncated=dataset.truncated & ~has_arrived,
        )
    )


def vector_episodes(
    observations: Float[np.ndarray, "episode times feature"],
    actions: Int[np.ndarray, "episode time"] | Float[np.ndarray, "episode time action"],
    source: Source,
    *,
    agents: Int[np.ndarray, " episode"],
    lengths: Int[np.ndarray, " episode"],
    terminated: Bool[np.ndarray, " episode"],
    rewards: Float[np.ndarray, "episode time"] | None = None,
) -> Dataset:
    """Episodes whose observations are vectors, played wherever, with whatever lies beyond their ends.

    Args:
        actions: as the world was told them.
        terminated: those that the world has ended; all others were cut off.
        rewards: by default nothing is paid.
    """
    played = Dataset(
        observations=observations,
        actions=actions,
        rewards=np.zeros(actions.shape[:2], np.float32) if rewards is None else rewards,
        lengths=lengths,
        terminated=terminated,
        truncated=~terminated,
        agents=agents,
        source=source,
    )
    return _blank_after_ends(played)


def _blank_after_ends(dataset: Dataset) -> Dataset:
    def kept(column: np.ndarray, is_kept: Bool[np.ndarray, "episode time"]) -> np.ndarray:
        return np.where(is_kept.reshape(*is_kept.shape, *[1] * (column.ndim - 2)), column, column.dtype.type(0))

    return dataclasses.replace(
        dataset,
        observations=kept(dataset.observations, dataset.is_observed),
        actions=kept(dataset.actions, dataset.is_step),
        rewards=kept(dataset.rewards, dataset.is_step),
    )


def states_of(dataset: Dataset) -> tuple[TabularMDP, Steps]:
    """The world of a dataset, and its steps with the world's states in place of the observations."""
    world = dataset.source.world
    if world is None or world.table is None:
        raise ValueError("the world that the dataset is from is not known: neither a table of it nor its environment is stored")
    index = np.full(dataset.source.num_observations, -1, np.int32)
    index[np.asarray(world.labels)] = np.arange(world.num_states)
    steps = dataset.steps()
    states, next_states = index[steps.observations], index[steps.next_observations]
    if min(states.min(initial=0), next_states.min(initial=0)) < 0:
        raise ValueError("the dataset has observations that cannot be made in its world")
    return world, steps._replace(observations=states, next_observations=next_states)
