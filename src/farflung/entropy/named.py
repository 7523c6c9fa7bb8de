"""The objectives that have a name: what `--objective` takes, alone or in weighted sums."""

import functools
from typing import Any

from farflung.config.options import objective_terms
from farflung.entropy.objective import Objective, ObjectiveIn, of_each_agent, weighted
from farflung.entropy.trajectories import nearest_trajectories, of_mixture, of_trajectories


def state(world: Any, team: Any = None) -> Objective:
    """The entropy of the states that the team visits together: the paper's objective."""
    return world.entropy


def own(world: Any, team: Any = None) -> Objective:
    """The mean of the agents' entropies, each of the agent's own states."""
    return of_each_agent(world.entropy)


def skills(world: Any, team: Any = None) -> Objective:
    """The team's diversity: the mutual information between the agent and the state, which is `state` minus `own`."""
    return weighted([(1.0, world.entropy), (-1.0, of_each_agent(world.entropy))])


def trajectory(world: Any, team: Any = None) -> Objective:
    """The entropy of the team's trajectories as wholes: of the mixture of the agents' distributions where the dynamics and the
    policies are tables, else of the trajectories that were played."""
    projection, of_numbers, table = world.projection, of_trajectories(), getattr(world, "table", None)
    if projection is None:
        return of_mixture(table, team) if table is not None and hasattr(team, "logits") else of_numbers
    if projection.neighbours == 0:
        return Objective(
            lambda states: of_numbers.value(projection.cells(states)), lambda states: of_numbers.gains(projection.cells(states))
        )
    nearest = nearest_trajectories(projection.neighbours, scale=projection.scale, angles=projection.angles)
    return Objective(
        lambda states: nearest.value(projection.project(states)), lambda states: nearest.gains(projection.project(states))
    )


OBJECTIVES: dict[str, ObjectiveIn] = {"state": state, "own": own, "skills": skills, "trajectory": trajectory}


@functools.cache
def named_objective(text: str) -> ObjectiveIn:
    """What makes the objective of a name, or of a weighted sum of names such as own+2*skills, in a world.

    >>> named_objective("own+skills") is named_objective("own+skills")
    True
    """
    terms = objective_terms(text)
    if list(terms.values()) == [1.0]:
        return OBJECTIVES[next(iter(terms))]
    return lambda world, team: weighted([(weight, OBJECTIVES[name](world, team)) for name, weight in terms.items()])
