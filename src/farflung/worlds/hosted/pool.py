"""Copies of an environment that play episodes side by side; if a copy fails, the others go on."""

import contextlib
import multiprocessing
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from jaxtyping import Int

from farflung.config.options import WORKER_LAUNCHERS
from farflung.worlds.hosted.actors import ActorVectorEnv, LostError
from farflung.worlds.hosted.copies import NUMBERS, Copy, CopyError, Make, Observe
from farflung.worlds.hosted.modules import safe_children
from farflung.worlds.hosted.players import Episodes, Player

_MOST_ATTEMPTS = 3
_MOST_IDLE_ATTEMPTS = 100
_SECONDS_TO_DIE = 1.0
_SECONDS_TO_START = 60.0
_SEEDS = 2**31 - 1
_MOST_INFO_COLUMNS = 64


class SimulatorWarning(RuntimeWarning):
    """A copy of an environment failed and was replaced, or gave a state that is not finite."""


@dataclass(eq=False)
class Pool:
    """Copies of an environment, in this process or in one worker process each, here or on a Ray cluster.

    Each episode has its own seed, so episodes depend neither on the number of copies nor on which copy plays them.
    """

    name: str
    make: Make
    observe: Observe | None
    features: Observe | None
    num_copies: int
    is_parallel: bool
    """Whether each copy has its own process."""
    timeout: float
    failures: list[str]
    """Reports of failed copies are added to it."""
    has_infos: bool = False
    """Whether the numbers in the environment's infos are recorded."""
    launcher: str = WORKER_LAUNCHERS[0]
    """Where worker processes run."""

    def __post_init__(self) -> None:
        self._vector: SyncVectorEnv | AsyncVectorEnv | ActorVectorEnv = self._open()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind in (None, GeneratorExit):
            try:
                self._vector.close()
                return
            except Exception as error:  # the work is done, and must not be lost for that
                warnings.warn(f"{self.name} cannot be closed: {_one_line(error)}", SimulatorWarning, stacklevel=2)
        self._kill()

    def play(
        self,
        player: Player,
        agents: Int[np.ndarray, " episode"],
        seeds: Int[np.ndarray, " episode"],
        frames: dict[int, list[np.ndarray]] | None = None,
    ) -> Episodes:
        """Plays one episode for each seed.

        Args:
            agents: the agent that plays each episode; each agent has its own copies.
            frames: gets the frames that the environment renders in each episode.
        """
        num_episodes, horizon = len(seeds), player.horizon
        # Idle copies play episode -1, so they write into an extra last row.
        states, actions = player.blank(num_episodes + 1)
        over, nothing = states[0, 0].copy(), actions[0, 0].copy()
        rewards = np.zeros((num_episodes + 1, horizon), np.float32)
        is_terminated, broken = np.zeros(num_episodes + 1, bool), np.zeros(num_episodes + 1, np.int32)
        seeds = np.append(np.asarray(seeds, np.int64), 1)
        attempts = np.zeros_like(seeds)
        infos = _Infos(states.shape[:2])
        waiting, owners = self._queues(agents)

        slots = np.full(self.num_copies, -1)  # the episode that each copy plays
        times = np.zeros(self.num_copies, np.int64)
        here = np.repeat(states[:1, 0], self.num_copies, axis=0)
        is_due = np.ones(self.num_copies, bool)  # to be reset before the next step
        left = num_episodes
        while left:
            try:
                if is_due.any():
                    for copy in np.flatnonzero(is_due):
                        queue = waiting[owners[copy]]
                        slots[copy] = queue.popleft() if queue else -1
                    observations, told = self._reset(is_due, seeds[slots])
                    found = player.see(observations)
                    here[is_due], times[is_due] = found[is_due], 0
                    infos.add(told, slots, times)
                    states[slots[is_due], 0] = here[is_due]
                    self._render(slots, is_due, frames)
                    is_due[:] = False
                chosen, env_actions = player.act(here, slots, times)
                observations, paid, terminated, truncated, told = self._step(env_actions)
                before, here = here, player.see(observations)
            except Exception as error:  # an environment may raise anything
                self._restart(error, slots, seeds, attempts)
                for copy in np.flatnonzero(slots >= 0):
                    waiting[owners[copy]].appendleft(int(slots[copy]))
                states[slots], actions[slots], rewards[slots] = over, nothing, 0
                infos.forget(slots)
                is_due[:], slots[:] = True, -1
                continue
            self._render(slots, slots >= 0, frames)
            actions[slots, times], rewards[slots, times] = chosen, paid
            times += 1
            states[slots, times] = here
            infos.add(told, slots, times)
            is_broken = ~(player.is_sound(before) & player.is_sound(here))
            if is_broken.any():
                states[slots[is_broken], times[is_broken]] = over
                broken[slots[is_broken]] = times[is_broken]
                self._warn_not_finite(slots[is_broken], seeds, times[is_broken])
            is_over = terminated | truncated | (times >= horizon) | is_broken
            if is_over.any():
                left -= int(np.count_nonzero(slots[is_over] >= 0))
                is_terminated[slots[is_over]] = (terminated & ~is_broken)[is_over]
                slots[is_over], is_due = -1, is_over
        columns = {name: column[:-1] for name, column in sorted(infos.columns.items())}
        return Episodes(states[:-1], actions[:-1], rewards[:-1], is_terminated[:-1], broken[:-1], seeds[:-1], columns)

    def _render(self, slots: np.ndarray, is_new: np.ndarray, frames: dict[int, list[np.ndarray]] | None) -> None:
        if frames is None:
            return
        pictures = self._vector.call("render")
        for copy in np.flatnonzero(is_new & (slots >= 0)):
            frames.setdefault(int(slots[copy]), []).append(np.asarray(pictures[copy]))

    def _queues(self, agents: Int[np.ndarray, " episode"]) -> tuple[list[deque[int]], Int[np.ndarray, " copy"]]:
        """The episodes of each agent, and the agent of each copy; one queue for all if there are fewer copies than agents."""
        num_agents = int(agents.max(initial=0)) + 1
        if self.num_copies < num_agents:
            return [deque(range(len(agents)))], np.zeros(self.num_copies, np.int64)
        queues = [deque(np.flatnonzero(agents == agent).tolist()) for agent in range(num_agents)]
        return queues, np.arange(self.num_copies) % num_agents

    def _open(self) -> SyncVectorEnv | AsyncVectorEnv | ActorVectorEnv:
        seen = (self.observe, self.features)
        copies = [Copy(self.make, *seen, number, self.has_infos) for number in range(self.num_copies)]
        try:
            if not self.is_parallel:
                return SyncVectorEnv(copies, copy=False, autoreset_mode=AutoresetMode.DISABLED)
            if self.launcher == "ray":
                return ActorVectorEnv(copies, max(self.timeout, _SECONDS_TO_START))
            # Not fork: JAX has threads, and a forked process could wait forever for a lock that one of them held.
            context = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
            with safe_children(), _killed_after(max(self.timeout, _SECONDS_TO_START)):
                return AsyncVectorEnv(copies, context=context, copy=False, autoreset_mode=AutoresetMode.DISABLED)
        except Exception as error:
            raise ValueError(f"{self.name} cannot be made: {_one_line(error)}") from error

    def _kill(self) -> None:
        """Ends the workers at once, even in the middle of a step."""
        if isinstance(self._vector, AsyncVectorEnv):
            for process in self._vector.processes:
                process.kill()
            for process in self._vector.processes:
                process.join()
            self._vector.closed = True
        elif isinstance(self._vector, ActorVectorEnv):
            self._vector.kill()
        else:
            with contextlib.suppress(Exception):  # a failed environment may raise here as well
                self._vector.close()

    def _reset(self, is_due: np.ndarray, seeds: Int[np.ndarray, " copy"]) -> tuple[Any, dict[str, Any]]:
        if isinstance(self._vector, ActorVectorEnv):
            return self._vector.reset_masked(is_due, seeds.tolist(), self.timeout)
        options = {} if is_due.all() else {"reset_mask": is_due.copy()}
        if isinstance(self._vector, AsyncVectorEnv):
            self._vector.reset_async(seed=seeds.tolist(), options=options or None)
            with _silent():
                return self._vector.reset_wait(self.timeout)
        return self._vector.reset(seed=seeds.tolist(), options=options or None)

    def _step(self, actions: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if isinstance(self._vector, AsyncVectorEnv):
            self._vector.step_async(actions)
            with _silent():
                return self._vector.step_wait(self.timeout)
        if isinstance(self._vector, ActorVectorEnv):
            return self._vector.step_all(actions, self.timeout)
        return self._vector.step(actions)

    def _restart(self, error: Exception, slots: np.ndarray, seeds: np.ndarray, attempts: np.ndarray) -> None:
        """Reports the failure and reopens the copies; the episodes that failed get other seeds.

        An episode whose actor was lost for the first time keeps its seed: machines get lost, whatever is played on them.
        """
        broken = self._failed_copies(error)
        what = _description(error, self.timeout)
        if not broken and not isinstance(error, multiprocessing.TimeoutError):
            raise ValueError(f"{self.name} {what}") from error
        episodes = np.unique(slots[broken]) if broken else np.array([-1])  # the late copy has answered since
        attempts[episodes] += 1
        real = episodes[episodes >= 0]
        where = f" in an episode with seed {', '.join(map(str, seeds[real]))}" if len(real) else ""
        if attempts[:-1].max() >= _MOST_ATTEMPTS or attempts[-1] >= _MOST_IDLE_ATTEMPTS:
            raise ValueError(f"{self.name} {what}{where}, and {_MOST_ATTEMPTS - 1} times before with other seeds") from error
        is_lost = isinstance(error, LostError) and attempts[episodes].max() == 1
        seed = "the same seed" if is_lost else "another seed"
        again = f"it is played again with {seed} in a new copy" if len(real) else "all copies are reopened"
        message = f"{self.name} {what}{where}: {again}"
        self.failures.append(message)
        warnings.warn(message, SimulatorWarning, stacklevel=3)
        if not is_lost:
            seeds[episodes] = (seeds[episodes] + 1_000_003) % _SEEDS
        if isinstance(self._vector, ActorVectorEnv):
            try:
                self._vector.replace(broken)
            except Exception as again:
                raise ValueError(f"{self.name} cannot be made again: {_one_line(again)}") from again
            return
        self._kill()
        self._vector = self._open()

    def _warn_not_finite(self, slots: np.ndarray, seeds: np.ndarray, times: np.ndarray) -> None:
        """Warns of the first state that is not finite; later ones are only counted."""
        message = f"{self.name} gave a state that is not finite"
        if (slots >= 0).any() and not any(failure.startswith(message) for failure in self.failures):
            step, seed = times[slots >= 0][0], seeds[slots[slots >= 0][0]]
            self.failures.append(f"{message} after step {step} of an episode with seed {seed}: such episodes end there")
            warnings.warn(self.failures[-1], SimulatorWarning, stacklevel=3)

    def _failed_copies(self, error: Exception) -> list[int]:
        if isinstance(self._vector, ActorVectorEnv):
            return self._vector.failed
        if not isinstance(self._vector, AsyncVectorEnv):
            return [error.number] if isinstance(error, CopyError) else []
        pipes, processes = self._vector.parent_pipes, self._vector.processes
        if raised := [number for number, pipe in enumerate(pipes) if pipe is None]:
            return raised
        if isinstance(error, multiprocessing.TimeoutError):
            return [number for number, pipe in enumerate(pipes) if not pipe.poll()]
        give_up = time.perf_counter() + _SECONDS_TO_DIE  # a process that has closed its pipe takes a moment to end
        while not (dead := [number for number, process in enumerate(processes) if not process.is_alive()]):
            if time.perf_counter() > give_up:
                break
            time.sleep(0.01)
        return dead


class _Infos:
    """The numbers in the infos of episodes: for each name, an array [episode, times, ...] with NaN where there is none."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self.columns: dict[str, np.ndarray] = {}

    def add(self, infos: dict[str, Any], slots: Int[np.ndarray, " copy"], times: Int[np.ndarray, " copy"]) -> None:
        """Records the infos of the copies that have told any."""
        for copy in np.flatnonzero(infos.get(f"_{NUMBERS}", ())):
            for name, value in infos[NUMBERS][copy]:
                if name not in self.columns:
                    if len(self.columns) == _MOST_INFO_COLUMNS:
                        continue
                    self.columns[name] = np.full((*self._shape, *value.shape), np.nan)
                if self.columns[name].shape[2:] == value.shape:
                    self.columns[name][slots[copy], times[copy]] = value

    def forget(self, slots: Int[np.ndarray, " copy"]) -> None:
        for column in self.columns.values():
            column[slots] = np.nan


@contextlib.contextmanager
def _killed_after(seconds: float) -> Iterator[None]:
    """Kills the processes started inside the block if it fails or takes longer; the code waiting for them then raises."""
    before = set(multiprocessing.active_children())

    def kill() -> None:
        for process in set(multiprocessing.active_children()) - before:
            process.kill()

    timer = threading.Timer(seconds, kill)
    timer.start()
    try:
        yield
    except BaseException:
        kill()
        raise
    finally:
        timer.cancel()


def _description(error: Exception, timeout: float) -> str:
    if isinstance(error, multiprocessing.TimeoutError):
        return f"gave no answer for {timeout:g} seconds"
    if isinstance(error, LostError):
        return str(error)
    if isinstance(error, EOFError | OSError):
        return "ended its process"
    return f"failed ({_one_line(error)})"


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, CopyError) else f"{type(error).__name__}: {text}" if text else type(error).__name__


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Hides Gymnasium's long, coloured warnings: the pool reports each failure in one line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
