import dataclasses

import jax
import numpy as np
import pytest
from tests.data.teams import make_run, make_vector_run

from farflung import collect, gridworld, learn_offline, save_dataset
from farflung.data import Source, offline
from farflung.figures.reached import reached


@pytest.fixture(scope="module")
def corridor():
    """Everything that one can do in a corridor, many times over."""
    return collect(make_run(world=gridworld("..S..", horizon=6)), 300)


def test_data_of_everything_leads_everywhere(corridor):
    found = learn_offline(corridor, batches=200, seeds=(0, 1))
    assert found.goals.tolist() == [0, 1, 3, 4]
    assert found.success.shape == found.random_success.shape == (2, 4)
    assert found.success.min() == 1
    assert found.num_transitions == 1800
    assert 0 < found.untrained < 1


def test_a_file_is_as_good_as_a_dataset_and_every_goal_is_reported(corridor, tmp_path):
    save_dataset(corridor, tmp_path / "data.npz")
    told = []
    found = learn_offline(tmp_path / "data.npz", on_progress=lambda *numbers: told.append(numbers), batches=5, seeds=(0, 1))
    expected = learn_offline(corridor, batches=5, seeds=(0, 1))
    np.testing.assert_array_equal(found.success, expected.success)
    assert told[-1] == (8, 8)


def test_goals_are_learnt_in_blocks_where_memory_is_short(corridor, monkeypatch):
    monkeypatch.setattr(offline, "_MOST_NUMBERS", 1)
    assert learn_offline(corridor, batches=200, seeds=(0, 1)).success.min() == 1


def test_a_dataset_without_a_world_cannot_be_tried_out(corridor):
    with pytest.raises(ValueError, match="needs the world's transition table, which the dataset lacks"):
        learn_offline(dataclasses.replace(corridor, source=Source(5, 4)))


def test_the_picture_shows_every_goal(corridor):
    found = learn_offline(corridor, batches=5, seeds=(0, 1))
    dataset, random = reached(found, "corridor").axes[:2]
    (_, shown) = dataset.images
    assert np.ma.filled(shown.get_array(), np.nan)[0, [0, 1, 3, 4]].tolist() == pytest.approx(found.success.mean(axis=0))
    assert f"{found.random_success.mean():.2f}" in random.get_title()
    without_map = found._replace(world=dataclasses.replace(found.world, positions=None))
    assert len(reached(without_map, "corridor").axes) == 1


def test_goals_in_a_maze_are_tried_and_drawn(monkeypatch):
    devices = jax.local_devices()[:1]
    monkeypatch.setattr(jax, "local_devices", lambda: devices)  # each device takes a compilation
    data = collect(make_vector_run(horizon=4, seeds=(0,)), 3)
    told = []
    found = learn_offline(
        data,
        batches=2,
        goals=4,
        goal_radius=0.3,
        max_steps=3,
        seeds=(0, 1, 2),
        on_progress=lambda *numbers: told.append(numbers),
    )
    assert found.goals.shape == (2, 2)
    assert found.success.shape == found.random_success.shape == (3, 2)
    assert (found.radius, found.config.batch_size) == (0.3, 64)
    assert told[-1] == (12, 12)
    dataset, random = reached(found, "gap").axes[:2]
    (discs,) = dataset.collections
    assert discs.get_array().tolist() == pytest.approx(found.success.mean(axis=0).tolist())
    assert f"{found.random_success.mean():.2f}" in random.get_title()


def test_vectors_that_are_from_no_maze_cannot_be_tried_out():
    data = collect(make_vector_run("pendulum", horizon=3, seeds=(0,)), 2)
    with pytest.raises(ValueError, match="only in point mazes"):
        learn_offline(data)
