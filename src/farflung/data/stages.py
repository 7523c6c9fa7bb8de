"""A team at several stages of its training, for datasets like the replay buffer of a training."""

from typing import Any

import jax
import jax.numpy as jnp

from farflung.algorithms.chosen import algorithm_for
from farflung.policies import NeuralPolicy, TabularSoftmax
from farflung.runs.run import Run
from farflung.training.loop import train


def stages(run: Run, seed: int, num_stages: int) -> tuple[Any, list[int]]:
    """The team of a seed at equally spaced stages of its training as one large team, and the updates of each stage.

    The first stage is the untrained team and the last one the run's own. A run keeps no other teams, so the team is trained
    again, which on the same kind of device gives the same bits.
    """
    last = int(run.updates[-1])
    if not 2 <= num_stages <= last + 1:
        raise ValueError(f"checkpoints must be a number from 2 to {last + 1}, the updates of the run and one, not {num_stages}")
    interval = last // (num_stages - 1)
    updates = [*range(0, interval * (num_stages - 1), interval), last]
    teams = trained_again(run, seed, interval)
    teams[last] = run.team(seed).policies
    return _joined([teams[update] for update in updates], run.world.num_states), updates


def trained_again(run: Run, seed: int, interval: int) -> dict[int, Any]:
    """The team of a seed by the number of its updates: before the first, after every `interval`-th, and after the last."""
    last, world = int(run.updates[-1]), run.world.with_environment().snapshot()
    algorithm = algorithm_for(run.config, world, is_from_file=True)
    return {
        progress.update: jax.tree.map(lambda leaf: leaf[0], progress.team)
        for progress in train(algorithm, world.table or world, (seed,), last, pause_at=range(interval, last, interval))
        if progress.update % interval == 0 or progress.update == last
    }


def _joined(teams: list[Any], num_states: int) -> Any:
    """One team with the agents of all."""
    if isinstance(teams[0], TabularSoftmax):
        rows = [TabularSoftmax(team.logits[..., :num_states, :], team.is_time_dependent) for team in teams]
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *rows)
    if not isinstance(teams[0], NeuralPolicy):
        raise ValueError("checkpoints need farflung's policies, tables or networks: this team has its own")
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *(team.separate() for team in teams))
