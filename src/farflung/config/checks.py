"""Checks of settings: a mistake becomes a ValueError of one line that says what was expected and what came."""

import contextlib
import difflib
import importlib
import math
import numbers
import operator
import os
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from farflung.config.imports import import_module
from farflung.config.options import CONTINUOUS_WORLDS, PAPER_WORLDS, SUITES

_LONGEST = 4096
_LARGEST_FLOAT = 3.4e38  # of 32 bits
MOST = 2**31 - 1
"""The largest number that arrays of 32 bits can count to."""


def whole_number(name: str, value: Any, most: int | float = MOST) -> int:
    """The value as an int; raises ValueError unless it is a whole number from 1 on."""
    number = _as_int(value)
    if number is None:
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    if number < 1:
        raise ValueError(f"{name} must be at least 1, not {number}")
    if number > most:
        raise ValueError(f"{name} must be at most {most}, not {number}")
    return number


def num_cores() -> int:
    """Number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_memory() -> float:
    """The machine's available memory in bytes; infinite on systems without /proc/meminfo."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return 1024.0 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1])
    return float("inf")


def printable(text: str) -> str:
    r"""A text that is safe to print: control characters and characters that cannot be encoded are escaped.

    >>> printable("\x1b[31mred")
    '\\x1b[31mred'
    """
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text)


def check_text(name: str, value: Any) -> None:
    if not isinstance(value, str) or not value.isprintable() or len(value) > _LONGEST:
        raise ValueError(f"{name} must be a text of at most {_LONGEST} printable characters, not {value!r:.80}")


def several(name: str, values: Any) -> tuple[Any, ...]:
    """The values as a tuple; raises ValueError unless they are a sequence."""
    if not isinstance(values, Iterable) or isinstance(values, str):
        raise ValueError(f"{name} must be a sequence, not {values!r:.80}")
    return tuple(values)


def whole_seeds(seeds: Any) -> tuple[int, ...]:
    """The seeds as ints; raises ValueError unless there are some, from 0 to 2^32 - 1."""
    if not isinstance(seeds, Iterable):
        raise ValueError(f"seeds must be whole numbers such as (0, 1, 2), not {seeds!r}")
    values = tuple(seeds)
    numbers = tuple(number for seed in values if (number := _as_int(seed)) is not None and 0 <= number < 2**32)
    if not values:
        raise ValueError("at least one seed is needed")
    if len(numbers) < len(values):
        raise ValueError(
            f"a seed is a whole number from 0 to {2**32 - 1}, which not all of these are: {', '.join(map(str, values))}"
        )
    return numbers


def _as_int(value: Any) -> int | None:
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def _real(value: Any) -> float:
    """The value as a float, infinite if it is too large; NaN, which no check lets pass, if it is not a real number."""
    try:
        return float(value) if isinstance(value, numbers.Real) else math.nan
    except OverflowError:
        return math.inf


def check_team_in_world(config: Any) -> None:
    """Checks agents, trajectories, horizon and slip, as far as the config has them, and converts the first three to int."""
    for name in {"agents", "trajectories", "horizon"} & {field.name for field in fields(config)}:
        value = getattr(config, name)
        if value is not None or name != "horizon":
            object.__setattr__(config, name, whole_number(name, value))
    if config.slip is not None:
        check_slip(config.slip)


def check_positive(name: str, value: Any, most: int | float = math.inf) -> None:
    if not 0 < _real(value) < math.inf:
        raise ValueError(f"{name} must be a positive number, not {value}")
    if _real(value) > most:
        raise ValueError(f"{name} must be at most {most}, not {value}")


def check_probability(name: str, value: Any) -> None:
    if not 0 < _real(value) < 1:
        raise ValueError(f"{name} must lie between 0 and 1, not {value}")


def check_frank_wolfe(config: Any) -> None:
    """Checks the settings of Parallel Frank-Wolfe that the algorithm and the command have in common."""
    if config.step_size is not None:
        check_share("step_size", config.step_size)
    for name in ("smoothing", "density_tolerance", "planning_tolerance"):
        if not 0 <= _real(getattr(config, name)) < 1:
            raise ValueError(f"{name} must be at least 0 and below 1, not {getattr(config, name)}")
    if config.smoothing == 0 and (config.density_tolerance > 0 or config.planning_tolerance > 0):
        raise ValueError(
            "density_tolerance and planning_tolerance need a smoothing above 0, such as 0.001, to bound the entropy's gradient"
        )


def check_checkpoints(minutes: Any, updates: Any) -> None:
    """Checks the intervals between checkpoints."""
    check_positive("checkpoint_minutes", minutes)
    if updates is not None:
        whole_number("checkpoint_updates", updates)


def check_playing(random: bool, epsilon: Any, temperature: Any, checkpoints: Any) -> None:
    """Checks how a team plays the episodes of a dataset."""
    if not (isinstance(epsilon, numbers.Real) and 0 <= float(epsilon) <= 1):
        raise ValueError(f"epsilon is a probability between 0 and 1, not {epsilon}")
    check_positive("temperature", temperature)
    if checkpoints is not None:
        whole_number("checkpoints", checkpoints)
    if random and (epsilon or temperature != 1 or checkpoints is not None):
        raise ValueError("random actions exclude epsilon, temperature and checkpoints, which are about the team's actions")


def check_function(what: str, name: Any) -> None:
    if not isinstance(name, str) or not all(name.partition(":")):
        raise ValueError(f"{what} is the MODULE:NAME of a function, such as my_module:{what}, not {name!r}")


def check_share(name: str, value: Any) -> None:
    if not 0 < _real(value) <= 1:
        raise ValueError(f"{name} must be above 0 and at most 1, not {value}")


def check_slip(slip: Any) -> None:
    if not 0 <= _real(slip) <= 1:
        raise ValueError(f"slip is a probability between 0 and 1, not {slip}")


def check_learning(config: Any) -> None:
    """Checks the settings of an optimiser that the config has; each is a number, or a sequence with one number per seed."""
    positive = ("must be a positive number", lambda value: 0 < value < math.inf)
    not_negative = ("must be at least 0", lambda value: 0 <= value < math.inf)
    share = ("must be above 0 and at most 1", lambda value: 0 < value <= 1)
    half = ("must be at least 0 and at most 0.5", lambda value: 0 <= value <= 0.5)
    for name, (rule, is_fine) in {
        "learning_rate": positive,
        "decay": share,
        "trajectory_weight": share,
        "init_scale": not_negative,
        "entropy_bonus": not_negative,
        "bonus_decay": share,
        "clip": positive,
        "discount": share,
        "trace": share,
        "warm_up": half,
    }.items():
        values = getattr(config, name, None)
        for value in values if isinstance(values, Iterable) and not isinstance(values, str) else (values,):
            if value is not None and not is_fine(_real(value)):
                raise ValueError(f"{name} {rule}, not {value}")
            if value is not None and _real(value) > _LARGEST_FLOAT:
                raise ValueError(f"{name} must be at most {_LARGEST_FLOAT}, not {value}")


def optional_package(name: str, installed_by: str) -> Any:
    """Imports an optional package; if it is missing, the ValueError names the extra to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        lacks = f", which fails ({error})" if (error.name or "").partition(".")[0] != package else ""
        raise ValueError(f"this needs {package}{lacks}: pip install {installed_by}") from None


def check_name(kind: str, name: Any, known: Sequence[str]) -> None:
    if name not in known:
        raise ValueError(unknown_name(kind, name, known, known))


def unknown_name(kind: str, name: object, candidates: Iterable[str], known: Sequence[str]) -> str:
    """The error message for an unknown name, with the most similar known one."""
    nearest = difflib.get_close_matches(str(name), list(candidates), n=1)
    suggestion = f" (did you mean {nearest[0]!r}?)" if nearest else ""
    return f"unknown {kind} {name!r}{suggestion}: choose {', '.join(known)}"


def check_world(name: str) -> None:
    """Raises ValueError unless there is a world, a map file, a Gymnasium id or an importable object of that name.

    Environments of JAX suites are checked where they are made.
    """
    named = (*PAPER_WORLDS, *CONTINUOUS_WORLDS)
    if name in named or is_map_file(name) or is_suite(name):
        return
    if name and os.path.isdir(name):  # noqa: PTH112
        raise ValueError(f"{name!r} is a directory, not a map")
    import gymnasium  # takes a while, and the named worlds don't need it

    module, _, plain = name.rpartition(":")
    if module:
        imported = import_module(module, repr(name))
        if plain not in gymnasium.registry and not hasattr(imported, plain):
            homes = {
                known: getattr(spec.entry_point, "__module__", spec.entry_point) for known, spec in gymnasium.registry.items()
            }
            own = [known for known, home in homes.items() if str(home).startswith(module)]
            registered = f" (it registers {', '.join(own)})" if own else ""
            raise ValueError(
                f"the module {module} has no world {plain!r} and registers no environment of that name{registered}"
            )
    elif plain not in gymnasium.registry:
        candidates = [*named, *gymnasium.registry]
        raise ValueError(f"{unknown_name('world', name, candidates, named)}, the path of a map or a Gymnasium id")


def is_suite(name: str) -> bool:
    """Whether a world's name begins with that of a JAX suite, as in `gymnax:MountainCar-v0`."""
    return ":" in name and name.partition(":")[0] in SUITES


def is_map_file(name: str) -> bool:
    return os.path.isfile(name)  # noqa: PTH113  (Path's raises if a name is too long to be one)
