"""Trained teams as arrays, and back."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from farflung.algorithms import Algorithm
from farflung.config import Explore
from farflung.policies import TabularSoftmax, networks_of, neural_team
from farflung.worlds.world import World

_LEAF = "network"


def team_to_arrays(team: Any) -> dict[str, Any]:
    """The arrays of a team, by name."""
    if isinstance(team, TabularSoftmax):
        return {"logits": team.logits, "is_time_dependent": team.is_time_dependent}
    return {_LEAF + jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(team)}


def team_from_arrays(
    arrays: Mapping[str, np.ndarray], config: Explore, world: World, algorithm: Algorithm | None = None
) -> Any:
    """The team whose arrays a file holds, each checked against the shape that the config, or the algorithm, asks for."""
    if "logits" in arrays and world.projection is None:
        return _tables(arrays, config, world)
    if algorithm is not None:
        expected = eqx.filter_eval_shape(lambda key: algorithm.init(key, world.view()).team, jr.key(0))
    elif ":" in config.algorithm:
        raise ValueError(f"its team was trained by {config.algorithm}: give that, as load_run(path, algorithm=...)")
    elif not config.is_neural or world.projection is None:
        raise ValueError("networks are for observations that are vectors, and tables for numbered states")
    else:
        expected = eqx.filter_eval_shape(neural_team, jr.key(0), world, config.num_policies, networks_of(config))
        if not any(name.startswith(f"{_LEAF}.common") for name in arrays):  # runs from before shared trunks had a common head
            expected = eqx.tree_at(lambda team: team.common, expected, None, is_leaf=lambda part: part is None)

    def checked(path: Any, leaf: jax.ShapeDtypeStruct) -> Array:
        array = arrays[_LEAF + jax.tree_util.keystr(path)]
        if array.shape != (len(config.seeds), *leaf.shape) or array.dtype.kind not in "biuf":
            raise ValueError(f"the networks have a part of the shape {array.shape}, not {(len(config.seeds), *leaf.shape)}")
        return jnp.asarray(array, leaf.dtype)

    return jax.tree_util.tree_map_with_path(checked, expected)


def _tables(arrays: Mapping[str, np.ndarray], config: Explore, world: World) -> TabularSoftmax:
    logits, is_time_dependent = arrays["logits"], bool(arrays["is_time_dependent"])
    times = (world.horizon,) if is_time_dependent else ()
    expected = (len(config.seeds), config.num_policies, *times, world.num_states, world.num_actions)
    if logits.shape != expected or logits.dtype.kind != "f":
        raise ValueError(f"the policies are a table of the shape {logits.shape} of {logits.dtype}, not {expected} of numbers")
    return TabularSoftmax(jnp.asarray(logits, jnp.float32), is_time_dependent)
