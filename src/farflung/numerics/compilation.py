"""Compiler options for programs that need other than JAX's defaults."""

from collections.abc import Callable
from typing import Any

import jax

REPRODUCIBLE: dict[str, bool | int | str] = {"xla_gpu_deterministic_ops": True}
"""The same program in every process.

For a GPU, XLA measures which of many kernels is the fastest at that moment, and takes it. A resumed training would then round
differently.
"""

ONCE = {**REPRODUCIBLE, "xla_backend_optimization_level": 0}
"""For a program that runs once: compiling it less thoroughly takes half the time."""

SELDOM = {"xla_backend_optimization_level": 1}
"""For a program that runs a few times: hardly slower than fully optimised, and compiled in a third of the time."""


_UNTUNED: dict[str, bool | int | str] = {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False}
"""For a GPU: XLA measures no kernels, which halves the compilation. A simulator takes most of the time of these programs."""


class ReproducibleIfWorld:
    """A function that plays in a world, compiled as `REPRODUCIBLE` unless the world's own steps are not reproducible."""

    def __init__(self, function: Callable[..., Any], *, static_argnums: int | tuple[int, ...]) -> None:
        self._reproducible = jax.jit(function, static_argnums=static_argnums, compiler_options=REPRODUCIBLE)
        self._fast = jax.jit(function, static_argnums=static_argnums, compiler_options=_UNTUNED)

    def __getitem__(self, world: Any) -> Any:
        return self._reproducible if world.is_reproducible else self._fast
