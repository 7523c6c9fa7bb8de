"""The number of samples that a team's entropy takes: Theorem 4.1 against simulation."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from farflung.bounds import theorems as theory
from farflung.bounds.trajectories import trajectory_distributions
from farflung.config import Concentration, Explore
from farflung.runs.interrupts import Stopped
from farflung.studies.trials import begin, finish
from farflung.worlds.named import make_tabular_world
from farflung.worlds.tabular import TabularMDP

_MOST_SAMPLES = 10_000_000
_MOST_TRAJECTORIES = 2000

Distributions = Float[np.ndarray, "team agent state"]


class Needed(NamedTuple):
    """The number of samples until the entropy is at most ε too low with probability 1 - δ, averaged over seeds."""

    measured: float
    sharper: float
    """By `theory.sharper_samples_needed`."""
    theorem: float
    """By Theorem 4.1."""


@dataclass(frozen=True)
class Concentrated:
    """The measurements for trained teams and trained single agents."""

    config: Concentration
    entropies: dict[str, float]
    """Averaged over seeds, by kind: the `team`, with equally many samples of each agent; one `agent` of the team; the `single`
    agent."""
    num_samples: Int[np.ndarray, " n"]
    probabilities: dict[str, Float[np.ndarray, "epsilon n"]]
    """The measured probability that the samples' entropy is more than ε too low, averaged over seeds."""
    theorem: dict[str, Float[np.ndarray, "epsilon n"]]
    """Theorem 4.1's bound on that probability, averaged over seeds."""
    needed: dict[str, list[Needed]]
    """For each ε."""
    example: Float[np.ndarray, " state"]
    """The mixture of the first seed's team."""
    num_violations: int
    """Measurements that contradict Theorem 4.1 beyond five standard errors."""


def concentration(config: Concentration, *, on_progress: Callable[[int, int, str], None] | None = None) -> Concentrated:
    """Trains a team and a single agent, and draws samples from their distributions over states, or over trajectories.

    Args:
        on_progress: called with the work done, all work, and a description.
    """
    report = on_progress or (lambda *_: None)

    world = make_tabular_world(config.world, horizon=config.horizon, slip=config.slip)
    settings = {name: getattr(config, name) for name in ("world", "agents", "horizon", "slip", "updates", "seeds")}
    trained = {}
    for is_single in (False, True):
        trials = begin([Explore(**settings, preset="paper", single=is_single)], [world])
        (run,) = finish(trials, lambda status: report(status.update, status.num_updates, "training"))
        if run.summary["is_interrupted"]:
            raise Stopped
        if config.objective == "trajectory":
            trained[is_single] = over_trajectories(world, np.asarray(run.policies.probabilities))
            continue
        occupancies = jax.jit(jax.vmap(jax.vmap(world.occupancy)))(run.policies.probabilities)
        trained[is_single] = as_distributions(np.asarray(occupancies))
    return measure_concentration(config, trained[False], trained[True], report)


def over_trajectories(
    world: TabularMDP, teams: Float[np.ndarray, "seed agent ..."]
) -> Float[np.ndarray, "seed agent trajectory"]:
    """Each agent's exact distribution over trajectories; those that a team cannot play have the probability 0."""
    found = [trajectory_distributions(world, team, most=_MOST_TRAJECTORIES) for team in teams]
    each = [one for one in found if one is not None]
    if len(each) < len(found):
        raise ValueError(f"there are more than {_MOST_TRAJECTORIES:,} trajectories: choose a shorter horizon")
    width = max(one.shape[1] for one in each)
    return as_distributions(np.stack([np.pad(one, ((0, 0), (0, width - one.shape[1]))) for one in each]))


def measure_concentration(
    config: Concentration,
    teams: Float[np.ndarray, "seed agent state"],
    singles: Float[np.ndarray, "seed 1 state"],
    report: Callable[[int, int, str], None] = lambda *_: None,
) -> Concentrated:
    """Draws samples from known state distributions of teams and single agents."""
    generator = np.random.default_rng(0)
    by_kind: dict[str, Distributions] = {"team": teams, "agent": teams.reshape(-1, 1, teams.shape[-1]), "single": singles}
    per_agent = np.rint(np.geomspace(1, config.most_samples // config.agents, 12)).astype(int)
    grid = np.unique(per_agent) * config.agents
    epsilons = np.array(config.epsilons)
    probabilities, theorem, needed, num_violations = {}, {}, {}, 0
    for kind, distributions in by_kind.items():
        mixtures = distributions.mean(axis=1)
        found = np.zeros((len(distributions), len(epsilons), len(grid)))
        bound = np.zeros_like(found)
        for column, number in enumerate(grid.tolist()):
            report(column, len(grid), f"sampling: {kind}")
            drawn = deviations(generator, distributions, number, config.draws)
            found[..., column] = np.mean(drawn[:, None] > epsilons[:, None], axis=-1)
            bound[..., column] = [
                [theory.deviation_probability(own, number, each) for each in config.epsilons] for own in mixtures
            ]
        errors = np.sqrt(np.maximum(found * (1 - found), 1 / config.draws) / config.draws)
        if kind != "team":  # the theorem is about independent samples; those of a team are stratified by agent
            num_violations += int(np.sum(found > bound + 5 * errors))
        probabilities[kind], theorem[kind] = found.mean(axis=0), bound.mean(axis=0)
        report(1, 1, f"sampling: {kind}")
        needed[kind] = [_needed(generator, distributions, each, config) for each in config.epsilons]
    entropies = {kind: float(np.mean(stats.entropy(each.mean(axis=1), axis=-1))) for kind, each in by_kind.items()}
    return Concentrated(config, entropies, grid, probabilities, theorem, needed, teams[0].mean(axis=0), num_violations)


def deviations(
    generator: np.random.Generator, distributions: Distributions, num_samples: int, num_draws: int
) -> Float[np.ndarray, "team draw"]:
    r"""$\mathcal{H}(d) - \mathcal{H}(d_n)$ for many draws of n samples, with equally many from each agent of a team."""
    num_teams, num_agents, _ = distributions.shape
    each = max(1, num_samples // num_agents)
    counts = generator.multinomial(each, distributions, size=(num_draws, num_teams, num_agents)).sum(axis=2)
    shares = np.arange(each * num_agents + 1) / (each * num_agents)
    terms = -shares * np.log(np.maximum(shares, shares[1]))
    return np.asarray(stats.entropy(distributions.mean(axis=1), axis=-1)[:, None] - terms[counts].sum(axis=-1).T)


def exact_deviation_probability(shares: Float[np.ndarray, " state"], num_samples: int, epsilon: float) -> float:
    r"""$\mathbb{P}(\mathcal{H}(d) - \mathcal{H}(d_n) > \epsilon)$ by enumeration, for few states, all but the first rare.

    Counts that are too large to occur are left out; their probability is added, so that the result is never too low.
    """
    means = num_samples * shares[1:]
    ranges = [np.arange(min(num_samples, math.ceil(mean + 9 * math.sqrt(mean) + 9)) + 1) for mean in means]
    rest = np.stack(np.meshgrid(*ranges, indexing="ij"), axis=-1).reshape(-1, len(means))
    rest = rest[rest.sum(axis=1) <= num_samples]
    counts = np.column_stack([num_samples - rest.sum(axis=1), rest])
    probabilities = stats.multinomial.pmf(counts, num_samples, shares)
    is_low = stats.entropy(shares) - stats.entropy(counts, axis=1) > epsilon
    return float(probabilities[is_low].sum() + max(0.0, 1 - probabilities.sum()))


def measured_samples(
    generator: np.random.Generator, distributions: Distributions, epsilon: float, delta: float, num_draws: int
) -> Float[np.ndarray, " team"]:
    """The measured number of samples that each team needs.

    A tenth of the draws doubles the number until it suffices for all teams. The error is about a power of that number, and
    interpolation gives a first estimate, at which all draws then measure the error.
    """
    entropies = stats.entropy(distributions.mean(axis=1), axis=-1)
    num_agents = distributions.shape[1]
    # The bias alone, (S - 1) / 2n, needs twice this number.
    number = num_agents * max(1, int(math.exp(entropies.min()) / (4 * epsilon)) // num_agents)
    numbers, errors = [1.0], [np.maximum(entropies, epsilon)]
    while (errors[-1] > epsilon).any() or len(numbers) < 2:
        if number > _MOST_SAMPLES:
            raise ValueError(f"an epsilon of {epsilon:g} takes more than {_MOST_SAMPLES:,} samples: choose a larger epsilon")
        drawn = np.quantile(deviations(generator, distributions, number, max(100, num_draws // 10)), 1 - delta, axis=-1)
        numbers.append(float(number))
        errors.append(np.clip(drawn, 1e-3 * epsilon, errors[-1]))
        number *= 2
    log_numbers, log_errors = np.log(np.array(numbers))[::-1], np.log(np.array(errors))[::-1]
    found = np.empty(len(distributions))
    for row, team in enumerate(distributions):
        near = np.interp(math.log(epsilon) + np.array([-0.2, 0, 0.2]), log_errors[:, row], log_numbers)
        first = num_agents * max(1, round(math.exp(near[1]) / num_agents))
        error = np.quantile(deviations(generator, team[None], first, num_draws), 1 - delta)
        slope = (near[0] - near[2]) / 0.4
        found[row] = first * (max(float(error), 1e-3 * epsilon) / epsilon) ** slope
    return found


def _needed(generator: np.random.Generator, distributions: Distributions, epsilon: float, config: Concentration) -> Needed:
    measured = measured_samples(generator, distributions, epsilon, config.delta, config.draws)
    sharper = theory.sharper_samples_needed(distributions.shape[-1], epsilon, config.delta)
    theorem = [theory.samples_needed(mixture, epsilon, config.delta) for mixture in distributions.mean(axis=1)]
    return Needed(float(np.mean(measured)), float(sharper), float(np.mean(theorem)))


def as_distributions(occupancy: Float[np.ndarray, "seed agent state"]) -> Float[np.ndarray, "seed agent state"]:
    """Single-precision occupancies as distributions that sum to one in double precision."""
    shares = occupancy.astype(np.float64)
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True))
