"""Whether a world of a name exists."""

import importlib
import os
import sys

from farflung.config.checks import unknown_name
from farflung.config.options import CONTINUOUS_WORLDS, PAPER_WORLDS


def check_world(name: str) -> None:
    """Raises ValueError unless there is a world, a file or a Gymnasium id of that name."""
    named = (*PAPER_WORLDS, *CONTINUOUS_WORLDS)
    if name in named or is_map_file(name):
        return
    if name and os.path.isdir(name):  # noqa: PTH112
        raise ValueError(f"{name!r} is a directory, not a map")
    import gymnasium  # takes a while, and the named worlds don't need it

    module, _, plain = name.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ValueError(f"the module of {name!r} cannot be imported: {error}") from None
    if module and hasattr(sys.modules[module], plain):
        return
    if module and plain not in gymnasium.registry:
        homes = {known: getattr(spec.entry_point, "__module__", spec.entry_point) for known, spec in gymnasium.registry.items()}
        own = [known for known, home in homes.items() if str(home).startswith(module)]
        there = f" (it has {', '.join(own)})" if own else ""
        raise ValueError(f"the module {module} has no world and registers no environment {plain!r}{there}")
    if plain not in gymnasium.registry:
        raise ValueError(
            f"{unknown_name('world', name, [*named, *gymnasium.registry], named)}, the path of a map or a Gymnasium id"
        )


def is_map_file(name: str) -> bool:
    return os.path.isfile(name)  # noqa: PTH113  (Path's raises if a name is too long to be one)
