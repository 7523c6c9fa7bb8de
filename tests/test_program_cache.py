import dataclasses
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache
from tests.permissions import bound_by_permissions

import farflung
from farflung.bounds import ceilings
from farflung.runs import program_cache
from farflung.runs.program_cache import keep, keep_programs, kept
from farflung.studies.explore import _ceiling

resource = pytest.importorskip("resource")
_SETTINGS = (
    "jax_compilation_cache_dir",
    "jax_enable_compilation_cache",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_enable_xla_caches",
)
_hits = []


def _count(event, **_):
    if event.endswith("/cache_hits"):
        _hits.append(event)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user's empty cache folder, for a JAX that has not compiled anything yet."""
    before = {name: getattr(jax.config, name) for name in _SETTINGS}
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(program_cache.sys, "platform", "linux")
    jax.monitoring.clear_event_listeners()  # other tests may have done so
    jax.monitoring.register_event_listener(_count)
    yield tmp_path / "cache"
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def compiled_again():
    """What a small program computes, compiled as in a new process, and whether the program came from the folder."""

    def rising(values):
        return jnp.cumsum(values) * 3

    _hits.clear()
    return jax.jit(rising)(jnp.arange(5)).tolist(), len(_hits)


def programs(home):
    return [path for path in home.rglob("*") if path.is_file()]


def test_a_program_is_compiled_once_and_then_read(home):
    keep_programs()
    assert compiled_again() == ([0, 3, 9, 18, 30], 0)
    assert programs(home)
    keep_programs()
    assert compiled_again()[1] > 0


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: data[:-9] + b"\0" * 9])
def test_a_damaged_program_is_compiled_again(home, damage):
    keep_programs()
    compiled_again()
    for path in programs(home):
        path.write_bytes(damage(path.read_bytes()))
    assert compiled_again() == ([0, 3, 9, 18, 30], 0)


def test_a_full_disk_costs_only_time(home):
    keep_programs()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # writing more raises an OSError, as on a full disk
    try:
        assert compiled_again() == compiled_again() == ([0, 3, 9, 18, 30], 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_cache_folder_that_cannot_be_made_costs_only_time(home):
    home.write_text("a file, not a folder")
    keep_programs()
    assert jax.config.jax_compilation_cache_dir is None
    assert compiled_again() == ([0, 3, 9, 18, 30], 0)


def test_a_user_without_a_home_folder_compiles_each_time(home, monkeypatch):
    def nowhere(self):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", nowhere)
    keep_programs()
    assert jax.config.jax_compilation_cache_dir is None


def test_programs_of_others_are_not_run(home):
    keep_programs()
    folder = Path(jax.config.jax_compilation_cache_dir)
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    jax.config.update("jax_compilation_cache_dir", None)
    keep_programs()
    assert jax.config.jax_compilation_cache_dir is None


def test_a_users_own_choice_stays(home):
    jax.config.update("jax_enable_compilation_cache", False)
    keep_programs()
    assert jax.config.jax_compilation_cache_dir is None
    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_compilation_cache_dir", str(home / "own"))
    keep_programs()
    assert jax.config.jax_compilation_cache_dir == str(home / "own")


def test_the_programs_that_were_not_used_for_longest_make_room(home, monkeypatch):
    keep_programs()
    folder = Path(jax.config.jax_compilation_cache_dir)
    for age, name in enumerate(("new", "old", "oldest")):
        (folder / name).write_bytes(bytes(100))
        os.utime(folder / name, (1e9 - age, 1e9 - age))
    monkeypatch.setattr(program_cache, "_MOST_BYTES", 150)
    jax.config.update("jax_compilation_cache_dir", None)
    keep_programs()
    assert [path.name for path in programs(home)] == ["new"]


def test_a_ceiling_is_computed_once_and_then_read_unless_it_is_damaged(home, monkeypatch):
    config, world, solved = farflung.Explore("room-det", agents=2), farflung.make_world("room-det"), []
    honest = ceilings.ceiling

    def counted(*arguments, **options):
        solved.append(arguments)
        return honest(*arguments, **options)

    monkeypatch.setattr(ceilings, "ceiling", counted)
    first, again = _ceiling(config, world), _ceiling(config, world)
    assert len(solved) == 1
    np.testing.assert_equal(dataclasses.asdict(again), dataclasses.asdict(first))
    (path,) = programs(home)
    path.write_text(path.read_text().replace(repr(first.bound), repr(first.bound + 1)))
    assert _ceiling(config, world).bound == first.bound
    assert len(solved) == 2
    _ceiling(dataclasses.replace(config, agents=1), world)
    _ceiling(config, farflung.make_world("room-det", horizon=7))
    assert len(solved) == 4


@pytest.mark.parametrize("mode", [0o777, 0o500])
def test_a_folder_that_cannot_be_trusted_or_written_keeps_no_values(home, mode):
    keep("value", [1])
    assert kept("value") == [1]
    (path,) = programs(home)
    path.unlink()
    path.parent.chmod(mode)
    with bound_by_permissions():
        keep("value", [1])
        assert kept("value") is None
    assert not programs(home)


def test_a_training_with_programs_from_the_folder_has_the_same_bits(home):
    def trained():
        jax.clear_caches()
        _hits.clear()
        run = farflung.explore("room-stoc", agents=2, batch_size=4, updates=3, seeds=(0,))
        return np.asarray(run.team(0).policies.logits), run.metrics, len(_hits)

    (first, metrics, hits), (second, again, more_hits) = trained(), trained()
    assert more_hits > hits
    np.testing.assert_array_equal(first, second)
    jax.tree.map(np.testing.assert_array_equal, metrics, again)
