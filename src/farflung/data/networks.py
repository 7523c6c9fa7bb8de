"""Networks that learn from the rewards of a dataset: implicit Q-learning, TD3+BC, and behaviour cloning."""

from collections.abc import Callable
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
from farflung.worlds.projection import Box, Discrete

_DEPTH = 2
_TARGET_RATE = 0.05
_MOST_WEIGHT = 100.0
_TARGET_NOISE, _MOST_TARGET_NOISE = 0.2, 0.5

See = Callable[[Array], Array]
"""What networks are given for an observation."""


class Experience(NamedTuple):
    """Single steps of a dataset; actions are indices, or vectors between -1 and 1."""

    observations: Float[Array, "step feature"]
    actions: Float[Array, "step action"] | Int[Array, " step"]
    next_observations: Float[Array, "step feature"]
    rewards: Float[Array, " step"]
    is_terminal: Bool[Array, " step"]
    """Whether the world has ended the episode with this step: nothing follows."""
    returns: Float[Array, " step"] | None = None
    """The discounted rewards from this step on, if whole episodes are known: the critics of implicit Q-learning then learn
    these, and no estimate of their own."""


class Learning(NamedTuple):
    """Settings of learning from a dataset."""

    method: str = "iql"
    """`iql`, `td3-bc` or `bc`."""
    batch_size: int = 64
    learning_rate: float = 0.003
    discount: float = 0.99
    expectile: float = 0.9
    """Implicit Q-learning: above 0.5, the value of a state leans towards the better actions in the data."""
    sharpness: float = 50.0
    """Implicit Q-learning: the weight of an action in imitation is exp(sharpness x advantage)."""
    greed: float = 2.5
    """TD3+BC: the weight of the critic against imitation."""
    value_bounds: tuple[float, float] = (-np.inf, np.inf)
    """Bounds of what a state can be worth, if they are known."""
    width: int = 64
    activation: Callable[[Array], Array] = jax.nn.relu


class Networks(eqx.Module):
    """What is learnt; of the input that `See` makes of an observation."""

    value: eqx.nn.MLP
    critics: eqx.nn.MLP
    """Two critics, stacked along a leading axis: of an action beside the input, or with an output for each index."""
    policy: eqx.nn.MLP
    """An output for each number of an action, before tanh, or the logit of each index."""


def learn(
    key: PRNGKeyArray,
    data: Experience,
    see: See,
    actions: Discrete | Box,
    num_batches: Int[ArrayLike, ""],
    settings: Learning,
) -> Networks:
    r"""Learns a policy from the steps of a dataset.

    Implicit Q-learning (Kostrikov, Nair and Levine, 2022): $V(s)$ is an expectile of $Q(s, a)$ over the actions in the data,
    $Q(s, a)$ is $r + \gamma V(s')$, and the policy imitates the actions of the data, each with the weight $e^{\beta (Q - V)}$.
    No value of an action outside the data is ever used, so the method suits the few episodes that a team collects. Where whole
    episodes are known, what followed in the data stands for $Q(s, a)$, as in advantage-weighted regression (Peng et al., 2019),
    so a goal counts from the first step of its episode on. In a world with chance, lucky actions look better than they are.

    TD3+BC (Fujimoto and Gu, 2021): the policy maximises a critic, and imitates the data beside it. The policy learns in every
    step here, not in every second one. Where the critic has no data, for example behind a wall, it fails.

    Behaviour cloning imitates all actions of the data.
    """
    init_key, draw_key = jr.split(key)
    networks, static = eqx.partition(_networks(init_key, data, see, actions, settings), eqx.is_array)
    optimizer = optax.scale_by_adam()
    num_steps = len(data.rewards)

    def step(number: Array, carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        networks, slow, moments = carry
        batch_key = jr.fold_in(draw_key, number)
        drawn = jnp.floor(uniforms(batch_key, (settings.batch_size,)) * num_steps).astype(int)
        batch = jax.tree.map(lambda column: column[drawn], data)
        loss = partial(_LOSSES[settings.method], key=batch_key, batch=batch, see=see, settings=settings)
        gradient = jax.grad(lambda networks: loss(eqx.combine(networks, static), eqx.combine(slow, static)))(networks)
        updates, moments = optimizer.update(gradient, moments)
        rate = settings.learning_rate * (1 + jnp.cos(np.pi * number / num_batches)) / 2
        networks = jax.tree.map(lambda leaf, update: leaf - rate * update, networks, updates)
        return networks, optax.incremental_update(networks, slow, _TARGET_RATE), moments

    networks, _, _ = jax.lax.fori_loop(0, num_batches, step, (networks, networks, optimizer.init(networks)))
    return eqx.combine(networks, static)


def _implicit(
    networks: Networks, slow: Networks, key: PRNGKeyArray, batch: Experience, see: See, settings: Learning
) -> Float[Array, ""]:
    """The sum of the losses of value, critics and policy; none of them has a gradient in another's networks."""
    states = see(batch.observations)
    values = jax.vmap(networks.value)(states)
    of_critics: ArrayLike = 0.0
    if batch.returns is not None:
        # Where several policies have played, what followed tells more of an action than critics that also saw those of others.
        judged = batch.returns
    else:
        next_values = jax.lax.stop_gradient(jax.vmap(networks.value)(see(batch.next_observations)))
        following = jnp.clip(next_values, *settings.value_bounds)
        target = batch.rewards + settings.discount * jnp.where(batch.is_terminal, 0.0, following)
        of_critics = jnp.mean((_judged(networks.critics, states, batch.actions) - target[None]) ** 2)
        judged = jnp.min(_judged(slow.critics, states, batch.actions), axis=0)
    ahead = judged - values
    share = jnp.where(ahead > 0, settings.expectile, 1 - settings.expectile)
    weight = jnp.minimum(jnp.exp(settings.sharpness * jax.lax.stop_gradient(ahead)), _MOST_WEIGHT)
    return jnp.mean(share * ahead**2) + of_critics + jnp.mean(weight * _missed(networks, states, batch.actions))


def _td3_bc(
    networks: Networks, slow: Networks, key: PRNGKeyArray, batch: Experience, see: See, settings: Learning
) -> Float[Array, ""]:
    """The sum of the losses of critics and policy; the policy's has no gradient in the critics."""
    states, next_states = see(batch.observations), see(batch.next_observations)
    # The batch has been drawn with the key itself.
    noise = _TARGET_NOISE * jr.normal(jr.fold_in(key, 0), batch.actions.shape)
    noise = jnp.clip(noise, -_MOST_TARGET_NOISE, _MOST_TARGET_NOISE)
    next_actions = jnp.clip(jnp.tanh(jax.vmap(slow.policy)(next_states)) + noise, -1, 1)
    following = jnp.clip(jnp.min(_judged(slow.critics, next_states, next_actions), axis=0), *settings.value_bounds)
    target = batch.rewards + settings.discount * jnp.where(batch.is_terminal, 0.0, following)
    of_critics = jnp.mean((_judged(networks.critics, states, batch.actions) - jax.lax.stop_gradient(target)[None]) ** 2)
    fixed = jax.tree.map(lambda leaf: jax.lax.stop_gradient(leaf) if eqx.is_array(leaf) else leaf, networks.critics)
    judged = _judged(fixed, states, jnp.tanh(jax.vmap(networks.policy)(states)))[0]
    scale = settings.greed / (jax.lax.stop_gradient(jnp.mean(jnp.abs(judged))) + 1e-6)
    return of_critics - scale * jnp.mean(judged) + jnp.mean(_missed(networks, states, batch.actions))


def _cloning(
    networks: Networks, slow: Networks, key: PRNGKeyArray, batch: Experience, see: See, settings: Learning
) -> Float[Array, ""]:
    return jnp.mean(_missed(networks, see(batch.observations), batch.actions))


_LOSSES: dict[str, Callable[..., Float[Array, ""]]] = {"iql": _implicit, "td3-bc": _td3_bc, "bc": _cloning}


def _judged(critics: eqx.nn.MLP, states: Float[Array, "step input"], actions: Array) -> Float[Array, "2 step"]:
    """What both critics say of actions."""
    if jnp.issubdtype(actions.dtype, jnp.integer):
        of_all = eqx.filter_vmap(lambda critic: jax.vmap(critic)(states))(critics)
        return jnp.squeeze(jnp.take_along_axis(of_all, actions[None, :, None], axis=-1), -1)
    with_actions = jnp.concatenate([states, actions], axis=-1)
    return eqx.filter_vmap(lambda critic: jax.vmap(critic)(with_actions))(critics)


def _missed(networks: Networks, states: Float[Array, "step input"], actions: Array) -> Float[Array, " step"]:
    """How far the policy is from the actions: the squared distance, or the negative log probability of an index."""
    outputs = jax.vmap(networks.policy)(states)
    if jnp.issubdtype(actions.dtype, jnp.integer):
        return -jnp.squeeze(jnp.take_along_axis(jax.nn.log_softmax(outputs), actions[:, None], axis=-1), -1)
    return jnp.sum((jnp.tanh(outputs) - actions) ** 2, axis=-1)


def _networks(key: PRNGKeyArray, data: Experience, see: See, actions: Discrete | Box, settings: Learning) -> Networks:
    value_key, critics_key, policy_key = jr.split(key, 3)
    (num_inputs,) = jax.eval_shape(see, data.observations[0]).shape
    is_discrete = isinstance(actions, Discrete)
    num_outputs = actions.num if isinstance(actions, Discrete) else actions.size

    def make(num_inputs: int, num_outputs: Any, key: PRNGKeyArray) -> eqx.nn.MLP:
        return eqx.nn.MLP(num_inputs, num_outputs, settings.width, _DEPTH, settings.activation, key=key)

    sizes = (num_inputs, num_outputs) if is_discrete else (num_inputs + num_outputs, "scalar")
    critics = eqx.filter_vmap(partial(make, *sizes))(jr.split(critics_key, 2))
    return Networks(make(num_inputs, "scalar", value_key), critics, make(num_inputs, num_outputs, policy_key))
