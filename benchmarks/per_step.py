"""The paper's Algorithm 1 in the style of its released code: a Python loop over the steps of a Gymnasium vector environment.

It shares no code with farflung, so that it also checks our learning curves. One-hot states, dense scores and one draw per agent
and step are that style's; so is the time that they take.
"""

import time
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))


class MapWalk(gymnasium.Env[np.int64, np.int64]):
    """A walk on a text map, with the cell's index over the whole rectangle as observation."""

    def __init__(self, text: str, slip: float) -> None:
        self.cells = [list(line) for line in text.strip().splitlines()]
        self.rows, self.columns = len(self.cells), len(self.cells[0])
        self.slip = slip
        self.start = next((r, c) for r in range(self.rows) for c in range(self.columns) if self.cells[r][c] == "S")
        self.position = self.start
        self.observation_space = gymnasium.spaces.Discrete(self.rows * self.columns)
        self.action_space = gymnasium.spaces.Discrete(len(MOVES))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.int64, dict[str, Any]]:
        super().reset(seed=seed)
        self.position = self.start
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        taken = int(action)
        if self.slip > 0 and self.np_random.random() < self.slip:
            taken = int(self.np_random.choice([other for other in range(len(MOVES)) if other != taken]))
        row, column = self.position[0] + MOVES[taken][0], self.position[1] + MOVES[taken][1]
        if 0 <= row < self.rows and 0 <= column < self.columns and self.cells[row][column] != "#":
            self.position = (row, column)
        return self._observation(), 0.0, False, False, {}

    def _observation(self) -> np.int64:
        return np.int64(self.position[0] * self.columns + self.position[1])


class PerStepResult(NamedTuple):
    entropy: np.ndarray
    """In nats, per update."""
    support: np.ndarray
    steps_per_second: float


def train(
    text: str, *, slip: float, horizon: int, num_agents: int, batch_size: int, num_updates: int, learning_rate: float, seed: int
) -> PerStepResult:
    """Trains one team with one seed."""
    environment = SyncVectorEnv([lambda: MapWalk(text, slip) for _ in range(num_agents)], autoreset_mode=AutoresetMode.DISABLED)
    environment.reset(seed=seed)
    generator = np.random.default_rng(seed)
    num_states, num_actions = environment.single_observation_space.n, environment.single_action_space.n  # type: ignore[attr-defined]
    parameters = 2 * generator.random((num_agents, num_actions, num_states)) - 1
    entropies, supports = np.zeros(num_updates), np.zeros(num_updates)
    began = time.perf_counter()
    for update in range(num_updates):
        gradient = np.zeros_like(parameters)
        for _ in range(batch_size):
            observations, _ = environment.reset()
            visited = [observations]
            scores = np.zeros_like(parameters)
            for _ in range(horizon):
                features = _one_hot(observations, num_states)
                probabilities = _action_probabilities(parameters, features)
                actions = np.array([generator.choice(num_actions, p=row) for row in probabilities])
                scores += _score(probabilities, features, actions)
                observations, *_ = environment.step(actions)
                visited.append(observations)
            _, counts = np.unique(np.concatenate(visited), return_counts=True)
            shares = counts / counts.sum()
            entropy = -np.sum(shares * np.log(shares))
            gradient += entropy * scores
            entropies[update] += entropy / batch_size
            supports[update] += len(counts) / batch_size
        parameters += learning_rate * gradient / batch_size
    steps = num_updates * batch_size * horizon * num_agents
    return PerStepResult(entropies, supports, steps / (time.perf_counter() - began))


def _one_hot(observations: np.ndarray, num_states: int) -> np.ndarray:
    features = np.zeros((len(observations), num_states))
    features[np.arange(len(observations)), observations] = 1
    return features


def _action_probabilities(parameters: np.ndarray, features: np.ndarray) -> np.ndarray:
    logits = np.einsum("ias,is->ia", parameters, features)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def _score(probabilities: np.ndarray, features: np.ndarray, actions: np.ndarray) -> np.ndarray:
    score = np.empty((*probabilities.shape, features.shape[1]))
    for agent, action in enumerate(actions):
        for other in range(probabilities.shape[1]):
            score[agent, other] = ((other == action) - probabilities[agent, other]) * features[agent]
    return score
