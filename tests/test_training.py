import equinox as eqx
import jax
import numpy as np
import pytest

from farflung import (
    PGPSE,
    ActorCritic,
    Explore,
    Metrics,
    Networks,
    explore,
    gridworld,
    make_tabular_world,
    make_world,
    play,
    train,
)
from farflung.training import compiled
from farflung.training.progress import last_percent, record_schedule

SMALL = PGPSE(2, batch_size=4)


def trained(algorithm=SMALL, world="maze-stoc", seeds=(0, 1, 2), num_updates=30, log_every=10):
    """The recorded updates, the metrics and the final logits."""
    world = make_tabular_world(world) if isinstance(world, str) else world
    progress = list(train(algorithm, world, seeds, num_updates, log_every))
    metrics = Metrics.joined([each.metrics for each in progress])
    return np.concatenate([p.recorded for p in progress]), metrics, np.asarray(progress[-1].team.logits)


VARIANTS = {
    "sgd": SMALL,
    "adam": PGPSE(2, batch_size=4, optimizer="adam", learning_rate=0.05),
    "decay": PGPSE(2, batch_size=4, decay=0.9),
    "several trajectories": PGPSE(2, 3, batch_size=4),
    "time-dependent": PGPSE(2, batch_size=4, is_time_dependent=True),
    "the defaults": PGPSE(
        2,
        2,
        4,
        optimizer="adam",
        credit="causal",
        is_time_dependent=True,
        entropy_bonus=0.5,
        bonus_decay=0.9,
        steps_per_batch=2,
    ),
    "difference, combined": PGPSE(2, batch_size=4, credit="difference", num_combinations=3),
    "leave one out": PGPSE(2, batch_size=4, credit="leave_one_out"),
    "trust region": PGPSE(2, batch_size=4, optimizer="trust-region", learning_rate=0.01, credit="causal"),
    "natural, independent": PGPSE(2, batch_size=4, optimizer="natural", credit="causal", is_independent=True),
}


@pytest.mark.bits
@pytest.mark.parametrize("algorithm", VARIANTS.values(), ids=VARIANTS)
def test_a_seeds_results_do_not_depend_on_other_seeds_or_devices(algorithm):
    assert jax.local_device_count() == 2
    _, metrics, logits = trained(algorithm, seeds=(5, 0, 7, 9, 3))
    _, _, again = trained(algorithm, seeds=(5, 0, 7, 9, 3))
    _, alone_metrics, alone = trained(algorithm, seeds=(7,))
    _, _, in_other_company = trained(algorithm, seeds=(1, 2, 8, 4, 7))  # and on the other device
    np.testing.assert_array_equal(logits, again)
    np.testing.assert_array_equal(logits[2], alone[0])
    np.testing.assert_array_equal(logits[2], in_other_company[4])
    np.testing.assert_array_equal(metrics.entropy[2], alone_metrics.entropy[0])


@pytest.mark.bits
def test_a_seeds_records_do_not_depend_on_other_seeds():
    _, alone, _ = trained(PGPSE(6), seeds=(0,))
    _, together, _ = trained(PGPSE(6), seeds=range(8))
    for name, values in together.columns.items():
        np.testing.assert_array_equal(values[0], alone.columns[name][0])


def test_seeds_differ():
    _, _, logits = trained()
    assert len(np.unique(logits.reshape(3, -1), axis=0)) == 3


@pytest.mark.bits
def test_what_is_recorded_does_not_change_what_is_learnt():
    rarely, _, logits = trained(log_every=30)
    always, metrics, same = trained(log_every=1)
    np.testing.assert_array_equal(logits, same)
    assert rarely.tolist() == [1, 30]
    assert always.tolist() == list(range(1, 31))
    assert metrics.entropy.shape == (3, 30)


def test_records_are_those_of_the_batches_that_were_learnt_from():
    recorded, metrics, _ = trained(seeds=(3,), num_updates=6, log_every=2)
    world = make_tabular_world("maze-stoc")
    init_key, train_key = jax.random.split(jax.random.key(3))
    state, learn = SMALL.init(init_key, world), eqx.filter_jit(SMALL.learn)
    expected = {}
    for update in range(6):
        trajectories = play(jax.random.fold_in(train_key, update), state.team, world, SMALL.batch_size, SMALL.num_trajectories)
        counts = [np.bincount(element.ravel(), minlength=43) for element in np.asarray(trajectories.states)]
        shares = [count[count > 0] / count.sum() for count in counts]
        expected[update + 1] = (np.mean([-np.sum(s * np.log(s)) for s in shares]), np.mean([len(s) for s in shares]))
        state = learn(world, state, trajectories)
    assert recorded.tolist() == [1, 2, 4, 6]
    np.testing.assert_allclose(metrics.entropy[0], [expected[u][0] for u in recorded], atol=1e-5)
    np.testing.assert_allclose(metrics.support[0], [expected[u][1] for u in recorded], atol=1e-5)


def test_many_records_take_several_chunks():
    recorded, metrics, _ = trained(PGPSE(1, batch_size=1), gridworld("S.."), (0,), 500, 1)
    assert recorded.tolist() == list(range(1, 501))
    assert (metrics.support >= 1).all()


def test_worlds_of_equal_shape_share_a_compilation():
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_args, **_kwargs: compiled.append(event))

    def num_compilations(world):
        compiled.clear()
        trained(PGPSE(2, batch_size=3), world)
        return compiled.count("/jax/core/compile/backend_compile_duration")

    assert num_compilations(make_tabular_world("room-det", horizon=9)) > 0
    assert num_compilations(make_tabular_world("maze-det", horizon=9)) == 0
    assert num_compilations(make_tabular_world("maze-det", horizon=8)) > 0
    jax.monitoring.clear_event_listeners()


@pytest.mark.parametrize("policy", [False, True], ids=["stationary", "time-dependent"])
def test_a_team_learns_to_part_ways(policy):
    world = gridworld("....S....", horizon=4)
    algorithm = PGPSE(2, is_time_dependent=policy, optimizer="adam", learning_rate=0.1)
    _, metrics, _ = trained(algorithm, world, (0, 1, 2, 3), 400)
    best = -(2 * 0.1 * np.log(0.1) * 4 + 0.2 * np.log(0.2))  # nine cells, the start twice
    assert metrics.entropy[:, -1].max() == pytest.approx(best, abs=0.02)
    assert metrics.entropy[:, -1].mean() > metrics.entropy[:, 0].mean() + 0.3
    assert metrics.diversity[:, -1].max() > 0.5


@pytest.mark.bits
def test_seeds_with_learning_rates_of_their_own_train_as_they_would_alone():
    rates, decays = np.array([0.1, 0.5, 0.2]), np.array([1.0, 0.9, 0.99])
    each = [PGPSE(2, batch_size=4, learning_rate=rate, decay=decay) for rate, decay in zip(rates, decays, strict=True)]
    _, _, together = trained(each)
    for row, (rate, decay) in enumerate(zip(rates, decays, strict=True)):
        _, _, alone = trained(PGPSE(2, batch_size=4, learning_rate=float(rate), decay=float(decay)), seeds=(row,))
        np.testing.assert_array_equal(together[row], alone[0])


@pytest.mark.bits
def test_seeds_with_worlds_of_their_own_train_as_they_would_alone():
    algorithm, stochastic = VARIANTS["the defaults"], make_tabular_world("maze-stoc")
    worlds = [
        make_tabular_world("maze-det").widened(stochastic.num_successors),
        stochastic,
        make_tabular_world("maze-stoc", slip=0.5),
    ]
    _, metrics, together = trained(algorithm, worlds, (7, 7, 0))
    for row, (world, seed) in enumerate(zip(worlds, (7, 7, 0), strict=True)):
        _, alone_metrics, alone = trained(algorithm, world, (seed,))
        np.testing.assert_array_equal(together[row], alone[0])
        np.testing.assert_array_equal(metrics.entropy[row], alone_metrics.entropy[0])
    assert not np.array_equal(together[0], together[1])


@pytest.mark.parametrize(
    ("worlds", "message"),
    [(("maze-det",), "each of the 2, not 1"), (("maze-det", "maze-stoc"), "one shape"), (("maze-det", "room-det"), "steps")],
)
def test_worlds_that_do_not_fit_are_refused(worlds, message):
    with pytest.raises(ValueError, match=message):
        next(train(SMALL, [make_tabular_world(name) for name in worlds], (0, 1), 5))


@pytest.mark.parametrize(
    ("seeds", "num_updates", "message"), [((), 5, "at least one seed"), ((-1,), 5, "a seed"), ((0,), 0, "num_updates")]
)
def test_bad_seeds_and_counts_are_refused(seeds, num_updates, message):
    with pytest.raises(ValueError, match=message):
        next(train(SMALL, make_tabular_world("maze-det"), seeds, num_updates))


def test_the_schedule_has_the_first_every_nth_and_the_last_percent():
    schedule = record_schedule(1000, 100)
    assert schedule == [1, *range(100, 1000, 100), *range(991, 1001)]
    assert record_schedule(1) == [1]
    assert record_schedule(20) == [*range(1, 21)]
    assert record_schedule(10_000)[:3] == [1, 50, 100]
    assert len(record_schedule(10**7)) < 12_000
    assert last_percent(10_000) == 9_901
    assert last_percent(5) == 5


def test_a_setting_may_have_a_number_for_each_seed():
    both = explore("room-det", agents=2, updates=3, batch_size=4, seeds=(0, 1), learning_rate=(0.1, 0.2))
    alone = explore("room-det", agents=2, updates=3, batch_size=4, seeds=(1,), learning_rate=0.2)
    np.testing.assert_allclose(both.policies.logits[1], alone.policies.logits[0], atol=1e-5)
    with pytest.raises(ValueError, match=r"learning_rate needs one number, or one per seed \(3\), not 2"):
        Explore("room-det", seeds=(0, 1, 2), learning_rate=(0.1, 0.2))


def test_on_a_gpu_seeds_of_a_robot_train_side_by_side_in_groups(monkeypatch):
    world = make_world("point-gap", horizon=10)
    algorithm = ActorCritic(2, batch_size=3, networks=Networks((8,)))

    def final(*seeds):
        *_, last = train(algorithm, world, seeds, 3)
        return np.asarray(last.team.head.weight)

    one_by_one, sizes = np.concatenate([final(seed) for seed in range(5)]), []
    original = jax.lax.map

    def remembered(function, own, batch_size=None):
        sizes.append(batch_size)
        return original(function, own, batch_size=batch_size)

    monkeypatch.setattr(type(world), "is_reproducible", False)
    monkeypatch.setattr(compiled, "runs_on_cpu", lambda: False)
    monkeypatch.setattr(compiled, "_COPIES_TOGETHER", 2 * 3 * 2)
    monkeypatch.setattr(jax.lax, "map", remembered)
    side_by_side = final(*range(5))
    assert 2 in sizes  # of the three seeds of a device, two and then one
    np.testing.assert_allclose(side_by_side, one_by_one, atol=1e-4)
    assert np.ptp(side_by_side, axis=0).max() > 1e-3
