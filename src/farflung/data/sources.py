"""Where a dataset comes from: the environment to recover, the world to plan in, and the run that played."""

import base64
import contextlib
import copy
import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any, cast

import equinox as eqx
import gymnasium
import jax.numpy as jnp
import numpy as np
from gymnasium.envs.registration import EnvSpec

from farflung.config import PAPER_WORLDS, Explore
from farflung.config.checks import whole_number
from farflung.config.reading import MOST_VALUES, check_version, parse_object, spend_on_options
from farflung.data.episodes import Contents, Source
from farflung.runs.files import FORMAT_VERSION
from farflung.runs.run import Run, world_from, world_to_bytes
from farflung.worlds.as_gymnasium.tasks import PaidBy, ReachGoal
from farflung.worlds.gridworld import FREE, GOAL, MOVES, START, WALL
from farflung.worlds.gymnasium_table import NoTableError, from_gymnasium
from farflung.worlds.hosted.tables import HostedTable
from farflung.worlds.hosted.vectors import HostedVectors
from farflung.worlds.kinds import read_world
from farflung.worlds.projection import Box, Discrete, MultiDiscrete, read_projection
from farflung.worlds.tabular import TabularMDP
from farflung.worlds.world import World

_PARTS = "observation_parts"
_SIZES = ("episodes", "transitions", "states", "pairs", "entropy")
_WITH_OPTIONS = ("gymnasium.envs.toy_text.", "farflung.")
WRAPPERS = tuple(f"{wrapper.__module__}:{wrapper.__qualname__}" for wrapper in (ReachGoal, PaidBy))
"""The wrappers that give an environment another task."""


def wrapped(environment: str, wrapper: type, **options: Any) -> str:
    """The specification of an environment with one more wrapper."""
    made = json.loads(environment)
    entry_point = f"{wrapper.__module__}:{wrapper.__qualname__}"
    made["additional_wrappers"].append({"name": wrapper.__name__, "entry_point": entry_point, "kwargs": options})
    return json.dumps(made)


def place_of(source: Source) -> str:
    """The name of the world, or of the environment, in which a dataset was collected."""
    if (config := source.metadata.get("config")) is not None:
        return str(config["world"])
    if source.environment is not None:
        return str(json.loads(source.environment)["id"])
    return "custom"


def source_of(run: Run, metadata: Mapping[str, Any]) -> Source:
    """The source of episodes in the compiled world of a run."""
    if run.world.projection is not None:
        return continuous_source(run.world, metadata)
    spec = environment_spec(run.config, run.table)
    if spec is not None:
        environment = gymnasium.make(spec)
        if sizes := _num_values(environment):
            return Source(*sizes, observed_world(environment), spec_to_json(spec), metadata)
    return Source(run.table.num_states, run.table.num_actions, _numbered(run.table), None, metadata)


def continuous_source(world: World, metadata: Mapping[str, Any]) -> Source:
    """The source of episodes in a compiled world whose states are vectors."""
    source = _vector_source(world, metadata)
    try:
        if not eqx.tree_equal(read_world(world.to_arrays()), world):
            return source
    except ValueError:
        return source
    source = dataclasses.replace(source, world=world)
    if world.environment is None:
        return source
    name, options = world.environment
    spec = _spec(name, world, **options)
    observations = read_space(gymnasium.make(spec).observation_space)
    return dataclasses.replace(source, observations=observations, environment=spec_to_json(spec))


def hosted_vector_source(world: HostedVectors, metadata: Mapping[str, Any]) -> Source:
    """The source of episodes of vectors in a host-stepped world; it names the environment if networks see its observations."""
    assert world.make is not None
    space = world.observation_space
    is_plain = isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 1
    if isinstance(space, gymnasium.spaces.Dict) and all(isinstance(each, gymnasium.spaces.Box) for each in space.values()):
        metadata, is_plain = {**metadata, **read_parts(space)}, True
    if not (world.settings and world.observe is None and world.num_unseen == 0 and is_plain):
        return _vector_source(world, metadata)
    with contextlib.closing(world.make()) as environment:
        observations = read_space(environment.observation_space)
        found = dataclasses.replace(_vector_source(world, metadata), observations=observations)
        if environment.spec is None or read_space(environment.action_space) != found.actions:
            return found
        return dataclasses.replace(found, environment=spec_to_json(environment.spec))


def hosted_table_source(world: HostedTable, metadata: Mapping[str, Any]) -> tuple[Source, int]:
    """The source of episodes of numbered states in a host-stepped world, and the observation of state 0.

    If the environment's observations are not simply numbers, observations are farflung's own numbers of the states, and
    `features` in the metadata says which state each of them is.
    """
    if world.make is not None and world.settings and world.observe is None and world.knows_all_states:
        with contextlib.closing(world.make()) as environment:
            if sizes := _num_values(environment):
                specification = None if environment.spec is None else spec_to_json(environment.spec)
                table = None
                with contextlib.suppress(NoTableError):
                    table = observed_world(environment)
                return Source(*sizes, table, specification, metadata), int(getattr(environment.observation_space, "start", 0))
    features = {"features": world.index.features.tolist()}
    return Source(world.num_states, world.num_actions, None, None, {**metadata, **features}), 0


def _vector_source(world: World, metadata: Mapping[str, Any]) -> Source:
    """The source of episodes of vectors without bounds; neither the world nor its environment is stored."""
    actions: Any = world.actions
    if isinstance(actions, Discrete):
        actions = actions.num
    elif isinstance(actions, MultiDiscrete):  # as vectors of whole numbers
        actions = Box((0.0,) * actions.size, tuple(num - 1.0 for num in actions.nums))
    unbounded = Box((-math.inf,) * world.state_size, (math.inf,) * world.state_size)
    return Source(unbounded, actions, None, None, metadata, world.projection)


def _spec(name: str, like: World, **options: Any) -> EnvSpec:
    """A registered environment with these options and the horizon of a world."""
    spec = copy.deepcopy(gymnasium.spec(name))
    spec.kwargs.update(options)
    spec.max_episode_steps = like.horizon
    return spec


def _num_values(environment: gymnasium.Env[Any, Any]) -> tuple[int, int] | None:
    """The numbers of observations and actions of an environment; None if one of them is not a whole number from 0 on."""
    spaces = (environment.observation_space, environment.action_space)
    if not all(isinstance(space, gymnasium.spaces.Discrete) and space.start >= 0 for space in spaces):
        return None
    return cast(int, read_space(spaces[0])), cast(int, read_space(spaces[1]))


def spec_to_json(spec: EnvSpec) -> str | None:
    """The specification of an environment as text; None if only the program that registered the environment can make it."""
    if (entry_point := _entry_point(spec)) is None:
        return None
    spec = copy.deepcopy(spec)
    spec.entry_point = entry_point
    return spec.to_json()


def _entry_point(spec: EnvSpec) -> str | None:
    """The name of the program that makes an environment, also where the class itself is registered."""
    if not callable(spec.entry_point):
        return spec.entry_point
    module, name = spec.entry_point.__module__, getattr(spec.entry_point, "__qualname__", "<")
    return None if module == "__main__" or "<" in name else f"{module}:{name}"


def parts_in(source: Source) -> dict[str, tuple[int, int, tuple[int, ...]]]:
    """For observations that are dictionaries: the first and the last number of each entry in a vector, and its shape."""
    found, first = {}, 0
    for name, shape in source.metadata.get(_PARTS, {}).items():
        found[name] = (first, first + math.prod(shape), tuple(shape))
        first += math.prod(shape)
    return found


def read_parts(space: gymnasium.Space[Any] | None) -> dict[str, Any]:
    """What the metadata say of a Dict of boxes: the shape of each entry; nothing about any other space."""
    if not isinstance(space, gymnasium.spaces.Dict):
        return {}
    return {_PARTS: {name: list(part.shape or ()) for name, part in space.spaces.items()}}


def installed(spec: EnvSpec) -> EnvSpec | None:
    """The specification of an environment that is installed here; None for any other, which could be any program.

    The program is the one that Gymnasium has registered for the id. Only options of Gymnasium's tables and of farflung's worlds
    are taken from the file: those of others could ask for anything.
    """
    known = gymnasium.registry.get(spec.id)
    if known is None or not all(each.entry_point in WRAPPERS for each in spec.additional_wrappers):
        return None
    if spec.id.startswith("farflung/"):  # older datasets name modules that have moved
        spec.entry_point, spec.vector_entry_point = known.entry_point, known.vector_entry_point
    spec.kwargs.pop("render_mode", None)  # no window opens for a file
    if not str(known.entry_point).startswith(_WITH_OPTIONS) and spec.kwargs != known.kwargs:
        return None
    spend_on_options(spec.kwargs)
    if spec.entry_point is None or spec.entry_point != _entry_point(known):
        return None
    spec.entry_point = known.entry_point
    return spec


def read_space(space: gymnasium.Space[Any]) -> int | Box:
    """The number of observations or actions in a discrete space, or the bounds of vectors; a Dict of boxes is a vector."""
    if isinstance(space, gymnasium.spaces.Dict) and all(isinstance(each, gymnasium.spaces.Box) for each in space.values()):
        bounds = [np.concatenate([getattr(box, end).reshape(-1) for box in space.values()]) for end in ("low", "high")]
        return Box(*(tuple(map(float, bound)) for bound in bounds))
    if isinstance(space, gymnasium.spaces.Discrete) and space.start >= 0:
        return int(space.start + space.n)
    if isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 1:
        return Box(*(tuple(map(float, bound)) for bound in (space.low, space.high)))
    raise ValueError(f"only numbers from 0 on and vectors can be read: the spaces Discrete, Box and Dict, not {space}")


def write_space(space: int | Box, dtype: np.dtype[Any]) -> gymnasium.Space[Any]:
    """The Gymnasium space that `read_space` reads back."""
    if isinstance(space, int):
        return gymnasium.spaces.Discrete(space)
    low, high = (np.asarray(bound, dtype) for bound in (space.low, space.high))
    return gymnasium.spaces.Box(low, high, dtype=dtype.type)


def observed_world(environment: gymnasium.Env[Any, Any]) -> TabularMDP:
    """The world of an environment with a transition table; its `labels` are the environment's observations."""
    world = from_gymnasium(environment)
    return world if world.shows_labels else _numbered(world)  # farflung's own environments show the numbers of states


def environment_spec(config: Explore, world: TabularMDP) -> EnvSpec | None:
    """The Gymnasium environment with the same transitions as a tabular world; None if there is none."""
    if config.world in PAPER_WORLDS:
        family, variant = config.world.split("-")
        options = {"stochastic": variant == "stoc"} if config.slip is None else {"slip": config.slip}
        spec = _spec(f"farflung/{family.capitalize()}-v0", world, **options)
    elif config.world in gymnasium.registry:
        spec = _spec(config.world, world)
    elif world.positions is not None and world.num_actions == len(MOVES):
        # In some cell, a move and its slips lead to different cells: there the move has probability 1 - slip, the least of all.
        slip = round(float(1 - np.asarray(world.probabilities).max(axis=-1).min()), 6)
        spec = _spec("farflung/Grid-v0", world, map=_drawn(world), slip=slip)
    else:
        return None
    return spec if _are_equal(from_gymnasium(gymnasium.make(spec)), world) else None


def to_json(contents: Contents) -> str:
    """A dataset's size, entropy and source as text."""
    return json.dumps({**json.loads(source_to_json(contents.source)), **size_of(contents)}, sort_keys=True)


def size_of(contents: Contents) -> dict[str, Any]:
    """The numbers of episodes, transitions, and different states and state-action pairs, and the entropy of the states.

    States that are vectors are counted as the cells of the projection's grid.
    """
    has_states = not contents.latest.has_vectors or contents.source.projection is not None
    return {
        "episodes": contents.num_episodes,
        "transitions": contents.num_transitions,
        "states": int(np.count_nonzero(contents.visits)) if has_states else None,
        "pairs": None if contents.pairs is None else int(np.count_nonzero(contents.pairs)),
        "entropy": contents.entropy,
    }


def source_to_json(source: Source) -> str:
    """A dataset's source as text."""
    world = None if source.world is None else base64.b64encode(world_to_bytes(source.world)).decode("ascii")
    return json.dumps(
        {
            **{name: value for name, value in source.metadata.items() if name not in _SIZES},  # a part that was read has some
            "format_version": FORMAT_VERSION,
            "observations": _space_to_json(source.observations),
            "actions": _space_to_json(source.actions),
            "environment": source.environment,
            "world": world,
            "projection": None if source.projection is None else dataclasses.asdict(source.projection),
        },
        sort_keys=True,
    )


def from_json(text: str, size: str | None = None) -> Source:
    """The source that `to_json` has written; every value is checked, as anyone may have written the text.

    Args:
        size: the text with the size, if it is a text of its own.
    """
    values = parse_object(text) | ({} if size is None else parse_object(size))
    check_version(values.pop("format_version", None), FORMAT_VERSION, values.get("farflung"))
    world, projection, environment = values.pop("world"), values.pop("projection", None), values.pop("environment")
    observations, actions = (_space_from_json(name, values.pop(name)) for name in ("observations", "actions"))
    if projection is not None:
        projection = read_projection(projection, observations.size if isinstance(observations, Box) else 0)
    if environment is not None:
        parse_object(environment)
    if _PARTS in values:
        _check_parts(values[_PARTS], observations)
    if not all(isinstance(update, int) for update in values.get("checkpoints", ())):
        raise ValueError(f"checkpoints are numbers of updates, not {str(values['checkpoints'])[:80]}")
    if "checkpoints" in values:
        whole_number("agents_per_checkpoint", values.get("agents_per_checkpoint"))
    stored = None if world is None else world_from(base64.b64decode(world, validate=True))
    if stored is not None and stored.is_hosted:
        raise ValueError("a dataset cannot hold a host-stepped world, but this one does")
    return Source(observations, actions, stored, environment, values, projection)


def _check_parts(parts: Any, observations: int | Box) -> None:
    if not isinstance(parts, dict) or not all(isinstance(shape, list) for shape in parts.values()):
        raise ValueError(f"{_PARTS} has the shape of each entry of an observation, not {str(parts)[:80]}")
    sizes = [math.prod(whole_number("the size of an entry", each, MOST_VALUES) for each in shape) for shape in parts.values()]
    if not isinstance(observations, Box) or sum(sizes) != observations.size:
        raise ValueError(f"{_PARTS} has {sum(sizes)} numbers, which is not the size of an observation")


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
        raise ValueError(f"the bounds of {name} need one low and one high per number, low not above high")
    return Box(*bounds)


def _numbered(world: TabularMDP) -> TabularMDP:
    return eqx.tree_at(lambda world: world.labels, world, jnp.arange(world.num_states, dtype=jnp.int32))


def _drawn(world: TabularMDP) -> str:
    """The map of the states; cells that cannot be reached are walls."""
    positions = np.asarray(world.positions)
    cells = np.full(positions.max(axis=0) + 1, WALL)
    cells[*positions.T] = FREE
    cells[*positions[np.asarray(world.start_states)].T] = START
    is_goal = np.asarray(world.successors)[np.asarray(world.rewards) > 0]
    cells[*positions[is_goal].T] = GOAL
    return "\n".join(map("".join, cells))


def _are_equal(world: TabularMDP, other: TabularMDP) -> bool:
    names = ("successors", "probabilities", "rewards", "start_distribution")
    pairs = ((np.asarray(getattr(world, name)), np.asarray(getattr(other, name))) for name in names)
    return all(one.shape == two.shape and np.allclose(one, two, atol=1e-5) for one, two in pairs)
