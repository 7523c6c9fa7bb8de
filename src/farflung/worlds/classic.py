"""Gymnasium's MountainCar and Pendulum without their rewards, in JAX; `make_vector_world` checks their options."""

import math
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from farflung.worlds.projection import Box, Discrete, Projection
from farflung.worlds.vectors import DescribedWorld


class ClassicWorld(DescribedWorld):
    """A world whose features can take all values of the projection's grid."""

    @property
    def free_area(self) -> float:
        return math.prod(high - low for low, high in zip(self.projection.low, self.projection.high, strict=True))


class MountainCar(ClassicWorld):
    """A car in a valley that must swing to get out of it: `MountainCarContinuous-v0`, or `MountainCar-v0` with three actions.

    Reaching the goal doesn't end an episode, so that the whole hill can be explored.
    """

    num_reset_uniforms, num_step_uniforms = 1, 0

    @property
    def environment(self) -> tuple[str, dict[str, Any]]:
        return "MountainCar-v0" if isinstance(self.actions, Discrete) else "MountainCarContinuous-v0", {}

    def reset_from(self, noise: Float[Array, "1"]) -> Float[Array, "2"]:
        return jnp.stack([-0.6 + 0.2 * noise[0], jnp.zeros(())])

    def step_from(
        self, noise: Float[Array, "0"], state: Float[Array, "2"], action: Int[Array, ""] | Float[Array, "1"]
    ) -> Float[Array, "2"]:
        force = 0.001 * (action - 1) if isinstance(self.actions, Discrete) else 0.0015 * action[0].clip(-1, 1)
        position, velocity = state
        velocity = (velocity + force - 0.0025 * jnp.cos(3 * position)).clip(-0.07, 0.07)
        position = (position + velocity).clip(-1.2, 0.6)
        is_stopped = (position <= -1.2) & (velocity < 0)
        return jnp.stack([position, jnp.where(is_stopped, 0.0, velocity)])

    def observe(self, state: Float[Array, "2"]) -> Float[Array, "2"]:
        return state


class Pendulum(ClassicWorld):
    """A pendulum to swing up, `Pendulum-v1`; an observation is the cosine and sine of the angle, and the angular velocity."""

    num_reset_uniforms, num_step_uniforms = 2, 0
    environment = ("Pendulum-v1", {})

    def reset_from(self, noise: Float[Array, "2"]) -> Float[Array, "2"]:
        return (2 * noise - 1) * jnp.array([math.pi, 1.0])

    def step_from(self, noise: Float[Array, "0"], state: Float[Array, "2"], action: Float[Array, "1"]) -> Float[Array, "2"]:
        angle, velocity = state
        velocity = (velocity + 0.05 * (15 * jnp.sin(angle) + 3 * action[0].clip(-2, 2))).clip(-8, 8)
        angle = angle + 0.05 * velocity
        return jnp.stack([jnp.mod(angle + math.pi, 2 * math.pi) - math.pi, velocity])  # small angles keep their precision

    def observe(self, state: Float[Array, "2"]) -> Float[Array, "3"]:
        angle, velocity = state
        return jnp.stack([jnp.cos(angle), jnp.sin(angle), velocity])


def mountain_car(
    *, is_discrete: bool = False, horizon: int = 400, bins: tuple[int, ...] = (20, 20), neighbours: int = 4
) -> MountainCar:
    """Gymnasium's MountainCar: an action is a force between -1 and 1, or, if `is_discrete`, to push left, not at all or right.

    Position and velocity are divided by their ranges before distances are measured.
    """
    return MountainCar(
        horizon=horizon,
        projection=Projection((0, 1), ("position", "velocity"), (-1.2, -0.07), (0.6, 0.07), bins, (1.8, 0.14), neighbours),
        actions=Discrete(3) if is_discrete else Box((-1.0,), (1.0,)),
        observation_center=(-0.3, 0.0),
        observation_scale=(0.9, 0.07),
    )


def pendulum(*, horizon: int = 200, bins: tuple[int, ...] = (20, 20), neighbours: int = 4) -> Pendulum:
    """Gymnasium's Pendulum; the entropy is that of the angle and the angular velocity, divided by their ranges."""
    return Pendulum(
        horizon=horizon,
        projection=Projection(
            features=(0, 2),
            names=("angle (rad)", "angular velocity (rad/s)"),
            low=(-math.pi, -8.0),
            high=(math.pi, 8.0),
            bins=bins,
            scale=(2 * math.pi, 16.0),
            neighbours=neighbours,
            angles=(0,),
        ),
        actions=Box((-2.0,), (2.0,)),
        observation_center=(0.0, 0.0, 0.0),
        observation_scale=(1.0, 1.0, 8.0),
    )
