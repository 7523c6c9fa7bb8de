"""`farflung.transfer`: the ranking of agents, runs of one policy, and rewards that are not what they should be."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import farflung
from farflung.algorithms.task import Goal
from farflung.cli import main
from farflung.config import Transfer
from farflung.figures import planes
from farflung.policies.rollout import WorldWarning
from farflung.studies.transfer import agent_of, learn_offline, select
from farflung.studies.transfer_study.goals import best_success
from farflung.worlds.named_vectors import make_vector_world


@pytest.fixture(scope="module")
def explored(tmp_path_factory):
    run = farflung.explore("room-det", agents=3, updates=40, seeds=(0,), batch_size=10)
    folder = tmp_path_factory.mktemp("runs") / "room"
    farflung.save_run(run, folder)
    return run, folder


def nothing(before, actions, after):
    return np.zeros(len(after))


def not_finite(before, actions, after):
    return np.where(np.asarray(after) > 20, np.nan, 0.0)


def fails_with_many(before, actions, after):
    if len(after) > 2:
        raise KeyError("only two")
    return np.asarray(after) * 1.0


def fails_on_the_host(before, actions, after):
    return np.take([0.0, 1.0], np.asarray(after))


def fewer_than_asked(before, actions, after):
    return np.asarray(after)[:2] * 1.0


def complex_numbers(before, actions, after):
    return np.asarray(after) * 1j


def words(before, actions, after):
    return np.full(len(after), "much")


def pays_and_takes(before, actions, after):
    return np.where(np.arange(len(after)) % 2, 1.0, -1.0)


def too_many(before, actions, after):
    return np.zeros((len(after), 2))


def test_the_ranking_is_that_of_the_episodes_and_the_best_agent_is_first(explored):
    run, _ = explored
    team, world = run.team(0).policies, run.world
    goal = int(np.asarray(world.start_states)[0]) + 1
    found = select(jax.random.key(0), world, team, Goal(np.asarray(goal, np.int32)), 20)
    expected = np.array(
        [[goal in episode[1:] for episode in agent] for agent in np.asarray(found.played.states)[:, :, 0].swapaxes(0, 1)]
    )
    np.testing.assert_array_equal(found.returns, expected)
    assert found.best == expected.mean(axis=1).argmax()
    assert found.num_steps == 3 * 20 * world.horizon
    assert goal in found.path
    assert found.path[-1] == goal  # what follows is no part of the task
    assert len(found.path) <= world.horizon + 1


def test_learning_from_the_best_agent_gives_a_run_with_one_policy_that_reaches_the_goal(explored, tmp_path, capsys):
    _, folder = explored
    out = tmp_path / "learned"
    assert main(["transfer", str(folder), "--goal", "2", "9", "--updates", "40", "--out", str(out), "--quiet"]) == 0
    run = farflung.load_run(out)
    about = run.summary["transfer"]
    means = [row["mean_return"] for row in about["ranking"]]
    assert means == sorted(means, reverse=True)
    assert sorted(row["agent"] for row in about["ranking"]) == [0, 1, 2]
    assert about["selection_steps"] == 3 * 10 * 8
    assert run.policies.num_agents == 1
    assert run.summary["final"]["objective"][0] > 0.9
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "return, goal 2 9" in page
    assert about["shown_path"].replace("\u2192", "\\u2192") in page  # as in JSON
    assert about["shown_path"].startswith("(2, 5) \u2192 ")
    assert about["shown_path"].endswith("(2, 9)")
    assert f"farflung transfer {folder} --goal 2 9 --updates 40" in page
    assert '"goals":[[9.0,10.0,2.0,3.0]]' in page  # column, and row from the bottom of five
    assert '["final return"' in page
    agent, states = run.team(0).agent(0), [int(run.table.start_states[0])]
    for time in range(8):
        action = agent.act(jax.random.key(time), states[-1], time)
        states.append(int(run.table.step(jax.random.key(0), jnp.int32(states[-1]), jnp.int32(action))))
    assert [2, 9] in run.table.positions[jnp.array(states)].tolist()


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ({"goal": [0.5, -0.5], "goal_radius": 0.1}, (0.4, 0.6, -0.6, -0.4)),
        ({"goal": [0.5], "goal_radius": 0.1}, None),
        ({"goal": [0.5, "x"], "goal_radius": 0.1}, None),
        ({"goal": [0.5, 0.5]}, None),
        ({}, None),
    ],
)
def test_the_goal_among_vectors_is_drawn_where_it_is(task, expected):
    found = planes.goal_area(make_vector_world("point-empty"), task)
    assert found == (None if expected is None else pytest.approx(expected))


def test_rewards_that_are_not_what_they_should_be_are_told_in_one_line(explored, monkeypatch, capsys):
    run, folder = explored
    for reward, told in (
        (too_many, "must return a number for each step"),
        (not_finite, "must be finite"),
        (fails_with_many, "fails_with_many fails: KeyError in line .* of test_transfer.py: .*only two"),
        (fails_on_the_host, "fails_on_the_host fails: IndexError"),
        (complex_numbers, "complex_numbers must return real numbers, not complex ones"),
        (words, r"words must return numbers, not array\(\["),
        (fewer_than_asked, r"must return a number for each step, \(\d+,\) for \d+ steps, not \(2,\)"),
    ):
        with pytest.raises(ValueError, match=told):
            farflung.transfer(run, reward=reward)
    with pytest.raises(ValueError, match="nothing to learn from offline"):
        farflung.transfer(run, reward=nothing, method="offline")
    with pytest.warns(WorldWarning, match="no agent earned anything in 6 episodes"):
        farflung.transfer(run, reward=nothing, episodes=2, updates=1, batch_size=2)
    with pytest.raises(ValueError, match="has no rewards of its own"):
        farflung.transfer(run, reward="environment")
    with pytest.raises(ValueError, match="either a goal or a reward"):
        Transfer("run")
    with warnings.catch_warnings():
        warnings.simplefilter("error", WorldWarning)  # it pays, though each return of 8 steps is zero
        farflung.transfer(run, reward=pays_and_takes, episodes=2, updates=1, batch_size=2)
    with pytest.raises(ValueError, match="goal must be finite numbers, not inf 5"):
        Transfer("run", goal=(float("inf"), 5.0))
    assert main(["transfer", str(folder), "--goal", "0", "5"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "no cell that can be reached" in told


def test_tables_learn_offline_from_the_episodes_of_the_whole_team(explored):
    run, _ = explored
    (goal,) = np.flatnonzero((np.asarray(run.table.positions) == (2, 9)).all(axis=1))
    task = Goal(np.asarray(goal, np.int32))
    found = select(jax.random.key(3), run.world, farflung.uniform_team(run.world, 2), task, 2000)
    learned = learn_offline(jax.random.key(0), run.world, found, Transfer("run", goal=(1.0,), batches=4000))
    again = select(jax.random.key(1), run.world, learned, task, 5)
    assert found.returns.mean() < 0.3
    assert again.returns.mean() == 1


def test_networks_that_learn_offline_act_as_policies_of_teams_do():
    """One agent always goes right and is paid for it, the other goes left: the policy goes right."""
    world = make_vector_world("point-empty", horizon=5)
    team = farflung.neural_team(jax.random.key(0), world, 2, farflung.Networks((4,), std=0.1))
    right = team.head.bias.at[:, 0].set(jnp.array([1.0, -1.0]))
    team = jax.tree.map(lambda leaf: right if leaf is team.head.bias else leaf, team)
    starts = np.asarray(world.starts)[0]
    goal = Goal(np.array([starts[0] + 3 * world.step_size, starts[2]], np.float32), 2 * world.step_size)
    found = select(jax.random.key(0), world, team, goal, 20)
    assert found.best == 0
    learned = learn_offline(jax.random.key(0), world, found, Transfer("run", goal=(1.0,), batches=300))
    assert select(jax.random.key(1), world, learned, goal, 5).returns.mean() == 1
    np.testing.assert_allclose(agent_of(learned, 0).head.weight, learned.head.weight)


def test_offline_learning_imitates_the_agent_that_is_paid_not_the_mean_of_all():
    """Six agents go in six directions from one start, with much noise: their mean action leads nowhere."""
    world = make_vector_world("point-empty", horizon=20)
    team = farflung.neural_team(jax.random.key(0), world, 6, farflung.Networks((4,), std=1.5))
    angles = np.pi / 3 * np.arange(6)
    apart = team.head.bias.at[:].set(2 * np.column_stack([np.cos(angles), np.sin(angles)]))
    team = jax.tree.map(lambda leaf: apart if leaf is team.head.bias else leaf, team)
    starts = np.asarray(world.starts)[0]
    goal = Goal(np.array([starts[0] + 8 * world.step_size, starts[2]], np.float32), 0.75 * world.step_size)
    found = select(jax.random.key(0), world, team, goal, 40)
    assert (found.best, found.returns[1:].mean()) == (0, 0)
    assert found.returns[0].mean() < 0.5
    learned = learn_offline(jax.random.key(0), world, found, Transfer("run", goal=(1.0,), batches=2000))
    assert select(jax.random.key(1), world, learned, goal, 20).returns.mean() > 0.7


def test_the_best_success_is_that_of_planning_on_a_tiny_map():
    """Right succeeds with probability 0.7; none of the other three actions, each taken with 0.1 instead, goes right."""
    world = farflung.gridworld("S..", slip=0.3, horizon=2)
    assert best_success(world) == pytest.approx([1.0, 0.7 + 0.3 * 0.7, 0.7 * 0.7], abs=1e-6)
