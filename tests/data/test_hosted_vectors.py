import gymnasium
import numpy as np

from farflung import hosted
from farflung.data.collecting import play_hosted
from farflung.policies import UniformPolicy


def test_recorded_episodes_agree_with_the_environment_stepped_with_the_same_actions():
    world = hosted("Pendulum-v1", horizon=6)
    (data,) = play_hosted(world, UniformPolicy(world.actions, 2), 3, 5, {"algorithm": "random actions"})
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
