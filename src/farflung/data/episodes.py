"""Episodes as arrays: the contents of a dataset in any format."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import entropy

from farflung.worlds.hosted.copies import is_info_name
from farflung.worlds.projection import Box, Projection
from farflung.worlds.tabular import TabularMDP
from farflung.worlds.world import World


@dataclass(frozen=True)
class Source:
    """Where episodes come from: the spaces, the world and the environment."""

    observations: int | Box
    """The number of observations, or the bounds of vectors."""
    actions: int | Box
    """The number of actions, or the bounds of vectors."""
    world: World | None = None
    """The world, if the dataset can store it; in a tabular world, `labels[s]` is the observation in state s."""
    environment: str | None = None
    """The specification of the Gymnasium environment, as JSON."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Further facts that JSON can hold, such as the algorithm and the team."""
    projection: Projection | None = None
    """If observations are vectors: the features in which goals are given, and the grid on which visits are counted."""

    @property
    def num_observations(self) -> int:
        """The number of observations, if observations are not vectors."""
        assert isinstance(self.observations, int)
        return self.observations

    @property
    def num_actions(self) -> int:
        """The number of actions, if actions are not vectors."""
        assert isinstance(self.actions, int)
        return self.actions


class Steps(NamedTuple):
    """Single steps of all episodes, one after the other."""

    observations: Int[np.ndarray, " step"] | Float[np.ndarray, "step feature"]
    actions: Int[np.ndarray, " step"] | Float[np.ndarray, "step action"]
    next_observations: Int[np.ndarray, " step"] | Float[np.ndarray, "step feature"]
    rewards: Float[np.ndarray, " step"]
    is_terminal: Bool[np.ndarray, " step"]
    """Whether the world has ended the episode with this step."""


@dataclass(frozen=True)
class Dataset:
    """Episodes with one more observation than actions; entries after the end of an episode are zero."""

    observations: Int[np.ndarray, "episode times"] | Float[np.ndarray, "episode times feature"]
    actions: Int[np.ndarray, "episode time"] | Float[np.ndarray, "episode time action"]
    rewards: Float[np.ndarray, "episode time"]
    lengths: Int[np.ndarray, " episode"]
    """The number of actions in each episode."""
    terminated: Bool[np.ndarray, " episode"]
    """Whether the world has ended the episode."""
    truncated: Bool[np.ndarray, " episode"]
    """Whether the episode was cut off, for example by a time limit."""
    agents: Int[np.ndarray, " episode"]
    """The number of the agent that played the episode."""
    source: Source
    seeds: Int[np.ndarray, " episode"] | None = None
    """The seed with which the environment was reset for each episode, if it was stepped on the host."""
    infos: Mapping[str, Float[np.ndarray, "episode times ..."]] = field(default_factory=dict)
    """Numbers in the environment's infos by name, if it was stepped on the host; NaN where it gave none."""

    def __post_init__(self) -> None:
        num_episodes, num_times = self.observations.shape[:2]
        if not self.actions.shape[:2] == self.rewards.shape == (num_episodes, num_times - 1):
            shapes = f"{self.observations.shape}, {self.actions.shape} and {self.rewards.shape}"
            raise ValueError(f"an episode has one more observation than actions and rewards, but the shapes are {shapes}")
        columns = (self.lengths, self.terminated, self.truncated, self.agents, *(() if self.seeds is None else (self.seeds,)))
        if any(len(column) != num_episodes for column in columns):
            raise ValueError(
                f"lengths, terminated, truncated, agents and seeds need one entry for each of the {num_episodes} episodes"
            )
        if num_episodes and not 1 <= self.lengths.min() <= self.lengths.max() < num_times:
            raise ValueError(f"each episode has 1 to {num_times - 1} actions")
        for name, info in self.infos.items():
            if not is_info_name(name):
                raise ValueError(f"the name of an info has letters, digits, spaces and _():+- only, unlike {name!r:.80}")
            if info.shape[:2] != (num_episodes, num_times):
                raise ValueError(f"infos need one entry for each observation, but {name} has the shape {info.shape}")

    def __len__(self) -> int:
        return len(self.lengths)

    def __repr__(self) -> str:
        world = self.source.metadata.get("config", {}).get("world") or self.source.metadata.get("dataset")
        place = "" if world is None else f" in {world}"
        about = f"{len(self):,} episodes, {self.num_transitions:,} transitions, mean return {self.returns.mean():.4g}"
        kinds = f"observations {_described(self.source.observations)}, actions {_described(self.source.actions)}"
        return f"<Dataset{place}: {about}, {kinds}>"

    @property
    def returns(self) -> Float[np.ndarray, " episode"]:
        """The sum of each episode's rewards."""
        return self.rewards.sum(axis=1, dtype=np.float64)

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
        """All steps, without the entries after the ends of episodes."""
        before, after, mask = self.observations[:, :-1], self.observations[:, 1:], self.is_step
        is_last = np.arange(self.actions.shape[1]) == self.lengths[:, None] - 1
        is_terminal = (is_last & self.terminated[:, None])[mask]
        return Steps(before[mask], self.actions[mask], after[mask], self.rewards[mask], is_terminal)

    @property
    def has_vectors(self) -> bool:
        """Whether observations are vectors."""
        return self.observations.ndim == 3

    def visits(self) -> Int[np.ndarray, " observation"]:
        """How often each observation occurs; if observations are vectors, how often each cell of the grid was visited."""
        if not self.has_vectors:
            return np.bincount(self.observations[self.is_observed], minlength=self.source.num_observations)
        projection = self.source.projection
        if projection is None:
            return np.zeros(0, np.int64)
        cells = np.asarray(projection.cells(jnp.asarray(self.observations)))
        return np.bincount(cells[self.is_observed], minlength=projection.num_cells)[: projection.num_cells]

    def pairs(self) -> Bool[np.ndarray, " pair"] | None:
        """Which pairs of an observation, or a grid cell, and an action occur: entry `observation * num_actions + action`.

        None for actions that are vectors, for vectors without a grid, and for more than 100 million possible pairs.
        """
        states, num_states = self.observations[:, :-1], self.visits().size
        if not isinstance(self.source.actions, int) or not 0 < num_states * self.source.actions <= _MOST_PAIRS:
            return None
        if self.has_vectors:
            assert self.source.projection is not None
            states = np.asarray(self.source.projection.cells(jnp.asarray(states)))
        found = np.zeros(num_states * self.source.actions, bool)
        found[states[self.is_step].astype(np.int64) * self.source.actions + self.actions[self.is_step]] = True
        return found

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """The arrays by their names, those of infos as `infos/NAME`; `seeds` only if there are some."""
        columns = {name: getattr(self, name) for name in (*COLUMNS, "seeds") if getattr(self, name) is not None}
        return columns | {f"{INFOS}{name}": column for name, column in self.infos.items()}

    def rows(self, first: int, last: int) -> "Dataset":
        """The episodes from `first` to before `last`."""
        return from_columns({name: column[first:last] for name, column in self.columns.items()}, self.source)


def from_columns(columns: Mapping[str, Any], source: Source) -> Dataset:
    """The dataset with the arrays that `Dataset.columns` names."""
    infos = {name.removeprefix(INFOS): column for name, column in columns.items() if name.startswith(INFOS)}
    return Dataset(**{name: columns[name] for name in COLUMNS}, source=source, seeds=columns.get("seeds"), infos=infos)


COLUMNS = [field.name for field in dataclasses.fields(Dataset) if field.name not in ("source", "seeds", "infos")]
INFOS = "infos/"
_MOST_PAIRS = 10**8


def _described(space: int | Box) -> str:
    return f"0 to {space - 1}" if isinstance(space, int) else f"of {space.size} numbers"


@dataclass
class Contents:
    """The size and the visits of a dataset, counted while its parts are written."""

    num_episodes: int = 0
    num_transitions: int = 0
    visits: Int[np.ndarray, " observation"] = field(default_factory=lambda: np.zeros(0, np.int64))
    pairs: Bool[np.ndarray, " pair"] | None = None
    """Which pairs of an observation, or a grid cell, and an action occur."""
    has_rewards: bool = False
    last: Dataset | None = None

    def counting(self, parts: Iterable[Dataset]) -> Iterator[Dataset]:
        """Passes on the parts of a dataset, and counts each of them."""
        for part in parts:
            if self.last is not None and _kind(part) != _kind(self.last):
                raise ValueError(
                    "all parts of a dataset need the same spaces, and arrays of the same width and of the same types"
                )
            self.num_episodes += len(part)
            self.num_transitions += part.num_transitions
            self.visits = part.visits() if self.last is None else self.visits + part.visits()
            pairs = part.pairs()
            self.pairs = pairs if self.pairs is None or pairs is None else self.pairs | pairs
            self.has_rewards |= bool(part.rewards.any())
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
    def entropy(self) -> float | None:
        """The entropy of the observations in nats; of vectors, the entropy over grid cells, or None without a grid."""
        return float(entropy(self.visits)) if self.visits.size else None


def _kind(part: Dataset) -> tuple[object, ...]:
    types = tuple(getattr(part, name).dtype for name in COLUMNS)
    spaces = (part.source.observations, part.source.actions)
    infos = tuple((name, info.shape[2:]) for name, info in part.infos.items())
    return part.observations.shape[1:], part.actions.shape[1:], types, part.seeds is None, infos, *spaces


def joined(parts: Iterable[Dataset]) -> Dataset:
    """One dataset made of many, whose arrays may have different widths."""
    parts = list(parts)
    num_actions = max((part.actions.shape[1] for part in parts), default=0)
    if num_actions == 0:
        raise ValueError("there are no episodes")

    def column(name: str) -> np.ndarray:
        arrays = [part.columns[name] for part in parts]
        if arrays[0].ndim > 1:
            width = num_actions + (name not in ("actions", "rewards"))
            arrays = [padded(array, width - array.shape[1]) for array in arrays]
        return np.concatenate(arrays)

    return from_columns({name: column(name) for name in parts[0].columns}, parts[0].source)


def checked(dataset: Dataset) -> Dataset:
    """The dataset, if its arrays fit its source; raises ValueError otherwise, as anyone may have written the file."""
    source = dataset.source
    for name, space in (("observations", source.observations), ("actions", source.actions)):
        column = getattr(dataset, name)
        if isinstance(space, Box):
            if column.ndim != 3 or column.shape[-1] != space.size or column.dtype.kind != "f":
                raise ValueError(
                    f"{name} must be vectors of {space.size} numbers, not an array {column.shape} of {column.dtype}"
                )
        elif column.ndim != 2 or column.dtype.kind not in "iu" or column.min(initial=0) < 0 or column.max(initial=0) >= space:
            raise ValueError(f"{name} must be whole numbers from 0 to {space - 1}, and some are not")
    kinds = {"rewards": "f", "lengths": "iu", "terminated": "b", "truncated": "b", "agents": "iu"}
    for name, kind in kinds.items():
        column = getattr(dataset, name)
        if column.dtype.kind not in kind or column.ndim != (2 if name == "rewards" else 1):
            raise ValueError(f"{name} cannot be an array {column.shape} of {column.dtype}")
    if dataset.agents.min(initial=0) < 0:
        raise ValueError("agents must be numbered from 0, and one is negative")
    if dataset.seeds is not None and (dataset.seeds.ndim != 1 or dataset.seeds.dtype.kind not in "iu"):
        raise ValueError(f"seeds cannot be an array {dataset.seeds.shape} of {dataset.seeds.dtype}")
    for name, info in dataset.infos.items():
        if info.dtype.kind != "f" or info.ndim not in (2, 3):
            raise ValueError(f"infos cannot be an array {info.shape} of {info.dtype}, as {name!r:.80} is")
    world = source.world
    if world is not None and world.table is not None:
        if source.actions != world.num_actions:
            raise ValueError(f"the dataset has {source.actions} actions, but its world has {world.num_actions}")
        if not isinstance(source.observations, int) or int(world.table.labels.max()) >= source.observations:
            raise ValueError("the dataset's world has more observations than the dataset allows")
    elif world is not None and (not dataset.has_vectors or dataset.observations.shape[-1] != world.state_size):
        raise ValueError("the dataset's world has observations of another kind or size than the dataset")
    return dataset


def padded(array: np.ndarray, num_times: int) -> np.ndarray:
    """An array [episode, time, ...] with zeros at the end of the time axis."""
    return np.pad(array, ((0, 0), (0, num_times), *((0, 0),) * (array.ndim - 2)))


def in_pieces(parts: Iterable[Dataset], num_episodes: int) -> Iterator[Dataset]:
    """The same episodes in parts of at most `num_episodes`."""
    for part in parts:
        for first in range(0, len(part), num_episodes):
            yield part.rows(first, first + num_episodes)


def cut(dataset: Dataset, arrives: Bool[np.ndarray, "episode time"]) -> Dataset:
    """The same episodes, terminated at the first step that `arrives`."""
    arrives = arrives & dataset.is_step
    has_arrived = arrives.any(axis=1)
    if not has_arrived.any():
        return dataset
    lengths = np.where(has_arrived, arrives.argmax(axis=1) + 1, dataset.lengths).astype(dataset.lengths.dtype)
    return blank_after_ends(
        dataclasses.replace(
            dataset,
            lengths=lengths,
            terminated=dataset.terminated | has_arrived,
            truncated=dataset.truncated & ~has_arrived,
        )
    )


def vector_episodes(
    observations: Float[np.ndarray, "episode times feature"],
    actions: Int[np.ndarray, "episode time *choice"] | Float[np.ndarray, "episode time action"],
    source: Source,
    *,
    agents: Int[np.ndarray, " episode"],
    lengths: Int[np.ndarray, " episode"],
    terminated: Bool[np.ndarray, " episode"],
    rewards: Float[np.ndarray, "episode time"] | None = None,
    seeds: Int[np.ndarray, " episode"] | None = None,
    infos: Mapping[str, Float[np.ndarray, "episode times ..."]] | None = None,
) -> Dataset:
    """A dataset of episodes whose observations are vectors; entries after the end of an episode may be anything.

    Args:
        actions: the actions that the world has executed.
        terminated: whether the world has ended the episode; all other episodes count as truncated.
        rewards: by default 0.
        seeds: the seed with which the environment was reset for each episode.
        infos: further numbers that belong to each observation, by name.
    """
    dataset = Dataset(
        observations=observations,
        actions=actions.astype(np.float32, copy=False) if isinstance(source.actions, Box) else actions,
        rewards=np.zeros(actions.shape[:2], np.float32) if rewards is None else rewards,
        lengths=lengths,
        terminated=terminated,
        truncated=~terminated,
        agents=agents,
        source=source,
        seeds=seeds,
        infos=infos or {},
    )
    return blank_after_ends(dataset)


def blank_after_ends(dataset: Dataset) -> Dataset:
    """The dataset with zeros after the ends of its episodes."""

    def blank(column: np.ndarray, is_valid: Bool[np.ndarray, "episode time"]) -> np.ndarray:
        return np.where(is_valid.reshape(*is_valid.shape, *[1] * (column.ndim - 2)), column, column.dtype.type(0))

    return dataclasses.replace(
        dataset,
        observations=blank(dataset.observations, dataset.is_observed),
        actions=blank(dataset.actions, dataset.is_step),
        rewards=blank(dataset.rewards, dataset.is_step),
        infos={name: blank(info, dataset.is_observed) for name, info in dataset.infos.items()},
    )


def states_of(dataset: Dataset) -> tuple[TabularMDP, Steps]:
    """The tabular world of a dataset, and the dataset's steps with states in place of observations."""
    world = None if dataset.source.world is None else dataset.source.world.table
    if world is None:
        raise ValueError(
            "learning to reach goals needs the world's transition table, which the dataset lacks: collect a dataset with"
            " rewards in an environment whose observations are Discrete or Box, and learn from them"
        )
    index = np.full(dataset.source.num_observations, -1, np.int32)
    index[np.asarray(world.labels)] = np.arange(world.num_states)
    steps = dataset.steps()
    states, next_states = index[steps.observations], index[steps.next_observations]
    if min(states.min(initial=0), next_states.min(initial=0)) < 0:
        raise ValueError("the dataset has observations that no state of its world has")
    return world, steps._replace(observations=states, next_observations=next_states)
