"""The algorithm of a training: the one that a config names, or a user's own."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from farflung.algorithms import Algorithm
from farflung.algorithms.pgpse import pgpse
from farflung.config import Explore
from farflung.config.imports import check_installed, import_object
from farflung.config.options import ALGORITHM, ENTROPY
from farflung.entropy.counts import Entropy
from farflung.entropy.credit import Credit
from farflung.worlds.world import World

OwnAlgorithm = Algorithm | Callable[[Explore, Any], Algorithm]
"""An algorithm, or a function of a config and a world that makes one."""
OwnEntropy = Entropy | Callable[[Any], Entropy]
"""An entropy, or a function of a world that makes one."""


class Own(NamedTuple):
    """A user's own parts of a training; None for what the config names."""

    algorithm: OwnAlgorithm | None = None
    credit: Credit | None = None
    entropy: OwnEntropy | None = None


def algorithm_for(config: Explore, world: World, own: Own = Own(), *, is_from_file: bool = False) -> Algorithm:  # noqa: B008
    """The algorithm that a config names, or that a user gives."""

    def found(what: str, default: str | None) -> Any:
        given, name = getattr(own, what), getattr(config, what)
        if given is not None or name == default or ":" not in name:
            return given
        if is_from_file:
            check_installed(name, f"the {what} {name}")
        return import_object(name, what)

    algorithm, credit, entropy = found("algorithm", ALGORITHM), found("credit", None), found("entropy", ENTROPY)
    if algorithm is None:
        if entropy is not None and not world.is_hosted:  # made once, from the world's concrete arrays
            entropy = entropy if isinstance(entropy, Entropy) else entropy(world)
        fixed = (lambda _: entropy) if isinstance(entropy, Entropy) else entropy
        return pgpse(config, world, credit=credit, entropy=fixed)
    if credit is not None or entropy is not None:
        raise ValueError("credit and entropy are parts of PGPSE: an algorithm of your own has its own")
    made = algorithm() if inspect.isclass(algorithm) else algorithm
    if not isinstance(made, Algorithm) and callable(made):
        made = made(config, world)
    if not isinstance(made, Algorithm):
        raise ValueError(f"an algorithm has batch_size, num_trajectories, init and learn, unlike {type(made).__name__}")
    return made
