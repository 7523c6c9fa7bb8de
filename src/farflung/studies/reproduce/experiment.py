"""The paper's experiments: all trainings, their datasets, and offline RL on these datasets."""

import itertools
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
from farflung.numerics.arrays import count_by_index
from farflung.numerics.compilation import SELDOM
from farflung.policies import TabularSoftmax, softmax_team
from farflung.policies.rollout import play
from farflung.runs import interrupts
from farflung.runs.destinations import Destination, claimed, open_collection
from farflung.runs.run import Run
from farflung.studies.concentration.experiment import as_distributions, measured_samples
from farflung.studies.reproduce.claims import DELTA, EPSILON, Cell, Findings, Training
from farflung.studies.reproduce.theorems import TheoremChecks, check_theorems
from farflung.studies.suite import Elsewhere, SuiteStatus, compiling_threads, train_all
from farflung.training.metrics import occupancy
from farflung.worlds.named import make_tabular_world
from farflung.worlds.tabular import TabularMDP

_CEILING_SECONDS = 20
_DRAWS = 2000
_KINDS = ("team", "single", "random")
_NUM_ROUNDS = 10
_PER_LEARNT = 8
"""Datasets whose entropy is measured for each dataset that is learnt from: sampling is cheap, learning is not."""
_MOST_DATASETS_AT_ONCE = 200


@dataclass(frozen=True)
class Reproduction:
    """The results of `farflung reproduce`."""

    config: Reproduce
    runs: Mapping[Training, Mapping[Cell, Run]]
    """The trained teams and single agents, by how they were trained."""
    independent: Mapping[Cell, Run]
    """The independently trained teams."""
    findings: Mapping[Training, Findings]
    """The measurements, by training."""
    theorems: TheoremChecks


class Collected(NamedTuple):
    """The measurements on the policies of one cell; the fields are those of `Findings`."""

    occupancy: Float[np.ndarray, "seed agent state"]
    dataset_entropy: Float[np.ndarray, "seed dataset"]
    growth: Float[np.ndarray, "seed trajectory"]
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
    elsewhere: Elsewhere | None = None,
) -> Reproduction:
    """Trains all runs that are not yet in the folder `out`, saves each run there, and measures all of them.

    Args:
        force: delete the results in the folder if another version or other settings wrote them.
        on_note: called with a message about each unusable run in the folder; such a run is trained again.
        elsewhere: trains in other processes, such as those of a cluster.
    """
    report, note = on_progress or (lambda _: None), on_note or (lambda _: None)
    contents = {"farflung": version("farflung"), "updates": config.updates, "seeds": list(config.seed_values)}
    worlds = {name: make_tabular_world(name) for name in config.worlds}
    trainings = [Training(*pair) for pair in itertools.product(config.schedules, config.estimators)]
    cells = [Cell(world, agents, kind) for world in worlds for kind in _KINDS[:2] for agents in config.agents]
    groups = [{folder_of(training, cell): _explore_config(config, training, cell) for training in trainings} for cell in cells]
    # Independent agents don't depend on each other, so that the largest team of them has the smaller ones as parts.
    independent = [Cell(world, max(config.agents), "independent") for world in worlds]
    groups += [{folder_of(trainings[0], cell): _explore_config(config, trainings[0], cell)} for cell in independent]
    places = {folder_of(training, cell): (training, cell) for cell in cells for training in trainings}
    # The pool measures the random policy while teams train, and then the trained policies.
    with claimed(out) as place, compiling_threads() as pool:
        open_collection(place, contents, force=force)
        if elsewhere is not None:
            elsewhere(groups, place.folder)
        training_runs = train_all(groups, worlds, place.folder, pool, report, note)
        random = [pool.submit(collect, config, {}, name, "random", world) for name, world in worlds.items()]
        ceilings = {
            (name, agents): pool.submit(ceiling, world, agents, time_limit=_CEILING_SECONDS)
            for name, world in worlds.items()
            for agents in config.agents
        }
        chance = {name: pool.submit(untrained_success, jr.key(0), world, goals_of(world)) for name, world in worlds.items()}
        untrained = {name: pool.submit(_untrained, config, name, world) for name, world in worlds.items()}
        theorems = pool.submit(check_theorems)
        trained: dict[str, Run] = {}
        collecting: dict[str, Future[dict[Cell, Collected]]] = {}
        for folder, run in training_runs:
            trained[folder] = run
            if folder not in places:
                continue
            training, (name, _, kind) = places[folder]
            own = {cell: folder_of(training, cell) for cell in cells if (cell.world, cell.kind) == (name, kind)}
            if trained.keys() >= set(own.values()):  # all team sizes are trained
                runs = {cell: trained[each] for cell, each in own.items()}
                collecting[_collection(training, name, kind)] = pool.submit(collect, config, runs, name, kind, worlds[name])
        report(SuiteStatus(1, 1, "datasets and offline RL"))
        shared: dict[str, Any] = {
            "ceilings": {key: bound.result() for key, bound in ceilings.items()},
            "samples_needed_uniform": _uniform_samples(next(iter(worlds.values())).num_states),
            "untrained_success": {name: float(rate.result()) for name, rate in chance.items()},
        }
        others = {cell: visits for part in untrained.values() for cell, visits in part.result().items()}
        alone = {cell: trained[folder_of(trainings[0], cell)] for cell in independent}
        findings, runs_of = {}, {}
        for training in trainings:
            interrupts.check()
            runs_of[training] = {cell: trained[folder_of(training, cell)] for cell in cells}
            parts = [collecting[_collection(training, name, kind)] for name in worlds for kind in _KINDS[:2]]
            data = {cell: value for part in (*parts, *random) for cell, value in part.result().items()}
            measured: Any = {name: {cell: getattr(own, name) for cell, own in data.items()} for name in Collected._fields}
            measured["occupancy"] |= others
            if training.schedule == trainings[0].schedule:
                for cell, run in alone.items():
                    measured["occupancy"] |= _parts(config, cell, run.policies, worlds[cell.world])
            metrics = {cell: run.metrics for cell, run in runs_of[training].items()}
            updates = next(iter(runs_of[training].values())).updates
            findings[training] = Findings(updates=updates, metrics=metrics, **shared, **measured)
        return Reproduction(config, runs_of, alone, findings, theorems.result())


def _explore_config(config: Reproduce, training: Training, cell: Cell) -> Explore:
    learning_rate, decay = SCHEDULES[training.schedule]
    return Explore(
        cell.world,
        agents=cell.agents,
        single=cell.kind == "single",
        independent=cell.kind == "independent",
        preset="paper",
        updates=config.updates,
        learning_rate=learning_rate,
        decay=decay,
        over_trajectories=training.estimator if cell.kind == "single" else "sum",
        seeds=config.seed_values,
    )


def folder_of(training: Training, cell: Cell) -> str:
    """Only the single agent plays several trajectories, so that all estimators share the other runs."""
    is_averaged = cell.kind == "single" and training.estimator == "mean"
    return f"runs/{training.schedule}{'-mean' * is_averaged}/{cell.world}-{cell.agents}-{cell.kind}"


def _collection(training: Training, name: str, kind: str) -> str:
    """What is collected together: all team sizes of a kind in a world."""
    return folder_of(training, Cell(name, 0, kind))


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
        by_round = (entropies / np.log(world.num_states)).reshape(*entropies.shape[:2], _NUM_ROUNDS, -1)
        growth = by_round[..., : cell.agents].reshape(*entropies.shape[:2], -1)
        needed = _samples_needed(cell, own) if kind != "random" else (np.array([]), np.array([]))
        found[cell] = Collected(own, growth[..., cell.agents - 1], growth.mean(axis=1), reached, *needed)
    return found


def _samples_needed(
    cell: Cell, visits: Float[np.ndarray, "seed agent state"]
) -> tuple[Float[np.ndarray, " seed"], Float[np.ndarray, " seed"]]:
    """The number of samples that the entropy of the team takes, and that of one agent, averaged over the agents."""
    generator = np.random.default_rng([*map(ord, "".join(map(str, cell)))])
    exact = as_distributions(visits)
    together = measured_samples(generator, exact, EPSILON, DELTA, _DRAWS)
    if exact.shape[1] == 1:
        return together, together
    alone = measured_samples(generator, exact.reshape(-1, 1, exact.shape[-1]), EPSILON, DELTA, _DRAWS)
    return together, alone.reshape(exact.shape[:2]).mean(axis=1)


def _uniform_samples(num_states: int) -> float:
    """The number of samples that the entropy of the uniform distribution takes, as the mean of some measurements."""
    uniform = np.full((5, 1, num_states), 1 / num_states)
    return float(np.mean(_samples_needed(Cell("uniform", 1, "single"), uniform)[0]))


def _untrained(config: Reproduce, name: str, world: TabularMDP) -> dict[Cell, Float[np.ndarray, "seed agent state"]]:
    """The exact state distributions of teams as they are before training."""
    cell = Cell(name, max(config.agents), "untrained")
    keys = jnp.stack([jr.fold_in(jr.key(seed), cell.agents) for seed in config.seed_values])
    teams = jax.vmap(lambda key: softmax_team(key, world, cell.agents, scale=1.0))(keys)
    return _parts(config, cell, teams, world)


def _parts(
    config: Reproduce, cell: Cell, teams: TabularSoftmax, world: TabularMDP
) -> dict[Cell, Float[np.ndarray, "seed agent state"]]:
    """The exact state distributions of teams, and of their first agents alone as the smaller teams."""
    rows = [jax.tree.map(lambda leaf, row=row: leaf[row], teams) for row in range(len(config.seed_values))]
    visits = np.stack([np.asarray(occupancy(world, team)) for team in rows])
    return {cell._replace(agents=agents): visits[:, :agents] for agents in config.agents}


def _logits(run: Run | None, cell: Cell, config: Reproduce, world: TabularMDP) -> Float[Array, "seed agent state action"]:
    shape = (len(config.seed_values), max(config.agents), world.num_states, world.num_actions)
    if run is None:
        return jnp.zeros(shape)
    if run.config.single:
        return jnp.broadcast_to(run.policies.logits, shape)
    return jnp.pad(run.policies.logits, ((0, 0), (0, shape[1] - cell.agents), (0, 0), (0, 0)))


def _keys(config: Reproduce, cell: Cell) -> Key[Array, " seed"]:
    number = 1_000 * _KINDS.index(cell.kind) + cell.agents
    return jnp.stack([jr.fold_in(jr.key(seed), number) for seed in config.seed_values])


@partial(jax.jit, static_argnames="num_datasets", compiler_options=SELDOM)
def _collect_and_learn(
    keys: Key[Array, "cell seed"],
    world: TabularMDP,
    logits: Float[Array, "cell seed agent state action"],
    sizes: Int[Array, " cell"],
    goals: Int[Array, " goal"],
    num_datasets: int,
) -> tuple[Float[Array, "cell seed agent state"], Float[Array, "cell seed dataset trajectory"], Float[Array, "cell seed goal"]]:
    """Exact occupancies, the entropies of datasets as they grow, and the success rate of Q-learning on their first round.

    In a round, each agent plays one trajectory. Only the first `sizes` agents of each cell contribute; the entropy does not
    change with the trajectories of the others.
    """
    num_agents = logits.shape[2]

    def collect(
        key: Key[Array, ""], logits: Float[Array, "agent state action"], size: Int[Array, ""]
    ) -> tuple[Float[Array, "element trajectory"], Transitions]:
        trajectories = play(key, TabularSoftmax(logits), world, _PER_LEARNT, _NUM_ROUNDS)
        states = jnp.swapaxes(trajectories.states, 1, 2).reshape(_PER_LEARNT, -1, world.horizon + 1)
        is_real = jnp.tile(jnp.arange(num_agents) < size, _NUM_ROUNDS)
        counts = jax.vmap(jax.vmap(lambda path: count_by_index(path, world.num_states)))(states) * is_real[None, :, None]
        visits = jnp.cumsum(counts, axis=1) / (jnp.cumsum(is_real) * (world.horizon + 1))[None, :, None]
        first = jax.tree.map(lambda part: part[:1, :, :1], trajectories)
        return shannon(visits), transitions(first)._replace(num=size * world.horizon)

    def one_dataset(
        number: Int[Array, ""],
    ) -> tuple[Float[Array, "cell seed element trajectory"], Float[Array, "cell seed goal"]]:
        own = jax.vmap(jax.vmap(partial(jr.fold_in, data=number)))(keys)
        play_keys, learn_keys = jnp.moveaxis(jax.vmap(jax.vmap(jr.split))(own), -1, 0)
        entropies, data = jax.vmap(jax.vmap(collect, (0, 0, None)))(play_keys, logits, sizes)
        return entropies, jax.vmap(goal_success, (0, None, 0, None))(learn_keys, world, data, goals)

    fitting = max(1, _MOST_DATASETS_AT_ONCE // keys.size)
    at_once = max(number for number in range(1, num_datasets + 1) if number <= fitting and num_datasets % number == 0)
    entropies, rates = jax.lax.map(one_dataset, jnp.arange(num_datasets), batch_size=at_once)
    exact = jnp.vectorize(world.occupancy, signature="(s,a)->(s)")(TabularSoftmax(logits).probabilities)
    by_dataset = jnp.moveaxis(entropies, 0, 2).reshape(*keys.shape, -1, entropies.shape[-1])
    return exact, by_dataset, jnp.mean(rates, axis=0)
