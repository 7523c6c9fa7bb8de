"""Maximum state entropy exploration with parallel agents."""

import contextlib
import importlib.util
import inspect
import sys
import types
from functools import partial
from typing import Any

import lazy_loader

_imported, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

_AS_GYMNASIUM = "farflung.worlds.as_gymnasium"
_EPISODE_STEPS = {"Room": 8, "Maze": 10, "Grid": None}


def __getattr__(name: str) -> Any:
    found = _imported(name)
    if inspect.isclass(found):
        _signatures().check_fields(found)
    elif callable(found):
        found = _signatures().checked(found)
        found.__module__ = __name__  # pickle finds it here
    globals()[name] = found
    return found


def _signatures() -> Any:
    return importlib.import_module("farflung.config.signatures")


def _register_worlds() -> None:
    """Makes farflung's worlds known to Gymnasium; JAX is imported when one of them is made."""
    import gymnasium

    for name, max_episode_steps in _EPISODE_STEPS.items():
        if f"farflung/{name}-v0" not in gymnasium.registry:
            gymnasium.register(
                f"farflung/{name}-v0",
                entry_point=f"{_AS_GYMNASIUM}.grid:{name}Env",
                vector_entry_point=f"{_AS_GYMNASIUM}.grid_vector:{name}VectorEnv",
                max_episode_steps=max_episode_steps,
            )
    if "farflung/PointMaze-v0" not in gymnasium.registry:
        gymnasium.register("farflung/PointMaze-v0", entry_point=f"{_AS_GYMNASIUM}.point:PointMazeEnv")


class _OnImportOfGymnasium:
    """Registers farflung's worlds as soon as Gymnasium is imported, for which `farflung --help` need not wait."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec: Any = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def execute_and_register(module: types.ModuleType) -> None:
            execute(module)
            _register_worlds()

        spec.loader.exec_module = execute_and_register
        return spec


def _alias(old: str, new: str) -> None:
    """Lets datasets that were written before the modules moved still recover their environment."""
    module = types.ModuleType(old)
    module.__getattr__ = lambda name: getattr(importlib.import_module(new), name)  # type: ignore[method-assign]
    sys.modules.setdefault(old, module)


def _show_richly() -> None:
    """Registers the HTML of worlds, teams and runs with IPython, if this runs in IPython; JAX is imported when one is shown."""
    find_shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    if (shell := find_shell()) is not None:
        formatter = shell.display_formatter.formatters["text/html"]
        formatter.for_type_by_name("farflung.worlds.world", "World", partial(_html, "world_html"))
        formatter.for_type_by_name("farflung.policies.tabular", "TabularSoftmax", partial(_html, "team_html"))
        formatter.for_type_by_name("farflung.runs.run", "Run", partial(_html, "run_html"))


def _html(function: str, thing: Any) -> str | None:
    with contextlib.suppress(Exception):  # such as for a pytree of shapes: IPython then shows plain text
        return getattr(importlib.import_module("farflung.figures.notebook"), function)(thing)
    return None


if "gymnasium" in sys.modules:
    _register_worlds()
else:
    sys.meta_path.insert(0, _OnImportOfGymnasium())
_alias("farflung.environments.playable", f"{_AS_GYMNASIUM}.grid")
_alias("farflung.environments.playable_vector", f"{_AS_GYMNASIUM}.grid_vector")
_alias("farflung.environments.playable_point", f"{_AS_GYMNASIUM}.point")
_show_richly()
