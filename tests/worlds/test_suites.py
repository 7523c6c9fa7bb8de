"""Environments of JAX suites: the same states as the suite's own stepping, and runs that can be saved and loaded.

Suites that are not installed are skipped. `dev` installs some of them; to test all, install the extra `suites` and
`pip install --no-deps craftax` into an environment of their own, and run this file there.
"""

import dataclasses
import importlib
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import farflung
from farflung.cli import main
from farflung.config.options import SUITES
from farflung.worlds import suites
from farflung.worlds.kinds import read_world
from farflung.worlds.suites import FAMILIES, SuiteWorld

NUM_STEPS = 12
PAGE = Path(__file__).parent.parent.parent / "docs" / "suites.md"


class Own(NamedTuple):
    """A suite's own functions, as its users call them; an observation and whether the task is over are computed from a step."""

    reset: Any
    step: Any


def gymnax(module, name):
    env, params = module.make(name)

    def step(key, before, action):
        observation, state, _, *ends, info = env.step(key, before[0], action, params)
        return state, info.get("final_observation", observation), ends[0]

    return Own(lambda key: env.reset(key, params)[::-1], step)


def craftax(module, name):
    env = module.make_craftax_env_from_name(name, auto_reset=False)

    def step(key, before, action):
        observation, state, _, is_over, _ = env.step(key, before[0], action, env.default_params)
        return state, observation, is_over

    return Own(lambda key: env.reset(key, env.default_params)[::-1], step)


def navix(module, name):
    env = module.make(name)

    def step(key, before, action):
        timestep = env.step(before[0], action)
        return timestep, timestep.observation, timestep.is_termination()

    def reset(key):
        timestep = env.reset(key)
        return timestep, timestep.observation

    return Own(reset, step)


def xminigrid(module, name):
    env, params = module.make(name)

    def step(key, before, action):
        timestep = env.step(params, before[0], action)
        return timestep, timestep.observation, timestep.last() & (timestep.discount == 0)

    def reset(key):
        timestep = env.reset(params, key)
        return timestep, timestep.observation

    return Own(reset, step)


def jumanji(module, name):
    env = module.make(name)

    def step(key, before, action):
        state, timestep = env.step(before[0], action)
        return state, timestep.observation, timestep.last()

    def reset(key):
        state, timestep = env.reset(key)
        return state, timestep.observation

    return Own(reset, step)


def robots(env):
    def step(key, before, action):
        state = env.step(before[0], action)
        return state, state.obs, state.done

    def reset(key):
        state = env.reset(key)
        return state, state.obs

    return Own(reset, step)


OWN = {
    "gymnax": gymnax,
    "craftax": craftax,
    "navix": navix,
    "xminigrid": xminigrid,
    "jumanji": jumanji,
    "brax": lambda module, name: robots(module.get_environment(name)),
    "playground": lambda module, name: robots(module.registry.load(name, config_overrides={"impl": "jax"})),
}
EXAMPLES = {
    "gymnax": "CartPole-v1",
    "craftax": "Craftax-Classic-Symbolic-v1",
    "navix": "Navix-DoorKey-Random-6x6-v0",
    "xminigrid": "MiniGrid-EmptyRandom-6x6",
    "jumanji": "Maze-v0",
    "brax": "inverted_pendulum",
    "playground": "CartpoleBalance",
}


def installed(family):
    """The module of a suite; skips the test where it is missing."""
    module = FAMILIES[family].module
    with suites.quiet():
        try:
            return importlib.import_module(module)
        except ImportError as error:
            pytest.skip(f"{family} is not installed (extra {FAMILIES[family].extra}): {error}")


def test_each_suite_of_the_command_line_has_an_adapter():
    assert set(FAMILIES) == set(SUITES) == set(OWN) == set(EXAMPLES)


@pytest.mark.parametrize("family", SUITES)
def test_states_are_those_of_the_suites_own_stepping(family):
    module = installed(family)
    with suites.quiet():
        own = OWN[family](module, EXAMPLES[family])
    world = suites.make_suite_world(f"{family}:{EXAMPLES[family]}", {"layout": "random"})
    keys = jr.split(jr.key(3), NUM_STEPS)
    if isinstance(world.actions, farflung.Discrete):
        actions = jr.randint(jr.key(4), (NUM_STEPS,), 0, world.actions.num)
    else:
        actions = jr.uniform(jr.key(4), (NUM_STEPS, world.actions.size), minval=-1.0)

    def ours(state, inputs):
        following = world.step(inputs[0], state, inputs[1])
        return following, (flat(world.observe(following)), world.is_over(following), world.features(following))

    def theirs(carry, inputs):
        state, has_ended = carry
        following, observation, is_over = own.step(inputs[0], (jax.tree.map(jnp.asarray, state),), inputs[1])
        following = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), following, state)
        return (following, has_ended | jnp.asarray(is_over, bool)), (flat(observation), jnp.asarray(is_over, bool), has_ended)

    @jax.jit
    def both(key):
        first = suites._strong(own.reset(jr.key_data(key)))
        start = (first[0], jnp.zeros((), bool))
        _, (their_seen, their_end, has_ended) = jax.lax.scan(theirs, start, (jr.key_data(keys), actions))
        # gymnax splits the key of a step: the other half is for its automatic reset
        step_keys = jax.vmap(lambda key: jr.split(key)[0])(keys) if family == "gymnax" else keys
        begin = world.reset(key)
        _, (seen, is_over, features) = jax.lax.scan(ours, begin, (step_keys, actions))
        return (flat(world.observe(begin)), seen, is_over, features), (flat(first[1]), their_seen, their_end), ~has_ended

    with suites.quiet():
        (begin, seen, is_over, features), (their_begin, their_seen, their_end), goes_on = jax.tree.map(
            np.asarray, both(jr.key(5))
        )
    assert goes_on.sum() > 2
    np.testing.assert_allclose(begin, their_begin, rtol=1e-6)
    np.testing.assert_allclose(seen[goes_on], their_seen[goes_on], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(is_over[goes_on], their_end[goes_on])
    assert len(np.unique(seen[goes_on], axis=0)) > 2  # something happened
    low, high = world.feature_bounds or (-np.inf, np.inf)
    assert features.shape == (NUM_STEPS, len(world.feature_names))
    assert (features >= np.array(low)).all()
    assert (features <= np.array(high)).all()


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("gymnax", "FourRooms-misc"),
        ("navix", "Navix-DoorKey-8x8-v0"),
        ("xminigrid", "MiniGrid-FourRooms"),
        ("jumanji", "Maze-v0"),
    ],
)
def test_nobody_walks_into_the_walls_of_a_layout(family, name):
    installed(family)
    world = suites.make_suite_world(f"{family}:{name}", {})
    walls = np.array(world.layout_walls()["walls"])

    def places(key):
        def step(state, key):
            action = jr.randint(key, (), 0, world.actions.num)
            following = world.step(key, state, action)
            return following, world.features(following)

        return jax.lax.scan(step, world.reset(key), jr.split(key, 200))[1]

    with suites.quiet():
        columns, rows = np.unique(np.asarray(jax.jit(places)(jr.key(0))), axis=0).T[..., None]
    assert len(columns) > 5
    is_inside = (walls[:, 0] < columns) & (columns < walls[:, 1]) & (walls[:, 2] < rows) & (rows < walls[:, 3])
    assert not is_inside.any()
    touches = (walls[:, 0] <= columns + 1) & (columns - 1 <= walls[:, 1]) & (walls[:, 2] < rows) & (rows < walls[:, 3])
    assert touches.any()


def test_the_program_of_the_page_prints_what_it_says(capsys):
    installed("gymnax")
    program = re.search(r"```py\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.S)[1]
    exec(program, {})
    assert capsys.readouterr().out.strip() == re.search(r"# (.*)$", program)[1].strip()


def flat(observation):
    return jnp.concatenate([jnp.ravel(jnp.asarray(leaf, jnp.float32)) for leaf in jax.tree.leaves(observation)])


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Params:
    max_steps_in_episode: int = 5
    size: int = 4

    def replace(self, **changes):
        return dataclasses.replace(self, **changes)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class State:
    pos: jax.Array
    goal: jax.Array
    time: jax.Array


class Walk:
    """An environment with the functions of gymnax before version 1: it ends on a goal that each reset draws, or by time."""

    default_params = Params()

    def __init__(self, num_actions=3):
        self.num_actions = num_actions

    def reset_env(self, key, params):
        goal = jr.randint(key, (2,), 1, params.size)
        state = State(jnp.zeros(2, jnp.int32), goal, 0)
        return self.get_obs(state), state

    def step_env(self, key, state, action, params):
        move = jnp.array([[1, 0], [0, 1], [0, 0]])[action]
        state = State(jnp.minimum(state.pos + move, params.size - 1), state.goal, state.time + 1)
        return self.get_obs(state), state, 0.0, self.is_terminal(state, params), {}

    def step(self, key, state, action, params):
        raise AssertionError("a step with an automatic reset must not be taken")

    def get_obs(self, state):
        return jnp.concatenate([state.pos, state.goal])

    def is_terminal(self, state, params):
        return jnp.all(state.pos == state.goal) | (state.time >= params.max_steps_in_episode)

    def action_space(self, params):
        return farflung_space(n=self.num_actions)

    def state_space(self, params):
        return farflung_space(spaces={"pos": farflung_space(low=0, high=params.size - 1, shape=(2,))})


def farflung_space(**fields):
    return type("Space", (), fields)()


@pytest.fixture
def walks(monkeypatch):
    """The suite gymnax, with one environment."""
    module = type("gymnax", (), {})()
    module.registered_envs = ("Walk-v0", "Walk-v1", "Stroll-v0")
    module.make = lambda name, **options: (Walk(**options), Params())
    monkeypatch.setitem(importlib.import_module("sys").modules, "gymnax", module)


def goals(world):
    return {tuple(np.asarray(world.reset(key)[0].goal).tolist()) for key in jr.split(jr.key(0), 20)}


def test_an_environment_is_recognised_by_its_functions_with_or_without_its_parameters():
    world = farflung.from_jax(Walk())
    assert (world.horizon, world.actions, world.observation_size) == (5, farflung.Discrete(3), 4)
    assert world.projection.names == ("column", "row")
    assert world.rows_point_down
    assert (world.projection.bins, world.projection.neighbours) == ((4, 4), 0)
    assert world.name == "custom:Walk"
    assert farflung.from_jax((Walk(), Params(size=7, max_steps_in_episode=300))).projection.bins == (7, 7)


def test_the_column_comes_before_the_row_as_pictures_have_them():
    world = farflung.from_jax(Walk())
    state = world.step(jr.key(0), world.reset(jr.key(0)), jnp.int32(0))
    assert np.asarray(state[0].pos).tolist() == [1, 0]  # Walk's row and column
    assert np.asarray(world.projection.project(world.observe(state))).tolist() == [0, 1]


def test_an_episode_ends_with_the_task_and_not_by_the_suites_time_limit():
    world = farflung.from_jax(Walk(), horizon=12)
    state = world.reset(jr.key(0))
    for _ in range(8):
        state = world.step(jr.key(0), state, jnp.int32(2))
    assert not world.is_over(state)  # Walk itself would have ended after 5 steps
    for action, goal in enumerate(state[0].goal):
        for _ in range(int(goal)):
            assert not world.is_over(state)
            state = world.step(jr.key(0), state, jnp.int32(action))
    assert world.is_over(state)


def test_layouts_are_random_or_chosen_by_a_number(walks):
    drawn = farflung.make_world("gymnax:Walk-v0")
    assert len(goals(drawn)) > 3
    first, again, second = (farflung.make_world("gymnax:Walk-v0", env_options={"layout": each}) for each in (1, 1, 2))
    assert goals(first) == goals(again)
    assert len(goals(first)) == len(goals(second)) == 1
    assert first.identity == again.identity != second.identity
    with pytest.raises(ValueError, match="layout must be a whole number"):
        farflung.make_world("gymnax:Walk-v0", env_options={"layout": "new"})


def test_options_reach_the_parameters_and_the_constructor(walks):
    world = farflung.make_world("gymnax:Walk-v0", env_options={"size": 6, "num_actions": 2}, horizon=7)
    assert (world.projection.bins, world.actions.num, world.horizon) == ((6, 6), 2, 7)
    with pytest.raises(ValueError, match=r'gymnax:Walk-v0 cannot be made with the options {"speed": 3}: TypeError: .*speed'):
        farflung.make_world("gymnax:Walk-v0", env_options={"speed": 3})


@pytest.mark.parametrize("options", [{"num_rows": 8000, "num_cols": 8000}, {"grid_shape": [10**30, 1]}, {"size": 10**8}])
def test_an_environment_that_would_be_too_large_is_refused_before_it_is_made(options, monkeypatch):
    monkeypatch.setattr(suites, "optional_package", lambda *_: pytest.fail("imported"))
    with pytest.raises(
        ValueError, match=r"jumanji:Snake-v1 would be too large: the product of \w+(, \w+)? is more than 10,000,000"
    ):
        suites.make_suite_world("jumanji:Snake-v1", options)


def test_an_unknown_id_lists_near_ones(walks):
    with pytest.raises(ValueError, match=r"gymnax has no environment 'Walk-v2': choose Walk-v1, Walk-v0$"):
        farflung.make_world("gymnax:Walk-v2")


def test_a_missing_suite_is_one_line_that_names_its_extra(monkeypatch, capsys):
    missing = FAMILIES["navix"]._replace(module="no_such_suite")
    monkeypatch.setitem(FAMILIES, "navix", missing)
    assert main(["explore", "navix:Navix-Empty-5x5-v0"]) == 2
    assert capsys.readouterr().err == (
        "farflung: navix:Navix-Empty-5x5-v0 needs the suite navix: pip install '.[navix]', in a clone of farflung\n"
    )


def test_a_world_that_is_read_from_a_file_has_its_options(walks):
    world = farflung.make_world("gymnax:Walk-v0", env_options={"layout": 3, "size": 5}, horizon=4)
    read = read_world(world.to_arrays())
    assert read.identity == world.identity
    read = read.with_environment()
    assert (goals(read), read.projection.bins, read.horizon) == (goals(world), (5, 5), 4)


def test_a_file_makes_environments_of_known_suites_only(walks, monkeypatch):
    arrays = farflung.make_world("gymnax:Walk-v0", env_options={"layout": 3}).to_arrays()
    assert isinstance(read_world(arrays).with_environment().own, SuiteWorld)
    described = json.loads(str(arrays["jax"]))
    for change, message in (
        ({"name": "subprocess_not_there:Popen"}, "not installed"),
        ({"name": "gymnax:os.system"}, "gymnax has no environment"),
        ({"options": [1]}, "not as farflung writes it"),
        ({"options": {"layout": "x" * 5000}}, "at most 2000 characters"),
    ):
        forged = {"jax": np.array(json.dumps(described | change))}
        with pytest.raises(ValueError, match=message):
            read_world(forged).with_environment()


def test_small_arrays_of_bytes_are_codes_and_large_ones_are_images():
    codes, image = jnp.zeros((8, 8, 3), jnp.uint8), jnp.full((64, 64, 3), 0.5)
    assert suites._seen(codes).dtype == jnp.float32
    assert suites._seen(image).dtype == jnp.uint8
    assert int(suites._seen(image)[0, 0, 0]) == 128
    assert suites._seen(image.astype(jnp.uint8)).dtype == jnp.uint8


ARM = """
<mujoco><worldbody>
  <body name="arm"><joint name="shoulder" type="hinge"/><joint name="elbow" type="hinge" axis="1 0 0"/><geom size="0.1"/></body>
  {}
</worldbody></mujoco>
"""
CUBE = '<body name="cube"><freejoint/><geom size="0.1"/></body>'
TORSO = '<mujoco><worldbody><body name="torso"><freejoint/><geom size="0.1"/></body></worldbody></mujoco>'


class Data(NamedTuple):
    qpos: jax.Array
    qvel: jax.Array


class RobotState(NamedTuple):
    data: Data
    obs: jax.Array
    done: jax.Array
    info: dict


class Simulated:
    """A robot with the functions of MuJoCo Playground: an action moves all of its coordinates."""

    action_size = observation_size = 1

    def __init__(self, xml):
        self.mj_model = pytest.importorskip("mujoco").MjModel.from_xml_string(xml)

    @property
    def unwrapped(self):
        return self

    def reset(self, key):
        data = Data(jnp.arange(self.mj_model.nq, dtype=jnp.float32), jnp.zeros(self.mj_model.nv))
        return RobotState(data, jnp.zeros(1), jnp.float32(0), {})

    def step(self, state, action):
        return state._replace(data=state.data._replace(qpos=state.data.qpos + action[0]))


@pytest.mark.parametrize(
    ("xml", "names", "place"),
    [
        (ARM.format(CUBE), ("cube x (m)", "cube y (m)"), [2, 3]),
        (ARM.format(""), ("shoulder", "elbow"), [0, 1]),
        (TORSO, ("x (m)", "y (m)"), [0, 1]),
    ],
)
def test_what_is_covered_is_the_place_of_the_body_that_moves_freely_or_else_the_first_joints(xml, names, place):
    world = farflung.from_jax(Simulated(xml), horizon=3)
    assert world.projection.names == names
    assert np.asarray(world.projection.project(world.observe(world.reset(jr.key(0))))).tolist() == place
    assert not world.is_reproducible
