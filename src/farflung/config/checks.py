"""What a user gives, checked: a mistake becomes a ValueError that says what was expected and what came."""

import difflib
import importlib
import math
import numbers
import operator
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

_LONGEST = 4096
_LARGEST_FLOAT = 3.4e38  # of 32 bits
MOST = 2**31 - 1
"""The largest number that arrays of 32 bits can count to."""


def whole_number(name: str, value: Any, most: int | float = MOST) -> int:
    """The value as an int, if it is a whole number from 1 on."""
    number = _as_int(value)
    if number is None:
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    if number < 1:
        raise ValueError(f"{name} must be at least 1, not {number}")
    if number > most:
        raise ValueError(f"{name} must be at most {most}, not {number}")
    return number


def printable(text: str) -> str:
    r"""A text as a terminal may show it: what could steer the terminal, or cannot be written at all, as an escape.

    >>> printable("\x1b[31mred")
    '\\x1b[31mred'
    """
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text)


def check_text(name: str, value: Any) -> None:
    if not isinstance(value, str) or not value.isprintable() or len(value) > _LONGEST:
        raise ValueError(f"{name} is a text of at most {_LONGEST} characters, none of them for control, not {value!r:.80}")


def whole_seeds(seeds: Iterable[Any]) -> tuple[int, ...]:
    """The seeds as ints, if there are any and they fit 32 bits."""
    values = tuple(seeds)
    numbers = tuple(number for seed in values if (number := _as_int(seed)) is not None and 0 <= number < 2**32)
    if not values:
        raise ValueError("at least one seed is needed")
    if len(numbers) < len(values):
        raise ValueError(f"a seed is a whole number from 0 to {2**32 - 1}: {', '.join(map(str, values))} are not all such")
    return numbers


def _as_int(value: Any) -> int | None:
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def check_team_in_world(config: Any) -> None:
    """Checks the fields that say how many agents play how long in which world, and makes whole numbers of them."""
    for name in {"agents", "trajectories", "horizon"} & {field.name for field in fields(config)}:
        value = getattr(config, name)
        if value is not None or name != "horizon":
            object.__setattr__(config, name, whole_number(name, value))
    if config.slip is not None:
        check_slip(config.slip)


def check_positive(name: str, value: Any) -> None:
    if not (isinstance(value, numbers.Real) and 0 < float(value) < math.inf):
        raise ValueError(f"{name} must be a positive number, not {value}")


def check_probability(name: str, value: Any) -> None:
    if not (isinstance(value, numbers.Real) and 0 < float(value) < 1):
        raise ValueError(f"{name} must lie between 0 and 1, not {value}")


def check_frank_wolfe(config: Any) -> None:
    """Checks the settings of Parallel Frank-Wolfe that its class and its command share."""
    if config.step_size is not None:
        check_share("step_size", config.step_size)
    for name in ("smoothing", "density_tolerance", "planning_tolerance"):
        if not 0 <= getattr(config, name) < 1:
            raise ValueError(f"{name} must be at least 0 and below 1, not {getattr(config, name)}")
    if config.smoothing == 0 and (config.density_tolerance > 0 or config.planning_tolerance > 0):
        raise ValueError("sampled oracles need a smoothing above 0, say 0.001: the entropy's gradient has no bound without")


def check_checkpoints(minutes: Any, updates: Any) -> None:
    """Checks how often there are checkpoints, for the function and the command that share these settings."""
    check_positive("checkpoint_minutes", minutes)
    if updates is not None:
        whole_number("checkpoint_updates", updates)


def check_share(name: str, value: Any) -> None:
    if not (isinstance(value, numbers.Real) and 0 < float(value) <= 1):
        raise ValueError(f"{name} is a share above 0 and at most 1, not {value}")


def check_slip(slip: Any) -> None:
    if not (isinstance(slip, numbers.Real) and 0 <= float(slip) <= 1):
        raise ValueError(f"slip is a probability between 0 and 1, not {slip}")


def check_learning(config: Any) -> None:
    """Checks how policies are learnt; each setting may be a number or, with one for each seed, a sequence of numbers."""
    positive = ("must be a positive number", lambda value: 0 < value < math.inf)
    not_negative = ("must be at least 0", lambda value: 0 <= value < math.inf)
    share = ("must be above 0 and at most 1", lambda value: 0 < value <= 1)
    for name, (rule, is_fine) in {
        "learning_rate": positive,
        "decay": share,
        "init_scale": not_negative,
        "entropy_bonus": not_negative,
        "bonus_decay": share,
        "clip": positive,
    }.items():
        values = getattr(config, name)
        for value in values if isinstance(values, Iterable) and not isinstance(values, str) else (values,):
            if not (isinstance(value, numbers.Real) and is_fine(value)) and value is not None:
                raise ValueError(f"{name} {rule}, not {value}")
            if value is not None and float(value) > _LARGEST_FLOAT:
                raise ValueError(f"{name} must be at most {_LARGEST_FLOAT}, not {value}")


def optional_package(name: str, installed_by: str) -> Any:
    """A package that farflung does without until somebody asks for what it does."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ValueError(f"this needs {name.split('.')[0]}: pip install {installed_by}") from None


def check_name(kind: str, name: Any, known: Sequence[str]) -> None:
    if name not in known:
        raise ValueError(unknown_name(kind, name, known, known))


def unknown_name(kind: str, name: object, candidates: Iterable[str], known: Sequence[str]) -> str:
    """The message about a name that doesn't exist, with the nearest that does."""
    nearest = difflib.get_close_matches(str(name), list(candidates), n=1)
    suggestion = f" (did you mean {nearest[0]!r}?)" if nearest else ""
    return f"unknown {kind} {name!r}{suggestion}: choose {', '.join(known)}"
