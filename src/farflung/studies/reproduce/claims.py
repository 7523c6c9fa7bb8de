"""The paper's claims, and the measured difference that decides each of them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from farflung.bounds.ceilings import Ceiling
from farflung.config import PAPER_WORLDS
from farflung.runs.statistics import Difference, bootstrap, mean_difference, spread_difference

KINDS = ("team", "single", "random")
EPSILON, DELTA = 0.1, 0.05
"""In the claims about sample sizes: the allowed error of the entropy in nats, and the probability of a larger error."""


_Values = Mapping["Cell", Float[np.ndarray, " seed *axes"]]


class Cell(NamedTuple):
    """One setting of the paper's experiments."""

    world: str
    agents: int
    kind: str
    """team, single or random"""


@dataclass(frozen=True)
class Findings:
    """The measurements of all cells under one learning-rate schedule, per seed."""

    final: Mapping[Cell, Mapping[str, Float[np.ndarray, " seed"]]]
    """The metrics of teams and single agents at the end of training."""
    occupancy: Mapping[Cell, Float[np.ndarray, "seed agent state"]]
    """The exact state distribution of each agent."""
    dataset_entropy: Mapping[Cell, Float[np.ndarray, "seed dataset"]]
    """The normalised entropy of datasets of m trajectories."""
    success: Mapping[Cell, Float[np.ndarray, "seed goal"]]
    """The success rate of offline Q-learning for each goal, averaged over these datasets."""
    ceilings: Mapping[tuple[str, int], Ceiling]
    """By world and number of agents."""
    samples_needed: Mapping[Cell, Float[np.ndarray, " seed"]]
    """The number of samples that the entropy of a team or a single agent takes."""
    samples_needed_alone: Mapping[Cell, Float[np.ndarray, " seed"]]
    """The number of samples that the entropy of one agent of a team takes, averaged over the agents."""
    untrained_success: Mapping[str, float]
    """The success rate without data, by world."""

    def percent_of_ceiling(self, cell: Cell) -> Float[np.ndarray, " seed"]:
        """The entropy of a team or a single agent as a percentage of the ceiling."""
        return np.asarray(self.ceilings[cell.world, cell.agents].percentage(self.final[cell]["entropy"]))

    @property
    def worlds(self) -> list[str]:
        return [world for world in PAPER_WORLDS if any(cell.world == world for cell in self.final)]

    @property
    def agents(self) -> list[int]:
        return sorted({cell.agents for cell in self.final})


class Claim(NamedTuple):
    """A statement of the paper in one setting, and the measured difference that decides it."""

    statement: str
    where: str
    """The section or figure of the paper."""
    world: str
    agents: str
    difference: Difference
    unit: str


def claims(findings: Findings) -> Iterator[Claim]:
    """Every claim in every setting, in the order of the paper."""

    def each_setting(
        statement: str,
        where: str,
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
                found = difference(values[first], (of_lower or values)[second])
                yield Claim(statement, where, world, str(agents), found, unit)

    def final(metric: str, sign: int = 1) -> _Values:
        return {cell: sign * values[metric] for cell, values in findings.final.items()}

    in_log, in_goals, data = "in units of log 43", "in the share of goals", findings.dataset_entropy
    reached = {cell: rates.mean(axis=1) for cell, rates in findings.success.items()}
    needed, alone = (
        {cell: np.log2(numbers) for cell, numbers in found.items()}
        for found in (findings.samples_needed, findings.samples_needed_alone)
    )
    statement = "parallel agents reach a higher entropy than a single one"
    yield from each_setting(statement, "Figure 1", in_log, final("normalized_entropy"))
    yield from each_setting("parallel agents visit more states than a single one", "Figure 1", "in states", final("support"))
    statement = "datasets of parallel agents have a higher entropy than a single agent's"
    yield from each_setting(statement, "Figure 2", in_log, data)
    statement = "datasets of a single agent have a higher entropy than a random policy's"
    yield from each_setting(statement, "Figure 2", in_log, data, "single", "random")
    statement = "datasets of parallel agents vary less between runs than a single agent's"
    unit = "in the standard deviation, in units of log 43"
    yield from each_setting(statement, "Section 6", unit, data, "single", "team", difference=spread_difference)
    statement = "offline RL reaches more goals with parallel agents' data than with a single agent's"
    yield from each_setting(statement, "Figure 3", in_goals, reached)
    statement = "offline RL reaches more goals with a single agent's data than with a random policy's"
    yield from each_setting(statement, "Figure 3", in_goals, reached, "single", "random")
    yield from _diminishing_returns(findings)
    yield from each_setting("parallel policies are more deterministic", "Appendix C.4", "in nats", final("policy_entropy", -1))
    statement = "parallel agents each have a lower entropy of their own"
    yield from each_setting(statement, "Section 4", "in nats", final("individual_entropy", -1))
    yield from each_setting("parallel agents are more diverse", "Section 4", "in nats", final("diversity"))
    within = f"in powers of two; until the entropy is within {EPSILON:g} nats in {100 * (1 - DELTA):g}% of the draws"
    statement = "fewer samples show the entropy of a specialised agent than that of a single one"
    yield from each_setting(statement, "Section 4, Theorem 4.1", within, needed, "single", "team", of_lower=alone)
    statement = "fewer samples in all show the entropy of a team than that of a single agent"
    yield from each_setting(statement, "Section 4", within, needed, "single", "team")


def _diminishing_returns(findings: Findings) -> Iterator[Claim]:
    """The claims that each further pair of agents gains less than the pair before."""

    def slowdown(few: np.ndarray, some: np.ndarray, many: np.ndarray, axis: tuple[int, ...]) -> Any:
        return 2 * np.mean(some, axis=axis) - np.mean(few, axis=axis) - np.mean(many, axis=axis)

    for few, some, many in zip(findings.agents, findings.agents[1:], findings.agents[2:], strict=False):
        if some - few != many - some:
            continue
        for world in findings.worlds:
            entropies = [findings.final[Cell(world, agents, "team")]["normalized_entropy"] for agents in (few, some, many)]
            statement, found = "further agents add less than those before", bootstrap(slowdown, *entropies)
            yield Claim(statement, "Appendix C.1", world, f"{few}, {some}, {many}", found, "in units of log 43")
