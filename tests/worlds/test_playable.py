import sys

import equinox as eqx
import gymnasium
import numpy as np
import pygame
import pytest
from gymnasium.utils.env_checker import check_env

from farflung import from_gymnasium, gridworld, make_tabular_world

LEFT, DOWN, RIGHT, UP = range(4)
SEVERAL_STARTS = "S..G\n.#..\nS..S"


@pytest.fixture(autouse=True)
def no_screen(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Room", {}),
        ("Maze", {"stochastic": True}),
        ("Room", {"goal": (4, 0), "slip": 0.5}),
        ("Grid", {"map": SEVERAL_STARTS}),
    ],
)
def test_gymnasiums_own_checks_pass(name, options, monkeypatch):
    environment = gymnasium.make(f"farflung/{name}-v0", **options).unwrapped
    monkeypatch.setitem(environment.metadata, "render_fps", 1000)
    check_env(environment)


@pytest.mark.parametrize(
    ("name", "options", "world"),
    [
        ("Room", {}, "room-det"),
        ("Room", {"stochastic": True}, "room-stoc"),
        ("Maze", {"slip": 0.2}, "maze-stoc"),
        ("Maze", {"stochastic": True, "slip": 0.0}, "maze-det"),
    ],
)
def test_the_papers_worlds_come_back_unchanged(name, options, world):
    environment = gymnasium.make(f"farflung/{name}-v0", **options)
    assert eqx.tree_equal(from_gymnasium(environment), make_tabular_world(world))
    assert environment.observation_space.n == 43


def test_an_id_is_a_world():
    assert eqx.tree_equal(make_tabular_world("farflung/Maze-v0"), make_tabular_world("maze-det"))
    assert make_tabular_world("farflung/Maze-v0", horizon=5).horizon == 5


class OnlyATable(gymnasium.Env):
    """One of our environments with nothing but toy-text's table."""

    def __init__(self, environment):
        self.P, self.initial_state_distrib = environment.P, environment.initial_state_distrib


@pytest.mark.parametrize("options", [{"goal": (4, 0), "stochastic": True}, {"map": SEVERAL_STARTS, "slip": 0.3}, {}])
def test_the_transition_table_holds_the_whole_world(options):
    environment = gymnasium.make("farflung/Room-v0", **options).unwrapped
    world, table = environment.world, from_gymnasium(OnlyATable(environment), horizon=environment.world.horizon)
    for field in ("successors", "cumulative_probability", "rewards", "start_states", "start_cumulative_probability"):
        np.testing.assert_array_equal(getattr(table, field), getattr(world, field))


def test_reaching_the_goal_gives_its_reward_and_ends_the_episode():
    environment = gymnasium.make("farflung/Room-v0", goal=(2, 3))
    _, info = environment.reset()
    walk = [(info["position"].tolist(), 0.0, False, False)]
    for action in (UP, LEFT, LEFT):
        _, reward, is_terminated, is_truncated, info = environment.step(action)
        walk.append((info["position"].tolist(), reward, is_terminated, is_truncated))
    assert walk == [
        ([2, 5], 0, False, False),
        ([2, 5], 0, False, False),
        ([2, 4], 0, False, False),
        ([2, 3], 1, True, False),
    ]


@pytest.mark.parametrize(("name", "limit"), [("Room", 8), ("Maze", 10)])
def test_without_a_goal_an_episode_is_truncated_at_the_papers_horizon(name, limit):
    environment = gymnasium.make(f"farflung/{name}-v0", stochastic=True)
    environment.reset(seed=0)
    results = [environment.step(time % 4)[1:4] for time in range(limit)]
    assert results == [(0.0, False, False)] * (limit - 1) + [(0.0, False, True)]


def test_steps_follow_the_worlds_probabilities():
    environment = gymnasium.make("farflung/Grid-v0", map="...\n.S.\n...", slip=0.4).unwrapped
    cells = []
    environment.reset(seed=0)
    for _ in range(4000):
        environment.reset()
        cells.append(tuple(environment.step(RIGHT)[4]["position"].tolist()))
    shares = {cell: cells.count(cell) / 4000 for cell in set(cells)}
    assert shares == pytest.approx({(1, 2): 0.6, (1, 0): 0.4 / 3, (0, 1): 0.4 / 3, (2, 1): 0.4 / 3}, abs=0.025)


def test_starts_are_drawn_uniformly():
    environment = gymnasium.make("farflung/Grid-v0", map=SEVERAL_STARTS)
    environment.reset(seed=0)
    starts = [environment.reset()[0] for _ in range(3000)]
    counts = np.bincount(starts, minlength=11)[np.asarray(environment.unwrapped.world.start_states)]
    np.testing.assert_allclose(counts / 3000, 1 / 3, atol=0.03)


def test_a_map_may_be_a_file(tmp_path):
    path = tmp_path / "corridor.txt"
    path.write_text("S...\n", encoding="utf-8")
    for given in (str(path), path, "S..."):
        environment = gymnasium.make("farflung/Grid-v0", map=given)
        assert eqx.tree_equal(environment.unwrapped.world, gridworld("S..."))


def test_a_goal_option_replaces_the_maps_goals():
    environment = gymnasium.make("farflung/Grid-v0", map="S.G", goal=(0, 1), render_mode="ansi")
    environment.reset()
    assert environment.render() == "@G."
    assert environment.step(RIGHT)[1:3] == (1.0, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"goal": (0, 5)}, r"goal \(0, 5\) is in a wall"),
        ({"goal": (9, 9)}, "off the map"),
        ({"goal": (2, 5)}, "start cell cannot be a goal"),
        ({"goal": (1, 2, 3)}, r"a row and a column, not \(1, 2, 3\)"),
        ({"map": "S.#.", "goal": (0, 3)}, r"goal \(0, 3\) cannot be reached"),
        ({"slip": 1.5}, "slip is a probability"),
        ({"map": "nowhere.txt"}, "'nowhere.txt' is neither the text of a map nor the path of a file"),
        ({"map": "S.x\n..."}, "unknown character 'x'"),
        ({"map": ""}, "empty"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        gymnasium.make("farflung/Room-v0", **options)


def test_a_bad_map_file_is_named(tmp_path):
    path = tmp_path / "ragged.txt"
    path.write_text("S...\n..", encoding="utf-8")
    with pytest.raises(ValueError, match=r"ragged\.txt: the map is ragged"):
        gymnasium.make("farflung/Grid-v0", map=str(path))


def test_a_grid_needs_a_map():
    with pytest.raises(ValueError, match="a map is needed"):
        gymnasium.make("farflung/Grid-v0")


@pytest.mark.parametrize("action", [-1, 4])
def test_an_action_that_does_not_exist_is_refused(action):
    environment = gymnasium.make("farflung/Room-v0").unwrapped
    environment.reset()
    with pytest.raises(ValueError, match=rf"0 \(left\), 1 \(down\), 2 \(right\) or 3 \(up\), not {action}"):
        environment.step(action)


def test_an_unknown_render_mode_is_refused():
    with (
        pytest.warns(UserWarning, match="not in the possible"),
        pytest.raises(ValueError, match="unknown render_mode 'braille'"),
    ):
        gymnasium.make("farflung/Room-v0", render_mode="braille")


def test_text_shows_the_map_and_the_agent():
    environment = gymnasium.make("farflung/Room-v0", goal=(4, 0), render_mode="ansi")
    environment.reset()
    environment.step(LEFT)
    assert environment.render().splitlines() == ["....###....", "....###....", "....@S.....", "....###....", "G...###...."]


def test_render_without_a_mode_warns():
    environment = gymnasium.make("farflung/Room-v0").unwrapped
    environment.reset()
    with pytest.warns(UserWarning, match="without a render_mode"):
        assert environment.render() is None


def test_a_window_shows_every_step_until_it_is_closed():
    environment = gymnasium.make("farflung/Room-v0", render_mode="human")
    picture = gymnasium.make("farflung/Room-v0", render_mode="rgb_array")
    for each in (environment, picture):
        each.reset()
        each.step(LEFT)
    np.testing.assert_array_equal(pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1), picture.render())
    pygame.event.post(pygame.event.Event(pygame.QUIT))
    environment.step(LEFT)
    assert not pygame.display.get_init()
    environment.step(LEFT)
    assert not pygame.display.get_init()
    environment.close()
    environment.close()


def test_a_missing_pygame_is_one_line_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(gymnasium.error.DependencyNotInstalled, match=r"pip install '\.\[play\]'") as error:
        gymnasium.make("farflung/Room-v0", render_mode="human")
    assert "\n" not in str(error.value)
