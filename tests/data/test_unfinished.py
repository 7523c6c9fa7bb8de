import contextlib
import dataclasses
from functools import partial
from itertools import islice

import numpy as np
import pytest
from tests.data.teams import make_run

from farflung import collect, explore, hosted, load_dataset, save_dataset
from farflung.data.collecting import begun_parts, finish_parts, play_parts, random_team, resumed_parts
from farflung.data.episodes import joined
from farflung.runs.checkpoints import CheckpointWarning
from farflung.runs.destinations import claimed_file


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr("farflung.data.collecting._TRANSITIONS_PER_PART", 60)  # two rounds of three agents
    return make_run("maze-stoc")


@contextlib.contextmanager
def parts_folder(path, about, *, force=False):
    with claimed_file(path) as place, begun_parts(place, about, force=force) as folder:
        yield folder


def parts_of(run, first_part=0, before=None, *, is_random=False):
    return play_parts(run, 20, first_part=first_part, before=before, random=is_random)


def equal(one, other, first=0):
    """Whether one has the episodes of the other from the first on."""
    for name in ("observations", "actions", "rewards", "lengths", "terminated", "truncated", "agents"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name)[first:], err_msg=name)


def test_a_part_is_the_same_whether_those_before_it_are_played_or_not(run):
    whole = collect(run, 20)
    for first in range(4):
        equal(joined(parts_of(run, first)), whole, 6 * first)


def test_an_interrupted_collection_resumes_from_its_saved_parts(run, tmp_path):
    with parts_folder(tmp_path / "parts", {"episodes": 20}) as folder:
        played = []

        def play(first, before):
            played.append(first)
            return parts_of(run, first, before)

        assert len(list(islice(resumed_parts(folder, play), 2))) == 2
        equal(joined(resumed_parts(folder, play)), collect(run, 20))
        assert played == [0, 2]


def test_states_that_are_only_known_as_they_are_met_keep_their_numbers(monkeypatch, tmp_path):
    monkeypatch.setattr("farflung.data.collecting._HOSTED_TRANSITIONS_PER_PART", 60)
    world = hosted("FrozenLake-v1", horizon=10, observe="s", copies=2, is_slippery=False)
    met = world.snapshot()
    run = explore(world, agents=2, batch_size=1, updates=1, seeds=(0,))
    run = dataclasses.replace(run, world=met, policies=random_team(met))  # who has met nothing yet
    whole = collect(run, 20, random=True)
    play = partial(parts_of, run, is_random=True)
    with parts_folder(tmp_path / "parts", {}) as folder:
        (first,) = islice(resumed_parts(folder, play), 1)
        assert first.source.num_observations < whole.source.num_observations
        found = joined(finish_parts(resumed_parts(folder, play)))
    equal(found, whole)
    assert found.source == whole.source


def test_a_damaged_part_is_named_and_played_again(run, tmp_path):
    with parts_folder(tmp_path / "parts", {}) as folder:
        list(resumed_parts(folder, partial(parts_of, run)))
        broken = folder / "part-000001.npz"
        broken.write_bytes(broken.read_bytes()[:500])
        parts = resumed_parts(folder, partial(parts_of, run))
        with pytest.warns(CheckpointWarning, match=r"part-000001.npz is not a dataset that can be read.*it is played again"):
            found = joined(parts)
        equal(found, collect(run, 20))


def test_parts_of_another_dataset_are_only_discarded_with_force(run, tmp_path):
    path = tmp_path / "data.npz"
    with contextlib.suppress(RuntimeError), parts_folder(path, {"seed": 1}) as folder:
        save_dataset(collect(run, 3), folder / "part-000000.npz")
        raise RuntimeError
    with pytest.raises(ValueError, match=r"data.npz is unfinished, with seed 1 instead of 2: .* discard it with --force"):
        parts_folder(path, {"seed": 2}).__enter__()
    with pytest.raises(ValueError, match=r"data.npz is unfinished: "):
        save_dataset(collect(run, 3), path)
    with parts_folder(path, {"seed": 1}) as folder:
        assert len(load_dataset(folder / "part-000000.npz")) == 3
        with pytest.raises(ValueError, match="is in use by process"), parts_folder(path, {"seed": 1}):
            pass
    with parts_folder(path, {"seed": 2}, force=True) as folder:
        assert not list(folder.glob("part*"))
    assert not list(tmp_path.iterdir())
