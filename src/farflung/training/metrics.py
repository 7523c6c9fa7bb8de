"""The metrics of a team, measured on each batch."""

import math
from collections.abc import Collection, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from farflung.algorithms.task import Task
from farflung.entropy.counts import decompose, entropy_of_counts, ragged_plug_in
from farflung.entropy.named import trajectory
from farflung.entropy.objective import ObjectiveIn
from farflung.numerics.arrays import count_by_index, exact_sum
from farflung.numerics.compilation import REPRODUCIBLE
from farflung.numerics.programs import computed
from farflung.policies import TabularSoftmax, policy_entropies
from farflung.policies.acting import TrainedTeam
from farflung.policies.rollout import Trajectories, acted_in, play
from farflung.worlds.tabular import TabularMDP

_MOST_EXACT_OPERATIONS = 1_000_000_000
_MOST_COMPARED_TRAJECTORIES = 1000
_MOST_GROUPS = 10
_MOST_GROUPED = 3_000_000
"""Entries of the agents' tables, of all groups, that the jackknife computes: for large worlds it has fewer groups."""

Value = Float[Array | np.ndarray, "..."]


class Metrics(NamedTuple):
    """Measured on the batch of one update, with entropies in nats; in a run, each is an array [seed, record]."""

    entropy: Value
    """the entropy of all states that the team visits in one batch element, averaged over the batch"""
    normalized_entropy: Value
    """`entropy` divided by the log of the number of states"""
    support: Value
    """the number of distinct states visited in one batch element, averaged over the batch"""
    mixture_entropy: Value
    """the entropy of the mean of the agents' state distributions: `individual_entropy` plus `diversity`"""
    individual_entropy: Value
    """the mean entropy of the agents' own state distributions, each pooled over the batch and corrected for its bias"""
    diversity: Value
    """the mean KL divergence of the agents' state distributions from their mixture, corrected likewise"""
    policy_entropy: Value
    """the mean entropy of the policies in the states in which they acted"""
    particle_entropy: Value | None = None
    """if states are vectors: the k-nearest-neighbour entropy of the states of one batch element, averaged over the batch"""
    trajectory_entropy: Value | None = None
    """the entropy of the mixture of the agents' distributions over whole trajectories, estimated from the batch"""
    objective: Value | None = None
    """if it is not the entropy of states: the objective that is maximised, or a task's return, averaged over the batch"""

    @property
    def maximized(self) -> Value:
        """What training maximises; where states are vectors, the entropy over grid cells stands for that of the states."""
        return self.entropy if self.objective is None else self.objective

    @property
    def columns(self) -> dict[str, Value]:
        """The metrics that were measured, by name."""
        return {name: value for name, value in self._asdict().items() if value is not None}

    def only(self, names: Collection[str]) -> "Metrics":
        """Without the metrics that are not among these names."""
        return Metrics(**{name: value for name, value in self.columns.items() if name in names})

    @classmethod
    def joined(cls, parts: Sequence["Metrics"]) -> "Metrics":
        """Consecutive records as one, with the metrics that all of them have."""
        names = [name for name in cls._fields if all(getattr(part, name) is not None for part in parts)]
        return cls(**{name: np.concatenate([np.asarray(getattr(part, name)) for part in parts], axis=-1) for name in names})


def measured_in(world: Any, sizes: tuple[int, int], has_objective: bool = False) -> Metrics:
    """Zeros for the metrics that `measure_batch` measures in a world.

    Args:
        sizes: the number of agents, and of trajectories of each.
        has_objective: whether something else than the entropy of states is maximised.
    """
    has_particles = world.projection is not None and world.projection.neighbours > 0
    is_measured = {"particle_entropy": has_particles, "trajectory_entropy": _has_trajectory_entropy(sizes)}
    is_measured["objective"] = has_objective
    return Metrics(**{name: np.zeros(1) for name in Metrics._fields if is_measured.get(name, True)})


def _has_trajectory_entropy(sizes: tuple[int, int]) -> bool:
    """One trajectory has no entropy; the comparison of all pairs of very many would take longer than to play them."""
    return 1 < math.prod(sizes) <= _MOST_COMPARED_TRAJECTORIES


def measure_batch(
    world: Any, team: Any, trajectories: Trajectories, objective: ObjectiveIn | None = None, task: Task | None = None
) -> Metrics:
    """The metrics of a batch that a team has played in a world.

    Args:
        objective: what is maximised, if it is not the entropy of states.
        task: what pays, if the team learns a task.
    """
    found = _measure_states(world, team, trajectories)
    states, more = trajectories.states, {}
    if _has_trajectory_entropy((states.shape[1], states.shape[2])):
        more["trajectory_entropy"] = exact_sum(jax.vmap(trajectory(world, team).value)(states), axis=0) / len(states)
    if task is not None:
        more["objective"] = jnp.mean(task.paid(world, team, trajectories).returns)
    elif objective is not None:
        more["objective"] = jnp.mean(jax.vmap(objective(world, team).value)(states))
    return found._replace(**more)


def _measure_states(world: Any, team: Any, trajectories: Trajectories) -> Metrics:
    if world.projection is not None:
        return _measure_vectors(world, team, trajectories)
    if world.may_end_early:
        acted = acted_in(trajectories)
        return _measure_ragged(trajectories.states, world.num_states, policy_entropies(team, acted), acted < world.num_states)
    return measure(team, trajectories, world.num_states)


def measure(team: TabularSoftmax, trajectories: Trajectories, num_states: int) -> Metrics:
    """The metrics of a batch of trajectories in a world with numbered states, all of the same length."""
    states = trajectories.states
    counts = jax.vmap(count_by_index, (0, None))(states, num_states)
    policy_entropy = policy_entropies(team, states[..., :-1])
    return _metrics(
        jnp.mean(entropy_of_counts(counts, states[0].size)),
        counts,
        _decomposed(states, num_states),
        # Axis by axis: shorter order-independent sums lose fewer bits.
        reduce(lambda values, _: exact_sum(values, -1), policy_entropy.shape, policy_entropy) / policy_entropy.size,
    )


def _measure_vectors(world: Any, team: Any, trajectories: Trajectories) -> Metrics:
    """The metrics of trajectories of vectors, from counts over the projection's grid cells."""
    projection = world.projection
    cells = projection.cells(trajectories.states)
    # Not fused with its mean: for many trajectories of one policy, XLA's fused kernel would take minutes to compile.
    policy_entropy = jax.lax.optimization_barrier(policy_entropies(team, acted_in(trajectories)))
    found = _measure_ragged(cells, projection.num_cells, policy_entropy, cells[..., 1:] < projection.num_cells)
    found = found._replace(normalized_entropy=found.entropy / np.log(max(world.num_states, 2)))
    if projection.neighbours == 0:
        return found
    return found._replace(particle_entropy=jnp.mean(jax.vmap(projection.entropy().value)(trajectories.states)))


def _measure_ragged(
    states: Int[Array, "batch agent trajectory times"],
    num_states: int,
    policy_entropy: Float[Array, "batch agent trajectory time"],
    has_acted: Bool[Array, "batch agent trajectory time"],
) -> Metrics:
    counts = jax.vmap(count_by_index, (0, None))(states, num_states + 1)[:, :num_states]
    return _metrics(
        jnp.mean(jax.vmap(ragged_plug_in(num_states).value)(states)),
        counts,
        _decomposed(states, num_states),
        jnp.sum(jnp.where(has_acted, policy_entropy, 0.0)) / jnp.maximum(jnp.sum(has_acted), 1),
    )


def _decomposed(states: Int[Array, "batch agent trajectory times"], num_states: int) -> Float[Array, "2"]:
    r"""The agents' mean entropy and their diversity, without most of the bias that a finite batch gives to both.

    Few samples make each agent look more certain, and agents more different, than they are: m copies of one policy would have a
    diversity. A jackknife over groups of batch elements, which are independent of each other, removes the part of the bias
    that is inversely proportional to the size n of the batch: with $\theta$ from all elements, and $\theta_{-g}$ from all but
    the $n_g$ of group g, it is $G \theta - \sum_g (1 - n_g / n)\, \theta_{-g}$. A batch of one element is not corrected.
    """
    batch_size, num_agents = states.shape[:2]
    num_groups = min(batch_size, _MOST_GROUPS, max(2, _MOST_GROUPED // (num_agents * num_states)))
    groups = np.arange(batch_size, dtype=np.int32) % num_groups
    # The state `num_states` doesn't count: it stands for the times after the end of an episode.
    rows = jnp.asarray(groups).reshape(-1, 1, 1, 1) * (num_states + 1) + states
    by_agent = jax.vmap(count_by_index, (1, None))(rows, num_groups * (num_states + 1))
    by_group = jnp.moveaxis(by_agent.reshape(num_agents, num_groups, num_states + 1)[..., :num_states], 1, 0)
    pooled = jnp.sum(by_group, axis=0)

    def without(removed: Int[Array, "agent state"]) -> Float[Array, "2"]:
        left = pooled - removed
        return jnp.stack(decompose(left / jnp.maximum(jnp.sum(left, axis=-1, keepdims=True), 1)))

    if num_groups == 1:
        return without(jnp.zeros_like(pooled))
    weights = np.append(np.bincount(groups) / batch_size - 1, num_groups).astype(np.float32)
    # One at a time: tables of logarithms of all would be large.
    parts = jax.lax.map(without, jnp.concatenate([by_group, jnp.zeros_like(pooled)[None]]))
    return exact_sum(weights[:, None] * parts, axis=0)


def _metrics(
    entropy: Float[Array, ""],
    counts: Int[Array, "batch state"],
    decomposed: Float[Array, "2"],
    policy_entropy: Float[Array, ""],
) -> Metrics:
    individual_entropy, diversity = decomposed
    return Metrics(
        entropy=entropy,
        normalized_entropy=entropy / jnp.log(counts.shape[-1]),
        support=jnp.mean(jnp.sum(counts > 0, axis=-1)),
        mixture_entropy=individual_entropy + diversity,
        individual_entropy=individual_entropy,
        diversity=diversity,
        policy_entropy=policy_entropy,
    )


def normalized(entropy: Value, num_states: int) -> Float[np.ndarray, "..."]:
    """Entropies divided by the log of the number of states, if that is known only after training."""
    return np.asarray(np.asarray(entropy) / np.float32(np.log(max(num_states, 2))))


def occupancy(world: TabularMDP, team: TabularSoftmax | TrainedTeam) -> Float[Array, "agent state"]:
    """Each agent's distribution over states: exact if that is cheap, else from a million sampled steps."""
    team = team.policies if isinstance(team, TrainedTeam) else team
    num_agents = team.num_agents
    if num_agents * world.horizon * world.successors.size <= _MOST_EXACT_OPERATIONS:
        return computed(_exact_occupancy, (), team, world)
    num_trajectories = max(4, 1_000_000 // (num_agents * world.horizon))
    states = play(jr.key(0), team, world, 1, num_trajectories).states[0]
    return jax.vmap(count_by_index, (0, None))(states, world.num_states) / states[0].size


@partial(jax.jit, compiler_options=REPRODUCIBLE)
def _exact_occupancy(team: TabularSoftmax, world: TabularMDP) -> Float[Array, "agent state"]:
    return jax.lax.map(world.occupancy, team.probabilities)  # one agent after the other: a world's tables may be large
