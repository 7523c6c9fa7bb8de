"""The paper's Algorithm 1 as a hand-written loop, compiled by Numba: what a core can do without arrays and frameworks."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numba
import numpy as np


class LoopResult(NamedTuple):
    entropy: np.ndarray
    """In nats, per seed and update."""
    steps_per_second: float
    """Of all seeds together, one thread for each core."""


def train(
    world: Any,
    *,
    num_agents: int,
    batch_size: int,
    num_updates: int,
    learning_rate: float,
    seeds: int,
    num_threads: int,
) -> LoopResult:
    """Trains one team per seed in a world with one start state."""
    arrays = np.asarray(world.successors), np.asarray(world.cumulative_probability), int(world.start_states[0])

    def one(seed: int, num_updates: int = num_updates) -> np.ndarray:
        return _train(*arrays, world.horizon, num_agents, batch_size, num_updates, learning_rate, seed)

    one(0, 1)  # compiles
    began = time.perf_counter()
    with ThreadPoolExecutor(num_threads) as pool:
        entropies = np.array(list(pool.map(one, range(seeds))))
    steps = seeds * num_updates * batch_size * world.horizon * num_agents
    return LoopResult(entropies, steps / (time.perf_counter() - began))


@numba.njit(inline="always")
def _uniform(bits: Any) -> Any:
    """A uniform number in [0, 1) from the state of an xorshift generator, which moves on."""
    bits[0] ^= bits[0] << np.uint64(13)
    bits[0] ^= bits[0] >> np.uint64(7)
    bits[0] ^= bits[0] << np.uint64(17)
    return np.float32(bits[0] >> np.uint64(40)) * np.float32(2.0**-24)


@numba.njit(nogil=True)
def _train(
    successors: Any,
    cumulative: Any,
    start: Any,
    horizon: Any,
    num_agents: Any,
    batch_size: Any,
    num_updates: Any,
    learning_rate: Any,
    seed: Any,
) -> Any:
    num_states, num_actions, num_successors = successors.shape
    bits = np.full(1, np.uint64(seed + 1) * np.uint64(0x9E3779B97F4A7C15))
    logits = np.empty((num_agents, num_states, num_actions), np.float32)
    for index in range(logits.size):
        logits.flat[index] = 2 * _uniform(bits) - 1
    num_samples = num_agents * (horizon + 1)
    terms = np.zeros(num_samples + 1, np.float32)
    for count in range(1, num_samples + 1):
        terms[count] = -count / num_samples * np.log(count / num_samples)
    policy, weights = np.empty_like(logits), np.empty_like(logits)
    visited, taken = np.empty((num_agents, horizon), np.int32), np.empty((num_agents, horizon), np.int32)
    counts, entropies = np.empty(num_states, np.int32), np.zeros(num_updates)
    for update in range(num_updates):
        for agent in range(num_agents):
            for state in range(num_states):
                total = np.float32(0)
                for action in range(num_actions):
                    policy[agent, state, action] = np.exp(logits[agent, state, action])
                    total += policy[agent, state, action]
                for action in range(num_actions):
                    policy[agent, state, action] /= total
        weights[:] = 0
        for _ in range(batch_size):
            counts[:] = 0
            for agent in range(num_agents):
                state = start
                counts[state] += 1
                for step in range(horizon):
                    left, action = _uniform(bits), 0
                    while action < num_actions - 1 and left >= policy[agent, state, action]:
                        left -= policy[agent, state, action]
                        action += 1
                    visited[agent, step], taken[agent, step] = state, action
                    outcome = 0
                    if num_successors > 1:
                        drawn = _uniform(bits)
                        while outcome < num_successors - 1 and drawn >= cumulative[state, action, outcome]:
                            outcome += 1
                    state = successors[state, action, outcome]
                    counts[state] += 1
            entropy = np.float32(0)
            for state in range(num_states):
                entropy += terms[counts[state]]
            entropies[update] += entropy / batch_size
            for agent in range(num_agents):
                for step in range(horizon):
                    weights[agent, visited[agent, step], taken[agent, step]] += entropy
        rate = np.float32(learning_rate / batch_size)
        for agent in range(num_agents):
            for state in range(num_states):
                total = np.float32(0)
                for action in range(num_actions):
                    total += weights[agent, state, action]
                for action in range(num_actions):
                    weight = weights[agent, state, action] - policy[agent, state, action] * total
                    logits[agent, state, action] += rate * weight
    return entropies
