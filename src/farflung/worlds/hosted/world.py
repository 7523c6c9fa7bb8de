"""The base of all worlds stepped on the host."""

import abc
import dataclasses
import json
import os
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import equinox as eqx
import gymnasium

from farflung.config.checks import check_name, check_positive, check_text, num_cores, unknown_name, whole_number
from farflung.config.imports import check_installed
from farflung.config.options import COMPILED_TWINS, WORKER_LAUNCHERS
from farflung.config.reading import reason, spend_on_options, where_raised
from farflung.entropy.counts import ragged_plug_in
from farflung.entropy.objective import Objective
from farflung.worlds.encoder import Image
from farflung.worlds.hosted.actors import check_ray
from farflung.worlds.hosted.copies import FAILURES, Make, Observe
from farflung.worlds.hosted.modules import is_named
from farflung.worlds.hosted.pool import Pool
from farflung.worlds.projection import Actions, Discrete, Projection
from farflung.worlds.world import World, read_arguments

COPIES = 64
_MOST_COPIES, _MOST_WORKERS_PER_CORE = 10_000, 32
_MOST_SECONDS = 10**6
_SETTINGS = {"environment", "options", "horizon", "observe", "features", "bins", "low", "high"}


class View(eqx.Module):
    """The part of a host-stepped world that compiled code reads."""

    horizon: int = eqx.field(static=True)
    actions: Actions
    num_states: int = eqx.field(static=True)
    """If states are still being discovered, the number that there is room for."""
    projection: Projection | None = None
    observation_center: tuple[float, ...] = eqx.field(static=True, default=())
    observation_scale: tuple[float, ...] = eqx.field(static=True, default=())
    image: Image | None = eqx.field(static=True, default=None)

    may_end_early = True

    @property
    def num_table_rows(self) -> int:
        """One more than there are states: the last row is for the time after an episode's end."""
        return self.num_states + 1

    @property
    def num_actions(self) -> int:
        return self.actions.num if isinstance(self.actions, Discrete) else self.actions.size

    @property
    def entropy(self) -> Objective:
        return ragged_plug_in(self.num_states) if self.projection is None else self.projection.entropy(is_ragged=True)


@dataclass(frozen=True, eq=False, kw_only=True)
class HostedWorld(World):
    """A world whose copies are stepped one call at a time, in this process or in workers."""

    is_hosted = True

    name: str
    make: Make | None
    """Makes a copy of the environment; None for a world read from disk."""
    horizon: int
    settings: dict[str, Any] = field(default_factory=dict)
    """Saved with a run, to make the same world again; empty if that is impossible."""
    arguments: tuple[str, ...] = ()
    observe: Observe | None = None
    features: Observe | None = None
    """What copies give beside observations, for the entropy alone."""
    copies: int = COPIES
    workers: int = 0
    timeout: float = 60.0
    launcher: str = WORKER_LAUNCHERS[0]
    """Where worker processes run: on this machine, or as actors on a Ray cluster."""
    failures: list[str] = field(default_factory=list)
    """Failures that the copies have reported so far."""

    @property
    def hosted(self) -> "HostedWorld":
        return self

    @property
    def may_end_early(self) -> bool:
        return True

    @property
    def entropy(self) -> Objective:
        return self.view().entropy

    @abc.abstractmethod
    def view(self) -> View:
        """The part of the world that compiled code reads, as it is now."""

    @property
    def identity(self) -> Hashable:
        return self.name, self.horizon, json.dumps(self.settings, default=repr), self.projection

    @property
    def stepping(self) -> dict[str, Any]:
        elsewhere = {"launcher": self.launcher} if self.launcher != WORKER_LAUNCHERS[0] else {}
        return {"copies": self.copies, "workers": self.workers, "timeout": self.timeout, **elsewhere}

    def with_environment(self, **stepping: Any) -> Any:
        """Raises ValueError if a world read from disk cannot be made again, or only by importing code that is not installed."""
        stepping = checked_stepping(**self.stepping | stepping)
        if self.make is not None:
            return dataclasses.replace(self, **stepping)
        if not self.settings:
            raise ValueError(f"{self.name} cannot be made from its saved settings: give the environment itself, as hosted(...)")
        if ":" in self.settings["environment"]:
            check_installed(self.settings["environment"], self.name, f"--world {self.settings['environment']}")
        if not is_named(self.settings["environment"]):
            _check_no_files(self.settings["options"], self.settings["environment"])
        return self.remade(**stepping)

    @abc.abstractmethod
    def remade(self, **stepping: Any) -> "HostedWorld":
        """The world read from disk with the environment that its settings describe."""

    @property
    def notes(self) -> list[str]:
        twin = COMPILED_TWINS.get(self.settings.get("environment", ""))
        hint = f"{self.name} is stepped in Python: the world {twin} is the same environment, compiled and far faster"
        return [*super().notes, *([hint] if twin else [])]

    def about_stepping(self, num_agents: int, num_episodes: int) -> dict[str, Any]:
        workers = min(self.most_workers, num_episodes)
        return {"copies": self.num_copies(num_agents, num_episodes), "workers": workers, "failures": list(self.failures)}

    @property
    def most_workers(self) -> int:
        """As many as asked for, but no more than this machine can take, if they run here; results don't depend on it."""
        if self.launcher != WORKER_LAUNCHERS[0]:
            return self.workers
        return min(self.workers, _MOST_WORKERS_PER_CORE * num_cores())

    def rendered(self) -> "HostedWorld":
        """The world whose copies render frames; raises ValueError if they cannot."""
        make = self.make
        if self.settings:
            options = self.settings["options"] | {"render_mode": "rgb_array"}
            make = from_id(self.settings["environment"], options, self.horizon)
        assert make is not None
        first = first_copy(make, self.name)
        mode = first.render_mode
        first.close()
        if mode != "rgb_array":
            raise ValueError(f"{self.name} renders no frames: make it with render_mode='rgb_array'")
        return dataclasses.replace(self, make=make)

    def open(self, num_agents: int, num_episodes: int, *, has_infos: bool = False) -> Pool:
        """Opens the copies in which `num_agents` agents play `num_episodes` episodes at a time."""
        assert self.make is not None, "a world read from disk has no environment: call with_environment() first"
        num_copies = self.num_copies(num_agents, num_episodes)
        stepping = (num_copies, self.workers > 0, self.timeout)
        return Pool(self.name, self.make, self.observe, self.features, *stepping, self.failures, has_infos, self.launcher)

    def num_copies(self, num_agents: int, num_episodes: int) -> int:
        """Number of copies: equally many for each agent, and at most one per episode."""
        return min(self.most_workers or -(-self.copies // num_agents) * num_agents, num_episodes)


def checked_stepping(copies: Any, workers: Any, timeout: Any, launcher: Any = WORKER_LAUNCHERS[0]) -> dict[str, Any]:
    """How copies are stepped, as a user or a file says it, checked."""
    check_positive("timeout", timeout, _MOST_SECONDS)
    workers = 0 if workers == 0 else whole_number("workers", workers)
    check_name("launcher", launcher, WORKER_LAUNCHERS)
    if launcher == "ray":
        if workers == 0:
            raise ValueError("the launcher ray needs workers, the number of its actors: give --workers")
        check_ray()
    copies = whole_number("copies", copies, _MOST_COPIES)
    return {"copies": copies, "workers": workers, "timeout": timeout, "launcher": launcher}


def from_id(environment: str, options: dict[str, Any], horizon: int | None) -> Make:
    """Makes the environment of a Gymnasium id, with an optional limit on the length of episodes."""
    return partial(gymnasium.make, environment, **({"max_episode_steps": horizon} | options))


def first_copy(make: Make, name: str) -> gymnasium.Env[Any, Any]:
    """An environment to look at; raises ValueError of one line if it cannot be made."""
    try:
        environment = make()
    except (gymnasium.error.NameNotFound, gymnasium.error.NamespaceNotFound):
        where = ["a Gymnasium id, or module:id to import it first"]
        raise ValueError(unknown_name("environment", name, gymnasium.registry, where)) from None
    except FAILURES as error:
        kind = "" if isinstance(error, gymnasium.error.Error | ImportError) else f"{where_raised(error)}: "
        raise ValueError(f"Gymnasium cannot make {name!r}: {kind}{reason(error)}") from error
    if not isinstance(environment, gymnasium.Env):
        raise ValueError(f"{name} must make a gymnasium.Env, not {environment!r:.80}")
    return environment


def _check_no_files(options: Any, environment: str) -> None:
    """Raises ValueError if options from a file name another file: what an environment reads there may do, or take, anything."""
    if isinstance(options, str) and (os.sep in options or options.startswith("~") or os.path.exists(options)):  # noqa: PTH110
        raise ValueError(
            f"{environment} would read {options[:80]!r}: if you trust that, name the environment with --world {environment}, "
            "or in Python give it again, as hosted(...)"
        )
    for each in options.values() if isinstance(options, dict) else options if isinstance(options, list | tuple) else ():
        _check_no_files(each, environment)


def read_hosted(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields that all host-stepped worlds share, checked, from those of a file."""
    name, settings = fields.pop("name"), fields.pop("settings")
    check_text("the name of a world", name)
    if not isinstance(settings, dict) or not settings.keys() <= _SETTINGS:
        raise ValueError(f"the settings of {name} must be among {', '.join(sorted(_SETTINGS))}")
    if settings and not (isinstance(settings.get("environment"), str) and isinstance(settings.get("options"), dict)):
        raise ValueError(f"the settings of {name} lack the environment or its options")
    spend_on_options(settings)
    # JSON has no tuples.
    settings = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
    horizon, arguments = whole_number("horizon", fields.pop("horizon")), read_arguments(fields.pop("arguments", []))
    return {"name": name, "settings": settings, "horizon": horizon, "arguments": arguments, "make": None}
