import os
import re
import signal
from pathlib import Path

import pytest
from tests.scale.gated import SETTINGS, results, waiting

from farflung import Explore
from farflung.config import Launching
from farflung.scale.jobs import Job, environment_of, launch
from farflung.scale.on_ray import OnRay

ray = pytest.importorskip("ray")
ROOT = Path(__file__).parents[2]
KILLS = 12 if os.environ.get("KILLS") == "all" else 2
"""Workers and nodes are killed in turn; `make soak` kills more of them."""
FAST = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
POINTS = {f"rate-{rate}": Explore("room-det", learning_rate=rate, **SETTINGS) for rate in (0.05, 0.1)}
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


@pytest.fixture
def cluster(monkeypatch):
    """A cluster on this machine: a head without CPUs for jobs, and nodes that are processes of their own."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": FAST, "include_dashboard": False})
    made.add_node(num_cpus=1)
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    try:
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def job(folder, gate):
    arguments = {"gate": str(gate), "out": str(folder), "points": POINTS, "world_options": {}}
    return Job("tests.scale.gated:train", tuple(POINTS), arguments)


def test_killed_workers_and_nodes_lose_nothing_and_change_no_bit(cluster, tmp_path):
    for name in ("closed", "opened"):
        (tmp_path / name).mkdir()
    (tmp_path / "opened" / "open").touch()
    launcher = OnRay(Launching("ray", retries=KILLS, in_flight=3))
    known, firsts = set(), []

    def kill():
        if len(firsts) == KILLS:
            (tmp_path / "closed" / "open").touch()
            return
        process, first = waiting(tmp_path / "closed", known)
        firsts.append(first)
        if len(firsts) % 2:
            os.kill(process, signal.SIGKILL)
        else:
            (node,) = cluster.worker_nodes
            cluster.add_node(num_cpus=1)
            cluster.remove_node(node, allow_graceful=False)

    assert launch(launcher, [job(tmp_path / "killed", tmp_path / "closed")], retries=0, on_wait=kill) == {}
    assert launch(launcher, [job(tmp_path / "calm", tmp_path / "opened")], retries=0) == {}
    assert firsts == sorted(set(firsts))  # each start continued from a later checkpoint
    assert len(results(tmp_path / "calm")) == 4 * len(POINTS)
    assert results(tmp_path / "killed") == results(tmp_path / "calm")


def test_jobs_that_share_a_gpu_take_no_more_memory_than_they_need(monkeypatch):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    assert environment_of(Launching("ray", gpus=0.25))["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    assert environment_of(Launching("ray", gpus=1.0, cpus=3)) == {"JAX_NUM_CPU_DEVICES": "3", "JAX_PLATFORMS": ""}


@pytest.mark.parametrize("address", ["ray://127.0.0.1:1", "127.0.0.1:1"])
def test_an_address_without_a_cluster_is_told(address):
    launcher = OnRay(Launching("ray", address=address))
    with pytest.raises(ValueError, match=re.escape(f"cannot connect to Ray at {address}: ")):
        launch(launcher, [], retries=0)


def test_a_job_that_no_node_has_room_for_is_told(monkeypatch):
    nodes = [{"Alive": True, "Resources": {"CPU": 2.0}}, {"Alive": False, "Resources": {"CPU": 64.0}}]
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(
        ValueError, match=r"a job needs 8 CPUs and 0 GPUs, .* has 2 CPUs and 0 GPUs at most: choose other --cpus"
    ):
        launch(OnRay(Launching("ray", cpus=8)), [], retries=0)
    with pytest.warns(RuntimeWarning, match=r"a job needs 1 CPUs and 1 GPUs, .*: jobs wait until there is a larger one"):
        assert launch(OnRay(Launching("ray", gpus=1.0, address="auto")), [], retries=0) == {}
