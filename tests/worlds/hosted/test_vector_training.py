import jax
import numpy as np
import pytest
from tests.worlds.hosted.simulators import Fenced, Leaky, Lost

import farflung
from farflung import PGPSE, train
from farflung.policies import Networks
from farflung.worlds.hosted.tables import hosted
from farflung.worlds.hosted.vectors import HostedVectors

# Few kinds of algorithms and worlds: each is compiled anew.
SMALL = {"agents": 2, "batch_size": 3, "updates": 3, "hidden": (8,), "seeds": (0,), "log_every": 1, "credit": "difference"}
SMALL |= {"steps_per_batch": 1, "entropy_bonus": 0.0}


def leaves(team):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(team)]


def test_a_run_is_saved_and_read_back_without_making_its_environment(tmp_path, monkeypatch):
    world = hosted("Pendulum-v1", horizon=12, features=(0, 1), neighbours=2, workers=2)
    run = farflung.explore(world, **SMALL, out=tmp_path / "run")
    assert run.config.policy == "neural"
    assert run.summary["environment_steps"] == 3 * 2 * 3 * 12
    assert run.summary["hosted"]["workers"] == 2
    assert np.isfinite(run.metrics.particle_entropy).all()
    with monkeypatch.context() as patched:
        patched.setattr("gymnasium.make", None)
        again = farflung.load_run(tmp_path / "run")
    assert isinstance(again.world, HostedVectors)
    assert again.world.view() == world.view()
    for loaded, trained in zip(leaves(again.policies), leaves(run.policies), strict=True):
        np.testing.assert_array_equal(loaded, trained)
    assert again.paths.features.shape == (3, 2, 1, 13, 2)  # all elements of a small batch
    np.testing.assert_allclose(np.linalg.norm(again.paths.features, axis=-1), 1, rtol=1e-5)  # the cosine and sine of an angle
    np.testing.assert_array_equal(again.host_statistics.steps, run.host_statistics.steps)
    with pytest.raises(ValueError, match="Pendulum-v1 has no transition table"):
        _ = again.table


def test_networks_learn_discrete_actions():
    run = farflung.explore(hosted("MountainCar-v0", horizon=5, neighbours=0), **SMALL)
    assert run.policies.head.weight.shape == (1, 2, 3, 8)
    assert run.world.projection.names == ("observation 0", "observation 1")
    assert 0 < run.summary["final"]["policy_entropy"][0] <= np.log(3) + 1e-6


@pytest.mark.parametrize("name", ["Ant-v5", "HalfCheetah-v5"])
def test_robots_are_explored_with_mujocos_own_engine(name):
    pytest.importorskip("mujoco")
    world = hosted(name, horizon=10, copies=4, features=(0, 1), neighbours=0, exclude_current_positions_from_observation=False)
    assert world.projection.names == ("qpos 0", "qpos 1")
    algorithm = PGPSE(2, 1, 2, optimizer="adam", learning_rate=0.01, networks=Networks((8,)))
    *_, last = train(algorithm, world, (0,), 2)
    assert last.update == 2
    assert all(np.isfinite(leaf).all() for leaf in leaves(last.team))
    assert last.host_statistics.features.shape[2] == 2
    assert 0 < last.metrics.entropy[0, -1] <= np.log(22)
    assert np.isfinite(last.host_statistics.features).all()


def test_episodes_that_end_early_are_learnt_from_with_copies_and_with_workers():
    here = farflung.explore(hosted(Fenced, horizon=6, neighbours=0, copies=4), **SMALL)
    there = farflung.explore(hosted(Fenced, horizon=6, neighbours=0, workers=2), **SMALL)
    lengths = np.isfinite(here.paths.features[..., 0]).sum(axis=-1)
    assert 4 <= lengths.min() < lengths.max() <= 7
    assert here.steps[-1] < 3 * 2 * 3 * 6
    assert here.summary["random"]["policy_entropy"] == pytest.approx(np.log(0.6) + np.log(4), abs=1e-5)
    for one, other in zip(leaves(here.policies), leaves(there.policies), strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.filterwarnings("ignore:Leaky gave")
def test_states_that_are_not_finite_are_counted_and_masked():
    run = farflung.explore(hosted(Leaky, horizon=6, neighbours=0, copies=4), **SMALL)
    assert 0 < run.summary["broken_episodes"] < 3 * 6
    assert len(run.summary["hosted"]["failures"]) == 1
    assert "stopped_because" not in run.summary
    assert all(np.isfinite(leaf).all() for leaf in leaves(run.policies))


def test_too_many_invalid_states_stop_the_training_and_the_run_is_saved(tmp_path):
    world = hosted(Lost, horizon=6, neighbours=0, copies=4)
    with pytest.warns(RuntimeWarning, match="Lost gave a state that is not finite after step 2 of an episode with seed"):
        run = farflung.explore(world, **(SMALL | {"updates": 100_000, "bonus_decay": 1.0}), out=tmp_path / "run")
    assert "of the latest episodes" in run.summary["stopped_because"]
    assert run.summary["updates"] < 100_000
    again = farflung.load_run(tmp_path / "run")
    assert again.summary["stopped_because"] == run.summary["stopped_because"]
    assert again.summary["broken_episodes"] == run.summary["broken_episodes"] > 0
