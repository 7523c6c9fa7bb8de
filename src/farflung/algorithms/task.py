"""Tasks: what pays in a world, for a learner that starts where exploration ends."""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from farflung.policies.rollout import Trajectories, acted_in

Steps = Float[Array, "batch agent trajectory time"]


class Paid(NamedTuple):
    """What a batch has earned."""

    rewards: Steps
    """Zero for steps that don't belong to the task."""
    is_part: Bool[Array, "batch agent trajectory time"]
    """Which steps were taken before the task, or the episode, was over."""
    is_end: Bool[Array, "batch agent trajectory time"]
    """Which steps ended the task or the episode, rather than its time running out: nothing follows."""

    @property
    def returns(self) -> Float[Array, "batch agent trajectory"]:
        """The sum of the rewards of each episode."""
        return jnp.sum(self.rewards, axis=-1)


class Task(eqx.Module):
    """What pays in a world. Its arrays are traced, so that many goals share a program."""

    @abc.abstractmethod
    def paid(self, world: Any, team: Any, trajectories: Trajectories) -> Paid:
        """The rewards of a batch that a team has played."""


class Goal(Task):
    """Reaching a state, or a point up to a radius, pays 1 and ends the episode; every other step pays 0."""

    place: Int[ArrayLike, ""] | Float[ArrayLike, " feature"]
    """The number of a state, or the features of a point."""
    radius: Float[ArrayLike, ""] = 0.0

    def paid(self, world: Any, team: Any, trajectories: Trajectories) -> Paid:
        after = trajectories.states[:, :, :, 1:]
        if world.projection is None:
            arrives = after == jnp.asarray(self.place)
        else:
            arrives = world.projection.distances(after, jnp.asarray(self.place)) <= jnp.asarray(self.radius)
        is_earlier = jnp.cumsum(arrives, axis=-1) - arrives == 0
        is_part = is_earlier & has_acted(world, trajectories)
        arrives &= is_part
        return Paid(jnp.where(arrives, 1.0, 0.0), is_part, arrives | _ends(is_part))


class OwnReward(Task):
    """The rewards of the environment itself: those of its table, or those that its copies have paid on the host."""

    def paid(self, world: Any, team: Any, trajectories: Trajectories) -> Paid:
        is_part = has_acted(world, trajectories)
        if trajectories.rewards is not None:
            return Paid(jnp.where(is_part, trajectories.rewards, 0.0), is_part, _ends(is_part))
        before, after = trajectories.states[..., :-1], trajectories.states[..., 1:]
        successors, rewards = (table[before, trajectories.actions] for table in (world.successors, world.rewards))
        is_outcome = successors == after[..., None]
        outcome = jnp.argmax(is_outcome, axis=-1)
        found = jnp.squeeze(jnp.take_along_axis(rewards, outcome[..., None], axis=-1), -1)
        stays = world.successors == jnp.arange(world.num_states).reshape(-1, 1, 1)
        is_over = jnp.all(stays, axis=(1, 2))
        is_part &= ~is_over[before]  # where an episode has ended, nobody acts
        return Paid(jnp.where(is_part, found, 0.0), is_part, is_part & is_over[after])


class RewardFunction(Task):
    """A user's function of the observations, actions and next observations of many steps, which gives each step's reward.

    It is compiled if JAX can trace it, and else called on the host, once for each batch.
    """

    function: Callable[..., Any] = eqx.field(static=True)
    is_traceable: bool = eqx.field(static=True)

    def paid(self, world: Any, team: Any, trajectories: Trajectories) -> Paid:
        is_part, shape = has_acted(world, trajectories), trajectories.states.shape[:3]
        states, actions = trajectories.states, team.executed(trajectories.actions)
        if world.projection is None:
            seen = world.labels[states]
        else:
            seen = jnp.where(jnp.isfinite(states), states, 0.0)[..., : len(world.observation_center)]
        rows = [column.reshape(-1, *column.shape[4:]) for column in (seen[:, :, :, :-1], actions, seen[:, :, :, 1:])]
        if self.is_traceable:
            found = jnp.asarray(self.function(*rows), jnp.float32)
        else:
            expected = jax.ShapeDtypeStruct((len(rows[0]),), jnp.float32)
            found = jax.pure_callback(self._on_host, expected, *rows, vmap_method="sequential")
        return Paid(jnp.where(is_part, found.reshape(*shape, -1), 0.0), is_part, _ends(is_part))

    def _on_host(self, *rows: Any) -> np.ndarray:
        return np.asarray(self.function(*map(np.asarray, rows)), np.float32)


def reward_function(function: Callable[..., Any], world: Any) -> RewardFunction:
    """The task of a user's function."""
    state: Any = jax.ShapeDtypeStruct((2,), jnp.int32)
    if world.projection is not None:
        state = jax.ShapeDtypeStruct((2, len(world.observation_center)), jnp.float32)
    action = jax.ShapeDtypeStruct((2, *world.actions.shape), world.actions.dtype)
    try:
        jax.eval_shape(lambda *rows: jnp.asarray(function(*rows), jnp.float32), state, action, state)
    except Exception:  # NumPy's functions raise many kinds of errors for JAX's tracers
        return RewardFunction(function, is_traceable=False)
    return RewardFunction(function, is_traceable=True)


def has_acted(world: Any, trajectories: Trajectories) -> Bool[Array, "batch agent trajectory time"]:
    """In which steps an agent acted, rather than wait after the end of its episode."""
    acted = acted_in(trajectories)
    if jnp.issubdtype(acted.dtype, jnp.floating):
        return jnp.all(jnp.isfinite(acted), axis=-1)
    return acted < world.num_states


def _ends(is_part: Bool[Array, "batch agent trajectory time"]) -> Bool[Array, "batch agent trajectory time"]:
    """The last steps of episodes that end before the horizon."""
    goes_on = jnp.concatenate([is_part[..., 1:], jnp.ones_like(is_part[..., :1])], axis=-1)
    return is_part & ~goes_on


class Guided(eqx.Module):
    """Networks of which a guide takes the first actions of an episode, and the learner all others."""

    learner: Any
    guide: Any
    num_steps: Float[Array, "*seed"] | None
    """How many actions the guide takes; None among the axes of arrays."""

    @property
    def num_agents(self) -> int:
        return self.learner.num_agents

    @property
    def num_uniforms(self) -> int:
        return self.learner.num_uniforms

    @property
    def axes(self) -> "Guided":
        return Guided(self.learner.axes, self.guide.axes, None)

    def sampler(self) -> Callable[[Array, Array, Array], Array]:
        assert self.num_steps is not None
        own, guiding, number = self.learner.sampler(), self.guide.sampler(), self.num_steps
        return lambda noise, time, seen: jnp.where(time < number, guiding(noise, time, seen), own(noise, time, seen))

    def executed(self, actions: Array) -> Array:
        return self.learner.executed(actions)
