import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.data.teams import assert_same

from farflung import Dataset, gridworld, relabel
from farflung.data.episodes import Contents, Source, in_pieces, joined, states_of
from farflung.data.goals import observation_at


@pytest.fixture
def ragged():
    """0 -> 1 -> 2 -> 3, ended by the world, and 0 -> 1, cut off."""
    return Dataset(
        observations=np.array([[0, 1, 2, 3], [0, 1, 0, 0]]),
        actions=np.array([[2, 2, 2], [2, 0, 0]]),
        rewards=np.array([[0.0, 0, 1], [5, 0, 0]]),
        lengths=np.array([3, 1]),
        terminated=np.array([True, False]),
        truncated=np.array([False, True]),
        agents=np.array([0, 1]),
        source=Source(4, 4),
    )


def test_steps_and_visits_end_where_an_episode_ends(ragged):
    steps = ragged.steps()
    assert ragged.num_transitions == 4
    assert steps.observations.tolist() == [0, 1, 2, 0]
    assert steps.next_observations.tolist() == [1, 2, 3, 1]
    assert steps.actions.tolist() == [2, 2, 2, 2]
    assert steps.rewards.tolist() == [0, 0, 1, 5]
    assert steps.is_terminal.tolist() == [False, False, True, False]
    assert ragged.visits().tolist() == [2, 2, 1, 1]


def test_a_dataset_is_shown_in_one_line(ragged):
    assert repr(ragged) == "<Dataset: 2 episodes, 4 transitions, mean return 3, observations 0 to 3, actions 0 to 3>"


def test_to_arrive_at_a_goal_pays_once_and_ends_the_episode(ragged):
    found = relabel(ragged, goal=1)
    assert found.lengths.tolist() == [1, 1]
    assert found.rewards.tolist() == [[1, 0, 0], [1, 0, 0]]
    assert found.observations.tolist() == [[0, 1, 0, 0], [0, 1, 0, 0]]
    assert found.terminated.all()
    assert not found.truncated.any()
    assert found.source.metadata["goal"] == 1


def test_without_arrival_an_episode_stays_and_pays_nothing(ragged):
    found = relabel(ragged, goal=3)
    assert found.lengths.tolist() == [3, 1]
    assert found.rewards.tolist() == [[0, 0, 1], [0, 0, 0]]
    assert found.truncated.tolist() == [False, True]


@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(0, 4), min_size=2, max_size=6), min_size=1, max_size=5), st.integers(0, 4))
def test_relabelling_agrees_with_a_loop_over_episodes(walks, goal):
    parts = []
    for walk in walks:
        length, ended = len(walk) - 1, np.array([False])
        row = np.array([walk])
        lengths, nobody = np.array([length]), np.array([0])
        parts.append(Dataset(row, row[:, 1:] * 0, row[:, 1:] * 1.0, lengths, ended, ~ended, nobody, Source(5, 1)))
    found = relabel(joined(parts), goal=goal)
    for walk, length, rewards, terminated in zip(walks, found.lengths, found.rewards, found.terminated, strict=True):
        arrival = walk.index(goal, 1) if goal in walk[1:] else None
        assert length == (len(walk) - 1 if arrival is None else arrival)
        assert terminated == (arrival is not None)
        assert rewards.sum() == (arrival is not None)
        assert arrival is None or rewards[arrival - 1] == 1


def test_any_function_of_steps_can_be_the_reward(ragged):
    found = relabel(ragged, reward=lambda states, actions, next_states: 10 * next_states + actions - states)
    assert found.rewards.tolist() == [[12, 21, 30], [12, 0, 0]]
    assert found.lengths.tolist() == [3, 1]


def test_a_task_is_a_goal_or_a_reward(ragged):
    with pytest.raises(ValueError, match="either a goal or a reward"):
        relabel(ragged)
    with pytest.raises(ValueError, match="from 0 to 3, not 4"):
        relabel(ragged, goal=4)
    with pytest.raises(ValueError, match=r"4 numbers, one for each step, not \(\)"):
        relabel(ragged, reward=lambda *_: 1.0)


def test_pieces_make_up_the_whole(ragged):
    assert_same(joined(in_pieces([ragged], 1)), ragged)
    contents = Contents()
    assert [len(piece) for piece in contents.counting(in_pieces([ragged], 1))] == [1, 1]
    assert (contents.num_episodes, contents.num_transitions) == (2, 4)
    assert contents.entropy == pytest.approx(2 / 3 * np.log(3) + 1 / 3 * np.log(6))


def test_an_episode_without_actions_is_refused(ragged):
    with pytest.raises(ValueError, match="each episode has 1 to 3 actions"):
        dataclasses.replace(ragged, lengths=np.array([0, 1]))


def test_a_goal_is_found_by_row_and_column():
    world = gridworld("S.\n#.")
    source = Source(3, 4, world)
    assert observation_at(source, (1, 1)) == int(world.labels[2])
    assert observation_at(source, (1,)) == 1
    with pytest.raises(ValueError, match=r"\(1, 0\) is no cell that can be reached"):
        observation_at(source, (1, 0))
    with pytest.raises(ValueError, match="has no map"):
        observation_at(Source(3, 4), (1, 1))


def test_observations_that_the_world_cannot_have_are_refused(ragged):
    corridor = gridworld("S..")
    with pytest.raises(ValueError, match="no state of its world has"):
        states_of(dataclasses.replace(ragged, source=Source(4, 4, corridor)))
    with pytest.raises(ValueError, match="which the dataset lacks"):
        states_of(ragged)
