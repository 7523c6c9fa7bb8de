"""What the commands that make many trainings can be asked for."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from farflung.config.checks import check_name, whole_number
from farflung.config.options import CREDITS, OPTIMIZERS, PAPER_SEEDS, PAPER_WORLDS, SCHEDULES, one_of


def check_suite(config: Any, counts: Sequence[str]) -> None:
    """Checks the worlds, team sizes and counts of a config."""
    for name in ("worlds", "agents"):
        values = tuple(getattr(config, name))
        object.__setattr__(config, name, values)
        if not values or len(set(values)) < len(values):
            raise ValueError(f"{name} must name at least one, and none twice")
    for world in config.worlds:
        check_name("world", world, PAPER_WORLDS)
    for number in config.agents:
        whole_number("agents", number)
    for name in counts:
        whole_number(name, getattr(config, name))


def first_seeds(number: int) -> tuple[int, ...]:
    """The paper's seeds first, then others."""
    others = (seed for seed in range(number + len(PAPER_SEEDS)) if seed not in PAPER_SEEDS)
    return tuple(itertools.islice(itertools.chain(PAPER_SEEDS, others), number))


@dataclass(frozen=True)
class Reproduce:
    """Rerun every experiment of the paper and write one page with its figures and what became of its claims.

    Started again, it goes on where it was stopped.
    """

    worlds: Annotated[tuple[str, ...], one_of(PAPER_WORLDS, is_repeated=True)] = PAPER_WORLDS
    """Which of the paper's worlds."""
    agents: tuple[int, ...] = (2, 4, 6)
    """Sizes of the team (m)."""
    seeds: int = 5
    """How many: the paper's 0, 1, 2, 42, 133 first, then others."""
    updates: int = 10_000
    """Policy updates of each training (N)."""
    datasets: int = 10
    """Datasets that are collected and learnt from for each seed, for means that hang less on luck; the paper has one."""
    schedule: Annotated[str, one_of((*SCHEDULES, "both"))] = "both"
    """The learning rate: a constant 0.15, as in the paper's code; 0.1 with decay 0.999, as in its text; or both."""
    quick: bool = False
    """A preview: 2 and 6 agents, 3 seeds, 500 updates, 3 datasets, the code's learning rate only."""

    def __post_init__(self) -> None:
        if self.quick:
            for name, value in (("agents", (2, 6)), ("seeds", 3), ("updates", 500), ("datasets", 3), ("schedule", "code")):
                object.__setattr__(self, name, value)
        check_suite(self, ("seeds", "updates", "datasets"))
        check_name("schedule", self.schedule, (*SCHEDULES, "both"))

    @property
    def seed_values(self) -> tuple[int, ...]:
        return first_seeds(self.seeds)

    @property
    def schedules(self) -> tuple[str, ...]:
        return tuple(SCHEDULES) if self.schedule == "both" else (self.schedule,)


@dataclass(frozen=True)
class Ablate:
    """Train every credit with every optimiser, leave out each part of the defaults in turn, and write one page on what helps.

    Started again, it goes on where it was stopped.
    """

    worlds: Annotated[tuple[str, ...], one_of(PAPER_WORLDS, is_repeated=True)] = PAPER_WORLDS
    """Which of the paper's worlds."""
    agents: tuple[int, ...] = (2, 6)
    """Sizes of the team (m)."""
    credits: Annotated[tuple[str, ...], one_of(CREDITS, is_repeated=True)] = CREDITS
    """Which credits are trained."""
    optimizers: Annotated[tuple[str, ...], one_of(OPTIMIZERS, is_repeated=True)] = OPTIMIZERS
    """Which optimisers each of them is trained with."""
    seeds: int = 10
    """How many: the paper's 0, 1, 2, 42, 133 first, then others."""
    updates: int = 1000
    """Policy updates of each training but the paper's own (N)."""
    paper_updates: int = 10_000
    """Policy updates of the paper's preset, whose final entropy the others have to reach."""
    batches: int = 200
    """Batches that the variance of a gradient is estimated from."""
    quick: bool = False
    """A preview: Room-stoc and Maze-det, 6 agents, 3 seeds, 200 updates, 2,000 of the paper's, 50 batches."""

    def __post_init__(self) -> None:
        if self.quick:
            preview = {"worlds": PAPER_WORLDS[1:3], "agents": (6,), "seeds": 3, "updates": 200}
            for name, value in (preview | {"paper_updates": 2000, "batches": 50}).items():
                object.__setattr__(self, name, value)
        check_suite(self, ("seeds", "updates", "paper_updates", "batches"))
        for name, known in (("credits", CREDITS), ("optimizers", OPTIMIZERS)):
            for each in getattr(self, name):
                check_name(name.removesuffix("s"), each, known)
            object.__setattr__(self, name, tuple(each for each in known if each in getattr(self, name)))
            if not getattr(self, name):
                raise ValueError(f"at least one of the {name} is needed: {', '.join(known)}")
        if self.batches < 2:
            raise ValueError("batches must be at least 2: one batch has no variance")

    @property
    def seed_values(self) -> tuple[int, ...]:
        return first_seeds(self.seeds)
