import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from farflung import Explore, Metrics, Run, TabularSoftmax, VectorWorld, make_tabular_world, make_vector_world
from farflung.policies import networks_of, neural_team
from farflung.runs.run import Paths


def made_metrics(*values):
    """Metrics of two seeds, with one record per value."""
    column = np.array([values, values], np.float32) + np.float32(0.1)
    return Metrics(*(column * number for number in range(1, 8)))


def made_run(world="room-det", environment=None, seeds=(0, 1, 2), shift=0.0, **settings):
    """An untrained run whose metrics are noise around 0.5 + shift that shrinks with the updates."""
    config = Explore(world, seeds=seeds, **settings)
    if environment is None:
        environment = make_tabular_world(world, horizon=config.horizon, slip=config.slip)
    updates = np.array([1, *range(10, 101, 10)])
    noise = np.random.default_rng(len(seeds)).normal(size=(8, len(seeds), len(updates)))
    values = (0.5 + shift + 0.1 * noise / updates**0.5).astype(np.float32)
    if not isinstance(environment, VectorWorld):
        values = values[:-1]  # the entropy from neighbours is of states that are vectors
    summary = {"farflung": "test", "ceiling": {"bound": 2.0}}
    shape = (len(seeds), config.num_policies, environment.num_states, environment.num_actions)
    return Run(config, environment, updates, Metrics(*values), TabularSoftmax(jnp.zeros(shape), False), summary)


def rows_of(run, *rows):
    """The run as if only the seeds in these rows had been trained."""
    metrics, policies = (jax.tree.map(lambda leaf: leaf[np.array(rows)], tree) for tree in (run.metrics, run.policies))
    final = {name: [values[row] for row in rows] for name, values in run.summary.get("final", {}).items()}
    seeds = tuple(run.config.seeds[row] for row in rows)
    summary = run.summary | {"final": final, "seeds": list(seeds)}
    if "percent_of_ceiling" in summary:
        summary["percent_of_ceiling"] = [summary["percent_of_ceiling"][row] for row in rows]
    config = dataclasses.replace(run.config, seeds=seeds)
    return dataclasses.replace(run, config=config, metrics=metrics, policies=policies, summary=summary, playback=None)


def made_continuous_run(world="point-gap", num_steps=20, **settings):
    """An untrained run in a world whose states are vectors: its agents walk at random, in two batch elements."""
    environment = make_vector_world(world, horizon=num_steps)
    run = made_run(world, environment, **{"algorithm": "pgpse"} | settings)  # whose networks may be zeros
    projection, config = environment.projection, run.config
    low, high = np.array(projection.low), np.array(projection.high)
    num_agents, num_trajectories = (1, config.agents) if config.single else (config.agents, config.trajectories)
    steps = np.random.default_rng(0).normal(size=(2, num_agents, num_trajectories, num_steps, len(low))) * (high - low) / 12
    walks = np.concatenate([np.zeros_like(steps[..., :1, :]), steps.cumsum(axis=-2)], axis=-2) + (low + high) / 2
    features = low + np.mod(walks - low, high - low)
    shapes = eqx.filter_eval_shape(neural_team, jr.key(0), environment, num_agents, networks_of(config))
    team = jax.tree.map(lambda leaf: np.zeros((len(config.seeds), *leaf.shape), leaf.dtype), shapes)
    summary = {
        **run.summary,
        "ceiling": {"bound": 5.9, "normalized_bound": 0.99, "exact": False, "method": "counting"},
        "random": dict.fromkeys(Metrics._fields, 0.4),
    }
    return dataclasses.replace(run, policies=team, summary=summary, paths=Paths(config.seeds[0], features.astype(np.float32)))
