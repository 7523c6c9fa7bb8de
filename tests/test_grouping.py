import pytest
from tests.made_runs import made_continuous_run, made_run

from farflung import gridworld, make_tabular_world
from farflung.studies.compare.comparison import by_algorithm_and_task


def names(*runs):
    return list(by_algorithm_and_task(runs))


def tasks(*runs):
    return [list(runs_by_task) for runs_by_task in by_algorithm_and_task(runs).values()]


def test_algorithms_are_named_after_their_differences():
    assert names(made_run(), made_run(single=True), made_run(independent=True)) == ["parallel", "single", "independent"]
    assert names(made_run(credit="total"), made_run()) == ["total", "causal"]
    assert names(made_run(batch_size=5), made_run(batch_size=40, seeds=(7, 8))) == ["batch size 5", "batch size 40"]
    assert names(made_run(learning_rate=0.5), made_run(single=True)) == ["parallel, learning rate 0.5", "single"]
    assert names(made_run(), made_run(credit="total"), made_run(clip=0.5)) == ["farflung", "total", "clip 0.5"]
    assert names(made_run(), made_run(stop_when_flat=True)) == ["no stop when flat", "stop when flat"]


def test_names_omit_defaults_that_depend_on_another_setting():
    assert names(made_run(), made_run(preset="paper")) == ["farflung", "paper"]
    assert names(made_run(updates=50), made_run()) == ["updates 50", "updates 1000"]
    assert names(made_run(optimizer="natural"), made_run()) == ["natural", "adam"]
    assert names(made_run(preset="paper", credit="causal"), made_run()) == ["paper, causal", "farflung"]


def test_networks_are_named_after_their_differences_for_any_name_of_the_world():
    assert names(made_continuous_run(), made_continuous_run(single=True)) == ["parallel", "single"]
    assert names(made_continuous_run(policy="shared-trunk"), made_continuous_run()) == ["policy shared-trunk", "policy neural"]
    environment = made_continuous_run().world
    named = [made_run("custom", environment, policy="neural", single=single, updates=50 + single) for single in (False, True)]
    assert names(*named) == ["parallel, updates 50", "single, updates 51"]


def test_tasks_are_worlds():
    runs = [made_run(world, single=single) for single in (False, True) for world in ("room-det", "maze-stoc")]
    assert tasks(*runs) == [["room-det", "maze-stoc"]] * 2


def test_worlds_are_the_same_task_if_they_behave_the_same():
    runs = [
        made_run(),
        made_run(single=True, horizon=8, slip=0.0),
        made_run(independent=True, environment=make_tabular_world("room-det")),
    ]
    assert tasks(*runs) == [["room-det"]] * 3


def test_different_worlds_of_one_name_are_different_tasks():
    runs = [made_run(single=single, **world) for single in (False, True) for world in ({}, {"horizon": 9}, {"slip": 0.1})]
    assert tasks(*runs) == [["room-det, T = 8", "room-det, T = 9", "room-det, T = 8, slip 0.1"]] * 2
    corridors = [gridworld("S" + length * ".", horizon=4) for length in (2, 3)]
    runs = [made_run("custom", corridor, single=single) for single in (False, True) for corridor in corridors]
    assert tasks(*runs) == [["custom", "custom (2)"]] * 2


def test_team_sizes_are_tasks_if_all_algorithms_have_them():
    runs = [made_run(agents=agents, single=single) for single in (False, True) for agents in (2, 6)]
    assert names(*runs) == ["parallel", "single"]
    assert tasks(*runs) == [["room-det, m = 2", "room-det, m = 6"]] * 2


def test_team_sizes_are_algorithms_otherwise():
    assert names(made_run(agents=2), made_run(agents=6, trajectories=3)) == ["m = 2, K = 1", "m = 6, K = 3"]
    runs = (made_run(agents=2), made_run(agents=6), made_run(agents=6, single=True))
    assert names(*runs) == ["parallel, m = 2", "parallel, m = 6", "single, m = 6"]
    assert tasks(*runs) == [["room-det"]] * 3


def test_given_names_decide():
    two, six, single = made_run(agents=2), made_run(agents=6), made_run(agents=6, single=True)
    assert by_algorithm_and_task({"few": [two], "many": [six]}) == {"few": {"room-det": [two]}, "many": {"room-det": [six]}}
    grouped = by_algorithm_and_task({"ours": [two, six], "theirs": [single]})
    assert grouped == {"ours": {"room-det, m = 2": [two], "room-det, m = 6": [six]}, "theirs": {"room-det, m = 6": [single]}}


def test_runs_of_the_same_settings_and_different_seeds_are_pooled():
    first, second, single = made_run(), made_run(seeds=(5, 6)), made_run(single=True)
    assert by_algorithm_and_task([first, second, single]) == {
        "parallel": {"room-det": [first, second]},
        "single": {"room-det": [single]},
    }


def test_the_same_seed_twice_and_different_settings_under_one_name_are_told():
    with pytest.raises(ValueError, match="seed 1 of the same settings is in run 1 of parallel on room-det and in run 2"):
        by_algorithm_and_task([made_run(), made_run(seeds=(5, 1)), made_run(single=True)])
    with pytest.raises(ValueError, match="ours has runs of different settings on room-det"):
        by_algorithm_and_task({"ours": [made_run(), made_run(single=True)]})
