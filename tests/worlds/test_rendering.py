import numpy as np
import pytest

from farflung.worlds.as_gymnasium.rendering import draw_agent, draw_map

CELLS = np.array([list("S#."), list("..G")])


def middle_of(picture, row, column):
    height, width = picture.shape[0] // 2, picture.shape[1] // 3
    return tuple(picture[row * height + height // 2, column * width + width // 2].tolist())


def test_walls_free_cells_and_goals_have_their_colours():
    picture = draw_map(CELLS)
    assert picture.shape == (96, 144, 3)
    assert middle_of(picture, 0, 1) == (95, 99, 104)
    assert middle_of(picture, 0, 2) == middle_of(picture, 1, 0) == (255, 255, 255)
    assert middle_of(picture, 1, 2) == (47, 143, 91)


def test_a_start_is_ringed():
    ring = (draw_map(CELLS) == (232, 89, 12)).all(axis=-1)
    assert ring[:48, :48].sum() == ring.sum() > 100
    assert not ring[24, 24]


@pytest.mark.parametrize("agent", [(0, 0), (0, 2), (1, 2)])
def test_only_the_agents_cell_changes(agent):
    background = draw_map(CELLS)
    before = background.copy()
    picture = draw_agent(background, CELLS, agent)
    np.testing.assert_array_equal(background, before)
    assert middle_of(picture, *agent) == (37, 99, 168)
    rows, columns, _ = np.nonzero(picture != background)
    assert {*zip((rows // 48).tolist(), (columns // 48).tolist(), strict=True)} == {agent}


def test_a_large_map_makes_no_huge_picture():
    cells = np.full((20, 700), ".")
    assert draw_map(cells).shape == (20, 700, 3)
    assert tuple(draw_agent(draw_map(cells), cells, (3, 4))[3, 4].tolist()) == (37, 99, 168)
