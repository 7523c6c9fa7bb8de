"""Worlds with finitely many states and actions, as lists of successors."""

import dataclasses
import operator
from collections.abc import Hashable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike

from farflung.config.checks import whole_number
from farflung.config.reading import MOST_VALUES
from farflung.entropy.counts import plug_in
from farflung.entropy.objective import Objective
from farflung.numerics.arrays import flat, inverse_cdf, lookup
from farflung.worlds.projection import MOST_CELLS, Discrete
from farflung.worlds.walls import Rectangle
from farflung.worlds.world import CompiledWorld

_TOLERANCE = 1e-6
_FILE_TOLERANCE = 1e-4
_MOST_WALLED = 100_000
"""Pictures of maps with more states have no room for lines between cells."""


class TabularMDP(CompiledWorld):
    """A finite Markov decision process: for each state and action the possible successors and their probabilities.

    Make one with `tabular_mdp`, `gridworld` or `from_gymnasium`, which check their input. Its states are all that can be
    reached from a start state, in any number of steps.
    """

    successors: Int[Array, "state action successor"]
    cumulative_probability: Float[Array, "state action successor"]
    rewards: Float[Array, "state action successor"]
    """The expected reward of each step. Exploration ignores it; relabelling and evaluation use it."""
    start_states: Int[Array, " start"] = eqx.field()
    start_cumulative_probability: Float[Array, " start"]
    labels: Int[Array, " state"]
    """Each state's index in the original numbering, which includes unreachable states."""
    positions: Int[Array, "state 2"] | None = eqx.field()
    """Row and column of each state if the world is a map."""
    horizon: int = eqx.field(static=True)
    shows_labels: bool = eqx.field(static=True, default=False)
    """Whether the environment's observations are `labels` rather than state indices."""

    projection = None

    @property
    def num_states(self) -> int:
        return self.successors.shape[-3]

    @property
    def ends(self) -> dict[str, Int[np.ndarray, " state"]]:  # type: ignore[override]
        successors, rewards = np.asarray(self.successors), np.asarray(self.rewards)
        is_end = (successors == np.arange(self.num_states)[:, None, None]).all(axis=(1, 2))
        goals = np.unique(successors[(rewards > 0) & is_end[successors]])
        return {"G": goals, "x": np.setdiff1d(np.flatnonzero(is_end), goals)}

    @property
    def walls(self) -> tuple[Rectangle, ...]:  # type: ignore[override]
        """Lines between neighbouring cells of a map, if every step leads to a neighbouring cell, but none across the line."""
        if self.positions is None or self.num_states > _MOST_WALLED:
            return ()
        cells, successors = np.asarray(self.positions), np.asarray(self.successors)
        is_end = (successors == np.arange(self.num_states)[:, None, None]).all(axis=(1, 2))
        moves = cells[successors] - cells[:, None, None]
        if np.abs(moves).sum(axis=-1).max() > 1:
            return ()
        rows, columns = cells.max(axis=0) + 1
        is_left = np.zeros((rows + 1, columns + 1), bool)  # an episode goes on from some state of the cell
        is_left[*cells[~is_end].T] = True
        walls: list[Rectangle] = []
        for axis, (down, right) in enumerate(((1, 0), (0, 1))):
            is_crossed = np.zeros(is_left.shape, bool)
            crossing = np.argwhere(moves[..., axis] != 0)
            places = np.minimum(cells[crossing[:, 0]], cells[successors[*crossing.T]])
            is_crossed[*places.T] = True
            is_shut = is_left & np.roll(is_left, -1, axis) & ~is_crossed
            for row, column in np.argwhere(is_shut).tolist():
                walls.append((column - 0.5 + right, column + 0.5, row - 0.5 + down, row + 0.5))
        return tuple(walls)

    @property
    def num_actions(self) -> int:
        return self.successors.shape[-2]

    @property
    def actions(self) -> Discrete:  # type: ignore[override]
        return Discrete(self.num_actions)

    def state_of(self, observation: Any) -> int:
        try:
            label = operator.index(observation)
        except TypeError:
            label = -1
        labels = np.asarray(self.labels) if self.shows_labels else np.arange(self.num_states)
        states = np.flatnonzero(labels == label)
        if not len(states):
            raise ValueError(f"{observation!r:.80} is not one of the {self.num_states} states of this world")
        return int(states[0])

    @property
    def table(self) -> "TabularMDP":
        return self

    @property
    def num_successors(self) -> int:
        return self.successors.shape[-1]

    @property
    def entropy(self) -> Objective:
        return plug_in(self.num_states)

    @property
    def is_deterministic(self) -> bool:
        return self.num_successors == 1 and self.start_states.shape[-1] == 1

    @property
    def num_reset_uniforms(self) -> int:
        return int(self.start_states.shape[-1] > 1)

    @property
    def num_step_uniforms(self) -> int:
        return int(self.num_successors > 1)

    @property
    def probabilities(self) -> Float[Array, "state action successor"]:
        return jnp.diff(self.cumulative_probability, axis=-1, prepend=0.0)

    @property
    def start_distribution(self) -> Float[Array, " state"]:
        probabilities = jnp.diff(self.start_cumulative_probability, prepend=0.0)
        return jnp.zeros(self.num_states).at[self.start_states].add(probabilities)

    def reset_from(self, noise: Float[Array, " {self.num_reset_uniforms}"]) -> Int[Array, ""]:
        if self.num_reset_uniforms == 0:
            return self.start_states[0]
        start = inverse_cdf(self.start_cumulative_probability, jnp.int32(0), self.start_states.shape[0], noise[0])
        return lookup(self.start_states, start)

    def step_from(
        self, noise: Float[Array, " {self.num_step_uniforms}"], state: Int[Array, ""], action: Int[Array, ""]
    ) -> Int[Array, ""]:
        row = state * self.num_actions + action
        if self.num_step_uniforms == 0:
            return lookup(flat(self.successors), row)
        outcome = inverse_cdf(flat(self.cumulative_probability), row, self.num_successors, noise[0])
        return lookup(flat(self.successors), row * self.num_successors + outcome)

    @property
    def identity(self) -> Hashable:
        arrays = (self.successors, self.cumulative_probability, self.start_states, self.start_cumulative_probability)
        return (self.horizon, *((array.shape, np.asarray(array).tobytes()) for array in arrays))

    def to_arrays(self) -> dict[str, np.ndarray]:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        if not self.shows_labels:
            del fields["shows_labels"]  # the field is optional, for older files
        return {name: np.asarray(value) for name, value in fields.items() if value is not None}

    @staticmethod
    def from_arrays(arrays: Mapping[str, np.ndarray]) -> "TabularMDP":
        """The world that `to_arrays` describes; every table is checked before compiled code reads from it."""
        unknown = arrays.keys() - {field.name for field in dataclasses.fields(TabularMDP)}
        if unknown:
            raise ValueError(f"a world has no {', '.join(map(repr, sorted(unknown)))}")
        shape = arrays["successors"].shape
        if len(shape) != 3 or 0 in shape or not 0 < arrays["start_states"].size <= shape[0]:
            raise ValueError(f"a world needs states, actions, successors and a start, not the shape {shape}")
        num_states, starts = shape[0], (arrays["start_states"].size,)
        tables: dict[str, Any] = {
            "successors": _checked(arrays, "successors", np.integer, shape, num_states),
            "cumulative_probability": _checked_cumulative(arrays, "cumulative_probability", shape),
            "rewards": _checked(arrays, "rewards", np.floating, shape),
            "start_states": _checked(arrays, "start_states", np.integer, starts, num_states),
            "start_cumulative_probability": _checked_cumulative(arrays, "start_cumulative_probability", starts),
            "labels": _checked(arrays, "labels", np.integer, (num_states,), MOST_VALUES),
        }
        if "positions" in arrays:
            positions = _checked(arrays, "positions", np.integer, (num_states, 2), MOST_CELLS)
            if np.prod(positions.max(axis=0) + 1.0) > MOST_CELLS:
                raise ValueError(f"positions must lie on a map of at most {MOST_CELLS:,} cells")
            tables["positions"] = positions
        on_device: dict[str, Any] = {"positions": None} | {name: jax.device_put(table) for name, table in tables.items()}
        horizon = whole_number("horizon", arrays["horizon"].item())
        return TabularMDP(**on_device, horizon=horizon, shows_labels=bool(arrays.get("shows_labels", False)))

    def widened(self, num_successors: int) -> "TabularMDP":
        """The same world with longer lists of successors, so that several worlds can share one compiled program."""
        if num_successors == self.num_successors:
            return self  # without a copy of large tables
        missing = ((0, 0), (0, 0), (0, num_successors - self.num_successors))
        widened = ("successors", "cumulative_probability", "rewards")  # repeats of the last successor have probability 0
        tables: dict[str, Any] = {name: jnp.pad(getattr(self, name), missing, mode="edge") for name in widened}
        return dataclasses.replace(self, **tables)

    @eqx.filter_jit
    def state_distributions(
        self, action_probabilities: Float[Array, "*time state action"]
    ) -> Float[Array, "{self.horizon}+1 state"]:
        """The exact distribution of the state at each of the times 0 to `horizon` under one policy, by propagation."""

        def step(distribution: Float[Array, " state"], policy: Float[Array, "state action"]) -> tuple[Array, Array]:
            arrived = self._propagate(distribution, policy)
            return arrived, arrived

        start = self.start_distribution
        _, later = jax.lax.scan(step, start, self._by_time(action_probabilities))
        return jnp.concatenate([start[None], later])

    @eqx.filter_jit
    def occupancy(self, action_probabilities: Float[Array, "*time state action"]) -> Float[Array, " state"]:
        r"""The exact distribution of the state under one policy, on average over all times: the paper's $d_\pi$.

        For a team, vmap over its policies; their mean is the mixture $d_{\pi_p}$.
        """

        def step(carry: tuple[Array, Array], policy: Float[Array, "state action"]) -> tuple[tuple[Array, Array], None]:
            total, distribution = carry
            arrived = self._propagate(distribution, policy)
            return (total + arrived, arrived), None

        start = self.start_distribution
        (total, _), _ = jax.lax.scan(step, (start, start), self._by_time(action_probabilities))
        return total / (self.horizon + 1)

    def _propagate(self, distribution: Float[Array, " state"], policy: Float[Array, "state action"]) -> Float[Array, " state"]:
        flow = (distribution[:, None] * policy)[..., None] * self.probabilities
        return jnp.zeros_like(distribution).at[self.successors].add(flow)

    def _by_time(self, action_probabilities: Float[Array, "*time state action"]) -> Float[Array, "time state action"]:
        return jnp.broadcast_to(action_probabilities, (self.horizon, self.num_states, self.num_actions))


def tabular_mdp(
    successors: ArrayLike,
    probabilities: ArrayLike,
    start_distribution: ArrayLike,
    horizon: int | None = None,
    rewards: ArrayLike | None = None,
    positions: ArrayLike | None = None,
) -> TabularMDP:
    """A `TabularMDP` from successor lists, in which a successor may occur several times or with probability zero.

    >>> chain = tabular_mdp(successors=[[[0, 1]], [[1, 1]]], probabilities=[[[0.5, 0.5]], [[1, 0]]], start_distribution=[1, 0])
    >>> chain.num_states, chain.num_actions, chain.horizon
    (2, 1, 1)

    Args:
        successors: whole numbers [state, action, successor].
        probabilities: an array of the same shape.
        start_distribution: the probability of each state.
        horizon: number of actions in an episode (default: enough to reach the state farthest from the start).
        rewards: an array of the same shape as `successors`.
        positions: row and column of each state, if the states lie on a map.
    """
    successors = np.asarray(successors)
    probabilities = np.asarray(probabilities, np.float64)
    start_distribution = np.asarray(start_distribution, np.float64)
    rewards = np.zeros_like(probabilities) if rewards is None else np.asarray(rewards, np.float64)
    _check(successors, probabilities, start_distribution, rewards)
    successors, probabilities, rewards = _merge(successors.astype(np.int32), probabilities, rewards)

    labels, distances = reachable_states(successors, probabilities, start_distribution)
    if len(labels) == 1:
        raise ValueError("there is nothing to explore: no state but the start can be reached")
    horizon = max(1, int(distances.max())) if horizon is None else whole_number("horizon", horizon)

    new_index = np.zeros(len(start_distribution), np.int32)
    new_index[labels] = np.arange(len(labels), dtype=np.int32)
    starts = np.flatnonzero(start_distribution).astype(np.int32)
    return TabularMDP(  # jnp.asarray would compile a program for each
        successors=jax.device_put(new_index[successors[labels]]),
        cumulative_probability=jax.device_put(_cumulative(probabilities[labels])),
        rewards=jax.device_put(rewards[labels].astype(np.float32)),
        start_states=jax.device_put(new_index[starts]),
        start_cumulative_probability=jax.device_put(_cumulative(start_distribution[starts])),
        labels=jax.device_put(labels),
        positions=None if positions is None else jax.device_put(np.asarray(positions, np.int32)[labels]),
        horizon=horizon,
    )


def from_kernel(kernel: ArrayLike, start_distribution: ArrayLike, horizon: int | None = None) -> TabularMDP:
    r"""A `TabularMDP` from a dense transition kernel $P(s' \mid s, a)$, an array [state, action, next state]."""
    kernel = np.asarray(kernel, np.float64)
    if kernel.ndim != 3 or kernel.shape[0] != kernel.shape[2]:
        raise ValueError(f"a kernel has the shape (states, actions, states), not {kernel.shape}")
    width = max(1, int(np.max(np.count_nonzero(kernel, axis=-1))))
    successors = np.argsort(kernel == 0, axis=-1, kind="stable")[..., :width]
    return tabular_mdp(successors, np.take_along_axis(kernel, successors, axis=-1), start_distribution, horizon)


def _check(successors: np.ndarray, probabilities: np.ndarray, start_distribution: np.ndarray, rewards: np.ndarray) -> None:
    if successors.ndim != 3 or successors.shape != probabilities.shape or successors.shape != rewards.shape:
        shapes = f"{successors.shape}, {probabilities.shape} and {rewards.shape}"
        raise ValueError(f"successors, probabilities and rewards need one shape (states, actions, successors), not {shapes}")
    num_states = successors.shape[0]
    if 0 in successors.shape:
        raise ValueError(f"a world needs at least one state, action and successor, not the shape {successors.shape}")
    if start_distribution.shape != (num_states,):
        raise ValueError(f"the start distribution must have the shape ({num_states},), not {start_distribution.shape}")
    if not np.issubdtype(successors.dtype, np.integer) or successors.min() < 0 or successors.max() >= num_states:
        raise ValueError(f"each successor must be a whole number from 0 to {num_states - 1}")
    if not np.all(np.isfinite(rewards)):
        raise ValueError("rewards must be finite numbers")
    for name, rows in (("the start distribution", start_distribution), ("the transition probabilities", probabilities)):
        if not np.all(np.isfinite(rows)) or rows.min() < 0:
            raise ValueError(f"{name} must be finite and not negative")
        sums = rows.sum(axis=-1)
        worst = np.unravel_index(np.argmax(np.abs(sums - 1)), sums.shape)
        if abs(sums[worst] - 1) > _TOLERANCE:
            where = f" of state {worst[0]}, action {worst[1]}" if worst else ""
            raise ValueError(f"{name}{where} must sum to 1, not {sums[worst]:.6g}")


def _merge(successors: np.ndarray, probabilities: np.ndarray, rewards: np.ndarray) -> tuple[np.ndarray, ...]:
    """Lists each successor of a state and action once, and drops columns that no row needs."""
    most_likely = np.take_along_axis(successors, probabilities.argmax(axis=-1)[..., None], axis=-1)
    successors = np.where(probabilities > 0, successors, most_likely)
    order = np.argsort(successors, axis=-1, kind="stable")
    successors, probabilities, rewards = (np.take_along_axis(x, order, axis=-1) for x in (successors, probabilities, rewards))
    column = np.cumsum(np.diff(successors, axis=-1, prepend=successors[..., :1]) > 0, axis=-1)
    rows = (*np.indices(successors.shape, sparse=True)[:2], column)
    shape = (*successors.shape[:2], column.max() + 1)
    merged = np.repeat(successors[..., -1:], shape[2], axis=-1)
    merged[rows] = successors
    probability, payment = np.zeros(shape), np.zeros(shape)
    np.add.at(probability, rows, probabilities)
    np.add.at(payment, rows, probabilities * rewards)
    return merged, probability, np.divide(payment, probability, out=np.zeros(shape), where=probability > 0)


def reachable_states(
    successors: np.ndarray, probabilities: np.ndarray, start_distribution: np.ndarray
) -> tuple[Int[np.ndarray, " reachable"], Int[np.ndarray, " reachable"]]:
    """The reachable states, in order, and the number of steps from the start to each."""
    # Level by level: SciPy's graphs would take longer to import than most worlds take to search.
    distances = np.where(start_distribution > 0, 0, -1)
    level = np.flatnonzero(start_distribution)
    while level.size:
        following = np.unique(successors[level][probabilities[level] > 0])
        following = following[distances[following] < 0]
        distances[following] = distances[level[0]] + 1
        level = following
    states = np.flatnonzero(distances >= 0)
    return states.astype(np.int32), distances[states].astype(np.int64)


def _cumulative(probabilities: np.ndarray) -> Float[np.ndarray, "..."]:
    cumulative = np.cumsum(probabilities, axis=-1)
    # Exactly 1 from the last possible outcome on, so that no uniform number below 1 picks an impossible one.
    possible = probabilities > 0
    num_left: np.ndarray = np.flip(np.cumsum(np.flip(possible, axis=-1), axis=-1), axis=-1) - possible
    return np.where(num_left > 0, np.minimum(cumulative, 1), 1).astype(np.float32)


def _checked(arrays: Mapping[str, np.ndarray], name: str, kind: Any, shape: tuple[int, ...], below: int = 1) -> np.ndarray:
    table = arrays[name]
    if table.shape != shape or not np.issubdtype(table.dtype, kind):
        raise ValueError(f"{name} must have the shape {shape}, not {table.shape} of {table.dtype}")
    if kind is np.integer and not (table.min() >= 0 and table.max() < below):
        raise ValueError(f"{name} must be whole numbers from 0 to {below - 1:,}")
    if not np.isfinite(table).all() or (kind is np.floating and np.abs(table).max() > np.finfo(np.float32).max):
        raise ValueError(f"{name} must be finite numbers")
    return table.astype(np.int32 if kind is np.integer else np.float32)


def _checked_cumulative(arrays: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...]) -> np.ndarray:
    table = _checked(arrays, name, np.floating, shape)
    is_complete = (np.abs(table[..., -1] - 1) < _FILE_TOLERANCE).all()
    if not (table.min() >= 0 and (np.diff(table, axis=-1) >= 0).all() and is_complete):
        raise ValueError(f"{name} must rise from 0 to 1")
    return table
