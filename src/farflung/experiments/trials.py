"""Trainings from configs: begun, which compiles, and finished, which makes runs of them."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from farflung import runs
from farflung.algorithms import PGPSE
from farflung.config import Explore
from farflung.environments import TabularMDP
from farflung.metrics import Metrics
from farflung.runs import Run
from farflung.training import Progress, train

_MOST_LOGITS = 2_000_000
_LEAST_GROWTH = 1e-3


class Status(NamedTuple):
    """What a progress display needs to know."""

    update: int
    num_updates: int
    steps_per_second: float
    normalized_entropy: float | None
    """As last recorded, averaged over the seeds; None before that."""
    support: float | None


@dataclass(frozen=True)
class Trials:
    """Configs that train side by side, compiled and ready to go."""

    configs: Sequence[Explore]
    world: TabularMDP
    progress: Iterator[Progress]
    compile_seconds: float

    @property
    def steps_per_update(self) -> int:
        return sum(runs.steps_per_update(config, self.world) * len(config.seeds) for config in self.configs)


def begin(configs: Sequence[Explore], world: TabularMDP, num_successors: int | None = None) -> Trials:
    """Compiles the training of configs that differ in numbers alone.

    Args:
        num_successors: to which the world's lists are widened, for a program that worlds share.
    """
    began = time.perf_counter()
    config = configs[0]
    played = world if num_successors is None else world.widened(num_successors)
    algorithm = algorithm_of(configs, world)
    progress = train(algorithm, played, config.seeds * len(configs), config.updates, config.log_every, pause_every(config))
    next(progress)
    return Trials(configs, world, progress, time.perf_counter() - began)


def algorithm_of(configs: Sequence[Explore], world: TabularMDP) -> PGPSE:
    config = configs[0]

    def by_seed(name: str) -> Float[np.ndarray, " seed"]:
        return np.repeat([getattr(config, name) for config in configs], len(config.seeds))

    return PGPSE(
        num_agents=1 if config.single else config.agents,
        num_trajectories=config.trajectories * (config.agents if config.single else 1),
        batch_size=config.batch_size,
        optimizer=config.optimizer,
        learning_rate=by_seed("learning_rate"),
        decay=by_seed("decay"),
        credit=config.credit,
        num_combinations=config.combinations,
        is_independent=config.independent,
        is_time_dependent=is_time_dependent(config, world),
        init_scale=by_seed("init_scale"),
        entropy_bonus=by_seed("entropy_bonus") if any(config.entropy_bonus for config in configs) else None,
        bonus_decay=by_seed("bonus_decay"),
        steps_per_batch=config.steps_per_batch,
        clip=by_seed("clip"),
    )


def is_time_dependent(config: Explore, world: TabularMDP) -> bool:
    """Whether the policies get a table for each time: if asked for, or with `auto` where that stays small."""
    num_agents = 1 if config.single else config.agents
    num_logits = num_agents * world.horizon * world.num_states * world.num_actions
    return config.policy == "time-dependent" or (config.policy == "auto" and num_logits <= _MOST_LOGITS)


def finish(trials: Trials, on_progress: Callable[[Status], None] | None = None) -> list[Run]:
    """Trains to the end and returns a run per config; after an interrupt what there is, if something was recorded."""
    num_updates = trials.configs[0].updates
    updates: list[np.ndarray] = []
    metrics: list[Metrics] = []
    latest, is_interrupted, is_flat = None, False, False
    began = time.perf_counter()
    try:
        for latest in trials.progress:
            if len(latest.recorded):
                updates.append(latest.recorded)
                metrics.append(latest.metrics)
            if on_progress is not None:
                rate = latest.update * trials.steps_per_update / (time.perf_counter() - began)
                on_progress(Status(latest.update, num_updates, rate, *_shown(metrics)))
            if _is_due(trials.configs[0], latest.update):
                is_flat = has_stopped_growing(
                    np.concatenate(updates), np.concatenate([part.entropy for part in metrics], axis=1)
                )
                if is_flat:
                    break
    except KeyboardInterrupt:
        is_interrupted = True
        jax.block_until_ready(jax.live_arrays())  # what was under way must not outlive the process
    if latest is None or not updates:
        raise KeyboardInterrupt
    seconds = time.perf_counter() - began
    recorded = np.concatenate(updates)
    table = Metrics(*(np.concatenate(column, axis=1) for column in zip(*metrics, strict=True)))
    finished = []
    for number, config in enumerate(trials.configs):
        rows = slice(number * len(config.seeds), (number + 1) * len(config.seeds))
        own = Metrics(*(column[rows] for column in table))
        # On one device from here on: what is spread over several does not mix with a user's other arrays.
        team = jax.tree.map(lambda leaf, rows=rows: jnp.asarray(np.asarray(leaf)[rows]), latest.team)
        summary = _summary(trials, config, latest.update, seconds)
        summary |= {"is_interrupted": is_interrupted, "is_stopped_early": is_flat and latest.update < num_updates}
        summary["final"] = {name: values.tolist() for name, values in runs.final_values(recorded, own).items()}
        finished.append(Run(config, trials.world, recorded, own, team, summary))
    return finished


def pause_every(config: Explore) -> int | None:
    """After how many updates it is checked whether the curve has become flat; always the same, whatever the machine's speed."""
    return max(1, config.updates // 20) if config.stop_when_flat else None


def _is_due(config: Explore, update: int) -> bool:
    interval = pause_every(config)
    return interval is not None and update >= 4 * interval and update % interval == 0


def has_stopped_growing(updates: Int[np.ndarray, " record"], entropy: Float[np.ndarray, "seed record"]) -> bool:
    """Whether the mean entropy of the latest quarter of the updates is not 0.1% above that of the quarter before."""
    mean = entropy.mean(axis=0, dtype=np.float64)
    last = updates > updates[-1] * 3 / 4
    before = (updates > updates[-1] / 2) & ~last
    return bool(before.any() and mean[last].mean() < (1 + _LEAST_GROWTH) * mean[before].mean())


def _shown(metrics: list[Metrics]) -> tuple[float, float] | tuple[None, None]:
    if not metrics:
        return None, None
    return float(np.mean(metrics[-1].normalized_entropy[:, -1])), float(np.mean(metrics[-1].support[:, -1]))


def _summary(trials: Trials, config: Explore, num_updates: int, seconds: float) -> dict[str, object]:
    steps = num_updates * runs.steps_per_update(config, trials.world) * len(config.seeds)
    return {
        "farflung": version("farflung"),
        "world": config.world,
        "states": trials.world.num_states,
        "actions": trials.world.num_actions,
        "horizon": trials.world.horizon,
        "agents": config.agents,
        "single": config.single,
        "updates": num_updates,
        "seeds": list(config.seeds),
        "environment_steps": steps,
        "seconds": seconds,
        "compile_seconds": trials.compile_seconds,
        "steps_per_second": num_updates * trials.steps_per_update / seconds,
        "device": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
    }
