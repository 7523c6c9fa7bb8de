"""The features of vector states whose entropy is maximised, the grid over them, and the kinds of actions."""

import dataclasses
import math
import operator
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from farflung.config.checks import MOST, check_text, whole_number
from farflung.entropy.counts import ragged_plug_in
from farflung.entropy.nearest import nearest_neighbours
from farflung.entropy.objective import Objective, seen_through
from farflung.worlds.encoder import SIZE, Image, random_encoder

MOST_CELLS = 10_000_000
LARGEST_BOUND = 1e30
"""Larger bounds of a space count as infinite."""
_MOST_PROJECTED, _FEW_PROJECTED = 3, 2
_BINS, _CELLS = 20, 100_000
_NEIGHBOURS = 4
_MOST_FEATURES = 1_000_000
_MOST_ENCODED = 100_000
ENCODER = "encoder"
Features = int | str | Sequence[int | str]
"""Indices or names of numbers, or `encoder`."""


def _num_actions(num: Any) -> int:
    return whole_number("the number of actions", num)


def _nums_of_actions(nums: Any) -> tuple[int, ...]:
    if not isinstance(nums, Iterable) or not (found := tuple(map(_num_actions, nums))):
        raise ValueError(f"the numbers of actions must be a sequence such as (2, 3), not {nums!r:.80}")
    return found


def _bounds(bounds: Any) -> tuple[float, ...]:
    try:
        found = np.asarray(bounds, float)
    except (TypeError, ValueError):
        found = np.zeros(())
    if found.ndim != 1 or np.isnan(found).any():
        raise ValueError(f"the bounds of a Box must be numbers such as (-1, 1), not {bounds!r:.80}")
    return tuple(found.tolist())


class Discrete(eqx.Module):
    """Actions 0 to `num` - 1."""

    num: int = eqx.field(static=True, converter=_num_actions)

    size = 1
    shape = ()
    dtype = "int32"

    @property
    def nums(self) -> tuple[int, ...]:
        return (self.num,)


class MultiDiscrete(eqx.Module):
    """Actions that are several choices at once: in each place a number from 0 to that of `nums` - 1."""

    nums: tuple[int, ...] = eqx.field(static=True, converter=_nums_of_actions)

    dtype = "int32"

    @property
    def size(self) -> int:
        return len(self.nums)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)


class Box(eqx.Module):
    """Actions that are vectors of numbers between bounds, which may be infinite."""

    low: tuple[float, ...] = eqx.field(static=True, converter=_bounds)
    high: tuple[float, ...] = eqx.field(static=True, converter=_bounds)

    dtype = "float32"

    def __check_init__(self) -> None:
        if len(self.low) != len(self.high) or not np.less_equal(self.low, self.high).all():
            raise ValueError(f"each number of a Box needs low up to high, not {self.low!r:.80} and {self.high!r:.80}")

    @property
    def size(self) -> int:
        return len(self.low)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)


Actions = Discrete | MultiDiscrete | Box


class Projection(eqx.Module):
    """The features of a recorded state whose entropy is maximised, and the grid on which coverage is counted.

    An agent observes the cosine and the sine of an angle, and distances are measured between these, so that -π and π are
    near each other. The grid and the figures use the angle itself.
    """

    features: tuple[int, ...] = eqx.field(static=True)
    """Indices into a recorded state; for an angle, that of its cosine, which its sine follows."""
    names: tuple[str, ...] = eqx.field(static=True)
    """The features' names, with units."""
    low: tuple[float, ...] = eqx.field(static=True)
    """Lower end of the grid; states outside of the grid count for the nearest cell."""
    high: tuple[float, ...] = eqx.field(static=True)
    bins: tuple[int, ...] = eqx.field(static=True)
    scale: tuple[float, ...] = eqx.field(static=True)
    """A typical difference in each feature; features are divided by it before distances are measured."""
    neighbours: int = eqx.field(static=True, default=4)
    """k of the k-nearest-neighbour entropy estimate; 0 counts grid cells instead."""
    angles: tuple[int, ...] = eqx.field(static=True, default=())
    """Positions in `features` of those that are angles, between $-\\pi$ and $\\pi$."""

    @property
    def num_cells(self) -> int:
        return math.prod(self.bins)

    def entropy(self, *, is_ragged: bool = False) -> Objective:
        """The entropy of observations; those after an episode's end, which are not finite, don't count.

        Args:
            is_ragged: whether episodes may end early.
        """
        if self.neighbours == 0:
            return seen_through(self.cells, ragged_plug_in(self.num_cells))
        nearest = nearest_neighbours(self.neighbours, scale=self.scale, angles=self.angles, is_ragged=is_ragged)
        return seen_through(self.project, nearest)

    def project(self, states: Float[Array, "*axes observation"]) -> Float[Array, "*axes feature"]:
        """The features of each state, with angles in radians."""
        features = states[..., np.array(self.features)]
        for angle in self.angles:
            cosine, sine = features[..., angle], states[..., self.features[angle] + 1]
            features = features.at[..., angle].set(jnp.arctan2(sine, cosine))
        return features

    def cells(self, states: Float[Array, "*axes observation"]) -> Int[Array, "*axes"]:
        """The index of each state's grid cell, row by row; after an episode's end `num_cells`."""
        is_real = jnp.all(jnp.isfinite(states), axis=-1)
        features = jnp.where(is_real[..., None], self.project(states), 0.0)
        cells = jnp.zeros(is_real.shape, jnp.int32)
        for feature, (low, high, num) in enumerate(zip(self.low, self.high, self.bins, strict=True)):
            place = jnp.floor((features[..., feature] - low) / (high - low) * num)
            cells = cells * num + jnp.clip(place, 0, num - 1).astype(jnp.int32)
        return jnp.where(is_real, cells, self.num_cells)

    def distances(
        self, states: Float[Array | np.ndarray, "*axes observation"], place: Float[Array | np.ndarray, " feature"]
    ) -> Float[Array, "*axes"]:
        """The distance of states from a place; each feature is in units of its scale, and angles are points on a circle."""
        projected = self.project(jnp.asarray(states))
        along_last = (1,) * (projected.ndim - 1) + (-1,)
        apart = projected - jnp.asarray(place).reshape(along_last)
        for angle in self.angles:
            apart = apart.at[..., angle].set(2 * jnp.sin(apart[..., angle] / 2))
        return jnp.linalg.norm(apart / np.asarray(self.scale, np.float32).reshape(along_last), axis=-1)


def describe_vectors(
    names: Sequence[str],
    first: Float[np.ndarray, " number"],
    last: Float[np.ndarray, " number"],
    wander: Callable[[], Float[np.ndarray, "state number"]],
    features: Features | None = None,
    neighbours: Any = None,
    bins: Any = None,
    low: Any = None,
    high: Any = None,
    *,
    num_unseen: int = 0,
    image: Image | None = None,
    is_whole: Sequence[bool] = (),
) -> dict[str, Any]:
    """The fields of a world that describe its recorded states: the projection, and the ranges of what policies see.

    Numbers without bounds are measured with random actions: the grid is three times as wide as what these reach.

    Args:
        names: the name of each number of a recorded state.
        first: the lower bound of each number, which may be infinite.
        last: the upper bound of each number, which may be infinite.
        wander: returns recorded states with random actions.
        features: names or indices of the numbers whose entropy is maximised, or `encoder`. By default the numbers that
            policies don't see, if there are any; for an image the encoder; else all numbers if there are at most three, and
            the first two of more.
        num_unseen: how many of the last numbers policies don't see.
        image: the shape of the image that the numbers which policies see are.
        is_whole: which numbers are whole, if any: features that all are whole are counted, each value in a cell of its own.
    """
    num_seen = len(names) - num_unseen
    is_bounded = np.maximum(abs(first), abs(last)) < LARGEST_BOUND
    first, last = np.where(is_bounded, first, 0.0), np.where(is_bounded, last, 0.0)
    center, spread = (first + last) / 2, (last - first) / 2
    wandered = np.zeros((1, len(names))) if is_bounded.all() else wander()
    if not is_bounded.all():
        center = np.where(is_bounded, center, wandered.mean(axis=0))
        spread = np.where(is_bounded, spread, wandered.std(axis=0))
        reach = np.maximum(np.ptp(wandered, axis=0), 1e-6)
        first = np.where(is_bounded, first, wandered.min(axis=0) - reach)
        last = np.where(is_bounded, last, wandered.max(axis=0) + reach)
    seen_center, seen_scale = _rounded(center[:num_seen]), _rounded(np.where(spread > 0, spread, 1.0)[:num_seen])
    encoder, note = None, ""
    if features is None and not num_unseen and len(names) > _MOST_PROJECTED:
        features, note = _by_default(names, image)
    if features == ENCODER or (isinstance(features, Sequence) and [*features] == [ENCODER]):
        _check_encoded(num_seen)
        encoder, num_unseen = random_encoder(seen_center, seen_scale, image), SIZE
        states = wander()[:, :num_seen]
        encoded = np.asarray(encoder(jnp.asarray(states, jnp.float32)), float)
        reach = np.maximum(np.ptp(encoded, axis=0), 1e-6)
        first, last = encoded.min(axis=0) - reach, encoded.max(axis=0) + reach
        begin_at, names = num_seen, [f"encoding {number}" for number in range(SIZE)]
        chosen, is_whole = tuple(range(SIZE)), ()
    else:
        begin_at = 0
        default = range(num_seen, len(names)) if num_unseen else range(num_seen)
        chosen = tuple(default) if features is None else chosen_numbers(features, names)
    own, is_counted = list(chosen), bool(is_whole) and all(is_whole[each] for each in chosen) and neighbours in (None, 0)
    first, last = first[own], last[own]
    if is_counted and low is None and high is None and bins is None and np.prod(last - first + 1) <= _CELLS:
        bins, neighbours = np.rint(last - first + 1).astype(int), 0
        first, last = first - 0.5, last + 0.5
    num_bins = max(1, min(_BINS, int(_CELLS ** (1 / len(chosen)) + 1e-9)))
    begin = _rounded(first) if low is None else tuple(map(float, one_for_each("low", low, len(chosen))))
    end = _rounded(last) if high is None else tuple(map(float, one_for_each("high", high, len(chosen))))
    for name, below, above in zip(chosen, begin, end, strict=True):
        if not -math.inf < below < above < math.inf:
            raise ValueError(f"the grid needs low below high, but {names[name]} has {below:g} to {above:g}")
    projection = Projection(
        features=tuple(begin_at + feature for feature in chosen),
        names=tuple(names[feature] for feature in chosen),
        low=begin,
        high=end,
        bins=whole_bins((num_bins,) if bins is None else np.atleast_1d(bins).tolist(), len(chosen)),
        scale=_rounded(np.subtract(end, begin)),
        neighbours=whole_neighbours(_NEIGHBOURS if neighbours is None else neighbours),
    )
    return {
        "projection": projection,
        "observation_center": seen_center,
        "observation_scale": seen_scale,
        "num_unseen": num_unseen,
        "image": image,
        "encoder": encoder,
        "features_note": note,
    }


def _check_encoded(number: int) -> None:
    if number > _MOST_ENCODED:
        raise ValueError(f"an encoder takes observations of at most {_MOST_ENCODED:,} numbers, not {number:,}")


def _by_default(names: Sequence[str], image: Image | None) -> tuple[Features, str]:
    """The features of many numbers if nobody has chosen any, and what to tell of it."""
    if image is not None:
        return ENCODER, "features: the space of a fixed random encoder of the image; choose others with --features"
    known = textwrap.shorten(", ".join(_groups(names)), 200, placeholder=" ...")
    return range(_FEW_PROJECTED), (
        f"features: the first two of {len(names)} numbers, {names[0]} and {names[1]}; choose with --features "
        f"from {known}; or --features encoder"
    )


def chosen_numbers(features: Features, names: Sequence[str]) -> tuple[int, ...]:
    """The indices of the numbers that a user has chosen by index, by name, or by the name of several: `qpos` for `qpos 0` ...

    >>> chosen_numbers(("speed", "place"), ("place 0", "place 1", "speed"))
    (2, 0, 1)
    """
    chosen: list[int] = []
    for each in [features] if isinstance(features, str) else np.atleast_1d(np.asarray(features, object)).tolist():
        if isinstance(each, str) and not each.isdigit():
            found = [number for number, name in enumerate(names) if each in (name, _group(name))]
            if not found:
                known = textwrap.shorten(", ".join(_groups(names)), 200, placeholder=" ...")
                raise ValueError(f"features: no number is called {each!r}: choose from {known}, or {ENCODER}")
            chosen += found
            continue
        number = int(each) if isinstance(each, str) else each
        if not (isinstance(number, int) and 0 <= number < len(names)):
            raise ValueError(f"features has numbers from 0 to {len(names) - 1}, indices into an observation, not {each}")
        chosen.append(number)
    if not chosen or len(set(chosen)) < len(chosen):
        raise ValueError(f"features has one or more different numbers, not {chosen}")
    return tuple(chosen)


def _group(name: str) -> str:
    group, _, number = name.rpartition(" ")
    return group if number.isdigit() else name


def _groups(names: Sequence[str]) -> list[str]:
    return [*dict.fromkeys(map(_group, names))] if len(set(map(_group, names))) > 1 else [*names]


def one_for_each(name: str, values: Any, number: int, what: str = "features") -> list[Any]:
    """A value for each of `number` things, given as one for all, or one for each."""
    values = np.atleast_1d(values).tolist()
    if len(values) not in (1, number):
        raise ValueError(f"{name} needs one number, or one for each of the {number} {what}, not {len(values)}")
    return values * number if len(values) == 1 else values


def _rounded(values: np.ndarray) -> tuple[float, ...]:
    return tuple(float(f"{value:.4g}") for value in values)


def read_numbers(name: str, values: Any, size: int | None = None, *, are_finite: bool = True) -> tuple[float, ...]:
    """Numbers from a file; raises ValueError if they are not, or not `size` of them."""
    numbers = tuple(values) if isinstance(values, list | tuple) else ()
    is_fine = all(isinstance(each, int | float) and not isinstance(each, bool) and not math.isnan(each) for each in numbers)
    if not numbers or not is_fine or len(numbers) != (size or len(numbers)) or (are_finite and math.inf in map(abs, numbers)):
        raise ValueError(f"{name} is a list of {size or 'one or more'} finite numbers, not {str(values)[:80]}")
    return tuple(map(float, numbers))


def vector_fields(world: Any) -> dict[str, Any]:
    """What a file holds of the actions and observations of a world of vectors, as JSON."""
    fields = {
        "actions": dataclasses.asdict(world.actions),
        "projection": dataclasses.asdict(world.projection),
        "observation_center": world.observation_center,
        "observation_scale": world.observation_scale,
    }
    further = {"num_unseen": world.num_unseen, "image": world.image, "has_encoder": world.encoder is not None}
    return fields | {name: value for name, value in further.items() if value}  # older versions know none of these


def read_vector_fields(found: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a world of vectors, from what `vector_fields` wrote; all are checked."""
    center = read_numbers("observation_center", found["observation_center"])
    scale = read_numbers("observation_scale", found["observation_scale"], len(center))
    if min(scale) <= 0:
        raise ValueError(f"observation_scale has positive numbers, not {min(scale):g}")
    num_unseen, image, has_encoder = found.get("num_unseen", 0), found.get("image"), found.get("has_encoder", False)
    if num_unseen != 0:
        num_unseen = whole_number("num_unseen", num_unseen, _MOST_FEATURES)
    if image is not None:
        image = tuple(whole_number("image", side, _MOST_FEATURES) for side in image)
        if len(image) != 3 or math.prod(image) != len(center):
            raise ValueError(f"an image of {len(center)} numbers cannot have the shape {image}")
    if not isinstance(has_encoder, bool) or (has_encoder and num_unseen != SIZE):
        raise ValueError(f"an encoder gives {SIZE} numbers, not {str(num_unseen)[:20]}")
    if has_encoder:
        _check_encoded(len(center))
    return {
        "actions": read_actions(found["actions"]),
        "projection": read_projection(found["projection"], len(center) + num_unseen),
        "observation_center": center,
        "observation_scale": scale,
        "num_unseen": num_unseen,
        "image": image,
        "encoder": random_encoder(center, scale, image) if has_encoder else None,
    }


def read_projection(fields: Any, observation_size: int) -> Projection:
    """The projection with the fields from a file, all of which are checked."""
    values = dict(fields)
    names, features = tuple(values.pop("names")), tuple(values.pop("features"))
    for name in names:
        check_text("the name of a feature", name)
    if not features or not all(isinstance(each, int) and 0 <= each < observation_size for each in features):
        raise ValueError(f"features are indices from 0 to {observation_size - 1}, not {str(features)[:80]}")
    low, high, scale = (read_numbers(name, values.pop(name), len(features)) for name in ("low", "high", "scale"))
    if len(names) != len(features) or not all(map(operator.lt, low, high)) or min(scale) <= 0:
        raise ValueError("each feature of a projection needs a name, low below high and a positive scale")
    angles = tuple(values.pop("angles", ()))
    if not all(isinstance(each, int) and 0 <= each < len(features) for each in angles):
        raise ValueError(f"angles are some of the {len(features)} features, not {str(angles)[:80]}")
    if any(features[angle] + 1 >= observation_size for angle in angles):
        raise ValueError("the sine of an angle must be in the observation, right after the cosine")
    bins, neighbours = whole_bins(values.pop("bins"), len(features)), whole_neighbours(values.pop("neighbours"))
    if values:
        raise ValueError(f"a projection has no {', '.join(map(repr, values))}")
    return Projection(features, names, low, high, bins, scale, neighbours, angles)


def read_actions(fields: Any) -> Actions:
    """The kind of actions that a file describes."""
    if set(fields) == {"num"}:
        return Discrete(whole_number("the number of actions", fields["num"], _MOST_FEATURES))
    if set(fields) == {"nums"}:
        return MultiDiscrete(tuple(whole_number("the number of choices", num, _MOST_FEATURES) for num in fields["nums"]))
    if set(fields) != {"low", "high"}:
        raise ValueError("actions have either num, or nums, or low and high")
    low = read_numbers("low", fields["low"], are_finite=False)
    high = read_numbers("high", fields["high"], len(low), are_finite=False)
    if not all(map(operator.lt, low, high)):
        raise ValueError("actions need low below high")
    return Box(low, high)


def whole_bins(bins: Any, num_features: int = 2) -> tuple[int, ...]:
    """The checked number of grid cells along each feature, given as one number for all, or one for each."""
    numbers = () if isinstance(bins, str) or not isinstance(bins, Iterable) else tuple(bins)
    numbers = numbers * num_features if len(numbers) == 1 else numbers
    if len(numbers) != num_features:
        raise ValueError(f"bins has a whole number for each of the {num_features} features, not {bins!r}")
    numbers = tuple(whole_number("each number of bins", num) for num in numbers)
    if math.prod(numbers) > MOST_CELLS:
        raise ValueError(f"bins must make at most {MOST_CELLS:,} cells, not {math.prod(numbers):,}")
    return numbers


def whole_neighbours(neighbours: Any) -> int:
    """The checked k of the k-nearest-neighbour entropy estimate, or 0."""
    try:
        number = operator.index(neighbours)
    except TypeError:
        number = -1
    if not 0 <= number <= MOST or isinstance(neighbours, bool):
        raise ValueError(f"neighbours must be a whole number from 0 on, not {neighbours!r}")
    return number
