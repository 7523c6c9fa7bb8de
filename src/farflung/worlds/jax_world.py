"""A JAX world of a user's own: three functions, and the rest has defaults."""

import contextlib
import dataclasses
import inspect
import json
import math
import textwrap
import traceback
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from farflung.config.checks import is_suite, whole_number
from farflung.config.explore import arguments_for
from farflung.config.imports import check_installed, import_object, instance_of, name_of
from farflung.config.reading import parse_object
from farflung.worlds.encoder import Encoder, Image
from farflung.worlds.hosted.modules import is_named
from farflung.worlds.projection import (
    ENCODER,
    Actions,
    Box,
    Discrete,
    MultiDiscrete,
    chosen_numbers,
    describe_vectors,
    read_vector_fields,
    vector_fields,
)
from farflung.worlds.suites import SuiteWorld, make_suite_world, suite_world_of
from farflung.worlds.vectors import DescribedWorld
from farflung.worlds.walls import Rectangle, layout_fields, read_layout
from farflung.worlds.world import flattened, read_arguments

_RANDOM_STEPS, _RANDOM_COPIES = 300, 16
_BRIGHTEST = 255
_NEEDED = ("reset", "step", "observe")


class JaxWorld(DescribedWorld):
    """A world that a user has written in JAX; make one with `from_jax`, which checks it."""

    own: Any = eqx.field()
    """The user's object; None for a world that was read from a file."""
    label: str = eqx.field(static=True)
    ends_early: bool = eqx.field(static=True)
    num_unseen: int = eqx.field(static=True, default=0)
    image: Image | None = eqx.field(static=True, default=None)
    encoder: Encoder | None = eqx.field(default=None)
    own_features: Callable[[Any], Any] | str | None = eqx.field(static=True, default=None)
    """A function of the state that gives the features, instead of the object's `features`; read from a file, its name."""
    features_note: str = eqx.field(static=True, default="")
    options: str = eqx.field(static=True, default="{}")
    """The options with which the environment of a suite was made, as JSON."""
    arguments: tuple[str, ...] = eqx.field(static=True, default=())
    walls: tuple[Rectangle, ...] = eqx.field(static=True, default=())
    shifting_walls: tuple[Rectangle, ...] = eqx.field(static=True, default=())

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.label

    @property
    def rows_point_down(self) -> bool:  # type: ignore[override]
        return self.projection.names[:2] == ("column", "row")

    @property
    def may_end_early(self) -> bool:
        return self.ends_early

    @property
    def is_reproducible(self) -> bool:  # type: ignore[override]
        return getattr(_object(self.own), "is_reproducible", True)

    def reset(self, key: PRNGKeyArray) -> PyTree[Array]:
        return _object(self.own).reset(key)

    def step(self, key: PRNGKeyArray, state: PyTree[Array], action: Array) -> PyTree[Array]:
        return _object(self.own).step(key, state, action)

    def observe(self, state: PyTree[Array]) -> Float[Array, " observation"]:
        seen = flattened(_object(self.own).observe(state))
        if self.encoder is not None:
            return jnp.concatenate([seen, self.encoder(seen)])
        if self.num_unseen == 0:
            return seen
        return jnp.concatenate([seen, _features(self.own, self.own_features, state)])

    def is_over(self, state: PyTree[Array]) -> Bool[Array, ""]:
        return _is_over(_object(self.own), state) if self.ends_early else super().is_over(state)

    @property
    def identity(self) -> Hashable:
        return self.label, self.options, self.horizon, self.projection

    def to_arrays(self) -> dict[str, np.ndarray]:
        description: dict[str, Any] = {"name": self.label, "horizon": self.horizon, "ends_early": self.ends_early}
        description["arguments"] = self.arguments
        if is_suite(self.label):
            description["options"] = json.loads(self.options)
        if self.own_features is not None:
            own = self.own_features if isinstance(self.own_features, str) else name_of(self.own_features)
            description["features"] = own
        return {"jax": np.array(json.dumps(description | vector_fields(self) | layout_fields(self)))}

    @staticmethod
    def from_arrays(arrays: Mapping[str, np.ndarray]) -> "JaxWorld":
        """The world that `to_arrays` describes, without the user's object."""
        found = parse_object(str(arrays["jax"]))
        about, label, ends_early = read_vector_fields(found), found["name"], found["ends_early"]
        own_features, options = found.get("features"), found.get("options", {})
        is_ours = isinstance(label, str) and isinstance(ends_early, bool) and isinstance(options, dict)
        if not is_ours or not isinstance(own_features, str | None):
            raise ValueError("the description of the world is not as farflung writes it")
        horizon = whole_number("horizon", found["horizon"])
        about["arguments"] = read_arguments(found.get("arguments", []))
        about |= {"label": label, "horizon": horizon, "ends_early": ends_early, "own_features": own_features}
        return JaxWorld(own=None, options=json.dumps(options), **about, **read_layout(found))

    def with_environment(self, **stepping: Any) -> "JaxWorld":
        if self.own is not None:
            return self
        if is_suite(self.label):
            own: Any = make_suite_world(self.label, json.loads(self.options))
        else:
            check_installed(self.label, f"the world {self.label}", f"--world {self.label}")
            own = import_object(self.label, "world")
            if inspect.isfunction(own) and is_named(self.label):  # nothing is called because a file names it
                own = own()
            if not is_jax_world(own):
                hint = f"; if it is a function of yours that makes one, add --world {self.label}" if callable(own) else ""
                raise ValueError(f"{self.label} is no JAX world, with {', '.join(_NEEDED)}{hint}")
            own = instance_of(own, "world")
        own, features = _held(own), self.own_features
        if isinstance(features, str):
            check_installed(features, f"the features {features}")
            features = import_object(features, "features")
        return dataclasses.replace(self, own=own, own_features=features)


def from_jax(
    world: Any,
    *,
    horizon: int | None = None,
    features: int | str | Sequence[int | str] | Callable[[Any], Any] | None = None,
    neighbours: int | None = None,
    bins: int | Sequence[int] | None = None,
    low: float | int | Sequence[float | int] | None = None,
    high: float | int | Sequence[float | int] | None = None,
    name: str | None = None,
    env_options: Mapping[str, Any] | None = None,
) -> JaxWorld:
    """A world that a user has written in JAX, or an environment of a JAX suite, as a world to explore.

    The object has the pure functions `reset(key)`, `step(key, state, action)` and `observe(state)`, and optionally
    `is_over(state)`. What `observe` returns is flattened to a vector, dictionaries in the order of their sorted keys; an array
    of unsigned bytes with two or three axes is an image. The attribute `actions` is a `farflung.Box`, `farflung.Discrete`,
    `farflung.MultiDiscrete` or a Gymnasium space; `horizon` is the number of actions in an episode; `names` may name the
    numbers of an observation. Policies see what `observe` returns; an optional function `features(state)`, with
    `feature_names`, returns what the entropy is about instead. `feature_bounds`, a pair of lowest and highest values, bounds
    the grid over these; if `features_are_whole`, each value has a cell of its own.

    Environments of gymnax, Craftax, NAVIX, XLand-MiniGrid, Jumanji, Brax and MuJoCo Playground are recognised by their
    functions. Where a suite keeps the parameters apart, give the pair of environment and parameters.

    Args:
        world: the object or its class; an environment of a suite, or its name, such as `gymnax:MountainCar-v0`.
        horizon: actions in an episode; by default the object's `horizon`.
        features: what the entropy is about: names or indices of numbers of an observation or of the object's `features`, a
            function of the state, its MODULE:NAME, or `encoder` for the space of a fixed random encoder of the observation. By
            default the object's `features`; without these, all numbers of an observation if there are at most three, else the
            first two; of an image, `encoder`.
        neighbours: k of the k-nearest-neighbour entropy estimate; 0 counts grid cells instead.
        bins: grid cells per feature, on which coverage is counted.
        low: lower bounds of the grid; by default from random actions.
        high: upper bounds of the grid; by default from random actions.
        name: how the world is called; by default MODULE:NAME under which Python can import it.
        env_options: options of a suite's environment that is given by its name.
    """
    if isinstance(world, str):
        if not is_suite(world):
            raise ValueError(f"from_jax takes an object, or the name of a suite's environment, not {world!r}: use make_world")
        own: Any = make_suite_world(world, env_options or {})
        name = world
    else:
        own = instance_of(world, "world")
        own = suite_world_of(own) or own
    if missing := [each for each in _NEEDED if not callable(getattr(own, each, None))]:
        needed = "reset(key), step(key, state, action) and observe(state)"
        raise ValueError(f"a JAX world has {needed}: {', '.join(missing)} is missing")
    asked_horizon, horizon = horizon, getattr(own, "horizon", None) if horizon is None else horizon
    if horizon is None:
        raise ValueError("how long is an episode? Give the world an attribute horizon, or choose a horizon")
    horizon = whole_number("horizon", horizon)
    actions = _actions(getattr(own, "actions", None))
    held, label = _held(own), name or name_of(world)
    own_features = _function_of(features)
    try:
        shape = jax.eval_shape(lambda key: own.observe(own.reset(key)), jr.key(0))
        wander = jax.jit(partial(_wander, actions=actions, own_features=own_features, num_steps=min(horizon, _RANDOM_STEPS)))
        seen = np.asarray(wander(held), float)
    except Exception as error:  # the user's own functions may raise anything
        where = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == _file_of(own)]
        place = f" in line {where[-1].lineno} of {Path(where[-1].filename).name}" if where else ""
        reason = textwrap.shorten(str(error), 300, placeholder=" ...")
        raise ValueError(f"{label} failed with random actions{place} ({type(error).__name__}: {reason})") from error
    finite = seen[np.isfinite(seen).all(axis=-1)]
    if not np.isfinite(seen[:, 0]).all():
        raise ValueError(f"{label} gives an observation that is not finite after reset")
    observed, image = _names(shape), _image(shape)
    names = tuple(getattr(own, "names", ())) or observed
    if len(names) != len(observed):
        raise ValueError(f"{label} has {len(names)} names for {len(observed)} numbers of an observation")
    num_unseen = seen.shape[-1] - len(names)
    own_names = () if own_features is not None else tuple(getattr(own, "feature_names", ()))
    own_names = own_names or tuple(f"feature {number}" for number in range(num_unseen))
    if len(own_names) != num_unseen:
        raise ValueError(f"{label} has {len(own_names)} feature_names for {num_unseen} features")
    chosen: Any = None if own_features is not None else features
    if chosen is not None:
        is_encoder = chosen == ENCODER or [*np.atleast_1d(np.asarray(chosen, object))] == [ENCODER]
        if is_encoder or max(chosen_numbers(chosen, names + own_names)) < len(names):
            finite, own_names, num_unseen = finite[:, : len(names)], (), 0
    names += own_names
    low_of, high_of = np.full(len(names), -np.inf), np.full(len(names), np.inf)
    if image is not None:
        low_of[: len(observed)], high_of[: len(observed)] = 0, _BRIGHTEST
    is_whole = np.zeros(len(names), bool)
    if num_unseen and own_features is None:
        is_whole[len(observed) :] = getattr(own, "features_are_whole", False)
        if (bounds := getattr(own, "feature_bounds", None)) is not None:
            low_of[len(observed) :], high_of[len(observed) :] = bounds
    about = describe_vectors(
        *(names, low_of, high_of, lambda: finite, chosen, neighbours, bins, low, high),
        **{"num_unseen": num_unseen, "image": image, "is_whole": tuple(is_whole.tolist())},
    )
    about |= {"label": label, "horizon": horizon, "actions": actions, "own_features": own_features}
    given = {"features": features, "neighbours": neighbours, "bins": bins, "low": low, "high": high}
    about["arguments"] = arguments_for(**given, env_options=env_options, horizon=asked_horizon)
    if isinstance(own, SuiteWorld) and num_unseen and about["projection"].names[:2] == own.feature_names[:2]:
        about |= own.layout_walls()
    options = json.dumps(dict(env_options or {}))
    return JaxWorld(own=held, ends_early=hasattr(own, "is_over"), options=options, **about)


def _function_of(features: Any) -> Callable[[Any], Any] | None:
    """The function of the state that a user has chosen, itself or by its MODULE:NAME; None for other choices."""
    if isinstance(features, Sequence) and not isinstance(features, str) and len(features) == 1:
        features = features[0]
    if isinstance(features, str) and ":" in features:
        features = import_object(features, "features")
    return features if callable(features) else None


def _features(held: Any, own_features: Any, state: PyTree[Array]) -> Float[Array, " feature"]:
    return flattened((_object(held).features if own_features is None else own_features)(state))


def _names(shape: Any) -> tuple[str, ...]:
    """A name for each number of an observation of this shape: the keys that lead to it, and its place there."""
    names: list[str] = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(shape):
        key = jax.tree_util.keystr(path, simple=True, separator=" ") or "observation"
        is_alone = path and math.prod(leaf.shape) == 1
        names += [key] if is_alone else [f"{key} {number}" for number in range(math.prod(leaf.shape))]
    return tuple(names)


def _image(shape: Any) -> Image | None:
    """The rows, columns and channels of an observation that is an image: unsigned bytes."""
    leaves = jax.tree.leaves(shape)
    if len(leaves) != 1 or leaves[0].dtype != np.uint8 or len(leaves[0].shape) not in (2, 3):
        return None
    rows, columns, channels = (*leaves[0].shape, 1)[:3]
    return rows, columns, channels


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


def _actions(actions: Any) -> Actions:
    if isinstance(actions, Discrete | MultiDiscrete | Box):
        return actions
    if isinstance(actions, spaces.MultiDiscrete) and actions.nvec.ndim == 1 and not np.any(actions.start):
        return MultiDiscrete(tuple(map(int, actions.nvec)))
    if isinstance(actions, spaces.MultiBinary) and len(actions.shape) == 1:
        return MultiDiscrete((2,) * actions.shape[0])
    if isinstance(actions, spaces.Discrete) and actions.start == 0:
        return Discrete(int(actions.n))
    if isinstance(actions, spaces.Box) and len(actions.shape) == 1:
        return Box(tuple(map(float, actions.low)), tuple(map(float, actions.high)))
    if isinstance(actions, int):
        return Discrete(whole_number("actions", actions))
    raise ValueError(
        "the actions of a JAX world are a farflung.Box, Discrete or MultiDiscrete, or a Gymnasium space (Box, Discrete, "
        f"MultiDiscrete, MultiBinary), not {actions!r:.80}"
    )


def _wander(held: Any, actions: Actions, own_features: Any, num_steps: int) -> Float[Array, "copy time number"]:
    """What is recorded of states with random actions."""
    own = _object(held)

    def record(state: Any) -> Array:
        seen = flattened(own.observe(state))
        if own_features is None and not callable(getattr(own, "features", None)):
            return seen
        return jnp.concatenate([seen, _features(held, own_features, state)])

    def act(key: PRNGKeyArray) -> Array:
        if not isinstance(actions, Box):
            return jr.randint(key, actions.shape, 0, np.asarray(actions.nums).reshape(actions.shape))
        low, high = np.maximum(actions.low, -1e3).astype(np.float32), np.minimum(actions.high, 1e3).astype(np.float32)
        return jr.uniform(key, (actions.size,), minval=low, maxval=high)

    def step(carry: tuple[Any, Array], key: PRNGKeyArray) -> tuple[Any, Array]:
        state, has_ended = carry
        action_key, step_key = jr.split(key)
        state = own.step(step_key, state, act(action_key))
        seen = jnp.where(has_ended, jnp.nan, record(state))
        return (state, has_ended | _is_over(own, state)), seen

    def episode(key: PRNGKeyArray) -> Array:
        reset_key, steps_key = jr.split(key)
        first = own.reset(reset_key)
        _, seen = jax.lax.scan(step, (first, _is_over(own, first)), jr.split(steps_key, num_steps))
        return jnp.concatenate([record(first)[None], seen])

    return jax.vmap(episode)(jr.split(jr.key(0), _RANDOM_COPIES))
