"""Observations that are dictionaries, the seeds of episodes, and infos."""

import dataclasses

import gymnasium
import minari
import numpy as np
import pytest
from minari.data_collector import EpisodeBuffer

from farflung import collect, explore, from_minari, hosted, load_dataset, relabel, save_dataset, to_minari
from farflung.data.collecting import play_hosted
from farflung.data.episodes import joined
from farflung.policies import UniformPolicy


class TwoPlaces(gymnasium.Env):
    """A point on a line that sees its place and its goal."""

    def __init__(self):
        place = gymnasium.spaces.Box(-1, 1, (1,))
        self.observation_space = gymnasium.spaces.Dict({"place": place, "aims": gymnasium.spaces.Box(-1, 1, (2, 1))})
        self.action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.aims = self.np_random.uniform(-0.1, 0.1, 1), self.np_random.uniform(-1, 1, (2, 1))
        return self._seen(), {"aims": self.aims.copy(), "name": "two"}

    def step(self, action):
        self.place = np.clip(self.place + 0.1 * action, -1, 1)
        info = {"is_left": bool(self.place[0] < 0), "costs": {"fuel.used": abs(action[0])}, "picture": np.zeros((9, 9))}
        return self._seen(), float(self.place[0]), False, False, info | {"aims": self.aims.copy(), "name": "two"}

    def _seen(self):
        return {"place": self.place.astype(np.float32), "aims": self.aims.astype(np.float32)}


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))


@pytest.fixture(scope="module")
def data():
    gymnasium.register("TwoPlaces-v0", entry_point=f"{__name__}:TwoPlaces", max_episode_steps=5)
    yield collect(explore(hosted("TwoPlaces-v0", features=2), agents=2, updates=1, batch_size=1, seeds=(0,)), 4)
    del gymnasium.registry["TwoPlaces-v0"]


@pytest.mark.parametrize("data_format", ["hdf5", "arrow"])
def test_a_dictionary_is_written_as_one_and_read_as_a_vector(data, data_format):
    to_minari(data, "two-v0", data_format=data_format, author="A", author_email="a@b.org", code_permalink="https://b.org")
    dataset = minari.load_dataset("two-v0")
    about = dataset.storage.metadata
    assert (set(about["author"]), set(about["author_email"]), about["code_permalink"]) == ({"A"}, {"a@b.org"}, "https://b.org")
    assert dataset.observation_space["aims"].shape == (2, 1)
    environment = dataset.recover_environment()
    for episode, about, seed in zip(dataset, dataset.storage.get_episode_metadata(range(4)), data.seeds, strict=True):
        assert int(about["seed"]) == seed
        seen, _ = environment.reset(seed=int(about["seed"]))
        for time, action in enumerate(episode.actions):
            for name in ("place", "aims"):
                np.testing.assert_allclose(episode.observations[name][time], seen[name], atol=1e-6)
            seen, reward, *_ = environment.step(action)
            assert reward == pytest.approx(episode.rewards[time], abs=1e-6)
    found = from_minari("two-v0")
    np.testing.assert_array_equal(found.observations, data.observations)
    np.testing.assert_array_equal(found.seeds, data.seeds)
    assert found.source.metadata["observation_parts"] == data.source.metadata["observation_parts"]


def test_the_numbers_of_infos_are_those_of_the_environment(data):
    assert list(data.infos) == ["aims", "costs:fuel:used", "is_left"]
    environment = gymnasium.make("TwoPlaces-v0")
    for episode in range(4):
        _, info = environment.reset(seed=int(data.seeds[episode]))
        assert np.isnan([data.infos["is_left"][episode, 0], data.infos["costs:fuel:used"][episode, 0]]).all()
        for time in range(6):
            np.testing.assert_array_equal(data.infos["aims"][episode, time], info["aims"].ravel())
            if time:
                assert data.infos["is_left"][episode, time] == info["is_left"]
                assert data.infos["costs:fuel:used"][episode, time] == info["costs"]["fuel.used"]
            if time < 5:
                *_, info = environment.step(data.actions[episode, time])


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_files_have_the_seeds_and_the_infos(data, tmp_path, suffix):
    data = relabel(data, goal=(0.1,), goal_radius=0.05)  # some episodes end early, and nothing is left after their ends
    assert len(set(data.lengths.tolist())) > 1
    assert not any(info[~data.is_observed].any() for info in data.infos.values())
    save_dataset(data, tmp_path / f"data{suffix}")
    found = load_dataset(tmp_path / f"data{suffix}")
    np.testing.assert_array_equal(found.seeds, data.seeds)
    assert found.infos.keys() == data.infos.keys()
    for name, info in data.infos.items():
        np.testing.assert_array_equal(found.infos[name], info[:, : found.observations.shape[1]])


@pytest.mark.parametrize("data_format", ["hdf5", "arrow"])
def test_minari_has_the_infos(data, data_format):
    to_minari(data, "two-v0", data_format=data_format)
    for number, episode in enumerate(minari.load_dataset("two-v0")):
        assert episode.infos.keys() == data.infos.keys()
        for name, info in data.infos.items():
            np.testing.assert_array_equal(episode.infos[name], info[number])


def test_all_parts_have_the_infos_of_the_first(data, monkeypatch):
    monkeypatch.setattr("farflung.data.collecting._HOSTED_TRANSITIONS_PER_PART", 10)
    world = hosted("TwoPlaces-v0", features=2)
    parts = play_hosted(world, UniformPolicy(world.actions, 2), 4, 0, {})
    first = next(parts)
    monkeypatch.setattr(TwoPlaces, "step", lambda self, action: (self._seen(), 0.0, False, False, {"later": 1}))
    second = next(parts)
    assert first.infos.keys() == second.infos.keys() == data.infos.keys()
    assert np.isnan(second.infos["is_left"]).all()
    assert np.isfinite(second.infos["aims"][:, 0]).all()
    assert len(joined([first, second])) == 4


def test_a_name_that_not_every_format_can_store_is_refused(data):
    with pytest.raises(ValueError, match=r"the name of an info has letters, .* unlike 'a/../b'"):
        dataclasses.replace(data, infos={"a/../b": data.observations[..., 0]})


def test_a_goal_in_a_dictionary_is_reached_in_the_recovered_environment(data):
    found = relabel(data, goal=(0.1,), goal_radius=0.05)  # of the place, the last of three numbers
    environment = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(found.source.environment))
    for episode, length in enumerate(found.lengths):
        environment.reset(seed=int(found.seeds[episode]))
        for time in range(length):
            *_, reward, terminated, _, _ = environment.step(found.actions[episode, time])
            assert reward == found.rewards[episode, time]
        assert terminated == found.terminated[episode]


@pytest.mark.filterwarnings("ignore::UserWarning")  # Minari's, about what is optional
def test_dictionaries_of_others_are_read():
    place = gymnasium.spaces.Box(-1, 1, (2,), np.float64)
    space = gymnasium.spaces.Dict({"b": place, "a": place})
    seen = {"b": np.arange(6.0).reshape(3, 2), "a": -np.arange(6.0).reshape(3, 2)}
    flags = np.array([False, True])
    buffer = EpisodeBuffer(None, 7, None, seen, np.zeros(2, int), np.ones(2), flags, ~flags & False)
    minari.create_dataset_from_buffers(
        "others-v0", [buffer], observation_space=space, action_space=gymnasium.spaces.Discrete(2)
    )
    found = from_minari("others-v0")
    names = list(space.spaces)
    np.testing.assert_array_equal(found.observations[0], np.concatenate([seen[name] for name in names], axis=1))
    assert found.seeds.tolist() == [7]
    mixed = gymnasium.spaces.Dict({"a": place, "b": gymnasium.spaces.Discrete(2)})
    minari.create_dataset_from_buffers("mixed-v0", [], observation_space=mixed, action_space=gymnasium.spaces.Discrete(2))
    with pytest.raises(ValueError, match="only entries of the space Box can be read, not of Discrete"):
        from_minari("mixed-v0")
