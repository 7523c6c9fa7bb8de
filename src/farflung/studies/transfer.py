"""From exploration to a task: choose the best agent of a team for a reward, and learn from there."""

import contextlib
import dataclasses
import functools
import hashlib
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from farflung.algorithms.actor_critic import ActorCritic
from farflung.algorithms.task import Goal, OwnReward, Paid, RewardFunction, Task, has_acted, reward_function
from farflung.config import Explore, Transfer
from farflung.config.imports import import_object, name_of
from farflung.config.reading import reason, where_raised
from farflung.data.collecting import random_team
from farflung.data.episodes import Source
from farflung.data.goals import Place, Reward, observation_at, place_at
from farflung.data.networks import Experience, Learning, learn
from farflung.data.q_learning import QLearning, Transitions, values_from_rewards
from farflung.data.sources import source_of
from farflung.loggers import Logger
from farflung.numerics.noise import uniforms
from farflung.policies import Networks, NeuralPolicy, TabularSoftmax, neural_team
from farflung.policies.rollout import Trajectories, WorldWarning, play
from farflung.runs import program_cache
from farflung.runs.checkpoints import MINUTES, Checkpointer, new_checkpoints
from farflung.runs.destinations import Destination, claimed
from farflung.runs.run import Run, load_run, typical_seed
from farflung.studies.explore import begun, train_side_by_side
from farflung.studies.trials import Status
from farflung.training import hosted
from farflung.worlds.projection import Box, Discrete
from farflung.worlds.world import World

_UPDATES, _RATES = 100, {True: 0.001, False: 0.1}
"""Default updates, and default learning rates of networks and of tables."""
_RANDOM_SHARE = 0.1
"""A table that learns a task starts with this share of random actions: an explorer's may be all but deterministic."""
_OFFLINE_BATCH, _OFFLINE_RATE, _OFFLINE_WIDTH, _SHARPNESS = 256, 0.001, 128, 1.0
_OFFLINE_STD, _TUNED_STD = 0.05, 0.3
"""Standard deviation of a policy that was learnt offline: if it is only tested, and if PPO goes on from it."""
_MOST_PLACES = 12
_GREEDY = 20.0
"""Logit of the best actions of a table that was learnt offline, against 0 for the others."""
_BONUS_LEFT, _NOTHING = 5.0, 1e-30


class Selection(NamedTuple):
    """What the agents of a team earn, without having learned the task."""

    returns: Float[np.ndarray, "agent episode"]
    random: float
    """The mean return of random actions, in as many episodes as one agent has."""
    best: int
    """The agent with the largest mean return."""
    num_steps: int
    """Environment steps of the team's episodes."""
    path: np.ndarray
    """The best agent's episode with the largest return: states, or features."""
    first_reward: float
    """The mean number of actions until the best agent is first paid; the horizon where it never is."""
    played: Trajectories
    paid: Paid


def transfer(
    run: Run | str | Path,
    *,
    goal: int | Place = (),
    goal_radius: float | None = None,
    reward: Reward | str | None = None,
    out: str | Path | Destination | None = None,
    force: bool = False,
    on_progress: Callable[[Status], None] | None = None,
    loggers: Sequence[Logger | str] = (),
    **settings: Any,
) -> Run:
    """Learns a task from a trained team: the result is a run with one policy.

    `summary["transfer"]` has the ranking of the agents, and the steps that choosing the best one took.

    >>> import farflung
    >>> explored = farflung.explore("room-det", agents=2, updates=20, seeds=(0,))
    >>> learned = transfer(explored, goal=(2, 3), updates=30)
    >>> len(learned.summary["transfer"]["ranking"]), learned.policies.num_agents
    (2, 1)

    Args:
        run: a run, or its directory.
        goal: a goal, as `farflung.relabel` takes it: reaching it pays 1 and ends the episode.
        goal_radius: distance within which a vector has reached the goal; in a point maze by default the size of a step.
        reward: a function of observations, actions and next observations that gives each step's reward, or its MODULE:NAME; or
            `environment` for the environment's own rewards.
        out: the directory to save the run in; the same call continues an interrupted training.
        settings: the other fields of `farflung.Transfer`, such as `method`, `updates` and `seeds`.
    """
    name = reward if isinstance(reward, str | None) else name_of(reward)
    where = goal if isinstance(goal, Sequence) else (goal,)
    source = str(run) if isinstance(run, str | Path) else "custom"
    config = Transfer(source, reward=name, goal=tuple(map(float, where)), goal_radius=goal_radius, **settings)
    own = None if isinstance(reward, str) else reward
    found = load_run(run) if isinstance(run, str | Path) else run
    return transfer_config(config, found, own, out=out, force=force, on_progress=on_progress, loggers=loggers)


def transfer_config(
    config: Transfer,
    run: Run,
    reward: Reward | None = None,
    *,
    out: str | Path | Destination | None = None,
    force: bool = False,
    on_progress: Callable[[Status], None] | None = None,
    on_selection: Callable[[Selection], None] | None = None,
    loggers: Sequence[Logger | str] = (),
) -> Run:
    """Learns the task of a config, as `transfer` does.

    Args:
        reward: the function itself, if Python cannot import it by its name.
        on_selection: called with the ranking as soon as it is known.
    """
    program_cache.keep_programs()
    seed = typical_seed(run) if config.seed is None else config.seed
    team, world = run.team(seed).policies, run.world.with_environment().snapshot()
    if not isinstance(team, TabularSoftmax | NeuralPolicy):
        raise ValueError("a task is learnt from farflung's policies, tables or networks: this team has its own")
    task = make_task(config, run, world, reward)
    with _errors_of(task):
        selection = select(jr.key(seed), world, team, task, config.num_episodes)
    if not np.asarray(selection.paid.rewards).any():
        told = f"no agent earned anything in {selection.returns.size} episodes ({config.task})"
        if config.method == "offline":
            raise ValueError(f"{told}, so there is nothing to learn from offline: give more --episodes, or check the task")
        warnings.warn(f"{told}: the best agent is the first one; check the task", WorldWarning, stacklevel=3)
    if on_selection is not None:
        on_selection(selection)
    explore = _explore_config(config, run, team)
    algorithms = [_algorithm(config, explore, each, world, team, task, selection) for each in config.seeds]
    more = {"transfer": _about(config, run, seed, selection) | _goal_of(task)}

    def learn_task(checkpointer: Checkpointer | None) -> Run:
        training = begun(explore, world, algorithms, checkpointer)._replace(more=more)
        with _errors_of(task):
            return train_side_by_side([training], world, on_progress, loggers, live=True)[0]

    if out is None:
        return learn_task(None)
    with (
        claimed(out) as place,
        new_checkpoints(place, explore, world, MINUTES, None, force=force, may_continue=not force) as checkpointer,
    ):
        return learn_task(checkpointer)


def make_task(config: Transfer, run: Run, world: World, reward: Reward | None = None) -> Task:
    """The task of a config in the world of a run."""
    has_numbers = world.projection is None
    if config.reward == "environment":
        if not world.is_hosted and (world.table is None or not np.asarray(world.table.rewards).any()):
            raise ValueError(f"{run.config.world} has no rewards of its own: give a --goal, or a function with --reward")
        return OwnReward()
    if has_numbers and world.is_hosted:
        raise ValueError(
            f"the states of {run.config.world} are farflung's own numbers: learn its own rewards with --reward environment"
        )
    if config.reward is not None:
        return _checked(reward if reward is not None else import_object(config.reward, "reward"), config.reward, world)
    goal: Any = tuple(int(number) if number == int(number) else number for number in config.goal)
    if has_numbers:
        if config.goal_radius is not None:
            raise ValueError("goal_radius needs states that are vectors, and these are numbers: leave it out")
        source = source_of(run, {})
        table = source.world.table if source.world is not None and source.world.table is not None else run.table
        (state,) = np.flatnonzero(np.asarray(table.labels) == observation_at(source, goal))[:1].tolist() or [-1]
        if state < 0:
            raise ValueError(f"the goal {config.task.removeprefix('goal ')} is no state that can be reached from the start")
        return Goal(np.asarray(state, np.int32))
    described = Source(Box((), ()), Box((), ()), world, projection=world.projection)
    place, radius = place_at(described, config.goal, config.goal_radius)
    return Goal(np.asarray(place, np.float32), float(radius))


class _NamedReward:
    """A user's reward function, whose errors are told in one line with its name."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.function, self.name = function, name
        self.error: ValueError | None = None
        """The last error; JAX replaces those that are raised on the host by its own."""

    def __call__(self, *rows: Any) -> Any:
        self.error = None
        try:
            found = self.function(*rows)
        except jax.errors.JAXTypeError:  # JAX can't trace it
            raise
        except Exception as error:  # it may raise anything
            self.error = ValueError(f"the reward function {self.name} fails: {where_raised(error)}: {reason(error)}")
            raise self.error from error
        if not isinstance(found, jax.Array):
            try:
                found = np.asarray(found)
                found = found if np.iscomplexobj(found) else np.asarray(found, np.float64)
            except jax.errors.JAXTypeError:
                raise
            except (TypeError, ValueError):
                self.error = ValueError(f"the reward function {self.name} must return numbers, not {found!r:.60}")
                raise self.error from None
        if np.iscomplexobj(found):
            self.error = ValueError(f"the reward function {self.name} must return real numbers, not complex ones")
            raise self.error
        if found.shape != (number := len(rows[0]),):
            must = f"must return a number for each step, ({number},) for {number} steps, not {found.shape}"
            self.error = ValueError(f"the reward function {self.name} {must}")
            raise self.error
        return found


_named_reward = functools.lru_cache(maxsize=8)(_NamedReward)
"""The same object for the same function, so that programs are compiled once for it."""


def _checked(function: Any, name: str, world: World) -> Task:
    """The task of a user's function, which is called once with two steps to see what it gives."""
    num_numbers = () if world.projection is None else (world.observation_size,)
    states = np.zeros((2, *num_numbers), np.int32 if world.projection is None else np.float32)
    actions = np.zeros((2, *world.actions.shape), world.actions.dtype)
    named = _named_reward(function, name)
    named(states, actions, states)
    return reward_function(named, world)


@contextlib.contextmanager
def _errors_of(task: Task) -> Iterator[None]:
    """Raises the error of a reward function itself instead of the one that JAX makes of it."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        named = task.function if isinstance(task, RewardFunction) else None
        if isinstance(named, _NamedReward) and named.error is not None:
            raise named.error from error
        raise


def select(key: PRNGKeyArray, world: World, team: Any, task: Task, num_episodes: int) -> Selection:
    """Plays so many episodes of the task with each agent, and finds the one that earns most."""
    team_key, random_key = jr.split(key)
    played, paid = play_task(team_key, world, team, task, num_episodes)
    _, of_random = play_task(random_key, world, random_team(world), task, num_episodes)
    rewards, is_part = np.asarray(paid.rewards)[:, :, 0], np.asarray(paid.is_part)[:, :, 0]
    if not np.isfinite(rewards).all():
        raise ValueError(f"the reward must be finite, and {np.count_nonzero(~np.isfinite(rewards))} of {rewards.size} are not")
    returns = rewards.sum(axis=-1).T
    best = int(np.argmax(returns.mean(axis=1)))
    episode = int(np.argmax(returns[best]))
    states = np.asarray(played.states)[episode, best, 0, : is_part[episode, best].sum() + 1]  # until the task is over
    path = states if world.projection is None else np.asarray(world.projection.project(jnp.asarray(states)))
    is_paid = rewards[:, best] > 0
    first = np.where(is_paid.any(axis=-1), is_paid.argmax(axis=-1) + 1, world.horizon)
    num_steps = int(np.sum(has_acted(world, played))) if world.is_hosted else returns.size * world.horizon
    return Selection(returns, float(of_random.returns.mean()), best, num_steps, path, float(first.mean()), played, paid)


def play_task(key: PRNGKeyArray, world: World, team: Any, task: Task, num_episodes: int) -> tuple[Trajectories, Paid]:
    """So many episodes of each agent, and what they earn."""
    if not world.is_hosted:
        return _play(key, team, world, task, num_episodes)
    shape = (1, num_episodes, team.num_agents, 1)
    view: Any = world.view()
    of_one_seed = jax.tree.map(lambda leaf: leaf[None], team)
    with world.hosted.open(team.num_agents, math.prod(shape)) as pool:  # type: ignore[union-attr]
        episodes = hosted.play(world, pool, jr.wrap_key_data(jr.key_data(key))[None], 0, of_one_seed, shape)
    view = world.view()
    played = jax.tree.map(lambda leaf: leaf[0], hosted.trajectories(view, episodes, shape))
    return played, task.paid(view, team, played)


@eqx.filter_jit
def _play(key: PRNGKeyArray, team: Any, world: Any, task: Task, num_episodes: int) -> tuple[Trajectories, Paid]:
    played = play(key, team, world, num_episodes, 1)
    return played, task.paid(world, team, played)


def _explore_config(config: Transfer, run: Run, team: Any) -> Explore:
    """The settings under which the result is saved: those of the actor-critic with one policy."""
    is_neural, about = isinstance(team, NeuralPolicy), f"{config} {run.config} {run.summary.get('final')}"
    origin = hashlib.sha256(about.encode()).hexdigest()[:8]
    updates = config.updates or (1 if config.method == "offline" else _UPDATES)
    hidden = (_OFFLINE_WIDTH, _OFFLINE_WIDTH) if config.method == "offline" else run.config.hidden
    of_networks: dict[str, Any] = {"hidden": hidden, "std": run.config.std, "init_std": run.config.init_std}
    return Explore(
        run.config.world,
        agents=1,
        horizon=run.config.horizon,
        slip=run.config.slip,
        batch_size=config.batch_size,
        algorithm="actor-critic",
        objective=f"custom:{config.method} {config.task} ({origin})",
        updates=updates,
        optimizer="adam",
        learning_rate=_RATES[is_neural] if config.learning_rate is None else config.learning_rate,
        decay=1.0,
        policy="neural" if is_neural else "time-dependent" if _keeps_time(config, team) else "stationary",
        **(of_networks if is_neural else {}),
        entropy_bonus=config.entropy_bonus,
        bonus_decay=math.exp(-_BONUS_LEFT / updates),
        discount=config.discount,
        seeds=config.seeds,
    )


def _keeps_time(config: Transfer, team: Any) -> bool:
    return config.method == "finetune" and team.is_time_dependent


def _algorithm(
    config: Transfer, explore: Explore, seed: int, world: World, team: Any, task: Task, selection: Selection
) -> ActorCritic:
    """How one seed learns the task."""
    networks = None
    if isinstance(team, NeuralPolicy):
        networks = Networks(explore.hidden, has_free_std=explore.std == "free", std=explore.init_std)
    largest = float(np.abs(selection.returns).max())
    settings: dict[str, Any] = {"initial": None, "learning_rate": explore.learning_rate}
    if config.method == "finetune":
        settings["initial"] = start_from(team, selection.best)
    elif config.method == "guide":
        settings["guide"] = agent_of(team, selection.best)
        settings |= {"guide_steps": selection.first_reward, "guide_updates": explore.updates / 2}
    elif config.method == "offline":
        settings["initial"] = learn_offline(jr.key(seed), world, selection, config)
        if config.updates is None:  # it is only tested
            settings["learning_rate"] = _NOTHING
    return ActorCritic(
        num_agents=1,
        batch_size=explore.batch_size,
        networks=networks,
        entropy_bonus=explore.entropy_bonus,
        bonus_decay=explore.bonus_decay,
        discount=explore.discount,
        task=task,
        reward_scale=largest or 1.0,
        intrinsic=config.intrinsic or None,
        **settings,
    )


def agent_of(team: Any, agent: int) -> Any:
    """A team of one agent of a team."""
    whole = team.separate() if isinstance(team, NeuralPolicy) else team
    return jax.tree.map(lambda leaf: leaf[agent : agent + 1], whole)


def start_from(team: Any, agent: int) -> Any:
    """The policy of an agent, as learning a task starts from it."""
    own = agent_of(team, agent)
    return own.softened(_RANDOM_SHARE, 1.0) if isinstance(own, TabularSoftmax) else own


def learn_offline(key: PRNGKeyArray, world: World, selection: Selection, config: Transfer) -> Any:
    """A policy from the episodes of the whole team: greedy by tabular Q-learning, or by advantage-weighted regression."""
    is_part = np.asarray(selection.paid.is_part)
    played = selection.played
    rewards, is_end = (np.asarray(column)[is_part] for column in (selection.paid.rewards, selection.paid.is_end))
    before, after = (np.asarray(states)[is_part] for states in (played.states[:, :, :, :-1], played.states[:, :, :, 1:]))
    actions = np.asarray(played.actions)[is_part]
    if world.projection is None:
        num_states = max(world.num_states, int(max(before.max(), after.max())) + 1)
        data = Transitions(*(jnp.asarray(column, jnp.int32) for column in (before, actions, after, len(actions))))
        settings = QLearning(config.batches, 20, 0.1, config.discount)
        noise = uniforms(key, (settings.num_batches * settings.batch_size,))
        task = (jnp.asarray(rewards, jnp.float32), jnp.asarray(is_end))
        values = values_from_rewards(noise, data, *task, (num_states, world.num_actions), settings)
        return TabularSoftmax(jnp.where(values >= jnp.max(values, axis=1, keepdims=True), _GREEDY, 0.0)[None])
    return _imitated(key, world, selection, config, (before, actions, after, rewards, is_end))


def _to_go(paid: Paid, discount: float) -> Float[np.ndarray, "batch agent trajectory time"]:
    """The discounted rewards from each step on."""
    rewards = np.asarray(paid.rewards, np.float64)
    times = np.arange(rewards.shape[-1])
    later = times[:, None] - times
    return rewards @ np.where(later >= 0, float(discount) ** later.clip(0), 0.0)


def _imitated(
    key: PRNGKeyArray, world: World, selection: Selection, config: Transfer, columns: Sequence[np.ndarray]
) -> NeuralPolicy:
    """What the best agent would do, by advantage-weighted regression on the episodes of all agents.

    The network is told who acted. So agents that go different ways from one place are not averaged, and all help to learn what
    they have in common. In the end it is told that the best agent acts: a constant, which becomes part of the first biases.
    """
    before, actions, after, rewards, is_end = columns
    space = world.actions
    if not isinstance(space, Discrete | Box) or world.image is not None:
        raise ValueError("offline learns vectors or single choices as actions from vectors: choose --method finetune")
    if isinstance(space, Box) and not np.isfinite([*space.low, *space.high]).all():
        raise ValueError("offline needs actions with bounds, and these have none: choose --method finetune")
    size, num_agents = world.observation_size, len(selection.returns)
    is_part = np.asarray(selection.paid.is_part)
    agents = np.nonzero(is_part)[1].astype(np.float32)[:, None]
    # In units of what follows a step, which vary by about 1.
    returns = _to_go(selection.paid, config.discount)[is_part]
    spread = max(float(returns.std()), 1e-6)
    executed = actions if isinstance(space, Discrete) else np.tanh(actions)
    data = Experience(
        jnp.asarray(np.concatenate([before[:, :size], agents], axis=1)),
        jnp.asarray(executed),
        jnp.asarray(np.concatenate([after[:, :size], agents], axis=1)),
        jnp.asarray(rewards / spread, jnp.float32),
        jnp.asarray(is_end),
        jnp.asarray(returns / spread, jnp.float32),
    )
    learning = Learning(
        "iql",
        _OFFLINE_BATCH,
        _OFFLINE_RATE,
        config.discount,
        sharpness=_SHARPNESS,
        width=_OFFLINE_WIDTH,
        activation=jnp.tanh,
    )
    center, scale = (np.asarray(each, np.float32) for each in (world.observation_center, world.observation_scale))

    def see(rows: Array) -> Array:
        along_last = (1,) * (rows.ndim - 1) + (-1,)
        seen = (rows[..., :size] - center.reshape(along_last)) / scale.reshape(along_last)
        return jnp.concatenate([seen, jax.nn.one_hot(rows[..., size].astype(int), num_agents)], axis=-1)

    first, *trunk, head = eqx.filter_jit(learn)(key, data, see, space, config.batches, learning).policy.layers
    assert first.bias is not None
    told = (first.weight[:, :size], first.bias + first.weight[:, size + selection.best])
    narrow = eqx.nn.Linear(size, _OFFLINE_WIDTH, key=key)
    first = eqx.tree_at(lambda layer: (layer.weight, layer.bias), narrow, told)
    networks = Networks((_OFFLINE_WIDTH, _OFFLINE_WIDTH), std=_OFFLINE_STD if config.updates is None else _TUNED_STD)
    new = neural_team(key, world, 1, networks)
    learned = jax.tree.map(lambda leaf: leaf[None] if eqx.is_array(leaf) else leaf, ((first, *trunk), head))
    return dataclasses.replace(new, trunk=learned[0], head=learned[1])


def _goal_of(task: Task) -> dict[str, Any]:
    """Where the goal is, for pictures: the number of a state, or features and a radius."""
    if not isinstance(task, Goal):
        return {}
    return {"goal": np.asarray(task.place).tolist(), "goal_radius": float(np.asarray(task.radius))}


def _shown(path: np.ndarray, world: World) -> str:
    """Some places of a path in words, with the first and the last."""
    places = path[np.linspace(0, len(path) - 1, min(_MOST_PLACES, len(path))).round().astype(int)]
    if world.positions is not None:
        places = np.asarray(world.positions)[places]
    of_each = places.reshape(len(places), -1).tolist()
    return " → ".join(f"({', '.join(f'{number:.3g}' for number in place)})" for place in of_each)


def _about(config: Transfer, run: Run, seed: int, selection: Selection) -> dict[str, Any]:
    means = selection.returns.mean(axis=1)
    ranking = [
        {"agent": int(agent), "mean_return": float(means[agent]), "best_return": float(selection.returns[agent].max())}
        for agent in np.argsort(-means, kind="stable")
    ]
    return {
        "command": config.command,
        "task": config.task,
        "method": config.method,
        "run": config.run,
        "seed": seed,
        "ranking": ranking,
        "random_return": selection.random,
        "exploration_steps": int(run.steps[-1]),
        "selection_steps": selection.num_steps,
        "path": np.where(np.isfinite(selection.path), selection.path, -1).tolist(),
        "shown_path": _shown(selection.path, run.world),
    }
