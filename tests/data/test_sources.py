import gymnasium
import numpy as np
import pytest
from tests.data.teams import make_run

from farflung import collect, from_kernel, gridworld
from farflung.data.episodes import Contents
from farflung.data.sources import environment_spec, from_json, observed_world, source_of, to_json


@pytest.mark.parametrize(
    ("name", "settings", "expected", "options"),
    [
        ("room-det", {}, "farflung/Room-v0", {"stochastic": False}),
        ("maze-stoc", {"horizon": 4}, "farflung/Maze-v0", {"stochastic": True}),
        ("maze-stoc", {"slip": 0.5}, "farflung/Maze-v0", {"slip": 0.5}),
        ("Taxi-v4", {"horizon": 20}, "Taxi-v4", {}),
    ],
)
def test_a_world_with_a_name_is_an_environment(name, settings, expected, options):
    run = make_run(name, agents=1, seeds=(0,), **settings)
    spec = environment_spec(run.config, run.world)
    assert spec.id == expected
    assert spec.max_episode_steps == run.world.horizon
    assert spec.kwargs == options
    world = observed_world(gymnasium.make(spec))
    np.testing.assert_array_equal(world.successors, run.world.successors)


def test_a_map_is_an_environment_even_if_its_file_is_gone(tmp_path):
    path = tmp_path / "map.txt"
    path.write_text("#######\n#S.#..#\n#.....#\n#..G.S#\n#######")
    run = make_run(path, slip=0.3)
    path.unlink()
    spec = environment_spec(run.config, run.world)
    assert (spec.id, spec.kwargs["slip"]) == ("farflung/Grid-v0", 0.3)
    world = gymnasium.make(spec).unwrapped.world
    np.testing.assert_array_equal(world.successors, run.world.successors)
    np.testing.assert_array_equal(world.cumulative_probability, run.world.cumulative_probability)
    np.testing.assert_array_equal(world.start_states, run.world.start_states)


def test_a_map_made_in_python_is_an_environment_and_other_worlds_are_none():
    run = make_run(world=gridworld("..S..\n.#.#.", slip=0.1))
    assert environment_spec(run.config, run.world).kwargs == {"map": "..S..\n.#.#.", "slip": 0.1}
    chain = make_run(world=from_kernel([[[0.5, 0.5]], [[0, 1]]], [1, 0], horizon=4))
    assert environment_spec(chain.config, chain.world) is None
    assert source_of(chain, {}).environment is None


def test_a_source_is_read_back():
    run, contents = make_run("Taxi-v4", horizon=5), Contents()
    (data,) = contents.counting([collect(run, 4)])
    labels = np.asarray(run.world.labels)
    assert np.isin(data.observations[:, 0], labels[np.asarray(run.world.start_states)]).all()
    assert np.isin(data.observations, labels).all()
    source, found = contents.source, from_json(to_json(contents))
    assert (found.num_observations, found.num_actions, found.environment) == (500, 6, source.environment)
    assert (found.metadata["episodes"], found.metadata["transitions"]) == (4, 20)
    assert found.metadata["entropy"] == contents.entropy
    assert found.metadata["team"] == "Taxi-v4-3-agents/seed-5"
    np.testing.assert_array_equal(found.world.labels, source.world.labels)
    np.testing.assert_array_equal(found.world.rewards, source.world.rewards)
