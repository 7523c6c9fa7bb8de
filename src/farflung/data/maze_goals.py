"""Goals all over a point maze: a policy for each by implicit Q-learning from a dataset, and how often it reaches the goal."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from farflung.data.networks import Experience, Learning, Networks
from farflung.data.networks import learn as learn_networks
from farflung.numerics.noise import uniforms
from farflung.worlds.point_maze import PointMaze
from farflung.worlds.walls import is_blocked, reachable_areas, wall_table

_OCTAVES = 2.0 ** np.arange(4)
_FINER = 5


class MazeGoals(NamedTuple):
    """Settings of learning from a dataset and of testing."""

    radius: float
    """Distance within which the goal is reached."""
    learning: Learning = Learning(value_bounds=(0.0, 1.0))
    num_episodes: int = 10
    max_steps: int = 200


@partial(jax.jit, static_argnames="settings")
def reach_goals(
    key: PRNGKeyArray,
    world: PointMaze,
    data: Experience,
    goals: Float[Array, "goal 2"],
    num_batches: Int[ArrayLike, ""],
    settings: MazeGoals,
) -> Float[Array, " goal"]:
    """How often a policy learnt from the data reaches each goal; all goals are learnt side by side."""

    def reach(key: PRNGKeyArray, goal: Float[Array, "2"]) -> Float[Array, ""]:
        learn_key, test_key = jr.split(key)
        networks = learn(learn_key, world, data, goal, num_batches, settings)
        return success_rate(test_key, world, networks, goal, settings)

    return jax.vmap(reach)(jr.split(key, len(goals)), goals)


def learn(
    key: PRNGKeyArray,
    world: PointMaze,
    data: Experience,
    goal: Float[Array, "2"],
    num_batches: Int[ArrayLike, ""],
    settings: MazeGoals,
) -> Networks:
    """Learns from relabelled data: reaching the goal pays 1 and ends an episode."""
    arrives = _arrives(data.next_observations, goal, settings)
    task = data._replace(rewards=jnp.where(arrives, 1.0, 0.0), is_terminal=arrives)
    return learn_networks(key, task, partial(_seen, world), world.actions, num_batches, settings.learning)


def success_rate(
    key: PRNGKeyArray, world: PointMaze, networks: Networks, goal: Float[Array, "2"], settings: MazeGoals
) -> Float[Array, ""]:
    """The share of episodes in which the policy, acting without noise, reaches its goal."""

    def episode(noise: Float[Array, " uniform"]) -> Bool[Array, ""]:
        def step(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
            state, is_reached = carry
            state = world.step_from(jnp.zeros(0), state, jnp.tanh(networks.policy(_seen(world, state))))
            return (state, is_reached | _arrives(state, goal, settings)), None

        first = world.reset_from(noise)
        (_, is_reached), _ = jax.lax.scan(step, (first, _arrives(first, goal, settings)), None, settings.max_steps)
        return is_reached

    return jnp.mean(jax.vmap(episode)(uniforms(key, (settings.num_episodes, world.num_reset_uniforms))))


def spread_goals(world: PointMaze, num_goals: int) -> tuple[Float[np.ndarray, "goal 2"], float]:
    """About `num_goals` goals, the centres of equal cells that can be reached and hold no start, and half a cell's size."""
    size = np.array(world.high) - world.low
    columns, rows = np.maximum(np.round(size / np.sqrt(world.free_area / num_goals)), 1).astype(int).tolist()
    cell = size / (columns, rows)
    radius = float(cell.min() / 2)
    areas = reachable_areas(world.low, world.high, (columns * _FINER, rows * _FINER), world.walls, world.starts)
    can_be_reached = areas[_FINER // 2 :: _FINER, _FINER // 2 :: _FINER] > 0
    middles = world.low + (np.argwhere(can_be_reached) + 0.5) * cell
    begin, end = np.array(world.starts).reshape(-1, 2, 2).transpose(2, 0, 1)
    from_starts = np.linalg.norm(middles[:, None] - middles[:, None].clip(begin, end), axis=-1).min(axis=1)
    walls = wall_table(world.walls)
    is_in_wall = np.array([bool(is_blocked(walls, place, place)) for place in middles.astype(np.float32)], bool)
    return middles[(from_starts > 1.001 * radius) & ~is_in_wall].astype(np.float32), radius


def _arrives(states: Float[Array, "*batch 2"], goal: Float[Array, "2"], settings: MazeGoals) -> Bool[Array, "*batch"]:
    apart = states - jnp.broadcast_to(goal, states.shape)
    return jnp.sum(apart**2, axis=-1) <= settings.radius**2


def _seen(world: PointMaze, states: Float[Array, "*batch 2"]) -> Float[Array, "*batch input"]:
    """A state scaled to -1 to 1, with its Fourier features: values jump at a wall, where a plain network is smooth.

    See Tancik et al. (2020), "Fourier features let networks learn high frequency functions in low dimensional domains".
    """
    center, scale = (
        jnp.broadcast_to(jnp.asarray(each), states.shape) for each in (world.observation_center, world.observation_scale)
    )
    place = (states - center) / scale
    waves = [wave(np.float32(np.pi * octave) * place) for octave in _OCTAVES for wave in (jnp.sin, jnp.cos)]
    return jnp.concatenate([place, *waves], axis=-1)
