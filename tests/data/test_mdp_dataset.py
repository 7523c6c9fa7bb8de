import sys

import gymnasium
import h5py
import numpy as np
import pytest
from tests.data.teams import make_run

from farflung import collect, relabel, save_dataset, to_d3rlpy
from farflung.data.archives import d3rlpy_columns
from farflung.data.episodes import in_pieces


@pytest.fixture(scope="module")
def data():
    """Episodes that end early and such that don't."""
    return collect(make_run("FrozenLake-v1", horizon=12), 50)


def test_d3rlpy_loses_no_step(data, tmp_path):
    save_dataset(in_pieces([data], 20), tmp_path / "data.h5")
    with h5py.File(tmp_path / "data.h5") as file:
        columns = {name: file[name][:] for name in ("observations", "actions", "rewards", "terminals", "timeouts")}
        np.testing.assert_array_equal(file["episode_terminals"][:], columns["terminals"] + columns["timeouts"])
    num_rows = data.num_transitions + (~data.terminated).sum()
    assert columns["observations"].shape == (num_rows, 16)
    assert (columns["observations"].sum(axis=1) == 1).all()
    assert {len(values) for values in columns.values()} == {num_rows}
    assert columns["terminals"].sum() == data.terminated.sum()
    assert columns["timeouts"].sum() == 50 - data.terminated.sum()
    assert not (columns["terminals"] * columns["timeouts"]).any()
    # d3rlpy makes a step of each row but the last of an episode that was cut off.
    numbers, is_step = columns["observations"].argmax(axis=1), columns["timeouts"] == 0
    steps = data.steps()
    np.testing.assert_array_equal(numbers[is_step], steps.observations)
    np.testing.assert_array_equal(columns["actions"][is_step, 0], steps.actions)
    np.testing.assert_array_equal(columns["rewards"][is_step, 0], steps.rewards)
    goes_on = is_step & (columns["terminals"] == 0)
    is_last = np.zeros(len(steps.actions), bool)
    is_last[np.cumsum(data.lengths)[data.terminated] - 1] = True
    np.testing.assert_array_equal(np.roll(numbers, -1)[goes_on], steps.next_observations[~is_last])


def test_d3rlpy_takes_a_dataset(data):
    d3rlpy = pytest.importorskip("d3rlpy")
    dataset = to_d3rlpy(data)
    assert dataset.transition_count == data.num_transitions
    found = np.concatenate([episode.actions[: episode.transition_count, 0] for episode in dataset.episodes])
    np.testing.assert_array_equal(found, data.steps().actions)
    assert to_d3rlpy(data, one_hot=False).episodes[0].observations.shape[1] == 1
    assert not gymnasium.__version__.startswith("1.0.")  # it was installed as the docs say
    quiet = {"show_progress": False, "logger_adapter": d3rlpy.logging.NoopAdapterFactory()}
    d3rlpy.algos.DiscreteBCConfig().create().fit(dataset, n_steps=2, n_steps_per_epoch=1, **quiet)


def test_without_d3rlpy_one_line_says_how_to_get_it(data, monkeypatch):
    monkeypatch.setitem(sys.modules, "d3rlpy", None)
    with pytest.raises(ValueError, match=r"^this needs d3rlpy: pip install --no-deps d3rlpy, and what docs/datasets.md lists"):
        to_d3rlpy(data)


def test_a_goal_is_terminal_for_d3rlpy(data):
    columns = d3rlpy_columns(relabel(data, goal=4))
    np.testing.assert_array_equal(columns["rewards"] > 0, (columns["rewards"] > 0) & (columns["terminals"] == 1))
    assert columns["rewards"].sum() > 0
