"""Our worlds' ids, made known to Gymnasium as soon as both packages are imported.

Gymnasium 1.x looks for no plugins, and to import it from here would keep everyone waiting who only asks for `farflung --help`.
"""

import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_EPISODES = {"Room": 8, "Maze": 10, "Grid": None}
"""The worlds and how many actions an episode has, where it is limited."""


def register_with_gymnasium() -> None:
    """Registers our ids now if Gymnasium is there already, else right after it has been imported."""
    if "gymnasium" in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _GymnasiumFinder())


def _register() -> None:
    import gymnasium

    for name, max_episode_steps in _EPISODES.items():
        if f"farflung/{name}-v0" not in gymnasium.registry:
            gymnasium.register(
                f"farflung/{name}-v0",
                entry_point=f"farflung.environments.playable:{name}Env",
                vector_entry_point=f"farflung.environments.playable_vector:{name}VectorEnv",
                max_episode_steps=max_episode_steps,
            )


class _GymnasiumFinder(importlib.abc.MetaPathFinder):
    """Finds Gymnasium as Python would without it, and adds our ids to what its import does."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != "gymnasium":
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_register(module: ModuleType) -> None:
                load(module)
                _register()

            spec.loader.exec_module = load_and_register  # type: ignore[method-assign]
        return spec
