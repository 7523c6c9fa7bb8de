"""What host-stepped training costs on top of stepping the same vector environment, in one run."""

import json
import time
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import tyro


@dataclass(frozen=True)
class Hosting:
    """Time updates of a team in a Gymnasium environment that is stepped on the host, and then the same calls of it alone."""

    environment: str = "FrozenLake-v1"
    """An environment whose own steps are cheap: the worst case."""
    agents: int = 6
    batch_size: int = 40
    copies: int = 64
    """Copies of the environment that are stepped together."""
    updates: int = 20
    """Updates that are timed, after one that compiles."""
    repeats: int = 3
    """Times that both are measured, in turns; the best counts."""
    json: bool = False
    """Print one JSON object instead of a table."""


@dataclass(frozen=True)
class Result:
    environment: str
    steps: int
    training_seconds: float
    bare_seconds: float
    overhead: float
    """Of training over the bare cost of stepping and resetting, as a share of it."""


def measure(config: Hosting) -> Result:
    import gymnasium
    import numpy as np
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    import farflung
    from farflung.config import Explore
    from farflung.studies.trials import algorithm_of
    from farflung.worlds.hosted import pool

    calls: list[tuple[str, Any]] = []

    class Recorded(SyncVectorEnv):
        """Notes what it is asked for."""

        def step(self, actions: Any) -> Any:
            calls.append(("step", actions))
            return super().step(actions)

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            calls.append(("reset", (seed, None if not options else options["reset_mask"].copy())))
            return super().reset(seed=seed, options=options)

    world = farflung.hosted(config.environment, copies=config.copies)
    updates = config.updates + 1
    settings = Explore(config.environment, agents=config.agents, batch_size=config.batch_size, seeds=(0,), updates=updates)
    algorithm = algorithm_of([settings], world)
    setattr(pool, "SyncVectorEnv", Recorded)  # noqa: B010  (it is not the module's to export)

    def training() -> tuple[float, int]:
        progress = farflung.train(algorithm, world, (0,), updates, pause_at=range(updates))
        first = next(
            each.host_statistics.num_steps for each in progress if each.host_statistics is not None and each.update == 1
        )
        calls.clear()
        began = time.perf_counter()
        host_statistics = [each.host_statistics.num_steps for each in progress if each.host_statistics is not None]
        return time.perf_counter() - began, host_statistics[-1] - first

    def bare() -> float:
        copies = -(-config.copies // config.agents) * config.agents
        made = partial(gymnasium.make, config.environment)
        vector = SyncVectorEnv([made] * copies, copy=False, autoreset_mode=AutoresetMode.DISABLED)
        vector.reset(seed=0)
        began = time.perf_counter()
        for name, given in calls:
            if name == "step":
                vector.step(given)
            else:
                seeds, mask = given
                vector.reset(seed=seeds, options=None if mask is None else {"reset_mask": np.asarray(mask)})
        return time.perf_counter() - began

    fastest, alone, steps = float("inf"), float("inf"), 0
    for _ in range(config.repeats):
        seconds, steps = training()
        fastest, alone = min(fastest, seconds), min(alone, bare())
    return Result(config.environment, steps, fastest, alone, fastest / alone - 1)


def main(config: Hosting) -> None:
    result = measure(config)
    if config.json:
        print(json.dumps(asdict(result)))
        return
    print(f"host-stepped training in {result.environment}: {result.steps:,} steps")
    print(f"  the environment alone   {result.bare_seconds:8.2f} s {result.steps / result.bare_seconds:12,.0f} steps/s")
    print(f"  training                {result.training_seconds:8.2f} s {result.steps / result.training_seconds:12,.0f} steps/s")
    print(f"  training adds {100 * result.overhead:.0f}%")


if __name__ == "__main__":
    main(tyro.cli(Hosting))
