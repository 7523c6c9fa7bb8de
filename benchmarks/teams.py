"""Teams against one policy, and the actor-critic against PGPSE, where states are vectors: at equal environment steps."""

import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tyro

WORLDS = ("point-empty", "point-gap", "point-four-rooms", "point-room", "point-maze", "mountain-car", "pendulum")
KINDS: dict[str, dict[str, Any]] = {
    "team": {"algorithm": "actor-critic"},
    "one policy": {"algorithm": "actor-critic", "single": True},
    "team by PGPSE": {"algorithm": "pgpse"},
}
"""The trainings; `team` is compared with each of the others."""


@dataclass(frozen=True)
class Teams:
    """Train a team, one policy with as many trajectories, and a team by PGPSE; compare their final entropy over the cells."""

    worlds: tuple[str, ...] = WORLDS
    agents: int = 6
    steps: int = 1_500_000
    """Environment steps of each training, at least."""
    policy: str = "neural"
    """What the agents share; see farflung explore --policy."""
    batch_size: int | None = None
    """Batch elements per update of the actor-critic; PGPSE has its own default."""
    combinations: int | None = None
    """Regroupings of the batch into teams; see farflung explore --combinations."""
    warm_up: float | None = None
    """Share of the updates in which all agents learn as one policy; see farflung explore --warm-up."""
    kinds: tuple[str, ...] = tuple(KINDS)
    seeds: int = 5
    out: Path | None = None
    """A file to which the results of each world are added, as a line of JSON."""


@dataclass(frozen=True)
class Trained:
    """One kind of training in one world."""

    world: str
    kind: str
    steps: int
    final: tuple[float, ...]
    """The entropy over the cells at the end, of each seed."""
    half: tuple[float, ...]
    """The same after half of the steps."""
    cpu_seconds: float


def train_all(config: Teams) -> Iterator[Trained]:
    """All trainings, one after the other."""
    import numpy as np

    from farflung import Explore, explore, make_world

    for world in config.worlds:
        horizon = make_world(world).horizon
        for kind in config.kinds:
            settings = KINDS[kind] | {"agents": config.agents, "policy": config.policy, "seeds": tuple(range(config.seeds))}
            if settings["algorithm"] != "pgpse":
                given = {name: getattr(config, name) for name in ("batch_size", "combinations", "warm_up")}
                settings |= {name: value for name, value in given.items() if value is not None}
            batch_size = Explore(world, **settings).batch_size
            updates = math.ceil(config.steps / (batch_size * config.agents * horizon))
            began = time.process_time()
            run = explore(world, updates=updates, live=False, **settings)
            entropy = np.asarray(run.metrics.entropy)
            half = entropy[:, np.searchsorted(run.updates, updates / 2)]
            steps = run.summary["environment_steps"] // config.seeds
            seconds = time.process_time() - began
            yield Trained(world, kind, steps, tuple(run.summary["final"]["entropy"]), tuple(half.tolist()), seconds)


def main(config: Teams) -> None:
    import numpy as np

    from farflung.runs.statistics import holm, mean_difference

    found: dict[tuple[str, str], Trained] = {}
    for each in train_all(config):
        found[each.world, each.kind] = each
        mean, half = np.mean(each.final), np.mean(each.half)
        print(
            f"{each.world}, {each.kind}: {mean:.3f} nats after {each.steps / 1e6:.2f} M steps, {half:.3f} after half; "
            f"{each.cpu_seconds:.0f} CPU s",
            flush=True,
        )
        if config.out is not None:
            with config.out.open("a") as file:
                file.write(json.dumps({"agents": config.agents, "policy": config.policy, **asdict(each)}) + "\n")
    for other in [kind for kind in config.kinds if kind != "team"]:
        pairs = [(world, found[world, "team"].final, found[world, other].final) for world in config.worlds]
        differences = {world: mean_difference(np.array(team), np.array(rest)) for world, team, rest in pairs}
        corrected = holm([difference.p_value for difference in differences.values()])
        print(f"\nteam minus {other}, nats, with 95% intervals over {config.seeds} seeds (Welch; verdicts after Holm):")
        for (world, found_here), p_value in zip(differences.items(), corrected, strict=True):
            verdict = found_here.verdict_at(p_value)
            print(f"  {world}: {found_here.value:+.3f} ({found_here.low:+.3f} to {found_here.high:+.3f}): {verdict}")


if __name__ == "__main__":
    main(tyro.cli(Teams))
