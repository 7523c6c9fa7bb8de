"""Any Gymnasium environment as a world that is stepped on the host."""

import contextlib
import copy
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import Int

from farflung.config.checks import whole_number
from farflung.config.explore import arguments_for
from farflung.config.imports import name_of
from farflung.config.options import WORKER_LAUNCHERS
from farflung.config.reading import one_line_errors, parse_object, reason, where_raised
from farflung.worlds.hosted.copies import FAILURES, PLACE, Make, Observe, watched
from farflung.worlds.hosted.indexing import Met, SavedIndex, StateIndex, actions_of, parts_of, state_index
from farflung.worlds.hosted.layouts import layout_of
from farflung.worlds.hosted.players import TablePlayer
from farflung.worlds.hosted.vectors import HostedVectors, extra_features, vector_world
from farflung.worlds.hosted.world import COPIES, HostedWorld, View, checked_stepping, first_copy, from_id, read_hosted
from farflung.worlds.projection import Discrete
from farflung.worlds.walls import Rectangle, layout_fields, read_layout
from farflung.worlds.world import World

_MOST_CELLS = 1_000_000
_FIRST_CAPACITY, _GROWTH = 1024, 4
_LETTERS = {"S": b"S", "G": b"G", "x": b"H"}
"""How pictures mark what FrozenLake's map calls start, goal and hole."""


@dataclass(frozen=True, eq=False, kw_only=True)
class HostedTable(HostedWorld):
    """A world with finitely many states and actions, stepped on the host; make one with `hosted`, which checks its input.

    An episode has at most `horizon` actions and may end earlier; only the states that it visited count.
    """

    index: StateIndex
    """Maps observations to states; if the space doesn't list all states, each new observation adds one."""
    env_actions: Sequence[Any]
    """The environment's own action for each action index."""
    grid: tuple[int, int] | None = None
    """Rows and columns of the map whose cells are the states, numbered row by row."""
    marks: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The states that pictures of the map mark: S where episodes begin, G and x where they end, rewarded or not."""
    walls: tuple[Rectangle, ...] = ()
    shifting_walls: tuple[Rectangle, ...] = ()

    @property
    def num_states(self) -> int:
        return self.index.num_states

    projection = None

    @property
    def start_states(self) -> Int[np.ndarray, " start"]:  # type: ignore[override]
        return np.array(self.marks.get("S", ()), int)

    @property
    def ends(self) -> dict[str, Int[np.ndarray, " state"]]:  # type: ignore[override]
        return {mark: np.array(states, int) for mark, states in self.marks.items() if mark != "S"}

    @property
    def actions(self) -> Discrete:  # type: ignore[override]
        return Discrete(len(self.env_actions))

    def state_of(self, observation: Any) -> int:
        return int(self.index(observation)[0])

    def action_for_environment(self, action: np.ndarray) -> Any:
        return self.env_actions[int(action)]

    @property
    def knows_all_states(self) -> bool:  # type: ignore[override]
        return self.index.is_complete

    def view(self) -> View:
        """A view with room for all states, or, if more may be discovered, for a capacity that depends on their number alone."""
        capacity = _FIRST_CAPACITY
        while capacity < self.num_states:
            capacity *= _GROWTH
        return View(self.horizon, self.actions, self.num_states if self.knows_all_states else capacity)

    @property
    def positions(self) -> Int[np.ndarray, "state 2"] | None:  # type: ignore[override]
        """Row and column of each state if the states lie on a map: if each is identified by x and y, or by x, y and more."""
        if self.grid is not None:
            return np.stack(np.unravel_index(np.arange(self.num_states), self.grid), axis=-1)
        observe = self.observe or self.settings.get("observe")
        num_features = len(self.index.features[0]) if self.num_states else 0
        if num_features != 2 and not (num_features > 2 and isinstance(observe, tuple) and observe[0] == PLACE):
            return None
        features = self.index.features[:, :2]
        walls = np.array([*self.walls, *self.shifting_walls]).reshape(-1, 4)
        first = np.zeros(2, int) if len(walls) else features.min(axis=0)  # walls have the environment's own columns and rows
        last = np.max(walls[:, [1, 3]], axis=0, initial=0.0, where=len(walls) > 0)
        if features.min() < first.min() or np.prod(np.maximum(features.max(axis=0) - first, last) + 1.0) > _MOST_CELLS:
            return None
        return (features - first)[:, ::-1]

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Enough to look at results, and to make the environment again if it has an id."""
        fields = {"name": self.name, "horizon": self.horizon, "num_actions": self.num_actions, "grid": self.grid}
        fields |= {"settings": self.settings, "arguments": self.arguments, **layout_fields(self)}
        fields |= {"marks": dict(self.marks)} if self.marks else {}
        return {"hosted": np.array(json.dumps(fields)), "features": self.index.features}

    @staticmethod
    def from_arrays(arrays: Mapping[str, np.ndarray]) -> "HostedTable":
        """The world that `to_arrays` describes, without its environment."""
        fields, features = parse_object(str(arrays["hosted"])), arrays["features"]
        about = read_hosted(fields)
        if features.ndim != 2 or not np.issubdtype(features.dtype, np.integer):
            raise ValueError(f"the features of states are whole numbers [state, feature], not {features.dtype}{features.shape}")
        grid = None if fields["grid"] is None else tuple(whole_number("grid", size) for size in fields["grid"])
        if grid is not None and (len(grid) != 2 or grid[0] * grid[1] != len(features)):
            raise ValueError(f"a map of {grid} cells does not hold {len(features)} states")
        actions = range(whole_number("num_actions", fields["num_actions"], _MOST_CELLS))
        marks = _read_marks(fields.get("marks", {}), 0 if grid is None else len(features))
        index = SavedIndex(features)
        return HostedTable(**about, index=index, env_actions=actions, grid=grid, marks=marks, **read_layout(fields))

    def remade(self, **stepping: Any) -> "HostedTable":
        settings = {name: value for name, value in self.settings.items() if name != "options"}
        with one_line_errors(f"{self.name} cannot be made from its saved settings"):
            again = hosted(**settings, **self.settings["options"], **stepping)
            assert isinstance(again, HostedTable), "its states are vectors now"
        again.add_states_of(self)
        return again

    def add_states_of(self, other: World) -> None:
        if isinstance(other, HostedTable):
            self.add_states(other.index.features)

    def add_states(self, features: Int[np.ndarray, "state feature"]) -> None:
        if isinstance(self.index, Met):
            self.index.know(features)

    def snapshot(self) -> "HostedTable":
        return dataclasses.replace(self, index=copy.deepcopy(self.index))

    def player(self, thresholds: np.ndarray, policies: np.ndarray, noise: np.ndarray) -> TablePlayer:
        """A player that samples actions from tables; see `TablePlayer`."""
        return TablePlayer(self.index, np.asarray(self.env_actions), thresholds, policies, noise)


def hosted(
    environment: str | Callable[[], gymnasium.Env[Any, Any]],
    *,
    horizon: int | None = None,
    observe: str | Observe | None = None,
    features: int | str | Sequence[int | str] | Callable[..., Any] | None = None,
    neighbours: int | None = None,
    bins: int | Sequence[int] | None = None,
    low: float | int | Sequence[float | int] | None = None,
    high: float | int | Sequence[float | int] | None = None,
    copies: int = COPIES,
    workers: int = 0,
    timeout: float | int = 60.0,
    launcher: str = WORKER_LAUNCHERS[0],
    **options: Any,
) -> HostedTable | HostedVectors:
    """A Gymnasium environment as a world: its copies are stepped on the host, so it needs no transition table.

    If observations are real numbers, states are vectors and policies are networks. With `bins`, finitely many actions and
    neither `features` nor `neighbours`, observations are divided into finitely many states instead, and policies are tables.
    Images (unsigned bytes) are vectors too, never tables; networks see them through convolutions.

    >>> hosted("FrozenLake-v1", horizon=20).num_states
    16
    >>> hosted("Pendulum-v1").projection.names
    ('observation 0', 'observation 1', 'observation 2')

    Args:
        environment: a Gymnasium id (`module:id` imports the module first), or a function that makes an environment.
        horizon: maximum number of actions in an episode (default: the environment's own limit).
        observe: the state, instead of the observation: an entry of its dictionary, an attribute of the environment
            (MiniGrid's `agent_pos`), `pixels` for the rendered frame, several of these, or a function of the environment and
            its observation that returns numbers.
        features: what the entropy is about, where that is not all that policies see: names or indices of numbers of an
            observation, names of attributes of the environment, a function of the environment and its observation, its
            MODULE:NAME, or `encoder` for the space of a fixed random encoder of the observation (default: all numbers if there
            are at most three, else the first two; of an image, `encoder`).
        neighbours: k of the k-nearest-neighbour entropy estimate; 0 counts grid cells instead.
        bins: grid cells per feature, one number for all or one for each (default for vectors: 20, fewer if there are many
            features).
        low: lower end of the grid in each feature (default: the space's lower bound; for vectors without bounds, the grid is
            three times as wide as what random actions reach).
        high: upper end of the grid in each feature.
        copies: number of copies stepped together in this process.
        workers: number of processes with one copy each, for slow environments; 0 steps all copies in this process. At most 32
            for each CPU core are started.
        timeout: seconds after which a worker that doesn't respond is restarted.
        launcher: where workers run: `local`, on this machine; or `ray`, as actors on the Ray cluster that the environment
            variable RAY_ADDRESS names (without it, on one that is started here), where there may be more of them.
        options: passed to `gymnasium.make`.
    """
    stepping = checked_stepping(copies, workers, timeout, launcher)
    observe = (observe,) if isinstance(observe, str) else observe if observe is None or callable(observe) else tuple(observe)
    horizon = None if horizon is None else whole_number("horizon", horizon)
    make: Make = from_id(environment, options, horizon) if isinstance(environment, str) else environment
    given = environment if isinstance(environment, str) else ""
    if options and not given:
        raise ValueError(f"{', '.join(options)}: options are for environments given by their id, not by a function")
    first = first_copy(make, given or getattr(environment, "__name__", repr(environment)))
    name = given or type(first.unwrapped).__name__
    asked_horizon, horizon = horizon, _horizon(name, first, horizon)
    limits: dict[str, Any] = {"bins": bins, "low": low, "high": high}
    bounds: dict[str, Any] = {key: None if value is None else np.atleast_1d(value).tolist() for key, value in limits.items()}
    recipe = {"environment": given, "options": options, "horizon": horizon, "observe": None if callable(observe) else observe}
    settings = recipe if given and not callable(observe) else {}
    chosen = arguments_for(observe=observe, features=features, neighbours=neighbours, **bounds, env_options=options)
    about: dict[str, Any] = {"name": name, "make": make, "horizon": horizon, "observe": observe, **stepping}
    about["arguments"] = (chosen or ("--hosted",)) + arguments_for(horizon=asked_horizon)
    try:
        seen = watched(first, observe, None)
        is_projected = features is not None or neighbours is not None
        has_choices = not isinstance(seen.action_space, spaces.Box)
        parts = parts_of(seen.observation_space)
        has_reals, has_image = any(part.is_real for part in parts), any(part.is_image for part in parts)
        if has_image or is_projected or (has_reals and (bins is None or not has_choices)):
            unseen = extra_features(seen, features)
            if isinstance(seen.observation_space, spaces.Discrete) and unseen is None:
                raise ValueError("features and neighbours are for observations of several numbers: these are a state's number")
            if unseen is not None and settings:
                own: Any = name_of(unseen) if callable(unseen) else unseen
                settings = {} if callable(unseen) and own.startswith("custom:") else settings | {"features": own}
            grid = {"features": features, "neighbours": neighbours, **bounds}
            about |= {"features": unseen, "settings": settings}
            return vector_world(watched(first, observe, unseen), grid, **about)
        index = state_index(seen.observation_space, **bounds)
        actions = actions_of(seen.action_space)
        shape = map_shape(first, index.num_states) if observe is None and index.is_complete else None
        marks = {} if shape is None else _marks(first, shape)
        layout = layout_of(first) if isinstance(observe, tuple) and observe[0] == PLACE else {}
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    except FAILURES as error:  # an environment may raise anything
        raise ValueError(f"{name} fails: {where_raised(error)}: {reason(error)}") from error
    finally:
        with contextlib.suppress(*FAILURES):
            first.close()
    about |= {"settings": settings and settings | bounds, "grid": shape, "marks": marks, **layout}
    return HostedTable(index=index, env_actions=actions, **about)


def _horizon(name: str, environment: gymnasium.Env[Any, Any], asked: int | None) -> int:
    own = environment.spec.max_episode_steps if environment.spec is not None else None
    own = own or getattr(environment.unwrapped, "max_steps", None)  # MiniGrid's limit
    if asked is None and own is None:
        raise ValueError(f"{name} has no limit on the length of an episode: give the horizon, its maximum number of actions")
    return int(asked or own or 0)


def map_shape(environment: gymnasium.Env[Any, Any], num_states: int) -> tuple[int, int] | None:
    """Rows and columns of a toy-text environment whose states lie on a map, numbered row by row."""
    core: Any = environment.unwrapped
    shape = getattr(core, "shape", None) or np.shape(getattr(core, "desc", ()))
    is_map = isinstance(shape, tuple) and len(shape) == 2 and shape[0] * shape[1] == num_states
    return (int(shape[0]), int(shape[1])) if is_map else None


def _marks(environment: gymnasium.Env[Any, Any], shape: tuple[int, int]) -> dict[str, list[int]]:
    """What a toy-text environment's description of its map, if it has one, says of the cells."""
    desc = np.asarray(getattr(environment.unwrapped, "desc", ()))
    if desc.shape != shape or desc.dtype.kind != "S":
        return {}
    found = {mark: np.flatnonzero(desc.ravel() == letter).tolist() for mark, letter in _LETTERS.items()}
    return {mark: states for mark, states in found.items() if states}


def _read_marks(marks: Any, num_states: int) -> dict[str, list[int]]:
    is_fine = isinstance(marks, dict) and set(marks) <= set(_LETTERS)
    for states in marks.values() if is_fine else ():
        is_fine &= isinstance(states, list) and all(type(each) is int and 0 <= each < num_states for each in states)
    if not is_fine:
        raise ValueError(
            f"the marks of a map are states from 0 to {num_states - 1} under {', '.join(_LETTERS)}, not {marks!r:.80}"
        )
    return marks
