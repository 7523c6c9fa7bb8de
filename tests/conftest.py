import gc
import os
from pathlib import Path

import hypothesis
import jax
import matplotlib as mpl
import pytest
from jax._src import compiler

# What is compiled runs for moments only, and takes a third of the time with the simplest compiler. But there the rounding of a
# number may depend on the shape of its array, so that tests which compare programs bit for bit get the one that users have.
_QUICKLY = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
_FOR_BITS = {"xla_backend_optimization_level": 1, "xla_cpu_use_fusion_emitters": True}
_HAS_QUICK_COMPILER = os.environ.setdefault("XLA_FLAGS", _QUICKLY) == _QUICKLY
# Two devices, so that every test of training is one of sharding too.
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_numpy_rank_promotion", "raise")
mpl.use("agg")
gc.set_threshold(50_000)  # JAX makes so many objects that looking for garbage took a twentieth of the time
hypothesis.settings.register_profile("farflung", deadline=None, max_examples=50)
hypothesis.settings.register_profile(
    "long", deadline=None, max_examples=10_000, suppress_health_check=list(hypothesis.HealthCheck), print_blob=True
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "farflung"))

_LONG = {
    "test_ablation",
    "test_checkpoints",
    "test_cli",
    "test_docs",
    "test_faults",
    "test_frank_wolfe",
    "test_hosted_training",
}
_LONG |= {"test_programs", "test_readme", "test_reproduce", "test_training", "test_transfer_study"}


def pytest_collection_modifyitems(items):
    """The files that take longest come first, so that no worker has to wait long for another in the end."""
    items.sort(key=lambda item: item.path.stem not in _LONG)


@pytest.fixture(autouse=True, scope="session")
def _kept_programs():
    """Workers, and the next run of the tests, share compiled programs in the user's cache folder: they compile for minutes."""
    from farflung.numerics import programs
    from farflung.runs.program_cache import keep_programs

    keep_programs()
    programs.keep_in(None)  # whose names know nothing of what a test has patched


@pytest.fixture(autouse=True, scope="session")
def _no_drawing_processes():
    """The commands draw by themselves: the other test processes use the other cores. A test of its own has such a process."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("farflung.cli.suites.num_cores", lambda: 1)
        yield


_compile_options = compiler.get_compile_options
_is_for_bits = False


def _options_for_bits(*arguments, env_options_overrides=None, **options):
    return _compile_options(*arguments, env_options_overrides=_FOR_BITS | (env_options_overrides or {}), **options)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Changes the compiler before a test that is marked `bits`, and its fixtures, and after it."""
    global _is_for_bits
    if _HAS_QUICK_COMPILER and _is_for_bits != (item.get_closest_marker("bits") is not None):
        _is_for_bits = not _is_for_bits
        compiler.get_compile_options = _options_for_bits if _is_for_bits else _compile_options
        jax.clear_caches()


_MAPS, _MOST_MAPS = Path("/proc/self/maps"), 30_000


@pytest.fixture(autouse=True, scope="module")
def _few_programs():
    """Forgets compiled programs when there are many: each has memory maps of its own, and Linux allows a process 65,530."""
    yield
    if _MAPS.exists() and _MAPS.read_bytes().count(b"\n") > _MOST_MAPS:
        jax.clear_caches()
