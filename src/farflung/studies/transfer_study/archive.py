"""MAP-Elites over the places in which episodes end, and the same measures of diversity for any team."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from farflung.policies.rollout import play
from farflung.studies.transfer import agent_of
from farflung.studies.transfer_study.goals import StudyWorld

_EVALUATIONS = 2
_ISO_SIGMA, _LINE_SIGMA = 1.0, 0.2
"""The steps of 0.1, 0.5 and 1 were tried in maze-stoc and point-four-rooms; elites then reach goals most often with 1."""


class Elites(NamedTuple):
    """What MAP-Elites has found."""

    team: Any
    near: list[np.ndarray]
    """For each goal the elites that end nearest to it."""
    coverage: float
    quality: float


def map_elites(studied: StudyWorld, firsts: Sequence[Any], num_steps: int, num_near: int, seeds: Sequence[int]) -> list[Elites]:
    """The elites of each seed after so many environment steps; the generations of all seeds are played side by side.

    Mouret and Clune, "Illuminating search spaces by mapping elites", 2015, with the operator of Vassiliades and Mouret (2018).

    Args:
        firsts: for each seed the policies of the first generation; all generations are as large.
    """
    from ribs.archives import GridArchive
    from ribs.emitters import IsoLineEmitter

    size = firsts[0].num_agents
    unravel = ravel_pytree(agent_of(firsts[0], 0))[1]
    low, high = _range(studied.world)
    ranges = list(zip(low.tolist(), high.tolist(), strict=True))
    archives, emitters = [], []
    for first, seed in zip(firsts, seeds, strict=True):
        vectors = np.stack([np.asarray(ravel_pytree(agent_of(first, agent))[0]) for agent in range(size)])
        dims = _bins(studied.world).tolist()
        archives.append(GridArchive(solution_dim=vectors.shape[1], dims=dims, ranges=ranges, seed=seed))
        emitter = IsoLineEmitter(
            archives[-1],
            iso_sigma=_ISO_SIGMA,
            line_sigma=_LINE_SIGMA,
            initial_solutions=vectors,
            batch_size=size,
            seed=seed,
        )
        emitters.append(emitter)
    teams = jax.jit(lambda solutions: jax.tree.map(lambda leaf: leaf[:, 0], jax.vmap(unravel)(solutions)))
    for generation in range(max(1, num_steps // (size * _EVALUATIONS * studied.world.horizon))):
        solutions = [emitter.ask() for emitter in emitters]
        players = teams(jnp.asarray(np.concatenate(solutions), jnp.float32))
        places, reliability = ends(jr.fold_in(jr.key(seeds[0]), generation), players, studied.world)
        for row, archive in enumerate(archives):
            own = slice(row * size, (row + 1) * size)
            archive.add(solutions[row], reliability[own], places[own])
    return [_elites(studied, archive.data(), teams, num_near) for archive in archives]


def _elites(studied: StudyWorld, kept: Any, teams: Callable[[Array], Any], num_near: int) -> Elites:
    apart = np.linalg.norm(kept["measures"][None] - studied.places[:, None], axis=-1)
    coverage = len(kept["objective"]) / studied.num_cells
    near = list(np.argsort(apart, axis=1)[:, :num_near])
    return Elites(teams(jnp.asarray(kept["solution"], jnp.float32)), near, coverage, float(np.sum(kept["objective"])))


def coverage_and_quality(studied: StudyWorld, team: Any, seed: int) -> tuple[float, float]:
    """The share of cells in which an agent of the team ends, and the QD score, as an archive has them."""
    places, reliability = ends(jr.key(seed), team, studied.world)
    low, high = _range(studied.world)
    cells = ((places - low) / (high - low) * _bins(studied.world)).astype(int)
    best: dict[tuple[int, ...], float] = {}
    for cell, value in zip(map(tuple, cells.tolist()), reliability.tolist(), strict=True):
        best[cell] = max(best.get(cell, 0.0), value)
    return len(best) / studied.num_cells, sum(best.values())


def ends(key: Any, team: Any, world: Any) -> tuple[Float[np.ndarray, "agent 2"], Float[np.ndarray, " agent"]]:
    """The place in which each agent ends an episode, and how near others of its episodes end to it, from 0 to 1."""
    low, high = _range(world)
    place, reliability = _ends(key, team, world, jnp.asarray((high - low) / _bins(world), jnp.float32))
    return np.asarray(place), np.asarray(reliability)


@jax.jit
def _ends(key: Any, team: Any, world: Any, cell: Float[Array, "2"]) -> tuple[Float[Array, "agent 2"], Float[Array, " agent"]]:
    states = play(key, team, world, _EVALUATIONS, 1).states[:, :, 0]
    if world.projection is None:
        places = jnp.asarray(world.positions)[states[:, :, -1]].astype(jnp.float32)
    else:
        features = world.projection.project(states)[..., :2]
        last = jnp.sum(jnp.isfinite(features[..., 0]), axis=-1) - 1  # states after an early end are NaN
        places = jnp.squeeze(jnp.take_along_axis(features, last[..., None, None], axis=2), 2)
    apart = jnp.linalg.norm((places[1:] - places[:1]) / cell.reshape(1, 1, 2), axis=-1)
    return places[0], 1 / (1 + jnp.mean(apart, axis=0))


def _range(world: Any) -> tuple[np.ndarray, np.ndarray]:
    if world.projection is not None:
        return np.array(world.projection.low[:2]), np.array(world.projection.high[:2])
    places = np.asarray(world.positions)
    return places.min(axis=0) - 0.5, places.max(axis=0) + 0.5


def _bins(world: Any) -> np.ndarray:
    low, high = _range(world)
    return np.asarray(world.projection.bins[:2]) if world.projection is not None else (high - low).astype(int)
