"""How programs are compiled that need more than JAX's own settings."""

REPEATABLE: dict[str, bool | int | str] = {"xla_gpu_deterministic_ops": True}
"""The same program in every process.

For a GPU, XLA measures which of many kernels is the fastest at that moment, and takes it: what it rounds differently next time
would lead a training that goes on somewhere else.
"""

ONCE = {**REPEATABLE, "xla_backend_optimization_level": 0}
"""For what runs once: compiling it less thoroughly takes half the time."""

SELDOM = {"xla_backend_optimization_level": 1}
"""For what runs but a few times: hardly slower than fully optimised, and compiled in a third of the time."""
