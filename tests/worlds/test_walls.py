from fractions import Fraction

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays

from farflung.worlds.walls import is_blocked, reachable_areas, read_layout, wall_table, walls_of_layouts

quarters = st.integers(-8, 8).map(lambda number: number / 4)
points = st.tuples(quarters, quarters)
intervals = st.tuples(quarters, quarters).map(sorted)
rectangles = st.tuples(intervals, intervals).map(lambda pair: (*pair[0], *pair[1]))


def meets(wall, here, there, margin=0):
    """Whether a part of the segment lies inside the wall, by clipping in exact fractions."""
    begin, end = Fraction(0), Fraction(1)
    for axis in (0, 1):
        low, high = Fraction(float(wall[2 * axis])) - margin, Fraction(float(wall[2 * axis + 1])) + margin
        start = Fraction(float(here[axis]))
        length = Fraction(float(there[axis])) - start
        if length == 0:
            if not low <= start <= high:
                return False
        else:
            enters, leaves = sorted([(low - start) / length, (high - start) / length])
            begin, end = max(begin, enters), min(end, leaves)
    return begin <= end


@given(walls=st.lists(rectangles, max_size=4), here=points, there=points)
def test_a_segment_is_blocked_if_and_only_if_it_touches_a_wall(walls, here, there):
    blocked = bool(is_blocked(wall_table(walls), np.float32(here), np.float32(there)))
    assert blocked == any(meets(wall, here, there) for wall in walls)


def test_rounding_errs_by_no_more_than_a_hair_and_towards_the_wall():
    draw = np.random.default_rng(0)
    corners = np.sort(draw.uniform(-6, 6, (500, 2, 2)).astype(np.float32))
    corners[::3, 0, 1] = corners[::3, 0, 0]  # a third of the walls are lines
    lines = draw.uniform(-6, 6, (500, 2, 2)).astype(np.float32)
    walls = corners.reshape(-1, 4)
    blocked = np.asarray(jax.jit(jax.vmap(lambda wall, line: is_blocked(wall[None], *line)))(walls, lines))
    for wall, (here, there), is_stopped in zip(walls, lines, blocked, strict=True):
        assert is_stopped >= meets(wall, here, there)
        assert is_stopped <= meets(wall, here, there, margin=Fraction(1, 10_000))


def test_no_segment_passes_between_two_adjacent_walls():
    walls = wall_table([(0.3, 0.3, -1.0, 0.1), (0.3, 0.3, 0.1, 1.0)])
    draw = np.random.default_rng(1)
    slopes = draw.uniform(-1, 1, 20_000)
    here = np.stack([np.full_like(slopes, 0.25), 0.1 - 0.05 * slopes], axis=-1).astype(np.float32)
    there = np.stack([np.full_like(slopes, 0.36), 0.1 + 0.06 * slopes], axis=-1).astype(np.float32)
    assert jax.jit(jax.vmap(is_blocked, (None, 0, 0)))(walls, here, there).all()


def areas(walls, starts=((0.5, 0.5, 0.5, 0.5),), bins=(3, 2)):
    return reachable_areas(
        (0.0, 0.0), (3.0, 2.0), bins, *([tuple(map(float, row)) for row in rows] for rows in (walls, starts))
    )


def test_the_area_behind_a_closed_wall_cannot_be_reached():
    assert areas([]).tolist() == [[1, 1], [1, 1], [1, 1]]
    assert areas([(1, 1, 0, 2)]).tolist() == [[1, 1], [0, 0], [0, 0]]
    assert areas([(1, 1, 0, 1.9)]).sum() == pytest.approx(6)
    assert areas([(1, 1, 0, 1), (1, 1, 1, 2)], starts=[(2, 2, 1, 1)]).tolist() == [[0, 0], [1, 1], [1, 1]]
    assert areas([(1, 1, 0, 2)], starts=[(0.2, 0.8, 0, 1), (2.5, 2.5, 0.5, 0.5)]).sum() == 6


@given(walls=st.lists(rectangles, max_size=4))
def test_the_area_outside_walls_is_that_of_unit_squares(walls):
    walls = [tuple(4 * number for number in wall) for wall in walls]
    middles = np.arange(-8, 8) + 0.5
    is_covered = np.zeros((16, 16), bool)
    for left, right, bottom, top in walls:
        is_covered |= np.outer((left < middles) & (middles < right), (bottom < middles) & (middles < top))
    everywhere = [(x, x, y, y) for x in middles for y in middles]  # so that nothing is out of reach
    free = reachable_areas((-8.0, -8.0), (8.0, 8.0), (16, 16), walls, everywhere)
    np.testing.assert_allclose(free, ~is_covered)


@given(layouts=arrays(bool, (3, 4, 5)))
def test_walls_of_layouts_cover_the_cells_that_are_walls_always_or_sometimes(layouts):
    found = walls_of_layouts(layouts)
    for row, column in np.ndindex(4, 5):
        covers = {
            name: sum(left < column < right and bottom < row < top for left, right, bottom, top in walls)
            for name, walls in found.items()
        }
        number = layouts[:, row, column].sum()
        assert covers == {"walls": number == 3, "shifting_walls": 0 < number < 3}


@pytest.mark.parametrize(
    "walls",
    [[[0, 1, 0]], [[1, 0, 0, 1]], [[0, 1, 1, 0]], [[0, 1, 0, np.inf]], [["0", 1, 0, 1]], [[0, 1, 0, 1]] * 10_001, 3, "wall"],
)
def test_walls_from_a_file_are_checked(walls):
    assert read_layout({}) == {"walls": (), "shifting_walls": ()}
    assert read_layout({"walls": [[0, 1, 0, 0]]})["walls"] == ((0.0, 1.0, 0.0, 0.0),)
    with pytest.raises(ValueError, match="wall"):
        read_layout({"shifting_walls": walls})
