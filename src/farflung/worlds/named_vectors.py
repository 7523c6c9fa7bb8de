"""Continuous worlds, made from a name or a recipe."""

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from farflung.config import CONTINUOUS_WORLDS
from farflung.config.checks import check_name, check_positive, whole_number
from farflung.config.options import ROBOTS
from farflung.worlds.classic import mountain_car, pendulum
from farflung.worlds.gridworld import MAZE, ROOM
from farflung.worlds.point_maze import point_map, point_maze
from farflung.worlds.projection import whole_bins, whole_neighbours
from farflung.worlds.robots import gymnasium_robot
from farflung.worlds.vectors import VectorWorld, write_recipe

_GAP = ((0, 0, -1, -0.15), (0, 0, 0.15, 1))
_DOORWAYS = ((-1, -0.6), (-0.4, 0.4), (0.6, 1))
_FOUR_ROOMS = (*((0, 0, *wall) for wall in _DOORWAYS), *((*wall, 0, 0) for wall in _DOORWAYS))
_MEPOL = (
    (-1.25, 1.25, -2.5, 2.5),
    (-2.5, -1.25, -1.25, 1.25),
    (1.25, 2.5, -1.25, 1.25),
    (-1.25, 1.25, -6, -3.5),
    (-1.25, 1.25, 3.5, 6),
    (-6, -3.5, -1.25, 1.25),
    (3.5, 6, -1.25, 1.25),
    # In MEPOL's code the border acts as a wall: a step across it leaves the point where it is.
    (-6, -6, -6, 6),
    (6, 6, -6, 6),
    (-6, 6, -6, -6),
    (-6, 6, 6, 6),
)
_BEFORE_THE_BORDER = -5.999
_WORLDS: dict[str, Callable[..., VectorWorld]] = {
    "point-empty": functools.partial(point_maze, starts=[(0, 0)], step_size=0.08, horizon=64),
    "point-gap": functools.partial(point_maze, _GAP, starts=[(-0.5, 0)], step_size=0.08, horizon=64),
    "point-four-rooms": functools.partial(point_maze, _FOUR_ROOMS, starts=[(-0.5, -0.5)], step_size=0.08, horizon=100),
    "point-room": functools.partial(point_map, ROOM, horizon=32),
    "point-maze": functools.partial(point_map, MAZE, horizon=40),
    "mepol-grid": functools.partial(
        point_maze,
        _MEPOL,
        starts=[(_BEFORE_THE_BORDER, -4, _BEFORE_THE_BORDER, -4)],
        step_size=0.2,
        horizon=1200,
        low=(-6, -6),
        high=(6, 6),
        bins=(24, 24),
        neighbours=50,
    ),
    "mountain-car": mountain_car,
    "mountain-car-discrete": functools.partial(mountain_car, is_discrete=True),
    "pendulum": pendulum,
    **{name: functools.partial(gymnasium_robot, name) for name in ROBOTS},
}
_OPTIONS = ("horizon", "bins", "neighbours")
_OWN_OPTIONS = {name: {"ends_when_unhealthy": True, "solver_iterations": 4, "engine": "jax"} for name in ROBOTS}
"""Options of some worlds, with their defaults."""
_MAZE_OPTIONS = ("walls", "starts", "low", "high", "step_size", *_OPTIONS)
_MOST_DIGITS = 16
"""Integers in a recipe with more digits are read as floats, so that all numbers can be compared."""


def make_vector_world(
    name: str, *, horizon: int | None = None, bins: Sequence[int] | None = None, neighbours: int | None = None
) -> VectorWorld:
    """The continuous world with a given name, or from the `recipe` of a world.

    `point-empty`, `point-gap` and `point-four-rooms` are squares of side 2, with steps of 0.08. `point-room` and `point-maze`
    are the paper's maps with unit cells and steps of 0.25, so episodes four times as long as the paper's reach equally far.
    `mepol-grid` is the GridWorld of MEPOL (Mutti et al., 2021). `mountain-car`, `mountain-car-discrete`, `pendulum` and the
    robots `ant`, `half-cheetah`, `hopper`, `walker2d` and `humanoid` are Gymnasium's; robots are meant for GPUs.

    >>> world = make_vector_world("mepol-grid", horizon=600)
    >>> world.free_area, make_vector_world(world.recipe) == world
    (100.25, True)

    Args:
        horizon: number of actions in an episode.
        bins: grid cells per feature, for counting coverage.
        neighbours: k of the k-nearest-neighbour entropy estimate; 0 counts grid cells instead.
    """
    chosen = {"horizon": horizon, "bins": bins, "neighbours": neighbours}
    options = _read(name) if name.lstrip().startswith("{") else {"name": name}
    options = _checked(options | {option: value for option, value in chosen.items() if value is not None})
    if "name" not in options:
        return point_maze(**options)
    known = options.pop("name")
    own = {option: options.get(option, default) for option, default in _OWN_OPTIONS.get(known, {}).items()}
    world = _WORLDS[known](**options)
    chosen = {"horizon": world.horizon, "bins": world.projection.bins, "neighbours": world.projection.neighbours}
    return dataclasses.replace(world, recipe=write_recipe(name=known, **chosen, **own))


def read_recipe(arrays: Mapping[str, np.ndarray]) -> VectorWorld:
    """The world whose recipe a file holds."""
    recipe = str(arrays["recipe"])
    if not recipe:
        raise ValueError("the file has no recipe of its world: pass the world itself, as load_run(path, world=...)")
    return make_vector_world(recipe)


def _read(recipe: str) -> dict[str, Any]:
    try:
        found = json.loads(recipe, parse_int=lambda digits: int(digits) if len(digits) < _MOST_DIGITS else float(digits))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the recipe of a world is not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"the recipe of a world is a JSON object, not {type(found).__name__}")
    return found


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    if "name" in options:
        check_name("continuous world", options["name"], CONTINUOUS_WORLDS)
        allowed, needed = {"name", *_OPTIONS, *_OWN_OPTIONS.get(options["name"], ())}, set()
    else:
        allowed, needed = {*_MAZE_OPTIONS}, {"starts", "horizon", "step_size"}
    for problem, names in (("does not know", options.keys() - allowed), ("needs", needed - options.keys())):
        if names:
            raise ValueError(f"the recipe of a world {problem} {', '.join(sorted(map(repr, names)))}")
    for option, value in options.items():
        if option in ("walls", "starts", "low", "high") and not isinstance(value, list):
            raise ValueError(f"{option} is a list of numbers, not {value!r}")
        if option == "ends_when_unhealthy" and not isinstance(value, bool):
            raise ValueError(f"{option} is true or false, not {value!r}")
    return {option: _CHECKS.get(option, lambda value: value)(value) for option, value in options.items()}


def _positive(value: Any) -> float:
    check_positive("step_size", value)
    return float(value)


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "horizon": functools.partial(whole_number, "horizon"),
    "neighbours": whole_neighbours,
    "bins": whole_bins,
    "step_size": _positive,
}
