"""The algorithm of a training: the one that a config names, or a user's own."""

import dataclasses
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from farflung.algorithms import Algorithm
from farflung.algorithms.actor_critic import actor_critic
from farflung.algorithms.diayn import diayn
from farflung.algorithms.pgpse import pgpse
from farflung.config import Explore
from farflung.config.imports import check_installed, import_object, instance_of
from farflung.config.options import ACTOR_CRITIC
from farflung.entropy.credit import Credit
from farflung.entropy.objective import Objective, ObjectiveIn, Utility
from farflung.worlds.world import World

_FOR_EVERY_ALGORITHM = {
    *("world", "horizon", "slip", "algorithm", "seeds", "updates", "log_every", "stop_when_flat"),
    *("agents", "trajectories", "batch_size"),
}
"""Settings that hold for an algorithm of a user's own too."""

_NAMED: dict[str, Callable[[Explore, Any, Credit | None], Any]] = {"diayn": diayn}
"""Algorithms beside pgpse, by name."""
OwnAlgorithm = Algorithm | Callable[[Explore, Any], Algorithm]
"""An algorithm, or a function of a config and a world that makes one."""
OwnObjective = Objective | Utility | Callable[[Any], Objective]
"""An objective, or a function of a world that makes one, such as a `Utility`."""


class UserParts(NamedTuple):
    """A user's own parts of a training; None for what the config names."""

    algorithm: OwnAlgorithm | None = None
    credit: Credit | None = None
    objective: OwnObjective | None = None


def algorithm_for(
    config: Explore,
    world: World,
    own: UserParts = UserParts(),  # noqa: B008
    given: Collection[str] = (),
    *,
    is_from_file: bool = False,
) -> Algorithm:
    """The algorithm that a config names, or that a user gives.

    Args:
        given: the names of the settings that the user has chosen.
        is_from_file: whether the config was read from a file, whose names are imported only if they are installed.
    """

    def found(part: str) -> Any:
        own_part, name = getattr(own, part), getattr(config, part)
        if own_part is not None or ":" not in name:
            return own_part
        if is_from_file:
            check_installed(name, f"the {part} {name}")
        return import_object(name, part)

    algorithm, credit, objective = found("algorithm"), found("credit"), found("objective")
    if algorithm is None and config.algorithm in _NAMED:
        return _NAMED[config.algorithm](config, world, credit)
    if algorithm is None and config.algorithm == ACTOR_CRITIC:
        return actor_critic(config, world, objective=_in_world(objective, world))
    if algorithm is None:
        return pgpse(config, world, credit=credit, objective=_in_world(objective, world))
    made = instance_of(algorithm, "algorithm")
    if not isinstance(made, Algorithm) and callable(made):
        made = made(config, world)  # which may use every setting, but not a credit or objective of the user's own
        ignored = {name for name, part in (("credit", credit), ("objective", objective)) if part is not None}
    else:
        ignored = {field.name for field in dataclasses.fields(Explore)} - _FOR_EVERY_ALGORITHM
    if not isinstance(made, Algorithm):
        missing = [name for name in ("batch_size", "num_trajectories", "init", "learn") if not hasattr(made, name)]
        raise ValueError(f"{type(made).__name__} is not an algorithm: it has no {', '.join(missing)}")
    for name in sorted(ignored & set(given)):
        raise ValueError(
            f"{name} is a setting of pgpse or actor-critic, and an algorithm of your own has its own settings: drop {name}"
        )
    return made


def _in_world(objective: OwnObjective | None, world: World) -> ObjectiveIn | None:
    """A user's objective as an algorithm takes it."""
    if objective is None or isinstance(objective, Utility):
        return objective
    if isinstance(objective, Objective):
        return lambda world, team: objective
    if world.is_hosted:  # made anew as states are met
        return lambda world, team: objective(world)
    made = objective(world)  # once, from the world's concrete arrays
    return lambda world, team: made
