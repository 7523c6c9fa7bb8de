"""Teams trained on different objectives, and what each gives by all of them: the work behind `farflung objectives`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import matplotlib as mpl
import numpy as np
from jaxtyping import Float, Int
from matplotlib.figure import Figure

from farflung.algorithms.chosen import algorithm_for
from farflung.bounds.ceilings import ceiling, infinite_trials_optimum
from farflung.bounds.trajectories import mixture_trajectory_entropy
from farflung.config import Explore
from farflung.config.commands import Objectives
from farflung.config.options import ALGORITHM
from farflung.entropy.counts import decompose
from farflung.figures.style import BLUE, GREEN, GREY, ORANGE, RED, STYLE, plain
from farflung.policies.rollout import play
from farflung.runs import interrupts
from farflung.studies.explore import explore_config
from farflung.worlds.named import as_world
from farflung.worlds.world import World

_CEILING_SECONDS = 20.0
_MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
_COLORS = (BLUE, ORANGE, GREEN, RED, GREY, "#7b4fa3", "#b8860b", "#000000")
MEASURES = {
    "state_entropy": "entropy of the team's states (nats)",
    "own_entropy": "mean entropy of an agent's states (nats)",
    "diversity": "diversity I(agent; state) (nats)",
    "trajectory_entropy": "entropy of trajectories (nats)",
    "coverage": "states or cells visited by the team",
    "told_apart": "agent told from one state",
    "goals_reached": "goals reached by the best skill",
}
"""What is measured of a trained team, with its label."""
_SKILLS = ("coverage", "told_apart", "goals_reached", "diversity")


@dataclass(frozen=True)
class Measured:
    """What teams that were trained on each objective give, in one world."""

    world: str
    values: dict[str, dict[str, Float[np.ndarray, " seed"]]]
    """By objective and measure; NaN where a measure does not exist."""
    ceilings: dict[str, float]
    """Upper bounds on measures, for infinitely many samples."""

    def rows(self) -> list[tuple[object, ...]]:
        """A table with a row per objective, measure and seed."""
        return [
            (self.world, objective, measure, number, value)
            for objective, measures in self.values.items()
            for measure, values in measures.items()
            for number, value in enumerate(values.tolist())
        ]


def compare_objectives(config: Objectives, *, on_progress: Callable[[int, int, str], None] | None = None) -> list[Measured]:
    """Trains a team on each objective in each world, and measures all of them in the same way."""
    report, found = on_progress or (lambda *_: None), []
    total = len(config.worlds) * len(config.train)
    for place, name in enumerate(config.worlds):
        values, world = {}, as_world(name, horizon=config.horizon)
        for number, objective in enumerate(config.train):
            report(place * len(config.train) + number, total, f"{name}: {objective}")
            interrupts.check()
            teams = _teams(config, name, world, objective)
            each = [measure_team(world, team, config.episodes) for team in teams]
            values[objective] = {measure: np.array([one[measure] for one in each]) for measure in MEASURES}
        ceilings = {}
        if world.table is not None:
            ceilings["trajectory_entropy"] = ceiling(world, config.agents, objective="trajectory").bound
            ceilings["state_entropy"] = infinite_trials_optimum(world, tolerance=5e-3, time_limit=_CEILING_SECONDS).bound
        found.append(Measured(name, values, ceilings))
    return found


def _teams(config: Objectives, name: str, world: World, objective: str) -> list[Any]:
    """The team of each seed after its training on an objective, or before any training."""
    sizes = {each: getattr(config, each) for each in ("agents", "trajectories", "batch_size", "updates", "seeds")}
    # The same policy gradient for all of them, as DIAYN's discriminator has it.
    chosen: dict[str, Any] = {"algorithm": ALGORITHM, "objective": objective}
    if objective in ("diayn", "untrained"):
        chosen = {"algorithm": "diayn" if objective == "diayn" else ALGORITHM}
    settings = Explore(name, horizon=config.horizon, **sizes, **chosen)
    if objective == "untrained":
        algorithm = algorithm_for(settings.resolved(has_vectors=world.projection is not None), world)
        return [algorithm.init(jr.key(seed), world.view()).team for seed in config.seeds]
    run = explore_config(settings, world, given=(), live=False)
    if run.summary["is_interrupted"]:
        raise interrupts.Stopped
    return [run.team(seed).policies for seed in config.seeds]


def measure_team(world: World, team: Any, num_episodes: int) -> dict[str, float]:
    """The measures of one trained team, from so many episodes of each agent.

    Half of the episodes choose (the agent that each state suggests, the best skill for each goal), and the other half judges.
    """
    states = _play(jr.key(0), team, world, num_episodes)
    if world.projection is None:
        cells, num_cells, is_goal = states, world.num_states, np.ones(world.num_states, bool)
    else:
        cells, num_cells, is_goal = np.asarray(world.projection.cells(states)), world.projection.num_cells, world.is_free
    cells = np.asarray(cells)[:, :, 0]  # [episode, agent, time]
    individual, diversity = decompose(jnp.asarray(_shares(cells, num_cells)))
    half = num_episodes // 2
    first, second = _shares(cells[:half], num_cells), _shares(cells[half:], num_cells)
    guessed = first.argmax(axis=0)
    reached = [_reached(part, num_cells)[:, is_goal] for part in (cells[:half], cells[half:])]
    best = reached[0].argmax(axis=0)
    is_seen = [np.unique(each[each < num_cells]).size for each in cells.reshape(num_episodes, -1)]
    exact = np.nan
    if world.table is not None and hasattr(team, "logits"):
        exact = mixture_trajectory_entropy(world.table, np.asarray(team.probabilities)).value
    return {
        "state_entropy": float(individual + diversity),
        "own_entropy": float(individual),
        "diversity": float(diversity),
        "trajectory_entropy": exact,
        "coverage": float(np.mean(is_seen)),
        "told_apart": float(np.mean(second[guessed, np.arange(num_cells)].sum() / len(second))),
        "goals_reached": float(np.mean(np.take_along_axis(reached[1], best[None], axis=0))),
    }


def _play(key: Any, team: Any, world: Any, num_episodes: int) -> Any:
    return jax.jit(play, static_argnums=(3, 4))(key, team, world, num_episodes, 1).states


def _shares(cells: Int[np.ndarray, "episode agent times"], num_cells: int) -> Float[np.ndarray, "agent cell"]:
    """Each agent's distribution over cells."""
    counts = np.stack([np.bincount(own.ravel(), minlength=num_cells + 1)[:num_cells] for own in cells.swapaxes(0, 1)])
    return np.asarray(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1), np.float32)


def _reached(cells: Int[np.ndarray, "episode agent times"], num_cells: int) -> Float[np.ndarray, "agent cell"]:
    """The share of an agent's episodes that visit each cell."""
    visited = np.zeros((*cells.shape[:2], num_cells + 1), bool)
    np.put_along_axis(visited, cells, True, axis=2)
    return visited[..., :num_cells].mean(axis=0)


@mpl.rc_context(STYLE)
def tradeoff(found: list[Measured]) -> Figure:
    """The entropies of states and of trajectories of teams that were trained on each objective, world by world."""
    shown = [each for each in found if each.ceilings]
    figure = Figure(figsize=(3.4 * len(shown), 3.6), layout="constrained")
    for axis, measured in zip(figure.subplots(1, len(shown), squeeze=False).flat, shown, strict=True):
        for (objective, values), color, mark in zip(measured.values.items(), _COLORS, _MARKS, strict=False):
            axis.plot(
                values["state_entropy"],
                values["trajectory_entropy"],
                mark,
                color=color,
                ms=5,
                alpha=0.8,
                label=plain(objective),
            )
        axis.axvline(measured.ceilings["state_entropy"], color=GREY, ls=":", lw=1)
        axis.axhline(measured.ceilings["trajectory_entropy"], color=GREY, ls=":", lw=1, label="largest possible")
        axis.set(title=measured.world, xlabel=MEASURES["state_entropy"])
        axis.grid(alpha=0.25)
    figure.axes[0].set_ylabel(MEASURES["trajectory_entropy"])
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False, fontsize=8)
    return figure


@mpl.rc_context(STYLE)
def skills(found: list[Measured]) -> Figure:
    """What each objective gives: coverage, telling agents apart, reaching goals, diversity."""
    figure = Figure(figsize=(3.2 * len(_SKILLS), 0.6 + (0.8 + 0.28 * len(found[0].values)) * len(found)), layout="constrained")
    rows = figure.subplots(len(found), len(_SKILLS), squeeze=False, sharey="row")
    for axes, measured in zip(rows, found, strict=True):
        names = list(measured.values)
        for axis, measure in zip(axes, _SKILLS, strict=True):
            values = np.stack([measured.values[name][measure] for name in names], axis=1)
            axis.barh(range(len(names)), values.mean(axis=0), color=[*_COLORS][: len(names)], height=0.7, alpha=0.7)
            axis.plot(values.T, np.arange(len(names))[:, None] * np.ones(len(values)), "k.", ms=4)  # each seed
            axis.set_xlabel(MEASURES[measure], fontsize=8)
            axis.grid(alpha=0.25, axis="x")
        axes[0].set_yticks(range(len(names)), [plain(name) for name in names])
        axes[0].invert_yaxis()
        axes[0].set_title(measured.world, loc="left", fontweight="bold", fontsize=9)
    return figure
