"""Programs that a later process finds: what they depend on, and that they are the same."""

import dataclasses
import functools
import os

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

import farflung
from farflung.entropy import credit
from farflung.numerics import programs
from farflung.policies import softmax_team
from farflung.studies.explore import random_baseline
from farflung.training import compiled


class Memory(programs.Store):
    """A store for one test."""

    def __init__(self):
        self.contents = {}

    def load(self, name):
        return self.contents.get(name)

    def keep(self, name, content):
        self.contents[name] = content


@pytest.fixture
def memory(tmp_path):
    """An empty store, beside an empty cache of JAX: what comes from there cannot be kept."""
    store, folder = Memory(), jax.config.jax_compilation_cache_dir
    programs.keep_in(store)
    jax.clear_caches()
    _use_folder(tmp_path / "jax")
    yield store
    _use_folder(folder)
    programs.keep_in(None)
    jax.clear_caches()


def _use_folder(folder):
    jax.config.update("jax_compilation_cache_dir", None if folder is None else str(folder))
    compilation_cache.reset_cache()


def in_a_new_process(store):
    """Forgets all but the store."""
    programs.keep_in(store)
    jax.clear_caches()


SMALL = {"agents": 2, "batch_size": 4, "updates": 3, "seeds": (0, 1)}


def trained(world="room-stoc", **settings):
    run = farflung.explore(world, **SMALL | settings)
    return jax.tree.map(np.asarray, (run.policies, run.metrics))


def fails(*_, **__):
    raise AssertionError("compiled again")


@pytest.mark.parametrize(
    ("world", "settings", "num_programs"),  # the beginning, the updates and, where states are numbered, random actions
    [
        ("room-stoc", {}, 3),
        ("room-stoc", {"seeds": (0,)}, 3),
        ("room-stoc", {"seeds": (0, 1, 2)}, 3),
        ("point-gap", {"horizon": 8, "hidden": (8,)}, 2),
    ],
)
def test_a_later_process_compiles_nothing_and_has_the_same_bits(memory, monkeypatch, world, settings, num_programs):
    first = trained(world, **settings)
    assert len(memory.contents) == num_programs
    in_a_new_process(memory)
    monkeypatch.setattr(programs, "_compiled", fails)
    jax.tree.map(np.testing.assert_array_equal, first, trained(world, **settings))


def test_one_process_reads_a_program_once(memory, monkeypatch):
    trained()
    monkeypatch.setattr(memory, "load", fails)
    monkeypatch.setattr(programs, "_compiled", fails)
    trained(updates=4, seeds=(3, 4), learning_rate=0.2)  # are arguments of the same program


@pytest.mark.parametrize("damage", [lambda content: content[: len(content) // 2], lambda content: b"", lambda content: b"no"])
def test_a_damaged_program_is_compiled_again(memory, damage):
    first = trained()
    memory.contents = {name: damage(content) for name, content in memory.contents.items()}
    damaged = dict(memory.contents)
    in_a_new_process(memory)
    jax.tree.map(np.testing.assert_array_equal, first, trained())
    assert memory.contents.keys() == damaged.keys()
    assert all(memory.contents[name] != content for name, content in damaged.items())


def test_a_store_that_keeps_nothing_costs_only_time(memory, monkeypatch):
    monkeypatch.setattr(memory, "keep", lambda name, content: None)
    first = trained()
    in_a_new_process(memory)
    jax.tree.map(np.testing.assert_array_equal, first, trained())


class Drift:
    horizon, actions = 4, farflung.Discrete(2)

    def reset(self, key):
        return jax.numpy.zeros(1)

    def step(self, key, state, action):
        return state + action

    def observe(self, state):
        return state


def test_a_users_own_objective_and_world_are_never_kept(memory):
    small = farflung.Explore("room-stoc", **SMALL)
    random_baseline(small, farflung.make_world("room-stoc"))  # of random actions, whatever the credit
    (of_random_actions,) = memory.contents
    trained(objective=farflung.Utility(lambda shares: -jax.numpy.sum(shares**2)))
    trained(credit=lambda objective, states: jax.vmap(objective.gains)(states)[..., 1:])
    trained(Drift())
    trained(credit=functools.wraps(credit.causal)(lambda objective, states: 2 * credit.causal(objective, states)))
    trained(objective=farflung.Utility(jax.jit(jax.numpy.max)))
    assert [*memory.contents] == [of_random_actions]


def test_edited_sources_and_late_flags_keep_nothing(memory, monkeypatch, tmp_path):
    with monkeypatch.context() as patched:
        patched.setattr(programs, "_IMPORTED", 0.0)  # as if all files were edited after that
        trained()
    with monkeypatch.context() as patched:
        patched.setenv("XLA_FLAGS", os.environ["XLA_FLAGS"] + " --xla_cpu_enable_fast_math=true")
        trained()
    with monkeypatch.context() as patched:
        patched.setattr(programs, "_FLAGS", "flags.txt")
        patched.setenv("XLA_FLAGS", "flags.txt")
        assert not programs._is_as_imported()
    assert not memory.contents
    _use_folder(tmp_path / "another")  # what JAX keeps itself cannot be kept once more
    in_a_new_process(memory)
    trained()
    assert memory.contents


SETTINGS = [
    {},
    {"agents": 3},
    {"batch_size": 5},
    {"horizon": 5},
    {"slip": 0.3},
    {"trajectories": 2},
    {"seeds": (0,)},
    {"credit": "difference"},
    {"credit": "total"},
    {"single": True},
    {"independent": True},
    {"optimizer": "adam"},
    {"combinations": 3},
    {"over_trajectories": "mean", "trajectories": 2},
    {"objective": "own"},
    {"objective": "own+2*skills"},
    {"objective": "own+3*skills"},
    {"objective": "trajectory"},
    {"algorithm": "diayn"},
    {"policy": "time-dependent"},
    {"world": "room-det"},
    {"world": "maze-stoc"},
    {"world": "maze-stoc", "horizon": 8},
    {"world": "point-gap", "horizon": 8, "hidden": (4,)},
    {"world": "point-gap", "horizon": 8, "hidden": (5,)},
    {"world": "point-gap", "horizon": 8, "hidden": (4,), "policy": "conditioned"},
    {"world": "point-gap", "horizon": 8, "hidden": (4,), "algorithm": "pgpse"},
    {"world": "point-gap", "horizon": 8, "hidden": (4,), "algorithm": "pgpse", "combinations": 2},
    {"world": "point-gap", "horizon": 8, "hidden": (4,), "policy": "shared-trunk"},
    {"world": "point-gap", "horizon": 8, "hidden": (4,), "discount": 0.9},
    {"world": "point-gap", "horizon": 8, "hidden": (4,), "clip": 0.1},
    {"world": "point-gap", "horizon": 8, "hidden": (4,), "trace": 0.5},
    {"world": "point-gap", "horizon": 8, "hidden": (4,), "minibatches": 2},
    {"world": "point-gap", "horizon": 8, "hidden": (4,), "warm_up": 0.3},
    {"world": "point-gap", "horizon": 8, "hidden": (4,), "std": "state"},
    {"world": "point-four-rooms", "horizon": 8, "hidden": (4,)},
    {"world": "mountain-car-discrete", "horizon": 8, "hidden": (4,)},
]


def test_programs_that_have_one_name_are_the_same(memory, monkeypatch):
    """Whatever is traced into a program must be in its name: else a training could run another training's program."""
    texts, shared = {}, 0

    class StopError(Exception):
        pass

    def described(function, statics, arguments, devices):
        nonlocal shared
        name = programs._key(function, statics, arguments)
        assert name is not None
        text = function.lower(*statics, *arguments).as_text()
        shared += name in texts
        assert texts.setdefault(name, text) == text
        if function is not compiled._begin:
            raise StopError
        return lambda *_: function(*statics, *arguments)

    monkeypatch.setattr(compiled, "program", described)
    for settings in SETTINGS:
        with pytest.raises(StopError):
            farflung.explore(**{"world": "room-stoc"} | SMALL | settings)
    assert shared > 0  # such as for another slip, which is an argument
    assert len(texts) > len(SETTINGS)


def test_another_source_setting_or_compiler_has_another_name(memory, monkeypatch):
    def name():
        return programs._key(compiled._begin, (1,), (np.zeros(3),))

    before = name()
    assert name() == before
    jax.config.update("jax_default_matmul_precision", "highest")
    try:
        assert name() != before
    finally:
        jax.config.update("jax_default_matmul_precision", None)
    assert name() == before
    for setting, value in (
        ("_source", lambda: "edited"),
        ("_LIBRARIES", (*programs._LIBRARIES, dataclasses)),
        ("_FLAGS", "--x"),
    ):
        programs._surroundings.cache_clear()
        with monkeypatch.context() as patched:
            patched.setattr(programs, setting, value)
            patched.setattr(dataclasses, "__version__", "2", raising=False)
            assert name() != before
        programs._surroundings.cache_clear()
    jax.config.update("jax_disable_most_optimizations", True)  # no attribute of JAX's config
    try:
        assert name() != before
    finally:
        jax.config.update("jax_disable_most_optimizations", False)


def test_what_a_program_is_made_of_needs_a_name(memory):
    assert programs._key(compiled._begin, (lambda: 1,), ()) is None
    assert programs._key(compiled._begin, (np.zeros(2),), ()) is None  # a value that is compiled into it
    for own in (object(), functools.wraps(jax.numpy.max)(lambda row: row), jax.jit(jax.numpy.max), {}.get, [].append):
        assert programs._key(compiled._begin, (own,), ()) is None
    described = (1, 1.0, True, "1", None, (1,), [1], {1: 1}, np.dtype("i4"))
    names = [programs._key(compiled._begin, (each,), ()) for each in described]
    assert len(set(names)) == len(names)
    shapes = [np.zeros(2), np.zeros(3), np.zeros(2, np.float32), jax.numpy.zeros(2), jax.numpy.zeros(2) + 0.0]
    names = [programs._key(compiled._begin, (), (each,)) for each in shapes]
    assert None not in names
    assert len(set(names)) >= 4


def test_without_a_store_jax_alone_remembers_what_was_compiled(monkeypatch):
    programs.keep_in(None)
    monkeypatch.setattr(programs, "_compiled", fails)
    world = farflung.make_world("room-stoc")
    team = softmax_team(jax.random.key(0), world, 2)
    expected = [world.occupancy(policy) for policy in team.probabilities]
    np.testing.assert_allclose(farflung.occupancy(world, team), expected, rtol=1e-6)
