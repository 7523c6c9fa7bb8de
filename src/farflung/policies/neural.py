"""Neural policies for worlds whose states are vectors; a team is one pytree."""

import abc
import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from farflung.config import Explore
from farflung.config.options import ACTOR_CRITIC
from farflung.numerics.arrays import log_softmax
from farflung.worlds.encoder import Convolutions, convolutions
from farflung.worlds.encoder import linear as _linear
from farflung.worlds.hosted.world import View
from farflung.worlds.projection import Actions, Box
from farflung.worlds.world import World

_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(24)
_NODE_SHARES = _NODE_WEIGHTS / math.sqrt(2 * math.pi)
_LEAST_LOG_STD, _MOST_LOG_STD = -5.0, 2.0
_LEAST_STD = 1e-3
_VECTOR_SIZE = 8
_LEAST_NOISE = 2.0**-25  # half the spacing of the uniform numbers: a Gaussian's quantile at 0 is infinite


class OutputLayer(NamedTuple):
    """The last layer of a network, and the log standard deviations if they don't depend on the state."""

    head: eqx.nn.Linear
    log_std: Float[Array, "*agent action"] | None


class Normalizer(NamedTuple):
    """Mean and standard deviation of what a team has seen so far, by which its networks' inputs are centred and scaled."""

    mean: Float[Array, " observation"]
    std: Float[Array, " observation"]
    num_seen: Float[Array, ""]
    """In thousands of observations."""

    def after(self, seen: Float[Array, "*axes observation"]) -> "Normalizer":
        """With the observations of one more batch; those that are not finite don't count."""
        is_real = jnp.all(jnp.isfinite(seen), axis=-1, keepdims=True)
        axes = tuple(range(seen.ndim - 1))
        number = jnp.maximum(jnp.sum(is_real, dtype=jnp.float32), 1.0)
        mean = jnp.sum(jnp.where(is_real, seen, 0.0), axis=axes) / number
        apart = jnp.where(is_real, seen - _last(mean, seen.ndim), 0.0)
        variance = jnp.sum(apart**2, axis=axes) / number
        num_seen = self.num_seen + number / 1000
        share = number / 1000 / num_seen
        between = share * (1 - share) * (mean - self.mean) ** 2
        std = jnp.sqrt((1 - share) * self.std**2 + share * variance + between)
        return Normalizer(self.mean + share * (mean - self.mean), jnp.maximum(std, _LEAST_STD), num_seen)


class Acting(eqx.Module):
    """Policies whose actions are discrete, several choices at once, or vectors between bounds."""

    actions: Actions

    @property
    def num_uniforms(self) -> int:
        return self.actions.size

    @abc.abstractmethod
    def sample_one(self, noise: Array, time: Array, observation: Array) -> Array:
        """Samples one action."""

    def sampler(self) -> Callable[[Array, Array, Array], Array]:
        return self.sample_one

    def executed(self, actions: Array) -> Array:
        """The actions that the world executes: discrete ones unchanged, vectors squashed into their bounds."""
        if not isinstance(self.actions, Box):
            return actions
        is_bounded, low, high = (_last(part, actions.ndim) for part in box(self.actions))
        squashed = (high + low) / 2 + (high - low) / 2 * jnp.tanh(actions)
        least, most = (_last(_single(bounds), actions.ndim) for bounds in (self.actions.low, self.actions.high))
        # Squashed actions are clipped as well: rounding may exceed a bound in the last bit.
        return jnp.clip(jnp.where(is_bounded, squashed, actions), least, most)


class NeuralPolicy(Acting):
    """A multilayer perceptron that maps an observation to a distribution over actions, discrete or vectors.

    It sees an image through convolutions. Vectors are recorded as drawn from the Gaussian, before tanh: that density is
    simple, and ratios and scores are the same. In a team, leaves have a leading agent axis, except for the parts that all
    agents share: with a shared trunk, `eye`, `trunk` and `common`; if one network is conditioned on a vector per agent,
    everything but `vector`; and always the `normalizer`.
    """

    trunk: tuple[eqx.nn.Linear, ...]
    head: eqx.nn.Linear
    log_std: Float[Array, "*owner action"] | None
    """The log standard deviations, if they don't depend on the state."""
    center: tuple[float, ...] = eqx.field(static=True)
    scale: tuple[float, ...] = eqx.field(static=True)
    has_shared_trunk: bool = eqx.field(static=True, default=False)
    common: OutputLayer | None = None
    """With a shared trunk: the output layer that all agents share and add to their own; it learns from all their data."""
    eye: Convolutions | None = None
    """What the trunk sees an image through."""
    vector: Float[Array, "*agent number"] | None = None
    """If all agents share one network: what its trunk is told about the agent, in addition to what it sees."""
    normalizer: Normalizer | None = None
    """If the algorithm keeps count of what the team sees: applied after `center` and `scale`, which are known beforehand."""

    @property
    def num_agents(self) -> int:
        """The number of agents of a team."""
        assert self.head.bias is not None
        return (self.head.bias if self.vector is None else self.vector).shape[-2]

    @property
    def axes(self) -> "NeuralPolicy":
        """The agent axis of each leaf, for `vmap`."""
        axes = jax.tree.map(lambda _: 0, self)
        names = ["normalizer"]
        if self.vector is not None:
            names += ["eye", "trunk", "head", "log_std"]
        elif self.has_shared_trunk:
            names += ["eye", "trunk", "common"]
        shared = [jax.tree.map(lambda _: None, getattr(self, name)) for name in names]
        return eqx.tree_at(
            lambda team: [getattr(team, name) for name in names], axes, shared, is_leaf=lambda part: part is None
        )

    @property
    def has_shared_parts(self) -> bool:
        """Whether all agents share a trunk or a network."""
        return self.has_shared_trunk or self.vector is not None

    @property
    def own_parts(self) -> "NeuralPolicy":
        """Of each leaf: whether it is an agent's own beside parts that all agents share, and learns from its data alone."""
        return jax.tree.map(lambda _, axis: self.has_shared_parts and axis is not None, self, self.axes)

    def softened(self, epsilon: float, temperature: float) -> "NeuralPolicy | EpsilonPolicy":
        r"""A flatter policy, $\pi^{1/\tau} / Z$, that takes a random action with probability $\varepsilon$.

        The temperature divides the logits of discrete actions, and multiplies the variances of vectors before tanh.
        """

        def flatter(layer: OutputLayer, *, is_own: bool) -> OutputLayer:
            head, more = layer.head, 0.5 * math.log(temperature) * is_own
            if not isinstance(self.actions, Box):
                return layer._replace(head=jax.tree.map(lambda leaf: leaf / temperature, head))
            if layer.log_std is not None:
                return layer._replace(log_std=layer.log_std + more)
            assert head.bias is not None
            return layer._replace(
                head=eqx.tree_at(lambda head: head.bias, head, head.bias.at[..., self.actions.size :].add(more))
            )

        own = flatter(OutputLayer(self.head, self.log_std), is_own=True)
        common = None if self.common is None else flatter(self.common, is_own=False)
        policy = dataclasses.replace(self, head=own.head, log_std=own.log_std, common=common)
        return EpsilonPolicy(self.actions, policy, epsilon) if epsilon else policy

    def separate(self) -> "NeuralPolicy":
        """A team that acts the same, but whose agents share nothing: vectors and the normaliser become part of the weights."""

        def copied(tree: Any) -> Any:
            return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.num_agents, *leaf.shape)), tree)

        eye, trunk, own = self.eye, self.trunk, OutputLayer(self.head, self.log_std)
        if self.has_shared_trunk or self.vector is not None:
            eye, trunk = copied((eye, trunk))
        if self.vector is not None:
            own = copied(own)
        if self.common is not None:
            own = jax.tree.map(lambda leaf, common: leaf + common[None], own, self.common)
        first = trunk[0]
        assert first.bias is not None
        weight, bias = first.weight, first.bias
        if self.vector is not None:
            weight, told = jnp.split(weight, [weight.shape[-1] - self.vector.shape[-1]], axis=-1)
            bias = bias + jnp.einsum("aon,an->ao", told, self.vector)
        if self.normalizer is not None:
            weight = weight / _last(self.normalizer.std, weight.ndim)
            bias = bias - weight @ self.normalizer.mean
        narrower = eqx.nn.Linear(weight.shape[-1], weight.shape[-2], key=jr.key(0))
        first = eqx.tree_at(lambda layer: (layer.weight, layer.bias), narrower, (weight, bias))
        return dataclasses.replace(
            self,
            eye=eye,
            trunk=(first, *trunk[1:]),
            head=own.head,
            log_std=own.log_std,
            has_shared_trunk=False,
            common=None,
            vector=None,
            normalizer=None,
        )

    def sample_one(
        self, noise: Float[Array, " uniform"], time: Int[Array, ""], observation: Float[Array, " observation"]
    ) -> Array:
        outputs = self._outputs(observation)
        if not isinstance(self.actions, Box):
            thresholds = [jnp.cumsum(jnp.exp(choice))[:-1] for choice in self._choices(outputs)]
            chosen = [jnp.sum(own >= below, dtype=jnp.int32) for own, below in zip(noise, thresholds, strict=True)]
            return jnp.stack(chosen).reshape(self.actions.shape)
        mean, log_std = self._gaussian(outputs)
        return mean + jnp.exp(log_std) * jax.scipy.special.ndtri(jnp.maximum(noise, _LEAST_NOISE))

    def log_probability(self, states: Float[Array, "*batch observation"], actions: Array) -> Float[Array, "*batch"]:
        """The log probability of discrete actions, or the log density of vectors before tanh."""
        outputs = self._outputs(states)
        if not isinstance(self.actions, Box):
            chosen = actions.reshape(*states.shape[:-1], self.actions.size)
            each = enumerate(self._choices(outputs))
            found = [jnp.take_along_axis(choice, chosen[..., i : i + 1], axis=-1)[..., 0] for i, choice in each]
            return functools.reduce(jnp.add, found)
        mean, log_std = self._gaussian(outputs)
        deviation = (actions - mean) * jnp.exp(-log_std)
        return -0.5 * jnp.sum(deviation**2 + 2 * log_std + math.log(2 * math.pi), axis=-1)

    def entropy(self, states: Float[Array, "*batch observation"]) -> Float[Array, "*batch"]:
        """The entropy of the executed actions, in nats; for vectors after tanh, by quadrature."""
        outputs = self._outputs(states)
        if not isinstance(self.actions, Box):
            own = [-jnp.sum(jnp.exp(choice) * choice, axis=-1) for choice in self._choices(outputs)]
            return functools.reduce(jnp.add, own)
        mean, log_std = self._gaussian(outputs)
        is_bounded, low, high = box(self.actions)
        nodes = mean[..., None] + jnp.exp(log_std)[..., None] * _last(_NODES.astype(np.float32), mean.ndim + 1)
        log_slopes = 2 * (math.log(2) - nodes - jax.nn.softplus(-2 * nodes))  # of tanh
        of_slopes = jnp.sum(log_slopes * _last(_NODE_SHARES.astype(np.float32), nodes.ndim), axis=-1)
        squeezed = jnp.where(_last(is_bounded, mean.ndim), _last(np.log((high - low) / 2), mean.ndim) + of_slopes, 0.0)
        return jnp.sum(log_std + 0.5 * math.log(2 * math.pi * math.e) + squeezed, axis=-1)

    def gradient(
        self,
        states: Float[Array, "batch agent trajectory time observation"],
        actions: Array,
        weights: Float[Array, "batch agent #trajectory #time"],
        bonus: Float[ArrayLike, ""] | None = None,
    ) -> "NeuralPolicy":
        r"""A team's gradient of $\sum w \log \pi(a \mid s)$ plus `bonus` times the sum of the policies' entropies.

        States after an episode's end, which are not finite, don't count.
        """
        is_real = jnp.all(jnp.isfinite(states), axis=-1)

        def objective(team: NeuralPolicy) -> Float[Array, ""]:
            by_agent = jax.vmap(NeuralPolicy.log_probability, (team.axes, 1, 1), out_axes=1)
            total = jnp.sum(jnp.where(is_real, weights * by_agent(team, states, actions), 0.0))
            if bonus is None:
                return total
            own = jax.vmap(NeuralPolicy.entropy, (team.axes, 1), out_axes=1)(team, states)
            return total + bonus * jnp.sum(jnp.where(is_real, own, 0.0))

        return eqx.filter_grad(objective)(self)

    def inputs(self, states: Float[Array, "*batch recorded"]) -> Float[Array, "*batch observation"]:
        """What networks see of observations: centred and scaled; zero after an episode's end."""
        inputs = self.scaled(states)
        is_real = jnp.isfinite(inputs)
        if self.normalizer is not None:
            # Statistics are counted, not learned by gradients, which states after an episode's end would make NaN.
            mean, std = (_last(jax.lax.stop_gradient(values), states.ndim) for values in self.normalizer[:2])
            inputs = (inputs - mean) / std
        return jnp.where(is_real, inputs, 0.0)

    def scaled(self, states: Float[Array, "*batch recorded"]) -> Float[Array, "*batch observation"]:
        """Observations, centred and scaled by what is known of the world before training."""
        center, scale = (_last(_single(values), states.ndim) for values in (self.center, self.scale))
        return (states[..., : len(self.center)] - center) / scale  # what follows an observation is for the entropy alone

    def _outputs(self, states: Float[Array, "*batch observation"]) -> Float[Array, "*batch output"]:
        hidden = self.inputs(states)
        with jax.default_matmul_precision("highest"):  # by default a GPU rounds to 10 bits, which is not reproducible
            if self.eye is not None:
                hidden = self.eye(hidden)
            if self.vector is not None:
                told = jnp.broadcast_to(_last(self.vector, states.ndim), (*states.shape[:-1], self.vector.size))
                hidden = jnp.concatenate([hidden, told], axis=-1)
            for layer in self.trunk:
                hidden = jnp.tanh(_linear(layer, hidden))
            own = _linear(self.head, hidden)
            return own if self.common is None else own + _linear(self.common.head, hidden)

    def _choices(self, outputs: Float[Array, "*batch output"]) -> list[Float[Array, "*batch _"]]:
        """The log probabilities of each choice that an action consists of; the choices are independent given the state."""
        assert not isinstance(self.actions, Box)
        return [log_softmax(each) for each in jnp.split(outputs, np.cumsum(self.actions.nums)[:-1], axis=-1)]

    def _gaussian(self, outputs: Float[Array, "*batch output"]) -> tuple[Float[Array, "*batch a"], Float[Array, "*batch a"]]:
        """Means and log standard deviations."""
        if self.log_std is None:
            mean, log_std = jnp.split(outputs, 2, axis=-1)
        else:
            own = self.log_std if self.common is None or self.common.log_std is None else self.log_std + self.common.log_std
            mean, log_std = outputs, jnp.broadcast_to(_last(own, outputs.ndim), outputs.shape)
        # Straight-through clipping: with a zero gradient, a deviation outside of the range could never come back.
        return mean, log_std + jax.lax.stop_gradient(jnp.clip(log_std, _LEAST_LOG_STD, _MOST_LOG_STD) - log_std)


class UniformPolicy(Acting):
    """An untrained team: uniformly random actions, or standard Gaussian ones if actions have no bounds."""

    num_agents: int = eqx.field(static=True, default=1)

    axes = None

    def sample_one(
        self, noise: Float[Array, " uniform"], time: Int[Array, ""], observation: Float[Array, " observation"]
    ) -> Array:
        if not isinstance(self.actions, Box):
            return (noise * np.asarray(self.actions.nums, np.float32)).astype(jnp.int32).reshape(self.actions.shape)
        is_bounded, _, _ = box(self.actions)
        inside = jnp.maximum(noise, _LEAST_NOISE)
        return jnp.where(is_bounded, jnp.arctanh(2 * inside - 1), jax.scipy.special.ndtri(inside))

    def entropy(self, states: Float[Array, "*batch observation"]) -> Float[Array, "*batch"]:
        if not isinstance(self.actions, Box):
            return jnp.full(states.shape[:-1], math.log(math.prod(self.actions.nums)))
        is_bounded, low, high = box(self.actions)
        own = np.where(is_bounded, np.log(high - low), 0.5 * math.log(2 * math.pi * math.e))
        return jnp.full(states.shape[:-1], float(own.sum()))


class EpsilonPolicy(Acting):
    """A team that takes a uniformly random action with probability `epsilon`, and otherwise its own."""

    own: NeuralPolicy
    epsilon: float = eqx.field(static=True)

    @property
    def num_agents(self) -> int:
        return self.own.num_agents

    @property
    def num_uniforms(self) -> int:
        return 1 + 2 * self.own.num_uniforms

    @property
    def axes(self) -> "EpsilonPolicy":
        return EpsilonPolicy(self.actions, self.own.axes, self.epsilon)

    def sample_one(
        self, noise: Float[Array, " uniform"], time: Int[Array, ""], observation: Float[Array, " observation"]
    ) -> Array:
        own_noise, random_noise = jnp.split(noise[1:], 2)
        random = UniformPolicy(self.actions).sample_one(random_noise, time, observation)
        return jnp.where(noise[0] < self.epsilon, random, self.own.sample_one(own_noise, time, observation))


def box(space: Box) -> tuple[Bool[np.ndarray, " a"], Float[np.ndarray, " a"], Float[np.ndarray, " a"]]:
    """Which numbers of an action have two finite bounds, and the bounds (-1 and 1 for the others)."""
    low, high = _single(space.low), _single(space.high)
    is_bounded = np.isfinite(low) & np.isfinite(high)
    return is_bounded, np.where(is_bounded, low, np.float32(-1)), np.where(is_bounded, high, np.float32(1))


def _last(values: Any, num_axes: int) -> Any:
    """A vector along the last of `num_axes` axes."""
    return values.reshape((1,) * (num_axes - 1) + (-1,))


def _single(values: tuple[float, ...]) -> Float[np.ndarray, " value"]:
    return np.asarray(values, np.float32)


class Networks(NamedTuple):
    """The architecture of a team's networks."""

    hidden: tuple[int, ...] = (64, 64)
    """Widths of the trunk's layers."""
    has_shared_trunk: bool = False
    """Whether all agents share one trunk and have only their own heads, which takes less memory."""
    has_free_std: bool = True
    """Whether the standard deviations of vectors are parameters; otherwise they are functions of the state."""
    std: float = 0.6
    """Initial standard deviation, before tanh."""
    is_conditioned: bool = False
    """Whether all agents share one network, which is told who acts by a learned vector."""
    is_normalizing: bool = False
    """Whether inputs are centred and scaled by what the team has seen, for algorithms that keep count of it."""


def networks_of(config: Explore) -> Networks:
    """The architecture that a config describes."""
    return Networks(
        config.hidden,
        config.policy == "shared-trunk",
        config.std == "free",
        config.init_std,
        config.policy == "conditioned",
        config.algorithm == ACTOR_CRITIC,
    )


def neural_team(
    key: PRNGKeyArray,
    world: World | View,
    num_agents: int,
    networks: Networks = Networks(),  # noqa: B008
    *,
    scale: Float[ArrayLike, ""] = 0.01,
) -> NeuralPolicy:
    """A team of networks with random weights; with a shared trunk all agents start equal and diverge as they learn.

    Agents that share one network start with different vectors.

    Args:
        scale: factor on the initial weights of the heads; near zero, an agent's first policy hardly depends on the state.
    """
    trunk_key, head_key = jr.split(key)
    num_seen = len(world.observation_center) if world.image is None else convolutions(key, world.image)[1]
    sizes = (num_seen + _VECTOR_SIZE * networks.is_conditioned, *networks.hidden)
    actions, log_std = world.actions, math.log(networks.std)
    has_log_std = isinstance(actions, Box) and networks.has_free_std
    num_outputs = actions.size * (1 if networks.has_free_std else 2) if isinstance(actions, Box) else sum(actions.nums)

    def trunk(key: PRNGKeyArray) -> tuple[eqx.nn.Linear, ...]:
        keys = jr.split(key, len(networks.hidden))
        return tuple(eqx.nn.Linear(a, b, key=each) for a, b, each in zip(sizes[:-1], sizes[1:], keys, strict=True))

    def output_layer(key: PRNGKeyArray) -> OutputLayer:
        layer = eqx.nn.Linear(sizes[-1], num_outputs, key=key)
        bias = jnp.zeros(num_outputs)
        if isinstance(actions, Box) and not networks.has_free_std:
            bias = bias.at[actions.size :].set(log_std)
        head = eqx.tree_at(lambda layer: (layer.weight, layer.bias), layer, (layer.weight * scale, bias))
        return OutputLayer(head, jnp.full(num_outputs, log_std, jnp.float32) if has_log_std else None)

    def eye(key: PRNGKeyArray) -> Convolutions | None:
        return None if world.image is None else convolutions(jr.fold_in(key, 1), world.image)[0]

    vector = None
    if networks.is_conditioned:
        first, own, common, seen = trunk(trunk_key), output_layer(head_key), None, eye(trunk_key)
        vector = jr.normal(jr.fold_in(trunk_key, 2), (num_agents, _VECTOR_SIZE))
    elif networks.has_shared_trunk:
        first, common, seen = trunk(trunk_key), output_layer(head_key), eye(trunk_key)
        own = jax.tree.map(lambda leaf: jnp.zeros((num_agents, *leaf.shape), leaf.dtype), common)
    else:
        first, common = eqx.filter_vmap(trunk)(jr.split(trunk_key, num_agents)), None
        seen = None if world.image is None else eqx.filter_vmap(eye)(jr.split(trunk_key, num_agents))
        own = eqx.filter_vmap(output_layer)(jr.split(head_key, num_agents))
    normalizer = None
    if networks.is_normalizing and world.image is None:  # pixels have one scale, which is known
        normalizer = Normalizer(jnp.zeros(num_seen), jnp.ones(num_seen), jnp.zeros(()))
    return NeuralPolicy(
        trunk=first,
        head=own.head,
        log_std=own.log_std,
        actions=actions,
        center=world.observation_center,
        scale=world.observation_scale,
        has_shared_trunk=networks.has_shared_trunk,
        common=common,
        eye=seen,
        vector=vector,
        normalizer=normalizer,
    )
