import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import farflung  # noqa: F401  (registers the ids)

pytestmark = pytest.mark.bits

SEVERAL_STARTS = "S..G\n.#..\nS..S"
WORLDS = {
    "maze": ("farflung/Maze-v0", {"stochastic": True}),
    "room-goal": ("farflung/Room-v0", {"goal": (2, 3), "slip": 0.1}),
    "several-starts": ("farflung/Grid-v0", {"map": SEVERAL_STARTS, "max_episode_steps": 6}),
    "unlimited": ("farflung/Grid-v0", {"map": SEVERAL_STARTS, "slip": 0.5}),
}


def ours_and_gymnasiums(name, mode, num_envs=7):
    environment_id, options = WORLDS[name]
    ours = gymnasium.make_vec(environment_id, num_envs, "vector_entry_point", autoreset_mode=mode, **options)
    theirs = gymnasium.make_vec(environment_id, num_envs, "sync", {"autoreset_mode": mode}, **options)
    return ours, theirs


def assert_same(ours, theirs):
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            assert_same(ours[key], value)
    elif isinstance(theirs, tuple):
        for mine, other in zip(ours, theirs, strict=True):
            assert_same(mine, other)
    else:
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("name", WORLDS)
def test_copies_do_to_the_bit_what_gymnasiums_copies_do(name, mode):
    ours, theirs = ours_and_gymnasiums(name, mode)
    assert (ours.observation_space, ours.action_space) == (theirs.observation_space, theirs.action_space)
    assert ours.metadata["autoreset_mode"] == theirs.metadata["autoreset_mode"]
    assert_same(ours.reset(seed=3), theirs.reset(seed=3))
    actions, num_ends = np.random.default_rng(0), 0
    for _ in range(60):
        action = actions.integers(4, size=7)
        results = ours.step(action)
        assert_same(results, theirs.step(action))
        has_ended = results[2] | results[3]
        num_ends += has_ended.sum()
        if mode is AutoresetMode.DISABLED and has_ended.any():
            masks = [{"reset_mask": has_ended.copy()} for _ in range(2)]
            assert_same(ours.reset(options=masks[0]), theirs.reset(options=masks[1]))
    assert num_ends > 0


def test_a_reset_without_a_seed_continues_the_random_numbers():
    ours, theirs = ours_and_gymnasiums("several-starts", AutoresetMode.NEXT_STEP)
    seeds = [5, None, 9, 5, 1, 2, 2]
    for seed in (0, None, None, seeds):
        ours_now, theirs_now = ours.reset(seed=seed), theirs.reset(seed=seed)
        assert_same(ours_now, theirs_now)
    assert ours.np_random_seed == theirs.np_random_seed


def test_copies_without_a_seed_differ():
    copies = gymnasium.make_vec("farflung/Grid-v0", 200, map=SEVERAL_STARTS)
    observations, _ = copies.reset()
    assert len(set(observations.tolist())) == 3


def test_our_vector_environment_is_the_default():
    copies = gymnasium.make_vec("farflung/Room-v0", 3)
    assert type(copies).__name__ == "RoomVectorEnv"
    assert copies.world.num_states == 43


@pytest.mark.parametrize("mode", ["ansi", "rgb_array"])
def test_every_copy_is_drawn(mode):
    copies = gymnasium.make_vec("farflung/Room-v0", 2, render_mode=mode)
    single = gymnasium.make("farflung/Room-v0", render_mode=mode)
    copies.reset()
    copies.step([0, 2])
    frames = copies.render()
    for frame, action in zip(frames, (0, 2), strict=True):
        single.reset()
        single.step(action)
        np.testing.assert_array_equal(frame, single.render())


def test_a_limit_of_minus_one_is_none():
    copies = gymnasium.make_vec("farflung/Room-v0", 1, max_episode_steps=-1)
    copies.reset()
    assert not any(copies.step([0])[3].any() for _ in range(20))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_envs": 0}, "num_envs must be at least 1"),
        ({"max_episode_steps": 0}, "max_episode_steps must be at least 1"),
        ({"render_mode": "human"}, "unknown render_mode 'human'"),
        ({"autoreset_mode": "Never"}, "Never"),
        ({"goal": (0, 5)}, "in a wall"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        gymnasium.make_vec("farflung/Room-v0", **options)


@pytest.mark.parametrize(
    ("actions", "message"),
    [([0], "2 copies need"), ([0, 4], "not 0 to 4"), ([-1, 0], "not -1 to 0"), (np.zeros(2), "whole numbers")],
)
def test_bad_actions_are_refused(actions, message):
    copies = gymnasium.make_vec("farflung/Room-v0", 2)
    copies.reset()
    with pytest.raises(ValueError, match=message):
        copies.step(actions)


def test_bad_resets_are_refused():
    copies = gymnasium.make_vec("farflung/Room-v0", 2)
    with pytest.raises(gymnasium.error.ResetNeeded, match="all copies"):
        copies.reset(options={"reset_mask": np.array([True, False])})
    with pytest.raises(ValueError, match="2 booleans"):
        copies.reset(options={"reset_mask": np.array([False, False])})
    with pytest.raises(ValueError, match="2 copies need 2 seeds, not 3"):
        copies.reset(seed=[0, 1, 2])


def test_a_step_needs_a_reset():
    copies = gymnasium.make_vec("farflung/Room-v0", 3, autoreset_mode=AutoresetMode.DISABLED, max_episode_steps=1)
    with pytest.raises(gymnasium.error.ResetNeeded, match="before their first step"):
        copies.step([0, 0, 0])
    copies.reset()
    copies.step([0, 0, 0])
    copies.reset(options={"reset_mask": np.array([False, True, False])})
    with pytest.raises(gymnasium.error.ResetNeeded, match="episodes of 2 copies have ended"):
        copies.step([0, 0, 0])
