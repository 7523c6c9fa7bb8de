import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung import MAZE, ROOM, gridworld, make_tabular_world

LEFT, DOWN, RIGHT, UP = range(4)


def state_at(world, row, column):
    return int(np.flatnonzero((np.asarray(world.positions) == [row, column]).all(axis=1))[0])


def label_after(world, row, column, action):
    noise = jnp.zeros(world.num_step_uniforms)
    return int(world.labels[world.step_from(noise, jnp.int32(state_at(world, row, column)), jnp.int32(action))])


@pytest.mark.parametrize("name", ["room-det", "room-stoc", "maze-det", "maze-stoc"])
def test_the_papers_worlds_have_43_states_and_4_actions(name):
    world = make_tabular_world(name)
    assert (world.num_states, world.num_actions) == (43, 4)


def test_the_papers_horizons_and_starts():
    room, maze = make_tabular_world("room-det"), make_tabular_world("maze-det")
    assert (room.horizon, maze.horizon) == (8, 10)
    assert int(room.labels[room.start_states[0]]) == 2 * 11 + 5
    assert int(maze.labels[maze.start_states[0]]) == 5 * 10 + 6


def test_actions_are_left_down_right_up():
    room = make_tabular_world("room-det")
    assert [label_after(room, 1, 1, action) for action in range(4)] == [11, 23, 13, 1]


def test_a_wall_and_the_edge_of_the_map_stop_a_step():
    room = make_tabular_world("room-det")
    assert label_after(room, 2, 5, UP) == 2 * 11 + 5
    assert label_after(room, 0, 0, LEFT) == 0
    assert label_after(room, 4, 10, DOWN) == 4 * 11 + 10


def test_a_slip_takes_each_other_action_with_equal_probability():
    world = make_tabular_world("room-stoc")
    state = state_at(world, 1, 1)
    probability = dict(
        zip(np.asarray(world.labels)[world.successors[state, RIGHT]], world.probabilities[state, RIGHT], strict=True)
    )
    assert {int(k): round(float(v), 4) for k, v in probability.items()} == {1: 0.0667, 11: 0.0667, 13: 0.8, 23: 0.0667}


def test_slips_into_the_same_cell_add_up():
    world = gridworld("S.", slip=0.3)
    probabilities = np.zeros((2, 4, 2))
    np.add.at(probabilities, (*np.indices(world.successors.shape)[:2], world.successors), world.probabilities)
    np.testing.assert_allclose(probabilities[0, RIGHT], [0.3, 0.7], atol=1e-6)
    np.testing.assert_allclose(probabilities[0, LEFT], [0.9, 0.1], atol=1e-6)


def test_several_starts_are_drawn_uniformly():
    world = gridworld("S.S#S")
    assert world.num_states == 4
    np.testing.assert_allclose(world.start_distribution, [1 / 3, 0, 1 / 3, 1 / 3], atol=1e-6)
    starts = jax.vmap(world.reset_from)(jax.random.uniform(jax.random.key(0), (3000, 1)))
    np.testing.assert_allclose(np.bincount(starts, minlength=4) / 3000, [1 / 3, 0, 1 / 3, 1 / 3], atol=0.04)


def test_a_goal_gives_its_reward_once_and_is_absorbing():
    world = gridworld(ROOM, goals=[(4, 0)])
    goal, above = state_at(world, 4, 0), state_at(world, 3, 0)
    assert (np.asarray(world.successors[goal]) == goal).all()
    assert float(world.rewards[goal].sum()) == 0
    assert float(world.rewards[above, DOWN, 0]) == 1
    assert float(world.rewards.sum()) == 2  # from above and from the right


def test_cells_behind_walls_and_goals_are_not_states():
    assert gridworld("S.#.").num_states == 2
    assert gridworld("S.G.").num_states == 3


def test_the_horizon_defaults_to_the_distance_of_the_farthest_cell():
    assert gridworld(MAZE).horizon == 10
    assert gridworld(ROOM).horizon == 7


def test_a_deterministic_world_needs_no_noise():
    world = make_tabular_world("maze-det")
    assert world.is_deterministic
    assert (world.num_reset_uniforms, world.num_step_uniforms) == (0, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("\n\n", "empty"),
        ("S..\n....", "ragged: line 2 has 4 cells, line 1 has 3"),
        ("...", "no start"),
        ("S.x", "unknown character 'x' in line 1, column 3"),
        ("S", "nothing to explore"),
        ("S#.", "nothing to explore"),
    ],
)
def test_a_bad_map_is_refused_in_one_line(text, message):
    with pytest.raises(ValueError, match=message) as error:
        gridworld(text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slip": -0.1}, "slip"),
        ({"slip": 1.1}, "slip"),
        ({"slip": float("nan")}, "slip"),
        ({"horizon": 0}, "horizon"),
        ({"starts": [(0, 4)]}, r"start \(0, 4\) is in a wall"),
        ({"starts": [(9, 9)]}, "off the map"),
        ({"goals": [(0, 5)]}, "wall"),
        ({"goals": [(2, 5)]}, "start cell cannot be a goal"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        gridworld(ROOM, **options)


maps = st.integers(1, 6).flatmap(
    lambda width: st.lists(st.text("#..S", min_size=width, max_size=width), min_size=1, max_size=6).map("\n".join)
)


@given(maps, st.floats(0, 1))
def test_every_map_is_a_world_or_a_clear_error(text, slip):
    try:
        world = gridworld(text, slip=slip)
    except ValueError as error:
        if not any(words in str(error) for words in ("no start", "nothing to explore")):
            raise
        return
    # Walking from the starts by hand reaches the same cells.
    cells = text.strip("\n").splitlines()
    frontier = {(r, c) for r, line in enumerate(cells) for c, cell in enumerate(line) if cell == "S"}
    reached = set()
    while frontier:
        reached |= frontier
        frontier = {
            (r + dr, c + dc)
            for r, c in frontier
            for dr, dc in ((0, -1), (1, 0), (0, 1), (-1, 0))
            if 0 <= r + dr < len(cells) and 0 <= c + dc < len(cells[0]) and cells[r + dr][c + dc] != "#"
        } - reached
    assert {tuple(position) for position in np.asarray(world.positions).tolist()} == reached
    np.testing.assert_allclose(world.probabilities.sum(-1), 1, atol=1e-6)
    assert (np.asarray(world.cumulative_probability[..., -1]) == 1).all()
