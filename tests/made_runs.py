import jax.numpy as jnp
import numpy as np

from farflung import Explore, Metrics, Run, TabularSoftmax, make_world


def made_run(world="room-det", environment=None, seeds=(0, 1, 2), shift=0.0, **settings):
    """A run that was never trained: its metrics are noise around 0.5 + shift that shrinks with the updates."""
    config = Explore(world, seeds=seeds, **settings)
    if environment is None:
        environment = make_world(world, horizon=config.horizon, slip=config.slip)
    updates = np.array([1, *range(10, 101, 10)])
    noise = np.random.default_rng(len(seeds)).normal(size=(len(Metrics._fields), len(seeds), len(updates)))
    values = (0.5 + shift + 0.1 * noise / updates**0.5).astype(np.float32)
    summary = {"farflung": "test", "ceiling": {"bound": 2.0}}
    return Run(config, environment, updates, Metrics(*values), TabularSoftmax(jnp.zeros((len(seeds), 1, 1, 1)), False), summary)
