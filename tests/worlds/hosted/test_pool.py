import multiprocessing
import signal
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from tests.worlds.hosted.simulators import Broken, Corridor, Planes, Sleepy, Unlucky

from farflung.worlds.hosted.players import OVER
from farflung.worlds.hosted.tables import hosted

NUM_EPISODES, NUM_AGENTS, HORIZON = 12, 2, 6


def play(world, num_episodes=NUM_EPISODES):
    """Episodes of two agents; the second walks right more often."""
    generator = np.random.default_rng(0)
    right = np.array([0.5, 0.8])
    cumulative = np.stack([1 - right, np.ones(2)], axis=-1)
    thresholds = np.broadcast_to(cumulative[:, None, None], (NUM_AGENTS, 1, world.num_states + 1, 2))
    agents = np.arange(num_episodes) % NUM_AGENTS
    noise = generator.random((num_episodes, HORIZON))
    with world.open(NUM_AGENTS, num_episodes, has_infos=True) as pool:
        return noise, pool.play(world.player(thresholds, agents, noise), agents, 1 + np.arange(num_episodes))


@pytest.mark.parametrize("options", [{"copies": 12}, {"copies": 2}, {"copies": 3}, {"workers": 2}])
def test_episodes_are_those_of_the_environment_played_alone(options):
    noise, (states, actions, rewards, is_terminated, broken, seeds, infos) = play(hosted(Corridor, horizon=HORIZON, **options))
    for episode in range(NUM_EPISODES):
        environment = Corridor()
        observation, _ = environment.reset(seed=1 + episode)
        expected, is_over = [observation - 10], False
        for time in range(HORIZON):
            if is_over:
                expected.append(OVER)
                continue
            action = int(noise[episode, time] >= 1 - (0.5, 0.8)[episode % 2])
            observation, reward, is_over, _, _ = environment.step(action)
            assert (actions[episode, time], rewards[episode, time]) == (action, reward)
            expected.append(observation - 10)
        np.testing.assert_array_equal(states[episode], expected)
        assert is_terminated[episode] == is_over
        assert seeds[episode] == 1 + episode
    assert 0 < is_terminated.sum() < NUM_EPISODES
    assert not broken.any()
    is_told = (states != OVER) & (np.arange(HORIZON + 1) > 0)  # the environment tells nothing when it is reset
    np.testing.assert_array_equal(infos["place"], np.where(is_told, states, np.nan))


@pytest.mark.parametrize(
    ("flavour", "options", "report"),
    [
        ("raises", {"copies": 4}, r"Unlucky failed \(ZeroDivisionError: no such luck\)"),
        ("raises", {"workers": 2}, r"Unlucky failed \(ZeroDivisionError: no such luck\)"),
        ("dies", {"workers": 2}, "Unlucky ended its process"),
        ("hangs", {"workers": 2, "timeout": 1.0}, "Unlucky gave no answer for 1 seconds"),
    ],
)
def test_a_failed_copy_is_reported_with_its_seed_and_replaced(flavour, options, report):
    world = hosted(partial(Unlucky, flavour), horizon=HORIZON, **options)
    healthy = play(hosted(Corridor, horizon=HORIZON), num_episodes=4)[1]
    with pytest.warns(RuntimeWarning, match=f"{report} in an episode with seed 3: it is played again with another seed"):
        _, episodes = play(world, num_episodes=4)
    assert len(world.failures) == 1
    # Every episode is complete: the dynamics are deterministic, so another seed changes nothing.
    np.testing.assert_array_equal(episodes.states, healthy.states)
    np.testing.assert_array_equal(episodes.rewards, healthy.rewards)
    np.testing.assert_array_equal(episodes.actions, healthy.actions)
    np.testing.assert_array_equal(episodes.infos["place"], healthy.infos["place"])


@pytest.mark.filterwarnings("ignore:Broken failed:RuntimeWarning")
def test_an_environment_that_always_fails_raises_one_line():
    message = r"Broken failed \(RuntimeError: always\) in an episode with seed \d+, and 2 times before"
    with pytest.raises(ValueError, match=message):
        play(hosted(Broken, horizon=HORIZON, copies=1))


def test_workers_that_never_start_are_killed(monkeypatch):
    monkeypatch.setattr("farflung.worlds.hosted.pool._SECONDS_TO_START", 2.0)
    with pytest.raises(ValueError, match="Sleepy cannot be made"):
        play(hosted(Sleepy, horizon=HORIZON, workers=2, timeout=1.0))
    assert not multiprocessing.active_children()


def test_states_that_are_not_in_the_table_are_played_by_its_last_row():
    world = hosted(Planes, horizon=HORIZON, observe="cell", copies=2)
    thresholds = np.ones((1, 1, 1, 6))
    thresholds[..., :3] = 0  # always the fourth action, which moves on
    first = np.zeros(2, int)
    with world.open(1, 2) as pool:
        played = pool.play(world.player(thresholds, first, np.full((2, HORIZON), 0.5)), first, np.arange(2))
    np.testing.assert_array_equal(played.states, [range(HORIZON + 1)] * 2)
    np.testing.assert_array_equal(world.index.features, [(3 + step, 7) for step in range(HORIZON + 1)])


def test_workers_whose_parent_is_killed_end_silently():
    code = """
import gymnasium, os, signal
from functools import partial
from gymnasium.vector import AsyncVectorEnv
from farflung.worlds.hosted.copies import Copy
copies = [Copy(partial(gymnasium.make, "CartPole-v1"), None, None, number) for number in range(2)]
vector = AsyncVectorEnv(copies, context="forkserver")
os.kill(os.getpid(), signal.SIGKILL)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == -signal.SIGKILL
    assert "Traceback" not in result.stderr
    assert "Worker" not in result.stderr
