import numpy as np
import pytest

from farflung.studies.reproduce.claims import Cell, Findings, claims

SEEDS = 8
METRICS = ("normalized_entropy", "support", "individual_entropy", "diversity", "policy_entropy")


def findings(team=1.0, single=0.5, random=0.1, agents=(2, 4, 6)):
    """Findings with a level for each kind, which grows with the square root of the number of agents."""
    generator = np.random.default_rng(0)

    def values(level, number):
        return level * np.sqrt(number) + generator.normal(0, 1e-3, SEEDS)

    levels = {"team": team, "single": single, "random": random}
    cells = [Cell("room-det", number, kind) for number in agents for kind in levels]
    final = {c: {name: values(levels[c.kind], c.agents) for name in METRICS} for c in cells if c.kind != "random"}
    data = {c: np.stack([values(levels[c.kind], c.agents) for _ in range(3)], axis=1) for c in cells}
    success = {c: np.repeat(values(levels[c.kind], c.agents)[:, None], 3, axis=1) for c in cells}
    needed = {c: np.full(SEEDS, 300.0 / levels[c.kind]) + np.arange(SEEDS) for c in final}
    alone = {c: numbers / c.agents for c, numbers in needed.items()}
    return Findings(final, {}, data, success, {}, needed, alone, {"room-det": 0.02})


def verdicts(found):
    return {(claim.statement, claim.agents): claim.difference.verdict for claim in claims(found)}


def test_every_claim_is_decided_in_every_setting():
    found = verdicts(findings())
    assert len(found) == 12 * 3 + 1
    assert len({statement for statement, _ in found}) == 13


@pytest.mark.parametrize(
    "part",
    [
        "higher entropy than a single one",
        "visit more states",
        "higher entropy than a single agent's",
        "more diverse",
        "samples in all",
    ],
)
def test_verdicts_follow_the_measurements(part):
    for team, single, verdict in ((1.0, 0.5, "holds"), (0.5, 1.0, "does not hold")):
        decided = {v for (statement, _), v in verdicts(findings(team, single)).items() if part in statement}
        assert decided == {verdict}
    alike = [v for (statement, _), v in verdicts(findings(0.5, 0.5)).items() if part in statement]
    assert "undecided" in alike


def test_the_claims_about_entropies_of_policies_and_agents_are_that_they_are_lower():
    found = verdicts(findings(team=0.2, single=0.9))
    assert {v for (statement, _), v in found.items() if "deterministic" in statement or "of their own" in statement} == {
        "holds"
    }


def test_diminishing_returns_compare_equal_steps():
    found = {key: v for key, v in verdicts(findings()).items() if "further agents" in key[0]}
    assert found == {("further agents add less than those before", "2, 4, 6"): "holds"}
    assert not [key for key in verdicts(findings(agents=(2, 3, 6))) if "further agents" in key[0]]
