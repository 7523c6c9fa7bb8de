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

_EXTRA = "'.[robotics]', in a clone of farflung"
_ENGINES = ("jax", "warp")
_LINE_SEARCH_STEPS = 8
_MOST_WARP_COPIES = 16384
"""Warp allocates memory for the contacts of all copies together; if there are more, it warns and drops some."""


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
    """Half the range of uniform noise on the initial positions, and the standard deviation of Gaussian noise on velocities."""
    num_substeps: int = eqx.field(static=True)
    """Simulation steps per action."""
    healthy_heights: tuple[float, float] = eqx.field(static=True)
    """An episode ends when the third position leaves this range, or when a state is not finite."""

    is_reproducible = False  # on a GPU, MJX and Warp sum forces in no fixed order
    num_step_uniforms = 0

    @property
    def num_reset_uniforms(self) -> int:
        return self.observation_size

    def reset_from(self, noise: Float[Array, " observation"]) -> RobotState:
        num_positions = self.start.size
        shifts = self.reset_noise * (2 * noise[:num_positions] - 1)
        velocities = self.reset_noise * ndtri(jnp.maximum(noise[num_positions:], 2.0**-25))  # at 0 it is infinite
        return RobotState(self.start + shifts, velocities, jnp.zeros_like(velocities))

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
        low, high = self.healthy_heights
        is_healthy = jnp.all(jnp.isfinite(self.observe(state)))
        if math.isfinite(low) or math.isfinite(high):
            is_healthy &= (low <= state.positions[2]) & (state.positions[2] <= high)
        return ~is_healthy


def ant(
    *,
    horizon: int = 500,
    bins: tuple[int, ...] = (40, 40),
    neighbours: int = 4,
    ends_when_unhealthy: bool = True,
    solver_iterations: int = 4,
    engine: str = "jax",
) -> Robot:
    """Gymnasium's `Ant-v5` without its reward; the entropy is that of the torso's position in the plane.

    Args:
        ends_when_unhealthy: whether an episode ends when the torso is below 0.2 m or above 1 m.
        solver_iterations: Newton steps for the contact forces. Four are as accurate as MuJoCo's hundred. One is faster, but in
            a tenth of all steps the error of the torso's velocity is 0.4 m/s or more.
        engine: `jax`, or `warp` for MuJoCo Warp on NVIDIA GPUs, which needs `pip install 'mujoco-mjx[warp]'`.
    """
    return robot(
        Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / "ant.xml",
        Projection((0, 1), ("x (m)", "y (m)"), (-12.0, -12.0), (12.0, 12.0), bins, (1.0, 1.0), neighbours),
        horizon=horizon,
        num_substeps=5,
        healthy_heights=(0.2, 1.0) if ends_when_unhealthy else (-math.inf, math.inf),
        velocity_scale=(1.0,) * 3 + (2.0,) * 3 + (5.0,) * 8,
        reset_noise=0.1,
        solver_iterations=solver_iterations,
        engine=engine,
    )


def robot(
    xml: str | os.PathLike[str],
    projection: Projection,
    *,
    horizon: int,
    num_substeps: int,
    velocity_scale: Sequence[float] | None = None,
    healthy_heights: tuple[float, float] = (-math.inf, math.inf),
    reset_noise: float = 0.0,
    solver_iterations: int = 4,
    engine: str = "jax",
) -> Robot:
    """The world of a MuJoCo model in a file.

    Args:
        projection: the features whose entropy is maximised.
        num_substeps: simulation steps per action.
        velocity_scale: a typical size of each velocity (default: 1).
        healthy_heights: an episode ends when the third position leaves this range.
        reset_noise: half the range of uniform noise on the initial positions, and the standard deviation of Gaussian noise on
            the velocities.
        solver_iterations: Newton steps for the contact forces.
        engine: `jax`, or `warp` for NVIDIA GPUs.
    """
    check_name("engine", engine, _ENGINES)
    mjx = _import_mjx()
    mujoco = optional_package("mujoco", _EXTRA)
    try:
        model = mujoco.MjModel.from_xml_path(os.fspath(xml))
    except ValueError as error:
        raise ValueError(f"cannot read the robot {xml}: {str(error).splitlines()[0]}") from None
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
    center, scale = _position_ranges(model, projection, healthy_heights)
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
        num_substeps=whole_number("num_substeps", num_substeps),
        healthy_heights=healthy_heights,
    )


def _import_mjx() -> Any:
    with contextlib.redirect_stdout(io.StringIO()):  # MJX prints a message if Warp is missing
        return optional_package("mujoco.mjx", _EXTRA)


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


def _position_ranges(
    model: Any, projection: Projection, healthy_heights: tuple[float, float]
) -> tuple[list[float], list[float]]:
    """Centre and half-width of each position's range, from the joints, the projection and the heights; else 0 and 1."""
    ranges = np.tile([-1.0, 1.0], (model.nq, 1))
    is_limited = model.jnt_limited.astype(bool)
    ranges[model.jnt_qposadr[is_limited]] = model.jnt_range[is_limited]
    low, high = healthy_heights
    if math.isfinite(low) or math.isfinite(high):
        ranges[2] = (low if math.isfinite(low) else high - 2, high if math.isfinite(high) else low + 2)
    for feature, *bounds in zip(projection.features, projection.low, projection.high, strict=True):
        if feature < model.nq:
            ranges[feature] = bounds
    return ranges.mean(axis=1).tolist(), (np.diff(ranges)[:, 0] / 2).tolist()
