import dataclasses

import pytest
from matplotlib.figure import Figure
from tests.made_runs import made_continuous_run

from farflung import explore, figures
from farflung.runs.run import Paths
from farflung.worlds.vectors import Projection


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


@pytest.mark.parametrize(
    ("world", "settings", "expected"),
    [
        ("point-gap", {"agents": 3}, {"where each agent goes (seed 0)", "where the team is, in 2 repetitions", "x", "y"}),
        ("pendulum", {"agents": 1}, {"where the agent goes (seed 0)", "angle (rad)", "angular velocity (rad/s)"}),
        ("point-room", {"agents": 2, "single": True}, {"where each trajectory goes (seed 0)"}),
        ("mountain-car", {"agents": 13}, {"position", "velocity", "where each agent goes (seed 0)"}),
    ],
)
def test_a_run_where_states_are_vectors_is_drawn_with_labelled_axes(world, settings, expected):
    figure = figures.explored(made_continuous_run(world, **settings))
    always = {"cell entropy\n/ log(cells)", "cells visited", "k-NN entropy\n(nats, k = 4)", "policy updates"}
    assert always | expected <= set(texts(figure))


def test_one_feature_is_drawn_over_time_and_of_many_the_first_two():
    run = made_continuous_run("pendulum", agents=2)
    for num_features, expected in ((1, {"step", "a", "share of visits"}), (3, {"a; not shown: c", "b"})):
        names, ones = ("a", "b", "c")[:num_features], (1.0,) * num_features
        projection = Projection(
            tuple(range(num_features)), names, (-4.0,) * num_features, (4.0,) * num_features, (5,) * num_features, ones
        )
        world = dataclasses.replace(run.world, projection=projection)
        features = run.paths.features[..., [0, 1, 0][:num_features]]
        figure = figures.explored(dataclasses.replace(run, world=world, paths=Paths(0, features)))
        assert expected <= set(texts(figure))
