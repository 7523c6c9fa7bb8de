"""Checks the arguments of farflung's public functions and classes against their annotations, so that a mistake is one line.

The checks are lenient where the functions are: NumPy's numbers are numbers, and any iterable is a sequence. What an annotation
cannot say, such as a range, the functions check themselves.
"""

import collections.abc
import functools
import inspect
import itertools
import numbers
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
_WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "True or False",
    Path: "a path",
    None: "None",
    type(None): "None",
    collections.abc.Callable: "a function",
}
_MOST_SEEN = 100
_SHOWN = (str, numbers.Number, type(None), Path)


def checked(function: F) -> F:
    """The function, which raises ValueError in one line if an argument is not what its annotation says."""
    signature, own_name = inspect.signature(function), function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        try:
            given = signature.bind(*arguments, **options).arguments
        except TypeError as error:
            raise TypeError(f"{own_name}(): {error}") from None
        for name, value in given.items():
            parameter = signature.parameters[name]
            is_single = parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            is_annotated = parameter.annotation is not parameter.empty
            if is_single and is_annotated and value is not parameter.default and not fits(value, parameter.annotation):
                came = f"{value!r:.80}" if isinstance(value, _SHOWN) else f"of the type {type(value).__name__}"
                raise ValueError(f"{own_name}(): {name} must be {described(parameter.annotation)}, not {came}")
        return function(*arguments, **options)

    return typing.cast(F, call)


def check_fields(kind: type) -> None:
    """Makes a dataclass check its arguments, unless it is a module of Equinox, which has checks of its own."""
    if "__dataclass_fields__" in vars(kind) and not hasattr(kind, "_abc_impl"):
        kind.__init__ = checked(kind.__init__)  # type: ignore[misc]


def fits(value: Any, kind: Any) -> bool:
    """Whether a value is what an annotation says; of long sequences, only the first values are looked at."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return fits(value, parts[0])
    if _is_array_like(kind):
        return (
            hasattr(value, "__array__")
            or isinstance(value, numbers.Number | Sequence)
            or any(fits(value, part) for part in parts)
        )
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, part) for part in parts)
    if origin is collections.abc.Callable:
        return callable(value)
    if _is_sequence(origin):
        if not isinstance(value, Iterable) or isinstance(value, str | bytes):
            return False
        first = itertools.islice(value, _MOST_SEEN) if hasattr(value, "__len__") else ()  # an iterator would be used up
        return all(fits(each, part) for each in first for part in parts[:1])
    if _is_array(kind):
        return hasattr(value, "shape") and (kind.index_variadic is not None or len(value.shape) == len(kind.dims))
    if kind in (int, float, bool):
        return hasattr(type(value), "__index__") or (kind is not int and isinstance(value, numbers.Real))
    try:
        return isinstance(value, origin or kind)
    except TypeError:  # Any, a text, or a protocol that says nothing about instances
        return True


def described(kind: Any) -> str:
    """What an annotation asks for, in words."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return described(parts[0])
    if _is_array_like(kind):
        return "an array"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(described(part) for part in parts))
    if _is_sequence(origin):
        return f"a sequence of {described(parts[0]).removeprefix('a ')}s" if parts else "a sequence"
    if _is_array(kind):
        return f"an array [{kind.dim_str.strip()}]"
    name = getattr(origin or kind, "__name__", str(kind))
    return _WORDS.get(origin or kind, f"{'an' if name[0] in 'AEIOU' else 'a'} {name}")


def _is_array_like(kind: Any) -> bool:
    """Whether the kind is NumPy's `ArrayLike`, or that or something else."""
    return any(getattr(typing.get_origin(part) or part, "__name__", "") == "_SupportsArray" for part in typing.get_args(kind))


def _is_sequence(origin: Any) -> bool:
    return inspect.isclass(origin) and issubclass(origin, Iterable) and not issubclass(origin, Mapping)


def _is_array(kind: Any) -> bool:
    return hasattr(kind, "dim_str")  # jaxtyping's
