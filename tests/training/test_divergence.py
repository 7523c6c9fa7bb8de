import dataclasses
import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import farflung
from farflung import Explore, TabularSoftmax, make_vector_world
from farflung.policies.rollout import WorldWarning
from farflung.studies.trials import Trials, finish
from farflung.training.divergence import check_num_samples, share_of_duplicates
from farflung.training.metrics import Metrics
from farflung.training.progress import Arrays, Divergence, Faults, Progress

WORLD = make_vector_world("point-gap", horizon=4)
CONFIG = Explore("point-gap", algorithm="pgpse", agents=2, batch_size=5, updates=40, seeds=(0, 1))


def progress(update, faults=(0, 0), value=1.0, weight=0.5, divergence=None):
    """After so many updates of two seeds, with so many broken episodes in each."""
    found = Faults(np.array(faults), np.array([7, 6]) * (np.array(faults) > 0), np.array([3, 2]))
    metrics = Metrics(*[np.full((2, 1), value)] * 8)
    team = TabularSoftmax(jnp.full((2, 2, 3), weight))
    recorded = np.array([update] if update else [], int)
    metrics = Metrics(**{name: column[:, : len(recorded)] for name, column in metrics.columns.items()})
    return Progress(update, recorded, metrics, team, 2, arrays=Arrays(None, None, found), divergence=divergence)


def finished(*parts):
    (run,) = finish(Trials([CONFIG], [WORLD], progress(0), iter(parts), 0.0))
    return run


def test_a_healthy_training_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        summary = finished(progress(10), progress(40)).summary
    assert not {"broken_episodes", "stopped_because"} & summary.keys()


def test_the_first_state_that_is_not_finite_gives_one_warning_with_world_update_and_step():
    told = r"point-gap: a state after step 2 of update 6 was not finite; such episodes end there \(5 so far\)"
    with pytest.warns(WorldWarning, match=told) as caught:
        run = finished(progress(5), progress(10, (2, 3)), progress(20, (2, 30)))
    assert len(caught) == 1
    assert run.summary["broken_episodes"] == 32
    assert run.summary["updates"] == 20


@pytest.mark.filterwarnings("ignore:point-gap")
def test_training_stops_where_most_episodes_of_a_seed_are_broken():
    run = finished(progress(10, (10, 0)), progress(20, (61, 0)), progress(30, (61, 0)))  # 51 of the latest 100
    assert run.summary["stopped_because"] == (
        "point-gap: 51% of the latest episodes, up to update 20, gave a state that was not finite, so training stopped"
    )
    np.testing.assert_array_equal(run.updates, [10, 20])


def test_training_stops_at_metrics_that_are_not_finite_and_keeps_earlier_records():
    run = finished(progress(10), progress(20, value=np.nan), progress(30))
    assert "were no longer finite by update 20, so training stopped" in run.summary["stopped_because"]
    np.testing.assert_array_equal(run.updates, [10])
    with pytest.raises(ValueError, match="no longer finite by update 10"):
        finished(progress(10, value=np.nan))


@pytest.mark.parametrize(("agent", "whose"), [(1, "the policy of agent 2"), (None, "a shared part of the algorithm's state")])
def test_the_divergence_message_names_agent_update_and_learning_rate(agent, whose):
    run = finished(progress(10), progress(17, divergence=Divergence(18, 1, agent)), progress(30))
    assert run.summary["stopped_because"] == (
        f"point-gap: in update 18 {whose} (seed 1) was no longer finite, so training stopped: try a learning rate below 0.003"
    )
    np.testing.assert_array_equal(run.updates, [10, 17])


def test_fewer_states_than_neighbours_are_refused_before_the_training():
    projection = WORLD.projection
    check_num_samples(CONFIG, projection, horizon=2)  # 6 states for 4 neighbours
    with pytest.raises(ValueError, match="neighbours must be below 4, the number of states that the team visits"):
        check_num_samples(CONFIG, projection, horizon=1)
    with pytest.raises(ValueError, match="neighbours must be below 3, the number of states that an agent visits"):
        check_num_samples(dataclasses.replace(CONFIG, independent=True), projection, horizon=2)
    with pytest.raises(ValueError, match="neighbours must be below 4"):
        farflung.explore(make_vector_world("point-gap", horizon=1), agents=2)


def test_duplicate_states_give_a_warning_with_advice():
    generator = np.random.default_rng(0)
    features = generator.uniform(-1, 1, (2, 1, 1, 20, 2)).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert share_of_duplicates("point-gap", features, WORLD.projection) == 0
    features[:, :, :, 10:] = 0.5  # half of them stuck
    features[:, :, :, :2] = np.nan
    with pytest.warns(WorldWarning, match=r"point-gap: 56% of the states .* duplicates in x and y.*--neighbours 0") as caught:
        assert share_of_duplicates("point-gap", features, WORLD.projection) == pytest.approx(10 / 18)
    assert len(caught) == 1
