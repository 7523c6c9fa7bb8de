"""Implicit Q-learning from a dataset of a point maze: a policy for a goal, and how often it reaches the goal."""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from farflung.numerics.noise import uniforms
from farflung.worlds.point_maze import PointMaze
from farflung.worlds.walls import is_blocked, reachable_areas, wall_table

_WIDTH, _DEPTH = 64, 2
_OCTAVES = 2.0 ** np.arange(4)
_TARGET_RATE = 0.05
_MOST_WEIGHT = 100.0
_FINER = 5


class Experience(NamedTuple):
    """Single steps of a dataset."""

    observations: Float[Array, "step feature"]
    actions: Float[Array, "step action"]
    next_observations: Float[Array, "step feature"]


class ImplicitQLearning(NamedTuple):
    """Settings of learning from a dataset and of testing."""

    radius: float
    """Distance within which the goal is reached."""
    batch_size: int = 64
    learning_rate: float = 0.003
    discount: float = 0.99
    expectile: float = 0.9
    """Above 0.5, the value of a state leans towards the better actions in the data."""
    sharpness: float = 50.0
    """The inverse temperature: the weight of an action in imitation is exp(sharpness x advantage)."""
    num_episodes: int = 10
    max_steps: int = 200


class Networks(eqx.Module):
    """The networks for one goal; their input is a state with the features of `_seen`."""

    value: eqx.nn.MLP
    critics: eqx.nn.MLP
    """Two critics, stacked along a leading axis."""
    policy: eqx.nn.MLP


@partial(jax.jit, static_argnames="settings")
def reach_goals(
    key: PRNGKeyArray,
    world: PointMaze,
    data: Experience,
    goals: Float[Array, "goal 2"],
    num_batches: Int[ArrayLike, ""],
    settings: ImplicitQLearning,
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
    settings: ImplicitQLearning,
) -> Networks:
    r"""Implicit Q-learning (Kostrikov, Nair and Levine, 2022) on relabelled data: reaching the goal pays 1 and ends an episode.

    $V(s)$ is an expectile of $Q(s, a)$ over the actions in the data, $Q(s, a)$ is 1 on arrival and else $\gamma V(s')$, and the
    policy imitates the actions of the data, each with the weight $e^{\beta (Q - V)}$. No value of an action outside the data is
    ever used, so the method suits the few episodes that a team collects: methods that maximise a critic over all actions, such
    as TD3+BC, fail where the critic has no data, and behind a wall that is almost everywhere.
    """
    init_key, draw_key = jr.split(key)
    networks, static = eqx.partition(_networks(init_key, world), eqx.is_array)
    optimizer = optax.scale_by_adam()
    num_steps = len(data.actions)

    def step(number: Array, carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        networks, slow_critics, moments = carry
        drawn = jnp.floor(uniforms(jr.fold_in(draw_key, number), (settings.batch_size,)) * num_steps).astype(int)
        batch = jax.tree.map(lambda column: column[drawn], data)

        def loss(networks: Any) -> Float[Array, ""]:
            whole = eqx.combine(networks, static)
            return _loss(whole, eqx.combine(slow_critics, static.critics), world, batch, goal, settings)

        updates, moments = optimizer.update(jax.grad(loss)(networks), moments)
        rate = settings.learning_rate * (1 + jnp.cos(np.pi * number / num_batches)) / 2
        networks = jax.tree.map(lambda leaf, update: leaf - rate * update, networks, updates)
        return networks, optax.incremental_update(networks.critics, slow_critics, _TARGET_RATE), moments

    begin = (networks, networks.critics, optimizer.init(networks))
    networks, _, _ = jax.lax.fori_loop(0, num_batches, step, begin)
    return eqx.combine(networks, static)


def success_rate(
    key: PRNGKeyArray, world: PointMaze, networks: Networks, goal: Float[Array, "2"], settings: ImplicitQLearning
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


def _loss(
    networks: Networks,
    slow_critics: eqx.nn.MLP,
    world: PointMaze,
    batch: Experience,
    goal: Float[Array, "2"],
    settings: ImplicitQLearning,
) -> Float[Array, ""]:
    """The sum of the losses of value, critics and policy; none of them has a gradient in another's networks."""
    states, next_states = _seen(world, batch.observations), _seen(world, batch.next_observations)
    with_actions = jnp.concatenate([states, batch.actions], axis=-1)

    def both(critics: eqx.nn.MLP) -> Float[Array, "2 step"]:
        return eqx.filter_vmap(lambda critic: jax.vmap(critic)(with_actions))(critics)

    following = jnp.clip(jax.lax.stop_gradient(jax.vmap(networks.value)(next_states)), 0, 1)
    arrives = _arrives(batch.next_observations, goal, settings)
    target = jnp.where(arrives, 1.0, settings.discount * following)
    ahead = jnp.min(both(slow_critics), axis=0) - jax.vmap(networks.value)(states)
    share = jnp.where(ahead > 0, settings.expectile, 1 - settings.expectile)
    imitated = jnp.minimum(jnp.exp(settings.sharpness * jax.lax.stop_gradient(ahead)), _MOST_WEIGHT)
    missed = jnp.sum((jnp.tanh(jax.vmap(networks.policy)(states)) - batch.actions) ** 2, axis=-1)
    return jnp.mean(share * ahead**2) + jnp.mean((both(networks.critics) - target[None]) ** 2) + jnp.mean(imitated * missed)


def _arrives(states: Float[Array, "*batch 2"], goal: Float[Array, "2"], settings: ImplicitQLearning) -> Bool[Array, "*batch"]:
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


def _networks(key: PRNGKeyArray, world: PointMaze) -> Networks:
    value_key, critics_key, policy_key = jr.split(key, 3)
    num_inputs, num_actions = world.observation_size * (1 + 2 * len(_OCTAVES)), world.actions.size

    def make(num_inputs: int, num_outputs: Any, key: PRNGKeyArray) -> eqx.nn.MLP:
        return eqx.nn.MLP(num_inputs, num_outputs, _WIDTH, _DEPTH, key=key)

    critics = eqx.filter_vmap(partial(make, num_inputs + num_actions, "scalar"))(jr.split(critics_key, 2))
    return Networks(make(num_inputs, "scalar", value_key), critics, make(num_inputs, num_actions, policy_key))
