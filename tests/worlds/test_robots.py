import base64
import dataclasses
import math
import sys

import gymnasium
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from tests.made_runs import made_continuous_run

import farflung
from farflung.figures import film, player
from farflung.studies import explore
from farflung.worlds.projection import Projection
from farflung.worlds.robots import RobotState, gymnasium_robot, model_file, robot

# Compiles within seconds, where the ant takes half a minute.
HOPPER = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <geom type="plane" size="9 9 1"/>
    <body pos="0 0 0.3">
      <joint type="slide" axis="1 0 0"/>
      <joint type="slide" axis="0 0 1"/>
      <geom type="sphere" size="0.1" mass="1" conaffinity="0"/>
      <body>
        <joint name="knee" type="hinge" axis="0 1 0" range="-60 30" limited="true" damping="1" armature="0.1"/>
        <geom type="capsule" fromto="0 0 0 0.2 0 -0.1" size="0.03" mass="0.2" contype="0" conaffinity="0"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="knee" gear="5" ctrllimited="true" ctrlrange="-1 1"/></actuator>
</mujoco>
"""
PROJECTION = Projection((0, 1), ("x (m)", "z (m)"), (-2.0, -1.0), (2.0, 3.0), (4, 4), (1.0, 1.0))


@pytest.fixture(scope="module")
def hopper_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("robots") / "hopper.xml"
    path.write_text(HOPPER)
    return path


@pytest.fixture(scope="module")
def hopper(hopper_file):
    return robot(hopper_file, PROJECTION, horizon=10, num_substeps=5)


@pytest.fixture(scope="module")
def the_ant():
    return gymnasium_robot("ant")


def test_a_robot_moves_as_in_mujocos_own_engine(hopper, hopper_file):
    actions = np.random.default_rng(0).uniform(-2, 2, (10, 1)).astype(np.float32)
    start = hopper.reset_from(jnp.full(6, 0.5))
    states = jax.jit(
        lambda actions: jax.lax.scan(
            lambda state, action: (hopper.step_from(jnp.zeros(0), state, action),) * 2, start, actions
        )[1]
    )(actions)

    model = mujoco.MjModel.from_xml_path(str(hopper_file))
    data, heights, num_contacts = mujoco.MjData(model), [], 0
    for time, action in enumerate(actions):
        data.ctrl[:] = action
        mujoco.mj_step(model, data, nstep=5)
        heights.append(data.qpos[1])
        num_contacts += data.ncon
        np.testing.assert_allclose(states.positions[time], data.qpos, atol=1e-5)
        np.testing.assert_allclose(states.velocities[time], data.qvel, atol=1e-4)
    assert num_contacts > 0
    assert np.ptp(heights) > 0.1  # it falls, then stands


def test_observations_are_scaled_by_the_ranges_of_the_grid_and_joints(hopper):
    assert hopper.actions.low == (-1,)
    np.testing.assert_allclose(hopper.observation_center, (0, 1, math.radians(-15), 0, 0, 0))
    np.testing.assert_allclose(hopper.observation_scale, (2, 2, math.radians(45), 1, 1, 1))


@pytest.mark.parametrize(
    ("heights", "middle", "half"), [((0.2, math.inf), 1.2, 1), ((-math.inf, 3.0), 2, 1), ((0.2, 0.8), 0.5, 0.3)]
)
def test_a_height_with_one_bound_is_scaled_from_there(hopper_file, heights, middle, half):
    world = robot(hopper_file, PROJECTION, horizon=10, num_substeps=5, healthy=[(2, *heights)])
    assert (world.observation_center[2], world.observation_scale[2]) == pytest.approx((middle, half))


def test_the_ant_starts_as_gymnasiums_does(the_ant):
    environment = gymnasium.make("Ant-v5").unwrapped
    environment.reset(seed=0)
    noise = jax.random.uniform(jax.random.key(0), (1000, the_ant.num_reset_uniforms)).at[0].set(0.0)
    states = jax.vmap(the_ant.reset_from)(noise)
    shifts = np.asarray(states.positions) - environment.init_qpos
    assert np.abs(shifts).max() == pytest.approx(0.1, abs=1e-3)
    assert np.isfinite(states.velocities).all()
    assert np.std(states.velocities) == pytest.approx(0.1, rel=0.05)
    assert the_ant.actions.high == tuple(environment.action_space.high)


def test_the_ant_shows_where_its_torso_is_first(the_ant):
    state = RobotState(jnp.arange(15.0), jnp.arange(15.0, 29.0), jnp.zeros(14))
    np.testing.assert_array_equal(the_ant.observe(state), np.arange(29))
    np.testing.assert_array_equal(the_ant.projection.project(the_ant.observe(state)), [0, 1])
    assert the_ant.observation_size == len(the_ant.observation_scale) == 29


@pytest.mark.parametrize(
    ("height", "is_over"), [(0.19, True), (0.21, False), (0.99, False), (1.01, True), (math.nan, True), (math.inf, True)]
)
def test_the_ant_ends_by_gymnasiums_rule(the_ant, height, is_over):
    environment = gymnasium.make("Ant-v5").unwrapped
    environment.data.qpos[2] = height
    state = the_ant.reset_from(jnp.full(29, 0.5))
    state = state._replace(positions=state.positions.at[2].set(height))
    assert bool(the_ant.is_over(state)) == is_over == (not environment.is_healthy)
    going_on = dataclasses.replace(the_ant, healthy=())
    assert bool(going_on.is_over(state)) == (not math.isfinite(height))


def test_the_state_of_an_ant_is_small(the_ant):
    state = the_ant.reset_from(jnp.full(29, 0.5))
    after = jax.eval_shape(the_ant.step_from, jnp.zeros(0), state, jnp.zeros(8))
    assert jax.tree.map(jnp.shape, after) == ((15,), (14,), (14,))


def test_bad_robots_are_refused_in_one_line(tmp_path, hopper_file):
    with pytest.raises(ValueError, match=r"unknown engine 'wrap' \(did you mean 'warp'\?\)"):
        gymnasium_robot("ant", engine="wrap")
    with pytest.raises(ValueError, match="solver_iterations must be at least 1, not 0"):
        gymnasium_robot("ant", solver_iterations=0)
    with pytest.raises(ValueError, match="cannot read the robot"):
        robot(tmp_path / "none.xml", PROJECTION, horizon=10, num_substeps=5)
    with pytest.raises(ValueError, match="a number for each of the 3 velocities, not 2"):
        robot(hopper_file, PROJECTION, horizon=10, num_substeps=5, velocity_scale=(1.0, 2.0))


def test_without_mujoco_the_message_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco.mjx", None)
    with pytest.raises(ValueError, match=r"this needs mujoco: pip install '\.\[robotics\]'"):
        gymnasium_robot("ant")


@pytest.mark.parametrize(
    ("name", "environment"),
    [("half-cheetah", "HalfCheetah-v5"), ("hopper", "Hopper-v5"), ("walker2d", "Walker2d-v5"), ("humanoid", "Humanoid-v5")],
)
def test_robots_start_and_end_by_gymnasiums_rules(name, environment):
    made, world = gymnasium.make(environment).unwrapped, gymnasium_robot(name)
    made.reset(seed=0)
    assert world.actions.high == pytest.approx(made.action_space.high)
    assert world.num_substeps == made.frame_skip
    num_positions, num_velocities = len(made.init_qpos), len(made.init_qvel)
    noise = jax.random.uniform(jax.random.key(0), (2000, num_positions + num_velocities))
    states = jax.jit(jax.vmap(world.reset_from))(noise)
    starts = [made.reset(seed=seed) and (made.data.qpos.copy(), made.data.qvel.copy()) for seed in range(200)]
    for ours, theirs in zip((states.positions, states.velocities), map(np.stack, zip(*starts, strict=True)), strict=True):
        np.testing.assert_allclose(np.std(ours, axis=0), np.std(theirs, axis=0), rtol=0.3)
        np.testing.assert_allclose(np.mean(ours, axis=0), np.mean(theirs, axis=0), atol=0.03)
    is_over = jax.jit(lambda state: world.is_over(state))
    for index, low, high in world.healthy:
        for place in (low - 0.01, low + 0.01, min(high, 9.0) - 0.01, high + 0.01):
            positions = np.array(made.init_qpos)
            positions[index] = place
            if math.isfinite(place):
                made.set_state(positions, made.init_qvel)
                assert bool(is_over(RobotState(jnp.asarray(positions), *jnp.zeros((2, num_velocities))))) == (
                    not made.is_healthy
                )
    assert world.healthy or name == "half-cheetah"


@pytest.mark.parametrize("name", ["half-cheetah", "hopper", "walker2d", "humanoid"])
def test_named_robots_move_as_in_mujocos_own_engine(name):
    """One simulation step each, in contact with the ground; of Euler's method, which compiles four times as fast as theirs."""
    world = gymnasium_robot(name, solver_iterations=100)
    model = mujoco.MjModel.from_xml_path(str(model_file(name)))
    model.opt.solver, model.opt.integrator = mujoco.mjtSolver.mjSOL_NEWTON, mujoco.mjtIntegrator.mjINT_EULER
    data = mujoco.MjData(model)
    action = np.random.default_rng(0).uniform(-0.3, 0.3, model.nu)
    data.ctrl[:] = action
    mujoco.mj_step(model, data, nstep=150)
    assert data.ncon > 0
    before = RobotState(*(jnp.asarray(each, jnp.float32) for each in (data.qpos, data.qvel, data.qacc_warmstart)))
    options = world.model.opt
    euler = options.replace(integrator=type(options.integrator)(int(mujoco.mjtIntegrator.mjINT_EULER)))
    once = dataclasses.replace(world, num_substeps=1, model=world.model.replace(opt=euler))
    after = jax.jit(lambda *given: once.step_from(*given))(jnp.zeros(0), before, jnp.asarray(action, jnp.float32))
    mujoco.mj_step(model, data)
    np.testing.assert_allclose(after.positions, data.qpos, atol=1e-3)
    np.testing.assert_allclose(after.velocities, data.qvel, atol=2e-2)


def test_limbs_are_where_the_joints_put_them(hopper):
    positions = np.array([[0.0, 0.0, 0.0], [1.0, 0.5, np.pi / 2], [np.nan] * 3])
    ends, radii = hopper.limbs(positions)
    np.testing.assert_allclose(radii, [0.1, 0.03])
    torso, foot = np.array([[0, 0, 0.3]] * 2), np.array([[0.2, 0, 0.2], [0, 0, 0.3]])
    np.testing.assert_allclose(ends[0], [torso, foot], atol=1e-9)
    turned = np.array([[-0.1, 0, 0.1], [0, 0, 0.3]])  # a quarter turn about y takes (0.2, -0.1) in x and z to (-0.1, -0.2)
    np.testing.assert_allclose(ends[1], np.array([torso, turned]) + np.array([1, 0, 0.5]), atol=1e-9)
    assert np.isnan(ends[2]).all()


def test_a_robot_without_opengl_says_what_to_do(hopper, monkeypatch):
    def fail(*_):
        raise AttributeError("'NoneType' object has no attribute 'glGetError'")

    monkeypatch.setattr(mujoco, "Renderer", fail)
    with pytest.raises(ValueError, match=r"finds no OpenGL to render with: install EGL or OSMesa and set MUJOCO_GL") as error:
        hopper.frames(np.zeros((2, 3)))
    assert "\n" not in str(error.value)


def test_an_opengl_that_is_chosen_and_missing_is_named(hopper, monkeypatch):
    def fail(*_):
        raise AttributeError("'NoneType' object has no attribute 'glGetError'")

    monkeypatch.setattr("farflung.worlds.robots.optional_package", fail)
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    with pytest.raises(ValueError, match="finds no OpenGL with MUJOCO_GL=osmesa: install EGL or OSMesa"):
        hopper.frames(np.zeros((2, 3)))
    monkeypatch.delenv("MUJOCO_GL")
    with pytest.raises(AttributeError):
        hopper.frames(np.zeros((2, 3)))


def test_the_poses_of_a_body_are_recorded_saved_and_checked(tmp_path, monkeypatch):
    run = made_continuous_run(agents=3, seeds=(0,))
    monkeypatch.setattr(type(run.world), "pose_size", 2)  # the place of a point is its pose
    found = explore._with_paths(run)
    np.testing.assert_array_equal(found.poses, found.paths.features[0][:, 0])
    farflung.save_run(found, tmp_path / "run")
    np.testing.assert_array_equal(farflung.load_run(tmp_path / "run").poses, found.poses)
    for wrong in (found.poses[..., :1], np.zeros((9, 21, 2), np.float32), found.poses.astype(float)):
        farflung.save_run(dataclasses.replace(found, poses=wrong), tmp_path / "wrong", force=True)
        with pytest.raises(ValueError, match=r"poses\.npz must hold poses \[path, time, 2 positions\] alone"):
            farflung.load_run(tmp_path / "wrong")


def test_the_page_has_the_limbs_of_the_recorded_poses(hopper):
    poses = np.random.default_rng(0).normal(size=(2, 11, 3)).astype(np.float32)
    poses[1, 5:] = np.nan  # its episode has ended
    run = dataclasses.replace(made_continuous_run(), world=hopper, poses=poses)
    body = player._body(run)
    assert (body["shape"], body["stride"]) == ([2, 11, 2], 1)
    numbers = np.frombuffer(base64.b64decode(body["points"]), "<u2").reshape(2, 11, 2, 2, 3)
    assert (numbers[1, 5:] == 65_535).all()
    low, high, ends = np.array(body["low"]), np.array(body["high"]), hopper.limbs(poses.astype(float)).ends
    is_there = np.isfinite(ends)
    np.testing.assert_allclose((low + (high - low) * numbers / 65_534)[is_there], ends[is_there], atol=1e-3)


def test_a_film_of_a_robot_shows_what_mujoco_renders(hopper, monkeypatch):
    poses = np.zeros((2, 4, 3), np.float32)
    poses[0, :, 0], poses[1, 2:] = range(4), np.nan
    monkeypatch.setattr(type(hopper), "frames", lambda _, own: [np.full((2, 2, 3), x, np.uint8) for x, *_ in own if x == x])
    figure, show, last = film.draw_frames(dataclasses.replace(made_continuous_run(), world=hopper, poses=poses))
    show(3)
    assert last == 3
    assert [int(axis.images[0].get_array().max()) for axis in figure.axes] == [3, 0]
