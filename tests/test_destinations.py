import json
import os

import gymnasium
import numpy as np
import pytest
from tests.data.teams import make_run
from tests.killing import killed_at
from tests.made_runs import made_continuous_run

from farflung import Explore, collect, explore, film, hosted, load_run, make_tabular_world, save_dataset, save_run
from farflung.cli.suites import _run as run_suite
from farflung.cli.terminal import Printing
from farflung.runs.checkpoints import new_checkpoints
from farflung.runs.destinations import claimed, claimed_file, open_results
from farflung.studies.explore import _has_own_parts
from farflung.worlds.hosted.pool import SimulatorWarning


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def write(folder, contents):
    for name, text in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


OLD = {"config.json": "old", "metrics.csv": "old", "figures/a.png": "old", "stale.csv": "old", "notes.txt": "mine"}
NEW = {"config.json": "new", "metrics.csv": "new", "figures/b.png": "new", "more/c.csv": "new"}


def replace_old(out):
    with claimed(out) as place:
        write(place.fresh(), NEW)
        place.publish({name.partition("/")[0] for name in OLD | NEW}, ["stale.csv"])


def test_results_are_replaced_all_or_none_wherever_the_process_is_killed(tmp_path):
    write(tmp_path / "whole", OLD)
    with killed_at(tmp_path, None) as events:
        replace_old(tmp_path / "whole")
    wanted = {**NEW, "notes.txt": "mine"}
    assert files(tmp_path / "whole") == wanted
    assert len(events) > 20
    seen = []
    for number in range(1, len(events) + 1):
        out = tmp_path / str(number)
        write(out, OLD)
        with killed_at(tmp_path, number):
            replace_old(out)
        with claimed(out) as place:  # whatever command comes next
            assert place.others()
        assert files(out) in (OLD, wanted), events[number - 1]
        seen.append(files(out) == wanted)
        replace_old(out)
        assert files(out) == wanted
    assert seen == sorted(seen)  # first the old results, then the new ones
    assert set(seen) == {False, True}


def test_a_second_command_names_the_process_that_has_the_destination(tmp_path):
    with open_results(tmp_path / "out", "compare", {}) as save:
        with pytest.raises(ValueError, match=rf"out is in use by process {os.getpid()} on "):
            open_results(tmp_path / "out", "compare", {}, force=True).__enter__()
        save({"a.json": 1})
    assert files(tmp_path / "out").keys() == {"a.json", "contents.json"}


def test_results_of_other_settings_stay_until_new_ones_are_complete(tmp_path):
    for settings in ({"seed": 1}, {"seed": 2}):
        with open_results(tmp_path / "out", "offline", settings, force=True) as save:
            save({f"{settings['seed']}.json": 1})
    with pytest.raises(RuntimeError), open_results(tmp_path / "out", "offline", {"seed": 3}, force=True):
        raise RuntimeError
    assert files(tmp_path / "out").keys() == {"2.json", "contents.json"}


def test_a_suite_holds_its_folder_until_the_page_is_written(tmp_path):
    def write_page(found, out):
        with pytest.raises(ValueError, match="is in use by process"):
            claimed(tmp_path / "out").__enter__()
        return {"found": found}

    shown = []
    run_suite("paper", tmp_path / "out", Printing(), lambda **_: 3, write_page, lambda summary, _: shown.append(summary))
    assert shown == [{"found": 3}]


@pytest.mark.parametrize("name", ["unfinished", "results/unfinished"])
def test_a_folder_of_the_users_is_never_taken_for_what_is_unfinished(tmp_path, name):
    write(tmp_path, {f"{name}/chapter.tex": "years of work"})
    with pytest.raises(ValueError, match="unfinished is not farflung's: choose another directory"):
        claimed((tmp_path / name).parent).__enter__()
    assert files(tmp_path) == {f"{name}/chapter.tex": "years of work"}


@pytest.mark.parametrize("removed", [[".."], ["../letter"], ["letter"], 3])
@pytest.mark.parametrize("knows_inode", [True, False])
def test_a_journal_of_others_removes_nothing(tmp_path, removed, knows_inode):
    write(tmp_path, {"letter": "dear", "here/letter": "dear"})
    place, use = (".data.npz-unfinished", claimed_file(tmp_path / "here" / "data.npz"))
    if not knows_inode:
        place, use = ("unfinished", claimed(tmp_path / "here"))
    complete = tmp_path / "here" / place / "complete"
    complete.mkdir(parents=True)
    (complete.parent / "lock").touch()
    inode = complete.stat().st_ino if knows_inode else 1
    about = {"replaced": ["letter"], "removed": removed, "is_final": True, "inode": inode}
    (complete / "journal.json").write_text(json.dumps(about))
    with use:
        pass
    assert files(tmp_path) == {"letter": "dear", "here/letter": "dear"}


def test_what_a_killed_film_has_left_is_no_reason_to_keep_a_run(tmp_path):
    run = make_run()
    save_run(run, tmp_path / "run")
    write(tmp_path / "run", {".film.gif-unfinished/lock": "", ".film.gif-unfinished/new/film.gif": "half"})
    save_run(run, tmp_path / "run", force=True)
    assert ".film.gif-unfinished" not in {path.name for path in (tmp_path / "run").iterdir()}
    with claimed_file(tmp_path / "run" / "film.gif"), pytest.raises(ValueError, match=r"film\.gif is in use by process"):
        save_run(run, tmp_path / "run", force=True)


def test_a_file_that_appears_meanwhile_is_kept(tmp_path):
    data = collect(make_run(), 3)

    def parts():
        (tmp_path / "data.npz").write_text("theirs")
        yield data

    with pytest.raises(ValueError, match=r"data\.npz has appeared in the meantime, so it is not replaced"):
        save_dataset(parts(), tmp_path / "data.npz")
    run, path = made_continuous_run(num_steps=3, agents=2, seeds=(0,)), tmp_path / "film.gif"
    with pytest.raises(ValueError, match=r"film\.gif has appeared"):
        film(run, path, seconds=1.0, fps=1, on_progress=lambda *_: path.write_text("theirs"))
    assert files(tmp_path) == {"data.npz": "theirs", "film.gif": "theirs"}


def test_a_link_to_itself_is_an_error_of_one_line(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for use in (claimed(tmp_path / "loop"), claimed_file(tmp_path / "loop" / "data.npz")):
        with pytest.raises(ValueError, match=r"cannot write to .*loop"):
            use.__enter__()
    with pytest.raises(ValueError, match="exists already"):
        save_dataset(collect(make_run(), 3), (tmp_path / "loop").rename(tmp_path / "loop.npz"))


def test_a_name_that_is_too_long_is_refused_before_the_work(tmp_path):
    save_run(make_run(), tmp_path / ("a" * 250))  # what is unfinished lies in there
    assert load_run(tmp_path / ("a" * 250)).config.agents == 3
    for use in (claimed(tmp_path / ("a" * 256)), claimed_file(tmp_path / ("a" * 250))):
        with pytest.raises(ValueError, match="File name too long"):
            use.__enter__()
    deep = tmp_path
    while len(str(deep)) < 4050:
        deep = deep / ("d" * min(200, 4060 - len(str(deep))))
    with pytest.raises(ValueError, match="File name too long"):
        claimed(deep).__enter__()


def test_an_error_suggests_to_resume_only_if_that_can_work(tmp_path):
    config = Explore("maze-det", updates=2, seeds=(0,))
    with new_checkpoints(tmp_path / "run", config, make_tabular_world("maze-det")) as checkpointer:
        (checkpointer.folder / "checkpoint-0000000001-0123.npz").touch()
        for has_started in (False, True):
            checkpointer.has_started = has_started
            with pytest.raises(ValueError, match="no luck") as error, checkpointer.resume_hint():
                raise ValueError("no luck")
            assert ("farflung resume" in str(error.value)) == has_started


class Wanderer(gymnasium.Env):
    """Changes the current directory, and cannot be closed."""

    observation_space = gymnasium.spaces.Discrete(3)
    action_space = gymnasium.spaces.Discrete(2)
    elsewhere = "/"

    def __init__(self):
        os.chdir(self.elsewhere)

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return action + 1, 0.0, False, False, {}

    def close(self):
        raise OSError("it is stuck")


def test_a_run_lands_where_it_was_asked_for_even_if_its_environment_wanders_and_cannot_be_closed(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr(Wanderer, "elsewhere", str(tmp_path / "elsewhere"))
    world = hosted(Wanderer, horizon=3, copies=1)
    monkeypatch.chdir(tmp_path)
    with pytest.warns(SimulatorWarning, match="Wanderer cannot be closed: OSError: it is stuck"):
        run = explore(world, agents=1, batch_size=1, updates=1, seeds=(0,), out="run", loggers=["csv"])
    np.testing.assert_array_equal(load_run(tmp_path / "run").policies.logits, run.policies.logits)
    assert {path.name for path in tmp_path.iterdir()} == {"run", "logs", "elsewhere"}
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_finished_run_is_returned_to_the_same_call(tmp_path):
    settings = {"agents": 1, "batch_size": 1, "updates": 1, "seeds": (0,), "out": tmp_path / "run"}
    first = explore("room-det", **settings)
    again = explore("room-det", **settings, on_progress=pytest.fail)
    np.testing.assert_array_equal(again.policies.logits, first.policies.logits)
    for other in ({"world": "maze-det"}, {"world": "room-det", "objective": lambda world: world.entropy}):
        with pytest.raises(ValueError, match="already holds a run"):
            explore(**other, **settings)


def test_a_program_of_the_users_own_may_have_changed_so_its_run_is_not_returned():
    config = Explore("room-det", objective="custom:mine")
    assert _has_own_parts(config, make_tabular_world("room-det"))
    assert not _has_own_parts(Explore("room-det"), make_tabular_world("room-det"))
    assert not _has_own_parts(Explore("FrozenLake-v1"), hosted("FrozenLake-v1"))
    assert _has_own_parts(Explore("FrozenLakeEnv"), hosted(lambda: gymnasium.make("FrozenLake-v1")))


@pytest.mark.parametrize(("header", "other"), [("{}", "figure.png"), ('{"farflung": "0.1.0"}', "thesis.tex")])
def test_force_removes_nothing_but_results(tmp_path, header, other):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "contents.json").write_text(header)
    (tmp_path / "out" / other).write_text("mine")
    with pytest.raises(ValueError, match="choose another directory"), open_results(tmp_path / "out", "ceiling", {}, force=True):
        pass
    assert (tmp_path / "out" / other).read_text() == "mine"
