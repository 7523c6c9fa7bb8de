"""Divergence and invalid states: warns about them, and stops a training from which nothing more can be learnt."""

import warnings
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from farflung.config import Explore
from farflung.config.options import ALGORITHMS
from farflung.entropy.nearest import num_duplicates
from farflung.policies.rollout import WorldWarning
from farflung.training.progress import Progress
from farflung.worlds.projection import Projection
from farflung.worlds.world import World

_MOST_BROKEN = 0.5
_MOST_ALIKE = 0.2
_MOST_NAMED = 4
_num_duplicates = jax.jit(num_duplicates, static_argnums=1, static_argnames=("scale", "angles"))


class TrainingMonitor:
    """Checks a training for states, metrics and policies that are not finite."""

    def __init__(self, configs: Sequence[Explore], worlds: Sequence[World], start: Progress) -> None:
        config = configs[0]
        self._name, self._world, self._is_own = config.world, worlds[0], config.algorithm not in ALGORITHMS
        self._episodes_per_update = config.batch_size * config.agents * config.trajectories
        self._learning_rates = [each.of_seed(row).learning_rate for each in configs for row in range(len(each.seeds))]
        self._seeds = [seed for each in configs for seed in each.seeds]
        faults = start.faults
        self._num_faults = np.zeros(len(self._seeds), np.int64) if faults is None else np.asarray(faults.number, np.int64)
        self._update = start.update
        self.reason = ""
        """Why the training was stopped."""

    def has_diverged(self, progress: Progress) -> bool:
        """Whether policies or metrics are no longer finite, or would not be after the next update."""
        measured = [
            name.replace("_", " ") for name, values in progress.metrics.columns.items() if not np.isfinite(values).all()
        ]
        if progress.divergence is not None:
            update, row, agent = progress.divergence
            whose = "a shared part of the algorithm's state" if agent is None else f"the policy of agent {agent + 1}"
            lower = "check your own algorithm" if self._is_own else f"try a learning rate below {self._learning_rates[row]:g}"
            self.reason = f"{self._name}: in update {update} {whose} (seed {self._seeds[row]}) was no longer finite"
        elif measured:
            lower = "check your own algorithm" if self._is_own else "try a smaller learning rate"
            self.reason = f"{self._name}: the {' and the '.join(measured)} were no longer finite by update {progress.update}"
        else:
            return False
        self.reason += f", so training stopped: {lower}"
        return True

    def has_too_many_faults(self, progress: Progress) -> bool:
        """Whether most of the latest episodes gave a state that is not finite; warns of the first such state."""
        if progress.faults is None or progress.update == self._update:
            return False
        found = np.asarray(progress.faults.number, np.int64)
        if found.any() and not self._num_faults.any() and not self._world.is_hosted:  # a hosted world's copies warn
            first = int(np.flatnonzero(found)[np.argmin(progress.faults.first_update[found > 0])])
            step, update = int(progress.faults.first_step[first]), int(progress.faults.first_update[first])
            message = f"{self._name}: a state after step {step} of update {update} was not finite"
            warnings.warn(f"{message}; such episodes end there ({found.sum():,} so far)", WorldWarning, stacklevel=3)
        num_updates = progress.update - self._update
        share = float((found - self._num_faults).max()) / (num_updates * self._episodes_per_update)
        self._num_faults, self._update = found, progress.update
        if share > _MOST_BROKEN:
            self.reason = (
                f"{self._name}: {share:.0%} of the latest episodes, up to update {progress.update}, gave a state that was not "
                "finite, so training stopped"
            )
        return share > _MOST_BROKEN

    def as_json(self) -> dict[str, Any]:
        """Faults, and why training stopped, for a run's summary."""
        faults = {"broken_episodes": int(self._num_faults.sum())} if self._num_faults.any() else {}
        return faults | ({"stopped_because": self.reason} if self.reason else {})


def check_num_samples(config: Explore, projection: Projection, horizon: int) -> None:
    """Raises ValueError if a batch element has too few states for the k-nearest-neighbour estimate."""
    num_agents = 1 if config.independent else config.agents
    num_states = num_agents * config.trajectories * (horizon + 1)
    if num_states <= projection.neighbours:
        whose = "an agent" if config.independent else "the team"
        raise ValueError(
            f"neighbours must be below {num_states}, the number of states that {whose} visits in a batch element, "
            f"not {projection.neighbours}"
        )


def share_of_duplicates(name: str, features: np.ndarray, projection: Projection) -> float:
    """The share of visited states that the k-nearest-neighbour estimate cannot tell apart; warns if it is large."""
    neighbours, scale, angles = projection.neighbours, projection.scale, projection.angles
    alike = [_num_duplicates(jnp.asarray(element), neighbours, scale=scale, angles=angles) for element in features]
    share = float(np.sum(alike)) / max(1, int(np.isfinite(features).all(axis=-1).sum()))
    if share > _MOST_ALIKE:
        names = " and ".join(projection.names) if len(projection.names) <= _MOST_NAMED else "their features"
        message = (
            f"{name}: {share:.0%} of the states that the final team visits are duplicates in {names}, so their "
            "nearest-neighbour distances are zero: choose other features, use more neighbours, or count cells (--neighbours 0)"
        )
        warnings.warn(message, WorldWarning, stacklevel=3)
    return share
