"""Copies of an environment as Ray actors, one each, on any node of a cluster: one more vector environment for the pool."""

import contextlib
import logging
import math
import multiprocessing
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from farflung.config.checks import num_cores
from farflung.worlds.hosted.copies import FAILURES, Copy, CopyError
from farflung.worlds.hosted.modules import safe_children

_MOST_ATTEMPTS = 5
_SECONDS_TO_ANSWER = 10.0
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""No usage statistics are sent, and nothing is printed about GPUs that a task does not ask for."""


class LostError(Exception):
    """The process of an actor has ended, or its node is gone: no fault of the environment, as far as one can tell."""

    def __str__(self) -> str:
        return "lost an actor of Ray, or its node"


class ActorVectorEnv(VectorEnv[Any, Any, Any]):
    """Steps the copies side by side; failures are reported by copy, and single actors can be replaced."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def __init__(self, copies: Sequence[Copy], seconds_to_start: float) -> None:
        self._ray, self._folder = connected(), str(Path.cwd())
        self._copies, self._seconds, self.num_envs = copies, seconds_to_start, len(copies)
        self.failed: list[int] = []
        """The copies that failed in the last call."""
        total = self._ray.cluster_resources().get("CPU", 1.0)
        self._cpus = min(1.0, math.floor(1000 * total / len(copies)) / 1000)
        self._actors = [self._start(copy, self._cpus) for copy in copies]
        try:
            spaces = self._results([actor.spaces.remote() for actor in self._actors], range(len(copies)), seconds_to_start)
        except BaseException:
            self.kill()
            raise
        self.single_observation_space, self.single_action_space = spaces[0]
        self.observation_space = batch_space(self.single_observation_space, len(copies))
        self.action_space = batch_space(self.single_action_space, len(copies))
        self._seen = [create_empty_array(self.single_observation_space, n=1)] * len(copies)
        self._batch: Any = create_empty_array(self.single_observation_space, n=len(copies))

    def _start(self, copy: Copy, cpus: float) -> Any:
        actor = self._ray.remote(num_cpus=cpus, max_restarts=0, scheduling_strategy="SPREAD")(_Actor)
        return actor.remote(copy, self._folder)

    def reset_masked(self, is_due: np.ndarray, seeds: Sequence[int], timeout: float) -> tuple[Any, dict[str, Any]]:
        """Resets the copies that are due."""
        due = np.flatnonzero(is_due).tolist()
        found = self._results([self._actors[number].reset.remote(int(seeds[number])) for number in due], due, timeout)
        infos: dict[str, Any] = {}
        for number, (seen, info) in zip(due, found, strict=True):
            self._seen[number] = seen
            infos = self._add_info(infos, info, number)
        return concatenate(self.single_observation_space, self._seen, self._batch), infos

    def step_all(self, actions: Any, timeout: float) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        chosen = iterate(self.action_space, actions)
        calls = [actor.step.remote(action) for actor, action in zip(self._actors, chosen, strict=True)]
        seen, rewards, terminated, truncated, told = zip(*self._results(calls, range(self.num_envs), timeout), strict=True)
        self._seen = list(seen)
        infos: dict[str, Any] = {}
        for number, info in enumerate(told):
            infos = self._add_info(infos, info, number)
        observations = concatenate(self.single_observation_space, self._seen, self._batch)
        return observations, np.array(rewards, np.float64), np.array(terminated), np.array(truncated), infos

    def call(self, name: str, *arguments: Any, **options: Any) -> tuple[Any, ...]:
        calls = [actor.call.remote(name, *arguments, **options) for actor in self._actors]
        return tuple(self._results(calls, range(self.num_envs), self._seconds))

    def replace(self, numbers: Sequence[int]) -> None:
        """New actors for these copies; they ask for no CPU, since there may be none left after the loss of a node."""
        for attempt in range(_MOST_ATTEMPTS):
            for number in numbers:
                self._kill(self._actors[number])
                self._actors[number] = self._start(self._copies[number], 0.0)
            try:
                self._results([self._actors[number].spaces.remote() for number in numbers], numbers, self._seconds)
                return
            except LostError:  # on a node that is just being lost as well
                if attempt == _MOST_ATTEMPTS - 1:
                    raise
                numbers = self.failed

    def kill(self) -> None:
        for actor in self._actors:
            self._kill(actor)

    def _kill(self, actor: Any) -> None:
        with contextlib.suppress(Exception):  # it may be dead already
            self._ray.kill(actor)

    def close_extras(self, **_: Any) -> None:
        with contextlib.suppress(Exception):
            self._ray.wait([actor.close.remote() for actor in self._actors], num_returns=len(self._actors), timeout=5)
        self.kill()

    def _results(self, calls: list[Any], numbers: Sequence[int], timeout: float) -> list[Any]:
        """The results of calls; raises TimeoutError, the error of a copy, or `LostError`."""
        self.failed = []
        try:
            return self._ray.get(calls, timeout=timeout)
        except self._ray.exceptions.GetTimeoutError:
            _, late = self._ray.wait(calls, num_returns=len(calls), timeout=0, fetch_local=False)
            self.failed = [number for number, call in zip(numbers, calls, strict=True) if call in late]
            raise multiprocessing.TimeoutError from None
        except self._ray.exceptions.RayError:
            # The first error comes at once; the other copies finish their steps, so that each is known to be well or not.
            ready, _ = self._ray.wait(calls, num_returns=len(calls), timeout=timeout, fetch_local=False)
            pairs = [(number, call) for number, call in zip(numbers, calls, strict=True) if call in ready]
            errors = dict(self._errors(pairs))
        raised = {number: error for number, error in errors.items() if not isinstance(error, LostError)}
        self.failed = list(raised or errors)
        raise (raised or errors)[self.failed[0]]

    def _errors(self, calls: list[tuple[int, Any]]) -> Iterator[tuple[int, Exception]]:
        for number, call in calls:
            try:
                self._ray.get(call)
            except self._ray.exceptions.RayTaskError as error:
                yield number, error.cause if isinstance(error.cause, Exception) else error
            except self._ray.exceptions.RayActorError as error:
                # What the constructor has raised is text alone by now: the last line names the exception.
                yield number, CopyError(str(error).splitlines()[-1]) if error.actor_init_failed else LostError()
            except self._ray.exceptions.RayError:
                yield number, LostError()


class _Actor:
    """One copy, in its own process."""

    def __init__(self, copy: Copy, folder: str) -> None:
        with contextlib.suppress(OSError):  # it may not be on this node
            os.chdir(folder)
        if copy.own_modules is not None:
            sys.meta_path.append(copy.own_modules)
        self._env = copy()

    def spaces(self) -> tuple[Any, Any]:
        return self._env.observation_space, self._env.action_space

    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        return self._env.reset(seed=seed)

    def step(self, action: Any) -> Any:
        return self._env.step(action)

    def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        return getattr(self._env, name)(*arguments, **options)

    def close(self) -> None:
        with contextlib.suppress(*FAILURES):
            self._env.close()


def check_ray() -> None:
    """Raises ValueError if Ray is not installed."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray  # noqa: F401
    except ImportError:
        raise ValueError("the launcher ray needs Ray: pip install '.[ray]', in a clone of farflung") from None


def connected(address: str | None = None) -> Any:
    """Ray, connected to a cluster, unless the program was connected to one already.

    Args:
        address: of the cluster, by default that in RAY_ADDRESS; without any, a cluster starts here and ends with this process.
    """
    check_ray()
    import ray

    if ray.is_initialized():
        return ray
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    own: dict[str, Any] = {"num_cpus": num_cores(), "include_dashboard": False} if address == "local" else {}
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with warnings.catch_warnings(), safe_children(), _modules_not_from_here():
            # JAX warns of every fork; Ray's processes start another program at once, so that they hold no lock of JAX.
            warnings.filterwarnings("ignore", message=".*fork", category=RuntimeWarning)
            _check_answers(address)
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **own)
    except (OSError, RuntimeError, ValueError) as error:
        reason = next(filter(None, str(error).splitlines()), type(error).__name__)
        raise ValueError(f"cannot connect to Ray at {address}: {reason}") from None
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():  # Ray has some of its own, which would end the process at once
            signal.signal(number, handler)
    return ray


def _check_answers(address: str) -> None:
    """Raises OSError if nobody listens at HOST:PORT: Ray would try again for many minutes."""
    host, _, port = address.rpartition(":")
    if host and "/" not in host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS_TO_ANSWER).close()


@contextlib.contextmanager
def _modules_not_from_here() -> Iterator[None]:
    """Keeps Ray's processes from looking for modules in the current folder, unless this one does; Ray would search it first."""
    here = str(Path.cwd())
    with contextlib.nullcontext() if {"", here} & {*sys.path} else contextlib.chdir(Path(here).anchor):
        yield
