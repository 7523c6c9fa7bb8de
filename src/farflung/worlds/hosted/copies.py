"""One copy of a simulator, made where it runs: worker processes import this module, so JAX stays out of it."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

Make = Callable[[], gymnasium.Env[Any, Any]]
Observe = tuple[str, ...] | Callable[[gymnasium.Env[Any, Any], Any], Any]
"""Names of attributes, or a function of an environment and its observation."""


@dataclass(frozen=True)
class FromId:
    """Makes the environment of a Gymnasium id, with episodes of a given length at most."""

    environment: str
    options: dict[str, Any] = field(default_factory=dict)
    max_episode_steps: int | None = None

    def __call__(self) -> gymnasium.Env[Any, Any]:
        return gymnasium.make(self.environment, max_episode_steps=self.max_episode_steps, **self.options)


@dataclass(frozen=True)
class Copy:
    """Makes one copy of a simulator, ready to be stepped here or in a worker process."""

    make: Make
    observe: Observe | None
    number: int

    def __call__(self) -> gymnasium.Env[Any, Any]:
        if multiprocessing.parent_process() is not None:
            for number in (signal.SIGINT, signal.SIGTERM):  # these are for who waits for the workers
                signal.signal(number, signal.SIG_IGN)
        environment = self.make()
        if self.observe is not None:
            environment = Observed(environment, self.observe)
        return Watched(environment, self.number)


class CopyError(Exception):
    """What went wrong in a copy, in words, so that it passes from a worker whatever it was."""

    number = -1
    """Of the copy, where it runs in this process."""

    @classmethod
    def of(cls, number: int, error: Exception) -> "CopyError":
        found = cls(f"{type(error).__name__}: {error}")
        found.number = number
        return found


class Watched(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Says in which of many copies an error occurred."""

    def __init__(self, env: gymnasium.Env[Any, Any], number: int) -> None:
        super().__init__(env)
        self._number = number
        self._step = env.step

    def step(self, action: Any) -> Any:
        try:
            return self._step(action)
        except Exception as error:
            raise CopyError.of(self._number, error) from error

    def reset(self, **options: Any) -> Any:
        try:
            return self.env.reset(**options)
        except Exception as error:
            raise CopyError.of(self._number, error) from error

    def close(self) -> None:
        try:
            super().close()
        finally:
            waiting = multiprocessing.parent_process()
            if waiting is not None and not waiting.is_alive():
                os._exit(1)  # there is nobody to report to, and Gymnasium's worker would do it on the terminal


class Observed(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Observes something else than its environment does: some of its attributes, or what a function makes of it."""

    def __init__(self, env: gymnasium.Env[Any, Any], observe: Observe) -> None:
        super().__init__(env)
        self._observe = observe
        observation, _ = env.reset(seed=0)
        self._dtype: np.dtype[Any] = np.dtype(np.int64)
        seen = self._look(observation, None)
        if not (np.issubdtype(seen.dtype, np.integer) or np.issubdtype(seen.dtype, np.floating) or seen.dtype == bool):
            raise ValueError(f"what is observed must be numbers, not {seen.dtype}")
        if np.issubdtype(seen.dtype, np.floating):
            self._dtype = np.dtype(np.float64)
            self.observation_space = spaces.Box(-np.inf, np.inf, seen.shape, np.float64)
        else:
            limits = np.iinfo(np.int64)
            self.observation_space = spaces.Box(limits.min, limits.max, seen.shape, np.int64)

    def step(self, action: Any) -> Any:
        observation, *rest = self.env.step(action)
        return self._look(observation, self._dtype), *rest

    def reset(self, **options: Any) -> Any:
        observation, info = self.env.reset(**options)
        return self._look(observation, self._dtype), info

    def _look(self, observation: Any, dtype: np.dtype[Any] | None) -> np.ndarray:
        if callable(self._observe):
            return np.atleast_1d(np.asarray(self._observe(self.env, observation), dtype))
        return np.concatenate([np.asarray(self._attribute(name), dtype).reshape(-1) for name in self._observe])

    def _attribute(self, name: str) -> Any:
        try:
            return self.env.get_wrapper_attr(name)
        except AttributeError:
            raise ValueError(f"{type(self.env.unwrapped).__name__} has no attribute {name!r} to observe") from None
