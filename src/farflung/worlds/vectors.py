"""Compiled worlds whose observations are vectors of real numbers."""

import abc
import json
from collections.abc import Hashable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from farflung.config.explore import arguments_for
from farflung.entropy.objective import Objective
from farflung.worlds.projection import Actions, Projection
from farflung.worlds.world import CompiledWorld


class VectorWorld(CompiledWorld):
    """A compiled world whose observations are vectors of real numbers; its state may be any pytree.

    If a subclass overrides `is_over`, episodes may end early; after the end, recorded states are NaN.
    """

    recipe: eqx.AbstractVar[str]
    """JSON from which `make_vector_world` makes the same world; empty if there is none."""
    projection: eqx.AbstractVar[Projection]
    actions: eqx.AbstractVar[Actions]
    observation_center: eqx.AbstractVar[tuple[float, ...]]
    """The centre of each number's range in an observation; networks see observations centred and scaled."""
    observation_scale: eqx.AbstractVar[tuple[float, ...]]

    @abc.abstractmethod
    def observe(self, state: PyTree[Array]) -> Float[Array, " observation"]:
        """What is recorded of a state: what policies see, then further numbers, if any; the projection picks its features."""

    def is_over(self, state: PyTree[Array]) -> Bool[Array, ""]:
        """Whether an episode ends in this state, before its `horizon`."""
        return jnp.zeros((), bool)

    @property
    def may_end_early(self) -> bool:
        return type(self).is_over is not VectorWorld.is_over

    @property
    def name(self) -> str:  # type: ignore[override]
        return json.loads(self.recipe or "{}").get("name", "custom")

    @property
    def arguments(self) -> tuple[str, ...]:  # type: ignore[override]
        from farflung.worlds.named_vectors import make_vector_world  # which imports this module

        chosen = json.loads(self.recipe or "{}")
        if "name" not in chosen:
            return ()
        usual = json.loads(make_vector_world(chosen["name"]).recipe)
        own = {name: value for name, value in chosen.items() if value != usual[name]}
        named = {name: own.pop(name) for name in ("horizon", "bins", "neighbours") if name in own}
        return arguments_for(**named, env_options=own)

    @property
    def num_states(self) -> int:
        return int(self.is_free.sum())

    @property
    def entropy(self) -> Objective:
        return self.projection.entropy(is_ragged=self.may_end_early)

    @property
    def identity(self) -> Hashable:
        return self.recipe or repr(self)

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {"recipe": np.array(self.recipe)}


class DescribedWorld(VectorWorld):
    """A vector world whose description is a set of fields."""

    horizon: int = eqx.field(static=True)
    projection: Projection = eqx.field()
    actions: Actions = eqx.field()
    observation_center: tuple[float, ...] = eqx.field(static=True)
    observation_scale: tuple[float, ...] = eqx.field(static=True)
    recipe: str = eqx.field(static=True, default="", kw_only=True)


def write_recipe(**options: Any) -> str:
    return json.dumps(options, separators=(",", ":"))
