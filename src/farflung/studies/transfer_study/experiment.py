"""Explore once, then learn many goals: all ways to begin have the same number of environment steps in total."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from farflung.algorithms.actor_critic import ActorCritic
from farflung.algorithms.task import Goal
from farflung.config import Explore, TransferStudy
from farflung.data.maze_goals import spread_goals
from farflung.policies import Networks, neural_team, softmax_team
from farflung.policies.rollout import play
from farflung.runs import interrupts
from farflung.runs.destinations import Destination, open_collection
from farflung.runs.run import steps_per_update
from farflung.studies.explore import explore_config
from farflung.studies.suite import SuiteStatus
from farflung.studies.transfer import agent_of, start_from
from farflung.training.loop import train
from farflung.worlds.gridworld import gridworld
from farflung.worlds.named import make_world
from farflung.worlds.world import World

KINDS = {
    "team": "best of a team that explored together",
    "independent": "best of agents that explored independently",
    "single": "one policy that explored with as many trajectories",
    "archive": "best of an archive of MAP-Elites",
    "random": "best of as many random policies",
    "scratch": "PPO from scratch",
    "entropy": "PPO from scratch with an entropy bonus (as in RE3)",
    "curious": "PPO from scratch with curiosity (RND)",
}
"""The ways to begin, with what they are."""
EXPLORED = ("team", "independent", "single", "archive")
"""Those that spend steps on exploration before the first goal."""
SOLVED = 0.8
"""The success rate with which a goal counts as solved."""
CORRIDORS = """
....#....#....
.##...##...##.
....#....#....
#.####.#####.#
....#....#....
.##....S...##.
....#....#....
#.#####.####.#
....#....#....
.##...##...##.
....#....#....
"""
_BATCH, _PRETRAINING_BATCH, _HIDDEN = 16, 16, (32, 32)
_RATES = {True: 0.001, False: 0.1}
_INTRINSIC, _ENTROPY_BONUS, _LEFT = 0.05, 0.01, 5.0
_SMOOTHED = 3
_RECORDS = 24
_EVALUATIONS = 2
_GENERATION = 60
_SAME_ROUTE = 0.5
_LEAST_BEST = 0.9


class Learning(NamedTuple):
    """How one way to begin learns all goals, seed by seed."""

    steps: Float[np.ndarray, " record"]
    """Environment steps in total, for all goals, with exploration and the choice of agents."""
    success: Float[np.ndarray, "seed goal record"]
    """The share of episodes that reach the goal, averaged over a few records."""
    before: Float[np.ndarray, "seed goal"]
    """The success rate of the chosen agent, before it learns."""
    steps_per_goal: Float[np.ndarray, " record"]
    """Environment steps for one goal alone, without exploration."""

    @property
    def solved(self) -> Float[np.ndarray, "seed record"]:
        """The share of goals that are solved."""
        return (self.success >= SOLVED).mean(axis=1)

    @property
    def final(self) -> Float[np.ndarray, " seed"]:
        return self.solved[:, -1]

    @property
    def steps_to_solve(self) -> Float[np.ndarray, "seed goal"]:
        """Steps for a goal until it is solved; all that there were, if it never is."""
        is_solved = self.success >= SOLVED
        first = np.where(is_solved.any(axis=-1), is_solved.argmax(axis=-1), len(self.steps) - 1)
        return self.steps_per_goal[first]

    def area(self, most: float) -> Float[np.ndarray, " seed"]:
        """The mean share of solved goals over all steps from 0 to `most`: 0 before the first record."""
        grid = np.linspace(0, most, 401)
        index = np.searchsorted(self.steps, grid, side="right") - 1
        return np.where(index >= 0, self.solved[:, index.clip(0)], 0.0).mean(axis=1)


class Diversity(NamedTuple):
    """How different the agents are among which one is chosen."""

    routes: Float[np.ndarray, " seed"]
    """Distinct routes to a goal among the agents that reach it, averaged over the goals that any of them reaches."""
    coverage: Float[np.ndarray, " seed"]
    """The share of cells in which an agent ends, of those of MAP-Elites' grid that can be reached."""
    quality: Float[np.ndarray, " seed"]
    """The QD score: the sum over these cells of how reliably an agent ends there, from 0 to 1."""


@dataclass(frozen=True)
class WorldStudy:
    """The results of one world."""

    name: str
    world: World
    goals: np.ndarray
    explored_steps: int
    """Environment steps of exploration, for one seed."""
    learning: Mapping[str, Learning]
    diversity: Mapping[str, Diversity]

    @property
    def most_steps(self) -> float:
        return float(min(each.steps[-1] for each in self.learning.values()))

    def saved_per_goal(self, kind: str = "scratch") -> Float[np.ndarray, "seed goal"]:
        """Steps that the team saves against another way to begin; its own steps are lost where it does not solve a goal."""
        team = self.learning["team"]
        has_solved = (team.success >= SOLVED).any(axis=-1)
        return np.where(has_solved, self.learning[kind].steps_to_solve - team.steps_to_solve, -team.steps_per_goal[-1])

    def goals_to_pay(self, kind: str = "scratch") -> float:
        """After how many goals exploration has paid for itself against another way to begin; infinite if never."""
        saved = float(self.saved_per_goal(kind).mean())
        return self.explored_steps / saved if saved > 0 else math.inf

    def saved(self, kind: str = "scratch") -> Float[np.ndarray, " seed"]:
        """Steps that the team saves over all goals, minus those of exploration."""
        return self.saved_per_goal(kind).sum(axis=1) - self.explored_steps


@dataclass(frozen=True)
class Study:
    """The results of `farflung transfer-study`."""

    config: TransferStudy
    worlds: Sequence[WorldStudy]
    notes: Sequence[str]


def study_transfer(
    config: TransferStudy,
    out: Destination | None = None,
    *,
    force: bool = False,
    on_progress: Callable[[SuiteStatus], None] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> Study:
    """Explores and learns in all worlds.

    Args:
        out: a folder that will hold the page; raises ValueError if it holds anything else, unless `force` may replace it.
    """
    if out is not None:
        contents = {"kind": "transfer-study", "farflung": version("farflung"), **dataclasses.asdict(config)}
        open_collection(out, contents, force=force)
    notes: list[str] = []
    try:
        import ribs  # noqa: F401
    except ImportError:
        notes.append("the archive of MAP-Elites was left out: install it with pip install 'farflung[archive]'")
    for note in notes:
        (on_note or (lambda _: None))(note)
    found = []
    for number, name in enumerate(config.worlds):

        def report(done: int, what: str, number: int = number, name: str = name) -> None:
            interrupts.check()
            if on_progress is not None:
                on_progress(SuiteStatus(10 * number + done, 10 * len(config.worlds), f"{name}: {what}"))

        found.append(_study_world(config, name, not notes, report))
        jax.clear_caches()
    return Study(config, found, notes)


def _study_world(config: TransferStudy, name: str, has_archive: bool, report: Callable[[int, str], None]) -> WorldStudy:
    world = make_study_world(name)
    is_neural, seeds = world.projection is not None, config.seed_values
    goals = held_out_goals(world, config.goals)
    about: dict[str, Any] = {
        "agents": config.agents,
        "updates": config.updates,
        "seeds": seeds,
        "batch_size": _PRETRAINING_BATCH,
    }
    about |= {"hidden": _HIDDEN} if is_neural else {"policy": "stationary"}
    teams: dict[str, list[Any]] = {}
    ways: dict[str, dict[str, Any]] = {"team": {}, "independent": {"independent": True}, "single": {"single": True}}
    for number, (kind, changes) in enumerate(ways.items()):
        report(number, KINDS[kind])
        explored = explore_config(Explore(name, **about, **changes), world, given=(), live=False)
        if explored.summary["is_interrupted"]:
            raise interrupts.Stopped
        teams[kind] = [explored.team(seed).policies for seed in seeds]
    explored_steps = config.updates * steps_per_update(explored.config, world)
    networks = Networks(_HIDDEN)
    for kind, scale, number in (("random", 1.0, config.agents), ("scratch", 0.01, 1)):
        make = partial(neural_team, networks=networks) if is_neural else softmax_team
        teams[kind] = [make(jr.fold_in(jr.key(seed), 7), world, num_agents=number, scale=scale) for seed in seeds]
    report(3, KINDS["archive"])
    archives = (
        [_archive(world, teams["random"][0], goals, explored_steps, config.agents, seed) for seed in seeds]
        if has_archive
        else []
    )
    report(4, "the agents are compared")
    chosen: dict[str, Any] = {}
    before: dict[str, Any] = {}
    selection_steps, diversity, of_archives = {}, {}, []
    for kind, own in teams.items():
        found = [
            _choose(jr.fold_in(jr.key(seed), 8), world, team, goals, config.episodes)
            for seed, team in zip(seeds, own, strict=True)
        ]
        chosen[kind] = [[start_from(team, agent) for agent in best] for team, (best, _, _) in zip(own, found, strict=True)]
        before[kind] = np.array([rates for _, rates, _ in found])
        selection_steps[kind] = 0 if own[0].num_agents == 1 else config.episodes * own[0].num_agents * world.horizon
        diversity[kind] = _diversity(world, own, np.array([routes for _, _, routes in found]))
    for seed, (elites, near, numbers) in zip(seeds, archives, strict=True):
        key, alike = jr.fold_in(jr.key(seed), 9), [jax.tree.map(lambda leaf, own=own: leaf[own], elites) for own in near]
        found = [_choose(key, world, few, goals[index : index + 1], config.episodes) for index, few in enumerate(alike)]
        chosen.setdefault("archive", []).append(
            [start_from(few, best[0]) for few, (best, _, _) in zip(alike, found, strict=True)]
        )
        before.setdefault("archive", []).append([rates[0] for _, rates, _ in found])
        routes = [number for _, _, number in found if number]
        of_archives.append((np.mean(routes) if routes else 0.0, *numbers))
    if of_archives:
        before["archive"], selection_steps["archive"] = np.array(before["archive"]), selection_steps["team"]
        diversity["archive"] = Diversity(*np.array(of_archives).T)
    per_update, num_short = _BATCH * world.horizon, config.learning_updates
    most = explored_steps + len(goals) * (num_short * per_update + selection_steps["team"])
    num_long = most // (len(goals) * per_update)
    learning = {}
    groups = (
        (num_short, [kind for kind in EXPLORED if kind in chosen], False),
        (num_long, ["random", "scratch", "entropy"], False),
        (num_long, ["curious"], True),
    )
    for number, (num_updates, kinds, is_curious) in enumerate(groups, start=5):
        report(number, ", ".join(kinds))
        starts = {kind: chosen.get(kind, chosen["scratch"]) for kind in kinds}
        curves, updates = _learn(world, goals, starts, seeds, num_updates, is_curious)
        for kind, success in curves.items():
            own = (per_update * updates + selection_steps.get(kind, 0)).astype(float)
            total = len(goals) * own + (explored_steps if kind in EXPLORED else 0)
            within = total <= most  # whoever chooses without exploration has fewer steps left to learn
            rates = np.asarray(before.get(kind, before["scratch"]))
            learning[kind] = Learning(total[within], success[..., within], rates, own[within])
    ordered = {kind: learning[kind] for kind in KINDS if kind in learning}
    return WorldStudy(name, world, goals, explored_steps, ordered, diversity)


def make_study_world(name: str) -> Any:
    """A world of the study; in Maze, episodes are longer than the paper's, which leave little time to go astray."""
    if name == "corridors":
        return gridworld(CORRIDORS, slip=0.1, horizon=30)
    return make_world(name, horizon=20 if name == "maze-stoc" else None)


def held_out_goals(world: Any, number: int) -> np.ndarray:
    """Goals that are not near the start, the same in every run: states, or rows of x, y and radius.

    In tables, the best policy reaches each of them with a probability of at least 0.9.
    """
    generator = np.random.default_rng(0)
    if world.projection is None:
        apart = _moves_from_start(world)
        can_be_solved = best_success(world) >= _LEAST_BEST
        far = np.flatnonzero(can_be_solved & (apart >= 0.5 * apart[can_be_solved].max()))
        return np.sort(generator.choice(far, min(number, len(far)), replace=False))
    places, radius = spread_goals(world, 5 * number)
    start = np.array(world.starts).reshape(-1, 2, 2).mean(axis=(0, 2))
    apart = np.linalg.norm(places - start, axis=1)
    far = np.flatnonzero(apart >= np.median(apart))
    rows = np.sort(generator.choice(far, min(number, len(far)), replace=False))
    return np.column_stack([places[rows], np.full(len(rows), radius)]).astype(np.float32)


def best_success(world: Any) -> Float[np.ndarray, " goal"]:
    """The largest probability with which any policy reaches each state within an episode, by dynamic programming."""
    successors, probabilities = np.asarray(world.successors), np.asarray(world.probabilities, np.float64)
    reached = np.eye(world.num_states)  # [goal, state]
    for _ in range(world.horizon):
        ahead = np.sum(probabilities * reached[:, successors], axis=-1).max(axis=-1)
        reached = np.maximum(ahead, np.eye(world.num_states))
    return reached @ np.asarray(world.start_distribution)


def _moves_from_start(world: Any) -> Float[np.ndarray, " state"]:
    """The least number of actions from a start to each state."""
    successors, states = np.asarray(world.successors), np.arange(world.num_states)
    graph = csr_array((np.ones(successors.size), (states.repeat(successors[0].size), successors.ravel())))
    return dijkstra(graph, indices=np.asarray(world.start_states), unweighted=True, min_only=True)


def _task(goal: np.ndarray) -> Goal:
    if np.ndim(goal) == 0:
        return Goal(np.asarray(goal, np.int32))
    return Goal(np.asarray(goal[:2], np.float32), np.asarray(goal[2], np.float32))


@partial(jax.jit, static_argnums=4)
def _reached(
    key: Any, team: Any, world: Any, goals: Any, num_episodes: int
) -> tuple[Bool[Array, "goal episode agent"], Array, Array]:
    """Which episodes reach each goal, when they do, and the cells of all states."""
    played = play(key, team, world, num_episodes, 1)

    def of_goal(goal: Goal) -> tuple[Array, Array]:
        paid = goal.paid(world, team, played)
        return paid.returns[..., 0] > 0, jnp.sum(paid.is_part[:, :, 0], axis=-1)

    cells = played.states if world.projection is None else world.projection.cells(played.states)
    return *jax.lax.map(of_goal, goals), cells[:, :, 0]


def _choose(key: Any, world: Any, team: Any, goals: np.ndarray, num_episodes: int) -> tuple[list[int], list[float], float]:
    """The best agent for each goal, its success rate, and the number of distinct routes to a goal."""
    tasks = jax.tree.map(lambda *leaves: np.stack(leaves), *(_task(goal) for goal in goals))
    is_reached, lengths, cells = map(np.asarray, _reached(key, team, world, tasks, num_episodes))
    rates = is_reached.mean(axis=1)
    best = rates.argmax(axis=1)
    routes = [num_routes(is_reached[goal], lengths[goal], cells) for goal in range(len(goals)) if is_reached[goal].any()]
    return best.tolist(), rates[np.arange(len(goals)), best].tolist(), float(np.mean(routes)) if routes else 0.0


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
    world: Any,
    goals: np.ndarray,
    starts: Mapping[str, list[list[Any]]],
    seeds: Sequence[int],
    num_updates: int,
    is_curious: bool,
) -> tuple[dict[str, Float[np.ndarray, "seed goal record"]], Int[np.ndarray, " record"]]:
    """Learns all goals from all starts, side by side in one program: the success rates at the recorded updates."""
    is_neural = world.projection is not None
    networks = Networks(_HIDDEN) if is_neural else None
    algorithms = [
        ActorCritic(
            1, batch_size=_BATCH, networks=networks, learning_rate=_RATES[is_neural], entropy_bonus=_ENTROPY_BONUS,
            bonus_decay=math.exp(-_LEFT / num_updates), steps_per_batch=8, task=_task(goal), is_curious=is_curious,
            intrinsic=_INTRINSIC if kind in ("entropy", "curious") else 0.0, initial=starts[kind][row][column],
        )
        for kind in starts for row in range(len(seeds)) for column, goal in enumerate(goals)
    ]  # fmt: skip
    log_every = max(1, num_updates // _RECORDS)
    records, updates = [], []
    for progress in train(algorithms, world, range(len(algorithms)), num_updates, log_every):
        records.append(np.asarray(progress.metrics.objective))
        updates.append(progress.recorded)
        interrupts.check()
    found = np.concatenate(records, axis=1).reshape(len(starts), len(seeds), len(goals), -1)
    padded = np.pad(found, [(0, 0)] * 3 + [(_SMOOTHED - 1, 0)], mode="edge")
    smooth = np.mean([padded[..., shift : shift + found.shape[-1]] for shift in range(_SMOOTHED)], axis=0)
    return dict(zip(starts, smooth, strict=True)), np.concatenate(updates)


def _ends(world: Any, states: Array) -> Float[Array, "episode agent 2"]:
    """Where episodes end, as row and column or as the first two features."""
    last = states[:, :, 0, -1]
    return (
        jnp.asarray(world.positions)[last].astype(jnp.float32)
        if world.projection is None
        else world.projection.project(last)[..., :2]
    )


def _evaluate(key: Any, team: Any, world: Any) -> tuple[Float[np.ndarray, "agent 2"], Float[np.ndarray, " agent"]]:
    """The mean place in which each agent ends, and how reliably, from 0 to 1."""
    low, high = _range(world)
    mean, reliability = _evaluated(key, team, world, jnp.asarray((high - low) / _bins(world), jnp.float32))
    return np.asarray(mean), np.asarray(reliability)


@jax.jit
def _evaluated(
    key: Any, team: Any, world: Any, cell: Float[Array, "2"]
) -> tuple[Float[Array, "agent 2"], Float[Array, " agent"]]:
    ends = _ends(world, play(key, team, world, _EVALUATIONS, 1).states)
    mean = jnp.mean(ends, axis=0)
    apart = jnp.linalg.norm((ends - mean[None]) / cell.reshape(1, 1, 2), axis=-1)
    return mean, 1 / (1 + jnp.mean(apart, axis=0))


def _range(world: Any) -> tuple[np.ndarray, np.ndarray]:
    if world.projection is not None:
        return np.array(world.projection.low[:2]), np.array(world.projection.high[:2])
    places = np.asarray(world.positions)
    return places.min(axis=0) - 0.5, places.max(axis=0) + 0.5


def _bins(world: Any) -> np.ndarray:
    low, high = _range(world)
    return np.asarray(world.projection.bins[:2]) if world.projection is not None else (high - low).astype(int)


def _grid(world: Any, size: int, seed: int) -> Any:
    from ribs.archives import GridArchive

    low, high = _range(world)
    ranges = list(zip(low.tolist(), high.tolist(), strict=True))
    return GridArchive(solution_dim=size, dims=_bins(world).tolist(), ranges=ranges, seed=seed)


def _num_cells(world: Any) -> int:
    return len(world.positions) if world.projection is None else int(world.is_free.sum())


def _archive(
    world: Any, like: Any, goals: np.ndarray, num_steps: int, num_near: int, seed: int
) -> tuple[Any, list[np.ndarray], tuple[float, float]]:
    """The elites of MAP-Elites after so many steps, those nearest to each goal, and coverage and QD score.

    Mouret and Clune, "Illuminating search spaces by mapping elites", 2015, with the operator of Vassiliades and Mouret (2018).
    """
    from ribs.emitters import IsoLineEmitter

    first = agent_of(like, 0)
    flat, unravel = ravel_pytree(first)
    vectors = np.stack([np.asarray(ravel_pytree(agent_of(like, agent))[0]) for agent in range(like.num_agents)])
    archive = _grid(world, len(flat), seed)
    emitter = IsoLineEmitter(
        archive, iso_sigma=0.1, line_sigma=0.2, initial_solutions=vectors, batch_size=_GENERATION, seed=seed
    )
    teams = jax.jit(lambda solutions: jax.tree.map(lambda leaf: leaf[:, 0], jax.vmap(unravel)(solutions)))
    num_generations = max(1, num_steps // (_GENERATION * _EVALUATIONS * world.horizon))
    for generation in range(num_generations):
        solutions = emitter.ask()
        padded = np.resize(solutions, (_GENERATION, len(flat)))  # the first generation may be smaller
        places, quality = _evaluate(jr.fold_in(jr.key(seed), generation), teams(jnp.asarray(padded, jnp.float32)), world)
        archive.add(solutions, quality[: len(solutions)], places[: len(solutions)])
    elites = archive.data()
    targets = np.asarray(world.positions)[goals] if world.projection is None else goals[:, :2]
    apart = np.linalg.norm(elites["measures"][None] - targets[:, None], axis=-1)
    near = np.argsort(apart, axis=1)[:, :num_near]
    score = float(archive.stats.coverage) * archive.cells / _num_cells(world), float(np.sum(elites["objective"]))
    return teams(jnp.asarray(elites["solution"], jnp.float32)), list(near), score


def _diversity(world: Any, teams: Sequence[Any], routes: np.ndarray) -> Diversity:
    coverage, quality = [], []
    for seed, team in enumerate(teams):
        places, reliability = _evaluate(jr.key(seed), team, world)
        low, high = _range(world)
        cells = ((places - low) / (high - low) * _bins(world)).astype(int)
        best: dict[tuple[int, ...], float] = {}
        for cell, value in zip(map(tuple, cells.tolist()), reliability.tolist(), strict=True):
            best[cell] = max(best.get(cell, 0.0), value)
        coverage.append(len(best) / _num_cells(world))
        quality.append(sum(best.values()))
    return Diversity(np.asarray(routes), np.array(coverage), np.array(quality))
