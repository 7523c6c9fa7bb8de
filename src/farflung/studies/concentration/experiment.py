"""How many samples show a team's entropy: Theorem 4.1 beside what is measured."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from farflung.bounds import theorems as theory
from farflung.config import Concentration, Explore
from farflung.runs.interrupts import Stopped
from farflung.runs.run import Run
from farflung.studies.trials import Status, begin, finish
from farflung.worlds.named import make_tabular_world
from farflung.worlds.tabular import TabularMDP

_MOST_SAMPLES = 10_000_000

Distributions = Float[np.ndarray, "team agent state"]


class Needed(NamedTuple):
    """How many samples it takes until the entropy is within ε with probability 1 - δ, on average over seeds."""

    measured: float
    sharper: float
    """By `theory.sharper_samples_needed`."""
    theorem: float
    """By Theorem 4.1."""


@dataclass(frozen=True)
class Concentrated:
    """What was measured for one trained team and one trained single agent."""

    config: Concentration
    entropies: dict[str, float]
    """Of each kind, on average over seeds: the team, sampled evenly from its agents; an agent of it alone; the single agent."""
    num_samples: Int[np.ndarray, " n"]
    probabilities: dict[str, Float[np.ndarray, "epsilon n"]]
    """How often the samples' entropy is more than ε too low; of each kind, on average over seeds."""
    theorem: dict[str, Float[np.ndarray, "epsilon n"]]
    """Theorem 4.1's bound on that, likewise averaged."""
    needed: dict[str, list[Needed]]
    """For each ε."""
    example: Float[np.ndarray, " state"]
    """The mixture of the first seed's team."""
    num_violations: int
    """Measurements that contradict Theorem 4.1 beyond five standard errors."""


def concentration(config: Concentration, *, on_progress: Callable[[int, int, str], None] | None = None) -> Concentrated:
    """Trains a team and a single agent, and draws samples from their state distributions.

    Args:
        on_progress: told how much of how much is done, and what that is.
    """
    tell = on_progress or (lambda *_: None)

    def on_training(status: Status) -> None:
        tell(status.update, status.num_updates, "training")

    world = make_tabular_world(config.world, horizon=config.horizon, slip=config.slip)
    team = Explore(
        config.world,
        agents=config.agents,
        horizon=config.horizon,
        slip=config.slip,
        preset="paper",
        updates=config.updates,
        seeds=config.seeds,
    )
    trained = {}
    for is_single in (False, True):
        explore = replace(team, single=is_single)
        (run,) = finish(begin([explore], [world]), on_training)
        if run.summary["is_interrupted"]:
            raise Stopped
        trained[is_single] = as_distributions(_occupancies(run, world))
    return measure_concentration(config, trained[False], trained[True], tell)


def measure_concentration(
    config: Concentration,
    teams: Float[np.ndarray, "seed agent state"],
    singles: Float[np.ndarray, "seed 1 state"],
    tell: Callable[[int, int, str], None] = lambda *_: None,
) -> Concentrated:
    """The same for state distributions that are known."""
    generator = np.random.default_rng(0)
    by_kind: dict[str, Distributions] = {
        "team": teams,
        "agent": teams.reshape(-1, 1, teams.shape[-1]),
        "single": singles,
    }
    per_agent = np.rint(np.geomspace(1, config.most_samples // config.agents, 12)).astype(int)
    grid = np.unique(per_agent) * config.agents
    epsilons = np.array(config.epsilons)
    probabilities, theorem, needed, num_violations = {}, {}, {}, 0
    for kind, distributions in by_kind.items():
        mixtures = distributions.mean(axis=1)
        found = np.zeros((len(distributions), len(epsilons), len(grid)))
        bound = np.zeros_like(found)
        for column, number in enumerate(grid.tolist()):
            tell(column, len(grid), f"sampling: {kind}")
            drawn = deviations(generator, distributions, number, config.draws)
            found[..., column] = np.mean(drawn[:, None] > epsilons[:, None], axis=-1)
            bound[..., column] = [
                [theory.deviation_probability(own, number, each) for each in config.epsilons] for own in mixtures
            ]
        errors = np.sqrt(np.maximum(found * (1 - found), 1 / config.draws) / config.draws)
        if kind != "team":  # the theorem is about independent samples, and the team's come evenly from its agents
            num_violations += int(np.sum(found > bound + 5 * errors))
        probabilities[kind], theorem[kind] = found.mean(axis=0), bound.mean(axis=0)
        tell(1, 1, f"sampling: {kind}")
        needed[kind] = [_needed(generator, distributions, each, config) for each in config.epsilons]
    entropies = {kind: float(np.mean(stats.entropy(each.mean(axis=1), axis=-1))) for kind, each in by_kind.items()}
    return Concentrated(config, entropies, grid, probabilities, theorem, needed, teams[0].mean(axis=0), num_violations)


def deviations(
    generator: np.random.Generator, distributions: Distributions, num_samples: int, num_draws: int
) -> Float[np.ndarray, "team draw"]:
    r"""$\mathcal{H}(d) - \mathcal{H}(d_n)$ over many draws of n samples, as many from each agent of a team."""
    num_teams, num_agents, _ = distributions.shape
    each = max(1, num_samples // num_agents)
    counts = generator.multinomial(each, distributions, size=(num_draws, num_teams, num_agents)).sum(axis=2)
    shares = np.arange(each * num_agents + 1) / (each * num_agents)
    terms = -shares * np.log(np.maximum(shares, shares[1]))
    return np.asarray(stats.entropy(distributions.mean(axis=1), axis=-1)[:, None] - terms[counts].sum(axis=-1).T)


def measured_samples(
    generator: np.random.Generator, distributions: Distributions, epsilon: float, delta: float, num_draws: int
) -> Float[np.ndarray, " team"]:
    """How many samples each team takes in fact: the number is doubled until it is enough for all, and then interpolated."""
    entropies = stats.entropy(distributions.mean(axis=1), axis=-1)
    num_agents = distributions.shape[1]
    # By the bias alone, (S - 1) / 2n, twice as many would be needed.
    number = num_agents * max(1, int(math.exp(entropies.min()) / (4 * epsilon)) // num_agents)
    numbers, lacking = [1.0], [np.maximum(entropies, epsilon)]
    while (lacking[-1] > epsilon).any() or len(numbers) < 2:
        if number > _MOST_SAMPLES:
            raise ValueError(f"more than {_MOST_SAMPLES:,} samples are needed for an epsilon of {epsilon:g}: give a larger one")
        drawn = np.quantile(deviations(generator, distributions, number, num_draws), 1 - delta, axis=-1)
        numbers.append(float(number))
        lacking.append(np.clip(drawn, 1e-3 * epsilon, lacking[-1]))
        number *= 2
    # Both fall or rise together, so that a straight line between their logarithms is a good guess.
    falling = np.log(np.array(lacking))[::-1]
    grid = np.log(np.array(numbers))[::-1]
    return np.array([np.exp(np.interp(math.log(epsilon), column, grid)) for column in falling.T])


def _needed(generator: np.random.Generator, distributions: Distributions, epsilon: float, config: Concentration) -> Needed:
    measured = measured_samples(generator, distributions, epsilon, config.delta, config.draws)
    sharper = theory.sharper_samples_needed(distributions.shape[-1], epsilon, config.delta)
    theorem = [theory.samples_needed(mixture, epsilon, config.delta) for mixture in distributions.mean(axis=1)]
    return Needed(float(np.mean(measured)), float(sharper), float(np.mean(theorem)))


def as_distributions(occupancy: Float[np.ndarray, "seed agent state"]) -> Float[np.ndarray, "seed agent state"]:
    """Occupancies of single precision as distributions that add up to one in double precision."""
    shares = occupancy.astype(np.float64)
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True))


def _occupancies(run: Run, world: TabularMDP) -> Float[np.ndarray, "seed agent state"]:
    return np.asarray(jax.jit(jax.vmap(jax.vmap(world.occupancy)))(run.policies.probabilities))
