"""A trained team at work: from what an environment shows to what its `step` takes."""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from farflung.numerics.noise import uniforms
from farflung.worlds.world import World, flattened


class Agent:
    """One agent of a trained team.

    >>> import farflung, jax
    >>> run = farflung.explore("room-det", agents=2, updates=5, seeds=(0,))
    >>> run.team(seed=0).agent(1).act(jax.random.key(0), observation=21) in range(4)
    True
    """

    def __init__(self, policy: Any, world: World) -> None:
        self.policy, self.world = policy, world
        self._leaves, self._structure = jax.tree.flatten(policy)  # once: flattening takes longer than acting
        self._num_times = world.horizon if getattr(policy, "is_time_dependent", False) else math.inf

    def act(self, key: PRNGKeyArray, observation: Any, time: int | Int[Array, ""] = 0) -> Any:
        """Draws an action, as the environment's `step` takes it.

        Inside `jax.jit`, where no environment can be asked, `observation` is the state that the policy acts on, as
        `world.state_of(observation)` returns it: a state's number or a vector; the action is an array.

        Args:
            observation: what the environment shows: its observation, or what `hosted(observe=...)` makes of it.
            time: how many actions the episode has had; policies with a table for each time need it.
        """
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((key, observation, time))):
            state = observation if self.world.projection is None else flattened(observation)
            return _act(self._structure, self._leaves, key, time, state)
        if not 0 <= time < self._num_times:
            raise ValueError(f"time is the number of actions so far, from 0 to {self._num_times - 1}, not {time}")
        action = _act(self._structure, self._leaves, key, time, self.world.state_of(observation))
        return self.world.action_for_environment(np.asarray(action))


class TrainedTeam(NamedTuple):
    """The team that was trained with one seed."""

    policies: Any
    """The policies of all agents: a pytree whose arrays have a leading agent axis."""
    world: World

    @property
    def num_agents(self) -> int:
        return self.policies.num_agents

    def agent(self, number: int) -> Agent:
        """One of the agents, numbered from 0."""
        if number not in range(self.num_agents):
            raise ValueError(f"agents are numbered from 0 to {self.num_agents - 1}: there is no agent {number}")
        world = self.world.with_environment() if self.world.is_hosted else self.world
        return Agent(one_of(self.policies, number), world)


def one_of(team: Any, number: int | Int[Array, ""]) -> Any:
    """The policy of one agent: arrays that all agents share stay as they are."""
    axes = team.axes
    if axes is None:
        return team
    if isinstance(axes, int):
        return jax.tree.map(lambda leaf: leaf[number], team)
    return jax.tree.map(lambda leaf, axis: leaf if axis is None else leaf[number], team, axes)


@partial(jax.jit, static_argnums=0)
def _act(structure: Any, leaves: list[Array], key: PRNGKeyArray, time: Int[Array, ""], seen: Array) -> Array:
    policy = jax.tree.unflatten(structure, leaves)
    noise = uniforms(key, (policy.num_uniforms,))
    draw = policy.sample_one if hasattr(policy, "sample_one") else policy.sampler()
    return policy.executed(draw(noise, jnp.asarray(time, jnp.int32), jnp.asarray(seen)))
