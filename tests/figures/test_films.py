import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from tests.made_runs import made_continuous_run, made_run

from farflung import TabularSoftmax, explore, gridworld, hosted
from farflung.figures.film import draw_episodes, draw_frames, episode_of, film, moments_of


@pytest.fixture(scope="module")
def run():
    return made_continuous_run("point-gap", num_steps=5, agents=2, seeds=(0,))


def test_a_film_has_a_picture_for_each_step_and_holds_the_last_one(run, tmp_path):
    seen = []
    path = film(run, tmp_path / "film.gif", seconds=1.0, on_progress=lambda *done: seen.append(done))
    with Image.open(path) as picture:
        assert picture.n_frames == 6
        durations = []
        for number in range(6):
            picture.seek(number)
            durations.append(picture.info["duration"])
    assert seen == [(number, 6) for number in range(1, 7)]
    assert durations[-1] > 1500 > 5 * max(durations[:-1])
    assert [child.name for child in tmp_path.iterdir()] == ["film.gif"]


@pytest.mark.parametrize(("seconds", "fps"), [(1e-300, 1), (1.7e308, 100)])
def test_extreme_settings_make_no_more_pictures_than_needed(run, tmp_path, monkeypatch, seconds, fps):
    with Image.open(film(run, tmp_path / "film.gif", seconds=seconds, fps=fps)) as picture:
        assert picture.n_frames == (2 if seconds < 1 else 6)
    monkeypatch.setattr("farflung.figures.film._MOST_FRAMES", 5)
    with pytest.raises(ValueError, match="a film has at most 5 pictures, not 6: choose fewer seconds or fps"):
        film(run, tmp_path / "other.gif")


def test_the_visited_cells_are_counted_up_to_each_time(run):
    episode = episode_of(run, 1)
    for time in (0, 3, 5):
        cells = np.asarray(episode.cells[:, :, : time + 1]).ravel()
        shares = np.unique(cells, return_counts=True)[1] / len(cells)
        assert episode.covered(time) == (len(shares), pytest.approx(-np.sum(shares * np.log(shares)) / np.log(400)))


def test_a_picture_shows_the_agents_and_the_visited_cells(run):
    episode = episode_of(run)
    figure, show = draw_episodes([episode])
    show(4)
    (axis,) = figure.axes
    cells, _, dots = (axis.collections[number] for number in range(3))
    np.testing.assert_allclose(dots.get_offsets(), run.paths.features[0, :, 0, 4])
    assert (np.asarray(cells.get_array()) == 2).sum() == episode.covered(4)[0]
    assert "step 4 of 5" in axis.get_title(loc="left")


def test_a_map_is_filmed_too_with_agents_in_the_middle_of_their_cells():
    made = made_run(environment=gridworld("S..\n.#.", horizon=3), agents=1, seeds=(0,))
    episode = episode_of(dataclasses.replace(made, policies=TabularSoftmax(jnp.zeros((1, 1, 5, 4)), False)))
    np.testing.assert_array_equal(episode.points[0, 0, 0], (0.5, 1.5))
    assert set(np.abs(np.diff(episode.points[0, 0], axis=0)).ravel()) <= {0.0, 1.0}
    assert episode.num_cells == 5


def test_an_episode_that_cannot_be_filmed_is_refused(run, tmp_path):
    with pytest.raises(ValueError, match="has recorded 2 batch elements, numbered from 0: there is no 2"):
        film(run, tmp_path / "film.gif", element=2)
    with pytest.raises(ValueError, match="has no recorded paths"):
        film(dataclasses.replace(run, paths=None), tmp_path / "film.gif")
    with pytest.raises(ValueError, match=r"ends with \.gif or \.mp4, unlike film\.avi"):
        film(run, tmp_path / "film.avi")
    assert list(tmp_path.iterdir()) == []


def test_a_hosted_world_is_filmed_on_its_map_and_as_it_renders(tmp_path):
    rooms = hosted("minigrid:MiniGrid-Empty-5x5-v0", observe=("agent_pos", "agent_dir"), horizon=3, tile_size=4)
    run = explore(rooms, agents=2, updates=2, batch_size=2, seeds=(0,))
    episode = episode_of(run)
    assert episode.points.shape == (2, 1, 4, 2)
    assert episode.covered(0)[0] == 1  # all agents start in one cell
    figure, _, horizon = draw_frames(run)
    first = [axis.images[0].get_array().copy() for axis in figure.axes]
    assert horizon == 3
    assert [frame.shape for frame in first] == [(20, 20, 3)] * 2
    np.testing.assert_array_equal(*first)
    with pytest.raises(ValueError, match="compiled and renders no frames"):
        draw_frames(made_run("room-det"))


def test_a_film_of_training_shows_an_episode_at_each_moment():
    run = explore("room-det", agents=2, batch_size=4, preset="paper", updates=6, seeds=(0,))
    episodes = moments_of(run)
    assert [each.when for each in episodes] == [f"update {update}, " for update in run.playback.updates]
    figure, show = draw_episodes(episodes)
    show(2 * (run.world.horizon + 1) - 1)
    assert f"{episodes[1].when}step {run.world.horizon} of {run.world.horizon}" in figure.axes[0].get_title(loc="left")
    below, cells = figure.axes[1], [len(np.unique(moment[0])) for moment in run.playback.moments]
    assert [bar.get_height() for bar in below.patches] == [*cells[:2], *([0] * (len(cells) - 2))]
    assert [text.get_text() for text in below.texts[:3]] == [*map(str, cells[:2]), ""]
    assert [label.get_text() for label in below.get_xticklabels()] == [str(update) for update in run.playback.updates]
    show(0)  # all agents are at the start
    assert [bar.get_height() for bar in below.patches] == [1, *([0] * (len(cells) - 1))]
    assert len(draw_episodes(episodes[:1])[0].axes) == 1
    with pytest.raises(ValueError, match="--training and --rendered exclude each other"):
        film(run, "film.gif", training=True, rendered=True)
