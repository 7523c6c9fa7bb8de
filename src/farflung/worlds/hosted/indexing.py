"""Maps observations of an environment to state indices, and action indices to the environment's own actions."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from gymnasium import spaces
from jaxtyping import Float, Int

from farflung.worlds.projection import LARGEST_BOUND, one_for_each

_MOST_LISTED = 100_000

Features = Int[np.ndarray, "copy feature"]


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
        bins: number of equal parts into which each real number of an observation is binning; one for all, or one for each.
        low: lower end of the bins of each real number (default: the space's lower bound).
        high: upper end of the bins (default: the space's upper bound).
    """
    reals = num_reals(space)
    if reals and bins is None:
        raise ValueError(f"an observation has {reals} real numbers, but a table needs finitely many states: choose bins")
    if bins is not None and not reals:
        raise ValueError("bins are for observations of real numbers, but these observations have none")
    given, what = {"bins": bins, "low": low, "high": high}, "real numbers of an observation"
    binning = iter(zip(*(one_for_each(name, values, reals, what) for name, values in given.items()), strict=True))
    features_of, sizes = _features(space, binning)
    if None not in sizes and np.prod([float(size) for size in sizes if size]) <= _MOST_LISTED:
        return CompleteIndex(features_of, [size for size in sizes if size])
    return Met(features_of)


def actions_of(space: spaces.Space[Any]) -> list[Any]:
    """The environment's own action for each action index."""
    if isinstance(space, spaces.Discrete):
        return [int(space.start) + number for number in range(int(space.n))]
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        sizes = space.nvec.reshape(-1) if isinstance(space, spaces.MultiDiscrete) else np.full(int(np.prod(space.shape)), 2)
        if np.prod(sizes.astype(float)) > _MOST_LISTED:
            raise ValueError(f"{np.prod(sizes.astype(float)):.0f} combinations of actions are too many for a table")
        start = np.asarray(getattr(space, "start", 0), space.dtype)
        return [np.array(row, space.dtype).reshape(space.shape) + start for row in np.ndindex(*sizes)]
    raise ValueError(f"a table of probabilities needs finitely many actions (Discrete, MultiDiscrete), not {space}")


def num_reals(space: spaces.Space[Any]) -> int:
    """The number of real numbers in an observation."""
    if isinstance(space, spaces.Tuple | spaces.Dict):
        return sum(map(num_reals, parts_of(space).values()))
    is_real = isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating)
    return int(np.prod(space.shape)) if is_real and space.shape is not None else 0


def parts_of(space: Any) -> dict[Any, spaces.Space[Any]]:
    """The spaces inside a Dict or Tuple space, by key or position."""
    return dict(space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces))


def _features(space: spaces.Space[Any], binning: Any) -> tuple[Callable[[Any], Features], list[int | None]]:
    """A function from a batch of observations to whole numbers, and how many values each can take (None: unknown)."""
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return (lambda batch: np.asarray(batch, np.int64)[:, None] - start), [int(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        first = np.asarray(getattr(space, "start", 0), np.int64)
        return (lambda batch: _flat(np.asarray(batch, np.int64) - first)), [int(n) for n in space.nvec.reshape(-1)]
    if isinstance(space, spaces.MultiBinary):
        return (lambda batch: _flat(np.asarray(batch, np.int64))), [2] * int(np.prod(space.shape))
    if isinstance(space, spaces.Box):
        return _box_features(space, binning)
    if isinstance(space, spaces.Tuple | spaces.Dict):
        parts = {key: _features(part, binning) for key, part in parts_of(space).items()}

        def joined(batch: Any) -> Features:
            return np.concatenate([of(batch[key]) for key, (of, _) in parts.items()], axis=1)

        return joined, [size for _, sizes in parts.values() for size in sizes]
    raise ValueError(
        f"observations of the space {type(space).__name__} cannot be used as states: "
        "choose an attribute of the environment instead (--observe, or hosted(observe=...))"
    )


def _box_features(space: spaces.Box, binning: Any) -> tuple[Callable[[Any], Features], list[int | None]]:
    first, last = space.low.reshape(-1), space.high.reshape(-1)
    if not np.issubdtype(space.dtype, np.floating):
        whole = [int(above) - int(below) + 1 for below, above in zip(first, last, strict=True)]
        if len(whole) > 0 and float(np.prod([float(size) for size in whole])) <= _MOST_LISTED:
            lowest = first.astype(np.int64)
            return (lambda batch: _flat(np.asarray(batch).astype(np.int64)) - lowest), list(whole)
        return (lambda batch: _flat(np.asarray(batch).astype(np.int64))), [None] * len(whole)
    bins, low, high = (list(column) for column in zip(*(next(binning) for _ in first), strict=True))
    low = [bound if given is None else given for given, bound in zip(low, first, strict=True)]
    high = [bound if given is None else given for given, bound in zip(high, last, strict=True)]
    begin, end, count = np.array(low, float), np.array(high, float), np.array(bins, np.int64)
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

    def binned(batch: Any) -> Features:
        real: Float[np.ndarray, "copy feature"] = _flat(np.asarray(batch, float))
        if np.isnan(real).any():
            raise ValueError("an observation is not a number (NaN), so it has no bin")
        return np.clip((real - begin) * scale, 0, count - 1).astype(np.int64)

    return binned, [int(parts) for parts in count]


def _flat(batch: np.ndarray) -> np.ndarray:
    return batch.reshape(len(batch), -1)
