"""Copies of an environment as Ray actors: the promises of the local pool, and nothing lost with a process or a node."""

import os
import sys
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.worlds.hosted.simulators import Corridor, DiesOnce, OnlyIn, Slow, Unlucky
from tests.worlds.hosted.test_pool import HORIZON, play

from farflung.worlds.hosted.actors import connected
from farflung.worlds.hosted.tables import hosted

ray = pytest.importorskip("ray")
ROOT = Path(__file__).parents[3]
_IS_LONG = os.environ.get("KILLS") == "all"  # make soak


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A cluster that starts in a folder with modules of the names that every actor imports."""
    folder = tmp_path_factory.mktemp("traps")
    for name in ("numpy", "gymnasium", "farflung", "cloudpickle"):
        (folder / f"{name}.py").write_text(f"import os; os.mkdir({str(folder / 'trapped')!r})")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", str(ROOT))  # actors import the simulators, whatever the current folder is
        patched.setattr("sys.path", [place for place in sys.path if place])
        patched.chdir(folder)
        connected()
        yield
        ray.shutdown()
        assert not (folder / "trapped").exists()


def _assert_equal(found, expected):
    for name, one, other in zip(found._fields, found, expected, strict=True):
        if name == "infos":
            assert one.keys() == other.keys()
            one, other = one["place"], other["place"]
        np.testing.assert_array_equal(one, other, err_msg=name)


@pytest.mark.usefixtures("cluster")
def test_episodes_do_not_depend_on_actors_nor_on_the_loss_of_one(tmp_path):
    alone = play(hosted(Corridor, horizon=HORIZON))[1]
    _assert_equal(play(hosted(Corridor, horizon=HORIZON, workers=3, launcher="ray"))[1], alone)
    world = hosted(partial(DiesOnce, tmp_path / "died"), horizon=HORIZON, workers=2, launcher="ray")
    with pytest.warns(RuntimeWarning, match="lost an actor of Ray, or its node in an episode with seed 3: .* the same seed"):
        found = play(world)[1]
    assert (tmp_path / "died").exists()
    _assert_equal(found, alone)


@pytest.mark.usefixtures("cluster")
@pytest.mark.filterwarnings("ignore:Unlucky:RuntimeWarning")
@pytest.mark.parametrize(
    ("flavour", "reports"),
    [
        ("raises", [r"Unlucky failed (ZeroDivisionError: no such luck)"]),
        ("dies", ["Unlucky lost an actor of Ray, or its node"] * 2),
        ("hangs", ["Unlucky gave no answer for 5 seconds"]),
    ],
)
def test_a_failed_actor_is_reported_with_its_seed_and_replaced(flavour, reports):
    timeout = 5.0 if flavour == "hangs" else 60.0
    world = hosted(partial(Unlucky, flavour), horizon=HORIZON, workers=2, launcher="ray", timeout=timeout)
    healthy = play(hosted(Corridor, horizon=HORIZON), num_episodes=4)[1]
    found = play(world, num_episodes=4)[1]
    assert [failure.partition(" in an episode with seed 3: ")[0] for failure in world.failures] == reports
    assert world.failures[-1].endswith("it is played again with another seed in a new copy")
    np.testing.assert_array_equal(found.states, healthy.states)


@pytest.mark.usefixtures("cluster")
def test_an_environment_that_cannot_be_made_on_a_node_is_told_with_the_reason():
    world = hosted(partial(OnlyIn, os.getpid()), horizon=HORIZON, workers=2, launcher="ray")
    with pytest.raises(ValueError, match=r"OnlyIn cannot be made: .*FileNotFoundError: no model on this node"):
        play(world)


@pytest.mark.skipif(not _IS_LONG, reason="make soak kills nodes")
@pytest.mark.filterwarnings("ignore:Slow:RuntimeWarning", "ignore:.*fork:RuntimeWarning")
def test_the_loss_of_a_node_changes_no_episode():
    from ray.cluster_utils import Cluster

    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        world = hosted(Slow, horizon=HORIZON, workers=3, launcher="ray", timeout=120.0)
        killer = threading.Thread(target=lambda: (time.sleep(8), cluster.remove_node(nodes[0], allow_graceful=False)))
        killer.start()
        found = play(world, num_episodes=48)[1]
        killer.join()
        assert any("lost an actor of Ray, or its node" in failure for failure in world.failures), world.failures
        _assert_equal(found, play(hosted(Corridor, horizon=HORIZON), num_episodes=48)[1])
    finally:
        ray.shutdown()
        cluster.shutdown()


def test_the_launcher_ray_needs_workers():
    with pytest.raises(ValueError, match="the launcher ray needs workers, the number of its actors: give --workers"):
        hosted(Corridor, horizon=HORIZON, launcher="ray")
    with pytest.raises(ValueError, match="unknown launcher 'moon': choose local, ray"):
        hosted(Corridor, horizon=HORIZON, workers=2, launcher="moon")
