"""Small environments as a user would write them, some of which break. Worker processes import this module."""

import multiprocessing
import os
import time

import gymnasium
import numpy as np
from gymnasium import spaces


class Corridor(gymnasium.Env):
    """Walks left and right between 0 and 4; an episode ends at 4."""

    observation_space = spaces.Discrete(5, start=10)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seed_given, self.place = seed, 2
        return 10 + self.place, {}

    def step(self, action):
        self.place = max(0, self.place + (1 if action else -1))
        return 10 + self.place, float(self.place == 4), self.place == 4, False, {"place": self.place}


class Unlucky(Corridor):
    """Fails as its flavour says in the second step of every episode whose seed is divisible by 3."""

    def __init__(self, flavour="raises"):
        self.flavour, self.num_steps = flavour, 0

    def reset(self, *, seed=None, options=None):
        self.num_steps = 0
        return super().reset(seed=seed)

    def step(self, action):
        self.num_steps += 1
        if self.num_steps == 2 and self.seed_given % 3 == 0:
            if self.flavour == "raises":
                raise ZeroDivisionError("no such luck")
            if self.flavour == "dies":
                os._exit(3)
            time.sleep(60)
        return super().step(action)


class DiesOnce(Corridor):
    """Ends its process in the second step of the episode with seed 3, unless that has happened before."""

    def __init__(self, path):
        self.path, self.num_steps = path, 0

    def reset(self, *, seed=None, options=None):
        self.num_steps = 0
        return super().reset(seed=seed)

    def step(self, action):
        self.num_steps += 1
        if self.num_steps == 2 and self.seed_given == 3 and not self.path.exists():
            self.path.touch()
            os._exit(3)
        return super().step(action)


class Slow(Corridor):
    """Takes a while for each step."""

    def step(self, action):
        time.sleep(0.3)
        return super().step(action)


class Broken(Corridor):
    def step(self, action):
        raise RuntimeError("always")


class Sleepy(Corridor):
    """Never finishes starting in a worker process."""

    def __init__(self):
        if multiprocessing.parent_process() is not None:
            time.sleep(600)


class Planes(gymnasium.Env):
    """Has real and binary observations, and an attribute that can be observed instead."""

    observation_space = spaces.Dict({"place": spaces.Box(-1, 1, (2,), np.float64), "light": spaces.MultiBinary(1)})
    action_space = spaces.MultiDiscrete([2, 3], start=[0, -1])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.cell = np.zeros(2), (3, 7)
        return self._look(), {}

    def step(self, action):
        self.place = np.clip(self.place + np.array([0.5 * action[0], 0.5 * action[1]]), -1, 1)
        self.cell = (self.cell[0] + int(action[0]), self.cell[1])
        return self._look(), 0.0, False, False, {}

    def _look(self):
        return {"place": self.place.copy(), "light": np.array([int(self.place[0] > 0)], np.int8)}


class Drift(gymnasium.Env):
    """A point that is pushed right and sideways; an episode ends far to the right. Raises if an action exceeds its bounds."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Box(np.array([0.1, -2], np.float32), np.array([0.7, 2], np.float32))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seed_given, self.num_steps, self.place = seed, 0, self.np_random.uniform(-0.1, 0.1, 2)
        return self.place.copy(), {}

    def step(self, action):
        if not self.action_space.contains(action):
            raise AssertionError(f"{action} is outside of the bounds")
        self.num_steps += 1
        self.place = self.place + action
        return self._look(), 0.0, bool(self.place[0] > 2.2), False, {}

    def _look(self):
        return self.place.copy()


class Fenced(Drift):
    """`Drift` with finite bounds."""

    observation_space = spaces.Box(-20, 20, (2,), np.float64)


class Leaky(Fenced):
    """Gives infinite states from the third step on, in every episode whose seed is divisible by 3."""

    def _look(self):
        is_lost = self.num_steps >= 3 and self.seed_given % 3 == 0
        return np.array([np.inf, 0.0]) if is_lost else super()._look()


class Lost(Fenced):
    """Gives NaN from the second step on, in every episode after the first 60."""

    num_episodes = 0

    def reset(self, *, seed=None, options=None):
        Lost.num_episodes += 1
        return super().reset(seed=seed)

    def _look(self):
        return np.full(2, np.nan) if self.num_steps >= 2 and Lost.num_episodes > 60 else super()._look()


class OnlyIn(Corridor):
    """Can be made in one process only, as if the files that it needs were missing on all other machines."""

    def __init__(self, process):
        if os.getpid() != process:
            raise FileNotFoundError("no model on this node")
        super().__init__()
