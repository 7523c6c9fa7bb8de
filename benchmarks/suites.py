"""How fast farflung plays random actions in environments of JAX suites, against the suites' own stepping, in one run."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import tyro


@dataclass(frozen=True)
class Suites:
    """Time random actions in environments of JAX suites: farflung's rollout, and the suite's own reset and step."""

    environments: tuple[str, ...] = ("gymnax:CartPole-v1", "jumanji:Maze-v0", "xminigrid:MiniGrid-EmptyRandom-8x8")
    """Names of environments; those of suites that are not installed are left out."""
    copies: int = 512
    horizon: int = 100
    resets: bool = True
    """XLand-MiniGrid with its wrapper for automatic resets, as its users step it, or without."""
    repeats: int = 5
    """Times that both are measured, in turns; the best counts."""
    json: bool = False
    """Print one JSON object per environment instead of a table."""


@dataclass(frozen=True)
class Result:
    environment: str
    farflung: float
    """Steps a second."""
    suite: float
    ratio: float


def measure(name: str, config: Suites) -> Result:
    import jax
    import jax.random as jr

    import farflung
    from farflung.policies import UniformPolicy

    world = farflung.make_world(name, horizon=config.horizon)
    team = UniformPolicy(world.actions, 1)
    key = jr.key(0)
    ours = jax.jit(lambda key: farflung.play(key, team, world, config.copies, 1))
    theirs = own_rollout(world, config)
    times: dict[Any, list[float]] = {}
    for _ in range(config.repeats + 1):
        for play in (ours, theirs):
            began = time.perf_counter()
            jax.block_until_ready(play(key))
            times.setdefault(play, []).append(time.perf_counter() - began)
    steps = config.copies * config.horizon
    fastest = [steps / min(times[play][1:]) for play in (ours, theirs)]  # the first call compiles
    return Result(name, fastest[0], fastest[1], fastest[0] / fastest[1])


def own_rollout(world: Any, config: Suites) -> Callable[[Any], Any]:
    """Random actions with the suite's own functions, which reset automatically in gymnax, NAVIX and XLand-MiniGrid.

    It returns all observations, as farflung's rollout does.
    """
    import jax
    import jax.numpy as jnp
    import jax.random as jr

    import farflung
    from farflung.worlds import suites

    suite, actions = world.own, world.actions
    env, params = suite.kept.env, suite.kept.params
    if isinstance(suite, suites.XMiniGrid) and config.resets:
        from xminigrid.wrappers import GymAutoResetWrapper

        env = GymAutoResetWrapper(env)

    def act(key: Any) -> Any:
        if isinstance(actions, farflung.Box):
            return jr.uniform(key, actions.shape, minval=jnp.array(actions.low), maxval=jnp.array(actions.high))
        return jr.randint(key, actions.shape, 0, jnp.array(actions.nums).reshape(actions.shape))

    def reset(key: Any) -> Any:
        if isinstance(suite, suites.Gymnax):
            observation, state = env.reset(key, params)
            return state, observation
        if isinstance(suite, suites.Jumanji):
            state, timestep = env.reset(key)
            return state, timestep.observation
        state = env.reset(params, key) if isinstance(suite, suites.XMiniGrid) else env.reset(key)
        return state, state.obs if isinstance(suite, suites.Robots) else state.observation

    def step(state: Any, key: Any) -> Any:
        action_key, step_key = jr.split(key)
        action = act(action_key)
        if isinstance(suite, suites.Gymnax):
            observation, following, *_ = env.step(step_key, state, action, params)
        elif isinstance(suite, suites.Jumanji):
            following, timestep = env.step(state, action)
            observation = timestep.observation
        elif isinstance(suite, suites.XMiniGrid):
            following = env.step(params, state, action)
            observation = following.observation
        else:
            following = env.step(state, action)
            observation = following.obs if isinstance(suite, suites.Robots) else following.observation
        return jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), following, state), observation

    @jax.jit
    def play(key: Any) -> Any:
        reset_key, step_key = jr.split(key)
        first, seen = jax.vmap(reset)(jr.split(jr.key_data(reset_key), config.copies))
        first = jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), first)
        keys = jr.split(jr.key_data(step_key), (config.horizon, config.copies))
        _, observations = jax.lax.scan(jax.vmap(step), first, keys)
        return seen, observations

    return play


def main(config: Suites) -> None:
    if not config.json:
        print(f"random actions in environments of JAX suites: {config.copies} copies, {config.horizon} steps each")
    for name in config.environments:
        try:
            result = measure(name, config)
        except ValueError as error:
            if "needs the suite" not in str(error):
                raise
            print(json.dumps({"environment": name, "left_out": str(error)}) if config.json else f"  {error}")
            continue
        if config.json:
            print(json.dumps(asdict(result)))
        else:
            rates = f"farflung {result.farflung:12,.0f} steps/s   suite {result.suite:12,.0f} steps/s"
            print(f"  {name:36} {rates}   {100 * result.ratio:.0f}%")


if __name__ == "__main__":
    main(tyro.cli(Suites))
