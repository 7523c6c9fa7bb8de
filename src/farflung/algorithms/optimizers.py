"""Gradient ascent for teams, as chains of optax transformations."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from farflung.numerics.arrays import exact_sum, log_softmax, ordered_sum
from farflung.numerics.spread import num_parts
from farflung.policies import NeuralPolicy, TabularSoftmax

_DAMPING = 0.03
_OWN_SHARE = 0.1
_SMALLEST = 1e-12

Visits = Float[Array, "agent *time state"]
"""The number of actions taken with each row of a team's tables, per batch element."""


def optimizer(
    name: str,
    learning_rate: Callable[[Int[Array, ""]], Float[Array, ""]],
    mesh_axis: str | None = None,
    *,
    slows_own_parts: bool = True,
) -> optax.GradientTransformationExtraArgs:
    """Turns gradients of a team's parameters into steps; for tables, `update` needs the `visits` as well.

    `natural` divides by the Fisher information, so steps don't depend on how often a state is visited. `trust-region` goes in
    the same direction until the policies have changed by a KL divergence of `learning_rate`.

    Args:
        mesh_axis: the axis of the mesh along which the agents are spread.
        slows_own_parts: whether to shorten the steps of what each agent owns beside parts that all of them share.
    """
    chain: dict[str, tuple[optax.GradientTransformation, ...]] = {
        "sgd": (_sum_over_time(optax.sgd(learning_rate)),),
        "adam": (_sum_over_time(optax.adam(learning_rate)),),
        "natural": (_by_fisher_information(), _sum_over_time(optax.sgd(learning_rate))),
        "trust-region": (_by_fisher_information(), _sum_over_time(optax.scale(-1.0)), _to_divergence(learning_rate)),
    }
    slower = (_slow_own_parts(mesh_axis),) if slows_own_parts else ()
    return optax.with_extra_args_support(optax.chain(*chain[name], *slower))


def _by_fisher_information() -> optax.GradientTransformationExtraArgs:
    r"""$(F + \lambda)^{-1} g$ with $F_s = \rho_s (\mathrm{diag}(\pi_s) - \pi_s \pi_s^\top)$, by Sherman and Morrison."""

    def update(gradient: Any, state: Any, team: TabularSoftmax | None = None, *, visits: Visits, **_: Any) -> tuple[Any, Any]:
        assert team is not None
        probabilities, rho = team.probabilities, visits[..., None]
        diagonal = rho * probabilities + _DAMPING
        scaled, direction = gradient.logits / diagonal, rho * probabilities / diagonal
        along = ordered_sum(probabilities * scaled) / (1 - ordered_sum(probabilities * direction))
        return dataclasses.replace(gradient, logits=scaled + direction * along[..., None]), state

    return optax.GradientTransformationExtraArgs(lambda _: optax.EmptyState(), update)


def _sum_over_time(inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """Learns time-dependent tables as a table shared by all times plus, in smaller steps, one table per time.

    So each time also learns from the data of all other times.
    """

    def has_times(team: Any) -> bool:
        return isinstance(team, TabularSoftmax) and team.is_time_dependent

    def split(tables: Any) -> Any:
        if not has_times(tables):
            return tables
        own = jax.lax.optimization_barrier(tables.logits)  # used twice, computed once
        return {"own": own, "shared": exact_sum(own, axis=-3)}

    def update(gradient: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        steps, state = inner.update(split(gradient), state)
        if has_times(gradient):
            together = _OWN_SHARE * steps["own"] + jnp.expand_dims(steps["shared"], -3)
            steps = dataclasses.replace(gradient, logits=together)
        return steps, state

    return optax.GradientTransformation(lambda team: inner.init(split(team)), update)


def _slow_own_parts(mesh_axis: str | None) -> optax.GradientTransformation:
    r"""Shortens the steps of what each of m agents owns beside parts that all of them share, by $\sqrt{m}$.

    An agent's own part sees a share 1 / m of the data, so that its gradient is as noisy as that of $1 / m$ of a batch.
    """

    def slower(steps: Any) -> Any:
        if not isinstance(steps, NeuralPolicy):
            return steps
        share = 1 / math.sqrt(steps.num_agents * num_parts(mesh_axis))
        return jax.tree.map(lambda step, is_own: step * share if is_own else step, steps, steps.own_parts)

    def update(steps: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        return jax.tree.map(slower, steps, is_leaf=lambda part: isinstance(part, NeuralPolicy)), state

    return optax.GradientTransformation(lambda _: optax.EmptyState(), update)


def _to_divergence(divergence: Callable[[Int[Array, ""]], Float[Array, ""]]) -> optax.GradientTransformationExtraArgs:
    r"""Scales each agent's step to a given mean of $D_{KL}(\pi_{old} \| \pi_{new})$ over the states in which it acted.

    The length comes from the quadratic approximation; if the true divergence is larger, the step is shortened.
    """

    def update(
        steps: Any, count: Int[Array, ""], team: TabularSoftmax | None = None, *, visits: Visits, **_: Any
    ) -> tuple[Any, Any]:
        assert team is not None
        axes = tuple(range(1, visits.ndim))

        def mean(values: Float[Array, "agent *time state"]) -> Float[Array, " agent"]:
            return jnp.sum(visits * values, axis=axes) / jnp.sum(visits, axis=axes)

        def scaled_by(logits: Array, factor: Float[Array, " agent"]) -> Array:
            return logits * factor.reshape(-1, *(1,) * (logits.ndim - 1))

        probabilities = team.probabilities
        centred = steps.logits - ordered_sum(probabilities * steps.logits)[..., None]
        curvature = mean(ordered_sum(probabilities * centred**2))
        limit = divergence(count)
        logits = scaled_by(steps.logits, jnp.sqrt(2 * limit / jnp.maximum(curvature, _SMALLEST)))
        before, after = log_softmax(team.logits), log_softmax(team.logits + logits)
        true = mean(ordered_sum(probabilities * (before - after)))
        logits = scaled_by(logits, jnp.minimum(1.0, jnp.sqrt(limit / jnp.maximum(true, _SMALLEST))))
        return dataclasses.replace(steps, logits=logits), count + 1

    return optax.GradientTransformationExtraArgs(lambda _: jnp.zeros((), jnp.int32), update)
