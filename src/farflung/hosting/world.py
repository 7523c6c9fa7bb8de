"""Any Gymnasium environment with finitely many actions as a world that is stepped from outside JAX."""

import copy
import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Int

from farflung.checks import check_positive, unknown_name, whole_number
from farflung.hosting.copies import FromId, Make, Observe, Observed
from farflung.hosting.indexing import Known, Met, StateIndex, actions_of, state_index
from farflung.hosting.pool import Pool

_COPIES = 64
_MOST_CELLS = 1_000_000


@dataclass(frozen=True, eq=False)
class HostedWorld:
    """A world whose copies are stepped one call at a time; make one with `hosted`, which checks its input.

    An episode lasts `horizon` actions at most and may end earlier; the states of a shorter one count as they are.
    """

    name: str
    make: Make | None
    """What makes a copy; None for a world read from disk that nobody there can make."""
    horizon: int
    index: StateIndex
    """How observations become states; where the space says not how many there are, it learns them as they are met."""
    actions: list[Any]
    """What the environment takes for each number of an action."""
    settings: dict[str, Any] = field(default_factory=dict)
    """What it takes to make the same world again, for who saves it."""
    observe: Observe | None = None
    copies: int = _COPIES
    workers: int = 0
    timeout: float = 60.0
    grid: tuple[int, int] | None = None
    """Rows and columns, where states are numbered row by row of a map."""
    failures: list[str] = field(default_factory=list)
    """What its copies have reported so far."""

    @property
    def num_states(self) -> int:
        return self.index.num_states

    @property
    def num_actions(self) -> int:
        return len(self.actions)

    @property
    def positions(self) -> Int[np.ndarray, "state 2"] | None:
        """Row and column of each state where the states lie on a map: where two numbers, x and y, tell them apart."""
        if self.grid is not None:
            return np.stack(np.unravel_index(np.arange(self.num_states), self.grid), axis=-1)
        features = self.index.features
        if features.shape[1:] != (2,) or np.prod(np.ptp(features, axis=0) + 1.0) > _MOST_CELLS:
            return None
        return features[:, ::-1] - features.min(axis=0)[::-1]

    @property
    def start_states(self) -> Int[np.ndarray, " start"]:
        """None that are known before it is played."""
        return np.zeros(0, np.int64)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """What is to be kept of it: enough to look at results, and to make it again if it has an id."""
        kept = {"name": self.name, "horizon": self.horizon, "num_actions": self.num_actions, "grid": self.grid}
        return {"hosted": np.array(json.dumps(kept | {"settings": self.settings})), "features": self.index.features}

    @staticmethod
    def from_arrays(hosted: Any, features: Int[np.ndarray, "state feature"]) -> "HostedWorld":
        """What `to_arrays` has kept; the environment itself is made when it is first played."""
        kept = json.loads(str(hosted))
        grid = None if kept["grid"] is None else tuple(kept["grid"])
        actions, settings = list(range(kept["num_actions"])), kept["settings"]
        return HostedWorld(kept["name"], None, kept["horizon"], Known(features), actions, settings, grid=grid)

    def made(self, **changes: Any) -> "HostedWorld":
        """The world with its environment, where it was read from disk.

        Args:
            changes: to how it is stepped, such as `workers`.
        """
        if self.make is not None:
            return dataclasses.replace(self, **changes)
        if not self.settings:
            raise ValueError(f"{self.name} cannot be made from what was saved: give the environment itself, as hosted(...)")
        settings = {name: value for name, value in self.settings.items() if name != "options"}
        again = hosted(**settings, **self.settings["options"], **changes)
        if isinstance(again.index, Met):
            again.index.know(self.index.features)
        return again

    def as_it_is(self) -> "HostedWorld":
        """The world with the states that are known by now; those that are met later are not added to it."""
        return dataclasses.replace(self, index=copy.deepcopy(self.index))

    def as_json(self, num_agents: int, num_episodes: int) -> dict[str, Any]:
        """How it is stepped by so many agents for so many episodes at a time, and what has failed so far."""
        workers = min(self.workers, num_episodes)
        return {"copies": self._num_copies(num_agents, num_episodes), "workers": workers, "failures": list(self.failures)}

    def _num_copies(self, num_agents: int, num_episodes: int) -> int:
        """Equally many for each agent, and no more than there are episodes."""
        return min(self.workers or -(-self.copies // num_agents) * num_agents, num_episodes)

    def open(self, num_agents: int, num_episodes: int) -> Pool:
        """The copies for so many agents, which play so many episodes at a time."""
        assert self.make is not None, "a world from disk is made first"
        return Pool(
            self.name,
            self.make,
            self.observe,
            self.actions,
            copies=self._num_copies(num_agents, num_episodes),
            is_parallel=self.workers > 0,
            timeout=self.timeout,
            failures=self.failures,
        )


def hosted(
    environment: str | Callable[[], gymnasium.Env[Any, Any]],
    *,
    horizon: int | None = None,
    observe: str | Observe | None = None,
    bins: int | Sequence[int] | None = None,
    low: float | int | Sequence[float | int] | None = None,
    high: float | int | Sequence[float | int] | None = None,
    copies: int = _COPIES,
    workers: int = 0,
    timeout: float | int = 60.0,
    **options: Any,
) -> HostedWorld:
    """A Gymnasium environment as a world, without a transition table: its copies are stepped on the host.

    >>> hosted("FrozenLake-v1", horizon=20).num_states
    16

    Args:
        environment: an id that Gymnasium knows (`module:id` imports the module first), or a function that makes one.
        horizon: actions in an episode, at most; by default the environment's own limit.
        observe: what the state is instead of the observation: an attribute of the environment (MiniGrid's `agent_pos`),
            several of them, or a function of the environment and its observation that returns numbers.
        bins: into how many parts each real number of an observation is divided, one for all or one for each.
        low: where the bins begin, by default where the observation space does.
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
    bounds = {key: None if value is None else np.atleast_1d(value).tolist() for key, value in limits.items()}
    try:
        seen = first if observe is None else Observed(first, observe)
        index = state_index(seen.observation_space, bins=bounds["bins"], low=bounds["low"], high=bounds["high"])
        actions = actions_of(seen.action_space)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    grid = map_shape(first, index.num_states) if observe is None and index.is_complete else None
    first.close()
    settings = {"environment": given, "options": options, "horizon": horizon}
    settings |= bounds | {"observe": None if callable(observe) else observe}
    is_made_anew = bool(given) and not callable(observe)
    return HostedWorld(
        name, make, horizon, index, actions, settings if is_made_anew else {}, observe, copies, workers, timeout, grid
    )


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
