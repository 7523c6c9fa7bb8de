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
        statement: str, where: str, unit: str, decide: Callable[[Cell, Cell, Cell], Difference]
    ) -> Iterator[Claim]:
        for world in findings.worlds:
            for agents in findings.agents:
                cells = (Cell(world, agents, kind) for kind in KINDS)
                yield Claim(statement, where, world, str(agents), decide(*cells), unit)

    def final(metric: str, sign: int) -> Callable[[Cell, Cell, Cell], Difference]:
        values = findings.final
        return lambda team, single, _: mean_difference(sign * values[team][metric], sign * values[single][metric])

    data, success = findings.dataset_entropy, findings.success
    yield from each_setting(
        "parallel agents reach a higher entropy than a single one",
        "Figure 1",
        "in units of log 43",
        final("normalized_entropy", 1),
    )
    yield from each_setting("parallel agents visit more states than a single one", "Figure 1", "in states", final("support", 1))
    yield from each_setting(
        "datasets of parallel agents have a higher entropy than a single agent's",
        "Figure 2",
        "in units of log 43",
        lambda team, single, _: mean_difference(data[team], data[single]),
    )
    yield from each_setting(
        "datasets of a single agent have a higher entropy than a random policy's",
        "Figure 2",
        "in units of log 43",
        lambda _, single, random: mean_difference(data[single], data[random]),
    )
    yield from each_setting(
        "datasets of parallel agents vary less between runs than a single agent's",
        "Section 6",
        "in the standard deviation, in units of log 43",
        lambda team, single, _: spread_difference(data[single], data[team]),
    )
    yield from each_setting(
        "offline RL reaches more goals with parallel agents' data than with a single agent's",
        "Figure 3",
        "in the share of goals",
        lambda team, single, _: mean_difference(success[team].mean(axis=1), success[single].mean(axis=1)),
    )
    yield from each_setting(
        "offline RL reaches more goals with a single agent's data than with a random policy's",
        "Figure 3",
        "in the share of goals",
        lambda _, single, random: mean_difference(success[single].mean(axis=1), success[random].mean(axis=1)),
    )
    yield from _diminishing_returns(findings)
    yield from each_setting("parallel policies are more deterministic", "Appendix C.4", "in nats", final("policy_entropy", -1))
    yield from each_setting(
        "parallel agents each have a lower entropy of their own", "Section 4", "in nats", final("individual_entropy", -1)
    )
    yield from each_setting("parallel agents are more diverse", "Section 4", "in nats", final("diversity", 1))
    needed, alone = findings.samples_needed, findings.samples_needed_alone
    within = f"in powers of two; until the entropy is within {EPSILON:g} nats in {100 * (1 - DELTA):g}% of the draws"
    yield from each_setting(
        "fewer samples show the entropy of a specialised agent than that of a single one",
        "Section 4, Theorem 4.1",
        within,
        lambda team, single, _: mean_difference(np.log2(needed[single]), np.log2(alone[team])),
    )
    yield from each_setting(
        "fewer samples in all show the entropy of a team than that of a single agent",
        "Section 4",
        within,
        lambda team, single, _: mean_difference(np.log2(needed[single]), np.log2(needed[team])),
    )


def _diminishing_returns(findings: Findings) -> Iterator[Claim]:
    """The claims that each further pair of agents gains less than the pair before."""

    def slowdown(few: np.ndarray, some: np.ndarray, many: np.ndarray, axis: tuple[int, ...]) -> Any:
        return 2 * np.mean(some, axis=axis) - np.mean(few, axis=axis) - np.mean(many, axis=axis)

    for few, some, many in zip(findings.agents, findings.agents[1:], findings.agents[2:], strict=False):
        if some - few != many - some:
            continue
        for world in findings.worlds:
            entropies = [findings.final[Cell(world, agents, "team")]["normalized_entropy"] for agents in (few, some, many)]
            yield Claim(
                "further agents add less than those before",
                "Appendix C.1",
                world,
                f"{few}, {some}, {many}",
                bootstrap(slowdown, *entropies),
                "in units of log 43",
            )
