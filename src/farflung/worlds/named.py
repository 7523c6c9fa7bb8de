"""Worlds by name: the paper's, a map in a file, one whose states are vectors, a Gymnasium id."""

import inspect
import json
import sys
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from farflung.config import CONTINUOUS_WORLDS, PAPER_WORLDS, check_world, is_map_file
from farflung.config.checks import is_suite
from farflung.config.reading import MOST_BYTES_OF_MAP, one_line_errors, read_text
from farflung.worlds.gridworld import MAZE, ROOM, gridworld
from farflung.worlds.gymnasium_table import NoTableError, from_gymnasium
from farflung.worlds.hosted.tables import hosted as hosted_world
from farflung.worlds.jax_world import from_jax, is_jax_world
from farflung.worlds.named_vectors import make_vector_world
from farflung.worlds.suites import is_suite_environment
from farflung.worlds.tabular import TabularMDP
from farflung.worlds.world import World

PAPER_MAPS = {"room": (ROOM, 8), "maze": (MAZE, 10)}
"""Each map with the number of actions in an episode."""
PAPER_SLIP = {"det": 0.0, "stoc": 0.2}


def as_world(world: Any, **options: Any) -> World:
    """The world that a user gives: a `World`, its name, a JAX world of their own, or a function that makes an environment."""
    if isinstance(world, str | Path):
        return make_world(str(world), **options)
    if isinstance(world, World):
        return world
    if is_jax_world(world) or is_suite_environment(world):
        return from_jax(world)
    if callable(world):
        return hosted_world(world)
    raise ValueError(
        "a world is a name, a farflung.World, an environment of a JAX suite, an object with reset(key), "
        "step(key, state, action) and observe(state), or a function that makes a Gymnasium environment, "
        f"not {type(world).__name__}"
    )


def make_world(
    name: str, *, horizon: int | None = None, slip: float | None = None, hosted: bool = False, **options: Any
) -> World:
    """The world of a name, a map file, a Gymnasium id, or MODULE:NAME of a JAX world of your own.

    >>> make_world("maze-stoc").num_states, make_world("point-gap").num_states
    (43, 400)

    Args:
        horizon: actions in an episode.
        slip: probability that another action is taken than the chosen one; for maps.
        hosted: step the environment itself on the host although it has a transition table.
        options: `bins` and `neighbours` of a world whose observations are vectors, the options of `from_jax` or `hosted`, and
            `env_options`, a dictionary of options for the environment itself.
    """
    chosen = {option: value for option, value in options.items() if value is not None}
    env_options = chosen.pop("env_options", {})
    if name not in (*PAPER_WORLDS, *CONTINUOUS_WORLDS):
        check_world(name)
    is_map = name in PAPER_WORLDS or is_map_file(name)
    if slip is not None and not is_map:
        raise ValueError(f"slip is for maps only: {name} has its own dynamics")
    asked = {**chosen, **({"env_options": env_options} if env_options else {}), **({"hosted": True} if hosted else {})}
    if is_map:
        _check_options(name, asked, {"horizon", "slip"})
        return make_tabular_world(name, horizon=horizon, slip=slip)
    if name in CONTINUOUS_WORLDS:
        _check_options(name, asked, {"bins", "env_options", "horizon", "neighbours"})
        _check_env_options(env_options, {"name", "horizon", "bins", "neighbours"})
        return make_vector_world(json.dumps({"name": name, **env_options}), horizon=horizon, **chosen)
    if is_suite(name):
        _check_options(name, asked, {"bins", "env_options", "high", "horizon", "low", "neighbours", "features"})
        return from_jax(name, horizon=horizon, env_options=env_options, **chosen)
    own = _own_world(name)
    if own is not None:
        return own if isinstance(own, World) else from_jax(own, horizon=horizon, name=name, **chosen, **env_options)
    if not (hosted or chosen or env_options):
        try:
            return from_gymnasium(name, horizon=horizon)
        except NoTableError:
            pass
    _check_env_options(env_options, inspect.signature(hosted_world).parameters.keys() - {"options"})
    return hosted_world(name, horizon=horizon, **chosen, **env_options)


def _own_world(name: str) -> Any:
    """The JAX world, or the `World`, that a user's module holds under this name; None for the id of an environment."""
    module, _, attribute = name.rpartition(":")
    found = getattr(sys.modules.get(module), attribute, None) if module else None
    if callable(found) and not is_jax_world(found) and not inspect.isclass(found):
        found = found()
    return found if isinstance(found, World) or is_jax_world(found) else None


def _check_options(world: str, asked: Mapping[str, Any], known: Set[str]) -> None:
    for name in sorted(asked.keys() - known):
        raise ValueError(f"{world} has no option {name}: choose from {', '.join(sorted(known))}")


def _check_env_options(options: Mapping[str, Any], taken: Set[str]) -> None:
    for name in sorted(options.keys() & taken):
        raise ValueError(f"env_options cannot set {name}: use the option {name} itself")


def make_tabular_world(name: str, *, horizon: int | None = None, slip: float | None = None) -> TabularMDP:
    """The world called `room-det`, `room-stoc`, `maze-det` or `maze-stoc`, or that of a map file or of a Gymnasium id.

    >>> make_tabular_world("maze-stoc").num_states
    43
    """
    if name in PAPER_WORLDS:
        family, variant = name.split("-")
        text, paper_horizon = PAPER_MAPS[family]
        chosen_slip = PAPER_SLIP[variant] if slip is None else slip
        return gridworld(text, slip=chosen_slip, horizon=paper_horizon if horizon is None else horizon)
    if name in CONTINUOUS_WORLDS:
        raise ValueError(f"the states of {name} are vectors, and this needs numbered states: choose {', '.join(PAPER_WORLDS)}")
    check_world(name)
    if not is_map_file(name):
        if slip is not None:
            raise ValueError(f"slip is for maps only: {name} has its own dynamics")
        return from_gymnasium(name, horizon=horizon)
    text = read_map(name)
    with one_line_errors(name):
        return gridworld(text, slip=slip or 0.0, horizon=horizon)


def read_map(path: str) -> str:
    """The text of a map."""
    with one_line_errors(f"cannot read the map {path}"):
        return read_text(Path(path), MOST_BYTES_OF_MAP)
