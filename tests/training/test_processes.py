"""One team across processes: the same numbers as in one, and a clear end if one of them dies."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import farflung
from farflung.entropy.credit import causal
from farflung.entropy.named import named_objective
from farflung.numerics.noise import Part, uniform_rows, uniforms
from farflung.policies import Networks
from farflung.training.compiled import check_can_be_spread
from farflung.training.processes import Processes

_IS_LONG = os.environ.get("KILLS") == "all"  # make soak


@pytest.mark.parametrize("shape", [(5, 3, 6, 2), (6, 3, 6, 2), (3, 1, 3, 1)])
def test_a_part_of_the_agents_has_the_random_numbers_that_it_has_in_the_whole_team(shape):
    key, (num_rows, *rest) = jr.key(3, impl="threefry2x32"), shape
    whole, size = uniforms(key, shape), rest[1] // 3
    for first in range(0, rest[1], size):
        own = (num_rows, rest[0], size, rest[2])
        part = Part(2, jnp.int32(first), rest[1])
        expected = whole[:, :, first : first + size]
        np.testing.assert_array_equal(uniforms(key, own, part), expected)
        row = uniform_rows(key, own, part)
        np.testing.assert_array_equal(jnp.stack([row(number) for number in range(num_rows)]), expected)


def _own_credit(objective, states):
    return causal(objective, states)


SETTINGS = {
    "causal": {"credit": "causal", "optimizer": "adam", "num_combinations": 3, "num_trajectories": 2, "entropy_bonus": 0.1},
    "own": {"credit": _own_credit, "objective": named_objective("trajectory")},
}
MORE = {
    "total": {},
    "independent": {"credit": "leave_one_out", "is_independent": True, "optimizer": "trust-region", "learning_rate": 0.01},
    "sum": {"credit": "difference", "objective": named_objective("own+2*skills"), "steps_per_batch": 2},
    "natural": {"credit": "difference", "optimizer": "natural", "is_time_dependent": True},
}
SETTINGS |= MORE if _IS_LONG else {}


@pytest.mark.bits
@pytest.mark.parametrize("name", SETTINGS)
def test_tables_train_to_the_same_bits_if_the_agents_are_spread_over_devices(name):
    """One process with two devices: collectives of several devices in a process have crashed (openxla/xla#16430)."""
    assert jax.local_device_count() == 2
    algorithm = farflung.PGPSE(4, batch_size=4, **SETTINGS[name])
    world = farflung.make_tabular_world("room-stoc")
    *_, alone = farflung.train(algorithm, world, (7,), 6)
    *_, spread = farflung.train(algorithm, world, (7,), 6, processes=Processes())
    for one, other in zip(alone.training_state.leaves, spread.training_state.leaves, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(alone.metrics.columns.values(), spread.metrics.columns.values(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(spread.arrays.state.team.logits.sharding.device_set) == 2


_NETWORKS = [Networks((8,), has_shared_trunk=True), *[Networks((8,)), Networks((8,), is_conditioned=True)] * _IS_LONG]


@pytest.mark.parametrize("networks", _NETWORKS)
def test_networks_train_to_the_same_numbers_within_rounding(networks):
    options = {"credit": "causal", "optimizer": "adam", "learning_rate": 0.01, "networks": networks, "entropy_bonus": 0.01}
    algorithm = farflung.PGPSE(2, batch_size=4, **options)
    world = farflung.make_world("point-gap", horizon=8)
    *_, alone = farflung.train(algorithm, world, (7,), 3)
    *_, spread = farflung.train(algorithm, world, (7,), 3, processes=Processes())
    for one, other in zip(jax.tree.leaves(alone.team), jax.tree.leaves(spread.team), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    assert alone.faults == spread.faults


def test_what_cannot_be_spread_is_refused():
    with pytest.raises(ValueError, match="a multiple of 3, not 4"):
        check_can_be_spread(farflung.PGPSE(4), farflung.make_tabular_world("room-det"), 3)
    with pytest.raises(ValueError, match="pgpse over processes, and this one is ActorCritic"):
        check_can_be_spread(farflung.ActorCritic(4), farflung.make_world("point-gap"), 2)


def _start(num_processes, *arguments):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = ["--distributed", "--coordinator", f"127.0.0.1:{port}", "--num-processes", str(num_processes), "--quiet"]
    command = [Path(sys.executable).with_name("farflung"), *arguments, *shared, "--process-id"]
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "1", "XLA_FLAGS": ""}
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    return [subprocess.Popen([*command, str(number)], env=environment, **streams) for number in range(num_processes)]


@pytest.mark.bits
@pytest.mark.parametrize("num_processes", [2, *[4] * _IS_LONG])
@pytest.mark.parametrize("victim", [-1, *[0] * _IS_LONG])
def test_a_killed_process_ends_all_and_the_training_resumes_in_another_number_of_processes(tmp_path, num_processes, victim):
    settings = {"agents": 4, "updates": 6000, "batch_size": 2, "horizon": 4, "log_every": 1000, "preset": "paper"}
    options = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    out = tmp_path / "run"
    options += ["--seeds", "3", "--out", str(out), "--checkpoint-updates", "10"]
    started = _start(num_processes, "explore", "room-det", *options)
    try:
        while not list(out.glob("*/checkpoint-*.npz")):
            assert all(process.poll() is None for process in started), [process.communicate() for process in started]
            time.sleep(0.02)
        started[victim].send_signal(signal.SIGKILL)
        errors = [process.communicate(timeout=60)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    codes = {process.returncode for number, process in enumerate(started) if number != victim % num_processes}
    # JAX itself may end a process first, if that notices the loss of its service in process 0.
    assert codes <= ({1} if victim else {1, -signal.SIGABRT})
    if victim:
        assert "another process of this training has ended" in errors[0]
        assert f"continue from the last checkpoint with farflung resume {out}" in errors[0]
    resumed = farflung.resume(out)
    assert resumed.summary["updates"] == 6000
    alone = farflung.explore("room-det", **settings, seeds=(3,))
    np.testing.assert_array_equal(resumed.metrics.entropy, alone.metrics.entropy)
    np.testing.assert_array_equal(resumed.team(3).policies.logits, alone.team(3).policies.logits)
