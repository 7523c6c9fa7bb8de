"""A reward function, that of Gymnasium's Pendulum: 0 if it stands upright and still. `--reward pendulum_reward:upright`."""

import numpy as np


def upright(observations, actions, next_observations):
    cosine, sine, velocity = observations.T
    return -(np.arctan2(sine, cosine) ** 2 + 0.1 * velocity**2 + 0.001 * actions[:, 0] ** 2)


if __name__ == "__main__":
    still = np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])  # upright, and hanging down
    print(upright(still, np.zeros((2, 1)), still))
