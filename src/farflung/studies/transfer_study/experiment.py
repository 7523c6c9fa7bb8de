"""Explore once, then learn many goals: all ways to begin have the same number of environment steps in total."""

import contextlib
import dataclasses
import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from farflung.algorithms.actor_critic import ActorCritic
from farflung.algorithms.task import Goal
from farflung.config import Explore, TransferStudy
from farflung.config.options import ACTOR_CRITIC, ALGORITHM
from farflung.config.reading import member, read_bytes
from farflung.policies import Networks, neural_team, softmax_team
from farflung.policies.rollout import play
from farflung.runs import interrupts
from farflung.runs.destinations import CONFIG, Destination, claimed, open_collection
from farflung.runs.files import add_file
from farflung.runs.run import discard_run, load_run, steps_per_update
from farflung.studies.explore import explore_config
from farflung.studies.suite import SuiteStatus
from farflung.studies.transfer import start_from
from farflung.studies.transfer_study.archive import coverage_and_quality, map_elites
from farflung.studies.transfer_study.goals import StudyWorld, make_study_world, task_of
from farflung.studies.transfer_study.results import EXPLORED, KINDS, Diversity, Learning, WorldStudy, read_world
from farflung.training.loop import train

_FOLDER = "worlds"
"""Where the results of each world are kept."""
EXPLORERS: dict[str, dict[str, Any]] = {"team": {}, "independent": {"independent": True}, "single": {"single": True}}
"""The ways to explore whose runs are kept, with their settings."""
BY_ACTOR_CRITIC = {"point-maze": 2}
"""Worlds whose explorers the actor-critic trains, and how many times as long; PGPSE trains all others. Chosen by the success of
the team's best agents as starts, on seeds 100 to 103, which are not the study's."""
_PARTS = 10
"""Parts of the work in a world, for the progress bar."""
_RATES = {True: 0.001, False: 0.1}
"""Learning rates of PPO for networks and for tables."""
_BONUS = 0.02
"""Weight of both bonuses: of 0.02, 0.05, 0.15 and 0.5, it solves most goals in maze-stoc and point-four-rooms together."""
_ENTROPY_BONUS, _LEFT = 0.01, 5.0
_SMOOTHED = 3
_RECORDS = 20
_SAME_ROUTE = 0.5


@dataclass(frozen=True)
class Sizes:
    """How large everything is that the config of a study does not say."""

    batch_size: int = 16
    """Episodes in an update of PPO."""
    hidden: tuple[int, ...] = (32, 32)
    steps_per_batch: int = 8
    """Gradient steps for each batch."""
    num_minibatches: int = 4
    generation: int = 60
    """Policies in a generation of MAP-Elites, and random ones in the first."""
    are_seeds_together: bool = False
    """Whether all seeds of MAP-Elites play side by side, and curiosity learns beside all others that did not explore: an
    accelerator that waits for small kernels needs less time for few large programs."""


@dataclass(frozen=True)
class Study:
    """The results of `farflung transfer-study`."""

    config: TransferStudy
    worlds: Sequence[WorldStudy]
    notes: Sequence[str]


Elsewhere = Callable[[Sequence[str], Path], None]
"""Studies worlds in other processes, which save the results in a folder that this process sees too."""
Report = Callable[[int, str], None]


def study_transfer(
    config: TransferStudy,
    out: Destination | None = None,
    *,
    force: bool = False,
    elsewhere: Elsewhere | None = None,
    on_progress: Callable[[SuiteStatus], None] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> Study:
    """Explores and learns in all worlds whose results are not in `out` yet; each world's are kept there when it is finished.

    Args:
        out: a folder that will hold the page; raises ValueError if it holds anything else, unless `force` may replace it.
        elsewhere: studies the worlds in other processes.
    """
    notes: list[str] = []

    def note(text: str) -> None:
        notes.append(text)
        (on_note or (lambda _: None))(text)

    names = list(config.worlds)
    if "door-key" in names and importlib.util.find_spec("xminigrid") is None:
        note("door-key was left out, since XLand-MiniGrid is missing: pip install '.[xminigrid]', in a clone of farflung")
        names.remove("door-key")
        if not names:
            raise ValueError("door-key needs XLand-MiniGrid: pip install '.[xminigrid]', in a clone of farflung")
    if importlib.util.find_spec("ribs") is None:
        note(
            "the archive of MAP-Elites was left out, since pyribs is missing: pip install '.[archive]', in a clone of farflung"
        )
    found: dict[str, WorldStudy] = {}
    if out is not None:
        contents = {"kind": "transfer-study", "farflung": version("farflung"), **dataclasses.asdict(config)}
        open_collection(out, contents, force=force)
        found = _finished(names, out.folder, config, on_note or (lambda _: None))
        if elsewhere is not None and len(found) < len(names):
            elsewhere([name for name in names if name not in found], out.folder)
            found = _finished(names, out.folder, config, on_note or (lambda _: None))
    for number, name in enumerate(names):

        def report(done: int, what: str, number: int = number, name: str = name) -> None:
            interrupts.check()
            if on_progress is not None:
                on_progress(SuiteStatus(_PARTS * number + done, _PARTS * len(names), f"{name}: {what}"))

        if name not in found:
            found[name] = study_world(config, name, report, None if out is None else out.folder)
            if out is not None:
                _save(found[name], out.folder)
            jax.clear_caches()
    return Study(config, [found[name] for name in names], notes)


def study_here(
    out: str, config: TransferStudy, worlds: Sequence[str], on_progress: Callable[..., None] | None = None
) -> dict[str, str]:
    """A job: studies worlds and saves their results in the folder of the study."""
    with interrupts.stoppable():
        for name in worlds:
            _save(study_world(config, name, lambda *_: interrupts.check(), Path(out)), Path(out))
    return {}


def _save(found: WorldStudy, folder: Path) -> None:
    add_file(folder / _FOLDER / f"{found.name}.npz", found.to_bytes())


def _finished(names: Sequence[str], folder: Path, config: TransferStudy, note: Callable[[str], None]) -> dict[str, WorldStudy]:
    """The results of earlier attempts."""
    found = {}
    for name in names:
        path = member(folder, f"{_FOLDER}/{name}.npz")
        if path.exists():
            try:
                found[name] = read_world(name, read_bytes(path), config.seeds)
            except ValueError as error:
                note(f"{path}: {error}; the world is studied again")
    return found


def is_finished(name: str, folder: Path) -> bool:
    """Whether the folder of a study has a file of the results of a world."""
    return (folder / _FOLDER / f"{name}.npz").exists()


def run_of(world: str, kind: str) -> str:
    """The folder of the run of a way to explore, in the folder of the study."""
    return f"runs/{world}/{kind}"


def study_world(config: TransferStudy, name: str, report: Report, folder: Path | None = None) -> WorldStudy:
    """Explores in one world, and learns its goals from all beginnings.

    Args:
        folder: of the study; the runs of those that explore are kept there.
    """
    studied, sizes = make_study_world(name, config.goals), Sizes()
    teams, explored_steps = _explored(
        config, studied, sizes, report, lambda kind: None if folder is None else folder / run_of(name, kind)
    )
    return compare_starts(config, name, studied, teams, explored_steps, report, sizes)


def compare_starts(
    config: TransferStudy,
    name: str,
    studied: StudyWorld,
    explored: Mapping[str, list[Any]],
    explored_steps: int,
    report: Report,
    sizes: Sizes,
) -> WorldStudy:
    """Learns the goals of a world from all beginnings.

    Args:
        explored: for each of `EXPLORERS` the teams of all seeds.
        explored_steps: the environment steps that each of these teams took.
    """
    world, seeds, goals = studied.world, config.seed_values, studied.goals
    teams = dict(explored)
    for kind, scale, number in (("random", 1.0, config.agents), ("scratch", 0.01, 1)):
        teams[kind] = [_new_team(studied, seed, number, scale, sizes) for seed in seeds]
    starts: dict[str, list[list[Any]]] = {}
    before, diversity = {}, {}
    selection_steps = {kind: config.episodes * own[0].num_agents * world.horizon for kind, own in teams.items()}
    selection_steps |= {kind: 0 for kind, own in teams.items() if own[0].num_agents == 1}  # there is nothing to choose
    report(3, "the best agents are chosen")
    for kind, own in teams.items():
        found = [_begin(config, studied, team, goals, seed) for seed, team in zip(seeds, own, strict=True)]
        starts[kind], before[kind] = [each for each, _, _ in found], np.array([rates for _, rates, _ in found])
        reached = [coverage_and_quality(studied, team, seed) for seed, team in zip(seeds, own, strict=True)]
        diversity[kind] = Diversity(np.array([routes for _, _, routes in found]), *np.array(reached).T)
    if importlib.util.find_spec("ribs") is not None:
        report(4, KINDS["archive"])
        together = [seeds] if sizes.are_seeds_together else [(seed,) for seed in seeds]
        archives = [own for few in together for own in _from_archives(config, studied, explored_steps, few, sizes)]
        starts["archive"] = [own for own, _, _ in archives]
        before["archive"] = np.array([rates for _, rates, _ in archives])
        selection_steps["archive"] = selection_steps["team"]
        diversity["archive"] = Diversity(*np.array([numbers for _, _, numbers in archives]).T)
    del diversity["scratch"]
    starts |= {"entropy": starts["scratch"], "curious": starts["scratch"]}

    per_update = sizes.batch_size * world.horizon
    most = explored_steps + len(goals) * (config.learning_updates * per_update + selection_steps["team"])
    log_every = max(1, config.learning_updates // _RECORDS)
    explorers = [kind for kind in EXPLORED if kind in starts]
    programs = [explorers, ["random", "scratch"], ["entropy"], ["curious"]]  # bonuses take long
    if sizes.are_seeds_together:
        programs[1:] = [["random", "scratch", "entropy", "curious"]]
    learning = {}
    for number, kinds in enumerate(programs, start=5):
        report(number, ", ".join(kinds))
        left = most - (explored_steps if kinds == explorers else 0)
        own_starts, num_updates = {kind: starts[kind] for kind in kinds}, left // (len(goals) * per_update)
        curves, updates = _learn(studied, own_starts, seeds, num_updates, log_every, sizes)
        for kind, success in curves.items():
            own = (per_update * updates + selection_steps.get(kind, 0)).astype(float)
            total = len(goals) * own + (explored_steps if kind in EXPLORED else 0)
            within = total <= most  # whoever chooses among agents has fewer steps left to learn
            rates = before.get(kind, before["scratch"])
            learning[kind] = Learning(total[within], success[..., within], rates, own[within])
    # In one order, as they are read from a file: a study that was interrupted ends with the same bytes.
    learning = {kind: learning[kind] for kind in KINDS if kind in learning}
    diversity = {kind: diversity[kind] for kind in KINDS if kind in diversity}
    return WorldStudy(name, goals, explored_steps, learning, diversity)


def _explored(
    config: TransferStudy, studied: StudyWorld, sizes: Sizes, report: Report, place_of: Callable[[str], Path | None]
) -> tuple[dict[str, list[Any]], int]:
    """The teams of all seeds that explored in three ways, and the environment steps that each of them took."""
    algorithm = ACTOR_CRITIC if studied.name in BY_ACTOR_CRITIC else ALGORITHM
    num_updates = config.updates * BY_ACTOR_CRITIC.get(studied.name, 1)
    about: dict[str, Any] = {"agents": config.agents, "updates": num_updates, "seeds": config.seed_values}
    about |= {"hidden": sizes.hidden} if studied.is_neural else {"policy": "stationary"}
    teams: dict[str, list[Any]] = {}
    steps = set()
    for number, (kind, changes) in enumerate(EXPLORERS.items()):
        report(number, KINDS[kind])
        settings = Explore(studied.name, algorithm=algorithm, batch_size=sizes.batch_size, **about, **changes)
        with contextlib.nullcontext() if (folder := place_of(kind)) is None else claimed(_readable(folder)) as place:
            explored = explore_config(settings, studied.world, given=(), out=place, live=False)
        if explored.summary["is_interrupted"]:
            raise interrupts.Stopped
        teams[kind] = [explored.team(seed).policies for seed in config.seed_values]
        steps.add(num_updates * steps_per_update(explored.config, studied.world))
    (same,) = steps
    return teams, same


def _readable(folder: Path) -> Path:
    """The folder of a run; a run in it that cannot be read is removed, and trained again."""
    if (folder / CONFIG).exists():
        try:
            load_run(folder)
        except ValueError:
            discard_run(folder)
    return folder


def _new_team(studied: StudyWorld, seed: int, number: int, scale: float, sizes: Sizes) -> Any:
    """Policies that have learned nothing."""
    make = partial(neural_team, networks=Networks(sizes.hidden)) if studied.is_neural else softmax_team
    return make(jr.fold_in(jr.key(seed), 7), studied.world, num_agents=number, scale=scale)


def _begin(
    config: TransferStudy, studied: StudyWorld, team: Any, goals: np.ndarray, seed: int
) -> tuple[list[Any], list[float], float]:
    """For each goal the policy to start from and its success rate, and the number of distinct routes to a goal.

    The agent is chosen by some episodes, and its success rate is that of others. Routes are counted in as many episodes for
    every team: one policy plays more.
    """
    choice_key, test_key = jr.split(jr.fold_in(jr.key(seed), 8))
    tasks = jax.tree.map(lambda *leaves: np.stack(leaves), *(task_of(goal) for goal in goals))
    best = np.zeros(len(goals), int)
    if team.num_agents > 1:
        best = np.asarray(reached(choice_key, team, studied.world, tasks, config.episodes)[0]).mean(axis=1).argmax(axis=1)
    num_episodes = config.episodes * max(1, config.agents // team.num_agents)
    is_reached, lengths, cells = map(np.asarray, reached(test_key, team, studied.world, tasks, num_episodes))
    rates = is_reached.mean(axis=1)[np.arange(len(goals)), best]
    routes = [num_routes(*each, cells) for each in zip(is_reached, lengths, strict=True)]
    return [start_from(team, int(agent)) for agent in best], rates.tolist(), float(np.mean(routes))


def _from_archives(
    config: TransferStudy, studied: StudyWorld, num_steps: int, seeds: Sequence[int], sizes: Sizes
) -> list[tuple[list[Any], list[float], tuple[float, float, float]]]:
    """The same for elites of MAP-Elites: the best of as many as a team has agents, of those that end nearest to a goal."""
    firsts = [_new_team(studied, seed, sizes.generation, 1.0, sizes) for seed in seeds]
    found = []
    for seed, elites in zip(seeds, map_elites(studied, firsts, num_steps, config.agents, seeds), strict=True):
        starts, before, routes = [], [], []
        for index, near in enumerate(elites.near):
            few = jax.tree.map(lambda leaf, near=near: leaf[near], elites.team)
            own, rates, number = _begin(config, studied, few, studied.goals[index : index + 1], seed)
            starts += own
            before += rates
            routes.append(number)
        found.append((starts, before, (float(np.mean(routes)), elites.coverage, elites.quality)))
    return found


@partial(jax.jit, static_argnums=4)
def reached(
    key: Any, team: Any, world: Any, goals: Any, num_episodes: int
) -> tuple[Bool[Array, "goal episode agent"], Array, Array]:
    """Which episodes reach each goal, when they do, and the cells of all states."""
    played = play(key, team, world, num_episodes, 1)

    def of_goal(goal: Goal) -> tuple[Array, Array]:
        paid = goal.paid(world, team, played)
        return paid.returns[..., 0] > 0, jnp.sum(paid.is_part[:, :, 0], axis=-1)

    cells = played.states if world.projection is None else world.projection.cells(played.states)
    return *jax.lax.map(of_goal, goals), cells[:, :, 0]


def num_routes(
    is_reached: Bool[np.ndarray, "episode agent"],
    lengths: Int[np.ndarray, "episode agent"],
    cells: Int[np.ndarray, "episode agent times"],
) -> int:
    """How many routes differ: two are the same if half of the cells of both together are in both."""
    routes: list[set[int]] = []
    for episode, agent in np.argwhere(is_reached):
        own = set(cells[episode, agent, : lengths[episode, agent] + 1].tolist())
        if all(len(own & other) < _SAME_ROUTE * len(own | other) for other in routes):
            routes.append(own)
    return len(routes)


def _learn(
    studied: StudyWorld,
    starts: Mapping[str, list[list[Any]]],
    seeds: Sequence[int],
    num_updates: int,
    log_every: int,
    sizes: Sizes,
) -> tuple[dict[str, Float[np.ndarray, "seed goal record"]], Int[np.ndarray, " record"]]:
    """Learns all goals from all starts, side by side in one program: the success rates at the recorded updates."""
    networks = Networks(sizes.hidden) if studied.is_neural else None
    algorithms = [
        ActorCritic(
            1, batch_size=sizes.batch_size, networks=networks, learning_rate=_RATES[studied.is_neural],
            entropy_bonus=_ENTROPY_BONUS, bonus_decay=math.exp(-_LEFT / num_updates),
            steps_per_batch=sizes.steps_per_batch, num_minibatches=sizes.num_minibatches, task=task_of(goal),
            intrinsic=_BONUS if kind == "entropy" else 0.0 if "entropy" in starts else None,
            curiosity=_BONUS if kind == "curious" else 0.0 if "curious" in starts else None,
            initial=starts[kind][row][column],
        )
        for kind in starts for row in range(len(seeds)) for column, goal in enumerate(studied.goals)
    ]  # fmt: skip
    records, updates = [], []
    for progress in train(algorithms, studied.world, range(len(algorithms)), num_updates, log_every):
        records.append(np.asarray(progress.metrics.objective))
        updates.append(progress.recorded)
        interrupts.check()
    found = np.concatenate(records, axis=1).reshape(len(starts), len(seeds), len(studied.goals), -1)
    padded = np.pad(found, [(0, 0)] * 3 + [(_SMOOTHED - 1, 0)], mode="edge")
    smooth = np.mean([padded[..., shift : shift + found.shape[-1]] for shift in range(_SMOOTHED)], axis=0)
    return dict(zip(starts, smooth, strict=True)), np.concatenate(updates)
