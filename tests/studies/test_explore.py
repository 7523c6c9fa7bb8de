import dataclasses

import numpy as np
import pytest

from farflung import Explore, explore, gridworld, load_run, make_tabular_world
from farflung.algorithms.pgpse import pgpse
from farflung.studies.explore import random_baseline
from farflung.studies.trials import has_stopped_growing
from farflung.training.loop import train

QUICK = {"agents": 2, "batch_size": 4, "updates": 40, "seeds": (0, 1)}


def test_the_summary_has_the_final_values_of_each_seed(tmp_path):
    run = explore("maze-det", **QUICK, out=tmp_path / "run")
    summary = run.summary
    assert {key: summary[key] for key in ("world", "agents", "updates", "seeds")} == {
        "world": "maze-det",
        "agents": 2,
        "updates": 40,
        "seeds": [0, 1],
    }
    assert summary["environment_steps"] == 40 * 4 * 2 * 10 * 2
    assert summary["steps_per_second"] > 0
    for name in ("entropy", "normalized_entropy", "support", "individual_entropy", "diversity", "policy_entropy"):
        np.testing.assert_allclose(summary["final"][name], getattr(run.metrics, name)[:, -1], rtol=1e-6)
    assert load_run(tmp_path / "run").summary == summary
    assert (tmp_path / "run" / "figure.png").stat().st_size > 10_000
    assert (tmp_path / "run" / "figure.svg").is_file()


def test_the_single_agent_plays_as_many_trajectories_as_the_team():
    run = explore("maze-det", **QUICK, single=True, trajectories=3)
    assert run.policies.logits.shape == (2, 1, 10, 43, 4)
    np.testing.assert_allclose(run.metrics.diversity, 0, atol=1e-6)
    assert run.summary["environment_steps"] == 40 * 4 * 6 * 10 * 2


def test_nothing_is_written_unless_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    explore("maze-det", **QUICK)
    assert list(tmp_path.iterdir()) == []


def test_a_world_of_the_users_own_can_be_explored(tmp_path):
    run = explore(gridworld("S...\n....", horizon=5), **QUICK, out=tmp_path / "own")
    assert load_run(tmp_path / "own").config.world == "custom"
    assert run.world.num_states == 8
    with pytest.raises(ValueError, match="part of the world"):
        explore(run.world, horizon=3)


def test_a_bad_destination_is_refused_before_the_training(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(ValueError, match="is a file"):
        explore("maze-det", updates=10**9, out=tmp_path / "taken")


def test_progress_is_reported_up_to_the_last_update():
    seen = []
    explore("maze-det", **QUICK, on_progress=seen.append)
    assert seen[-1].update == seen[-1].num_updates == 40
    assert 0 < seen[-1].normalized_entropy < 1
    assert seen[-1].steps_per_second > 0


def test_an_interrupt_saves_what_there_is(tmp_path):
    def interrupt(status):
        if status.update >= 100:
            raise KeyboardInterrupt

    run = explore("maze-det", **{**QUICK, "updates": 10**7}, out=tmp_path / "run", on_progress=interrupt)
    assert run.summary["is_interrupted"]
    assert 100 <= run.summary["updates"] < 10**7
    loaded = load_run(tmp_path / "run")
    assert 1 <= loaded.updates[-1] <= loaded.summary["updates"]
    np.testing.assert_array_equal(loaded.policies.logits, run.policies.logits)


def test_an_interrupt_before_the_first_record_is_passed_on(tmp_path, monkeypatch):
    def only_begun(*arguments):
        yield next(train(*arguments))
        raise KeyboardInterrupt

    monkeypatch.setattr("farflung.studies.trials.train", only_begun)
    with pytest.raises(KeyboardInterrupt):
        explore("maze-det", **QUICK, out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_the_random_baseline_agrees_with_the_papers_figure():
    # A random policy's dataset of six trajectories in Room-det has about .48 of the largest entropy.
    baseline, _ = random_baseline(Explore("room-det", agents=6, batch_size=1), make_tabular_world("room-det"))
    assert float(baseline.normalized_entropy) == pytest.approx(0.48, abs=0.005)


@pytest.mark.parametrize(("world", "agents", "percent"), [("maze-det", 4, 99), ("room-det", 2, 99), ("maze-stoc", 6, 93.5)])
def test_the_defaults_come_near_the_ceiling(world, agents, percent):
    run = explore(world, agents=agents)
    assert run.summary["updates"] == 1000
    assert np.mean(run.summary["percent_of_ceiling"]) >= percent


def test_it_stops_when_the_curve_is_flat_and_says_so():
    run, whole = (explore("maze-det", agents=4, stop_when_flat=stop) for stop in (True, False))
    assert run.summary["is_stopped_early"]
    assert not whole.summary["is_stopped_early"]
    assert run.summary["updates"] == run.updates[-1] < 1000
    assert run.summary["updates"] % 50 == 0
    # Until then it is the same training, and what follows would not have gained much.
    np.testing.assert_array_equal(run.metrics.entropy[:, :5], whole.metrics.entropy[:, :5])
    assert np.mean(run.summary["final"]["entropy"]) > 0.98 * np.mean(whole.summary["final"]["entropy"])


def test_a_curve_has_stopped_growing_if_its_last_quarter_is_not_above_the_one_before():
    updates = np.arange(1, 101)
    assert has_stopped_growing(updates, np.minimum(updates, 40)[None] / 40)
    assert not has_stopped_growing(updates, np.minimum(updates, 70)[None] / 70)
    assert not has_stopped_growing(updates[:1], np.ones((2, 1)))


def test_independent_agents_end_below_a_team():
    settings = {"agents": 4, "updates": 300}
    team, alone = explore("maze-det", **settings), explore("maze-det", **settings, independent=True)
    assert np.mean(team.summary["final"]["entropy"]) > np.mean(alone.summary["final"]["entropy"]) + 0.1


def test_large_tables_are_stationary_unless_asked_for():
    world = gridworld("\n".join(["S" + "." * 199] + ["." * 200] * 99), horizon=300)
    config = Explore("custom", agents=2)
    assert not pgpse(config, world).is_time_dependent
    assert pgpse(dataclasses.replace(config, policy="time-dependent"), world).is_time_dependent
    assert pgpse(config, gridworld("S...")).is_time_dependent
