"""Datasets whose observations are vectors, from the team to every format and back."""

import dataclasses
import json

import gymnasium
import h5py
import jax
import jax.numpy as jnp
import minari
import numpy as np
import pyarrow.parquet
import pytest
from minari.data_collector import EpisodeBuffer
from tests.data.teams import assert_same, make_vector_run

from farflung import collect, from_minari, load_dataset, make_vector_world, save_dataset, to_minari
from farflung.data import collect_parts, collecting
from farflung.data.episodes import Contents, in_pieces
from farflung.data.sources import continuous_source, from_json, to_json
from farflung.worlds.point_maze import PointMaze


class Cliff(PointMaze):
    """A maze in which episodes end 0.2 left and right of the start, with nobody but us to make it."""

    @property
    def may_end_early(self):
        return True

    def is_over(self, state):
        return jnp.abs(state[0]) > 0.2


def cliff(horizon=6):
    world = make_vector_world("point-empty", horizon=horizon)
    return Cliff(**{field.name: getattr(world, field.name) for field in dataclasses.fields(world)} | {"recipe": ""})


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))


@pytest.fixture(scope="module", autouse=True)
def in_small_parts():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collecting, "_VECTOR_TRANSITIONS_PER_PART", 120)
        yield


@pytest.fixture(scope="module")
def run():
    return make_vector_run(horizon=12)


@pytest.fixture(scope="module")
def ragged():
    """Episodes that end early, such that end with their last action, and such that are cut off."""
    return collect(make_vector_run("point-empty", world=cliff()), 60)


def test_the_recorded_actions_are_those_that_the_world_executed(run):
    data = collect(run, 10)
    assert data.observations.shape == (10, 13, 2)
    assert data.agents.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
    assert data.observations.dtype == data.actions.dtype == np.float32
    assert np.abs(data.actions).max() <= 1
    steps = data.steps()
    moved = jax.vmap(run.world.step_from, (None, 0, 0))(jnp.zeros(0), steps.observations, steps.actions)
    np.testing.assert_allclose(moved, steps.next_observations, atol=1e-6)
    assert not data.rewards.any()
    assert data.truncated.all()


def test_choices_are_whole_numbers():
    data = collect(make_vector_run("mountain-car-discrete", horizon=5), 4)
    assert data.actions.shape == (4, 5)
    assert np.issubdtype(data.actions.dtype, np.integer)
    assert (data.source.actions, data.source.environment[:20]) == (3, '{"id": "MountainCar-')


def test_parts_are_bounded_and_a_longer_dataset_begins_like_a_shorter_one(run):
    assert [len(part) for part in collect_parts(run, 20)] == [9, 9, 2]
    longer = collect(run, 20)
    assert_same(longer.rows(0, 10), collect(run, 10))
    assert len(np.unique(longer.actions, axis=0)) == 20


def test_episodes_end_where_the_world_ends_them(ragged):
    beyond = np.abs(ragged.observations[..., 0]) > 0.2
    for walk, length, terminated, truncated in zip(beyond, ragged.lengths, ragged.terminated, ragged.truncated, strict=True):
        assert walk.any() == terminated != truncated
        assert length == (walk.argmax() if terminated else 6)
    assert ragged.terminated.any()
    assert ragged.truncated.any()
    assert (ragged.terminated & (ragged.lengths == 6)).any()
    assert np.isfinite(ragged.observations).all()
    assert ragged.source.world is None


def test_coverage_is_counted_over_the_grid(run, ragged):
    for data, world in ((collect(run, 10), run.world), (ragged, cliff())):
        contents = Contents()
        list(contents.counting(in_pieces([data], 7)))
        seen = data.observations[data.is_observed].astype(np.float64)
        cells = np.clip(np.floor((seen + 1) * 10), 0, 19) @ (20, 1)
        _, counts = np.unique(cells, return_counts=True)
        share = counts / counts.sum()
        assert world.projection.bins == (20, 20)
        assert contents.entropy == pytest.approx(-np.sum(share * np.log(share)))


def test_random_actions_are_uniform_and_do_not_depend_on_the_run(run):
    data = collect(run, 60, random=True)
    assert np.histogram(data.actions, bins=4, range=(-1, 1))[0] == pytest.approx(360, abs=60)
    assert_same(data, collect(run, 60, random=True, seed=0))
    assert "team" not in data.source.metadata


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_a_file_is_read_back(run, ragged, tmp_path, suffix):
    for data in (collect(run, 9), ragged):
        save_dataset(in_pieces([data], 4), tmp_path / f"data{suffix}", force=True)
        found = load_dataset(tmp_path / f"data{suffix}")
        assert_same(found, data)
        assert found.source.world == data.source.world
        assert found.source.projection == data.source.projection
        assert (found.source.observations, found.source.actions) == (data.source.observations, data.source.actions)


def test_parquet_has_lists(run, tmp_path):
    data = collect(run, 3)
    save_dataset(data, tmp_path / "data.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "data.parquet").to_pydict()
    assert table["observation"] == data.steps().observations.tolist()
    assert table["action"] == data.steps().actions.tolist()


def test_d3rlpy_gets_vectors_as_they_are(ragged, tmp_path):
    save_dataset(in_pieces([ragged], 20), tmp_path / "data.h5")
    with h5py.File(tmp_path / "data.h5") as file:
        is_step = file["timeouts"][:] == 0
        np.testing.assert_array_equal(file["observations"][:][is_step], ragged.steps().observations)
        np.testing.assert_array_equal(file["actions"][:][is_step], ragged.steps().actions)
        assert file["terminals"][:].sum() == ragged.terminated.sum()


@pytest.mark.parametrize("data_format", ["hdf5", "arrow"])
def test_minari_has_the_same_episodes_and_a_maze_to_play_in(run, data_format):
    data = collect(run, 5)
    to_minari(in_pieces([data], 2), "gap-v0", data_format=data_format)
    assert_same(from_minari("gap-v0"), data)
    stored = minari.load_dataset("gap-v0")
    environment = stored.recover_environment()
    assert environment.spec.id == "farflung/PointMaze-v0"
    assert environment.observation_space == stored.observation_space
    assert environment.action_space == stored.action_space
    seen, _ = environment.reset(seed=0)
    np.testing.assert_allclose(seen, stored[0].observations[0])
    for action, after in zip(stored[0].actions, stored[0].observations[1:], strict=True):
        seen, _, _, truncated, _ = environment.step(action)
        np.testing.assert_allclose(seen, after, atol=1e-5)
    assert truncated


def test_a_world_of_the_users_own_has_spaces_without_an_environment(ragged):
    to_minari(ragged, "cliff-v0")
    assert minari.load_dataset("cliff-v0").observation_space == gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    assert_same(from_minari("cliff-v0"), ragged)
    contents = Contents()
    list(contents.counting([ragged]))
    assert from_json(to_json(contents)).observations == ragged.source.observations


@pytest.mark.filterwarnings("ignore::UserWarning")  # Minari's, about what is optional
def test_datasets_of_others_are_read():
    environment = gymnasium.make("Pendulum-v1", max_episode_steps=4)
    environment.action_space.seed(0)
    first, _ = environment.reset(seed=0)
    taken = [environment.action_space.sample() for _ in range(4)]
    steps = [environment.step(action) for action in taken]
    seen, rewards, terminations, truncations, _ = zip(*steps, strict=True)
    episode = EpisodeBuffer(None, 0, None, [first, *seen], taken, list(rewards), list(terminations), list(truncations))
    minari.create_dataset_from_buffers("swing/random-v0", [episode], env=environment)
    found = from_minari("swing/random-v0")
    np.testing.assert_array_equal(found.observations[0], np.stack([first, *seen]))
    np.testing.assert_array_equal(found.actions[0], np.stack(taken))
    np.testing.assert_allclose(found.rewards[0], rewards)
    assert found.source.observations.high == (1.0, 1.0, 8.0)
    contents = Contents()
    list(contents.counting([found]))
    assert contents.entropy is None


def test_the_worlds_of_gymnasium_are_named():
    for name, expected in (("mountain-car", "MountainCarContinuous-v0"), ("pendulum", "Pendulum-v1")):
        spec = json.loads(continuous_source(make_vector_world(name, horizon=3), {}).environment)
        assert (spec["id"], spec["max_episode_steps"]) == (expected, 3)


def test_an_episode_without_a_step_is_refused():
    started_beyond = dataclasses.replace(cliff(), starts=((0.5, 0.5, 0.0, 0.0),))
    with pytest.raises(ValueError, match="over before its first step"):
        collect(make_vector_run("point-empty", world=started_beyond), 2)
