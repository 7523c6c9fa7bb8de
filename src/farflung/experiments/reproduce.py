"""The whole paper: all trainings, datasets and offline RL."""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from farflung.ceilings import ceiling
from farflung.config import SCHEDULES, Explore, Reproduce
from farflung.entropy import shannon
from farflung.environments import TabularMDP, make_world
from farflung.experiments.claims import DELTA, EPSILON, Cell, Findings
from farflung.experiments.concentration import measured_samples
from farflung.experiments.trials import Status, begin, finish
from farflung.files import open_collection
from farflung.offline import QLearning, Transitions, goal_success, goals_of, success_rate, transitions
from farflung.policies import TabularSoftmax
from farflung.rollout import play
from farflung.runs import Run, discard_run, final_values, load_run, save_run, steps_per_update

KINDS = ("team", "single", "random")
_MOST_COMPILING = 16
_CEILING_SECONDS = 20
_DRAWS = 400
_MOST_DATASETS_AT_ONCE = 200
# For what runs but a few times: hardly slower than fully optimised, and compiled in a third of the time.
_QUICKLY_COMPILED = {"xla_backend_optimization_level": 1}


class SuiteStatus(NamedTuple):
    """How far the whole suite is, in environment steps."""

    steps: int
    num_steps: int
    what: str


@dataclass(frozen=True)
class Reproduction:
    """All that was found."""

    config: Reproduce
    runs: Mapping[str, Mapping[Cell, Run]]
    """The trained teams and single agents, by schedule."""
    findings: Mapping[str, Findings]
    """By schedule."""


def reproduce(
    config: Reproduce,
    out: str | Path,
    *,
    force: bool = False,
    on_progress: Callable[[SuiteStatus], None] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> Reproduction:
    """Trains what is not yet in the folder `out`, keeps each part there when it is finished, and measures everything.

    Args:
        force: discard what is in the folder if it comes from another version or other settings.
        on_note: told of parts in the folder that are damaged and therefore trained again.
    """
    out, tell, note = Path(out), on_progress or (lambda _: None), on_note or (lambda _: None)
    contents = {"farflung": version("farflung"), "updates": config.updates, "seeds": list(config.seed_values)}
    open_collection(out, contents, force=force)
    worlds = {name: make_world(name) for name in config.worlds}
    wanted = {
        (schedule, cell): _explore_config(config, schedule, cell)
        for cell in (Cell(world, agents, kind) for world in worlds for agents in config.agents for kind in KINDS[:2])
        for schedule in config.schedules
    }
    steps = {key: _num_steps(explore, worlds[explore.world]) for key, explore in wanted.items()}
    found = {key: run for key, explore in wanted.items() if (run := _kept(_folder(out, *key), explore, note)) is not None}
    missing: dict[Cell, list[str]] = {}
    for schedule, cell in wanted:
        if (schedule, cell) not in found:
            missing.setdefault(cell, []).append(schedule)
    done, num_steps = sum(steps[key] for key in found), sum(steps.values())

    # A few compilations at a time, so that the first are ready soon. While a cell trains, with both schedules side by side, the
    # next are compiled, and so is what only needs the random policy.
    with ThreadPoolExecutor(max_workers=min(_MOST_COMPILING, os.cpu_count() or 1)) as pool:
        compiling = [
            pool.submit(begin, [wanted[schedule, cell] for schedule in schedules], worlds[cell.world])
            for cell, schedules in missing.items()
        ]
        random = [pool.submit(_collect, config, {}, name, "random", world) for name, world in worlds.items()]
        ceilings = {
            (name, agents): pool.submit(ceiling, world, agents, time_limit=_CEILING_SECONDS)
            for name, world in worlds.items()
            for agents in config.agents
        }
        chance = {name: pool.submit(_untrained_success, jr.key(0), world, goals_of(world)) for name, world in worlds.items()}
        try:
            for (cell, schedules), trials in zip(missing.items(), compiling, strict=True):
                per_update = sum(steps[schedule, cell] for schedule in schedules) // config.updates
                tell(SuiteStatus(done, num_steps, _name(cell)))
                trained = finish(trials.result(), partial(_tell, tell, done, num_steps, per_update, _name(cell)))
                if trained[0].summary["is_interrupted"]:
                    raise KeyboardInterrupt
                for schedule, run in zip(schedules, trained, strict=True):
                    save_run(run, _folder(out, schedule, cell), force=True)
                    found[schedule, cell] = run
                    done += steps[schedule, cell]
            tell(SuiteStatus(num_steps, num_steps, "datasets and offline RL"))
            runs = {
                name: {cell: found[name, cell] for schedule, cell in wanted if schedule == name} for name in config.schedules
            }
            learnt = {
                schedule: [
                    pool.submit(_collect, config, runs[schedule], name, kind, world)
                    for name, world in worlds.items()
                    for kind in KINDS[:2]
                ]
                for schedule in config.schedules
            }
            findings = {}
            for schedule, parts in learnt.items():
                data = {cell: value for part in (*parts, *random) for cell, value in part.result().items()}
                needed = {cell: pool.submit(_samples_needed, data[cell].occupancy) for cell in runs[schedule]}
                findings[schedule] = Findings(
                    final={cell: final_values(run.updates, run.metrics) for cell, run in runs[schedule].items()},
                    occupancy={cell: collected.occupancy for cell, collected in data.items()},
                    dataset_entropy={cell: collected.entropy for cell, collected in data.items()},
                    success={cell: collected.success for cell, collected in data.items()},
                    ceilings={key: found.result() for key, found in ceilings.items()},
                    samples_needed={cell: numbers.result()[0] for cell, numbers in needed.items()},
                    samples_needed_alone={cell: numbers.result()[1] for cell, numbers in needed.items()},
                    untrained_success={name: float(rate.result()) for name, rate in chance.items()},
                )
        finally:
            pool.shutdown(cancel_futures=True)
    return Reproduction(config, runs, findings)


def _explore_config(config: Reproduce, schedule: str, cell: Cell) -> Explore:
    learning_rate, decay = SCHEDULES[schedule]
    return Explore(
        cell.world,
        agents=cell.agents,
        single=cell.kind == "single",
        updates=config.updates,
        learning_rate=learning_rate,
        decay=decay,
        seeds=config.seed_values,
    )


def _kept(folder: Path, wanted: Explore, note: Callable[[str], None]) -> Run | None:
    if not folder.exists():
        return None
    try:
        run = load_run(folder)
        if run.config == wanted and not run.summary["is_interrupted"]:
            return run
        problem = f"{folder} has other settings than asked for"
    except ValueError as error:
        problem = str(error)
    note(f"{problem}; it is trained again")
    discard_run(folder)
    return None


class _Collected(NamedTuple):
    """What the policies of one cell visit and collect, and how far offline RL gets with that."""

    occupancy: Float[np.ndarray, "seed agent state"]
    entropy: Float[np.ndarray, "seed dataset"]
    success: Float[np.ndarray, "seed goal"]


def _collect(config: Reproduce, runs: Mapping[Cell, Run], name: str, kind: str, world: TabularMDP) -> dict[Cell, _Collected]:
    """Everything about policies of one kind in one world."""
    cells = [Cell(name, agents, kind) for agents in config.agents]
    # All teams are made equally large, so that one computation serves all; only the data of the real agents is used.
    logits = jnp.stack([_logits(runs.get(cell), cell, config, world) for cell in cells])
    keys = jnp.stack([_keys(config, cell) for cell in cells])
    sizes = jnp.asarray(config.agents, jnp.int32)
    occupancy, entropy, success = _collect_and_learn(keys, world, logits, sizes, goals_of(world), config.datasets)
    parts = zip(cells, np.asarray(occupancy), np.asarray(entropy), np.asarray(success), strict=True)
    return {
        cell: _Collected(occupancy[:, : 1 if kind == "single" else cell.agents], entropy / np.log(world.num_states), success)
        for cell, occupancy, entropy, success in parts
    }


def _samples_needed(
    occupancy: Float[np.ndarray, "seed agent state"],
) -> tuple[Float[np.ndarray, " seed"], Float[np.ndarray, " seed"]]:
    """How many samples show the entropy of all agents together, and of each alone."""
    generator = np.random.default_rng(0)
    exact = occupancy.astype(np.float64)
    exact /= exact.sum(axis=-1, keepdims=True)

    def needed(distributions: Float[np.ndarray, "agent state"]) -> float:
        return measured_samples(generator, distributions, EPSILON, DELTA, _DRAWS)

    together = [needed(team) for team in exact]
    alone = [
        np.mean([needed(agent[None]) for agent in team]) if len(team) > 1 else of_team
        for team, of_team in zip(exact, together, strict=True)
    ]
    return np.array(together), np.array(alone)


def _logits(run: Run | None, cell: Cell, config: Reproduce, world: TabularMDP) -> Float[Array, "seed agent state action"]:
    shape = (config.seeds, max(config.agents), world.num_states, world.num_actions)
    if run is None:
        return jnp.zeros(shape)
    if run.config.single:
        return jnp.broadcast_to(run.team.logits, shape)
    return jnp.pad(run.team.logits, ((0, 0), (0, shape[1] - cell.agents), (0, 0), (0, 0)))


def _keys(config: Reproduce, cell: Cell) -> Key[Array, " seed"]:
    number = 1_000 * KINDS.index(cell.kind) + cell.agents
    return jnp.stack([jr.fold_in(jr.key(seed), number) for seed in config.seed_values])


@partial(jax.jit, static_argnames="num_datasets", compiler_options=_QUICKLY_COMPILED)
def _collect_and_learn(
    keys: Key[Array, "cell seed"],
    world: TabularMDP,
    logits: Float[Array, "cell seed agent state action"],
    sizes: Int[Array, " cell"],
    goals: Int[Array, " goal"],
    num_datasets: int,
) -> tuple[Float[Array, "cell seed agent state"], Float[Array, "cell seed dataset"], Float[Array, "cell seed goal"]]:
    """For the first `sizes` agents of each cell: exact occupancies; then, averaged over datasets with one trajectory per agent,
    their entropies and how often Q-learning on them leads to each goal."""

    def collect(
        key: Key[Array, ""], logits: Float[Array, "agent state action"], size: Int[Array, ""]
    ) -> tuple[Float[Array, ""], Transitions]:
        trajectories = play(key, TabularSoftmax(logits), world, 1, 1)
        is_real = jnp.broadcast_to(jnp.arange(len(logits))[:, None] < size, trajectories.states[0, :, 0].shape)
        weights = is_real / (size * (world.horizon + 1))
        visits = jnp.zeros(world.num_states).at[trajectories.states[0, :, 0]].add(weights)
        return shannon(visits), transitions(trajectories)._replace(num=size * world.horizon)

    def one_dataset(number: Int[Array, ""]) -> tuple[Float[Array, "cell seed"], Float[Array, "cell seed goal"]]:
        own = jax.vmap(jax.vmap(partial(jr.fold_in, data=number)))(keys)
        entropies, data = jax.vmap(jax.vmap(collect, (0, 0, None)))(own, logits, sizes)
        return entropies, jax.vmap(goal_success, (0, None, 0, None))(own, world, data, goals)

    fitting = max(1, _MOST_DATASETS_AT_ONCE // keys.size)
    at_once = max(number for number in range(1, num_datasets + 1) if number <= fitting and num_datasets % number == 0)
    entropies, rates = jax.lax.map(one_dataset, jnp.arange(num_datasets), batch_size=at_once)
    occupancy = jnp.vectorize(world.occupancy, signature="(s,a)->(s)")(TabularSoftmax(logits).probabilities)
    return occupancy, jnp.moveaxis(entropies, 0, -1), jnp.mean(rates, axis=0)


@partial(jax.jit, compiler_options=_QUICKLY_COMPILED)
def _untrained_success(key: PRNGKeyArray, world: TabularMDP, goals: Int[Array, " goal"]) -> Float[Array, ""]:
    """How often chance alone reaches a goal: the mean over all goals with Q-values that are all zero."""
    nothing = jnp.zeros((world.num_states, world.num_actions))
    settings = QLearning(num_episodes=100)
    return jnp.mean(jax.vmap(lambda goal: success_rate(key, world, nothing, goal, settings))(goals))


def _num_steps(config: Explore, world: TabularMDP) -> int:
    return config.updates * len(config.seeds) * steps_per_update(config, world)


def _tell(tell: Callable[[SuiteStatus], None], done: int, num_steps: int, per_update: int, what: str, status: Status) -> None:
    tell(SuiteStatus(done + status.update * per_update, num_steps, what))


def _folder(out: Path, schedule: str, cell: Cell) -> Path:
    return out / "runs" / schedule / f"{cell.world}-{cell.agents}-{cell.kind}"


def _name(cell: Cell) -> str:
    return f"{cell.world}, {cell.agents} agents" if cell.kind == "team" else f"{cell.world}, 1 agent x {cell.agents}"
