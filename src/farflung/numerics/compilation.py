"""How programs are compiled that need more than JAX's own settings."""

from collections.abc import Callable
from typing import Any

import jax

REPRODUCIBLE: dict[str, bool | int | str] = {"xla_gpu_deterministic_ops": True}
"""The same program in every process.

For a GPU, XLA measures which of many kernels is the fastest at that moment, and takes it: what the next process rounds
differently would lead a training that goes on there somewhere else.
"""

ONCE = {**REPRODUCIBLE, "xla_backend_optimization_level": 0}
"""For what runs once: compiling it less thoroughly takes half the time."""

SELDOM = {"xla_backend_optimization_level": 1}
"""For what runs but a few times: hardly slower than fully optimised, and compiled in a third of the time."""


class ReproducibleIfWorld:
    """A function that plays in a world, compiled as `REPRODUCIBLE` unless the world's own steps are not reproducible."""

    def __init__(self, function: Callable[..., Any], *, static_argnums: int | tuple[int, ...]) -> None:
        self._repeatable = jax.jit(function, static_argnums=static_argnums, compiler_options=REPRODUCIBLE)
        self._fast = jax.jit(function, static_argnums=static_argnums)

    def __getitem__(self, world: Any) -> Any:
        return self._repeatable if world.is_reproducible else self._fast
