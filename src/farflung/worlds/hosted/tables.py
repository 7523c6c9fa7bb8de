"""Any Gymnasium environment as a world that is stepped from outside JAX."""

import copy
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import Float, Int

from farflung.config.checks import check_positive, unknown_name, whole_number
from farflung.config.reading import one_line_errors, parse_object
from farflung.worlds.hosted.copies import FromId, Make, Observe, Observed
from farflung.worlds.hosted.indexing import Known, Met, StateIndex, actions_of, num_reals, state_index
from farflung.worlds.hosted.players import TablePlayer
from farflung.worlds.hosted.vectors import HostedVectors, vector_world
from farflung.worlds.hosted.world import COPIES, HostedWorld, View, read_stepped
from farflung.worlds.projection import Discrete
from farflung.worlds.world import World

_MOST_CELLS = 1_000_000
_FIRST_CAPACITY, _GROWTH = 1024, 4


@dataclass(frozen=True, eq=False, kw_only=True)
class HostedTable(HostedWorld):
    """A world with finitely many states and actions, stepped on the host; make one with `hosted`, which checks its input.

    An episode lasts `horizon` actions at most and may end earlier; the states of a shorter one count as they are.
    """

    index: StateIndex
    """How observations become states; where the space says not how many there are, it learns them as they are met."""
    env_actions: list[Any]
    """What the environment takes for each number of an action."""
    grid: tuple[int, int] | None = None
    """Rows and columns, where states are numbered row by row of a map."""

    @property
    def num_states(self) -> int:
        return self.index.num_states

    projection = None

    @property
    def actions(self) -> Discrete:  # type: ignore[override]
        return Discrete(len(self.env_actions))

    def seen(self, observation: Any) -> int:
        return int(self.index(_one(observation))[0])

    def action_for_environment(self, action: np.ndarray) -> Any:
        return self.env_actions[int(action)]

    @property
    def knows_all_states(self) -> bool:  # type: ignore[override]
        return self.index.is_complete

    def view(self) -> View:
        """With room for all states, or for those that were met and more: how much depends on their number alone."""
        capacity = _FIRST_CAPACITY
        while capacity < self.num_states:
            capacity *= _GROWTH
        return View(self.horizon, self.actions, self.num_states if self.knows_all_states else capacity)

    @property
    def positions(self) -> Int[np.ndarray, "state 2"] | None:  # type: ignore[override]
        """Row and column of each state where the states lie on a map: where two numbers, x and y, tell them apart."""
        if self.grid is not None:
            return np.stack(np.unravel_index(np.arange(self.num_states), self.grid), axis=-1)
        features = self.index.features
        if features.shape[1:] != (2,) or np.prod(np.ptp(features, axis=0) + 1.0) > _MOST_CELLS:
            return None
        return features[:, ::-1] - features.min(axis=0)[::-1]

    def to_arrays(self) -> dict[str, np.ndarray]:
        """What is to be kept of it: enough to look at results, and to make it again if it has an id."""
        kept = {"name": self.name, "horizon": self.horizon, "num_actions": self.num_actions, "grid": self.grid}
        return {"hosted": np.array(json.dumps(kept | {"settings": self.settings})), "features": self.index.features}

    @staticmethod
    def from_arrays(arrays: Mapping[str, np.ndarray]) -> "HostedTable":
        """The world that `to_arrays` describes, without its environment."""
        kept, features = parse_object(str(arrays["hosted"])), arrays["features"]
        about = read_stepped(kept)
        if features.ndim != 2 or not np.issubdtype(features.dtype, np.integer):
            raise ValueError(f"the features of states are whole numbers [state, feature], not {features.dtype}{features.shape}")
        grid = None if kept["grid"] is None else tuple(whole_number("grid", size) for size in kept["grid"])
        if grid is not None and (len(grid) != 2 or grid[0] * grid[1] != len(features)):
            raise ValueError(f"a map of {grid} cells does not hold {len(features)} states")
        actions = list(range(whole_number("num_actions", kept["num_actions"], _MOST_CELLS)))
        return HostedTable(**about, index=Known(features), env_actions=actions, grid=grid)

    def with_environment(self, **stepping: Any) -> "HostedTable":
        if self.make is not None:
            return dataclasses.replace(self, **stepping)
        self.check_settings()
        settings = {name: value for name, value in self.settings.items() if name != "options"}
        with one_line_errors(f"{self.name} cannot be made from what was saved"):
            again = hosted(**settings, **self.settings["options"], **stepping)
            assert isinstance(again, HostedTable), "its states are vectors by now"
        again.add_states_of(self)
        return again

    def add_states_of(self, other: World) -> None:
        if isinstance(self.index, Met) and isinstance(other, HostedTable):
            self.index.know(other.index.features)

    def snapshot(self) -> "HostedTable":
        return dataclasses.replace(self, index=copy.deepcopy(self.index))

    def player(
        self,
        thresholds: Float[np.ndarray, "policy step row action"],
        policies: Int[np.ndarray, " episode"],
        noise: Float[np.ndarray, "episode time"],
    ) -> TablePlayer:
        """Who plays in it by tables, as `TablePlayer` takes them."""
        return TablePlayer(self.index, np.asarray(self.env_actions), thresholds, policies, noise)


def hosted(
    environment: str | Callable[[], gymnasium.Env[Any, Any]],
    *,
    horizon: int | None = None,
    observe: str | Observe | None = None,
    project: int | Sequence[int] | None = None,
    neighbours: int | None = None,
    bins: int | Sequence[int] | None = None,
    low: float | int | Sequence[float | int] | None = None,
    high: float | int | Sequence[float | int] | None = None,
    copies: int = COPIES,
    workers: int = 0,
    timeout: float | int = 60.0,
    **options: Any,
) -> HostedTable | HostedVectors:
    """A Gymnasium environment as a world, without a transition table: its copies are stepped on the host.

    Where observations are real numbers, its states are vectors and policies networks; divided into `bins`, with finitely many
    actions and neither `project` nor `neighbours`, they are finitely many states, and policies tables.

    >>> hosted("FrozenLake-v1", horizon=20).num_states
    16
    >>> hosted("Pendulum-v1").projection.names
    ('observation 0', 'observation 1', 'observation 2')

    Args:
        environment: an id that Gymnasium knows (`module:id` imports the module first), or a function that makes one.
        horizon: actions in an episode, at most; by default the environment's own limit.
        observe: what the state is instead of the observation: an attribute of the environment (MiniGrid's `agent_pos`),
            several of them, or a function of the environment and its observation that returns numbers.
        project: which numbers of an observation, from 0 on, the entropy of vectors is about; by default all of them if there
            are no more than three, else the first two.
        neighbours: that entropy comes from the distance to that neighbour of each state; with 0, from counts over a grid.
        bins: into how many parts each real number of an observation is divided, one for all or one for each; of vectors, each
            number that is projected on, for a grid on which coverage is counted, by default 20.
        low: where the bins begin, by default where the observation space does; of vectors without bounds, so that they are
            three times as wide as what random actions reach.
        high: where the bins end.
        copies: of the environment that are stepped together in this process.
        workers: processes with a copy each, for slow simulators; 0 steps all copies in this one.
        timeout: seconds after which a worker that gives no answer is restarted.
        options: passed on to `gymnasium.make`.
    """
    check_positive("timeout", timeout)
    observe = (observe,) if isinstance(observe, str) else observe if observe is None or callable(observe) else tuple(observe)
    copies = whole_number("copies", copies)
    workers = 0 if workers == 0 else whole_number("workers", workers)
    horizon = None if horizon is None else whole_number("horizon", horizon)
    make: Make = FromId(environment, options, horizon) if isinstance(environment, str) else environment
    if options and not isinstance(environment, str):
        raise ValueError(f"{', '.join(options)}: options are for environments that are given by their id")
    given = environment if isinstance(environment, str) else ""
    try:
        first = make()
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        raise ValueError(_cannot_make(given or getattr(environment, "__name__", repr(environment)), error)) from None
    name = given or type(first.unwrapped).__name__
    horizon = _horizon(name, first, horizon)
    limits: dict[str, Any] = {"bins": bins, "low": low, "high": high}
    bounds: dict[str, Any] = {key: None if value is None else np.atleast_1d(value).tolist() for key, value in limits.items()}
    recipe = {"environment": given, "options": options, "horizon": horizon, "observe": None if callable(observe) else observe}
    settings = recipe if given and not callable(observe) else {}
    stepping: dict[str, Any] = {"observe": observe, "copies": copies, "workers": workers, "timeout": timeout}
    about: dict[str, Any] = {"name": name, "make": make, "horizon": horizon, **stepping}
    try:
        seen = first if observe is None else Observed(first, observe)
        is_projected = project is not None or neighbours is not None
        has_choices = not isinstance(seen.action_space, spaces.Box)
        if num_reals(seen.observation_space) and (bins is None or is_projected or not has_choices):
            chosen = None if project is None else np.atleast_1d(project).tolist()
            return vector_world(seen, settings=settings, project=chosen, neighbours=neighbours, **bounds, **about)
        if is_projected:
            raise ValueError("project and neighbours are for observations of real numbers, and these have none")
        index = state_index(seen.observation_space, bins=bounds["bins"], low=bounds["low"], high=bounds["high"])
        actions = actions_of(seen.action_space)
        grid = map_shape(first, index.num_states) if observe is None and index.is_complete else None
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    finally:
        first.close()
    return HostedTable(index=index, env_actions=actions, settings=settings and settings | bounds, grid=grid, **about)


def _one(observation: Any) -> Any:
    """One observation as a batch."""
    if isinstance(observation, dict):
        return {key: _one(part) for key, part in observation.items()}
    return tuple(map(_one, observation)) if isinstance(observation, tuple) else np.asarray(observation)[None]


def _cannot_make(name: str, error: Exception) -> str:
    message = str(error).splitlines()[0] if str(error) else type(error).__name__
    if isinstance(error, gymnasium.error.NameNotFound | gymnasium.error.NamespaceNotFound):
        return unknown_name("environment", name, gymnasium.registry, ["a Gymnasium id, or module:id to import it first"])
    return f"Gymnasium cannot make {name!r}: {message}"


def _horizon(name: str, environment: gymnasium.Env[Any, Any], asked: int | None) -> int:
    own = environment.spec.max_episode_steps if environment.spec is not None else None
    own = own or getattr(environment.unwrapped, "max_steps", None)  # where MiniGrid keeps it
    if asked is None and own is None:
        raise ValueError(f"{name} has no limit on an episode: give the horizon, the most actions in one")
    return int(asked or own or 0)


def map_shape(environment: gymnasium.Env[Any, Any], num_states: int) -> tuple[int, int] | None:
    """Rows and columns of a toy-text environment whose states lie on a map, numbered row by row."""
    core: Any = environment.unwrapped
    shape = getattr(core, "shape", None) or np.shape(getattr(core, "desc", ()))
    is_map = isinstance(shape, tuple) and len(shape) == 2 and shape[0] * shape[1] == num_states
    return (int(shape[0]), int(shape[1])) if is_map else None
