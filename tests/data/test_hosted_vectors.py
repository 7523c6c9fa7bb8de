import dataclasses

import gymnasium
import numpy as np
import pytest

from farflung import gridworld, hosted
from farflung.data import Source
from farflung.data.collecting import play_compiled, play_hosted, random_team
from farflung.policies import UniformPolicy
from farflung.worlds.hosted.modules import find_here

PENDULUM = hosted("Pendulum-v1", horizon=6)


def test_recorded_episodes_agree_with_the_environment_stepped_with_the_same_actions():
    (data,) = play_hosted(PENDULUM, UniformPolicy(PENDULUM.actions, 2), 3, 5, {"algorithm": "random actions"})
    seeds = _seeds(5)
    environment = gymnasium.make("Pendulum-v1")
    for episode, seed in enumerate(seeds[:3]):
        observation, _ = environment.reset(seed=int(seed))
        for time in range(6):
            np.testing.assert_allclose(data.observations[episode, time], observation, atol=1e-5)
            observation, reward, *_ = environment.step(data.actions[episode, time])
            assert data.rewards[episode, time] == np.float32(reward)
    assert data.agents.tolist() == [0, 1, 0]
    assert data.seeds.tolist() == seeds[:3].tolist()
    assert data.lengths.tolist() == [6, 6, 6]
    assert data.truncated.all()
    assert np.abs(data.actions).max() <= 2
    assert "Pendulum-v1" in data.source.environment


def _seeds(random_seed):
    """As they are drawn after the noise of a part."""
    generator = np.random.default_rng([random_seed, 0])
    per_part = max(1, 2**16 // (2 * 6)) * 2
    generator.random((per_part, 6, 1), np.float32)
    return generator.integers(2**31 - 1, size=per_part)


@pytest.mark.parametrize("play", [play_compiled, play_hosted])
def test_a_horizon_from_a_file_does_not_fill_the_memory(play):
    table = gridworld("..S..", horizon=2**31 - 1)
    world, team = (table, random_team(table)) if play is play_compiled else (PENDULUM, UniformPolicy(PENDULUM.actions, 2**20))
    world = dataclasses.replace(world, horizon=2**31 - 1)
    with pytest.raises(ValueError, match=r"episodes of 2,147,483,647 steps.* GiB are free"):
        next(play(world, team, 3, 5, Source(5, 4) if play is play_compiled else {}))


def test_an_option_from_a_file_names_no_other_file():
    settings = {"environment": "Pendulum-v1", "options": {"more": [{"xml_file": "./others.xml"}]}, "observe": None}
    read = dataclasses.replace(PENDULUM, make=None, settings=settings)
    with pytest.raises(ValueError, match=r"would read './others.xml': if you trust that, name .* --world Pendulum-v1"):
        read.with_environment()
    find_here("Pendulum-v1")
    with pytest.raises(ValueError, match="unexpected keyword argument 'more'"):  # it is tried
        read.with_environment()
    find_here()
