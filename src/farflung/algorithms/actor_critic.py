r"""Actor-critic: each state's gain in entropy, or what a task pays, is a reward, and a critic learns what to expect.

The reward of a step is the gain of the state that it leads to (`Objective.gains`): what that state adds to the entropy of all
states of the other trajectories and of its own past. The rewards after an action, without discount, add up to the weight that
the credit `causal` gives it. A critic $V(o, t, i)$ of the observation, the time and the agent is subtracted. It doesn't depend
on the action, so it leaves the expected gradient as it is, however wrong it may be. What does bias the gradient, for less
variance:

- $\lambda < 1$ and $\gamma < 1$: later rewards are replaced by what the critic expects, or count less;
- clipping, from the second gradient step of a batch on, when the policy is no longer the one that played;
- the division by standard deviations of the same batch, of order one over the number of steps.

With $\gamma = \lambda = 1$ and one step per batch, the estimate is that of `causal`, with another baseline.

With a task, the rewards are the task's; intrinsic ones may be added. Policies may start from an explorer's, and an explorer may
guide them: it takes the first actions of each episode, fewer and fewer (Uchendu et al., "Jump-start reinforcement learning",
2023). Only steps of the learner are learned from, so that the estimate stays on-policy.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray, Shaped, UInt

from farflung.algorithms.optimizers import optimizer
from farflung.algorithms.pgpse import traced_number
from farflung.algorithms.task import Guided, Task, has_acted
from farflung.config import NEURAL_OPTIMIZERS, Explore
from farflung.config.checks import check_learning, check_name, whole_number
from farflung.config.options import OBJECTIVE
from farflung.entropy.credit import independent, recombined
from farflung.entropy.named import named_objective
from farflung.entropy.objective import Objective, ObjectiveIn
from farflung.policies import (
    Networks,
    NeuralPolicy,
    TabularSoftmax,
    log_probabilities,
    networks_of,
    neural_team,
    policy_entropies,
    softmax_team,
)
from farflung.policies.rollout import Trajectories, acted_in
from farflung.worlds.encoder import Convolutions, convolutions, linear

_VECTOR_SIZE = 8
_BONUS_SHARE = 8
_SMALLEST = 1e-6
_LEAST_SPREAD = 0.02
"""With a task, which may pay nothing for long: advantages that vary less are not scaled up to a standard deviation of 1."""
_CODE_SIZE = 16


class Critic(eqx.Module):
    """What is expected of the rewards after a state, given the observation, the time and the agent."""

    layers: tuple[eqx.nn.Linear, ...]
    vectors: Float[Array, "agent number"]
    """What the network is told about each agent."""
    eye: Convolutions | None = None
    """What the layers see an image through."""

    def __call__(
        self, inputs: Float[Array, "agent step observation"], times: Float[Array, "agent step"]
    ) -> Float[Array, "agent step"]:
        told = jnp.broadcast_to(self.vectors[:, None], (*inputs.shape[:2], self.vectors.shape[-1]))
        with jax.default_matmul_precision("highest"):
            seen = inputs if self.eye is None else self.eye(inputs)
            hidden = jnp.concatenate([seen, times[..., None], told], axis=-1)
            for layer in self.layers[:-1]:
                hidden = jnp.tanh(linear(layer, hidden))
            return jnp.squeeze(linear(self.layers[-1], hidden), -1)


class TableCritic(eqx.Module):
    """The same for numbered states: a number for each agent and row of its table, which tells the time if policies know it."""

    values: Float[Array, "agent *time state 1"]
    """The last axis is that of a policy's actions: tables of both grow alike as states are met."""

    def __call__(self, rows: Int[Array, "agent step"], times: Float[Array, "agent step"]) -> Float[Array, "agent step"]:
        return jnp.take_along_axis(self.values.reshape(len(self.values), -1), rows, axis=1)


class Curiosity(eqx.Module):
    """Random network distillation (Burda et al., 2019): a state is as new as a fixed random code of it is hard to predict."""

    code: Any
    """Networks of the fixed code and of its prediction, or tables with a row for each numbered state."""
    predicted: Any

    def __call__(self, inputs: Float[Array, "*axes observation"] | Int[Array, "*axes"]) -> Float[Array, "*axes"]:
        code, predicted = self._codes(jax.lax.stop_gradient(self.code), inputs), self._codes(self.predicted, inputs)
        return jnp.mean((predicted - code) ** 2, axis=-1)

    @staticmethod
    def _codes(code: Any, inputs: Array) -> Float[Array, "*axes number"]:
        if not isinstance(code, tuple):
            return code[inputs]
        with jax.default_matmul_precision("highest"):
            return linear(code[1], jnp.tanh(linear(code[0], inputs)))


class ActorCriticState(NamedTuple):
    team: Any
    critic: Any
    """A `Critic`, or a `TableCritic` where states are numbered."""
    optimizer_state: optax.OptState
    num_updates: Int[Array, ""]
    shuffle_key: UInt[Array, "2"]
    curiosity: Curiosity | None = None


class Experience(NamedTuple):
    """The steps of a batch, in which all agents have as many; a step is an action and what followed."""

    seen: Float[Array, "agent step observation"] | Int[Array, "agent step"]
    """What agents acted on: observations, or rows of their tables."""
    is_real: Bool[Array, "agent step"]
    """Whether there is something to learn from the step: not after an episode's end, nor while a guide acts."""
    actions: Float[Array, "agent step action"] | Int[Array, "agent step"]
    times: Float[Array, "agent step"]
    log_probabilities: Float[Array, "agent step"]
    """Of the actions, when they were taken."""
    advantages: Float[Array, "agent step"]
    returns: Float[Array, "agent step"]
    news: Float[Array, "agent step observation"] | Int[Array, "agent step"] | None = None
    """What curiosity learns to predict the code of: the inputs or states after the actions."""


class ActorCritic(eqx.Module):
    """Proximal policy optimisation (PPO) of a team, for the entropy of the states that it visits together, or for a task.

    >>> import farflung
    >>> algorithm = farflung.ActorCritic(num_agents=2, batch_size=4, networks=farflung.Networks((8,)))
    >>> *_, last = farflung.train(algorithm, farflung.make_world("point-gap"), seeds=(0,), num_updates=3)
    >>> last.team.num_agents
    2
    """

    num_agents: int = eqx.field(static=True)
    num_trajectories: int = eqx.field(static=True, default=1)
    batch_size: int = eqx.field(static=True, default=16)
    networks: Networks | None = eqx.field(static=True, default=Networks(is_normalizing=True))
    """None for tables, where states are numbered."""
    optimizer: str = eqx.field(static=True, default="adam")
    learning_rate: Float[ArrayLike, ""] = eqx.field(default=0.002, converter=traced_number)
    decay: Float[ArrayLike, ""] = eqx.field(default=1.0, converter=traced_number)
    """Factor on the learning rate after each update."""
    discount: Float[ArrayLike, ""] = eqx.field(default=0.99, converter=traced_number)
    r"""$\gamma$: the factor on a reward for each step that it is away."""
    trace: Float[ArrayLike, ""] = eqx.field(default=0.95, converter=traced_number)
    r"""$\lambda$: 1 trusts the rewards alone, 0 the critic alone, after the next reward."""
    steps_per_batch: int = eqx.field(static=True, default=16)
    num_minibatches: int = eqx.field(static=True, default=4)
    """Parts into which a batch is divided at random; each gradient step takes the next part. All agents are in each of them."""
    clip: Float[ArrayLike, ""] = eqx.field(default=0.2, converter=traced_number)
    """How far the probability of an action may move within a batch, relative to what it was, before the action is ignored."""
    init_scale: Float[ArrayLike, ""] = eqx.field(default=0.01, converter=traced_number)
    """Factor on the first weights of the heads."""
    entropy_bonus: Float[ArrayLike, ""] = eqx.field(default=0.0, converter=traced_number)
    """Weight of the mean entropy of the policies themselves, next to advantages of standard deviation 1."""
    bonus_decay: Float[ArrayLike, ""] = eqx.field(default=1.0, converter=traced_number)
    """Factor on that weight after each update."""
    is_independent: bool = eqx.field(static=True, default=False)
    """Whether each agent is trained for its own entropy alone."""
    num_combinations: int = eqx.field(static=True, default=1)
    """Number of regroupings of the batch into teams over which the gains are averaged."""
    warm_up_updates: Float[ArrayLike, ""] | None = eqx.field(default=None, converter=traced_number)
    """The number of updates in which agents start equal and learn as one policy, before they part over as many updates.

    Networks of their own then keep learning from the data of all: each step is the sum of one that all agents take, by the sum
    of their gradients, and one by the agent's own gradient. With None, agents start different, and what they don't share learns
    from their own data alone."""
    own_share: Float[ArrayLike, ""] = eqx.field(default=1.0, converter=traced_number)
    """With a warm-up: the factor on the steps by an agent's own gradient, once it has parted."""
    objective: ObjectiveIn | None = eqx.field(static=True, default=None)
    """What to maximise, as a function of the world and the team; None for the world's own entropy of states."""
    task: Task | None = None
    """What pays, instead of the objective."""
    reward_scale: Float[ArrayLike, ""] = eqx.field(default=1.0, converter=traced_number)
    """What the task's rewards are divided by: about the largest return, so that the critic's values are of order 1."""
    intrinsic: Float[ArrayLike, ""] | None = eqx.field(default=None, converter=traced_number)
    """With a task: the weight of the objective's gains among all episodes of a batch, of standard deviation 1, beside its
    rewards; `bonus_decay` holds."""
    curiosity: Float[ArrayLike, ""] | None = eqx.field(default=None, converter=traced_number)
    """The same for the rewards of random network distillation; both may be given."""
    initial: Any = None
    """The policies to start from, such as those of an explorer; None for new ones."""
    guide: Any = None
    """A team of as many agents that takes the first actions of each episode."""
    guide_steps: Float[ArrayLike, ""] = eqx.field(default=0.0, converter=traced_number)
    """How many actions the guide takes at first."""
    guide_updates: Float[ArrayLike, ""] = eqx.field(default=1.0, converter=traced_number)
    """The number of updates after which the guide takes none any more."""

    def __check_init__(self) -> None:
        for name in ("num_agents", "num_trajectories", "batch_size", "steps_per_batch", "num_minibatches", "num_combinations"):
            whole_number(name, getattr(self, name))
        check_learning(self)
        check_name("optimizer", self.optimizer, NEURAL_OPTIMIZERS)

    def init(self, key: PRNGKeyArray, world: Any) -> ActorCriticState:
        team_key, critic_key, shuffle_key = jr.split(key, 3)
        team: Any
        critic: Any
        if self.initial is not None:
            team = _with_rows(self.initial, world)
        elif self.networks is None:
            team = softmax_team(team_key, world, self.num_agents, scale=self.init_scale)
        else:
            team = neural_team(team_key, world, self.num_agents, self.networks, scale=self.init_scale)
            if self.warm_up_updates is not None:
                team = _by_own_part(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), team)
        if self.networks is None:
            critic = TableCritic(jnp.zeros((*team.logits.shape[:-1], 1)))
        else:
            critic = _critic(critic_key, world, self.num_agents, self.networks.hidden)
        curiosity = _curiosity(jr.fold_in(critic_key, 1), world) if self.curiosity is not None else None
        optimizer_state = self._optimizer().init((team, critic, curiosity, self._summed(team)))
        return ActorCriticState(team, critic, optimizer_state, jnp.int32(0), jr.key_data(shuffle_key), curiosity)

    def players(self, world: Any, state: ActorCriticState) -> Any:
        """The team that plays the next batch: the learner, with the guide's first actions if there is a guide."""
        if self.guide is None:
            return state.team
        number = self._num_guided(state)
        if not isinstance(state.team, TabularSoftmax):
            return Guided(state.team, self.guide, number)
        guide, learner = (_by_time(_with_rows(team, world), world.horizon) for team in (self.guide, state.team))
        is_guided = jnp.arange(world.horizon) < number
        return TabularSoftmax(jnp.where(is_guided.reshape(1, -1, 1, 1), guide, learner), is_time_dependent=True)

    def _num_guided(self, state: ActorCriticState) -> Float[Array, ""]:
        """How many actions of each episode the guide takes now."""
        left = jnp.maximum(1 - state.num_updates / jnp.asarray(self.guide_updates), 0.0)
        return jnp.ceil(jnp.asarray(self.guide_steps) * left)

    def learn(self, world: Any, state: ActorCriticState, trajectories: Trajectories) -> ActorCriticState:
        """Several gradient steps, each with another part of the batch."""
        steps = self.experience(world, state, trajectories)
        shuffle_key = jr.fold_in(jr.wrap_key_data(state.shuffle_key, impl="threefry2x32"), state.num_updates)
        num_steps, num_parts = steps.times.shape[1], min(self.num_minibatches, steps.times.shape[1])
        part_size = num_steps // num_parts

        def epoch(number: Int[Array, ""], latest: tuple[Any, optax.OptState]) -> tuple[Any, optax.OptState]:
            order = jr.permutation(jr.fold_in(shuffle_key, number), num_steps)[: num_parts * part_size]
            shuffled = jax.tree.map(lambda leaf: jnp.take(leaf, order, axis=1), steps)
            parts = jax.tree.map(
                lambda leaf: jnp.moveaxis(leaf.reshape(leaf.shape[0], num_parts, part_size, *leaf.shape[2:]), 1, 0), shuffled
            )
            num_left = jnp.minimum(self.steps_per_batch - number * num_parts, num_parts)

            def step(index: Int[Array, ""], latest: tuple[Any, optax.OptState]) -> tuple[Any, optax.OptState]:
                part = jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), parts)
                return self._step(latest, part, state.num_updates)

            return jax.lax.fori_loop(0, num_left, step, latest)

        num_epochs = -(-self.steps_per_batch // num_parts)
        first = (state.team, state.critic, state.curiosity)
        (team, critic, curiosity), optimizer_state = jax.lax.fori_loop(0, num_epochs, epoch, (first, state.optimizer_state))
        if getattr(team, "normalizer", None) is not None:
            team = eqx.tree_at(lambda team: team.normalizer, team, team.normalizer.after(team.scaled(trajectories.states)))
        return ActorCriticState(team, critic, optimizer_state, state.num_updates + 1, state.shuffle_key, curiosity)

    def experience(self, world: Any, state: ActorCriticState, trajectories: Trajectories) -> Experience:
        """What a batch has to teach, one row for each agent."""
        acted, team = acted_in(trajectories), state.team
        num_times = acted.shape[3]
        index = jnp.arange(num_times, dtype=jnp.float32).reshape(1, 1, 1, -1)
        if self.task is None:
            is_real = has_acted(world, trajectories)
            rewards = self.rewards(world, team, trajectories.states, is_real)
        else:
            paid = self.task.paid(world, team, trajectories)
            is_real, rewards = paid.is_part, paid.rewards / jnp.asarray(self.reward_scale)
            if self.intrinsic is not None or self.curiosity is not None:
                rewards = rewards + self._intrinsic(world, state, trajectories.states, is_real)
        times = _by_agent(jnp.broadcast_to(2 * index / num_times - 1, is_real.shape))
        seen, rows = _by_agent(acted), team
        if isinstance(team, TabularSoftmax):
            seen, rows = _by_agent(team.rows(acted)), team.as_stationary()
        values = _by_agent_back(state.critic(_inputs(rows, seen), times), is_real.shape)
        values = jnp.where(is_real, values, 0.0)
        advantages = advantages_of(rewards, values, is_real, self.discount, self.trace)
        old = log_probabilities(team, acted, trajectories.actions)
        is_learned = is_real if self.guide is None else is_real & (index >= self._num_guided(state))
        # Standardised once for the whole batch, so that all of its parts weigh alike.
        mean, std = _moments(advantages, is_learned)
        std = std if self.task is None else jnp.maximum(std, _LEAST_SPREAD)
        standardised, returns = (jnp.where(is_real, x, 0.0) for x in ((advantages - mean) / std, advantages + values))
        actions, news = _by_agent(trajectories.actions), None
        if self.curiosity is not None:
            news = _by_agent(_inputs(team, trajectories.states[:, :, :, 1:]))
        learned = (_by_agent(is_learned), actions, times, _by_agent(old), _by_agent(standardised), _by_agent(returns))
        return Experience(seen, *learned, news=news)

    def _intrinsic(
        self, world: Any, state: ActorCriticState, states: Array, is_real: Bool[Array, "batch agent trajectory time"]
    ) -> Float[Array, "batch agent trajectory time"]:
        """The intrinsic rewards beside a task's."""
        bonus: Array = jnp.zeros(is_real.shape)
        if self.intrinsic is not None:
            # The episodes of a batch count as trajectories of one element: what is new must be new for the policy.
            together = self.rewards(world, state.team, _together(states), _together(is_real))
            bonus = bonus + jnp.asarray(self.intrinsic) * _apart(together, len(states))
        if self.curiosity is not None and state.curiosity is not None:
            news = state.curiosity(_inputs(state.team, states[:, :, :, 1:]))
            mean, std = _moments(news, is_real)
            bonus = bonus + jnp.where(is_real, jnp.asarray(self.curiosity) * (news - mean) / std, 0.0)
        return jnp.asarray(self.bonus_decay) ** state.num_updates * bonus

    def rewards(
        self,
        world: Any,
        team: Any,
        states: Float[Array, "batch agent trajectory times observation"] | Int[Array, "batch agent trajectory times"],
        has_acted: Bool[Array, "batch agent trajectory time"],
    ) -> Float[Array, "batch agent trajectory time"]:
        """The gain of the state after each action, divided by the standard deviation of all; zero after an episode's end.

        If all episodes are equally long, the mean is subtracted as well: the critic need not learn it.
        """
        objective = world.entropy if self.objective is None else self.objective(world, team)
        credit = independent(_gains) if self.is_independent else _gains
        if self.num_combinations > 1:
            credit = recombined(credit, self.num_combinations)
        gains = credit(objective, states)
        mean, std = _moments(gains, has_acted)
        return jnp.where(has_acted, (gains if world.may_end_early else gains - mean) / std, 0.0)

    def _step(
        self, latest: tuple[Any, optax.OptState], part: Experience, num_updates: Int[Array, ""]
    ) -> tuple[Any, optax.OptState]:
        learned, optimizer_state = latest
        is_real = part.is_real
        number = jnp.maximum(jnp.sum(is_real), 1)
        bonus = jnp.asarray(self.entropy_bonus) * jnp.asarray(self.bonus_decay) ** num_updates
        # The steps are in random order: those of the first eighth stand for all. Exact entropies take long.
        few = slice(None, max(1, is_real.shape[1] // _BONUS_SHARE))

        def loss(learned: tuple[Any, Any, Curiosity | None]) -> Float[Array, ""]:
            team, critic, curiosity = learned
            team = team.as_stationary() if isinstance(team, TabularSoftmax) else team
            inputs = jax.lax.stop_gradient(_inputs(team, part.seen))
            now, own = _chances(team, part, few)
            ratio = jnp.exp(jnp.where(is_real, now - part.log_probabilities, 0.0))
            clipped = jnp.clip(ratio, 1 - jnp.asarray(self.clip), 1 + jnp.asarray(self.clip))
            gained = jnp.minimum(ratio * part.advantages, clipped * part.advantages)
            missed = (critic(inputs, part.times) - part.returns) ** 2
            if curiosity is not None and part.news is not None:
                missed = missed + curiosity(part.news)
            entropy = jnp.sum(jnp.where(is_real[:, few], own, 0.0)) / jnp.maximum(jnp.sum(is_real[:, few]), 1)
            return jnp.sum(jnp.where(is_real, 0.5 * missed - gained, 0.0)) / number - bonus * entropy

        gradient = eqx.filter_grad(loss)(learned)
        every = (*gradient, self._summed(gradient[0]))
        (own, *rest, together), optimizer_state = self._optimizer().update(every, optimizer_state)
        return optax.apply_updates(learned, (self._of_team(own, together, num_updates), *rest)), optimizer_state

    def _summed(self, team: Any) -> NeuralPolicy | None:
        """The sum over the agents of networks of their own that learn together: the gradient of the step that all take."""
        if self.warm_up_updates is None or team.has_shared_parts:
            return None
        return jax.tree.map(lambda leaf, axis: None if axis is None else jnp.sum(leaf, axis=0, keepdims=True), team, team.axes)

    def _of_team(self, own: Any, together: NeuralPolicy | None, num_updates: Int[Array, ""]) -> Any:
        """The step of each agent, from the one by its own gradient and the one that all agents take."""
        if self.warm_up_updates is None:
            return own
        share = jnp.asarray(self.own_share) * jnp.clip(num_updates / jnp.asarray(self.warm_up_updates) - 1, 0.0, 1.0)
        if together is None:
            return jax.tree.map(lambda step, is_own: share * step if is_own else step, own, own.own_parts)
        return jax.tree.map(lambda step, axis, common: step if axis is None else share * step + common, own, own.axes, together)

    def _optimizer(self) -> optax.GradientTransformationExtraArgs:
        def learning_rate(count: Int[Array, ""]) -> Float[Array, ""]:
            return jnp.asarray(self.learning_rate) * jnp.asarray(self.decay) ** (count // self.steps_per_batch)

        return optimizer(self.optimizer, learning_rate, slows_own_parts=False)


def advantages_of(
    rewards: Float[Array, "*axes time"],
    values: Float[Array, "*axes time"],
    has_acted: Bool[Array, "*axes time"],
    discount: Float[ArrayLike, ""],
    trace: Float[ArrayLike, ""],
) -> Float[Array, "*axes time"]:
    r"""Generalised advantage estimates $\sum_{l \ge 0} (\gamma \lambda)^l \delta_{t + l}$ (Schulman et al., 2016).

    $\delta_t = r_{t+1} + \gamma V(s_{t+1}) - V(s_t)$, where the value of the state in which an episode ends is zero.
    """
    following = jnp.where(has_acted[..., 1:], values[..., 1:], 0.0)
    following = jnp.concatenate([following, jnp.zeros_like(values[..., :1])], axis=-1)
    surprises = jnp.where(has_acted, rewards + jnp.asarray(discount) * following - values, 0.0)
    factor = jnp.asarray(discount) * jnp.asarray(trace)

    def back(after: Array, surprise: Array) -> tuple[Array, Array]:
        now = surprise + factor * after
        return now, now

    by_time = jnp.moveaxis(surprises, -1, 0)
    return jnp.moveaxis(jax.lax.scan(back, jnp.zeros_like(by_time[0]), by_time, reverse=True)[1], 0, -1)


def actor_critic(config: Explore, world: Any, *, objective: ObjectiveIn | None = None) -> ActorCritic:
    """The algorithm that a config asks for.

    Args:
        objective: instead of the config's.
    """
    if objective is None and config.objective != OBJECTIVE:
        objective = named_objective(config.objective)
    return ActorCritic(
        num_agents=config.num_policies,
        num_trajectories=config.trajectories_per_policy,
        batch_size=config.batch_size,
        networks=networks_of(config),
        optimizer=config.optimizer,
        learning_rate=config.learning_rate,
        decay=config.decay,
        discount=config.discount,
        trace=config.trace,
        steps_per_batch=config.steps_per_batch,
        num_minibatches=config.minibatches,
        clip=config.clip,
        init_scale=config.init_scale,
        entropy_bonus=config.entropy_bonus,
        bonus_decay=config.bonus_decay,
        is_independent=config.independent,
        num_combinations=config.combinations,
        warm_up_updates=config.warm_up * config.updates if config.warm_up and config.num_policies > 1 else None,
        objective=objective,
    )


def _gains(objective: Objective, states: Array) -> Float[Array, "batch agent trajectory time"]:
    """What each state after an action adds to the objective."""
    return jax.vmap(objective.gains)(states)[..., 1:]


def _by_own_part(function: Callable[[Array], Array], team: NeuralPolicy) -> NeuralPolicy:
    """Applies a function to the arrays of a team, or of its gradient, that have an agent axis."""
    return jax.tree.map(lambda leaf, axis: leaf if axis is None else function(leaf), team, team.axes)


def _critic(key: PRNGKeyArray, world: Any, num_agents: int, hidden: tuple[int, ...]) -> Critic:
    """A critic whose first values are all zero."""
    vector_key, eye_key, *keys = jr.split(key, len(hidden) + 3)
    eye, num_seen = (None, len(world.observation_center)) if world.image is None else convolutions(eye_key, world.image)
    sizes = (num_seen + 1 + _VECTOR_SIZE, *hidden, 1)
    layers = [eqx.nn.Linear(a, b, key=each) for a, b, each in zip(sizes[:-1], sizes[1:], keys, strict=True)]
    layers[-1] = jax.tree.map(jnp.zeros_like, layers[-1])
    return Critic(tuple(layers), jr.normal(vector_key, (num_agents, _VECTOR_SIZE)), eye)


def _curiosity(key: PRNGKeyArray, world: Any) -> Curiosity:
    first_key, second_key, *keys = jr.split(key, 4)
    if world.projection is None:
        shape = (world.num_table_rows, _CODE_SIZE)
        return Curiosity(jr.normal(first_key, shape), jnp.zeros(shape))

    def network(first_key: PRNGKeyArray, second_key: PRNGKeyArray) -> tuple[eqx.nn.Linear, eqx.nn.Linear]:
        size = len(world.observation_center)
        return eqx.nn.Linear(size, 2 * _CODE_SIZE, key=first_key), eqx.nn.Linear(2 * _CODE_SIZE, _CODE_SIZE, key=second_key)

    return Curiosity(network(first_key, second_key), network(*keys))


def _chances(team: Any, part: Experience, few: slice) -> tuple[Float[Array, "agent step"], Float[Array, "agent few"]]:
    """The log probabilities of the actions, and the policies' entropies in a few of the steps, both to be differentiated."""
    if isinstance(team, TabularSoftmax):
        rows = jax.vmap(lambda logits, seen: jax.nn.log_softmax(logits[seen]))(team.logits, part.seen)
        now = jnp.squeeze(jnp.take_along_axis(rows, part.actions[..., None], axis=-1), -1)
        return now, -jnp.sum(jnp.exp(rows[:, few]) * rows[:, few], axis=-1)
    seen = part.seen[None, :, None]
    now = log_probabilities(team, seen, part.actions[None, :, None])
    return jnp.squeeze(now, (0, 2)), jnp.squeeze(policy_entropies(team, seen[:, :, :, few]), (0, 2))


def _inputs(team: Any, seen: Array) -> Array:
    """What critics are given: what networks see, or rows of tables."""
    return seen if isinstance(team, TabularSoftmax) else team.inputs(seen)


def _with_rows(team: Any, world: Any) -> Any:
    """A team with a row for each state that there is room for; in states that it has never met, actions are random."""
    if not isinstance(team, TabularSoftmax):
        return team
    num_more = world.num_table_rows - team.logits.shape[-2]
    logits = jnp.pad(team.logits, [(0, 0)] * (team.logits.ndim - 2) + [(0, num_more), (0, 0)])
    return dataclasses.replace(team, logits=logits)


def _by_time(team: TabularSoftmax, horizon: int) -> Float[Array, "agent time state action"]:
    if team.is_time_dependent:
        return team.logits
    num_agents, *rows = team.logits.shape
    return jnp.broadcast_to(team.logits[:, None], (num_agents, horizon, *rows))


def _moments(values: Array, is_real: Bool[Array, "..."]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Mean and standard deviation of the real values."""
    number = jnp.maximum(jnp.sum(is_real), 1)
    mean = jnp.sum(jnp.where(is_real, values, 0.0)) / number
    variance = jnp.sum(jnp.where(is_real, (values - mean) ** 2, 0.0)) / number
    return mean, jnp.maximum(jnp.sqrt(variance), _SMALLEST)


def _by_agent(array: Shaped[Array, "batch agent trajectory time ..."]) -> Shaped[Array, "agent step ..."]:
    by_agent = jnp.moveaxis(array, 1, 0)
    return by_agent.reshape(len(by_agent), -1, *array.shape[4:])


def _together(array: Shaped[Array, "batch agent trajectory ..."]) -> Shaped[Array, "1 agent all ..."]:
    by_agent = jnp.moveaxis(array, 0, 1)
    return by_agent.reshape(1, by_agent.shape[0], -1, *array.shape[3:])


def _apart(array: Float[Array, "1 agent all time"], batch_size: int) -> Float[Array, "batch agent trajectory time"]:
    _, num_agents, _, num_times = array.shape
    return jnp.moveaxis(array.reshape(num_agents, batch_size, -1, num_times), 1, 0)


def _by_agent_back(array: Float[Array, "agent step"], shape: tuple[int, ...]) -> Float[Array, "batch agent trajectory time"]:
    batch, agent, trajectory, time = shape
    return jnp.moveaxis(array.reshape(agent, batch, trajectory, time), 0, 1)
