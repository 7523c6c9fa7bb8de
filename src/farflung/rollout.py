"""The one place where policies meet environments."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from farflung.environments import Environment
from farflung.noise import uniforms
from farflung.policies import TabularSoftmax
from farflung.tables import runs_on_cpu


class Trajectories(NamedTuple):
    """What a team has lived through: all `horizon` + 1 states, and the actions between them."""

    states: Int[Array, "batch agent trajectory times"]
    actions: Int[Array, "batch agent trajectory time"]


def play(
    key: PRNGKeyArray, team: TabularSoftmax, environment: Environment, batch_size: int, num_trajectories: int
) -> Trajectories:
    """Lets each agent of a team play `num_trajectories` episodes in its own copies of the world, `batch_size` times over."""
    num_agents = team.logits.shape[0]
    copies = (batch_size, num_agents, num_trajectories)
    num_reset, num_act = environment.num_reset_uniforms, team.num_uniforms
    num_step = num_act + environment.num_step_uniforms
    num_steps = num_step * environment.horizon
    noise = uniforms(key, (num_steps + num_reset, *copies))
    step_noise = noise[:num_steps].reshape(num_step, environment.horizon, *copies)
    reset_noise = noise[num_steps:]

    def play_one(
        policy: TabularSoftmax, reset_noise: Float[Array, " reset"], step_noise: Float[Array, "step time"]
    ) -> tuple[Int[Array, " times"], Int[Array, " time"]]:
        act = policy.sampler()

        def step(state: Array, inputs: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
            time, noise = inputs
            action = act(noise[:num_act], time, state)
            return environment.step(noise[num_act:], state, action), (state, action)

        first = environment.reset(reset_noise)
        times = jnp.arange(environment.horizon, dtype=jnp.int32)
        last, (states, actions) = jax.lax.scan(step, first, (times, step_noise.T), unroll=_unrolled_steps())
        return jnp.append(states, last), actions

    play_trajectories = jax.vmap(play_one, (None, -1, -1))
    play_agents = jax.vmap(play_trajectories, (0, -2, -2))
    play_batch = jax.vmap(play_agents, (None, -3, -3))
    return Trajectories(*play_batch(team, reset_noise, step_noise))


def _unrolled_steps() -> int:
    # On a GPU each step of a loop costs a kernel launch, longer than the step itself; on a CPU the smaller loop is faster.
    return 1 if runs_on_cpu() else 16
