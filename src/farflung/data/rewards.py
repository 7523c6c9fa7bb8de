"""Learning from the rewards of a dataset, and testing what was learnt in the dataset's environment."""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from gymnasium.envs.registration import EnvSpec
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from farflung.config import OfflineLearning
from farflung.config.checks import whole_number
from farflung.config.reading import one_line_errors
from farflung.data.episodes import Dataset, Steps
from farflung.data.goals import relabel
from farflung.data.networks import Experience, Learning, Networks, learn
from farflung.data.q_learning import QLearning, Transitions, values_from_rewards
from farflung.data.sources import installed
from farflung.numerics.noise import uniforms
from farflung.policies.neural import box
from farflung.worlds.as_gymnasium.tasks import as_in_dataset
from farflung.worlds.gymnasium_table import from_gymnasium
from farflung.worlds.projection import Box, Discrete
from farflung.worlds.tabular import TabularMDP

_WIDTH = 128
_STEPS, _MOST_STEPS = 1000, 10**6
"""The number of actions in a test episode of an environment without a limit, and the largest limit that a dataset can set."""
_SEEDS_APART = 1000

Act = Callable[[Shaped[np.ndarray, "copy *observation"]], Shaped[np.ndarray, "copy *action"]]
"""The actions of a policy for the observations of several copies of an environment."""


class Learned(NamedTuple):
    """The returns of policies that were learnt offline from a dataset's rewards."""

    config: OfflineLearning
    environment: str
    """The id of the environment in which the policies were tested."""
    task: str
    """What the rewards are: `rewards` of the environment, a `goal` with its place, or the name of a reward function."""
    num_transitions: int
    returns: Float[np.ndarray, "seed attempt"]
    """The sum of rewards of each test episode."""
    random_returns: Float[np.ndarray, " attempt"]
    """The same for random actions."""
    data_returns: Float[np.ndarray, " episode"]
    """The returns of the dataset's episodes."""
    reference: float | None
    """The return that counts as a score of 1, if one is known."""

    @property
    def task_name(self) -> str:
        """What was to be learnt, and where."""
        return f"{self.task} in {self.environment}"

    @property
    def scores(self) -> Float[np.ndarray, " seed"] | None:
        """The mean return of each seed, normalised: 0 is the return of random actions, 1 is the reference."""
        random = self.random_returns.mean()
        if self.reference is None or self.reference == random:
            return None
        return (self.returns.mean(axis=1) - random) / (self.reference - random)


def learn_rewards(config: OfflineLearning, dataset: Dataset, on_progress: Callable[[int, int], None]) -> Learned:
    """Learns one policy for each seed from the dataset's rewards, and plays it in the dataset's environment."""
    dataset = dataset if config.reward is None else relabel(dataset, reward=config.reward)
    spec = _specification(config, dataset)
    limit = config.max_steps or _limit_of(spec)
    total = len(config.seeds) + 1
    on_progress(0, total)
    learn = _networks if dataset.has_vectors else _tables
    policies = learn(config, dataset)
    returns = []
    for number, (seed, act) in enumerate(zip(config.seeds, policies, strict=True)):
        returns.append(play(spec, act, _test_seeds(seed, config.attempts), limit))
        on_progress(number + 1, total)
    random = play(spec, None, _test_seeds(config.seeds[0], config.attempts * len(config.seeds)), limit)
    on_progress(total, total)
    metadata = dataset.source.metadata
    return Learned(
        config=config,
        environment=spec.id,
        task=f"goal {metadata['goal']}" if "goal" in metadata else str(metadata.get("reward", "rewards")),
        num_transitions=dataset.num_transitions,
        returns=np.stack(returns),
        random_returns=random,
        data_returns=dataset.returns,
        reference=_reference(config, dataset, spec, limit),
    )


def _limit_of(spec: EnvSpec) -> int:
    """The number of actions in a test episode if the user does not say it; the dataset's file could ask for any number."""
    if spec.max_episode_steps is None:
        return _STEPS
    try:
        return whole_number("max_episode_steps", spec.max_episode_steps, _MOST_STEPS)
    except ValueError as error:
        raise ValueError(f"the dataset's environment has no limit for tests, since its {error}: give --max-steps") from None


def play(spec: EnvSpec, act: Act | None, seeds: Sequence[int], max_steps: int) -> Float[np.ndarray, " episode"]:
    """The return of one episode for each seed; without a policy, actions are random."""
    copies = [gymnasium.make(spec) for _ in seeds]
    try:
        seen = [copy.reset(seed=seed)[0] for copy, seed in zip(copies, seeds, strict=True)]
        for copy, seed in zip(copies, seeds, strict=True):
            copy.action_space.seed(seed)
        returns, is_over = np.zeros(len(seeds)), np.zeros(len(seeds), bool)
        for _ in range(max_steps):
            if act is None:
                actions = [copy.action_space.sample() for copy in copies]
            else:
                chosen = act(np.stack([as_in_dataset(copy, each) for copy, each in zip(copies, seen, strict=True)]))
                actions = [_for(copy.action_space, action) for copy, action in zip(copies, chosen, strict=True)]
            for number in np.flatnonzero(~is_over):
                seen[number], reward, is_terminated, is_truncated, _ = copies[number].step(actions[number])
                returns[number] += float(reward)
                is_over[number] = is_terminated or is_truncated
            if is_over.all():
                break
        return returns
    finally:
        for copy in copies:
            copy.close()


def _for(space: gymnasium.Space[Any], action: Any) -> Any:
    return int(action) if space.shape == () else action.reshape(space.shape or ()).astype(space.dtype)


def _test_seeds(seed: int, number: int) -> list[int]:
    return [seed * _SEEDS_APART + each for each in range(number)]


def _specification(config: OfflineLearning, dataset: Dataset) -> EnvSpec:
    """The dataset's environment, if it is installed and pays the dataset's rewards.

    A function that a file names is never called, only one that the user names.
    """
    source = dataset.source
    if source.environment is None:
        raise ValueError("the dataset has no environment in which a policy could be tested: it stores no Gymnasium id")
    with one_line_errors("the dataset's environment cannot be read"):
        spec = EnvSpec.from_json(source.environment)
        names = [str((each.kwargs or {}).get("reward", "")) for each in spec.additional_wrappers]
    if config.reward is None and (name := "".join(names) or source.metadata.get("reward")):
        raise ValueError(f"the rewards are from {name}: name the function again, with --reward {name}")
    if (found := installed(spec)) is None:
        raise ValueError(f"the environment {spec.id} is not known here: install it, or name its module with --world MODULE:ID")
    with one_line_errors("the dataset's environment cannot be made"):  # with the options of a file, it may raise anything
        gymnasium.make(found).close()
    return found


def _reference(config: OfflineLearning, dataset: Dataset, spec: EnvSpec, limit: int) -> float | None:
    """The user's reference; the best possible return if there is a transition table; the largest return for a goal; the one
    that the dataset names; the threshold of the environment, unless its episodes have another length here."""
    metadata = dataset.source.metadata
    if config.reference is not None:
        return config.reference
    if not spec.additional_wrappers:
        with contextlib.suppress(ValueError), contextlib.closing(gymnasium.make(spec)) as environment:
            return best_return(from_gymnasium(environment), limit)
    if "goal" in metadata:
        return 1.0
    if "reward" in metadata:
        return None
    is_as_registered = gymnasium.spec(spec.id).max_episode_steps == limit
    return metadata.get("ref_max_score", spec.reward_threshold if is_as_registered else None)


def best_return(world: TabularMDP, horizon: int) -> float:
    """The largest mean return of any policy in an episode of so many actions, by dynamic programming."""
    successors, probabilities, rewards = map(np.asarray, (world.successors, world.probabilities, world.rewards))
    values = np.zeros(world.num_states)
    for _ in range(horizon):
        values = np.sum(probabilities * (rewards + values[successors]), axis=-1).max(axis=-1)
    return float(np.asarray(world.start_distribution) @ values)


def _tables(config: OfflineLearning, dataset: Dataset) -> list[Act]:
    """The greedy policies of tabular Q-learning; for behaviour cloning, the most frequent actions of the data."""
    steps, source = dataset.steps(), dataset.source
    shape = (source.num_observations, source.num_actions)
    settings = QLearning(config.batches, config.batch_size, config.learning_rate, config.discount)

    def policy(seed: int) -> Act:
        learn_key, order_key = jr.split(jr.key(seed))
        if config.method == "bc":
            values = np.zeros(shape)
            np.add.at(values, (steps.observations, steps.actions), 1)
        else:
            values = np.asarray(_values(learn_key, steps, shape, settings))
        order = np.asarray(uniforms(order_key, shape))
        greedy = np.argmax(np.where(values >= values.max(axis=1, keepdims=True), order, -1), axis=1)  # random among equals
        return lambda seen: greedy[seen]

    return [policy(seed) for seed in config.seeds]


def _values(key: PRNGKeyArray, steps: Steps, shape: tuple[int, int], settings: QLearning) -> Float[Array, "state action"]:
    columns = (steps.observations, steps.actions, steps.next_observations, len(steps.actions))
    data = Transitions(*(jnp.asarray(column, jnp.int32) for column in columns))
    noise = uniforms(key, (settings.num_batches * settings.batch_size,))
    task = (jnp.asarray(steps.rewards, jnp.float32), jnp.asarray(steps.is_terminal))
    return values_from_rewards(noise, data, *task, shape, settings)


def _networks(config: OfflineLearning, dataset: Dataset) -> list[Act]:
    """The policies of networks, which are learnt side by side, as many as there are devices."""
    actions = Discrete(dataset.source.actions) if isinstance(dataset.source.actions, int) else dataset.source.actions
    if config.method == "td3-bc" and isinstance(actions, Discrete):
        raise ValueError("td3-bc needs actions that are vectors, and these are numbers: choose iql or bc")
    steps = dataset.steps()
    middle, half = _range(steps.actions, actions) if isinstance(actions, Box) else (0, 1)
    executed = steps.actions if isinstance(actions, Discrete) else ((steps.actions - middle) / half).clip(-1, 1)
    data = Experience(
        jnp.asarray(steps.observations, jnp.float32),
        jnp.asarray(executed, jnp.int32 if isinstance(actions, Discrete) else jnp.float32),
        jnp.asarray(steps.next_observations, jnp.float32),
        jnp.asarray(steps.rewards / _spread(dataset, config.discount), jnp.float32),
        jnp.asarray(steps.is_terminal),
    )
    center, scale = np.mean(data.observations, axis=0), np.std(data.observations, axis=0)
    inputs = (center, np.where(scale > 0, scale, 1).astype(np.float32))
    settings = Learning(
        config.method, config.batch_size, config.learning_rate, config.discount, sharpness=config.sharpness, width=_WIDTH
    )
    devices = jax.local_devices()
    learnt = []
    for number, seed in enumerate(config.seeds):
        key, steps_there, inputs_there = jax.device_put((jr.key(seed), data, inputs), devices[number % len(devices)])
        learnt.append(_learn(key, steps_there, inputs_there, actions, config.batches, settings))

    def policy(networks: Networks) -> Act:
        def act(seen: Shaped[np.ndarray, "copy observation"]) -> Shaped[np.ndarray, "copy *action"]:
            outputs = np.asarray(_act(networks, inputs, jnp.asarray(seen, jnp.float32)))
            return outputs.argmax(axis=-1) if isinstance(actions, Discrete) else middle + half * np.tanh(outputs)

        return act

    return [policy(networks) for networks in learnt]


@eqx.filter_jit
def _learn(
    key: PRNGKeyArray, data: Experience, inputs: Any, actions: Discrete | Box, num_batches: Any, settings: Learning
) -> Networks:
    return learn(key, data, partial(_scaled, inputs), actions, num_batches, settings)


@eqx.filter_jit
def _act(networks: Networks, inputs: Any, seen: Float[Array, "copy observation"]) -> Float[Array, "copy output"]:
    return jax.vmap(networks.policy)(_scaled(inputs, seen))


def _scaled(inputs: Any, seen: Float[Array, "*batch observation"]) -> Float[Array, "*batch observation"]:
    center, scale = (jnp.broadcast_to(each, seen.shape) for each in inputs)
    return (seen - center) / scale


def _range(actions: Float[np.ndarray, "step action"], space: Box) -> tuple[np.ndarray, np.ndarray]:
    """The middle and the half width of each number of an action: of its bounds, or of the data if it has none."""
    is_bounded, low, high = box(space)
    low = np.where(is_bounded, low, actions.min(axis=0))
    high = np.where(is_bounded, high, actions.max(axis=0))
    return (low + high) / 2, np.maximum((high - low) / 2, 1e-6)


def _spread(dataset: Dataset, discount: float) -> float:
    """The standard deviation of the discounted rewards that follow each step, the unit in which networks see rewards."""
    ahead, following = np.zeros_like(dataset.rewards, np.float64), np.zeros(len(dataset))
    for time in reversed(range(dataset.rewards.shape[1])):
        following = dataset.rewards[:, time] + discount * following
        ahead[:, time] = following
    return float(ahead[dataset.is_step].std()) or 1.0
