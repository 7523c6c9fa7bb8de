"""Gymnasium environments with a transition table, such as the toy-text ones, as worlds."""

import dataclasses
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from farflung.config.checks import whole_number
from farflung.worlds.hosted.tables import map_shape
from farflung.worlds.hosted.world import first_copy
from farflung.worlds.tabular import TabularMDP, reachable_states, tabular_mdp


class NoTableError(ValueError):
    """The environment has no transition table."""


def from_gymnasium(environment: str | gymnasium.Env[Any, Any], *, horizon: int | None = None) -> TabularMDP:
    """The world of a Gymnasium environment, or of its id, with a transition table `P` (FrozenLake, CliffWalking, Taxi, ours).

    States in which an episode ends are absorbing.

    Args:
        horizon: number of actions in an episode (default: the environment's limit, or enough to reach the farthest state).
    """
    if isinstance(environment, str):
        environment = first_copy(partial(gymnasium.make, environment), environment)
    core: Any = environment.unwrapped
    if horizon is None and environment.spec is not None:
        horizon = environment.spec.max_episode_steps
    if isinstance(getattr(core, "world", None), TabularMDP):  # one of ours
        horizon = core.world.horizon if horizon is None else whole_number("horizon", horizon)
        return dataclasses.replace(core.world, horizon=horizon)
    name = environment.spec.id if environment.spec else type(core).__name__
    if not hasattr(core, "P") or not hasattr(core, "initial_state_distrib"):
        raise NoTableError(
            f"{name} carries no transition table P: it can be explored (farflung explore, hosted), "
            "but nothing can be computed from its dynamics"
        )
    num_states, num_actions = len(core.P), len(core.P[0])
    outcomes = [[core.P[state][action] for action in range(num_actions)] for state in range(num_states)]
    width = max(len(row) for rows in outcomes for row in rows)
    table = np.zeros((num_states, num_actions, width, 4))
    for state, rows in enumerate(outcomes):
        for action, row in enumerate(rows):
            table[state, action, : len(row)] = [(p, int(s), r, bool(is_end)) for p, s, r, is_end in row]
    probabilities, successors, rewards = table[..., 0], table[..., 1].astype(np.int64), table[..., 2]
    is_end = (table[..., 3] > 0) & (probabilities > 0)

    ends = np.zeros(num_states, bool)
    ends[successors[is_end]] = True
    goes_on = ends[successors] & ~is_end & (probabilities > 0) & ~ends[:, None, None]
    successors = np.where(ends[:, None, None], np.arange(num_states)[:, None, None], successors)
    start_distribution = np.asarray(core.initial_state_distrib, np.float64)
    reachable, _ = reachable_states(successors, probabilities, start_distribution)
    if goes_on[reachable].any():
        raise ValueError(
            f"{name} sometimes ends an episode in a state and sometimes continues from it: such a state must be two states"
        )
    shape = map_shape(environment, num_states)
    positions = None if shape is None else np.stack(np.unravel_index(np.arange(num_states), shape), axis=-1)
    if positions is None and hasattr(core, "decode"):  # Taxi: row, column, passenger and destination
        positions = np.array([tuple(core.decode(state))[:2] for state in range(num_states)])
    world = tabular_mdp(
        successors,
        probabilities,
        start_distribution,
        horizon,
        rewards=np.where(ends[:, None, None], 0.0, rewards),
        positions=positions,
    )
    return dataclasses.replace(world, shows_labels=True)
