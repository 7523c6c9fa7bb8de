"""Objects of a user's own, by the name under which Python can import them."""

import importlib
import inspect
import sys
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

_CUSTOM = "custom"


def name_of(thing: Any) -> str:
    """MODULE:NAME of what can be imported again; custom:NAME of what cannot, such as a lambda or an instance."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if module not in (None, "__main__") and name is not None:
        found = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is thing:
            return f"{module}:{name}"
    return f"{_CUSTOM}:{name or type(thing).__name__}"


def import_module(name: str, what: str) -> ModuleType:
    """Imports the module that a user has named; whatever it raises becomes a ValueError of one line."""
    from farflung.config.reading import reason  # imports NumPy, for which help need not wait

    if not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(f"the module of {what} must be a name such as my_module, not {name!r}")
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ValueError(f"the module of {what} cannot be imported: {reason(error)}") from None
    except (Exception, SystemExit) as error:  # it may raise anything
        raise ValueError(f"the module of {what} fails: {type(error).__name__}: {reason(error)}") from error


def import_object(name: str, what: str) -> Any:
    """The object MODULE:NAME that a user has named."""
    module, _, attribute = name.partition(":")
    if module == _CUSTOM:
        raise ValueError(f"the {what} {attribute} cannot be imported: give it again, as {what}=...")
    found: Any = import_module(module, f"the {what} {name!r}")
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ValueError(f"the module {module} has no {attribute}, which is to be the {what}")
        found = getattr(found, part)
    return found


def instance_of(thing: Any, what: str) -> Any:
    """What a user gave: the object itself, or an instance of the class, which must need no arguments."""
    if not inspect.isclass(thing):
        return thing
    try:
        inspect.signature(thing).bind()
    except TypeError:
        raise ValueError(f"the class {thing.__name__} needs arguments: give an instance of it as the {what}") from None
    return thing()


def check_installed(name: str, what: str, option: str = "") -> None:
    """Raises ValueError if a module that a file names is not installed: one in the current folder could be anything.

    Args:
        option: another way to name the module on the command line.
    """
    module = name.partition(":")[0].partition(".")[0]
    installed = [place for place in sys.path if place]
    if module not in (*sys.modules, _CUSTOM) and PathFinder.find_spec(module, installed) is None:
        raise ValueError(
            f"{what} needs the module {module}, which is not installed: import it first, or, if it lies in this "
            f"directory and you trust it, set PYTHONPATH=.{f' or add {option}' if option else ''}"
        )
