"""Rollouts of a team in compiled worlds."""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from farflung.numerics import spread
from farflung.numerics.arrays import runs_on_cpu
from farflung.numerics.noise import Part, uniform_rows, uniforms
from farflung.worlds.world import CompiledWorld


class WorldWarning(RuntimeWarning):
    """A world gives states from which nothing can be learnt."""


class Trajectories(NamedTuple):
    """A team's episodes: all `horizon` + 1 states, and the actions between them.

    If states are vectors, those after an episode's early end are NaN.
    """

    states: Int[Array, "batch agent trajectory times"] | Float[Array, "batch agent trajectory times number"]
    actions: Int[Array, "batch agent trajectory time *choice"] | Float[Array, "batch agent trajectory time action"]
    broken: Int[Array, "batch agent trajectory"] | None = None
    """If states are vectors: the step after which the world gave a state that is not finite; 0 if none."""
    acting: Int[Array, "batch agent trajectory time"] | None = None
    """If numbered states are stepped on the host: the states in which actions were taken, and the last row of the tables for
    the time after an episode's end, when none were."""
    rewards: Float[Array, "batch agent trajectory time"] | None = None
    """If copies are stepped on the host: what the environment has paid for each action."""


def acted_in(trajectories: Trajectories) -> Array:
    """The states in which the actions were chosen: all but the last.

    If states are vectors, the state in which an episode ended is NaN as well: the action recorded there was never taken.
    """
    states = trajectories.states
    if trajectories.acting is not None:
        return trajectories.acting
    if jnp.issubdtype(states.dtype, jnp.integer):
        return states[:, :, :, :-1]
    has_acted = jnp.all(jnp.isfinite(states[:, :, :, 1:]), axis=-1)
    if trajectories.broken is not None:
        has_acted |= jnp.arange(1, states.shape[3]).reshape(1, 1, 1, -1) == trajectories.broken[..., None]
    return jnp.where(has_acted[..., None], states[:, :, :, :-1], jnp.nan)


@partial(jax.jit, static_argnames=("batch_size", "num_trajectories", "mesh_axis"))
def play(
    key: PRNGKeyArray, team: Any, world: CompiledWorld, batch_size: int, num_trajectories: int, mesh_axis: str | None = None
) -> Trajectories:
    """Plays `batch_size` times `num_trajectories` episodes with each agent of a team, in its own copies of the world.

    Args:
        mesh_axis: the axis of the mesh along which the agents are spread, if `team` is not all of them. An agent's random
            numbers don't depend on that.
    """
    copies = (batch_size, team.num_agents, num_trajectories)
    part = None
    if mesh_axis is not None:
        num_agents = team.num_agents * spread.num_parts(mesh_axis)
        part = Part(2, spread.first_of(mesh_axis, team.num_agents), num_agents)
    num_reset, num_act = world.num_reset_uniforms, team.num_uniforms
    num_step = num_act + world.num_step_uniforms
    num_steps = num_step * world.horizon
    shape = (num_steps + num_reset, *copies)
    if world.projection is not None:
        noise = uniforms(key, shape, part)
        return _play_vectors(team, world, noise[num_steps:], noise[:num_steps].reshape(num_step, world.horizon, *copies))
    noise_at = uniform_rows(key, shape, part)

    def stacked(rows: list[Array]) -> Float[Array, "batch agent trajectory uniform"]:
        return jnp.stack(rows, axis=-1) if rows else jnp.zeros((*copies, 0))

    def act(sampler: Any, noise: Float[Array, " uniform"], time: Int[Array, ""], state: Int[Array, ""]) -> Int[Array, ""]:
        return sampler(noise, time, state)

    by_trajectory = jax.vmap(act, (None, 0, None, 0))
    by_agent = jax.vmap(by_trajectory, (0, 0, None, 0))
    act_all = jax.vmap(by_agent, (None, 0, None, 0))
    step_all = jax.vmap(jax.vmap(jax.vmap(world.step_from)))
    samplers = jax.vmap(type(team).sampler, team.axes)(team)

    def step(state: Array, time: Int[Array, ""]) -> tuple[Array, tuple[Array, Array]]:
        noise = [noise_at(number * world.horizon, time, world.horizon) for number in range(num_step)]
        action = act_all(samplers, stacked(noise[:num_act]), time, state)
        return step_all(stacked(noise[num_act:]), state, action), (state, action)

    times = jnp.arange(world.horizon, dtype=jnp.int32)
    reset_all = jax.vmap(jax.vmap(jax.vmap(world.reset_from)))
    first = reset_all(stacked([noise_at(num_steps + number) for number in range(num_reset)]))
    # On a GPU, each loop step costs a kernel launch, which takes longer than the step; on a CPU, a smaller loop is faster.
    num_unrolled = 1 if runs_on_cpu() else 16
    last, (states, actions) = jax.lax.scan(step, first, times, unroll=num_unrolled)
    states, actions = (jnp.moveaxis(array, 0, -1) for array in (states, actions))
    return Trajectories(jnp.concatenate([states, last[..., None]], axis=-1), actions)


def _play_vectors(
    team: Any,
    world: Any,
    reset_noise: Float[Array, "reset batch agent trajectory"],
    step_noise: Float[Array, "step time batch agent trajectory"],
) -> Trajectories:
    """Plays episodes that end when the world says so, or when a state is not finite; later states are recorded as NaN.

    The world steps all copies along one axis, as simulators expect; the policies use the axes [batch, agent, trajectory].
    """
    copies, num_act = reset_noise.shape[1:], team.num_uniforms
    num_copies = math.prod(copies)

    def act(policy: Any, noise: Float[Array, " uniform"], time: Int[Array, ""], seen: Float[Array, " observation"]) -> Array:
        return policy.sampler()(noise, time, seen)

    by_trajectory = jax.vmap(act, (None, -1, None, 0))
    by_agent = jax.vmap(by_trajectory, (team.axes, -2, None, 0))
    act_all = jax.vmap(by_agent, (None, -3, None, 0))

    def by_copy(array: Array) -> Array:
        return array.reshape(*copies, *array.shape[1:])

    def step(carry: tuple[Any, Array, Array], inputs: tuple[Array, Array]) -> tuple[Any, tuple[Array, Array, Array]]:
        state, seen, is_over = carry
        time, noise = inputs
        actions = act_all(team, noise[:num_act], time, by_copy(seen))
        executed = team.executed(actions).reshape(num_copies, *actions.shape[3:])
        world_noise = noise[num_act:].reshape(world.num_step_uniforms, num_copies).T
        following = jax.vmap(world.step_from)(world_noise, state, executed)
        # Without a barrier, the CPU's compiler computes a part of the step once more for each use of an observation.
        observed = jax.lax.optimization_barrier(jax.vmap(world.observe)(following))
        is_broken = ~is_over & ~jnp.all(jnp.isfinite(observed), axis=-1)
        goes_on = ~(is_over | is_broken)

        def where_it_goes_on(new: Array, old: Array) -> Array:
            return jnp.where(goes_on.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        # Nothing is recorded after the end, so a copy may step on. Its floats stay: a simulator's loop may never end on an
        # infinite one. Whole numbers can't be infinite, and a grid is changed in place, faster than by a choice of two grids.
        def held(new: Array, old: Array) -> Array:
            return where_it_goes_on(new, old) if jnp.issubdtype(new.dtype, jnp.floating) else new

        state = jax.tree.map(held, following, state)
        seen = where_it_goes_on(observed, jnp.full_like(observed, jnp.nan))
        return (state, seen, ~goes_on | jax.vmap(world.is_over)(state)), (seen, actions, jnp.where(is_broken, time + 1, 0))

    first = jax.vmap(world.reset_from)(reset_noise.reshape(len(reset_noise), num_copies).T)
    begin = (first, jax.vmap(world.observe)(first), jax.vmap(world.is_over)(first))
    times = jnp.arange(world.horizon, dtype=jnp.int32)
    _, (states, actions, broken) = jax.lax.scan(step, begin, (times, jnp.moveaxis(step_noise, 1, 0)))
    states = jnp.moveaxis(jnp.concatenate([begin[1][None], states]), 0, 1)
    return Trajectories(by_copy(states), jnp.moveaxis(actions, 0, 3), by_copy(jnp.max(broken, axis=0)))
