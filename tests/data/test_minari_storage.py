import resource
import sys

import gymnasium
import minari
import numpy as np
import pytest
from minari.data_collector import EpisodeBuffer
from tests.data.teams import assert_same, assert_same_episodes, make_run

from farflung import Dataset, collect, from_minari, relabel, to_minari
from farflung.data.episodes import Source, in_pieces


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))


@pytest.fixture(scope="module")
def data():
    return collect(make_run("room-det", single=True), 7)


def unnamed(num_episodes=2):
    """Episodes of two and one actions, from nowhere."""
    ended = np.arange(num_episodes) % 2 == 0
    walks = np.tile([0, 1, 2], (num_episodes, 1)) * (np.arange(3) <= 1 + ended[:, None])
    nothing = np.zeros((num_episodes, 2))
    agents = np.arange(num_episodes) % 3
    return Dataset(walks, nothing.astype(int), nothing, 1 + ended.astype(int), ended, ~ended, agents, Source(3, 1))


@pytest.mark.parametrize("data_format", ["hdf5", "arrow"])
def test_minari_loads_what_was_written(data, data_format):
    to_minari(in_pieces([data], 3), "farflung/room-v0", data_format=data_format)
    dataset = minari.load_dataset("farflung/room-v0")
    assert (dataset.total_episodes, dataset.total_steps) == (7, 56)
    assert dataset.storage.metadata["data_format"] == data_format
    for number, episode in enumerate(dataset):
        np.testing.assert_array_equal(episode.observations, data.observations[number])
        np.testing.assert_array_equal(episode.actions, data.actions[number])
        assert episode.truncations.tolist() == [False] * 7 + [True]
        assert not episode.terminations.any()
        assert "EpisodeData(" in repr(episode)
        np.testing.assert_array_equal(episode.infos["position"], np.asarray(data.source.world.positions)[episode.observations])
    assert_same(from_minari("farflung/room-v0"), data)


def test_reading_in_blocks_loses_no_episode(data, monkeypatch):
    monkeypatch.setattr("farflung.data.minari._EPISODES_AT_ONCE", 3)
    to_minari(data, "room-v0")
    assert_same(from_minari("room-v0"), data)


def test_the_environment_that_is_recovered_shows_the_same_episodes(data):
    to_minari(data, "room-v0")
    environment = minari.load_dataset("room-v0").recover_environment()
    assert environment.spec.id == "farflung/Room-v0"
    for walk, actions in zip(data.observations, data.actions, strict=True):
        seen, _ = environment.reset(seed=0)
        observations = [seen]
        for number, action in enumerate(actions):
            seen, reward, terminated, truncated, _ = environment.step(action)
            observations.append(seen)
            assert (reward, terminated, truncated) == (0, False, number == 7)
        assert observations == walk.tolist()


def test_metadata_name_the_team_that_played(data):
    to_minari(data, "farflung/room-v0")
    storage = minari.load_dataset("farflung/room-v0").storage
    assert [each["policy"] for each in storage.get_episode_metadata([0, 6])] == ["room-det-3-single/seed-5/agent-0"] * 2
    assert storage.metadata["algorithm_name"] == "PGPSE"
    about = storage.metadata["farflung"]
    assert about["config"]["world"] == "room-det"
    assert (about["random_seed"], about["episodes"], about["transitions"]) == (0, 7, 56)
    to_minari(unnamed(4), "unnamed-v0")
    found = minari.load_dataset("unnamed-v0").storage.get_episode_metadata(range(4))
    assert [int(each["agent"]) for each in found] == [0, 1, 2, 0]


def test_episodes_of_any_length_and_without_an_environment_are_read_back():
    to_minari(unnamed(5), "unnamed-v0")
    assert_same_episodes(from_minari(minari.load_dataset("unnamed-v0")), unnamed(5))
    with pytest.raises(ValueError, match="cannot be recovered"):
        minari.load_dataset("unnamed-v0").recover_environment()


def test_a_relabelled_dataset_is_written_like_any_other(data):
    goal = int(data.observations[0, 2])
    relabelled = relabel(data, goal=goal)
    to_minari(relabelled, "goal-v0")
    assert_same_episodes(from_minari("goal-v0"), relabelled)
    assert minari.load_dataset("goal-v0")[0].terminations[-1]


@pytest.mark.filterwarnings("ignore::UserWarning")  # Minari's, about what is optional
def test_datasets_of_others_are_read():
    environment = gymnasium.make("FrozenLake-v1")
    environment.action_space.seed(0)
    buffers = []
    for seed in range(6):
        first, _ = environment.reset(seed=seed)
        observations, steps = [first], []
        while not steps or not (steps[-1][2] or steps[-1][3]):
            action = environment.action_space.sample()
            seen, *outcome, _ = environment.step(action)
            observations.append(seen)
            steps.append((action, *outcome))
        actions, rewards, terminations, truncations = map(list, zip(*steps, strict=True))
        buffers.append(EpisodeBuffer(None, seed, None, observations, actions, rewards, terminations, truncations))
    theirs = minari.create_dataset_from_buffers("lake/random-v0", buffers, env=environment)
    found = from_minari("lake/random-v0")
    assert (len(found), found.num_transitions) == (theirs.total_episodes, theirs.total_steps)
    for number, episode in enumerate(theirs):
        assert found.observations[number, : len(episode) + 1].tolist() == episode.observations.tolist()
        assert found.actions[number, : len(episode)].tolist() == episode.actions.tolist()
        assert found.terminated[number] == episode.terminations[-1]
    assert (found.source.num_observations, found.source.num_actions) == (16, 4)
    assert found.source.world.num_states == 16


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_is_neither_discrete_nor_a_vector_is_refused():
    box = gymnasium.spaces.Box(0, 1, (2, 2))
    minari.create_dataset_from_buffers("box-v0", [], observation_space=box, action_space=gymnasium.spaces.Discrete(2))
    with pytest.raises(ValueError, match=r"only numbers from 0 on and vectors can be read: .* not Box"):
        from_minari("box-v0")


def test_a_dataset_is_kept_unless_forced(data, tmp_path):
    to_minari(data, "room-v0")
    with pytest.raises(ValueError, match="there is a Minari dataset room-v0 already"):
        to_minari(unnamed(), "room-v0")

    def failing():
        yield unnamed()
        raise OSError(28, "No space left on device")

    with pytest.raises(ValueError, match="No space left on device"):
        to_minari(failing(), "room-v0", force=True)
    assert_same(from_minari("room-v0"), data)
    to_minari(unnamed(), "room-v0", force=True)
    assert len(from_minari("room-v0")) == 2
    assert [path.name for path in (tmp_path / "minari").iterdir()] == ["room-v0"]


@pytest.mark.parametrize("name", ["room", "room v0", "/room-v0", "../room-v0", "room-v"])
def test_an_id_that_minari_cannot_read_is_refused(data, name):
    with pytest.raises(ValueError, match="a dataset's id looks like"):
        to_minari(data, name)


def test_a_dataset_that_is_not_there_is_an_error_of_one_line():
    with pytest.raises(ValueError, match=r"there is no Minari dataset nothing-v0 \(looked in .*\)") as error:
        from_minari("nothing-v0")
    assert "\n" not in str(error.value)


def test_without_minari_one_line_says_how_to_get_it(data, monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    for use in (lambda: to_minari(data, "room-v0"), lambda: from_minari("room-v0")):
        with pytest.raises(ValueError, match=r"^this needs minari: pip install '\.\[data\]', in a clone of farflung$"):
            use()


def test_a_full_disk_is_reported_before_hdf5_can_crash():
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))  # in place of a full disk: no file may be larger
    try:
        with pytest.raises(ValueError, match="File too large"):
            to_minari(unnamed(20), "farflung/full-v0")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
