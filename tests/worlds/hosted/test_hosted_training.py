import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.worlds.hosted.simulators import Corridor, Planes

import farflung
from farflung import PGPSE, TabularSoftmax, Trajectories
from farflung import train as train_teams
from farflung.entropy.counts import ragged_plug_in
from farflung.training.metrics import measure, measure_batch
from farflung.worlds.hosted.tables import HostedTable, hosted
from farflung.worlds.hosted.world import View
from farflung.worlds.projection import Discrete

SETTINGS = {"optimizer": "adam", "init_scale": 0.01, "entropy_bonus": 0.5, "bonus_decay": 0.95, "steps_per_batch": 2}


def entropy_of(visited):
    _, counts = np.unique(visited, return_counts=True)
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum())


# From state 0 the first action leads to state 2, where an episode is over, the second to state 1, and from there likewise.
PATHS = np.array([(0, 2, 3), (0, 1, 2), (0, 1, 1)])
TAKEN = np.array([(0, 0), (1, 0), (1, 1)])


@pytest.mark.parametrize("credit", ["total", "leave_one_out", "difference", "causal"])
def test_the_gradient_is_unbiased_where_episodes_end_early(credit):
    logits = jnp.array([[[0.3, -0.2], [0.5, 0.1], [0, 0], [0, 0]], [[-0.4, 0.6], [0.2, 0.9], [0, 0], [0, 0]]])
    entropies = np.array([[entropy_of([s for s in (*one, *two) if s < 3]) for two in PATHS] for one in PATHS])

    def chances(logits):
        log_share = jax.nn.log_softmax(logits)[:, PATHS[:, :-1], TAKEN]
        return jnp.exp(jnp.sum(jnp.where(PATHS[None, :, :-1] < 2, log_share, 0), axis=-1))

    expected = jax.grad(lambda logits: chances(logits)[0] @ entropies @ chances(logits)[1])(logits)
    batches = np.array(list(itertools.product(range(3), repeat=4))).reshape(-1, 2, 2)  # two batch elements of two agents
    algorithm, team = PGPSE(num_agents=2, batch_size=2, credit=credit), TabularSoftmax(logits)

    def gradient(paths):
        batch = Trajectories(jnp.asarray(PATHS)[paths][:, :, None], jnp.asarray(TAKEN)[paths][:, :, None])
        return algorithm.gradient(View(2, Discrete(2), 3), team, batch).logits

    chance = np.prod(np.asarray(chances(logits))[[0, 1], batches], axis=(1, 2))
    found = np.tensordot(chance, np.asarray(jax.jit(jax.vmap(gradient))(jnp.asarray(batches))), 1)
    np.testing.assert_allclose(chance.sum(), 1, atol=1e-6)
    np.testing.assert_allclose(found[:, :2], expected[:, :2], atol=2e-6)


def test_gains_are_differences_of_entropies():
    generator = np.random.default_rng(0)
    states, lengths = generator.integers(0, 5, (3, 2, 6)), generator.integers(1, 7, (3, 2))
    states[np.arange(6) >= lengths[..., None]] = 5
    gains = np.asarray(ragged_plug_in(5).gains(jnp.asarray(states)))
    for agent, trajectory in itertools.product(range(3), range(2)):
        others = [s for place, s in np.ndenumerate(states) if place[:2] != (agent, trajectory) and s < 5]
        own = states[agent, trajectory, : lengths[agent, trajectory]].tolist()
        for time in range(6):
            with_it, before = others + own[: time + 1], others + own[:time]
            expected = entropy_of(with_it) - entropy_of(before) if time < len(own) else 0
            np.testing.assert_allclose(gains[agent, trajectory, time], expected, atol=1e-6)


def test_metrics_of_whole_episodes_do_not_depend_on_how_they_are_measured():
    world = farflung.make_tabular_world("room-stoc")
    team = farflung.softmax_team(jax.random.key(0), world, 3)
    batch = farflung.play(jax.random.key(1), team, world, 5, 2)
    padded = TabularSoftmax(jnp.pad(team.logits, ((0, 0), (0, 1), (0, 0))))
    ragged, plain = measure_batch(View(batch.actions.shape[-1], Discrete(4), 43), padded, batch), measure(team, batch, 43)
    for name, value in plain.columns.items():
        np.testing.assert_allclose(ragged.columns[name], value, rtol=1e-5)


def train(world, seeds=(0, 1), num_updates=12, **changes):
    algorithm = PGPSE(2, 1, 6, credit="causal", learning_rate=0.15, **(SETTINGS | changes))
    return list(train_teams(algorithm, world, seeds, num_updates, log_every=4))


@pytest.mark.bits
def test_a_seeds_results_do_not_depend_on_other_seeds_copies_or_workers():
    together = train(hosted(Corridor, horizon=6, copies=5))[-1]
    alone = train(hosted(Corridor, horizon=6, workers=2), seeds=(1,))[-1]
    np.testing.assert_array_equal(together.team.logits[1], alone.team.logits[0])
    assert together.team.logits.shape == (2, 2, 5, 2)


def test_a_team_learns_to_spread_out():
    progress = train(hosted(Corridor, horizon=6), seeds=(0, 1, 2), num_updates=60)
    entropy = np.concatenate([part.metrics.entropy for part in progress], axis=1)
    assert entropy[:, -3:].mean() > entropy[:, :3].mean() + 0.1
    steps = np.concatenate([part.host_statistics.steps for part in progress])
    assert np.all(np.diff(steps) > 0)
    assert steps[-1] < 60 * 2 * 6 * 6  # some episodes ended early
    assert progress[-1].host_statistics.num_steps // 3 == steps[-1]  # the steps of all seeds, and of one on average


def test_tables_grow_with_the_states_that_are_discovered(monkeypatch):
    plenty = train(hosted(Planes, horizon=8, observe="cell"), num_updates=3)[-1]
    monkeypatch.setattr("farflung.worlds.hosted.tables._FIRST_CAPACITY", 4)
    world = hosted(Planes, horizon=8, observe="cell")
    scarce = train(world, num_updates=3)[-1]
    assert world.num_states > 4
    assert scarce.team.logits.shape == plenty.team.logits.shape == (2, 2, world.num_states, 6)


def test_a_run_is_saved_drawn_and_read_back(tmp_path):
    world = hosted("CliffWalking-v1", horizon=9)
    run = farflung.explore(world, agents=2, updates=4, batch_size=3, seeds=(3, 4), out=tmp_path / "run")
    assert (tmp_path / "run" / "figure.png").stat().st_size > 10_000
    again = farflung.load_run(tmp_path / "run")
    assert isinstance(again.world, HostedTable)
    np.testing.assert_array_equal(again.world.positions, world.positions)
    np.testing.assert_array_equal(again.steps, run.steps)
    np.testing.assert_allclose(again.host_statistics.visits.sum(axis=-1), 1)
    assert again.config.world == "CliffWalking-v1"
    assert run.summary["environment_steps"] <= 4 * 2 * 3 * 9 * 2
    assert run.summary["ceiling"]["bound"] == pytest.approx(np.log(20))  # fewer samples than states


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("FrozenLake-v1", {}),
        ("Taxi-v4", {}),
        ("CliffWalking-v1", {}),
        ("minigrid:MiniGrid-FourRooms-v0", {"observe": "agent_pos"}),
        ("MountainCar-v0", {"bins": 10}),
    ],
)
def test_third_party_environments_are_explored(name, options):
    if name.startswith("minigrid"):
        pytest.importorskip("minigrid")
    world = hosted(name, horizon=15, copies=4, **options)
    (*_, last) = train_teams(PGPSE(2, 1, 2), world, (0,), 2)
    assert last.update == 2
    assert last.host_statistics.visits.shape == (1, 2, world.num_states)
    np.testing.assert_allclose(last.host_statistics.visits.sum(axis=-1), 1)
    assert 0 < last.metrics.entropy[0, -1] < np.log(world.num_states)
