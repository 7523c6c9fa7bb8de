"""The algorithm of a training: the one that a config names, or a user's own."""

import dataclasses
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from farflung.algorithms import Algorithm
from farflung.algorithms.actor_critic import actor_critic
from farflung.algorithms.pgpse import pgpse
from farflung.config import Explore
from farflung.config.imports import check_installed, import_object, instance_of
from farflung.config.options import ACTOR_CRITIC
from farflung.entropy.counts import Entropy
from farflung.entropy.credit import Credit
from farflung.worlds.world import World

_FOR_EVERY_ALGORITHM = {
    *("world", "horizon", "slip", "algorithm", "seeds", "updates", "log_every", "stop_when_flat"),
    *("agents", "trajectories", "batch_size"),
}
"""Settings that hold for an algorithm of a user's own too."""

OwnAlgorithm = Algorithm | Callable[[Explore, Any], Algorithm]
"""An algorithm, or a function of a config and a world that makes one."""
OwnEntropy = Entropy | Callable[[Any], Entropy]
"""An entropy, or a function of a world that makes one."""


class UserParts(NamedTuple):
    """A user's own parts of a training; None for what the config names."""

    algorithm: OwnAlgorithm | None = None
    credit: Credit | None = None
    entropy: OwnEntropy | None = None


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

    algorithm, credit, entropy = found("algorithm"), found("credit"), found("entropy")
    if algorithm is None:
        if entropy is not None and not world.is_hosted:  # made once, from the world's concrete arrays
            entropy = entropy if isinstance(entropy, Entropy) else entropy(world)
        fixed = (lambda _: entropy) if isinstance(entropy, Entropy) else entropy
        if config.algorithm == ACTOR_CRITIC:
            return actor_critic(config, world, entropy=fixed)
        return pgpse(config, world, credit=credit, entropy=fixed)
    made = instance_of(algorithm, "algorithm")
    if not isinstance(made, Algorithm) and callable(made):
        made = made(config, world)  # which may use every setting, but not a credit or entropy of the user's own
        ignored = {name for name, part in (("credit", credit), ("entropy", entropy)) if part is not None}
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
