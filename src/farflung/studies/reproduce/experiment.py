"""The paper's experiments: all trainings, their datasets, and offline RL on these datasets."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from farflung.bounds.ceilings import ceiling
from farflung.config import SCHEDULES, Explore, Reproduce
from farflung.data.q_learning import Transitions, goal_success, goals_of, transitions, untrained_success
from farflung.entropy.counts import shannon
from farflung.numerics.compilation import SELDOM
from farflung.policies import TabularSoftmax
from farflung.policies.rollout import play
from farflung.runs import interrupts
from farflung.runs.destinations import Destination, claimed, open_collection
from farflung.runs.run import Run, final_values
from farflung.studies.concentration.experiment import as_distributions, measured_samples
from farflung.studies.reproduce.claims import DELTA, EPSILON, KINDS, Cell, Findings
from farflung.studies.suite import SuiteStatus, compiling_threads, train_all
from farflung.worlds.named import make_tabular_world
from farflung.worlds.tabular import TabularMDP

_CEILING_SECONDS = 20
_DRAWS = 400
_MOST_DATASETS_AT_ONCE = 200


@dataclass(frozen=True)
class Reproduction:
    """The results of `farflung reproduce`."""

    config: Reproduce
    runs: Mapping[str, Mapping[Cell, Run]]
    """The trained teams and single agents, by schedule."""
    findings: Mapping[str, Findings]
    """The measurements, by schedule."""


class Collected(NamedTuple):
    """The measurements on the policies of one cell; the fields are those of `Findings`."""

    occupancy: Float[np.ndarray, "seed agent state"]
    dataset_entropy: Float[np.ndarray, "seed dataset"]
    success: Float[np.ndarray, "seed goal"]
    samples_needed: Float[np.ndarray, " seed"]
    samples_needed_alone: Float[np.ndarray, " seed"]


def reproduce(
    config: Reproduce,
    out: str | Path | Destination,
    *,
    force: bool = False,
    on_progress: Callable[[SuiteStatus], None] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> Reproduction:
    """Trains all runs that are not yet in the folder `out`, saves each run there, and measures all of them.

    Args:
        force: delete the results in the folder if another version or other settings wrote them.
        on_note: called with a message about each unusable run in the folder; such a run is trained again.
    """
    report, note = on_progress or (lambda _: None), on_note or (lambda _: None)
    contents = {"farflung": version("farflung"), "updates": config.updates, "seeds": list(config.seed_values)}
    worlds = {name: make_tabular_world(name) for name in config.worlds}
    cells = [Cell(world, agents, kind) for world in worlds for kind in KINDS[:2] for agents in config.agents]
    groups = [
        {_folder(schedule, cell): _explore_config(config, schedule, cell) for schedule in config.schedules} for cell in cells
    ]
    places = {_folder(schedule, cell): (schedule, cell) for cell in cells for schedule in config.schedules}
    # The pool measures the random policy while teams train, and then the trained policies.
    with claimed(out) as place, compiling_threads() as pool:
        open_collection(place, contents, force=force)
        training = train_all(groups, worlds, place.folder, pool, report, note, is_brief=config.quick)
        random = [pool.submit(collect, config, {}, name, "random", world) for name, world in worlds.items()]
        ceilings = {
            (name, agents): pool.submit(ceiling, world, agents, time_limit=_CEILING_SECONDS)
            for name, world in worlds.items()
            for agents in config.agents
        }
        chance = {name: pool.submit(untrained_success, jr.key(0), world, goals_of(world)) for name, world in worlds.items()}
        runs: dict[str, dict[Cell, Run]] = {schedule: {} for schedule in config.schedules}
        collecting: dict[tuple[str, str, str], Future[dict[Cell, Collected]]] = {}
        for folder, run in training:
            schedule, cell = places[folder]
            name, _, kind = cell
            runs[schedule][cell] = run
            own = {each: run for each, run in runs[schedule].items() if (each.world, each.kind) == (name, kind)}
            if len(own) == len(config.agents):  # all team sizes are trained
                collecting[schedule, name, kind] = pool.submit(collect, config, own, name, kind, worlds[name])
        report(SuiteStatus(1, 1, "datasets and offline RL"))
        bounds = {key: bound.result() for key, bound in ceilings.items()}
        by_chance = {name: float(rate.result()) for name, rate in chance.items()}
        findings = {}
        for schedule in config.schedules:
            interrupts.check()
            runs[schedule] = {cell: runs[schedule][cell] for cell in cells}  # independent of the order of training
            parts = [collecting[schedule, name, kind] for name in worlds for kind in KINDS[:2]]
            data = {cell: value for part in (*parts, *random) for cell, value in part.result().items()}
            final = {cell: final_values(run.updates, run.metrics) for cell, run in runs[schedule].items()}
            measured: Any = {name: {cell: getattr(own, name) for cell, own in data.items()} for name in Collected._fields}
            findings[schedule] = Findings(final=final, ceilings=bounds, untrained_success=by_chance, **measured)
    return Reproduction(config, runs, findings)


def _explore_config(config: Reproduce, schedule: str, cell: Cell) -> Explore:
    learning_rate, decay = SCHEDULES[schedule]
    return Explore(
        cell.world,
        agents=cell.agents,
        single=cell.kind == "single",
        preset="paper",
        updates=config.updates,
        learning_rate=learning_rate,
        decay=decay,
        seeds=config.seed_values,
    )


def _folder(schedule: str, cell: Cell) -> str:
    return f"runs/{schedule}/{cell.world}-{cell.agents}-{cell.kind}"


def collect(config: Reproduce, runs: Mapping[Cell, Run], name: str, kind: str, world: TabularMDP) -> dict[Cell, Collected]:
    """The measurements on all policies of one kind in one world."""
    cells = [Cell(name, agents, kind) for agents in config.agents]
    # All teams are padded to the same size to share one computation; only the data of the real agents is used.
    logits = jnp.stack([_logits(runs.get(cell), cell, config, world) for cell in cells])
    keys = jnp.stack([_keys(config, cell) for cell in cells])
    sizes = jnp.asarray(config.agents, jnp.int32)
    visited = _collect_and_learn(keys, world, logits, sizes, goals_of(world), config.datasets)
    parts = zip(cells, *(np.asarray(part) for part in visited), strict=True)
    found = {}
    for cell, visits, entropies, reached in parts:
        own = visits[:, : 1 if kind == "single" else cell.agents]
        found[cell] = Collected(own, entropies / np.log(world.num_states), reached, *_samples_needed(own))
    return found


def _samples_needed(
    occupancy: Float[np.ndarray, "seed agent state"],
) -> tuple[Float[np.ndarray, " seed"], Float[np.ndarray, " seed"]]:
    """The number of samples that the entropy of the team takes, and that of one agent, averaged over the agents."""
    generator = np.random.default_rng(0)
    exact = as_distributions(occupancy)
    together = measured_samples(generator, exact, EPSILON, DELTA, _DRAWS)
    if exact.shape[1] == 1:
        return together, together
    alone = measured_samples(generator, exact.reshape(-1, 1, exact.shape[-1]), EPSILON, DELTA, _DRAWS)
    return together, alone.reshape(exact.shape[:2]).mean(axis=1)


def _logits(run: Run | None, cell: Cell, config: Reproduce, world: TabularMDP) -> Float[Array, "seed agent state action"]:
    shape = (config.seeds, max(config.agents), world.num_states, world.num_actions)
    if run is None:
        return jnp.zeros(shape)
    if run.config.single:
        return jnp.broadcast_to(run.policies.logits, shape)
    return jnp.pad(run.policies.logits, ((0, 0), (0, shape[1] - cell.agents), (0, 0), (0, 0)))


def _keys(config: Reproduce, cell: Cell) -> Key[Array, " seed"]:
    number = 1_000 * KINDS.index(cell.kind) + cell.agents
    return jnp.stack([jr.fold_in(jr.key(seed), number) for seed in config.seed_values])


@partial(jax.jit, static_argnames="num_datasets", compiler_options=SELDOM)
def _collect_and_learn(
    keys: Key[Array, "cell seed"],
    world: TabularMDP,
    logits: Float[Array, "cell seed agent state action"],
    sizes: Int[Array, " cell"],
    goals: Int[Array, " goal"],
    num_datasets: int,
) -> tuple[Float[Array, "cell seed agent state"], Float[Array, "cell seed dataset"], Float[Array, "cell seed goal"]]:
    """Exact occupancies, the entropies of datasets with one trajectory per agent, and the success rate of Q-learning on them.

    Only the first `sizes` agents of each cell contribute to the datasets.
    """

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
