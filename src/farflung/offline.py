"""Offline RL on what a team has collected: tabular Q-learning towards goals, and how often it gets there."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from farflung.environments import TabularMDP
from farflung.noise import uniforms
from farflung.rollout import Trajectories


class Transitions(NamedTuple):
    """A dataset of single steps; only the first `num` are real, so that datasets of several sizes fit one shape."""

    states: Int[Array, " transition"]
    actions: Int[Array, " transition"]
    next_states: Int[Array, " transition"]
    num: Int[Array, ""]


def transitions(trajectories: Trajectories) -> Transitions:
    """All steps of all trajectories, pooled."""
    states, actions = trajectories
    before, after = states[..., :-1].reshape(-1), states[..., 1:].reshape(-1)
    return Transitions(before, actions.reshape(-1), after, jnp.int32(before.size))


def q_learning(
    key: PRNGKeyArray,
    data: Transitions,
    goal: Int[Array, ""],
    num_states: int,
    num_actions: int,
    *,
    num_batches: int = 100,
    batch_size: int = 20,
    learning_rate: float = 0.1,
    discount: float = 0.99,
) -> Float[Array, "state action"]:
    """Q-values after tabular Q-learning on minibatches drawn with replacement, one transition after the other.

    The data is relabelled: arriving at the goal pays 1 and ends the episode, everything else pays 0.
    """
    drawn = jnp.floor(uniforms(key, (num_batches * batch_size,)) * data.num).astype(jnp.int32)

    def learn(values: Float[Array, " entry"], index: Int[Array, ""]) -> tuple[Float[Array, " entry"], None]:
        state, action, next_state = data.states[index], data.actions[index], data.next_states[index]
        following = jnp.max(values.reshape(num_states, num_actions)[next_state])
        target = jnp.where(next_state == goal, 1.0, discount * following)
        entry = state * num_actions + action
        return values.at[entry].add(learning_rate * (target - values[entry])), None

    values, _ = jax.lax.scan(learn, jnp.zeros(num_states * num_actions), drawn)
    return values.reshape(num_states, num_actions)


def success_rate(
    key: PRNGKeyArray,
    world: TabularMDP,
    q_values: Float[Array, "state action"],
    goal: Int[Array, ""],
    *,
    num_episodes: int = 10,
    max_steps: int = 200,
) -> Float[Array, ""]:
    """The share of episodes in which the greedy policy reaches the goal.

    Each episode breaks ties in an order of its own, the same throughout, so that neither a favourite action nor a random walk
    reaches goals that were not learnt.
    """

    def episode(key: PRNGKeyArray) -> Array:
        order_key, reset_key, step_key = jr.split(key, 3)
        is_best = q_values >= jnp.max(q_values, axis=-1, keepdims=True)
        greedy = jnp.argmax(is_best * (1.0 + uniforms(order_key, q_values.shape)), axis=-1).astype(jnp.int32)

        def step(carry: tuple[Array, Array], noise: Array) -> tuple[tuple[Array, Array], None]:
            state, is_there = carry
            state = world.step(noise, state, greedy[state])
            return (state, is_there | (state == goal)), None

        first = world.reset(uniforms(reset_key, (world.num_reset_uniforms,)))
        noise = uniforms(step_key, (max_steps, world.num_step_uniforms))
        (_, is_there), _ = jax.lax.scan(step, (first, first == goal), noise)
        return is_there

    return jnp.mean(jax.vmap(episode)(jr.split(key, num_episodes)))


@partial(jax.jit, static_argnames=("num_episodes", "max_steps"))
def goal_success(
    keys: PRNGKeyArray, world: TabularMDP, data: Transitions, goals: Int[Array, " goal"], *, num_episodes: int = 10, max_steps: int = 200
) -> Float[Array, "dataset goal"]:
    """How often Q-learning on each dataset leads to each goal: all datasets and goals side by side.

    Args:
        keys: one per dataset.
        data: with a leading dataset axis.
    """

    def reach(key: PRNGKeyArray, data: Transitions, goal: Int[Array, ""]) -> Float[Array, ""]:
        learn_key, try_key = jr.split(jr.fold_in(key, goal))
        q_values = q_learning(learn_key, data, goal, world.num_states, world.num_actions)
        return success_rate(try_key, world, q_values, goal, num_episodes=num_episodes, max_steps=max_steps)

    return jax.vmap(jax.vmap(reach, (None, None, 0)), (0, 0, None))(keys, data, goals)


def goals_of(world: TabularMDP) -> Int[Array, " goal"]:
    """Every state in which no episode starts."""
    return jnp.flatnonzero(world.start_distribution == 0).astype(jnp.int32)
