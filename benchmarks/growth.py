"""How the time and the memory of an update, and of its parts, grow with agents, horizon, states, seeds and batch."""

import json
import math
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

FITTED = 7
"""Sizes to which the slope is fitted, from the largest down: there, what doesn't grow no longer counts."""
UPDATES = 16
"""In one compiled loop, as in training: an update alone would pay for new memory each time."""

_SERIES_SECONDS = 0.1


@dataclass(frozen=True)
class Growth:
    """Time one update while one size doubles, then its parts; prints the slope in logarithms: 1 is linear growth."""

    sweeps: tuple[str, ...] = ()
    """Measure these only, such as "update/horizon" (default: all)."""
    device: str | None = None
    """cpu or gpu (default: what JAX chooses)."""
    most_seconds: float = 2.0
    """Stop doubling when one evaluation takes longer."""
    most_gigabytes: float = 8.0
    """Stop doubling when one evaluation needs more memory."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write what was measured to this file, from which --draw makes a figure."""
    draw: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="FILE ...")] = ()
    """Measure nothing: draw the updates of these files into --figure."""
    figure: Annotated[Path, tyro.conf.arg(metavar="FILE")] = Path("growth.svg")


class Sweep(NamedTuple):
    """What is measured while one size doubles."""

    name: str
    sizes: list[int]
    expected: str
    """How the work grows."""
    make: Callable[[int], tuple[Callable[..., Any], tuple[Any, ...]]]
    """A function to compile and its arguments, for a size."""
    repeats: int = 1
    """How often the function does the work."""


@dataclass(frozen=True)
class Result:
    sweep: str
    device: str
    expected: str
    sizes: list[int]
    seconds: list[float]
    """Of one evaluation, without compilation; on a CPU, seconds of all its cores."""
    megabytes: list[float]
    """Arguments, results and intermediate values, as XLA plans them."""

    @property
    def slope(self) -> float | None:
        return _slope(self.sizes, self.seconds)

    @property
    def memory_slope(self) -> float | None:
        return _slope(self.sizes, self.megabytes)


def sweeps() -> list[Sweep]:
    doublings = [2**power for power in range(13)]
    horizons, sides = [10 * size for size in doublings[:11]], [round(math.sqrt(43 * 2**power)) for power in range(15)] + [1000]
    return [
        Sweep("update/agents", doublings, "linear", lambda size: _update(agents=size, batch_size=8), UPDATES),
        Sweep("update/horizon", horizons, "linear", lambda size: _update(horizon=size, batch_size=8), UPDATES),
        Sweep(
            "update/states",
            [side**2 for side in sides],
            "linear",
            lambda size: _update(side=math.isqrt(size), horizon=64),
            UPDATES,
        ),
        Sweep("bare Adam/states", [side**2 for side in sides], "linear", _bare_adam, UPDATES),
        Sweep("update/seeds", doublings[:11], "linear", lambda size: _update(seeds=size), UPDATES),
        Sweep("update/batch", doublings, "linear", lambda size: _update(batch_size=size), UPDATES),
        Sweep("gains/horizon", horizons, "T log T", lambda size: _gains(size, is_ragged=False)),
        Sweep("ragged gains/horizon", horizons, "T log T", lambda size: _gains(size, is_ragged=True)),
        Sweep("metrics/horizon", horizons, "linear", lambda size: _metrics(horizon=size)),
        Sweep("metrics/states", [side**2 for side in sides], "linear", lambda size: _metrics(side=math.isqrt(size))),
        Sweep("occupancy/horizon", horizons, "linear", lambda size: _occupancy(horizon=size)),
        Sweep("occupancy/states", [side**2 for side in sides], "linear", lambda size: _occupancy(side=math.isqrt(size))),
        Sweep("k-NN gains/agents", doublings, "m^1.5 log m, then linear", _nearest_of_agents),
        Sweep("point maze update/agents", doublings, "linear from 512 agents on", _point_update),
        Sweep("k-NN gains/horizon", horizons[:10], "T^1.5 log T on a CPU, T^2 on a GPU", _nearest),
    ]


def _world(side: int | None, horizon: int) -> Any:
    from farflung import gridworld, make_tabular_world

    if side is None:
        return make_tabular_world("maze-stoc", horizon=horizon)
    rows = ["." * side] * side
    rows[side // 2] = "." * (side // 2) + "S" + "." * (side - side // 2 - 1)
    return gridworld("\n".join(rows), slip=0.2, horizon=horizon)


def _update(
    *, agents: int = 6, horizon: int = 10, side: int | None = None, seeds: int = 1, batch_size: int = 40
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """farflung's defaults, with stationary policies: one for each time would add a table that grows with the horizon."""
    import jax
    import jax.random as jr

    from farflung.algorithms.pgpse import pgpse
    from farflung.config import Explore
    from farflung.policies.rollout import play

    world = _world(side, horizon)
    algorithm = pgpse(Explore("maze-stoc", agents=agents, batch_size=batch_size, policy="stationary"), world)

    def updates(world: Any, states: Any, keys: Any) -> Any:
        def one(state: Any, key: Any) -> Any:
            played = play(key, state.team, world, batch_size, algorithm.num_trajectories)
            return algorithm.learn(world, state, played)

        def update(index: Any, states: Any) -> Any:
            return jax.vmap(one)(states, jax.vmap(jr.fold_in, (0, None))(keys, index))

        return jax.lax.fori_loop(0, UPDATES, update, states)

    keys = jr.split(jr.key(0), seeds)
    return updates, (world, jax.jit(jax.vmap(lambda key: algorithm.init(key, world)))(keys), keys)


def _bare_adam(num_states: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Adam's arithmetic for the table of an update, without a world or an agent: what the machine's memory alone costs."""
    import jax
    import jax.numpy as jnp

    def steps(gradient: Any, *before: Any) -> Any:
        def step(_: Any, carry: Any) -> Any:
            table, mean, square = carry
            mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
            return table + 0.1 * mean / (jnp.sqrt(square) + 1e-8), mean, square

        return jax.lax.fori_loop(0, UPDATES, step, before)

    return steps, tuple(jnp.full((6, num_states, 4), value, jnp.float32) for value in (0.0, 0.5, 0.1, 0.2))


def _walks(horizon: int) -> Any:
    import numpy as np

    return np.cumsum(np.random.default_rng(0).integers(-1, 2, (8, 6, 1, horizon + 1)), axis=-1) % 43


def _gains(horizon: int, *, is_ragged: bool) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    import jax
    import jax.numpy as jnp

    from farflung.entropy.counts import plug_in, ragged_plug_in

    return jax.vmap((ragged_plug_in if is_ragged else plug_in)(43).gains), (jnp.asarray(_walks(horizon), jnp.int32),)


def _metrics(*, horizon: int = 64, side: int | None = None) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    import jax
    import jax.random as jr

    from farflung.policies import uniform_team
    from farflung.policies.rollout import play
    from farflung.training.metrics import measure

    world = _world(side, horizon)
    team = uniform_team(world, 6)
    played = jax.jit(play, static_argnums=(3, 4))(jr.key(0), team, world, 8, 1)
    return (lambda team, played: measure(team, played, world.num_states)), (team, played)


def _occupancy(*, horizon: int = 64, side: int | None = None) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    from farflung.policies import uniform_team

    world = _world(side, horizon)
    return (lambda world, policy: world.occupancy(policy)), (world, uniform_team(world, 1).probabilities[0])


def _point_update(agents: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The actor-critic's defaults, with a batch of one."""
    import jax
    import jax.random as jr

    from farflung import make_world
    from farflung.algorithms.actor_critic import actor_critic
    from farflung.config import Explore
    from farflung.policies.rollout import play

    world: Any = make_world("point-gap")
    algorithm = actor_critic(Explore("point-gap", algorithm="actor-critic", agents=agents, batch_size=1), world)

    def update(world: Any, state: Any, key: Any) -> Any:
        return algorithm.learn(world, state, play(key, state.team, world, 1, 1))

    return update, (world, jax.jit(lambda key: algorithm.init(key, world))(jr.key(0)), jr.key(1))


def _nearest_of_agents(agents: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    import jax.numpy as jnp
    import numpy as np

    from farflung.entropy.nearest import nearest_neighbours

    walks = np.cumsum(np.random.default_rng(0).normal(size=(agents, 1, 65, 2)), axis=2)
    return nearest_neighbours(4).gains, (jnp.asarray(walks, jnp.float32),)


def _nearest(horizon: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    import jax.numpy as jnp
    import numpy as np

    from farflung.entropy.nearest import nearest_neighbours

    walks = np.cumsum(np.random.default_rng(0).normal(size=(6, 1, horizon + 1, 2)), axis=2)
    return nearest_neighbours(4).gains, (jnp.asarray(walks, jnp.float32),)


def measure(sweep: Sweep, config: Growth) -> Result:
    import jax

    is_cpu = jax.default_backend() == "cpu"
    clock = time.process_time if is_cpu else time.perf_counter  # other processes on the machine must not count
    sizes, seconds, megabytes = [], [], []
    for size in sweep.sizes:
        function, arguments = sweep.make(size)
        program = jax.jit(function).lower(*arguments).compile()
        memory: Any = program.memory_analysis()
        bytes_used = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
        if bytes_used > config.most_gigabytes * 1e9:
            break
        sizes.append(size)
        best = _best(lambda run=program, given=arguments: jax.block_until_ready(run(*given)), clock)  # type: ignore[misc]
        seconds.append(best / sweep.repeats)
        megabytes.append(bytes_used / 1e6)
        if seconds[-1] > config.most_seconds:
            break
    device = f"CPU ({platform.machine()})" if is_cpu else jax.local_devices()[0].device_kind
    return Result(sweep.name, device, sweep.expected, sizes, seconds, megabytes)


def _best(work: Callable[[], Any], clock: Callable[[], float]) -> float:
    """The seconds of one evaluation: the shortest mean of three series, after a first evaluation that doesn't count.

    A thread's CPU time may be counted only after the evaluation in which it was spent, so a series takes a while.
    """
    work()

    def seconds(number: int) -> float:
        began = clock()
        for _ in range(number):
            work()
        return clock() - began

    number = 1
    while (latest := seconds(number)) < _SERIES_SECONDS:
        number *= 2
    return min(latest, seconds(number), seconds(number)) / number


def _slope(sizes: list[int], values: list[float]) -> float | None:
    """The slope of the last values over the sizes, both as logarithms, by least squares."""
    if len(sizes) < FITTED:
        return None
    across, up = ([math.log(each) for each in numbers[-FITTED:]] for numbers in (sizes, values))
    middle = sum(across) / FITTED
    rise = sum((x - middle) * y for x, y in zip(across, up, strict=True))
    return rise / sum((x - middle) ** 2 for x in across)


def table(results: list[Result]) -> Iterator[str]:
    """The lines of a table: what a doubling costs, and how the time grows."""
    heads = f"{'from':>5} {'to':>9} {'first':>10} {'last':>10} {'memory':>10} {'slope':>6} {'memory slope':>13}"
    yield f"{'':22} {heads}  the work is"
    for each in results:
        slopes = ["" if slope is None else f"{slope:.2f}" for slope in (each.slope, each.memory_slope)]
        times = [f"{1e3 * seconds:,.2f} ms" for seconds in (each.seconds[0], each.seconds[-1])]
        memory = f"{each.megabytes[-1]:,.0f} MB"
        yield (
            f"{each.sweep:22} {each.sizes[0]:5,} {each.sizes[-1]:9,} {times[0]:>10} {times[1]:>10} {memory:>10} "
            f"{slopes[0]:>6} {slopes[1]:>13}  {each.expected}"
        )


def draw(results: list[Result], path: Path) -> None:
    """Time and memory of an update against each size, one colour for each device."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(each.sweep for each in results if each.sweep.startswith("update/")))
    devices = list(dict.fromkeys(each.device for each in results))
    figure = Figure(figsize=(3.1 * len(names), 5.2), layout="constrained")
    rows = figure.subplots(2, len(names), sharex="col", sharey="row", squeeze=False)
    for column, name in enumerate(names):
        for each in (result for result in results if result.sweep == name):
            for axes, values, slope in zip(
                rows[:, column], (each.seconds, each.megabytes), (each.slope, each.memory_slope), strict=True
            ):
                label = each.device if slope is None else f"{each.device}: slope {slope:.2f}"
                axes.loglog(each.sizes, values, "o-", markersize=3, color=f"C{devices.index(each.device)}", label=label)
        for axes in rows[:, column]:
            axes.legend(fontsize=6, loc="upper left")
            axes.grid(alpha=0.3)
        rows[1, column].set_xlabel(name.partition("/")[2])
    rows[0, 0].set_ylabel("seconds an update")
    rows[1, 0].set_ylabel("megabytes an update")
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    config = tyro.cli(Growth, config=(tyro.conf.FlagCreatePairsOff,))
    if config.draw:
        files = [json.loads(path.read_text(encoding="utf-8")) for path in config.draw]
        draw([Result(**result) for results in files for result in results], config.figure)
        return
    import jax

    if config.device is not None:
        jax.config.update("jax_platforms", {"gpu": "cuda"}.get(config.device, config.device))
    names = [sweep.name for sweep in sweeps()]
    if unknown := [name for name in config.sweeps if name not in names]:
        raise SystemExit(f"no sweep is called {', '.join(unknown)}: choose from {', '.join(names)}")
    chosen = [sweep for sweep in sweeps() if not config.sweeps or sweep.name in config.sweeps]
    results: list[Result] = []
    for sweep in chosen:
        results.append(measure(sweep, config))
        print(*list(table(results[-1:]))[len(results) > 1 :], sep="\n", flush=True)
        if config.json is not None:
            config.json.write_text(json.dumps([asdict(result) for result in results]), encoding="utf-8")


if __name__ == "__main__":
    main()
