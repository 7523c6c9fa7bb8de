"""What policies see and what the entropy is about, in host-stepped worlds."""

from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import farflung
from farflung import hosted
from farflung.worlds.kinds import read_world

ROOMS = {"environment": "minigrid:MiniGrid-Empty-6x6-v0", "horizon": 6}
TINY = {"agents": 2, "updates": 2, "batch_size": 2, "hidden": (4,)}


class Switches(gymnasium.Env):
    """Three switches, the first with positions 1 to 3; sees three real numbers and nothing of where it is."""

    observation_space = spaces.Box(-1, 1, (4,))
    action_space = spaces.MultiDiscrete([3, 2], start=[1, 0])

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.place = np.zeros(2, np.int64)
        return np.zeros(4, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.place = self.place + action - [2, 0]
        return np.zeros(4, np.float32), 0.0, False, False, {}


class WithDictActions(Switches):
    action_space = spaces.Dict({"turn": spaces.Discrete(2)})


class NotFinite(Switches):
    def reset(self, seed=None, options=None):
        return np.array([0, np.nan, 0, 0], np.float32), {}


class WithoutModel(Switches):
    def __init__(self):
        Path("model.xml").read_text(encoding="utf-8")


def doubled(environment, observation):
    return 2 * environment.unwrapped.place


def test_whole_features_are_counted_one_cell_for_each_place():
    world = hosted(**ROOMS, observe=("agent_pos", "agent_dir"), features="agent_pos")
    assert (world.projection.names, world.projection.bins) == (("agent_pos 0", "agent_pos 1"), (6, 6))
    assert (world.projection.neighbours, world.num_unseen, world.observation_size) == (0, 0, 3)
    assert world.rows_point_down


def test_an_attribute_can_be_explored_that_the_policy_does_not_see():
    world = hosted(**ROOMS, observe="image", features="agent_pos")
    assert (world.image, world.num_unseen, world.settings["features"]) == ((7, 7, 3), 2, ("agent_pos",))


def test_frames_are_observed_as_reduced_images_and_never_as_a_table():
    world = hosted(**ROOMS, observe="pixels", render_mode="rgb_array", tile_size=20)
    assert (world.image, world.num_unseen, world.projection.names[0]) == ((60, 60, 3), 16, "encoding 0")
    frame = np.arange(120 * 120 * 3).reshape(1, 120, 120, 3) % 256
    found = world.vectors(frame.astype(np.uint8))
    assert found.shape == (1, 60 * 60 * 3 + 16)
    np.testing.assert_allclose(found[0, :3], frame[0, :2, :2].mean(axis=(0, 1)))
    np.testing.assert_allclose(found[0, -16:], world.encoder(jnp.asarray(found[0, :-16])), rtol=1e-3, atol=1e-5)


def test_several_choices_reach_the_environment_and_a_function_is_explored(tmp_path):
    world = hosted(Switches, features=doubled, horizon=5)
    assert world.actions == farflung.MultiDiscrete((3, 2))
    run = farflung.explore(world, **TINY, seeds=(0,), out=tmp_path / "a")
    loaded = farflung.load_run(tmp_path / "a", world=world)
    assert loaded.world.projection == run.world.projection
    dataset = farflung.collect(loaded, 4)
    assert dataset.observations.shape == (4, 6, 6)  # four numbers seen, and two features
    steps = np.diff(dataset.observations[..., 4:], axis=1) / 2
    np.testing.assert_array_equal(steps, dataset.actions - [1, 0])
    action = run.team(seed=0).agent(0).act(jax.random.key(0), np.zeros(4, np.float32))
    assert Switches.action_space.contains(action)


def test_a_mistake_in_an_environment_is_one_line():
    with pytest.raises(ValueError, match="actions of the space Dict cannot be chosen: wrap the environment"):
        hosted(WithDictActions, horizon=5)
    with pytest.raises(ValueError, match="the observation after reset is not finite: observation 1 is nan"):
        hosted(NotFinite, horizon=5)
    with pytest.raises(
        ValueError, match=r"WithoutModel.*FileNotFoundError in line \d+ of test_watched.py: model.xml is missing"
    ):
        hosted(WithoutModel, horizon=5)
    with pytest.raises(ValueError, match="no number is called 'nowhere'"):
        hosted(Switches, features="nowhere", horizon=5)


def test_the_command_has_notes_on_features_and_on_compiled_twins():
    assert hosted("CartPole-v1").notes[0].startswith("features: the first two of 4 numbers, observation 0 and observation 1")
    (hint,) = hosted("Pendulum-v1").notes
    assert "pendulum" in hint
    assert hosted(Switches, features=(0, 1), horizon=5).notes == []


def test_a_hole_counts_until_the_end_compiled_or_not():
    settings = {"agents": 2, "updates": 1, "batch_size": 100, "seeds": (0,)}
    compiled = farflung.explore("FrozenLake-v1", horizon=20, **settings)
    stepped = farflung.explore(hosted("FrozenLake-v1", horizon=20), **settings)
    for metric, tolerance in (("entropy", 0.1), ("support", 0.5), ("policy_entropy", 1e-3)):
        assert abs(compiled.summary["random"][metric] - stepped.summary["random"][metric]) < tolerance


def test_states_numbered_as_met_have_their_ceiling_and_can_be_collected_from_again(tmp_path):
    def world():
        return hosted(
            lambda: gymnasium.make("CliffWalking-v1"), observe=lambda _, state: [state // 12, state % 12, 7], horizon=6
        )

    run = farflung.explore(world(), agents=2, updates=2, batch_size=2, seeds=(0,), out=tmp_path / "a")
    found, num_states = run.summary["ceiling"], run.world.num_states
    assert found["bound"] == pytest.approx(np.log(14))
    assert found["normalized_bound"] == pytest.approx(np.log(14) / np.log(num_states))
    assert run.config.learning_rate == 0.03
    given = world()
    loaded = farflung.load_run(tmp_path / "a", world=given)
    assert loaded.world.num_states == num_states
    assert given.num_states == 0
    assert len(farflung.collect(loaded, 4)) == 4


@pytest.mark.parametrize("settings", [{"observe": ("agent_pos", "agent_dir")}, {"observe": "image", "features": "agent_pos"}])
def test_the_walls_of_minigrid_are_read_and_saved(settings):
    rooms = hosted("minigrid:MiniGrid-FourRooms-v0", horizon=3, **settings)
    again = read_world(rooms.to_arrays())
    assert (again.walls, again.shifting_walls) == (rooms.walls, rooms.shifting_walls)
    is_wall, is_sometimes = np.zeros((2, 19, 19), bool)
    for cells, walls in ((is_wall, rooms.walls), (is_sometimes, rooms.shifting_walls)):
        for left, right, top, bottom in np.array(walls) + 0.5:
            cells[int(top) : int(bottom), int(left) : int(right)] = True
    border, between = np.ones((19, 19), bool), np.zeros((19, 19), bool)
    border[1:-1, 1:-1], border[9, 9] = False, True
    between[9, 1:-1] = between[1:-1, 9] = True
    np.testing.assert_array_equal(is_wall, border)  # each room's doors are anywhere between the corners
    np.testing.assert_array_equal(is_sometimes, between & ~border)


def test_a_world_without_a_grid_has_no_walls():
    assert hosted("CartPole-v1").walls == hosted("FrozenLake-v1", horizon=3).walls == ()
    assert hosted(**ROOMS, observe=("agent_dir",)).walls == ()  # its states are no places
    assert len(hosted(**ROOMS, observe=("agent_pos",)).walls) == 2 + 2 * 4
