"""PGPSE with networks in worlds of vectors, against the enumeration of everything that can happen, and how faults are met."""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from farflung import PGPSE
from farflung.policies import Networks, log_probabilities
from farflung.policies.rollout import Trajectories, acted_in, play
from farflung.training.loop import train
from farflung.worlds.projection import Discrete, Projection
from farflung.worlds.vectors import VectorWorld

HORIZON = 2


class Walk(VectorWorld):
    """To the left or to the right by one; it ends, or breaks, where it is told to."""

    ends_at: float = eqx.field(static=True, default=np.inf)
    breaks_at: float = eqx.field(static=True, default=np.inf)
    neighbours: int = eqx.field(static=True, default=0)
    horizon: int = eqx.field(static=True, default=HORIZON)
    actions: Discrete = Discrete(2)
    recipe: str = eqx.field(static=True, default="")
    observation_center: tuple[float, ...] = eqx.field(static=True, default=(0.0,))
    observation_scale: tuple[float, ...] = eqx.field(static=True, default=(1.0,))
    walls: tuple[tuple[float, float, float, float], ...] = eqx.field(static=True, default=())

    num_reset_uniforms = num_step_uniforms = 0

    @property
    def projection(self):
        return Projection((0,), ("place",), (-3.5,), (3.5,), (7,), (1.0,), self.neighbours)

    @property
    def may_end_early(self):
        return bool(np.isfinite(self.ends_at))

    def reset_from(self, noise):
        return jnp.zeros(())

    def step_from(self, noise, state, action):
        following = state + 2 * action - 1
        return jnp.where(following == self.breaks_at, jnp.inf, following)

    def observe(self, state):
        return state[None]

    def is_over(self, state):
        return state == self.ends_at


def every_episode(world):
    """The places [episode, times] and choices [episode, time] of one agent, whatever it does."""
    choices = np.array(list(itertools.product(range(2), repeat=world.horizon)))
    places = np.pad(np.cumsum(2.0 * choices - 1, axis=1), ((0, 0), (1, 0)))
    if np.isfinite(world.ends_at):
        ended = np.cumsum(places == world.ends_at, axis=1) - (places == world.ends_at)
        places = np.where(ended > 0, np.nan, places)
    return places, choices


def every_batch(world, num_agents, batch_size):
    places, choices = every_episode(world)
    picks = np.indices((len(places),) * (num_agents * batch_size)).reshape(batch_size, num_agents, -1)
    index = np.moveaxis(picks, -1, 0)[..., None]  # [batch number, batch, agent, trajectory]
    return Trajectories(jnp.asarray(places[index][..., None], jnp.float32), jnp.asarray(choices[index], jnp.int32))


def chance(team, batch):
    """The probability that a team plays a batch."""
    chosen = log_probabilities(team, acted_in(batch), batch.actions)
    is_real = jnp.isfinite(acted_in(batch)[..., 0])
    # An episode that has ended is listed once for each choice that is never made.
    return jnp.exp(jnp.sum(jnp.where(is_real, chosen, -jnp.log(2.0))))


@functools.cache
def team_and_exact_gradient(world):
    """The same for every credit."""

    def expected_entropy(team):
        elements = every_batch(world, 2, 1)
        values = jax.vmap(lambda element: world.entropy.value(element.states[0]))(elements)
        return jnp.sum(jax.vmap(chance, (None, 0))(team, elements) * values)

    team = jax.jit(PGPSE(2, networks=Networks((3,)), init_scale=1.0).init)(jax.random.key(5), world).team
    return team, jax.jit(jax.grad(expected_entropy))(team)


@pytest.mark.parametrize(
    ("credit", "world"),
    [
        *((credit, Walk()) for credit in ("total", "leave_one_out", "difference", "causal")),
        *((credit, Walk(ends_at=1.0)) for credit in ("leave_one_out", "causal")),
        *((credit, Walk(neighbours=1)) for credit in ("total", "leave_one_out")),
    ],
    ids=str,
)
def test_the_mean_gradient_is_that_of_the_expected_entropy(credit, world):
    algorithm = PGPSE(2, batch_size=2, credit=credit, networks=Networks((3,)))
    team, exact = team_and_exact_gradient(world)
    batches = every_batch(world, 2, 2)

    @jax.jit
    def mean_gradient(team):
        gradients = jax.vmap(lambda batch: algorithm.gradient(world, team, batch))(batches)
        weights = jax.vmap(chance, (None, 0))(team, batches)
        return jax.tree.map(lambda leaf: jnp.tensordot(weights, leaf, 1), gradients), jnp.sum(weights)

    found, whole = mean_gradient(team)
    assert float(whole) == pytest.approx(1, abs=1e-5)
    jax.tree.map(lambda one, two: np.testing.assert_allclose(one, two, atol=2e-5), found, exact)


def test_an_episode_stops_where_the_world_says_so():
    world = Walk(ends_at=1.0, horizon=4)
    team = jax.jit(PGPSE(3, networks=Networks((3,))).init)(jax.random.key(0), world).team
    states, _, broken, *_ = play(jax.random.key(1), team, world, 8, 2)
    places = np.asarray(states[..., 0]).reshape(-1, 5)
    for episode in places:
        end = np.flatnonzero(episode == 1.0)
        assert np.isnan(episode[end[0] + 1 :]).all() if len(end) else np.isfinite(episode).all()
    assert np.isnan(places).any()
    assert not broken.any()


def test_a_state_that_is_not_finite_ends_its_episode_and_is_reported_with_update_and_step():
    world = Walk(breaks_at=2.0, horizon=4)
    algorithm = PGPSE(2, batch_size=8, credit="causal", optimizer="adam", learning_rate=0.01, networks=Networks((3,)))
    team = jax.jit(algorithm.init)(jax.random.key(0), world).team
    states, _, broken, *_ = play(jax.random.key(1), team, world, 32, 1)
    is_real = np.isfinite(states[..., 0])
    assert set(np.unique(broken)) == {0, 2, 4}
    np.testing.assert_array_equal(is_real.sum(axis=-1), np.where(broken > 0, broken, 5))
    *_, last = train(algorithm, world, [0, 1], 3)
    assert (last.faults.number > 0).all()
    assert set(last.faults.first_update.tolist()) <= {1, 2, 3}
    assert set(last.faults.first_step.tolist()) <= {2, 4}
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(last.team))


@pytest.mark.bits
def test_a_seeds_networks_do_not_depend_on_other_seeds():
    world = Walk(neighbours=2, horizon=4)
    algorithm = PGPSE(2, batch_size=4, credit="causal", optimizer="adam", learning_rate=0.01, networks=Networks((3,)))
    *_, together = train(algorithm, world, [3, 4], 3)
    *_, alone = train(algorithm, world, [4], 3)
    jax.tree.map(lambda one, two: np.testing.assert_array_equal(one[1], two[0]), together.team, alone.team)
    np.testing.assert_array_equal(together.metrics.particle_entropy[1], alone.metrics.particle_entropy[0])


def test_natural_steps_are_for_tables():
    with pytest.raises(ValueError, match="networks learn with sgd or adam"):
        PGPSE(2, optimizer="natural", networks=Networks())


def test_what_stands_for_an_action_after_the_end_teaches_nothing():
    world = Walk(ends_at=1.0)
    algorithm = PGPSE(2, batch_size=2, credit="causal", networks=Networks((3,)), entropy_bonus=0.3)
    state = jax.jit(algorithm.init)(jax.random.key(5), world)
    batches = every_batch(world, 2, 2)
    batch = jax.tree.map(lambda leaf: leaf[-1], batches)  # both agents go right at once, and are there
    batch = batch._replace(broken=jnp.zeros((2, 2, 1), jnp.int32))
    learn = jax.jit(algorithm.learn)
    other = batch._replace(actions=batch.actions.at[..., 1].set(1 - batch.actions[..., 1]))
    assert np.isnan(batch.states[..., 2, 0]).all()
    one, two = (learn(world, state, each).team for each in (batch, other))
    jax.tree.map(np.testing.assert_array_equal, one, two)
