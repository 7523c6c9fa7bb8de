import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

from farflung import explore, figures, gridworld


def texts(figure):
    canvas = [text.get_text() for axis in figure.get_axes() for text in (axis.title, axis.xaxis.label, axis.yaxis.label)]
    return [text for text in [*canvas, figure.get_suptitle()] if text]


@pytest.mark.parametrize(
    ("world", "settings", "expected"),
    [
        ("maze-det", {"agents": 2}, {"where the team is (seed 0)", "agent 1", "agent 2"}),
        ("room-stoc", {"agents": 13}, {"where the team is (seed 0)", "agent 12"}),
        ("room-det", {"agents": 3, "single": True}, {"where the policy is (seed 0)"}),
        ("Taxi-v4", {"agents": 2, "horizon": 5}, {"distinct states visited"}),
    ],
)
def test_a_run_is_drawn_with_labelled_axes(world, settings, expected, tmp_path):
    run = explore(world, **settings, batch_size=2, updates=5, seeds=(0,))
    figure = figures.explored(run)
    assert isinstance(figure, Figure)
    assert {"state entropy / log(states)", "distinct states visited", "policy updates", *expected} <= set(texts(figure))
    assert "agent 13" not in texts(figure)
    figure.savefig(tmp_path / "figure.png")


def test_a_map_shows_each_states_value_in_its_cell():
    world = gridworld("S.#\n..#")
    image = figures.draw_on_map(Figure().subplots(), world, np.asarray(jnp.arange(4.0)))
    np.testing.assert_array_equal(image.get_array().filled(np.nan), [[0, 1], [2, 3]])
