"""A trained team as arrays, and back."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from farflung.config import Explore
from farflung.policies import Networks, Outlook, TabularSoftmax, Team, neural_team
from farflung.worlds.world import World

_LEAF = "network"


def networks_of(config: Explore) -> Networks:
    """The networks that a config asks for."""
    return Networks(config.hidden, config.policy == "shared-trunk", config.std == "free", config.init_std)


def team_to_arrays(team: Team) -> dict[str, Any]:
    """The arrays of a team, by names."""
    if isinstance(team, TabularSoftmax):
        return {"logits": team.logits, "is_time_dependent": team.is_time_dependent}
    return {_LEAF + jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(team)}


def team_from_arrays(learnt: Mapping[str, np.ndarray], config: Explore, world: World) -> Team:
    """The team whose arrays were kept, each checked to be what the config asks for."""
    if config.is_neural != (world.projection is not None):
        raise ValueError("networks are for states that are vectors, and tables for others")
    if not config.is_neural:
        return _tables(learnt, config, world)
    assert isinstance(world, Outlook)
    expected = eqx.filter_eval_shape(neural_team, jr.key(0), world, config.num_policies, networks_of(config))
    if not any(name.startswith(f"{_LEAF}.common") for name in learnt):  # as saved before teams had anything in common
        expected = eqx.tree_at(lambda team: team.common, expected, None, is_leaf=lambda part: part is None)

    def kept(path: Any, leaf: jax.ShapeDtypeStruct) -> Array:
        array = learnt[_LEAF + jax.tree_util.keystr(path)]
        if array.shape != (len(config.seeds), *leaf.shape) or array.dtype.kind not in "biuf":
            raise ValueError(f"the networks have a part of the shape {array.shape}, not {(len(config.seeds), *leaf.shape)}")
        return jnp.asarray(array, leaf.dtype)

    return jax.tree_util.tree_map_with_path(kept, expected)


def _tables(learnt: Mapping[str, np.ndarray], config: Explore, world: World) -> TabularSoftmax:
    logits, is_time_dependent = learnt["logits"], bool(learnt["is_time_dependent"])
    times = (world.horizon,) if is_time_dependent else ()
    expected = (len(config.seeds), config.num_policies, *times, world.num_states, world.num_actions)
    if logits.shape != expected or logits.dtype.kind != "f":
        raise ValueError(f"the policies are a table of the shape {logits.shape} of {logits.dtype}, not {expected} of numbers")
    return TabularSoftmax(jnp.asarray(logits, jnp.float32), is_time_dependent)
