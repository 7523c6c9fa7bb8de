import dataclasses

import numpy as np
import pytest

from farflung.runs.statistics import holm
from farflung.studies.reproduce.claims import Cell, Findings, claims, lead, mean_entropies, rounds_saved
from farflung.studies.reproduce.theorems import ConvergenceCheck, Deviation, TheoremChecks
from farflung.training.metrics import Metrics

SEEDS = 8
UPDATES = np.arange(1, 101)
AS_SEEN = ConvergenceCheck(
    "room-det",
    8,
    0.05,
    {
        "one agent": np.full(9, 0.25),
        "together": np.full(9, 0.25),
        "in turn": np.full(9, 0.03),
        "one agent, small steps": np.full(9, 0.03),
    },
    0.5,
    0.01,
    100,
)
CHECKS = TheoremChecks([Deviation(0.1, 0.2, 100, 1e-6, 0.9)], AS_SEEN)


def findings(team=1.0, single=0.5, random=0.1, agents=(2, 4, 6), curve=None):
    """Findings with a level for each kind, which grows with the square root of the number of agents."""
    generator = np.random.default_rng(0)

    def values(level, number):
        return level * np.sqrt(number) + generator.normal(0, 1e-3, SEEDS)

    levels = {"team": team, "single": single, "random": random}
    cells = [Cell("room-det", number, kind) for number in agents for kind in levels]
    trained = [cell for cell in cells if cell.kind != "random"]

    def metrics(cell):
        shape = np.ones(len(UPDATES)) if curve is None or cell.kind == "single" else curve
        return Metrics(*(values(levels[cell.kind], cell.agents)[:, None] * shape for _ in range(7)))

    data = {c: np.stack([values(levels[c.kind], c.agents) for _ in range(3)], axis=1) for c in cells}
    growth = {c: np.log(np.arange(1, 10 * c.agents + 1)) + levels[c.kind] + values(0, 1)[:, None] for c in cells}
    success = {c: np.repeat(values(levels[c.kind], c.agents)[:, None], 3, axis=1) for c in cells}
    needed = {c: np.full(SEEDS, 300.0 / levels[c.kind]) + np.arange(SEEDS) for c in trained}
    alone = {c: numbers / c.agents for c, numbers in needed.items()}
    spread = {"team": 0.05, "independent": 1.0, "untrained": 5.0}  # of the Dirichlet distribution: small ones are diverse
    visits = {
        Cell("room-det", m, kind): generator.dirichlet(np.full(5, s), (SEEDS, m)) for m in agents for kind, s in spread.items()
    }
    visits |= {c: generator.dirichlet(np.full(5, 50.0), (SEEDS, 1)) for c in trained if c.kind == "single"}
    return Findings(
        UPDATES, {c: metrics(c) for c in trained}, visits, data, growth, success, {}, needed, alone, 400.0, {"room-det": 0.02}
    )


def verdicts(found, checks=CHECKS):
    return {(claim.statement, claim.agents): claim.verdict for claim in claims(found, checks)}


def of(part, found):
    return {verdict for (statement, _), verdict in found.items() if part in statement}


def test_every_claim_is_decided_in_every_setting():
    found = verdicts(findings())
    assert len(found) == 21 * 3 + 1 + 1 + 3
    assert len({statement for statement, _ in found}) == 26


@pytest.mark.parametrize(
    "part",
    [
        "end with a higher entropy",
        "larger support",
        "area under the curve",
        "first tenth",
        "fewer samples, and rounds",
        "higher entropy than a single agent's",
        "parallel agents' data than with a single",
        "samples in all",
    ],
)
def test_verdicts_follow_the_measurements(part):
    assert of(part, verdicts(findings(1.0, 0.5))) == {"holds"}
    assert of(part, verdicts(findings(0.5, 1.0))) == {"does not hold"}
    assert "undecided" in of(part, verdicts(findings(0.5, 0.5)))


def test_both_are_compared_with_the_random_policy():
    found = verdicts(findings(team=1.0, single=0.05, random=0.1))
    assert of("parallel agents have a higher entropy than a random", found) == {"holds"}
    assert of("a single agent have a higher entropy than a random", found) == {"does not hold"}


def test_policies_are_more_deterministic_if_their_entropy_is_lower():
    assert of("deterministic", verdicts(findings(team=0.2, single=0.9))) == {"holds"}


def test_diversity_is_compared_with_teams_that_were_not_trained_together():
    found = findings()
    assert of("more diverse", verdicts(found)) == {"holds"}
    swapped = {"team": "untrained", "untrained": "team"}
    visits = {cell._replace(kind=swapped.get(cell.kind, cell.kind)): each for cell, each in found.occupancy.items()}
    other = verdicts(dataclasses.replace(found, occupancy=visits))
    assert of("more diverse", other) == {"does not hold"}


def test_a_lower_entropy_needs_fewer_samples_only_if_it_does():
    assert of("lower entropy needs", verdicts(findings(single=0.5))) == {"does not hold"}  # 600 samples against 400
    assert of("lower entropy needs", verdicts(findings(single=1.0))) == {"holds"}  # 300 samples


def test_diminishing_returns_compare_equal_steps():
    found = {key: v for key, v in verdicts(findings()).items() if "further agents" in key[0]}
    assert found == {("further agents add less than those before", "2, 4, 6"): "holds"}
    assert not [key for key in verdicts(findings(agents=(2, 3, 6))) if "further agents" in key[0]]


def test_the_theorems_can_fail():
    found = verdicts(findings())
    assert of("Theorem 4.1:", found) == of("within ε of the optimum", found) == {"holds"}
    assert of("as many parallel rounds", found) == of("plan in turn", found) == {"does not hold"}
    gaps = AS_SEEN.gaps | {"together": np.full(9, 0.03), "one agent, small steps": np.full(9, 0.25)}
    other = TheoremChecks([Deviation(0.1, 0.2, 100, 0.95, 0.9)], AS_SEEN._replace(gaps=gaps, theorem_gap=0.6))
    found = verdicts(findings(), other)
    assert of("Theorem 4.1:", found) == of("within ε of the optimum", found) == {"does not hold"}
    assert of("as many parallel rounds", found) == of("plan in turn", found) == {"holds"}


def test_p_values_are_corrected_within_a_claim():
    found = [each for each in claims(findings(0.5, 0.5), CHECKS) if "larger support" in each.statement]
    assert [each.p_holm for each in found] == holm([each.difference.p_value for each in found])
    assert sum(each.p_holm for each in found) > sum(each.difference.p_value for each in found)


def test_the_whole_curve_is_judged():
    late = np.where(UPDATES <= 40, 0.2, 1.0)  # behind until update 40, ahead from 41 on
    found = findings(1.0, 0.5, curve=late)
    first = lead(found, "room-det", 2)
    assert first.ahead_from == 41
    assert first.largest_deficit == pytest.approx(0.3 * np.sqrt(2), abs=0.01)
    assert of("first tenth", verdicts(found)) == {"does not hold"}
    assert lead(findings(0.5, 1.0), "room-det", 2).ahead_from is None
    means = mean_entropies(found)[Cell("room-det", 2, "team")]
    expected = np.sqrt(2) * (0.2 * 39.5 + 0.8 * 0.5 + 59.5) / 99
    np.testing.assert_allclose(means, expected, rtol=0.02)


def test_rounds_are_counted_until_copies_reach_the_teams_entropy():
    # Entropies log k + level: copies need exp(0.5) times as many trajectories.
    np.testing.assert_allclose(rounds_saved(findings(1.0, 0.5), "room-det", 4), np.exp(0.5), rtol=0.05)
    np.testing.assert_allclose(rounds_saved(findings(0.5, 1.0), "room-det", 4), np.exp(-0.5), rtol=0.05)
    np.testing.assert_allclose(rounds_saved(findings(9.0, 0.5), "room-det", 4), 10)  # censored
