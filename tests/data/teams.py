"""Runs with teams that nobody had to train."""

import dataclasses

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from farflung import Explore, Metrics, Run, make_tabular_world, make_vector_world, softmax_team
from farflung.policies import Networks, neural_team

COLUMNS = ("observations", "actions", "rewards", "lengths", "terminated", "truncated", "agents")


def make_run(name="maze-stoc", *, world=None, agents=3, seeds=(0, 5, 7), **settings):
    config = Explore("custom" if world is not None else str(name), agents=agents, updates=1, seeds=seeds, **settings)
    if world is None:
        world = make_tabular_world(config.world, horizon=config.horizon, slip=config.slip)
    teams = [softmax_team(jr.key(seed), world, 1 if config.single else agents) for seed in seeds]
    team = jax.tree.map(lambda *leaves: jnp.stack(leaves), *teams)
    entropies = np.arange(len(seeds), dtype=np.float32)[:, None]
    return Run(config, world, np.array([1]), Metrics(*[entropies] * 7), team, {"farflung": "0.1.0", "is_interrupted": False})


def make_vector_run(name="point-gap", *, world=None, agents=3, seeds=(0, 5, 7), **settings):
    """The same where states are vectors."""
    config = Explore(name, agents=agents, updates=1, seeds=seeds, policy="neural", **settings)
    world = make_vector_world(name, horizon=config.horizon) if world is None else world
    networks = Networks(hidden=(4,))
    teams = [neural_team(jr.key(seed), world, 1 if config.single else agents, networks, scale=3.0) for seed in seeds]
    team = jax.tree.map(lambda *leaves: jnp.stack(leaves), *teams)
    entropies = np.arange(len(seeds), dtype=np.float32)[:, None]
    config = dataclasses.replace(config, hidden=(4,))
    return Run(config, world, np.array([1]), Metrics(*[entropies] * 8), team, {"farflung": "0.1.0", "is_interrupted": False})


def assert_same(found, expected):
    for name in COLUMNS:
        one, two = getattr(found, name), getattr(expected, name)
        assert one.dtype == two.dtype, name
        np.testing.assert_array_equal(one, two, name)


def assert_same_episodes(found, expected):
    """Whatever lies beyond the ends."""
    for one, two in zip(found.steps(), expected.steps(), strict=True):
        np.testing.assert_array_equal(one, two)
    for name in ("lengths", "terminated", "truncated", "agents"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)
