"""Robots simulated with MuJoCo MJX: many copies at once, on JAX's device."""

import contextlib
import importlib
import io
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Bool, Float

from farflung.config.checks import check_name, optional_package, whole_number
from farflung.worlds.projection import Box, Projection
from farflung.worlds.vectors import DescribedWorld
from farflung.worlds.world import Limbs

_EXTRA = "'.[robotics]', in a clone of farflung"
_ENGINES = ("jax", "warp")
_LINE_SEARCH_STEPS = 8
_MOST_WARP_COPIES = 16384
"""Warp allocates memory for the contacts of all copies together; if there are more, it warns and drops some."""

_FRAME = (180, 240)
"""Height and width of a rendered picture."""
_CAMERA_DISTANCE, _CAMERA_ELEVATION = 4.0, -20.0
"""In metres from the torso, and in degrees above it."""

Range = tuple[int, float, float]
"""The index of a position, and its least and largest value."""


class RobotState(NamedTuple):
    """Everything that the next step of the simulation needs."""

    positions: Float[Array, " position"]
    velocities: Float[Array, " velocity"]
    accelerations: Float[Array, " velocity"]
    """The last accelerations, from which the contact solver starts."""


class Robot(DescribedWorld):
    """A MuJoCo model: an action sets its motors, an observation is all positions, then all velocities."""

    model: Any
    """MJX's model, with solver options."""
    blank: Any
    """MJX's data of one copy, before the first step."""
    start: Float[Array, " position"]
    reset_noise: float = eqx.field(static=True)
    """Half the range of uniform noise on the initial positions and velocities."""
    has_gaussian_velocities: bool = eqx.field(static=True)
    """Whether the noise on the velocities is Gaussian instead, with this standard deviation."""
    num_substeps: int = eqx.field(static=True)
    """Simulation steps per action."""
    healthy: tuple[Range, ...] = eqx.field(static=True)
    """An episode ends when a position leaves one of these ranges, or when a state is not finite."""
    xml: str = eqx.field(static=True)
    """The model's file."""

    is_reproducible = False  # on a GPU, MJX and Warp sum forces in no fixed order
    num_step_uniforms = 0

    @property
    def pose_size(self) -> int:  # type: ignore[override]
        return self.start.size

    def limbs(self, poses: Float[np.ndarray, "*axes position"]) -> Limbs:
        mujoco, model, data = _simulator(self.xml)
        kinds = mujoco.mjtGeom
        shown = np.flatnonzero((model.geom_bodyid > 0) & (model.geom_type != kinds.mjGEOM_PLANE))
        sizes, axes = model.geom_size[shown], np.full(len(shown), 2)
        is_round = np.isin(model.geom_type[shown], [kinds.mjGEOM_CAPSULE, kinds.mjGEOM_CYLINDER])
        is_ball = model.geom_type[shown] == kinds.mjGEOM_SPHERE
        axes[~is_round] = sizes[~is_round].argmax(axis=1)  # boxes and ellipsoids extend along their longest side
        longest, rest = sizes.max(axis=1), np.sort(sizes, axis=1)[:, :2].mean(axis=1)
        radii = np.where(is_round | is_ball, sizes[:, 0], rest)
        halves = np.where(is_round, sizes[:, 1], np.where(is_ball, 0.0, longest - rest))
        flat, ends = poses.reshape(-1, poses.shape[-1]), []
        for pose in flat:
            data.qpos[:] = np.where(np.isfinite(pose), pose, 0.0)
            mujoco.mj_kinematics(model, data)
            turned = data.geom_xmat[shown].reshape(-1, 3, 3)[np.arange(len(shown)), :, axes] * halves[:, None]
            ends.append(np.stack([data.geom_xpos[shown] - turned, data.geom_xpos[shown] + turned], axis=1))
        found = np.where(np.isfinite(flat).all(axis=1)[:, None, None, None], np.stack(ends), np.nan)
        return Limbs(found.reshape(*poses.shape[:-1], len(shown), 2, 3), radii)

    def frames(self, poses: Float[np.ndarray, "times position"]) -> list[np.ndarray]:
        mujoco, model, data = _simulator(self.xml)
        try:
            renderer = mujoco.Renderer(model, *_FRAME)
        except Exception as error:  # OpenGL's errors have no class in common
            raise ValueError(
                "MuJoCo finds no OpenGL to render with: install EGL or OSMesa and set MUJOCO_GL to egl or osmesa, or film the "
                "path in the plane, without --rendered"
            ) from error
        camera = mujoco.MjvCamera()
        mujoco.mjv_defaultFreeCamera(model, camera)
        camera.type, camera.trackbodyid = mujoco.mjtCamera.mjCAMERA_TRACKING, 1
        camera.distance, camera.elevation = _CAMERA_DISTANCE, _CAMERA_ELEVATION
        pictures = []
        with renderer:
            for pose in poses[np.isfinite(poses).all(axis=1)]:
                data.qpos[:] = pose
                mujoco.mj_forward(model, data)
                renderer.update_scene(data, camera)
                for costly in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
                    renderer.scene.flags[costly] = 0
                pictures.append(renderer.render())
        return pictures

    @property
    def num_reset_uniforms(self) -> int:
        return self.observation_size

    def reset_from(self, noise: Float[Array, " observation"]) -> RobotState:
        num_positions = self.start.size
        shifts = self.reset_noise * (2 * noise[:num_positions] - 1)
        velocities = 2 * noise[num_positions:] - 1
        if self.has_gaussian_velocities:
            velocities = ndtri(jnp.maximum(noise[num_positions:], 2.0**-25))  # at 0 it is infinite
        return RobotState(self.start + shifts, self.reset_noise * velocities, jnp.zeros_like(velocities))

    def step_from(self, noise: Float[Array, "0"], state: RobotState, action: Float[Array, " motor"]) -> RobotState:
        mjx = _import_mjx()

        def substep(_: Array, state: RobotState) -> RobotState:
            # Carries only what the next step needs: MJX's whole data are a hundred times as large.
            data = self.blank.replace(
                qpos=state.positions, qvel=state.velocities, qacc_warmstart=state.accelerations, ctrl=action
            )
            data = mjx.step(self.model, data)
            return RobotState(data.qpos, data.qvel, data.qacc_warmstart)

        with jax.numpy_rank_promotion("allow"):  # MJX relies on it
            return jax.lax.fori_loop(0, self.num_substeps, substep, state)

    def observe(self, state: RobotState) -> Float[Array, " observation"]:
        return jnp.concatenate([state.positions, state.velocities])

    def is_over(self, state: RobotState) -> Bool[Array, ""]:
        is_healthy = jnp.all(jnp.isfinite(self.observe(state)))
        for index, low, high in self.healthy:
            is_healthy &= (low <= state.positions[index]) & (state.positions[index] <= high)
        return ~is_healthy


class _Model(NamedTuple):
    """One of Gymnasium's robots: its file, what is worth covering, and Gymnasium's rules for its beginning and end."""

    file: str
    features: tuple[int, int]
    """Positions whose entropy is maximised."""
    names: tuple[str, str]
    low: tuple[float, float]
    high: tuple[float, float]
    velocity_scale: tuple[float, ...]
    reset_noise: float
    has_gaussian_velocities: bool
    num_substeps: int
    healthy: tuple[Range, ...] = ()


_IN_PLANE = {"features": (0, 1), "low": (-12.0, -12.0), "high": (12.0, 12.0)}
_MODELS = {
    "ant": _Model(
        "ant.xml",
        names=("x (m)", "y (m)"),
        **_IN_PLANE,  # type: ignore[arg-type]
        velocity_scale=(1.0,) * 3 + (2.0,) * 3 + (5.0,) * 8,
        reset_noise=0.1,
        has_gaussian_velocities=True,
        num_substeps=5,
        healthy=((2, 0.2, 1.0),),
    ),
    "half-cheetah": _Model(
        "half_cheetah.xml",
        features=(0, 2),
        names=("x (m)", "pitch (rad)"),
        low=(-20.0, -2 * math.pi),
        high=(20.0, 2 * math.pi),
        velocity_scale=(2.0, 1.0, 2.0) + (10.0,) * 6,
        reset_noise=0.1,
        has_gaussian_velocities=True,
        num_substeps=5,
    ),
    "hopper": _Model(
        "hopper.xml",
        features=(0, 1),
        names=("x (m)", "height (m)"),
        low=(-6.0, 0.0),
        high=(6.0, 2.0),
        velocity_scale=(1.0, 1.0, 2.0) + (5.0,) * 3,
        reset_noise=0.005,
        has_gaussian_velocities=False,
        num_substeps=4,
        healthy=((1, 0.7, math.inf), (2, -0.2, 0.2)),
    ),
    "walker2d": _Model(
        "walker2d_v5.xml",
        features=(0, 1),
        names=("x (m)", "height (m)"),
        low=(-6.0, 0.0),
        high=(6.0, 2.0),
        velocity_scale=(1.0, 1.0, 2.0) + (5.0,) * 6,
        reset_noise=0.005,
        has_gaussian_velocities=False,
        num_substeps=4,
        healthy=((1, 0.8, 2.0), (2, -1.0, 1.0)),
    ),
    "humanoid": _Model(
        "humanoid.xml",
        names=("x (m)", "y (m)"),
        **_IN_PLANE,  # type: ignore[arg-type]
        velocity_scale=(1.0,) * 3 + (2.0,) * 3 + (5.0,) * 17,
        reset_noise=0.01,
        has_gaussian_velocities=False,
        num_substeps=5,
        healthy=((2, 1.0, 2.0),),
    ),
}


def gymnasium_robot(
    name: str,
    *,
    horizon: int = 500,
    bins: tuple[int, ...] = (40, 40),
    neighbours: int = 4,
    ends_when_unhealthy: bool = True,
    solver_iterations: int = 4,
    engine: str = "jax",
) -> Robot:
    """One of Gymnasium's robots without its reward: `ant`, `half-cheetah`, `hopper`, `walker2d` or `humanoid`.

    The entropy is that of the torso's position in the plane; of robots that only move in x and z, that of x and the torso's
    height; of `half-cheetah`, which can turn over, that of x and the torso's angle.

    Args:
        ends_when_unhealthy: whether an episode ends by Gymnasium's rule, such as when the torso is too low. For `half-cheetah`,
            there is none.
        solver_iterations: Newton steps for the contact forces. Four are as accurate as MuJoCo's hundred. One is faster, but in
            a tenth of all steps of the `ant` the error of the torso's velocity is 0.4 m/s or more.
        engine: `jax`, or `warp` for MuJoCo Warp on NVIDIA GPUs, which needs `pip install 'mujoco-mjx[warp]'`.
    """
    found = _MODELS[name]
    return robot(
        model_file(name),
        Projection(found.features, found.names, found.low, found.high, bins, (1.0, 1.0), neighbours),
        horizon=horizon,
        num_substeps=found.num_substeps,
        healthy=found.healthy if ends_when_unhealthy else (),
        velocity_scale=found.velocity_scale,
        reset_noise=found.reset_noise,
        has_gaussian_velocities=found.has_gaussian_velocities,
        solver_iterations=solver_iterations,
        engine=engine,
    )


def model_file(name: str) -> Path:
    """The file of one of Gymnasium's models."""
    return Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / _MODELS[name].file


def robot(
    xml: str | os.PathLike[str],
    projection: Projection,
    *,
    horizon: int,
    num_substeps: int,
    velocity_scale: Sequence[float] | None = None,
    healthy: Sequence[Range] = (),
    reset_noise: float = 0.0,
    has_gaussian_velocities: bool = True,
    solver_iterations: int = 4,
    engine: str = "jax",
) -> Robot:
    """The world of a MuJoCo model in a file.

    Args:
        projection: the features whose entropy is maximised.
        num_substeps: simulation steps per action.
        velocity_scale: a typical size of each velocity (default: 1).
        healthy: an episode ends when a position, given by its index, leaves the range of its least and largest value.
        reset_noise: half the range of uniform noise on the initial positions, and the standard deviation of Gaussian noise on
            the velocities.
        has_gaussian_velocities: if not, the noise on the velocities is uniform as well.
        solver_iterations: Newton steps for the contact forces.
        engine: `jax`, or `warp` for NVIDIA GPUs.
    """
    check_name("engine", engine, _ENGINES)
    mjx = _import_mjx()
    mujoco = _imported("mujoco")
    try:
        model = mujoco.MjModel.from_xml_path(os.fspath(xml))
    except ValueError as error:
        raise ValueError(f"cannot read the robot {xml}: {str(error).splitlines()[0]}") from None
    model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON  # the humanoid's own solver is none of MJX's
    model.opt.iterations = whole_number("solver_iterations", solver_iterations)
    model.opt.ls_iterations = _LINE_SEARCH_STEPS
    if model.na > 0:
        raise ValueError(f"the robot {xml} has stateful motors (MuJoCo activations), which are not supported")
    try:
        on_device, blank = _put_on_warp(mjx, model) if engine == "warp" else _put_on_jax(mjx, model)
    except NotImplementedError as error:
        raise ValueError(f"MJX cannot simulate the robot {xml}: {error}") from None
    motor_ranges = np.where(model.actuator_ctrllimited[:, None], model.actuator_ctrlrange, [-math.inf, math.inf])
    velocity_scale = (1.0,) * model.nv if velocity_scale is None else tuple(velocity_scale)
    if len(velocity_scale) != model.nv:
        raise ValueError(f"velocity_scale has a number for each of the {model.nv} velocities, not {len(velocity_scale)}")
    center, scale = _position_ranges(model, projection, healthy)
    return Robot(
        horizon=whole_number("horizon", horizon),
        projection=projection,
        actions=Box(*(tuple(bound.tolist()) for bound in motor_ranges.T)),
        observation_center=(*center, *[0.0] * model.nv),
        observation_scale=(*scale, *velocity_scale),
        model=_on_any_device(on_device),
        blank=_on_any_device(blank),
        start=jnp.asarray(model.qpos0, jnp.float32),
        reset_noise=reset_noise,
        has_gaussian_velocities=has_gaussian_velocities,
        num_substeps=whole_number("num_substeps", num_substeps),
        healthy=tuple(healthy),
        xml=os.fspath(xml),
    )


def _simulator(xml: str) -> tuple[Any, Any, Any]:
    """MuJoCo, the model of a file, and its data."""
    mujoco = _imported("mujoco")
    model = mujoco.MjModel.from_xml_path(xml)
    return mujoco, model, mujoco.MjData(model)


def _import_mjx() -> Any:
    with contextlib.redirect_stdout(io.StringIO()):  # MJX prints a message if Warp is missing
        return _imported("mujoco.mjx")


def _imported(name: str) -> Any:
    """MuJoCo or a part of it, which looks for OpenGL as soon as it is imported, if `MUJOCO_GL` names one."""
    try:
        return optional_package(name, _EXTRA)
    except (AttributeError, OSError, RuntimeError) as error:  # OpenGL's errors have no class in common
        chosen = os.environ.get("MUJOCO_GL")
        if not chosen:
            raise
        raise ValueError(
            f"MuJoCo finds no OpenGL with MUJOCO_GL={chosen}: install EGL or OSMesa and set MUJOCO_GL to egl or osmesa, or "
            "unset it and film the path in the plane, without --rendered"
        ) from error


def _put_on_jax(mjx: Any, model: Any) -> tuple[Any, Any]:
    return mjx.put_model(model, impl="jax"), mjx.make_data(model, impl="jax")


def _put_on_warp(mjx: Any, model: Any) -> tuple[Any, Any]:
    warp = optional_package("warp", "'mujoco-mjx[warp]'")
    warp.config.log_level = max(warp.config.log_level, warp.LOG_WARNING)  # otherwise Warp prints each kernel that it compiles
    most = mjx.make_data(model, impl="jax")._impl  # the JAX engine allocates the maximum number of contacts
    num_contacts, num_rows = most.contact.dist.size, most.efc_J.shape[0]
    blank = mjx.make_data(model, impl="warp", naconmax=num_contacts * _MOST_WARP_COPIES, njmax=num_rows)
    overflow = importlib.import_module("mujoco.mjx.warp").mjwp_types.OverflowType
    warnings = overflow.ALL & ~(overflow.ITERATIONS | overflow.LS_ITERATIONS)  # we limit the iterations on purpose
    return mjx.put_model(model, impl="warp").tree_replace({"opt._impl.warn_overflow": int(warnings)}), blank


def _on_any_device(tree: Any) -> Any:
    """The same tree, not committed to a device: MJX binds its arrays to the first one."""
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), tree)


def _position_ranges(model: Any, projection: Projection, healthy: Sequence[Range]) -> tuple[list[float], list[float]]:
    """Centre and half-width of each position's range, from the joints, the projection and what is healthy; else 0 and 1."""
    ranges = np.tile([-1.0, 1.0], (model.nq, 1))
    is_limited = model.jnt_limited.astype(bool)
    ranges[model.jnt_qposadr[is_limited]] = model.jnt_range[is_limited]
    for index, low, high in healthy:
        ranges[index] = (low if math.isfinite(low) else high - 2, high if math.isfinite(high) else low + 2)
    for feature, *bounds in zip(projection.features, projection.low, projection.high, strict=True):
        if feature < model.nq:
            ranges[feature] = bounds
    return ranges.mean(axis=1).tolist(), (np.diff(ranges)[:, 0] / 2).tolist()
