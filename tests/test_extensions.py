"""A user's own world, algorithm, credit and entropy: each gives a run like any other."""

import ast
import dataclasses
import importlib
import json
import shutil
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import farflung
from farflung.cli import main
from farflung.config.imports import import_object, name_of
from farflung.entropy.credit import causal
from farflung.worlds.kinds import read_world

EXAMPLES = Path(__file__).parent.parent / "examples"
SMALL = {"agents": 2, "updates": 6, "batch_size": 4, "seeds": (0, 1)}


@pytest.fixture
def example(monkeypatch):
    """Imports one of the examples, as a user's module in the current folder would be."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield importlib.import_module
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]


def interrupted(explore, after):
    """Runs a training that is interrupted after so many updates."""

    def stop(status):
        if status.update >= after:
            raise KeyboardInterrupt

    return explore(on_progress=stop)


class Falling(eqx.Module):
    """A point that falls, and whose episode ends on the ground."""

    height: jax.Array
    horizon: int = eqx.field(static=True, default=8)
    actions = farflung.Discrete(2)

    def reset(self, key):
        return jnp.array([0.0, 1.0]) * self.height

    def step(self, key, state, action):
        return state + jnp.array([0.1, -0.2]) * jnp.where(action == 1, 1.0, 0.5)

    def observe(self, state):
        return state

    def is_over(self, state):
        return state[1] < 0


@pytest.mark.parametrize("name", ["tempfile:TemporaryDirectory", "os:getcwd"])
def test_nothing_is_made_or_called_because_a_file_names_it(name):
    arrays = farflung.from_jax(Falling(jnp.float32(1))).to_arrays()
    forged = {"jax": np.array(json.dumps(json.loads(str(arrays["jax"])) | {"name": name}))}
    with pytest.raises(ValueError, match=f"{name} is no JAX world"):
        read_world(forged).with_environment()


class NeverOver(Falling):
    """The same with an `is_over` that is never true: the derived `may_end_early` is safe, not exact."""

    def is_over(self, state):
        return jnp.zeros((), bool)


def test_whether_episodes_end_early_is_derived(example):
    assert farflung.from_jax(Falling(jnp.float32(1))).may_end_early
    assert not farflung.from_jax(example("own_jax_world").Boat()).may_end_early


def test_actions_without_bounds_are_read_back_from_a_file():
    world = dataclasses.replace(farflung.from_jax(Falling(jnp.float32(1))), actions=farflung.Box((-np.inf, 0.0), (np.inf, 1.0)))
    assert read_world(world.to_arrays()).actions == world.actions


def test_an_episode_of_the_users_own_world_ends_where_is_over_says_so():
    world = farflung.from_jax(Falling(jnp.float32(1)))
    run = farflung.explore(world, **SMALL)
    lengths = np.isfinite(run.paths.features).all(axis=-1).sum(axis=-1)
    heights = run.paths.features[..., 1]
    np.testing.assert_array_equal(lengths < world.horizon + 1, np.isnan(heights[..., -1]))
    assert np.any(lengths < world.horizon + 1)
    assert (np.nanmin(heights[np.isnan(heights[..., -1])], axis=-1) < 0).all()
    dataset = farflung.collect(run, 6)
    assert dataset.terminated.all()
    assert (dataset.observations[np.arange(6), dataset.lengths, 1] < 0).all()


def test_the_arrays_of_the_users_own_world_are_arguments_and_not_constants():
    low, high = (farflung.from_jax(Falling(jnp.float32(height))) for height in (1, 2))
    one, two = (
        farflung.play(jax.random.key(0), farflung.neural_team(jax.random.key(0), low, 2), each, 1, 1) for each in (low, high)
    )
    np.testing.assert_allclose(two.states[..., 0, 1] - one.states[..., 0, 1], 1)


def test_keys_give_steps_that_differ_and_repeat(example):
    world = farflung.from_jax(example("own_jax_world").Boat())
    team = farflung.neural_team(jax.random.key(0), world, 2)
    one, again = (farflung.play(jax.random.key(3), team, world, 5, 2).states for _ in range(2))
    np.testing.assert_array_equal(one, again)
    assert len(np.unique(one[..., 0, :].reshape(-1, 2), axis=0)) == 20  # each copy has a start of its own


def test_the_functions_with_keys_agree_with_those_of_uniform_numbers():
    world = farflung.make_world("maze-stoc")
    key = jax.random.key(5)
    states = {int(world.step(each, jnp.int32(3), jnp.int32(0))) for each in jax.random.split(key, 50)}
    assert states <= set(np.asarray(world.successors[3, 0]).tolist())
    assert len(states) > 1
    assert int(world.reset(key)) == int(world.start_states[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observe": None}, "observe is missing"),
        ({"actions": "left"}, "actions of a JAX world are a farflung.Box"),
        ({"horizon": None}, "how long is an episode"),
        ({"names": ("x",)}, "1 names for 2 numbers"),
        ({"step": lambda self, key, state, action: state + jnp.zeros(3)}, "failed with random actions"),
        ({"observe": lambda self, state: state * jnp.nan}, "an observation that is not finite after reset"),
    ],
)
def test_a_jax_world_that_cannot_be_is_refused_in_one_line(example, change, message):
    broken = type("Broken", (example("own_jax_world").Boat,), change)
    with pytest.raises(ValueError, match=message):
        farflung.from_jax(broken())


@pytest.mark.parametrize("thing", [3, object(), None])
def test_what_is_no_world_is_refused(thing):
    with pytest.raises(ValueError, match="a world is a name"):
        farflung.explore(thing)


def test_a_world_of_the_users_own_works_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copy(EXAMPLES / "own_jax_world.py", "my_module.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = ["--agents", "2", "--updates", "4", "--batch-size", "2", "--seeds", "0", "1"]
    assert main(["explore", "my_module:Boat", *settings, "--out", "team"]) == 0
    assert main(["explore", "my_module:Boat", *settings, "--single", "--out", "single"]) == 0
    assert json.loads(Path("team/config.json").read_text())["config"]["world"] == "my_module:Boat"
    assert main(["film", "team"]) == 0
    assert main(["compare", "team", "single", "--out", "comparison"]) == 0
    assert main(["collect", "team", "--episodes", "4", "--format", "npz", "--out", "data.npz"]) == 0
    assert len(farflung.load_dataset("data.npz")) == 4
    assert main(["explore", "my_module:Boat", "--neighbours", "0", "--bins", "5", *settings, "--out", "cells"]) == 0
    assert farflung.load_run("cells").world.num_states == 25
    assert main(["explore", "my_module:Ship"]) == 2
    assert "has no world 'Ship' and registers no environment of that name" in capsys.readouterr().err
    del sys.modules["my_module"]


def test_a_training_in_the_users_own_world_is_resumed_bit_for_bit(tmp_path, example):
    world = example("own_jax_world").Boat()
    whole = farflung.explore(world, **SMALL)
    interrupted(lambda **options: farflung.explore(world, out=tmp_path / "run", checkpoint_updates=1, **SMALL, **options), 3)
    again = farflung.resume(tmp_path / "run", world=world)
    assert again.summary["updates"] == 6
    jax.tree.map(np.testing.assert_array_equal, again.policies, whole.policies)


def test_a_run_in_the_users_own_world_is_read_without_its_module(tmp_path, example):
    farflung.explore(example("own_jax_world").Boat, out=tmp_path / "run", **SMALL)
    del sys.modules["own_jax_world"]
    sys.path.remove(str(EXAMPLES))
    run = farflung.load_run(tmp_path / "run")
    assert run.world.name == "own_jax_world:Boat"
    assert run.team(0).agent(1).act(jax.random.key(0), np.zeros(2)).shape == (2,)
    message = r"needs the module own_jax_world, which is not installed: .* or add --world own_jax_world:Boat"
    with pytest.raises(ValueError, match=message):
        farflung.collect(run, 2)
    sys.path.insert(0, str(EXAMPLES))


def test_an_algorithm_of_the_users_own_gives_a_run_that_can_be_resumed_and_compared(tmp_path, example):
    search = example("own_algorithm").RandomSearch(num_agents=2, batch_size=4)
    settings = {"updates": 6, "seeds": (0, 1)}
    whole = farflung.explore("room-det", algorithm=search, **settings)
    assert (whole.config.agents, whole.config.batch_size) == (2, 4)
    path = tmp_path / "run"
    start = lambda **options: farflung.explore(  # noqa: E731
        "room-det", algorithm=search, out=path, checkpoint_updates=1, **settings, **options
    )
    interrupted(start, 3)
    with pytest.raises(ValueError, match="the algorithm RandomSearch cannot be imported: give it again, as algorithm="):
        farflung.resume(path)
    again = farflung.resume(path, algorithm=search)
    np.testing.assert_array_equal(again.policies.logits, whole.policies.logits)
    assert (path / "figure.png").exists()
    loaded = farflung.load_run(path)
    assert loaded.config.algorithm == "custom:RandomSearch"
    assert loaded.team(1).agent(0).act(jax.random.key(0), 21) in range(4)
    found = farflung.compare([loaded, farflung.explore("room-det", **SMALL)])
    assert len(found.scores) == 2


def test_an_algorithm_may_be_a_class_a_function_or_the_name_of_one(example, monkeypatch):
    module = example("own_algorithm")
    by_class = farflung.explore("room-det", algorithm=module.RandomSearch, updates=3, seeds=(0,))
    by_name = farflung.explore("room-det", algorithm="own_algorithm:RandomSearch", updates=3, seeds=(0,))
    assert by_class.config.algorithm == by_name.config.algorithm == "own_algorithm:RandomSearch"
    np.testing.assert_array_equal(by_class.policies.logits, by_name.policies.logits)
    make = lambda config, world: module.RandomSearch(num_agents=config.agents)  # noqa: E731
    assert farflung.explore("room-det", algorithm=make, agents=3, updates=3, seeds=(0,)).policies.num_agents == 3


class Shifted(eqx.Module):
    """Learns nothing, but has an array of its own."""

    shift: jax.Array
    batch_size: int = 2
    num_trajectories: int = 1

    def init(self, key, world):
        team = farflung.softmax_team(key, world, 2)
        return Kept(eqx.tree_at(lambda team: team.logits, team, team.logits + self.shift.reshape(1, 1, 4)))

    def learn(self, world, state, trajectories):
        return state


class Kept(eqx.Module):
    team: farflung.TabularSoftmax


@pytest.mark.bits
def test_an_algorithm_may_have_arrays_and_differ_between_seeds():
    world = farflung.make_world("room-det")
    shifts = [jnp.arange(4.0), jnp.zeros(4)]
    *_, last = farflung.train([Shifted(shift) for shift in shifts], world, (7, 7), 1)
    np.testing.assert_allclose(
        last.team.logits[0] - last.team.logits[1], np.broadcast_to(np.arange(4.0), (2, 43, 4)), atol=1e-6
    )
    *_, alone = farflung.train(Shifted(shifts[0]), world, (7,), 1)
    np.testing.assert_array_equal(alone.team.logits[0], last.team.logits[0])


class Teamless(eqx.Module):
    batch_size: int = 2
    num_trajectories: int = 1

    def init(self, key, world):
        return {"policies": farflung.softmax_team(key, world, 2)}

    def learn(self, world, state, trajectories):
        return state


class Unbounded(Shifted):
    def init(self, key, world):
        return Kept(farflung.TabularSoftmax(farflung.softmax_team(key, world, 2).logits / 0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"algorithm": Teamless()}, "init of Teamless must return a state with an attribute team"),
        ({"algorithm": Unbounded(jnp.zeros(4))}, r"state\.team.* is not finite before the first update"),
        (
            {"credit": lambda entropy, states: jax.vmap(entropy.gains)(states)},
            r"of the shape \(40, 6, 1, 8\), not",
        ),
        ({"algorithm": Shifted(jnp.zeros(4)), "agents": 5}, "agents is 5, but the algorithm has 2: drop agents"),
        ({"algorithm": Shifted(jnp.zeros(4)), "credit": causal}, "credit is a setting of pgpse"),
        ({"algorithm": Shifted(jnp.zeros(4)), "agents": 6}, "agents is 6, but the algorithm has 2: drop agents"),
        ({"algorithm": Shifted}, "the class Shifted needs arguments: give an instance of it as the algorithm"),
        ({"algorithm": Shifted(jnp.zeros(4)), "learning_rate": 0.1}, "learning_rate is a setting of pgpse"),
        ({"algorithm": Shifted(jnp.zeros(4)), "single": True}, "single is a setting of pgpse"),
        ({"agent": 3}, r"unknown setting 'agent' \(did you mean 'agents'\?\)"),
        (
            {"algorithm": lambda config, world: 3},
            "int is not an algorithm: it has no batch_size, num_trajectories, init, learn",
        ),
        ({"algorithm": "nowhere:Algorithm"}, "module of the algorithm 'nowhere:Algorithm' cannot be imported"),
        ({"credit": "math:credit"}, "the module math has no credit"),
        ({"algorithm": "reinforce"}, "unknown algorithm 'reinforce'"),
    ],
)
def test_parts_that_do_not_fit_are_refused_in_one_line(arguments, message):
    with pytest.raises(ValueError, match=message):
        farflung.explore("room-det", updates=2, **arguments)


def test_a_credit_and_an_entropy_of_the_users_own_are_used_and_recorded(example):
    module = example("own_credit_and_objective")
    run = farflung.explore("room-det", credit=module.without_baseline, objective=module.of_columns, **SMALL)
    assert run.config.credit == "own_credit_and_objective:without_baseline"
    assert run.config.objective == "own_credit_and_objective:of_columns"
    by_name = farflung.explore("room-det", credit=run.config.credit, objective=run.config.objective, **SMALL)
    np.testing.assert_array_equal(run.policies.logits, by_name.policies.logits)
    assert not np.array_equal(run.policies.logits, farflung.explore("room-det", **SMALL).policies.logits)


def test_a_credit_given_as_a_function_is_the_credit_of_that_name():
    given, named = (farflung.explore("maze-stoc", credit=credit, **SMALL) for credit in (causal, "causal"))
    np.testing.assert_array_equal(given.policies.logits, named.policies.logits)
    assert given.config.credit == "farflung.entropy.credit:causal"


def test_names_are_those_that_python_can_import():
    assert import_object(name_of(causal), "credit") is causal
    assert name_of(lambda: 0).startswith("custom:")
    assert name_of(Shifted(jnp.zeros(4))) == "custom:Shifted"


def test_every_host_stepped_world_trains_with_train_as_well():
    algorithm = farflung.PGPSE(2, batch_size=2)
    *_, last = farflung.train(algorithm, farflung.hosted("FrozenLake-v1", horizon=5), (0,), 2)
    assert last.team.logits.shape == (1, 2, 16, 4)


@pytest.mark.parametrize(
    ("name", "options", "environment"),
    [
        ("maze-stoc", {}, "farflung/Maze-v0"),
        ("FrozenLake-v1", {"horizon": 8}, "FrozenLake-v1"),
        ("point-gap", {}, "farflung/PointMaze-v0"),
        ("Pendulum-v1", {"horizon": 8}, "Pendulum-v1"),
        ("CartPole-v1", {"horizon": 8}, "CartPole-v1"),
    ],
)
@pytest.mark.parametrize("policy", [None, "time-dependent", "shared-trunk"])
def test_an_agent_acts_in_the_environment_of_its_run(tmp_path, name, options, environment, policy):
    import gymnasium

    has_tables = name in ("maze-stoc", "FrozenLake-v1")
    if policy is not None and has_tables != (policy == "time-dependent"):
        pytest.skip("tables have times, networks have trunks")
    chosen = {} if policy is None else {"policy": policy}
    farflung.explore(name, **options, **chosen, agents=2, updates=2, batch_size=2, seeds=(0,), out=tmp_path / "run")
    agent = farflung.load_run(tmp_path / "run").team(seed=0).agent(1)
    env = gymnasium.make(environment)
    observation, _ = env.reset(seed=0)
    for time in range(5):
        action = agent.act(jax.random.key(time), observation, time)
        assert env.action_space.contains(action) or env.action_space.contains(np.int64(action)), action
        observation, *_ = env.step(action)


def test_an_agent_acts_with_the_probabilities_of_its_policy():
    run = farflung.explore("room-det", agents=2, updates=30, seeds=(0,), policy="time-dependent")
    agent, time, state = run.team(0).agent(1), 3, 21
    actions = [agent.act(key, state, time) for key in jax.random.split(jax.random.key(0), 2000)]
    expected = np.asarray(run.policies.probabilities[0, 1, time, state])
    np.testing.assert_allclose(np.bincount(actions, minlength=4) / 2000, expected, atol=0.04)


def test_acting_can_be_part_of_compiled_code():
    run = farflung.explore("point-gap", agents=2, updates=2, batch_size=2, seeds=(0,))
    agent, world = run.team(0).agent(0), run.world

    @jax.jit
    def episode(key):
        def step(state, key):
            state = world.step(key, state, agent.act(key, world.observe(state)))
            return state, state

        return jax.lax.scan(step, world.reset(key), jax.random.split(key, 10))[1]

    assert np.isfinite(np.asarray(episode(jax.random.key(0)))).all()


def test_an_agent_of_a_world_with_bins_or_attributes_sees_what_the_run_saw():
    from tests.worlds.hosted.simulators import Planes

    binned = farflung.explore(farflung.hosted("CartPole-v1", horizon=6, bins=3, low=-1, high=1), **SMALL)
    assert binned.team(0).agent(0).act(jax.random.key(0), np.zeros(4)) in (0, 1)
    observed = farflung.explore(farflung.hosted(Planes, horizon=4, observe="cell"), **SMALL)
    state = observed.world.index.features[0]
    assert observed.team(0).agent(0).act(jax.random.key(0), state) is not None


def test_an_agent_refuses_an_observation_that_its_world_cannot_have():
    room = farflung.explore("room-det", **SMALL, policy="time-dependent").team(0).agent(0)
    for observation in (43, -1, 3.5, np.zeros(2), "x"):
        with pytest.raises(ValueError, match="is not one of the 43 states of this world"):
            room.act(jax.random.key(0), observation)
    with pytest.raises(ValueError, match="number of actions so far, from 0 to 7, not 8"):
        room.act(jax.random.key(0), 0, time=8)
    point = farflung.explore("point-gap", **SMALL).team(0).agent(0)
    for observation in (0.0, np.zeros(3), [np.nan, 0.0]):
        with pytest.raises(ValueError, match="an observation of point-gap has 2 finite numbers"):
            point.act(jax.random.key(0), observation)
    binned = farflung.explore(farflung.hosted("MountainCar-v0", horizon=6, bins=3), **SMALL).team(0).agent(0)
    with pytest.raises(ValueError, match=r"an observation has the shape \(2,\), not \(\)"):
        binned.act(jax.random.key(0), 3)


def test_inside_jit_an_agent_acts_on_the_state_of_its_observation():
    taxi = farflung.explore("Taxi-v4", horizon=5, **SMALL)
    agent = taxi.team(0).agent(0)
    label = int(np.asarray(taxi.world.labels)[3])
    assert int(jax.jit(agent.act)(jax.random.key(1), taxi.world.state_of(label))) == agent.act(jax.random.key(1), label)


def test_there_is_no_agent_beyond_the_team():
    run = farflung.explore("room-det", **SMALL)
    with pytest.raises(ValueError, match="agents are numbered from 0 to 1: there is no agent 2"):
        run.team(0).agent(2)


@pytest.mark.parametrize("name", ["own_jax_world", "own_algorithm", "own_credit_and_objective"])
def test_an_example_of_an_extension_has_at_most_20_lines(name):
    tree = ast.parse((EXAMPLES / f"{name}.py").read_text())
    parts = [ast.unparse(node).splitlines() for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    assert 5 < sum(bool(line.strip()) for part in parts for line in part) <= 20
