"""How far a training is: what is told of it while it runs, and what it takes to go on with it later."""

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from farflung.policies import TabularSoftmax, Team
from farflung.policies.rollout import Faults
from farflung.training.metrics import Metrics

NOT_FINITE = "the team is not finite before its first update: lower init_scale"
ELEMENTS_SHOWN = 8
"""Of a batch, where a few episodes are kept to be looked at."""


class HostStatistics(NamedTuple):
    """What only who stepped a world can tell: its episodes may end early, and its dynamics are not known."""

    steps: Int[np.ndarray, " record"]
    """The environment steps that a seed's team had taken at each record, on average over the seeds."""
    visits: Float[np.ndarray, "seed agent state"]
    """How each agent's visits are spread over the states, in the batch of the last record."""
    num_steps: int
    """Environment steps that the teams of all seeds have taken by now."""
    features: Float[np.ndarray, "seed element agent trajectory times feature"] | None = None
    """Where states are vectors: their projection in some elements of that batch; not a number after an episode's end."""


class Divergence(NamedTuple):
    """Where what is learnt was no longer finite."""

    update: int
    row: int
    """Of the seed."""
    agent: int | None
    """The first of those concerned; None if only what all agents share is."""


class TrainingState(NamedTuple):
    """All that a training needs to go on: it ends, bit for bit, where it would have ended without a break."""

    update: int
    leaves: Sequence[np.ndarray]
    """Of the keys and the algorithm's state, a row for each seed."""
    host_statistics: HostStatistics | None = None


class Progress(NamedTuple):
    """Where training stands after `update` updates, and what was recorded since the last time."""

    update: int
    recorded: Int[np.ndarray, " record"]
    """The updates that were recorded."""
    metrics: Metrics
    """NumPy arrays [seed, record]."""
    padded_team: Team
    num_seeds: int
    host_statistics: HostStatistics | None = None
    """For worlds that are stepped on the host."""
    faults: Faults | None = None
    """For worlds whose states are vectors, of each seed."""
    learnt: Any = None
    """The keys and the algorithm's state, padded as well."""
    divergence: Divergence | None = None
    """Why it does not go on from here: what the next update would make of it."""

    @property
    def team(self) -> Team:
        """With leading seed and agent axes."""
        return jax.tree.map(lambda leaf: leaf[: self.num_seeds], self.padded_team)

    @property
    def training_state(self) -> TrainingState:
        """On the host."""
        leaves = [np.asarray(_data(leaf))[: self.num_seeds] for leaf in jax.tree.leaves(self.learnt)]
        return TrainingState(self.update, leaves, self.host_statistics)


def restored(expected: Any, leaves: Sequence[np.ndarray], put: Any = jnp.asarray) -> Any:
    """A tree like the one that is expected, with the leaves of a `TrainingState`.

    Args:
        put: places an array with a row for each seed where the computation wants it.
    """
    found, structure = jax.tree.flatten(expected)
    if [(leaf.shape[1:], leaf.dtype) for leaf in leaves] != [(data.shape[1:], data.dtype) for data in map(_data, found)]:
        raise ValueError("what was kept of the training does not fit its settings")
    return jax.tree.unflatten(structure, [_like(old, put(leaf)) for old, leaf in zip(found, leaves, strict=True)])


def are_finite(state: Any) -> Bool[Array, " seed"]:
    """Whether all that was learnt with each seed is finite."""
    leaves = jax.tree.leaves(state)
    numbers = [leaf.reshape(len(leaf), -1) for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return reduce(jnp.logical_and, [jnp.all(jnp.isfinite(each), axis=1) for each in numbers], jnp.ones(len(leaves[0]), bool))


def divergence_of(update: int, team: Team, is_finite: Bool[np.ndarray, " seed"]) -> Divergence:
    """Whose part of what was learnt with the first of the seeds concerned is not finite."""
    row = int(np.argmin(is_finite))
    axes = jax.tree.map(lambda _: 0, team) if isinstance(team, TabularSoftmax) else team.axes
    own = jax.tree.leaves(jax.tree.map(lambda leaf, axis: None if axis is None else np.asarray(leaf[row]), team, axes))
    is_bad = np.any([~np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1) for leaf in own], axis=0)
    return Divergence(update, row, int(np.argmax(is_bad)) if is_bad.any() else None)


def record_schedule(num_updates: int, log_every: int | None = None) -> list[int]:
    """The updates whose batch is measured: the first, every `log_every`-th, and the last 1%, which make up the final values."""
    if log_every is None:
        log_every = min(1000, max(25, num_updates // 200))
    first_of_last = last_percent(num_updates)
    step = 1 + (num_updates - first_of_last) // 1000  # a thousand are enough for a mean
    return sorted({1, *range(log_every, num_updates + 1, log_every), *range(num_updates, first_of_last - 1, -step)})


def last_percent(num_updates: int) -> int:
    """The first update of the last 1%."""
    return num_updates - max(1, num_updates // 100) + 1


def _data(leaf: Any) -> Any:
    return jr.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def _like(old: Any, new: Array) -> Array:
    return jr.wrap_key_data(new, impl=jr.key_impl(old)) if jnp.issubdtype(old.dtype, jax.dtypes.prng_key) else new
