"""A Gymnasium environment of your own: a robot in two rooms with a locked door between them, and a key in the first room."""

import gymnasium
import numpy as np
from gymnasium import spaces

import farflung


class KeyRooms(gymnasium.Env):
    """A robot walks in two rooms of 5 x 5; it can pass the door between them once it has found the key."""

    observation_space = spaces.MultiDiscrete([11, 5, 2])  # x, y, whether it has the key
    action_space = spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.y, self.has_key = 2, 2, False
        return self._observation(), {}

    def step(self, action):
        dx, dy = ((1, 0), (-1, 0), (0, 1), (0, -1))[action]
        x, y = min(max(self.x + dx, 0), 10), min(max(self.y + dy, 0), 4)
        if x != 5 or (y == 2 and self.has_key):  # the wall, and the door in it
            self.x, self.y = x, y
        self.has_key = self.has_key or (self.x, self.y) == (0, 4)
        return self._observation(), 0.0, False, False, {}

    def _observation(self):
        return np.array([self.x, self.y, self.has_key])


gymnasium.register("KeyRooms-v0", KeyRooms, max_episode_steps=24)

if __name__ == "__main__":
    run = farflung.explore("KeyRooms-v0", agents=4, updates=100, batch_size=8, seeds=(0,))
    final, random = run.summary["final"], run.summary["random"]
    print(f"states visited by the team: {final['support'][0]:.0f}, with random actions {random['support']:.0f}")
    dataset = farflung.collect(run, 1000)
    print(f"{dataset.num_transitions:,} transitions, ready for farflung.to_minari or farflung.save_dataset")
