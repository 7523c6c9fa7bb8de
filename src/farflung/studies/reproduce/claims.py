"""The paper's claims, and the measured difference that decides each of them."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from farflung.bounds.ceilings import Ceiling
from farflung.bounds.theorems import Decomposition, mixture_decomposition
from farflung.config import PAPER_WORLDS
from farflung.runs.run import final_values
from farflung.runs.statistics import Difference, Verdict, contrast, corrected, exact, mean_difference, spread_difference
from farflung.studies.concentration.experiment import as_distributions
from farflung.studies.reproduce.theorems import TheoremChecks
from farflung.training.metrics import Metrics

EPSILON, DELTA = 0.1, 0.05
"""In the claims about sample sizes: the allowed error of the entropy in nats, and the probability of a larger error."""
_ROUNDING = 1e-6


class Training(NamedTuple):
    """How policies were trained: the paper's code and its text differ in both."""

    schedule: str
    """of the learning rate: code or text"""
    estimator: str
    """what the single agent's gradient does with its trajectories: sum or mean"""

    def __str__(self) -> str:
        return "-".join(self)


class Cell(NamedTuple):
    """One setting of the paper's experiments."""

    world: str
    agents: int
    kind: str
    """team, single, random, untrained or independent"""


_Values = Mapping[Cell, Float[np.ndarray, " seed *axes"]]


@dataclass(frozen=True)
class Findings:
    """The measurements of all cells under one training, per seed."""

    updates: Int[np.ndarray, " record"]
    metrics: Mapping[Cell, Metrics]
    """The metrics of teams and single agents at these updates."""
    occupancy: Mapping[Cell, Float[np.ndarray, "seed agent state"]]
    """The exact state distribution of each agent, also of untrained and of independently trained teams."""
    dataset_entropy: Mapping[Cell, Float[np.ndarray, "seed dataset"]]
    """The normalised entropy of datasets of m trajectories."""
    growth: Mapping[Cell, Float[np.ndarray, "seed trajectory"]]
    """The normalised entropy of a dataset with each trajectory that is added, averaged over datasets; the agents take turns."""
    success: Mapping[Cell, Float[np.ndarray, "seed goal"]]
    """The success rate of offline Q-learning for each goal, averaged over these datasets."""
    ceilings: Mapping[tuple[str, int], Ceiling]
    """By world and number of agents."""
    samples_needed: Mapping[Cell, Float[np.ndarray, " seed"]]
    """The number of samples that the entropy of a team or a single agent takes."""
    samples_needed_alone: Mapping[Cell, Float[np.ndarray, " seed"]]
    """The number of samples that the entropy of one agent of a team takes, averaged over the agents."""
    samples_needed_uniform: float
    """The number of samples that the entropy of the uniform distribution takes."""
    untrained_success: Mapping[str, float]
    """The success rate without data, by world."""

    @cached_property
    def final(self) -> Mapping[Cell, Mapping[str, Float[np.ndarray, " seed"]]]:
        """The metrics of teams and single agents at the end of training."""
        return {cell: final_values(self.updates, metrics) for cell, metrics in self.metrics.items()}

    @cached_property
    def decompositions(self) -> Mapping[Cell, Sequence[Decomposition]]:
        """The entropy of each seed's mixture and its two parts, from exact distributions: sampling would bias all three."""
        return {
            cell: [mixture_decomposition(team) for team in as_distributions(visits)]
            for cell, visits in self.occupancy.items()
            if cell.kind != "random"
        }

    def percent_of_ceiling(self, cell: Cell) -> Float[np.ndarray, " seed"]:
        """The entropy of a team or a single agent as a percentage of the ceiling."""
        return np.asarray(self.ceilings[cell.world, cell.agents].percentage(self.final[cell]["entropy"]))

    @property
    def worlds(self) -> list[str]:
        return [world for world in PAPER_WORLDS if any(cell.world == world for cell in self.metrics)]

    @property
    def agents(self) -> list[int]:
        return sorted({cell.agents for cell in self.metrics})


class Claim(NamedTuple):
    """A statement of the paper in one setting, and the measured difference that decides it."""

    statement: str
    where: str
    """The section or figure of the paper."""
    figure: str
    """The figure of the page that shows the measurements."""
    world: str
    agents: str
    difference: Difference
    unit: str
    p_holm: float = 1.0
    """The p-value after Holm's correction for all settings of the claim."""
    kind: str = "team"
    """Whose run shows it."""

    @property
    def verdict(self) -> Verdict:
        return self.verdicts[0]

    @property
    def verdicts(self) -> tuple[Verdict, Verdict]:
        """With Holm's correction and without."""
        return self.difference.verdict_at(self.p_holm), self.difference.verdict


def claims(findings: Findings, theorems: TheoremChecks) -> list[Claim]:
    """Every claim in every setting, in the order of the page, with p-values corrected within each claim."""
    return corrected((*_measured(findings), *_proved(theorems)))


def _measured(findings: Findings) -> Iterator[Claim]:
    def each_setting(
        statement: str,
        where: str,
        figure: str,
        unit: str,
        values: _Values,
        higher: str = "team",
        lower: str = "single",
        *,
        of_lower: _Values | None = None,
        difference: Callable[..., Difference] = mean_difference,
    ) -> Iterator[Claim]:
        for world in findings.worlds:
            for agents in findings.agents:
                first, second = Cell(world, agents, higher), Cell(world, agents, lower)
                if second not in (of_lower or values):  # independent agents are trained under one learning rate only
                    continue
                found = difference(values[first], (of_lower or values)[second])
                yield Claim(statement, where, figure, world, str(agents), found, unit)

    def final(metric: str, sign: int = 1) -> _Values:
        return {cell: sign * values[metric] for cell, values in findings.final.items()}

    def part(name: str, sign: int = 1) -> _Values:
        return {cell: np.array([sign * getattr(own, name) for own in each]) for cell, each in findings.decompositions.items()}

    in_log, in_goals, data = "in units of log 43", "in the share of goals", findings.dataset_entropy
    reached = {cell: rates.mean(axis=1) for cell, rates in findings.success.items()}
    needed, alone = (
        {cell: np.log2(numbers) for cell, numbers in found.items() if cell.kind != "random"}
        for found in (findings.samples_needed, findings.samples_needed_alone)
    )

    curves = "learning-curves"
    statement = "parallel agents end with a higher entropy than a single agent"
    yield from each_setting(statement, "Figure 1", curves, in_log, final("normalized_entropy"))
    statement = "parallel agents end with a larger support than a single agent"
    yield from each_setting(statement, "Figure 1", curves, "in states", final("support"))
    statement = "parallel agents have the higher entropy on average over all updates (the area under the curve)"
    yield from each_setting(statement, "Section 6, “consistently outperforms”", curves, in_log, mean_entropies(findings))
    statement = "parallel agents have the higher entropy on average over the first tenth of the updates"
    yield from each_setting(statement, "Section 6, “consistently outperforms”", curves, in_log, mean_entropies(findings, 0.1))
    yield from _diminishing_returns(findings)

    figure, rounds = "parallel-sampling", {}
    for world in findings.worlds:
        for agents in findings.agents:
            rounds[Cell(world, agents, "team")] = np.log2(rounds_saved(findings, world, agents))
    statement = "specialised agents need fewer samples, and rounds, for an entropy than as many copies of one policy"
    for cell, values in rounds.items():
        unit = "in powers of two; above 0 means more than m-fold parallel sampling gives"
        yield Claim(statement, "Abstract", figure, cell.world, str(cell.agents), contrast((1,), values), unit)

    figure = "dataset-entropy"
    for higher, lower, names in (
        ("team", "single", "parallel agents have a higher entropy than a single agent's"),
        ("team", "random", "parallel agents have a higher entropy than a random policy's"),
        ("single", "random", "a single agent have a higher entropy than a random policy's"),
    ):
        yield from each_setting(f"datasets of {names}", "Figure 2", figure, in_log, data, higher, lower)
    statement, where = "datasets of one team vary less than datasets of one single agent", "Section 6, “minimal variance”"
    within = {
        cell: np.log2(np.maximum(sets.std(axis=1, ddof=min(1, sets.shape[1] - 1)), _ROUNDING)) for cell, sets in data.items()
    }
    yield from each_setting(statement, where, figure, "in powers of two of the standard deviation", within, "single", "team")
    statement = "the mean entropy of the datasets varies less between teams than between single agents"
    unit, means = (
        "in powers of two of the standard deviation over seeds",
        {cell: sets.mean(axis=1) for cell, sets in data.items()},
    )
    yield from each_setting(statement, where, figure, unit, means, "single", "team", difference=spread_difference)

    figure = "offline-success"
    for higher, lower, names in (
        ("team", "single", "parallel agents' data than with a single agent's"),
        ("team", "random", "parallel agents' data than with a random policy's"),
        ("single", "random", "a single agent's data than with a random policy's"),
    ):
        yield from each_setting(
            f"offline RL reaches more goals with {names}", "Figure 3", figure, in_goals, reached, higher, lower
        )

    figure, where = "decomposition", "Section 4"
    statement = "parallel agents each have a lower entropy of their own than a single agent"
    yield from each_setting(statement, where, figure, "in nats", part("individual", -1))
    statement = "parallel agents are more diverse than independently trained agents"
    yield from each_setting(statement, where, figure, "in nats", part("diversity"), "team", "independent")
    statement = "parallel agents are more diverse than untrained agents"
    yield from each_setting(statement, where, figure, "in nats", part("diversity"), "team", "untrained")
    statement = "the entropy of the team is the agents' mean entropy plus their diversity"
    for (world, agents, kind), found in findings.decompositions.items():
        if kind == "team":
            error = max(abs(each.mixture - each.individual - each.diversity) for each in found)
            unit = f"in nats: {_ROUNDING:g} minus the largest error"
            yield Claim(statement, where, figure, world, str(agents), exact(_ROUNDING - error), unit)
    statement = "parallel policies are more deterministic than a single agent's"
    yield from each_setting(statement, "Appendix C.4", "policies", "in nats", final("policy_entropy", -1))

    figure = "samples"
    within_epsilon = f"in powers of two; until the entropy is within {EPSILON:g} nats in {100 * (1 - DELTA):g}% of the draws"
    statement = "fewer samples show the entropy of a specialised agent than that of a single agent"
    yield from each_setting(statement, where, figure, within_epsilon, needed, "single", "team", of_lower=alone)
    statement = "fewer samples in all show the entropy of a team than that of a single agent"
    yield from each_setting(statement, where, figure, within_epsilon, needed, "single", "team")
    statement = "a distribution of lower entropy needs fewer samples: single agents against the uniform distribution"
    for world in findings.worlds:
        for agents in findings.agents:
            saved = math.log2(findings.samples_needed_uniform) - needed[Cell(world, agents, "single")]
            yield Claim(statement, where, figure, world, str(agents), contrast((1,), saved), within_epsilon, kind="single")


def _diminishing_returns(findings: Findings) -> Iterator[Claim]:
    """The claims that each further pair of agents gains less than the pair before."""
    for few, some, many in zip(findings.agents, findings.agents[1:], findings.agents[2:], strict=False):
        if some - few != many - some:
            continue
        for world in findings.worlds:
            entropies = [findings.final[Cell(world, agents, "team")]["normalized_entropy"] for agents in (few, some, many)]
            statement, found = "further agents add less than those before", contrast((-1, 2, -1), *entropies)
            where, sizes = "Appendix C.1", f"{few}, {some}, {many}"
            yield Claim(statement, where, "learning-curves", world, sizes, found, "in units of log 43")


def _proved(theorems: TheoremChecks) -> Iterator[Claim]:
    """The claims of the theorems. They are computed, not sampled: no interval and no seed."""
    statement = "Theorem 4.1: the entropy of n samples is rarely far too low (exact probability against the theorem's bound)"
    for check in theorems.deviations:
        margin = math.log10(check.bound / check.probability)
        unit = "in powers of ten: the bound over the probability, where the bound is below 1 and the event is possible"
        yield Claim(statement, "Theorem 4.1", "concentration", f"2 states, {check.rare:g}", "", exact(margin), unit)
    rate = theorems.convergence
    figure, where = "convergence", "Convergence Rate, Appendix A"
    statement = "Parallel Frank-Wolfe is within ε of the optimum after the theorem's number of iterations"
    yield Claim(statement, where, figure, rate.world, f"N = {rate.agents}", exact(rate.epsilon - rate.theorem_gap), "in nats")
    share = math.log2(rate.agents) / 2
    unit = f"in powers of two: the reduction of the gap, minus half of the theorem's factor {rate.agents}"
    statement = "N agents settle N times closer to the optimum than one agent, in as many parallel rounds (Algorithm 2)"
    gain = math.log2(rate.floors["one agent"] / rate.floors["together"])
    yield Claim(statement, where, figure, rate.world, f"N = {rate.agents}", exact(gain - share), unit)
    statement = "N agents that plan in turn settle closer than one agent with as many plans and an N-th of the step"
    gain = math.log2(rate.floors["one agent, small steps"] / rate.floors["in turn"])
    yield Claim(statement, where, figure, rate.world, f"N = {rate.agents}", exact(gain - share), unit)


def mean_entropies(findings: Findings, share: float = 1.0) -> dict[Cell, Float[np.ndarray, " seed"]]:
    """The normalised entropy, averaged over the first share of the updates."""
    is_early = findings.updates <= max(share * findings.updates[-1], findings.updates[0])
    updates = findings.updates[is_early]
    means = {}
    for cell, metrics in findings.metrics.items():
        values = np.asarray(metrics.normalized_entropy, np.float64)[:, is_early]
        length = updates[-1] - updates[0]
        means[cell] = np.trapezoid(values, updates, axis=1) / length if length else values[:, 0]
    return means


class Lead(NamedTuple):
    """Since when a team is ahead of the single agent, by mean entropies over the seeds."""

    ahead_from: int | None
    """The update from which on the team is always ahead; None if it is behind at the end."""
    largest_deficit: float
    """By how much the single agent was ahead at most, in units of log(states)."""


def lead(findings: Findings, world: str, agents: int) -> Lead:
    """When the team overtakes the single agent for good."""
    team, single = (
        np.asarray(findings.metrics[Cell(world, agents, kind)].normalized_entropy, np.float64).mean(axis=0)
        for kind in ("team", "single")
    )
    behind = np.flatnonzero(team < single)
    if len(behind) == 0:
        return Lead(int(findings.updates[0]), 0.0)
    last = behind[-1]
    deficit = float((single - team).max())
    return Lead(int(findings.updates[last + 1]) if last + 1 < len(team) else None, deficit)


def rounds_saved(findings: Findings, world: str, agents: int) -> Float[np.ndarray, " seed"]:
    """How many rounds one policy on m copies takes for the entropy that the team reaches in one round.

    Below 1 if the team needs more rounds than the copies do. Censored at the number of rounds that were played.
    """
    team, single = (findings.growth[Cell(world, agents, kind)][:, agents - 1 :: agents] for kind in ("team", "single"))
    return np.array(
        [
            _rounds_to(slow, target=fast[0]) if fast[0] >= slow[0] else 1 / _rounds_to(fast, target=slow[0])
            for fast, slow in zip(team, single, strict=True)
        ]
    )


def _rounds_to(entropies: Float[np.ndarray, " round"], target: float) -> float:
    rising = np.maximum.accumulate(entropies)
    return float(np.exp(np.interp(target, rising, np.log(np.arange(1, len(rising) + 1)))))
