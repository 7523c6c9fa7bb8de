"""Where modules are found in the current folder, by farflung and by its workers: only those of a user's own.

Workers import this module, so it must import little.
"""

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_named: set[str] = set()
_SAFE_PATH, _BY_US = "PYTHONSAFEPATH", "farflung"


class OwnModules:
    """Finds modules in a folder: those that the user has named, and what these import or register. Libraries find nothing.

    If the folder were on `sys.path`, it would be searched for all that libraries try to import, which could be any program.
    """

    def __init__(self, folder: str, names: set[str]) -> None:
        import gymnasium  # takes longer than farflung --help

        self._folder, self._names, self._registered_before = folder, names, set(gymnasium.registry)
        self._found: set[str] = set()

    def find_spec(self, name: str, path: Iterable[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Finds a module for Python's import system; parts of a package lie in the package, whose `path` is given."""
        is_own = name in self._names | self._found or _importer() in self._found  # not: in a module that is installed
        if path is not None or not (is_own or name in self._registered()):
            return None
        if (found := PathFinder.find_spec(name, [self._folder])) is not None:
            self._found.add(name)
        return found

    def _registered(self) -> set[str]:
        """The modules of environments that the user's modules have registered."""
        import gymnasium  # takes longer than farflung --help

        new = [spec for name, spec in gymnasium.registry.items() if name not in self._registered_before]
        return {str(spec.entry_point).partition(":")[0].partition(".")[0] for spec in new}


def _importer() -> str:
    """The top-level module of the code that imports something."""
    frame: Any = sys._getframe(2)
    while (name := frame.f_globals.get("__name__", "").partition(".")[0]) == "importlib" and frame.f_back is not None:
        frame = frame.f_back
    return name


def find_here(*names: str | None) -> None:
    """Lets the modules of names MODULE:NAME that a user has given be imported from the current folder, unless installed."""
    _named.clear()
    _named.update(name for name in names if name is not None)
    modules = {name.rpartition(":")[0].partition(".")[0] for name in names if name is not None and ":" in name}
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, OwnModules)]
    if modules:
        sys.meta_path.append(OwnModules(os.getcwd(), modules))  # noqa: PTH109


def is_named(name: str) -> bool:
    """Whether the user has given this name with the command, and not a file."""
    return name in _named


def own_modules() -> OwnModules | None:
    """What `find_here` has allowed, for a worker process to allow it too."""
    return next((finder for finder in sys.meta_path if isinstance(finder, OwnModules)), None)


@contextlib.contextmanager
def safe_children() -> Iterator[None]:
    """Keeps Python processes that are started in the block from looking for their modules in the current folder first."""
    if not os.environ.get(_SAFE_PATH):
        os.environ[_SAFE_PATH] = _BY_US
    try:
        yield
    finally:
        forget_safe_path()


def forget_safe_path() -> None:
    """Undoes `safe_children`; also called by a child, because its own children are the user's."""
    if os.environ.get(_SAFE_PATH) == _BY_US:
        del os.environ[_SAFE_PATH]
