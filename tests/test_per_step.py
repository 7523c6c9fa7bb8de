"""Our learning curves against an independent implementation: a Python loop over the steps of a Gymnasium vector environment."""

import numpy as np
import pytest
from benchmarks import per_step
from scipy import stats

from farflung import MAZE, ROOM, explore, make_tabular_world

NUM_SEEDS, NUM_UPDATES, NUM_STAGES = 20, 40, 4


def stages(curves):
    """The mean of each quarter of each seed's curve: within a quarter updates are no independent samples, seeds are."""
    return curves.reshape(len(curves), NUM_STAGES, -1).mean(axis=2, dtype=np.float64)


@pytest.mark.parametrize(
    ("world", "text", "slip", "horizon"), [("room-det", ROOM, 0.0, 8), ("maze-stoc", MAZE, 0.2, 10)], ids=["room", "maze"]
)
def test_learning_curves_agree_with_the_per_step_baseline(world, text, slip, horizon):
    settings = {"num_agents": 2, "batch_size": 8, "num_updates": NUM_UPDATES, "learning_rate": 0.5}
    loops = [per_step.train(text, slip=slip, horizon=horizon, seed=seed, **settings) for seed in range(NUM_SEEDS)]

    def ours(learning_rate):
        return explore(
            world,
            agents=2,
            batch_size=8,
            preset="paper",
            updates=NUM_UPDATES,
            learning_rate=learning_rate,
            log_every=1,
            seeds=tuple(range(400)),
        ).metrics

    same, slower = ours(0.5), ours(0.05)
    for name in ("entropy", "support"):
        theirs = stages(np.array([getattr(loop, name) for loop in loops]))
        agreement = stats.ttest_ind(theirs, stages(getattr(same, name)), equal_var=False)
        assert agreement.pvalue.min() > 0.05 / (2 * 2 * NUM_STAGES), f"{name}: {agreement.pvalue}"
    # The comparison would have noticed another learning rate.
    theirs = stages(np.array([loop.entropy for loop in loops]))
    assert stats.ttest_ind(theirs, stages(slower.entropy), equal_var=False).pvalue[-1] < 1e-3


def test_learning_curves_agree_with_the_numba_loop():
    numba_loop = pytest.importorskip("benchmarks.numba_loop")
    settings = {"batch_size": 8, "num_updates": NUM_UPDATES, "learning_rate": 0.5}
    theirs = numba_loop.train(make_tabular_world("maze-stoc"), num_agents=2, seeds=400, num_threads=1, **settings).entropy
    ours = explore(
        "maze-stoc",
        agents=2,
        batch_size=8,
        preset="paper",
        updates=NUM_UPDATES,
        learning_rate=0.5,
        log_every=1,
        seeds=tuple(range(400)),
    ).metrics.entropy
    assert stats.ttest_ind(stages(theirs), stages(ours), equal_var=False).pvalue.min() > 0.05 / (2 * NUM_STAGES)
