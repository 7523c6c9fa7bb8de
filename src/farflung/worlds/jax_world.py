"""A JAX world of a user's own: three functions, and the rest has defaults."""

import contextlib
import dataclasses
import inspect
import json
import textwrap
import traceback
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from farflung.config.checks import whole_number
from farflung.config.imports import check_installed, import_object, instance_of, name_of
from farflung.config.reading import parse_object
from farflung.worlds.projection import Box, Discrete, describe_vectors, read_vector_fields, vector_fields
from farflung.worlds.vectors import DescribedWorld
from farflung.worlds.world import flattened

_RANDOM_STEPS, _RANDOM_COPIES = 300, 16
_NEEDED = ("reset", "step", "observe")


class JaxWorld(DescribedWorld):
    """A world that a user has written in JAX; make one with `from_jax`, which checks it."""

    own: Any = eqx.field()
    """The user's object; None for a world that was read from a file."""
    label: str = eqx.field(static=True)
    ends_early: bool = eqx.field(static=True)

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.label

    @property
    def may_end_early(self) -> bool:
        return self.ends_early

    def reset(self, key: PRNGKeyArray) -> PyTree[Array]:
        return _object(self.own).reset(key)

    def step(self, key: PRNGKeyArray, state: PyTree[Array], action: Array) -> PyTree[Array]:
        return _object(self.own).step(key, state, action)

    def observe(self, state: PyTree[Array]) -> Float[Array, " observation"]:
        return flattened(_object(self.own).observe(state))

    def is_over(self, state: PyTree[Array]) -> Bool[Array, ""]:
        return _is_over(_object(self.own), state) if self.ends_early else super().is_over(state)

    @property
    def identity(self) -> Hashable:
        return self.label, self.horizon, self.projection

    def to_arrays(self) -> dict[str, np.ndarray]:
        description = {"name": self.label, "horizon": self.horizon, "ends_early": self.ends_early}
        return {"jax": np.array(json.dumps(description | vector_fields(self)))}

    @staticmethod
    def from_arrays(arrays: Mapping[str, np.ndarray]) -> "JaxWorld":
        """The world that `to_arrays` describes, without the user's object."""
        found = parse_object(str(arrays["jax"]))
        about, label, ends_early = read_vector_fields(found), found["name"], found["ends_early"]
        if not isinstance(label, str) or not isinstance(ends_early, bool):
            raise ValueError("the description of the world is not as farflung writes it")
        horizon = whole_number("horizon", found["horizon"])
        return JaxWorld(own=None, label=label, horizon=horizon, ends_early=ends_early, **about)

    def with_environment(self, **stepping: Any) -> "JaxWorld":
        if self.own is not None:
            return self
        check_installed(self.label, f"the world {self.label}", f"--world {self.label}")
        return dataclasses.replace(self, own=_held(instance_of(import_object(self.label, "world"), "world")))


def from_jax(
    world: Any,
    *,
    horizon: int | None = None,
    project: int | Sequence[int] | None = None,
    neighbours: int | None = None,
    bins: int | Sequence[int] | None = None,
    low: float | int | Sequence[float | int] | None = None,
    high: float | int | Sequence[float | int] | None = None,
    name: str | None = None,
) -> JaxWorld:
    """A world that a user has written in JAX, as a world to explore.

    The object has the pure functions `reset(key)`, `step(key, state, action)` and `observe(state)`, and optionally
    `is_over(state)`. What `observe` returns is flattened to a vector, dictionaries in the order of their sorted keys. The
    attribute `actions` is a `farflung.Box`, a `farflung.Discrete` or a Gymnasium space; `horizon` is the number of actions in
    an episode.

    Args:
        horizon: actions in an episode; by default the object's `horizon`.
        project: indices of the features whose entropy is maximised; by default all if there are at most three, else the first
            two.
        neighbours: k of the k-nearest-neighbour entropy estimate; 0 counts grid cells instead.
        bins: grid cells per feature, on which coverage is counted.
        low: lower bounds of the grid; by default from random actions.
        high: upper bounds of the grid; by default from random actions.
        name: how the world is called; by default MODULE:NAME under which Python can import it.
    """
    own = instance_of(world, "world")
    if missing := [each for each in _NEEDED if not callable(getattr(own, each, None))]:
        needed = "reset(key), step(key, state, action) and observe(state)"
        raise ValueError(f"a JAX world has {needed}: {', '.join(missing)} is missing")
    horizon = getattr(own, "horizon", None) if horizon is None else horizon
    if horizon is None:
        raise ValueError("how long is an episode? Give the world an attribute horizon, or choose a horizon")
    horizon = whole_number("horizon", horizon)
    actions = _actions(getattr(own, "actions", None))
    held, label = _held(own), name or name_of(world)
    try:
        seen = np.asarray(jax.jit(_wander, static_argnums=(1, 2))(held, actions, min(horizon, _RANDOM_STEPS)), float)
    except Exception as error:  # the user's own functions may raise anything
        where = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == _file_of(own)]
        place = f" in line {where[-1].lineno} of {Path(where[-1].filename).name}" if where else ""
        reason = textwrap.shorten(str(error), 300, placeholder=" ...")
        raise ValueError(f"{label} failed with random actions{place} ({type(error).__name__}: {reason})") from error
    finite = seen[np.isfinite(seen).all(axis=-1)]
    if not len(finite):
        raise ValueError(f"{label} gives no finite observation with random actions")
    names = tuple(getattr(own, "names", ())) or tuple(f"observation {number}" for number in range(seen.shape[-1]))
    if len(names) != seen.shape[-1]:
        raise ValueError(f"{label} has {len(names)} names for {seen.shape[-1]} numbers of an observation")
    unknown = np.full(len(names), np.inf)
    about = describe_vectors(names, -unknown, unknown, lambda: finite, project, neighbours, bins, low, high)
    ends_early = hasattr(own, "is_over")
    return JaxWorld(own=held, label=label, horizon=horizon, actions=actions, ends_early=ends_early, **about)


def _file_of(own: Any) -> str | None:
    with contextlib.suppress(TypeError, OSError):
        return inspect.getfile(type(own))
    return None


def is_jax_world(thing: Any) -> bool:
    """Whether an object, or what a class or function makes, looks like a JAX world."""
    return all(callable(getattr(thing, name, None)) for name in _NEEDED)


class _Constant(eqx.Module):
    """An object that is no pytree: JAX takes it as a constant."""

    value: Any = eqx.field(static=True)


def _held(own: Any) -> Any:
    is_leaf = len(jax.tree.leaves(own)) == 1 and jax.tree.leaves(own)[0] is own
    return _Constant(own) if is_leaf else own


def _object(held: Any) -> Any:
    return held.value if isinstance(held, _Constant) else held


def _is_over(own: Any, state: PyTree[Array]) -> Bool[Array, ""]:
    return jnp.asarray(own.is_over(state), bool).reshape(()) if hasattr(own, "is_over") else jnp.zeros((), bool)


def _actions(actions: Any) -> Discrete | Box:
    if isinstance(actions, Discrete | Box):
        return actions
    if isinstance(actions, spaces.Discrete) and actions.start == 0:
        return Discrete(int(actions.n))
    if isinstance(actions, spaces.Box) and len(actions.shape) == 1:
        return Box(tuple(map(float, actions.low)), tuple(map(float, actions.high)))
    if isinstance(actions, int):
        return Discrete(whole_number("actions", actions))
    raise ValueError(
        f"the actions of a JAX world are a farflung.Box, a farflung.Discrete or a Gymnasium space, not {actions!r}"
    )


def _wander(held: Any, actions: Discrete | Box, num_steps: int) -> Float[Array, "copy time observation"]:
    """Observations with random actions."""
    own = _object(held)

    def act(key: PRNGKeyArray) -> Array:
        if isinstance(actions, Discrete):
            return jr.randint(key, (), 0, actions.num)
        low, high = np.maximum(actions.low, -1e3).astype(np.float32), np.minimum(actions.high, 1e3).astype(np.float32)
        return jr.uniform(key, (actions.size,), minval=low, maxval=high)

    def step(carry: tuple[Any, Array], key: PRNGKeyArray) -> tuple[Any, Array]:
        state, has_ended = carry
        action_key, step_key = jr.split(key)
        state = own.step(step_key, state, act(action_key))
        seen = jnp.where(has_ended, jnp.nan, flattened(own.observe(state)))
        return (state, has_ended | _is_over(own, state)), seen

    def episode(key: PRNGKeyArray) -> Array:
        reset_key, steps_key = jr.split(key)
        first = own.reset(reset_key)
        _, seen = jax.lax.scan(step, (first, _is_over(own, first)), jr.split(steps_key, num_steps))
        return jnp.concatenate([flattened(own.observe(first))[None], seen])

    return jax.vmap(episode)(jr.split(jr.key(0), _RANDOM_COPIES))
