"""Teams against one policy, by what the agents share and by how they are trained, where states are vectors: at equal steps."""

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
    "neural": {"policy": "neural"},
    "shared-trunk": {"policy": "shared-trunk", "warm_up": 0.0},
    "conditioned": {"policy": "conditioned", "warm_up": 0.0},
    "alone": {"policy": "neural", "warm_up": 0.0},
    "one policy": {"single": True},
    "PGPSE": {"algorithm": "pgpse"},
}
"""The trainings: three teams by what their agents share, agents that never learn together, one policy with as many
trajectories, and a team of networks by PGPSE."""


@dataclass(frozen=True)
class Teams:
    """Train teams and one policy for as many environment steps; compare their final entropy over the cells."""

    worlds: tuple[str, ...] = WORLDS
    kinds: tuple[str, ...] = ("neural", "one policy")
    """Which of neural, shared-trunk, conditioned, alone, "one policy" and PGPSE to train."""
    against: str = "one policy"
    """The kind that all others are compared with."""
    agents: int = 6
    steps: int = 1_000_000
    """Environment steps of each training, at least."""
    batch_size: int | None = None
    """Batch elements per update of the actor-critic; PGPSE has its own default."""
    combinations: int | None = None
    """Regroupings of the batch into teams; see farflung explore --combinations."""
    warm_up: float | None = None
    """Share of the updates in which agents with networks of their own learn as one policy; see
    farflung explore --warm-up."""
    horizon: int | None = None
    """Actions in an episode (default: the world's own)."""
    env_options: tuple[str, ...] = ()
    """Options of a robot, such as solver_iterations=1."""
    seeds: int = 5
    first_seed: int = 0
    """Seeds on which settings were chosen must not be those on which they are reported."""
    out: Path | None = None
    """A file to which each training is added, as a line of JSON."""
    read: tuple[Path, ...] = ()
    """Train nothing: print the tables of these files."""


@dataclass(frozen=True)
class Trained:
    """One kind of training in one world."""

    world: str
    kind: str
    agents: int
    batch_size: int
    asked_steps: int
    steps: int
    """Environment steps of each seed."""
    seeds: tuple[int, ...]
    final: tuple[float, ...]
    """The entropy over the cells at the end, of each seed."""
    half: tuple[float, ...]
    """The same after half of the steps."""
    cpu_seconds: float


def train_all(config: Teams) -> Iterator[Trained]:
    """All trainings, one after the other."""
    import numpy as np

    from farflung import Explore, explore, make_world
    from farflung.cli.explore import parsed_options

    given_options: dict[str, Any] = {"env_options": parsed_options(config.env_options)} if config.env_options else {}
    seeds = tuple(range(config.first_seed, config.first_seed + config.seeds))
    for world in config.worlds:
        made: Any = make_world(world, horizon=config.horizon, **given_options)
        for kind in config.kinds:
            settings: dict[str, Any] = {"algorithm": "actor-critic", "agents": config.agents, "seeds": seeds} | KINDS[kind]
            if settings["algorithm"] == "actor-critic":
                given = {name: getattr(config, name) for name in ("batch_size", "combinations", "warm_up")}
                settings = {name: value for name, value in given.items() if value is not None} | settings
            if "single" in settings:
                settings.pop("warm_up", None)
            batch_size = Explore(world, **settings).batch_size
            updates = math.ceil(config.steps / (batch_size * config.agents * made.horizon))
            began = time.process_time()
            run = explore(made, updates=updates, log_every=math.ceil(updates / 2), live=False, **settings)
            if reason := run.summary.get("stopped_because"):
                raise SystemExit(f"{world}, {kind}: {reason}")
            entropy = np.asarray(run.metrics.entropy)
            half = entropy[:, np.searchsorted(run.updates, updates / 2)]
            steps = run.summary["environment_steps"] // config.seeds
            yield Trained(
                world, kind, config.agents, batch_size, config.steps, steps, seeds,
                final=tuple(run.summary["final"]["entropy"]),
                half=tuple(half.tolist()),
                cpu_seconds=time.process_time() - began,
            )  # fmt: skip


def table(found: dict[tuple[str, str], Trained], against: str) -> Iterator[str]:
    """The lines of a table in Markdown: the mean entropies, and how far each kind is ahead of one of them."""
    import numpy as np

    from farflung.runs.statistics import holm, mean_difference

    worlds, kinds = (list(dict.fromkeys(key[part] for key in found)) for part in (0, 1))
    others = [kind for kind in kinds if kind != against and all((world, against) in found for world in worlds)]
    leads: dict[tuple[str, str], str] = {}
    for kind in others:
        there = [world for world in worlds if (world, kind) in found]
        each = [mean_difference(*(np.array(found[world, which].final) for which in (kind, against))) for world in there]
        for world, lead, p_value in zip(there, each, holm([lead.p_value for lead in each]), strict=True):
            mark = "**" if p_value < 0.05 else ""
            leads[world, kind] = f"{mark}{lead.value:+.3f}{mark} ({lead.low:+.3f} to {lead.high:+.3f})"
    heads = ["world", *kinds, *[f"{kind} minus {against} (95% interval)" for kind in others]]
    yield "| " + " | ".join(heads) + " |"
    yield "| --- |" + " ---: |" * len(kinds) + " --- |" * len(others)
    for world in worlds:
        means = [f"{np.mean(found[world, kind].final):.3f}" if (world, kind) in found else "" for kind in kinds]
        yield "| " + " | ".join([f"`{world}`", *means, *[leads.get((world, kind), "") for kind in others]]) + " |"


def main(config: Teams) -> None:
    import numpy as np

    lines = [json.loads(line) for path in config.read for line in path.read_text(encoding="utf-8").splitlines()]
    everything = [Trained(**line) for line in lines]
    for each in train_all(config) if not lines else ():
        everything.append(each)
        print(
            f"{each.world}, {each.kind}: {np.mean(each.final):.3f} nats after {each.steps / 1e6:.2f} M steps, "
            f"{np.mean(each.half):.3f} after half; {each.cpu_seconds:.0f} CPU s",
            flush=True,
        )
        if config.out is not None:
            with config.out.open("a") as file:
                file.write(json.dumps(asdict(each)) + "\n")
    for agents, steps, num_seeds in sorted({(each.agents, each.asked_steps, len(each.seeds)) for each in everything}):
        found = {
            (each.world, each.kind): each
            for each in everything
            if (each.agents, each.asked_steps, len(each.seeds)) == (agents, steps, num_seeds)
        }
        sizes = ", ".join(str(size) for size in sorted({each.batch_size for each in found.values()}))
        print(
            f"\n{agents} agents, {steps / 1e6:g} M steps, batches of {sizes}, {num_seeds} seeds: entropy over the cells, nats. "
            "Intervals are Welch's; bold: decided at 5% after Holm's correction over the worlds."
        )
        print(*table(found, config.against), sep="\n")


if __name__ == "__main__":
    main(tyro.cli(Teams))
