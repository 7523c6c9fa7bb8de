"""Maps observations of an environment to state indices, and action indices to the environment's own actions."""

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from gymnasium import spaces
from jaxtyping import Int, Shaped

from farflung.worlds.projection import LARGEST_BOUND, one_for_each

_MOST_LISTED = 100_000

Features = Int[np.ndarray, "*copy feature"]


@runtime_checkable
class StateIndex(Protocol):
    """Maps a batch of observations, one per copy of the environment, to state indices."""

    is_complete: bool
    """Whether all states are known from the start; otherwise each new observation adds a state."""

    @property
    def num_states(self) -> int: ...
    @property
    def features(self) -> Int[np.ndarray, "state feature"]:
        """The whole numbers that identify each state."""

    def __call__(self, observations: Any) -> Int[np.ndarray, " copy"]: ...


class CompleteIndex:
    """Indexes every combination of the values that the parts of an observation space can take."""

    is_complete = True

    def __init__(self, features_of: Callable[[Any], Features], sizes: Sequence[int]) -> None:
        self._features_of, self._sizes = features_of, tuple(sizes)
        self._strides = np.cumprod([1, *self._sizes[:0:-1]], dtype=np.int64)[::-1]
        self._limits = np.array(self._sizes, np.uint64)

    @property
    def num_states(self) -> int:
        return int(np.prod(self._sizes))

    @property
    def features(self) -> Int[np.ndarray, "state feature"]:
        return np.stack(np.unravel_index(np.arange(self.num_states), self._sizes), axis=-1)

    def __call__(self, observations: Any) -> Int[np.ndarray, " copy"]:
        features = self._features_of(observations)
        if (features.view(np.uint64) >= self._limits).any():  # as unsigned integers, negative numbers are large
            outside = features[(features < 0).any(axis=1) | (features >= self._sizes).any(axis=1)][0]
            raise ValueError(f"an observation is outside of its space: {outside.tolist()} is not below {list(self._sizes)}")
        return features[:, 0] if len(self._sizes) == 1 else features @ self._strides


class Met:
    """Indexes states in the order in which they are first observed."""

    is_complete = False

    def __init__(self, features_of: Callable[[Any], Features]) -> None:
        self._features_of = features_of
        self._number: dict[bytes, int] = {}
        self._rows: list[Int[np.ndarray, " feature"]] = []

    def know(self, features: Int[np.ndarray, "state feature"]) -> None:
        """Adds states that were observed earlier, in the given order."""
        for row in features:
            self._number_of(row)

    @property
    def num_states(self) -> int:
        return len(self._rows)

    @property
    def features(self) -> Int[np.ndarray, "state feature"]:
        return np.stack(self._rows) if self._rows else np.zeros((0, 0), np.int64)

    def __call__(self, observations: Any) -> Int[np.ndarray, " copy"]:
        return np.array([self._number_of(features) for features in self._features_of(observations)], np.int64)

    def _number_of(self, features: Int[np.ndarray, " feature"]) -> int:
        key = features.tobytes()
        number = self._number.setdefault(key, len(self._rows))
        if number == len(self._rows):
            self._rows.append(features.copy())
        return number


class SavedIndex:
    """The states of a world read from a file, which has no environment to observe."""

    is_complete = False

    def __init__(self, features: Int[np.ndarray, "state feature"]) -> None:
        self.features = features

    @property
    def num_states(self) -> int:
        return len(self.features)

    def __call__(self, observations: Any) -> Int[np.ndarray, " copy"]:
        raise ValueError("this world was read from a file and has no environment yet: call with_environment() first")


def state_index(
    space: spaces.Space[Any],
    *,
    bins: Sequence[int] | None = None,
    low: Sequence[float | int] | None = None,
    high: Sequence[float | int] | None = None,
) -> StateIndex:
    """The index of an observation space's states: complete if the space is small, else growing with new observations.

    Args:
        bins: number of equal parts into which each real number of an observation is divided; one for all, or one for each.
        low: lower end of the bins of each real number (default: the space's lower bound).
        high: upper end of the bins (default: the space's upper bound).
    """
    parts = parts_of(space)
    reals = sum(part.low.size for part in parts if part.is_real)
    if reals and bins is None:
        raise ValueError(f"an observation has {reals} real numbers, but a table needs finitely many states: choose bins")
    if bins is not None and not reals:
        raise ValueError("bins are for observations of real numbers, but these observations have none")
    given, what = {"bins": bins, "low": low, "high": high}, "real numbers of an observation"
    binning = zip(*(one_for_each(name, values, reals, what) for name, values in given.items()), strict=True)
    read = [_binned(part, [*itertools.islice(binning, part.low.size)]) if part.is_real else _whole(part) for part in parts]
    sizes = [size for _, own_sizes in read for size in own_sizes]

    def features_of(observations: Any) -> Features:
        each = [features(part.numbers(observations)) for part, (features, _) in zip(parts, read, strict=True)]
        return np.atleast_2d(np.concatenate(each, axis=-1))

    if None not in sizes and math.prod(size for size in sizes if size) <= _MOST_LISTED:
        return CompleteIndex(features_of, [size for size in sizes if size])
    return Met(features_of)


def actions_of(space: spaces.Space[Any]) -> list[Any]:
    """The environment's own action for each action index."""
    if isinstance(space, spaces.Discrete):
        return [int(space.start) + number for number in range(int(space.n))]
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        (part,) = parts_of(space)
        sizes = (part.high - part.low + 1).ravel().tolist()
        if math.prod(sizes) > _MOST_LISTED:
            raise ValueError(
                f"{math.prod(sizes):.4g} combinations of actions are too many for a table: choose features, so that policies "
                "are networks, which make each choice by itself"
            )
        return [(part.low + np.reshape(row, space.shape)).astype(space.dtype) for row in np.ndindex(*sizes)]
    if isinstance(space, spaces.Box):
        raise ValueError(f"a table needs finitely many actions (Discrete, MultiDiscrete, MultiBinary), not {space}")
    raise unknown_actions(space)


def unknown_actions(space: spaces.Space[Any]) -> ValueError:
    return ValueError(
        f"actions of the space {type(space).__name__} cannot be chosen: wrap the environment to have Discrete, MultiDiscrete, "
        "MultiBinary or Box actions"
    )


class Part(NamedTuple):
    """An array of numbers within an observation: all of it, or an entry of a dictionary or tuple."""

    space: spaces.Space[Any]
    path: tuple[Any, ...]
    """The keys that lead to it."""
    low: np.ndarray
    high: np.ndarray
    """The bounds of each number."""

    @property
    def is_real(self) -> bool:
        return np.issubdtype(self.low.dtype, np.floating)

    @property
    def is_image(self) -> bool:
        """Whether it is an array of pixels: unsigned bytes along two axes, and colours along a third."""
        return isinstance(self.space, spaces.Box) and self.low.dtype == np.uint8 and self.low.ndim in (2, 3)

    def numbers(self, observations: Any) -> Shaped[np.ndarray, "*copy number"]:
        """The numbers of the part in one observation, or in those of all copies."""
        array = np.asarray(functools.reduce(operator.getitem, self.path, observations))
        num_copy_axes = max(0, array.ndim - self.low.ndim)
        if array.shape[num_copy_axes:] != self.low.shape:
            raise ValueError(f"an observation has the shape {self.low.shape}, not {array.shape}")
        return array.reshape(*array.shape[:num_copy_axes], -1)


def parts_of(space: spaces.Space[Any], path: tuple[Any, ...] = ()) -> list[Part]:
    """The arrays that an observation of the space consists of."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        entries = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        return [part for key, entry in entries for part in parts_of(entry, (*path, key))]
    if isinstance(space, spaces.Box):
        return [Part(space, path, space.low, space.high)]
    if isinstance(space, spaces.MultiBinary):
        return [Part(space, path, np.zeros(space.shape, np.int64), np.ones(space.shape, np.int64))]
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        start = np.asarray(space.start, np.int64)
        return [Part(space, path, start, start + (space.n if isinstance(space, spaces.Discrete) else space.nvec) - 1)]
    raise ValueError(
        f"observations of the space {type(space).__name__} cannot be used as states: "
        "choose entries of a Dict or attributes of the environment instead (--observe, or hosted(observe=...))"
    )


def _whole(part: Part) -> tuple[Callable[[np.ndarray], Features], list[int | None]]:
    """A function from the numbers of a part to whole numbers from 0 on, and how many values each can take (None: unknown)."""
    sizes: list[int | None] = [int(high) - int(low) + 1 for low, high in zip(part.low.flat, part.high.flat, strict=True)]
    if isinstance(part.space, spaces.Box) and math.prod(size for size in sizes if size) > _MOST_LISTED:
        return (lambda numbers: numbers.astype(np.int64)), [None] * len(sizes)
    lowest = part.low.reshape(-1).astype(np.int64)
    return (lambda numbers: numbers.astype(np.int64) - lowest), sizes


def _binned(part: Part, binning: Sequence[Any]) -> tuple[Callable[[np.ndarray], Features], list[int | None]]:
    """As `_whole`, with a number of bins, a lower and an upper end for each real number."""
    bins, low, high = zip(*binning, strict=True)
    count = np.array(bins, np.int64)
    begin, end = (
        np.array([bound if own is None else own for own, bound in zip(given, bounds.flat, strict=True)], float)
        for given, bounds in ((low, part.low), (high, part.high))
    )
    unbounded = [str(number + 1) for number, bound in enumerate(np.maximum(abs(begin), abs(end))) if not bound < LARGEST_BOUND]
    if unbounded:
        which = f"number {unbounded[0]} has" if len(unbounded) == 1 else f"numbers {', '.join(unbounded)} have"
        raise ValueError(f"among the real numbers of an observation, {which} no bounds: give low and high for the bins")
    for number, (below, above, parts) in enumerate(zip(begin, end, count, strict=True)):
        if not below < above:
            raise ValueError(f"bins need low below high, but real number {number + 1} has {below:g} to {above:g}")
        if parts < 1:
            raise ValueError(f"bins must be at least 1, not {parts}")
    scale = count / (end - begin)

    def binned(numbers: np.ndarray) -> Features:
        if np.isnan(numbers).any():
            raise ValueError("an observation is not a number (NaN), so it has no bin")
        return np.clip((numbers.astype(float) - begin) * scale, 0, count - 1).astype(np.int64)

    return binned, count.tolist()
