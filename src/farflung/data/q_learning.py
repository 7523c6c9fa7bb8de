"""Tabular Q-learning from a dataset: Q-values for a goal, and how often the greedy policy reaches it."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from farflung.numerics.compilation import SELDOM
from farflung.numerics.noise import uniforms
from farflung.policies.rollout import Trajectories
from farflung.worlds.tabular import TabularMDP


class Transitions(NamedTuple):
    """Single steps of a dataset; only the first `num` are valid, so that datasets of several sizes fit one shape."""

    states: Int[Array, " transition"]
    actions: Int[Array, " transition"]
    next_states: Int[Array, " transition"]
    num: Int[Array, ""]


class QLearning(NamedTuple):
    """Settings of learning from a dataset and of testing; the defaults are the paper's."""

    num_batches: int = 100
    batch_size: int = 20
    learning_rate: float = 0.1
    discount: float = 0.99
    num_episodes: int = 10
    max_steps: int = 200


PAPER = QLearning()


def transitions(trajectories: Trajectories) -> Transitions:
    """All steps of all trajectories, pooled."""
    states, actions = trajectories[:2]
    before, after = states[..., :-1].reshape(-1), states[..., 1:].reshape(-1)
    return Transitions(before, actions.reshape(-1), after, jnp.int32(before.size))


@partial(jax.jit, static_argnames="settings")
def goal_success(
    keys: Key[Array, " dataset"],
    world: TabularMDP,
    data: Transitions,
    goals: Int[Array, " goal"],
    settings: QLearning = PAPER,
) -> Float[Array, "dataset goal"]:
    """How often Q-learning on each dataset reaches each goal; all datasets and goals are learnt side by side."""
    num_draws = settings.num_batches * settings.batch_size

    def reach(noise: Float[Array, " uniform"], data: Transitions, goal: Int[Array, ""]) -> Float[Array, ""]:
        values = q_values(noise[:num_draws], world, data, goal, settings)
        return success_rate(noise[num_draws:].reshape(settings.num_episodes, -1), world, values, goal, settings)

    def reach_all(key: PRNGKeyArray, data: Transitions) -> Float[Array, " goal"]:
        noise = uniforms(key, (goals.size, num_goal_uniforms(world, settings)))
        return jax.vmap(reach, (0, None, 0))(noise, data, goals)

    return jax.vmap(reach_all)(keys, data)


def num_goal_uniforms(world: TabularMDP, settings: QLearning) -> int:
    """The number of uniform numbers that learning and testing one goal takes."""
    return settings.num_batches * settings.batch_size + settings.num_episodes * num_episode_uniforms(world, settings)


def goals_of(world: TabularMDP) -> Int[Array, " goal"]:
    """Every state in which no episode starts."""
    return jnp.asarray(np.setdiff1d(np.arange(world.num_states), world.start_states), jnp.int32)


def q_values(
    noise: Float[Array, " draw"], world: TabularMDP, data: Transitions, goal: Int[Array, ""], settings: QLearning = PAPER
) -> Float[Array, "state action"]:
    """Q-values after tabular Q-learning on minibatches drawn with replacement, one transition after the other.

    The data is relabelled: reaching the goal pays 1 and ends the episode, every other step pays 0.
    """

    def task(index: Int[Array, ""]) -> tuple[Float[Array, ""], Bool[Array, ""]]:
        arrives = data.next_states[index] == goal
        return jnp.where(arrives, 1.0, 0.0), arrives

    return _learn(noise, data, task, (world.num_states, world.num_actions), settings)


@partial(jax.jit, static_argnames=("shape", "settings"))
def values_from_rewards(
    noise: Float[Array, " draw"],
    data: Transitions,
    rewards: Float[Array, " transition"],
    is_terminal: Bool[Array, " transition"],
    shape: tuple[int, int],
    settings: QLearning,
) -> Float[Array, "state action"]:
    """Q-values of the rewards in the data, after the same learning; `shape` is the numbers of states and actions."""
    return _learn(noise, data, lambda index: (rewards[index], is_terminal[index]), shape, settings)


def _learn(
    noise: Float[Array, " draw"],
    data: Transitions,
    task: Callable[[Int[Array, ""]], tuple[Float[Array, ""], Bool[Array, ""]]],
    shape: tuple[int, int],
    settings: QLearning,
) -> Float[Array, "state action"]:
    """Q-learning for a task: the reward of a transition, and whether it ends the episode."""
    num_actions = shape[1]

    def learn(values: Float[Array, " entry"], index: Int[Array, ""]) -> tuple[Float[Array, " entry"], None]:
        state, action, next_state = data.states[index], data.actions[index], data.next_states[index]
        reward, is_terminal = task(index)
        following = jnp.max(values.reshape(-1, num_actions)[next_state])
        target = reward + settings.discount * jnp.where(is_terminal, 0.0, following)
        entry = state * num_actions + action
        return values.at[entry].add(settings.learning_rate * (target - values[entry])), None

    drawn = jnp.floor(noise * data.num).astype(jnp.int32)
    values, _ = jax.lax.scan(learn, jnp.zeros(shape[0] * num_actions), drawn)
    return values.reshape(-1, num_actions)


def success_rate(
    noise: Float[Array, "episode uniform"],
    world: TabularMDP,
    values: Float[Array, "state action"],
    goal: Int[Array, ""],
    settings: QLearning = PAPER,
) -> Float[Array, ""]:
    """The share of episodes in which the greedy policy reaches the goal.

    Each episode draws an order of the actions in each state once, and breaks ties by it, so that neither a favourite action
    nor a random walk reaches goals that were not learnt. An episode takes `num_episode_uniforms` uniform numbers.
    """
    is_best = values >= jnp.max(values, axis=-1, keepdims=True)

    def episode(noise: Float[Array, " uniform"]) -> Array:
        order, reset_noise, step_noise = jnp.split(noise, (values.size, values.size + world.num_reset_uniforms))
        greedy = jnp.argmax(is_best * (1.0 + order.reshape(values.shape)), axis=-1).astype(jnp.int32)

        def step(carry: tuple[Array, Array], noise: Array) -> tuple[tuple[Array, Array], None]:
            state, is_reached = carry
            state = world.step_from(noise, state, greedy[state])
            return (state, is_reached | (state == goal)), None

        first = world.reset_from(reset_noise)
        # Without chance, a greedy walk that has not reached the goal after as many steps as there are states goes in circles.
        num_steps = settings.max_steps if world.num_step_uniforms else min(settings.max_steps, world.num_states)
        by_step = step_noise.reshape(settings.max_steps, world.num_step_uniforms)[:num_steps]
        (_, is_reached), _ = jax.lax.scan(step, (first, first == goal), by_step)
        return is_reached

    return jnp.mean(jax.vmap(episode)(noise))


def num_episode_uniforms(world: TabularMDP, settings: QLearning) -> int:
    """The number of uniform numbers that one episode of `success_rate` takes."""
    return world.num_states * world.num_actions + world.num_reset_uniforms + settings.max_steps * world.num_step_uniforms


@partial(jax.jit, compiler_options=SELDOM)
def untrained_success(key: PRNGKeyArray, world: TabularMDP, goals: Int[Array, " goal"]) -> Float[Array, ""]:
    """The success rate of chance: the mean over all goals if all Q-values are zero."""
    values = jnp.zeros((world.num_states, world.num_actions))
    noise = uniforms(key, (100, num_episode_uniforms(world, PAPER)))
    return jnp.mean(jax.vmap(lambda goal: success_rate(noise, world, values, goal))(goals))
