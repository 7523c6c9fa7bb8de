"""How programs are compiled that need more than JAX's own settings."""

from collections.abc import Callable
from typing import Any

import jax

REPEATABLE: dict[str, bool | int | str] = {"xla_gpu_deterministic_ops": True}
"""The same program in every process.

For a GPU, XLA measures which of many kernels is the fastest at that moment, and takes it: what the next process rounds
differently would lead a training that goes on there somewhere else.
"""

ONCE = {**REPEATABLE, "xla_backend_optimization_level": 0}
"""For what runs once: compiling it less thoroughly takes half the time."""

SELDOM = {"xla_backend_optimization_level": 1}
"""For what runs but a few times: hardly slower than fully optimised, and compiled in a third of the time."""


class RepeatableIfWorld:
    """A function that plays in a world, compiled like `REPEATABLE`, or just for speed if the world is not repeatable itself."""

    def __init__(self, function: Callable[..., Any], *, static_argnums: int | tuple[int, ...]) -> None:
        self._repeatable = jax.jit(function, static_argnums=static_argnums, compiler_options=REPEATABLE)
        self._fast = jax.jit(function, static_argnums=static_argnums)

    def __getitem__(self, world: Any) -> Any:
        return self._repeatable if world.is_repeatable else self._fast
