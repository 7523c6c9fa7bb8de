"""An algorithm of your own: keep the best team so far, and try a random change of it in every update."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

import farflung


class Search(NamedTuple):
    team: Any  # the policies that play the next batch
    best: Any
    value: jax.Array
    key: jax.Array


class RandomSearch(eqx.Module):
    num_agents: int = 4
    batch_size: int = 8  # repetitions of the team's episodes in a batch
    num_trajectories: int = 1  # episodes that each agent plays in one repetition
    noise: float = 0.5

    def init(self, key, world):
        team_key, key = jax.random.split(key)
        team = farflung.softmax_team(team_key, world, self.num_agents, scale=0.1)
        return Search(team, team, jnp.float32(0), key)

    def learn(self, world, state, trajectories):
        value = jnp.mean(jax.vmap(world.entropy.value)(trajectories.states))
        best = jax.tree.map(lambda new, old: jnp.where(value > state.value, new, old), state.team, state.best)
        noise_key, key = jax.random.split(state.key)
        noise = self.noise * jax.random.normal(noise_key, best.logits.shape)
        return Search(
            eqx.tree_at(lambda team: team.logits, best, best.logits + noise), best, jnp.maximum(value, state.value), key
        )


if __name__ == "__main__":
    run = farflung.explore("room-det", algorithm=RandomSearch(), updates=200, seeds=(0, 1), out="runs/random-search")
    entropy, random = (run.summary[name]["normalized_entropy"] for name in ("final", "random"))
    print("entropy / log(states):", entropy, "with random actions:", random)
