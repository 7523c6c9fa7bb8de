"""Environments of JAX suites as JAX worlds: gymnax, Craftax, NAVIX, XLand-MiniGrid, Jumanji, Brax, MuJoCo Playground.

An environment is recognised by its functions, and a suite is imported only if a user asks for one of its environments.
Episodes end where the suite's task ends; time limits and automatic resets of the suite are left out, as a world's horizon
decides how long an episode is.
"""

import abc
import contextlib
import copy
import difflib
import json
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from farflung.config.checks import check_name, optional_package, whole_number
from farflung.config.imports import check_installed
from farflung.config.options import SUITES
from farflung.config.reading import reason
from farflung.worlds.projection import Box, Discrete
from farflung.worlds.walls import walls_of_layouts

RANDOM = "random"
"""The layout of an environment of which each episode draws a new one."""
_LONGEST = 200
"""The default horizon is the suite's own time limit, but at most this."""
_NO_LIMIT = 2**31 - 1
_SMALLEST_IMAGE, _BRIGHTEST = 32, 255
_MOST_SUGGESTIONS, _MOST_LISTED = 3, 40
_MOST_BYTES = 10**8
"""Of a state."""
_MOST_CELLS = 10**7
"""The product of the sizes among the options of an environment: a suite may allocate a grid before it has a state."""
_SIZE = re.compile("row|col|width|height|size|shape|num_")
_LAYOUTS = 64
"""So many layouts are looked at for walls, where each episode draws its own."""
_MOST_CHARACTERS = 2000
"""Of the options of an environment, as JSON."""


class Place(NamedTuple):
    """Where an agent is: the features that the entropy covers by default."""

    names: tuple[str, ...]
    read: Callable[[Any], Any]
    """A function of the state."""
    bounds: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """The lowest and the highest value of each feature, which may be infinite; None if no bounds are known."""
    is_whole: bool = False
    """Whether features are whole numbers, such as rows and columns: visits to each are counted."""


def _grid(names: tuple[str, ...], read: Callable[[Any], Any], shape: Iterable[int]) -> Place:
    """A place on a grid of this shape."""
    high = tuple(float(number - 1) for number in shape)
    return Place(names, read, ((0.0,) * len(high), high), is_whole=True)


def _flat(parts: Any) -> Float[Array, " number"]:
    return jnp.concatenate([jnp.ravel(jnp.asarray(part, jnp.float32)) for part in jax.tree.leaves(parts)])


def _as_drawn(place: Place | None) -> Place | None:
    """The place with column before row, where a suite has rows first: pictures have columns along x and rows along y."""
    if place is None or place.names[:2] != ("row", "column"):
        return place
    read, order = place.read, [1, 0, *range(2, len(place.names))]
    drawn = [tuple(ends[each] for each in order) for ends in place.bounds or ()]
    bounds = (drawn[0], drawn[1]) if drawn else None
    names = tuple(place.names[each] for each in order)
    return place._replace(names=names, read=lambda state: _flat(read(state))[np.array(order)], bounds=bounds)


def _reads(*attributes: str) -> Callable[[Any], Any]:
    """Reads attributes of the suite's state, the first part of a state."""
    return lambda state: [getattr(state[0], attribute) for attribute in attributes]


class Kept:
    """An environment with its parameters: a constant of compiled code."""

    first: Any = None
    """The state in which all episodes begin; None if each reset draws one. As a constant it spares most of what XLand-MiniGrid
    computes in a step: without knowing which rules a layout has, compiled code would compute every kind of rule."""

    def __init__(self, env: Any, params: Any) -> None:
        self.env, self.params = env, params


class SuiteWorld(eqx.Module):
    """An environment of a suite, with the functions of a JAX world.

    Args:
        env: the suite's environment.
        params: its parameters, where the suite keeps these apart.
        layout: the number of the layout in which all episodes begin, or `random` for a new one in each episode.
    """

    kept: Kept = eqx.field(static=True)
    actions: Any = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    place: Place | None = eqx.field(static=True)

    layout: ClassVar[int | str] = RANDOM
    """The default layout."""

    def __init__(self, env: Any, params: Any = None, layout: Any = None) -> None:
        chosen = self.layout if layout is None else layout
        if chosen != RANDOM:
            chosen = whole_number("layout", chosen)
        self.kept = Kept(env, params)
        self.actions, limit = self._actions(), self._time_limit()
        self.horizon = _LONGEST if limit is None else min(_LONGEST, int(limit))
        with quiet():
            begin = jax.jit(lambda key: _strong(self._begin(key)))
            state = jax.eval_shape(begin, jr.PRNGKey(0))
            num_bytes = sum(math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(state))
            if num_bytes > _MOST_BYTES:
                raise ValueError(f"one state takes {num_bytes:,} bytes, more than the limit of {_MOST_BYTES:,}")
            self.place = _as_drawn(self._place(state))
            if chosen != RANDOM:
                self.kept.first = jax.device_get(begin(jr.PRNGKey(int(chosen))))

    @property
    def feature_names(self) -> tuple[str, ...]:
        return () if self.place is None else self.place.names

    @property
    def feature_bounds(self) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        return None if self.place is None else self.place.bounds

    @property
    def features_are_whole(self) -> bool:
        return self.place is not None and self.place.is_whole

    @property
    def features(self) -> Callable[[PyTree[Array]], Float[Array, " feature"]] | None:
        """The function that says where the agent is in a state; None if that is not known."""
        if self.place is None:
            return None
        read = self.place.read
        return lambda state: _flat(read(state))

    def reset(self, key: PRNGKeyArray) -> PyTree[Array]:
        plain, first = jr.key_data(key), self.kept.first
        with jax.numpy_rank_promotion("allow"):  # suites rely on it
            return _strong(self._begin(plain) if first is None else self._with_key(first, plain))

    def step(self, key: PRNGKeyArray, state: PyTree[Array], action: Array) -> PyTree[Array]:
        copied = jax.tree.map(lambda leaf: leaf, state)  # Brax changes the dictionaries of the state that it is given
        with jax.numpy_rank_promotion("allow"):
            following = self._next(jr.key_data(key), copied, action)
        return jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), following, state)

    def observe(self, state: PyTree[Array]) -> PyTree[Array]:
        return jax.tree.map(_seen, self._observation(state))

    @abc.abstractmethod
    def is_over(self, state: PyTree[Array]) -> Bool[Array, ""]:
        """Whether the task has ended, other than by a time limit."""

    @staticmethod
    @abc.abstractmethod
    def recognises(env: Any) -> bool:
        """Whether an environment has the functions of this suite."""

    @abc.abstractmethod
    def _actions(self) -> Any:
        """What an agent can do, as an attribute `actions` of a JAX world."""

    @abc.abstractmethod
    def _time_limit(self) -> Any:
        """The suite's own time limit, or None."""

    @abc.abstractmethod
    def _begin(self, key: Array) -> Any:
        """The state after the suite's own reset."""

    @abc.abstractmethod
    def _next(self, key: Array, state: Any, action: Array) -> Any:
        """The state after the suite's own step."""

    @abc.abstractmethod
    def _observation(self, state: Any) -> Any:
        """What the suite shows of a state."""

    @abc.abstractmethod
    def _place(self, state: Any) -> Place | None:
        """Where the agent is in a state of these shapes."""

    def _is_wall(self, state: Any) -> Any:
        """Where the grid of a state has walls, as booleans [row, column]; None if that is not known."""
        return None

    def layout_walls(self) -> dict[str, Any]:
        """The walls of the layout, or of several that episodes may draw, as fields of a world; empty if they are not known."""

        def is_wall(key: PRNGKeyArray) -> Any:
            return self._is_wall(self.reset(key))

        with quiet():
            if not self.features_are_whole or jax.eval_shape(is_wall, jr.key(0)) is None:
                return {}
            keys = jr.split(jr.key(0), 1 if self.kept.first is not None else _LAYOUTS)
            return walls_of_layouts(np.asarray(jax.jit(jax.vmap(is_wall))(keys), bool))

    def _with_key(self, state: Any, key: Array) -> Any:
        """The state with a random key of its own, if the suite keeps one in it."""
        return state


_PLACES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("player_position", "player_level"), ("row", "column", "level")),
    (("player_position",), ("row", "column")),
    (("row", "column"), ("row", "column")),
    (("player_x", "player_y"), ("x", "y")),
    (("sub_x", "sub_y"), ("x", "y")),
    (("ball_x", "ball_y"), ("ball x", "ball y")),
    (("ball_position",), ("ball x", "ball y")),
    (("position", "velocity"), ("position", "velocity")),
    (("x", "theta"), ("position", "angle")),
    (("theta", "theta_dot"), ("angle", "velocity")),
    (("joint_angle1", "joint_angle2"), ("first angle", "second angle")),
    (("angles",), ("first angle", "second angle")),
    (("xy",), ("x", "y")),
    (("pos",), ("row", "column")),
)
"""Attributes of a state of gymnax or Craftax that say where the agent is, and the names of these numbers."""


class Gymnax(SuiteWorld):
    """gymnax before and after version 1, and Craftax. A state is the suite's state, its observation and whether it is over."""

    @staticmethod
    def recognises(env: Any) -> bool:
        return all(callable(getattr(env, name, None)) for name in ("reset_env", "step_env", "action_space"))

    def __init__(self, env: Any, params: Any = None, layout: Any = None) -> None:
        is_craftax = hasattr(env, "static_env_params")  # its worlds are drawn at random
        chosen = 1 if layout is None and is_craftax else layout
        super().__init__(env, env.default_params if params is None else params, chosen)

    def _actions(self) -> Any:
        space = self.kept.env.action_space(self.kept.params)
        return Discrete(int(space.n)) if hasattr(space, "n") else _box(space.low, space.high, space.shape)

    def _time_limit(self) -> Any:
        params = self.kept.params
        return next((getattr(params, name) for name in _LIMITS if hasattr(params, name)), None)

    def _begin(self, key: Array) -> Any:
        observation, state = self.kept.env.reset_env(key, self.kept.params)
        return state, observation, jnp.zeros((), bool)

    def _next(self, key: Array, state: Any, action: Array) -> Any:
        env, params = self.kept.env, self.kept.params
        observation, following, _, is_over, _ = env.step_env(key, state[0], action, params)
        if not hasattr(env, "is_truncated"):  # before gymnax 1, and in Craftax, the end may be that of the time
            unlimited = params.replace(**{name: _NO_LIMIT for name in _LIMITS if hasattr(params, name)})
            is_over = env.is_terminal(following, unlimited)
        return following, observation, is_over

    def is_over(self, state: PyTree[Array]) -> Bool[Array, ""]:
        return state[2]

    def _observation(self, state: Any) -> Any:
        return state[1]

    def _place(self, state: Any) -> Place | None:
        for attributes, names in _PLACES:
            parts = [getattr(state[0], attribute, None) for attribute in attributes]
            sizes = [math.prod(part.shape) for part in parts if part is not None]
            if len(sizes) < len(parts) or sum(sizes) > len(names):
                continue
            is_whole = all(jnp.issubdtype(part.dtype, jnp.integer) for part in parts if part is not None)
            return Place(names[: sum(sizes)], _reads(*attributes), self._bounds(attributes, sizes), is_whole)
        return None

    def _is_wall(self, state: Any) -> Any:
        grid = getattr(self.kept.env, "env_map", None)  # of FourRooms
        return None if grid is None else jnp.asarray(grid) == 0

    def _bounds(self, attributes: tuple[str, ...], sizes: list[int]) -> tuple[tuple[float, ...], tuple[float, ...]]:
        static = getattr(self.kept.env, "static_env_params", None)
        if static is not None:  # Craftax
            shape = (*static.map_size, getattr(static, "num_levels", 1))[: sum(sizes)]
            return (0.0,) * len(shape), tuple(float(number - 1) for number in shape)
        known = self.kept.env.state_space(self.kept.params).spaces
        low: list[float] = []
        high: list[float] = []
        for name, size in zip(attributes, sizes, strict=True):
            box = (
                _box(0, known[name].n - 1, (size,))
                if hasattr(known[name], "n")
                else _box(known[name].low, known[name].high, (size,))
            )
            low += box.low
            high += box.high
        return tuple(low), tuple(high)


_LIMITS = ("max_steps_in_episode", "max_timesteps")


class Navix(SuiteWorld):
    """NAVIX. A state is its time step."""

    layout = 1

    @staticmethod
    def recognises(env: Any) -> bool:
        return all(hasattr(env, name) for name in ("action_set", "termination_fn", "transitions_fn", "observation_fn"))

    def __init__(self, env: Any, params: Any = None, layout: Any = None) -> None:
        super().__init__(env, params, layout)

    def _actions(self) -> Any:
        return Discrete(len(self.kept.env.action_set))

    def _time_limit(self) -> Any:
        return self.kept.env.max_steps

    def _begin(self, key: Array) -> Any:
        return self.kept.env.reset(key)

    def _with_key(self, state: Any, key: Array) -> Any:
        return state.replace(state=state.state.replace(key=key))

    def _next(self, key: Array, state: Any, action: Array) -> Any:
        goes_on = state.replace(step_type=jnp.zeros((), state.step_type.dtype))  # else the step would be a reset
        return self.kept.env.step(goes_on, action)

    def is_over(self, state: PyTree[Array]) -> Bool[Array, ""]:
        return state.is_termination()

    def _observation(self, state: Any) -> Any:
        return state.observation

    def _place(self, state: Any) -> Place | None:
        shape = (self.kept.env.height, self.kept.env.width)
        return _grid(("row", "column"), lambda state: state.state.get_player().position, shape)

    def _is_wall(self, state: Any) -> Any:
        walls = state.state.entities.get("wall")  # those inside of a room; the border is part of the grid
        is_wall = jnp.asarray(state.state.grid) != 0
        return is_wall if walls is None else is_wall.at[walls.position[..., 0], walls.position[..., 1]].set(True, mode="drop")


_XMINIGRID_WALL = 2


class XMiniGrid(SuiteWorld):
    """XLand-MiniGrid. A state is its time step."""

    layout = 1

    @staticmethod
    def recognises(env: Any) -> bool:
        return all(callable(getattr(env, name, None)) for name in ("default_params", "num_actions", "observation_shape"))

    def __init__(self, env: Any, params: Any = None, layout: Any = None) -> None:
        super().__init__(env, env.default_params() if params is None else params, layout)

    def _actions(self) -> Any:
        return Discrete(int(self.kept.env.num_actions(self.kept.params)))

    def _time_limit(self) -> Any:
        return self.kept.params.max_steps

    def _begin(self, key: Array) -> Any:
        return self.kept.env.reset(self.kept.params, key)

    def _with_key(self, state: Any, key: Array) -> Any:
        return state.replace(state=state.state.replace(key=key))

    def _next(self, key: Array, state: Any, action: Array) -> Any:
        return self.kept.env.step(self.kept.params, state, action)

    def is_over(self, state: PyTree[Array]) -> Bool[Array, ""]:
        return state.discount == 0

    def _observation(self, state: Any) -> Any:
        return state.observation

    def _place(self, state: Any) -> Place | None:
        shape = (self.kept.params.height, self.kept.params.width)
        return _grid(("row", "column"), lambda state: state.state.agent.position, shape)

    def _is_wall(self, state: Any) -> Any:
        return state.state.grid[..., 0] == _XMINIGRID_WALL


_SOKOBAN_WALL = 1
_JUMANJI_PLACES = {
    "agent_position": "walls",
    "head_position": "body_state",
    "player_locations": "grid",
    "agent_location": "fixed_grid",
    "empty_tile_position": "puzzle",
}
"""Attributes of a state of Jumanji that say where the agent is, and on which grid."""


class Jumanji(SuiteWorld):
    """Jumanji. A state is the suite's state, its observation and whether it is over."""

    layout = 1

    @staticmethod
    def recognises(env: Any) -> bool:
        return all(hasattr(env, name) for name in ("action_spec", "observation_spec", "discount_spec", "reset", "step"))

    def __init__(self, env: Any, params: Any = None, layout: Any = None) -> None:
        limit = getattr(env.unwrapped, "time_limit", None)
        unlimited = copy.copy(env.unwrapped)
        if limit is not None:
            unlimited.time_limit = _NO_LIMIT
        super().__init__(unlimited, limit, layout)

    def _actions(self) -> Any:
        spec = self.kept.env.action_spec
        if not hasattr(spec, "num_values"):
            return _box(spec.minimum, spec.maximum, spec.shape)
        numbers = np.asarray(spec.num_values)
        return Discrete(int(numbers)) if numbers.ndim == 0 else spaces.MultiDiscrete(numbers.ravel())

    def _time_limit(self) -> Any:
        return self.kept.params

    def _begin(self, key: Array) -> Any:
        state, timestep = self.kept.env.reset(key)
        return state, timestep.observation, jnp.zeros((), bool)

    def _with_key(self, state: Any, key: Array) -> Any:
        inner = state[0]
        return (inner._replace(key=key) if hasattr(inner, "_replace") else inner.replace(key=key), *state[1:])

    def _next(self, key: Array, state: Any, action: Array) -> Any:
        spec = self.kept.env.action_spec
        following, timestep = self.kept.env.step(state[0], jnp.asarray(action, spec.dtype).reshape(spec.shape))
        return following, timestep.observation, timestep.last() & jnp.all(timestep.discount == 0)

    def is_over(self, state: PyTree[Array]) -> Bool[Array, ""]:
        return state[2]

    def _observation(self, state: Any) -> Any:
        return state[1]

    def _place(self, state: Any) -> Place | None:
        for attribute, grid in _JUMANJI_PLACES.items():
            if hasattr(state[0], attribute):
                names = ("x", "y") if attribute == "player_locations" else ("row", "column")
                shape = getattr(state[0], grid).shape[:2]
                return _grid(names, _reads(attribute), shape)
        return None

    def _is_wall(self, state: Any) -> Any:
        if hasattr(state[0], "walls"):  # of the maze
            return state[0].walls
        return state[0].fixed_grid == _SOKOBAN_WALL if hasattr(state[0], "fixed_grid") else None


class Robots(SuiteWorld):
    """Brax and MuJoCo Playground. A state is the suite's state."""

    is_reproducible = False
    """On a GPU; with reproducible sums of forces, MJX takes 2.4 times as long there."""

    @staticmethod
    def recognises(env: Any) -> bool:
        kind = type(env)  # Brax computes some of these by a reset
        return all(hasattr(kind, name) for name in ("action_size", "observation_size", "reset", "step", "unwrapped"))

    def __init__(self, env: Any, params: Any = None, layout: Any = None) -> None:
        super().__init__(env.unwrapped, params, layout)

    def _actions(self) -> Any:
        return Box((-1.0,) * self.kept.env.action_size, (1.0,) * self.kept.env.action_size)

    def _time_limit(self) -> Any:
        return None

    def _begin(self, key: Array) -> Any:
        return self.kept.env.reset(key)

    def _with_key(self, state: Any, key: Array) -> Any:
        return state.replace(info={**state.info, "rng": key}) if "rng" in state.info else state

    def _next(self, key: Array, state: Any, action: Array) -> Any:
        return self.kept.env.step(state, action)

    def is_over(self, state: PyTree[Array]) -> Bool[Array, ""]:
        return state.done > 0

    def _observation(self, state: Any) -> Any:
        return state.obs.get("state", state.obs) if isinstance(state.obs, Mapping) else state.obs

    def _place(self, state: Any) -> Place | None:
        env = self.kept.env
        model = env.mj_model if hasattr(env, "mj_model") else getattr(getattr(env, "sys", None), "mj_model", None)
        if _coordinates(state)[0].shape[0] == 1:
            (name,) = _names_of(model, 1)
            return Place((name, f"{name} velocity"), lambda state: [numbers[:1] for numbers in _coordinates(state)])
        names, first = _place_in(model)
        return Place(names, lambda state: _coordinates(state)[0][first : first + 2])


def _coordinates(state: Any) -> tuple[Any, Any]:
    """The positions and velocities of a robot: of its torso in space, if it is free, and of its joints."""
    if hasattr(state, "data"):
        return state.data.qpos, state.data.qvel
    return state.pipeline_state.q, state.pipeline_state.qd


def _place_in(model: Any) -> tuple[tuple[str, ...], int]:
    """Which two coordinates of a MuJoCo model to cover: their names, and where they begin.

    These are x and y of the first body that moves freely: a robot's torso, or the object that a manipulator moves. If no body
    moves freely, they are the first two coordinates.
    """
    free = [] if model is None else [joint for joint in range(model.njnt) if model.jnt_type[joint] == 0]
    if not free:
        return _names_of(model, 2), 0
    body = "" if free[0] == 0 else f"{model.body(model.jnt_bodyid[free[0]]).name} "
    return (f"{body}x (m)", f"{body}y (m)"), int(model.jnt_qposadr[free[0]])


def _names_of(model: Any, number: int) -> tuple[str, ...]:
    """Names of the first coordinates of a MuJoCo model."""
    joints = {} if model is None else {int(first): model.joint(each).name for each, first in enumerate(model.jnt_qposadr)}
    return tuple(joints.get(each) or f"coordinate {each}" for each in range(number))


class Family(NamedTuple):
    """How a suite is imported, and how its environments are made by name."""

    module: str
    extra: str
    """What pip installs."""
    ids: Callable[[Any], Iterable[str]]
    make: Callable[[Any, str, dict[str, Any]], SuiteWorld]
    """The world of an id, given the module, and options that include `layout`."""


def _make_gymnax(gymnax: Any, name: str, options: dict[str, Any]) -> SuiteWorld:
    layout, (env, params) = options.pop("layout", None), gymnax.make(name)
    own = {option: options.pop(option) for option in [*options] if hasattr(params, option)}
    if options:
        env, params = gymnax.make(name, **options)
    return Gymnax(env, params.replace(**own), layout)


_CRAFTAX = tuple(f"Craftax-{kind}-v1" for kind in ("Symbolic", "Pixels", "Classic-Symbolic", "Classic-Pixels"))


def _make_craftax(craftax: Any, name: str, options: dict[str, Any]) -> SuiteWorld:
    layout, env = options.pop("layout", None), craftax.make_craftax_env_from_name(name, auto_reset=False)
    return Gymnax(env, env.default_params.replace(**options), layout)


_NAVIX_OBSERVATIONS = (
    "categorical",
    "categorical_first_person",
    "rgb",
    "rgb_first_person",
    "symbolic",
    "symbolic_first_person",
)


def _make_navix(navix: Any, name: str, options: dict[str, Any]) -> SuiteWorld:
    layout, observation = options.pop("layout", None), options.get("observation_fn")
    if observation is not None:
        check_name("observation_fn", observation, _NAVIX_OBSERVATIONS)
        options["observation_fn"] = getattr(navix.observations, observation)
    return Navix(navix.make(name, **options), None, layout)


def _make_xminigrid(xminigrid: Any, name: str, options: dict[str, Any]) -> SuiteWorld:
    layout, (env, params) = options.pop("layout", None), xminigrid.make(name, **options)
    return XMiniGrid(env, params, layout)


def _make_jumanji(jumanji: Any, name: str, options: dict[str, Any]) -> SuiteWorld:
    layout = options.pop("layout", None)
    return Jumanji(jumanji.make(name, **options), None, layout)


def _make_brax(envs: Any, name: str, options: dict[str, Any]) -> SuiteWorld:
    layout = options.pop("layout", None)
    return Robots(envs.get_environment(name, **options), None, layout)


def _make_playground(playground: Any, name: str, options: dict[str, Any]) -> SuiteWorld:
    layout, config = options.pop("layout", None), playground.registry.get_default_config(name)
    engine = {"impl": "jax"} if "impl" in config else {}  # its default, Warp, needs a GPU
    return Robots(playground.registry.load(name, config_overrides=engine | options), None, layout)


FAMILIES: dict[str, Family] = {
    "gymnax": Family("gymnax", "gymnax", lambda gymnax: gymnax.registered_envs, _make_gymnax),
    "craftax": Family("craftax.craftax_env", "craftax", lambda craftax: _CRAFTAX, _make_craftax),
    "navix": Family("navix", "navix", lambda navix: navix.registry(), _make_navix),
    "xminigrid": Family("xminigrid", "xminigrid", lambda xminigrid: xminigrid.registered_environments(), _make_xminigrid),
    "jumanji": Family("jumanji", "jumanji", lambda jumanji: jumanji.registered_environments(), _make_jumanji),
    "brax": Family("brax.envs", "brax", lambda envs: envs._envs, _make_brax),
    "playground": Family("mujoco_playground", "playground", lambda playground: playground.registry.ALL_ENVS, _make_playground),
}
assert tuple(FAMILIES) == SUITES


def make_suite_world(name: str, options: Mapping[str, Any]) -> SuiteWorld:
    """The environment of a name FAMILY:ID.

    Args:
        options: `layout`, and options for the environment itself; they may come from a file.
    """
    prefix, _, plain = name.partition(":")
    family = FAMILIES[prefix]
    if len(json.dumps(dict(options))) > _MOST_CHARACTERS:
        raise ValueError(f"the options of {name} have at most {_MOST_CHARACTERS} characters")
    sizes = {
        option: value if isinstance(value, list | tuple) else [value]
        for option, value in options.items()
        if _SIZE.search(option) and _is_whole(value)
    }
    if math.prod(max(1, int(size)) for each in sizes.values() for size in each) > _MOST_CELLS:
        raise ValueError(f"{name} would be too large: the product of {', '.join(sizes)} is more than {_MOST_CELLS:,}")
    extra = f"'.[{family.extra}]', in a clone of farflung"
    try:
        check_installed(family.module, name)
    except ValueError:
        raise ValueError(f"{name} needs the suite {prefix}: pip install {extra}") from None
    with quiet():
        module = optional_package(family.module, extra)
        known = sorted(family.ids(module))
        if plain not in known:
            near = difflib.get_close_matches(plain, known, n=_MOST_SUGGESTIONS)
            raise ValueError(f"{prefix} has no environment {plain!r}: choose {', '.join(near or known[:_MOST_LISTED])}")
        try:
            return family.make(module, plain, dict(options))
        except Exception as error:  # the suite may raise anything
            given = f" with the options {json.dumps(dict(options))}" if options else ""
            raise ValueError(f"{name} cannot be made{given}: {type(error).__name__}: {reason(error)}") from error


def _is_whole(value: Any) -> bool:
    """Whether a value from JSON is a whole number, or a list of whole numbers."""
    parts = value if isinstance(value, list | tuple) else [value]
    return all(isinstance(part, int) for part in parts)


def is_suite_environment(thing: Any) -> bool:
    """Whether an object is an environment of a suite, or a pair of an environment and its parameters."""
    return _kind_of(thing[0] if isinstance(thing, tuple) and thing else thing) is not None


def _kind_of(env: Any) -> Any:
    kinds: tuple[Any, ...] = (Gymnax, Jumanji, XMiniGrid, Navix, Robots)
    return next((kind for kind in kinds if kind.recognises(env)), None)


def suite_world_of(thing: Any) -> SuiteWorld | None:
    """The JAX world of a suite's environment, or of a pair of an environment and its parameters; None for anything else."""
    env, params = thing if isinstance(thing, tuple) and len(thing) == 2 else (thing, None)
    kind = _kind_of(env)
    return None if kind is None else kind(env, params)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suites warn of their own code, print what they load, and rely on the promotion of ranks."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr), jax.numpy_rank_promotion("allow"):
        warnings.simplefilter("ignore")
        yield


def _box(low: Any, high: Any, shape: tuple[int, ...]) -> Box:
    ends = [np.broadcast_to(np.asarray(end, float), shape).ravel() for end in (low, high)]
    return Box(*(tuple(map(float, end)) for end in ends))


def _strong(state: PyTree[Any]) -> PyTree[Array]:
    """The state as arrays whose types the first step does not change."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.asarray(leaf).dtype), state)


def _seen(part: Array) -> Array:
    """An image as bytes, and all other numbers as floats: small arrays of bytes are codes, which are no image."""
    if part.ndim == 3 and part.shape[-1] == 3 and min(part.shape[:2]) >= _SMALLEST_IMAGE:
        return part if part.dtype == jnp.uint8 else jnp.round(part * _BRIGHTEST).astype(jnp.uint8)
    return jnp.asarray(part, jnp.float32)
