"""A team's agents in equal parts on several devices, along an axis of the mesh; None as the axis means that all are here."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int


def num_parts(mesh_axis: str | None) -> int:
    return 1 if mesh_axis is None else jax.lax.axis_size(mesh_axis)


def first_of(mesh_axis: str | None, num_own: int) -> int | Int[Array, ""]:
    """The number of the first agent that is here, if `num_own` are."""
    return 0 if mesh_axis is None else jax.lax.axis_index(mesh_axis) * num_own


def gathered(tree: Any, mesh_axis: str | None, axis: int) -> Any:
    """Arrays of all agents from arrays of the agents that are here, along an axis of the arrays."""
    if mesh_axis is None:
        return tree
    return jax.tree.map(lambda leaf: jax.lax.all_gather(leaf, mesh_axis, axis=axis, tiled=True), tree)


def gathered_team(team: Any, mesh_axis: str | None) -> Any:
    """A team's policies with all agents; what the agents share stays as it is."""
    if mesh_axis is None:
        return team
    axes = jax.tree.map(lambda _: 0, team) if isinstance(team.axes, int) else team.axes
    return jax.tree.map(lambda leaf, axis: leaf if axis is None else gathered(leaf, mesh_axis, axis), team, axes)


def summed_if_shared(gradient: Any, mesh_axis: str | None) -> Any:
    """A team's gradient in which the parts that all agents share have the data of all agents."""
    if mesh_axis is None or isinstance(gradient.axes, int):
        return gradient
    return jax.tree.map(lambda leaf, axis: jax.lax.psum(leaf, mesh_axis) if axis is None else leaf, gradient, gradient.axes)


def own_part(array: Array, mesh_axis: str | None, axis: int) -> Array:
    """The part of the agents that are here of an array of all agents."""
    if mesh_axis is None:
        return array
    num_own = array.shape[axis] // num_parts(mesh_axis)
    return jax.lax.dynamic_slice_in_dim(array, jnp.asarray(first_of(mesh_axis, num_own)), num_own, axis)
