"""What a dataset says about where it is from: the environment to recover, the world to plan in, the run that played."""

import base64
import copy
import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import gymnasium
import jax.numpy as jnp
import numpy as np
from gymnasium.envs.registration import EnvSpec

from farflung.config import PAPER_WORLDS, Explore
from farflung.config.checks import whole_number
from farflung.config.reading import MOST_VALUES, check_version, parse_object
from farflung.data.episodes import Contents, Source
from farflung.runs.files import FORMAT_VERSION
from farflung.runs.run import Run
from farflung.runs.worlds import world_from_bytes, world_to_bytes
from farflung.worlds.gridworld import FREE, GOAL, MOVES, START, WALL
from farflung.worlds.gymnasium_table import from_gymnasium
from farflung.worlds.named_vectors import make_vector_world
from farflung.worlds.point_maze import POINT_MAZE, PointMaze
from farflung.worlds.projection import Box, Discrete, read_projection
from farflung.worlds.tabular import TabularMDP
from farflung.worlds.vectors import VectorWorld
from farflung.worlds.world import World

_CLASSICS = {
    "mountain-car": "MountainCarContinuous-v0",
    "mountain-car-discrete": "MountainCar-v0",
    "pendulum": "Pendulum-v1",
}


def source_of(run: Run, metadata: Mapping[str, Any]) -> Source:
    """What is known of the world that a run was trained in."""
    if run.world.projection is not None:
        return continuous_source(run.world, metadata)
    spec = environment_spec(run.config, run.table)
    if spec is None:
        return Source(run.table.num_states, run.table.num_actions, _numbered(run.table), None, metadata)
    environment = gymnasium.make(spec)
    num_observations, num_actions = spaces_of(environment.observation_space, environment.action_space)
    return Source(num_observations, num_actions, observed_world(environment), spec_to_json(spec), metadata)


def continuous_source(world: VectorWorld, metadata: Mapping[str, Any]) -> Source:
    """What is known of a world whose states are vectors."""
    stored = world if _is_made_by_its_recipe(world) else None
    spec = None if stored is None else continuous_spec(stored)
    if spec is None:
        return vector_source(world, None, None, metadata, stored)
    return vector_source(world, read_space(gymnasium.make(spec).observation_space), spec_to_json(spec), metadata, stored)


def vector_source(
    world: World,
    observations: int | Box | None,
    environment: str | None,
    metadata: Mapping[str, Any],
    stored: VectorWorld | None = None,
) -> Source:
    """What is known of a world whose states are vectors, with or without the environment that shows them.

    Args:
        observations: None where they have no bounds.
        stored: the world itself, if it can be kept.
    """
    actions = world.actions.num if isinstance(world.actions, Discrete) else world.actions
    anything = Box((-math.inf,) * world.observation_size, (math.inf,) * world.observation_size)
    return Source(anything if observations is None else observations, actions, stored, environment, metadata, world.projection)


def continuous_spec(world: VectorWorld) -> EnvSpec | None:
    """The Gymnasium environment that moves as a world does, though it may pay for it or end; None if there is none."""
    name = json.loads(world.recipe).get("name")
    if isinstance(world, PointMaze):
        spec = copy.deepcopy(gymnasium.spec(POINT_MAZE))
        spec.kwargs.update(world=world.recipe)
    elif name in _CLASSICS:
        spec = copy.deepcopy(gymnasium.spec(_CLASSICS[name]))
    else:
        return None
    spec.max_episode_steps = world.horizon
    return spec


def _is_made_by_its_recipe(world: VectorWorld) -> bool:
    try:
        return bool(eqx.tree_equal(make_vector_world(world.recipe), world))
    except ValueError:
        return False


class NotDiscreteError(ValueError):
    """Observations or actions are not simply numbers from 0 on."""


def spec_to_json(spec: EnvSpec) -> str | None:
    """How to make an environment, as text; None if only the program that registered it can."""
    if callable(spec.entry_point):
        module, name = spec.entry_point.__module__, getattr(spec.entry_point, "__qualname__", "<")
        if module == "__main__" or "<" in name:
            return None
        spec = copy.deepcopy(spec)
        spec.entry_point = f"{module}:{name}"
    return spec.to_json()


def spaces_of(observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> tuple[int, int]:
    """How many observations and actions there are, if they can be host_statistics."""
    sizes = []
    for name, space in (("observations", observation_space), ("actions", action_space)):
        if not isinstance(space, gymnasium.spaces.Discrete) or space.start < 0:
            raise NotDiscreteError(f"only discrete observations and actions can be read; these {name} are {space}")
        sizes.append(int(space.start + space.n))
    return sizes[0], sizes[1]


def read_space(space: gymnasium.Space[Any]) -> int | Box:
    """How many observations or actions there are, or the bounds of vectors."""
    if isinstance(space, gymnasium.spaces.Discrete) and space.start >= 0:
        return int(space.start + space.n)
    if isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 1:
        return Box(*(tuple(map(float, bound)) for bound in (space.low, space.high)))
    raise ValueError(f"only numbers from 0 on and vectors can be read, of the spaces Discrete and Box, not {space}")


def write_space(space: int | Box, dtype: np.dtype[Any]) -> gymnasium.Space[Any]:
    """The space that `read_space` reads."""
    if isinstance(space, int):
        return gymnasium.spaces.Discrete(space)
    low, high = (np.asarray(bound, dtype) for bound in (space.low, space.high))
    return gymnasium.spaces.Box(low, high, dtype=dtype.type)


def observed_world(environment: gymnasium.Env[Any, Any]) -> TabularMDP:
    """The world of an environment with a transition table, whose `labels` are the environment's observations."""
    world = from_gymnasium(environment)
    is_ours = isinstance(getattr(environment.unwrapped, "world", None), TabularMDP)
    return _numbered(world) if is_ours else world


def environment_spec(config: Explore, world: TabularMDP) -> EnvSpec | None:
    """The Gymnasium environment that does what a world does, or None if there is none."""
    if config.world in PAPER_WORLDS:
        family, variant = config.world.split("-")
        options = {"stochastic": variant == "stoc"} if config.slip is None else {"slip": config.slip}
        spec = copy.deepcopy(gymnasium.spec(f"farflung/{family.capitalize()}-v0"))
        spec.kwargs.update(options)
    elif config.world in gymnasium.registry:
        spec = copy.deepcopy(gymnasium.spec(config.world))
    elif world.positions is not None and world.num_actions == len(MOVES):
        spec = copy.deepcopy(gymnasium.spec("farflung/Grid-v0"))
        spec.kwargs.update(map=_drawn(world), slip=_slip(world))
    else:
        return None
    spec.max_episode_steps = world.horizon
    return spec if _are_equal(from_gymnasium(gymnasium.make(spec)), world) else None


def to_json(contents: Contents) -> str:
    """What a dataset holds and where it is from, as text."""
    source = contents.source
    world = None if source.world is None else base64.b64encode(world_to_bytes(source.world)).decode("ascii")
    return json.dumps(
        {
            **source.metadata,
            "format_version": FORMAT_VERSION,
            "episodes": contents.num_episodes,
            "transitions": contents.num_transitions,
            "entropy": contents.entropy,
            "observations": _space_to_json(source.observations),
            "actions": _space_to_json(source.actions),
            "environment": source.environment,
            "world": world,
            "projection": None if source.projection is None else dataclasses.asdict(source.projection),
        }
    )


def from_json(text: str) -> Source:
    """The source in what `to_json` has written."""
    values = parse_object(text)
    check_version(values.pop("format_version", None), FORMAT_VERSION, values.get("farflung"))
    world, projection, environment = values.pop("world"), values.pop("projection", None), values.pop("environment")
    observations, actions = (_space_from_json(name, values.pop(name)) for name in ("observations", "actions"))
    if projection is not None:
        projection = read_projection(projection, observations.size if isinstance(observations, Box) else 0)
    if environment is not None:
        parse_object(environment)
    return Source(
        observations,
        actions,
        None if world is None else _not_hosted(world_from_bytes(base64.b64decode(world, validate=True))),
        environment,
        values,
        projection,
    )


def _space_to_json(space: int | Box) -> int | dict[str, list[float | None]]:
    if isinstance(space, int):
        return space
    bounds = {"low": space.low, "high": space.high}
    return {name: [each if math.isfinite(each) else None for each in bound] for name, bound in bounds.items()}


def _space_from_json(name: str, space: Any) -> int | Box:
    if not isinstance(space, dict):
        return whole_number(f"the number of {name}", space, MOST_VALUES)
    infinite = {"low": -math.inf, "high": math.inf}
    bounds = [tuple(infinite[end] if each is None else float(each) for each in space[end]) for end in infinite]
    if len(bounds[0]) != len(bounds[1]) or not all(low <= high for low, high in zip(*bounds, strict=True)):
        raise ValueError(f"the bounds of {name} need low below high")
    return Box(*bounds)


def _not_hosted(world: World) -> TabularMDP | VectorWorld:
    if world.is_hosted:
        raise ValueError("worlds stepped on the host are not stored with a dataset")
    return world


def _numbered(world: TabularMDP) -> TabularMDP:
    return eqx.tree_at(lambda world: world.labels, world, jnp.arange(world.num_states, dtype=jnp.int32))


def _drawn(world: TabularMDP) -> str:
    """The map that the states lie on, with walls for what cannot be reached."""
    positions = np.asarray(world.positions)
    cells = np.full(positions.max(axis=0) + 1, WALL)
    cells[*positions.T] = FREE
    cells[*positions[np.asarray(world.start_states)].T] = START
    is_goal = np.asarray(world.successors)[np.asarray(world.rewards) > 0]
    cells[*positions[is_goal].T] = GOAL
    return "\n".join(map("".join, cells))


def _slip(world: TabularMDP) -> float:
    # Somewhere a move ends where no other move does: there its probability is least, and it is that of not slipping.
    return round(float(1 - np.asarray(world.probabilities).max(axis=-1).min()), 6)


def _are_equal(world: TabularMDP, other: TabularMDP) -> bool:
    def tables(world: TabularMDP) -> list[np.ndarray]:
        named = (world.successors, world.probabilities, world.rewards, world.start_distribution)
        return [np.asarray(table) for table in named]

    pairs = list(zip(tables(world), tables(other), strict=True))
    return all(one.shape == two.shape and np.allclose(one, two, atol=1e-5) for one, two in pairs)
