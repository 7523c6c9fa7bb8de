import csv
import itertools
import json

import numpy as np
import pytest
from scipy import stats

from farflung.bounds import theorems as theory
from farflung.cli import main
from farflung.config import Concentration
from farflung.studies.concentration.experiment import concentration, deviations, measure_concentration, measured_samples


def test_deviations_match_enumeration():
    shares = np.array([[0.5, 0.3, 0.2], [0.0, 0.9, 0.1]])
    entropy = stats.entropy(shares.mean(axis=0))
    exact = {}
    for pairs in itertools.product(itertools.product(range(3), repeat=2), repeat=2):
        probability = np.prod([shares[agent, state] for agent, own in enumerate(pairs) for state in own])
        deviation = round(entropy - stats.entropy(np.bincount(np.ravel(pairs), minlength=3)), 6)
        exact[deviation] = exact.get(deviation, 0) + probability
    drawn = np.round(deviations(np.random.default_rng(0), shares[None], 4, 200_000)[0], 6)
    for deviation, probability in exact.items():
        assert np.mean(drawn == deviation) == pytest.approx(probability, abs=5e-3)


def test_measured_sample_sizes_are_just_enough():
    generator = np.random.default_rng(0)
    shares = generator.dirichlet(np.ones(20), size=3)
    teams = np.stack([shares, np.full((3, 20), 0.05)])
    numbers = measured_samples(generator, teams, epsilon=0.1, delta=0.05, num_draws=4000)
    for team, number in zip(teams, numbers, strict=True):
        enough = deviations(generator, team[None], int(1.15 * number), 20_000)
        too_few = deviations(generator, team[None], int(0.85 * number), 20_000)
        assert np.mean(enough > 0.1) < 0.05 < np.mean(too_few > 0.1)


def test_even_draws_from_specialists_beat_draws_from_their_mixture():
    blocks = np.kron(np.eye(4), np.full((1, 5), 0.2))
    generator = np.random.default_rng(0)
    specialists = measured_samples(generator, blocks[None], 0.1, 0.05, 4000)
    generalist = measured_samples(generator, blocks.mean(axis=0)[None, None], 0.1, 0.05, 4000)
    assert specialists < generalist


def test_measured_probabilities_stay_below_their_bounds():
    generator = np.random.default_rng(1)
    teams, singles = generator.dirichlet(np.full(8, 0.5), size=(2, 3)), generator.dirichlet(np.ones(8), size=(2, 1))
    found = measure_concentration(Concentration(agents=3, draws=500, most_samples=500), teams, singles)
    assert found.num_violations == 0
    for kind, probabilities in found.probabilities.items():
        assert probabilities.shape == (4, len(found.num_samples))
        assert (probabilities <= found.theorem[kind] + 1e-9).all()
        assert (np.diff(probabilities, axis=0) <= 1e-9).all()  # a larger ε is missed less often
    exact = np.mean([theory.samples_needed(team.mean(axis=0), 0.1, 0.05) for team in teams])
    assert found.needed["team"][1].theorem == pytest.approx(exact)
    assert found.needed["team"][1].measured < found.needed["team"][1].sharper < found.needed["team"][1].theorem


def test_violations_are_counted(monkeypatch):
    monkeypatch.setattr(theory, "deviation_probability", lambda *_: 0.0)
    shares = np.random.default_rng(1).dirichlet(np.ones(8), size=(2, 2))
    assert measure_concentration(Concentration(agents=2, draws=100), shares, shares[:, :1]).num_violations > 0


def test_the_command_writes_numbers_and_a_figure(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("farflung.cli.terminal.use_all_cores", lambda: None)
    quick = ["--agents", "2", "--updates", "30", "--seeds", "0", "--draws", "50", "--most-samples", "100"]
    assert main(["concentration", "room-det", *quick, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary == json.loads((tmp_path / "concentration" / "summary.json").read_text())
    assert set(summary["samples_needed"]) == {"team", "agent", "single"}
    with (tmp_path / "concentration" / "probabilities.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert all(float(row["measured_probability"]) <= float(row["theorem_4_1"]) for row in rows)
    assert (tmp_path / "concentration" / "concentration.png").stat().st_size > 10_000
    assert main(["concentration", "room-det", *quick, "--quiet"]) == 0
    assert main(["concentration", "maze-det", *quick]) == 2
    assert "world room-det instead of maze-det" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsilons": ()}, "at least one epsilon"),
        ({"epsilons": (0.1, 0.0)}, "epsilon must be a positive number, not 0.0"),
        ({"delta": 1.0}, "delta must lie between 0 and 1"),
        ({"agents": 9, "most_samples": 8}, "at least the number of agents"),
        ({"draws": 0}, "draws must be at least 1"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Concentration(**settings)


def test_trained_distributions_are_measured():
    reported = []
    found = concentration(
        Concentration("room-det", agents=2, updates=20, seeds=(0,), draws=20, most_samples=50),
        on_progress=lambda *status: reported.append(status),
    )
    assert found.entropies["agent"] <= found.entropies["team"] <= np.log(43)
    assert {description for *_, description in reported} >= {"training", "sampling: team"}
