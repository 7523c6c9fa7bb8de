"""What the commands about datasets can be asked for."""

import re
from dataclasses import dataclass, replace
from typing import Annotated, Any

import tyro

from farflung.config.checks import check_name, check_positive, check_share, whole_number, whole_seeds
from farflung.config.options import DATA_FORMATS, PAPER_SEEDS, UNSET, Resolved, default_is, one_of


@dataclass(frozen=True)
class Collect:
    """Let a trained team play, and keep its episodes as a dataset for offline RL.

    RUN is a directory that `farflung explore` has written. The episodes are dealt to the agents in turn.
    """

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """The directory of a run."""
    episodes: int = 1000
    """Episodes in the dataset."""
    dataset: Annotated[str | None, default_is("farflung/, the directory's name, -v0", "ID")] = None
    """Minari's id of the dataset."""
    format: Annotated[str, one_of(DATA_FORMATS)] = "minari"
    """A Minari dataset, as HDF5 or as Arrow files, or one file: NumPy's npz, Parquet, or the HDF5 of d3rlpy's MDPDataset."""
    seed: Annotated[int | None, default_is("the one whose final entropy is the median")] = None
    """Which of the run's trained teams plays."""
    random_seed: int = 0
    """For the noise of actions and world: the same seed gives the same data."""
    random: bool = False
    """Let random actions play instead of the team, for comparison."""
    goal: Annotated[tuple[float, ...], default_is("the world's own rewards, if it has any", "NUMBER ...")] = ()
    """Row and column of a goal, an observation, or where states are vectors its x and y (or what else is to be covered): to
    arrive there pays 1 and ends the episode."""
    goal_radius: Annotated[float | None, default_is("the size of a step in a point maze", "FLOAT")] = None
    """How near a state that is a vector must come to the goal."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "episodes", whole_number("episodes", self.episodes))
        check_name("format", self.format, DATA_FORMATS)
        if self.dataset is not None:
            check_dataset_id(self.dataset)
        for seed in (self.random_seed, *(() if self.seed is None else (self.seed,))):
            whole_seeds([seed])
        if self.goal_radius is not None:
            check_positive("goal_radius", self.goal_radius)
        if self.goal_radius is not None and not self.goal:
            raise ValueError("goal_radius says how near to come to a goal: give one with --goal")


_LEARNING: dict[bool, dict[str, Any]] = {
    False: {"batches": 100, "batch_size": 20, "learning_rate": 0.1},
    True: {"batches": 2000, "batch_size": 64, "learning_rate": 0.003, "goals": 36},
}
"""What `offline` learns with if nothing else is asked for: tables, as in the paper, and networks, where states are vectors."""


@dataclass(frozen=True)
class OfflineLearning:
    """Learn from a dataset to reach every state, and see which ones are reached.

    DATASET is Minari's id of a dataset, or an .npz or .parquet file that `farflung collect` has written. With finitely many
    states, it is tabular Q-learning; in a point maze, implicit Q-learning with networks, for goals spread over the maze.
    """

    dataset: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATASET")]
    """Minari's id of a dataset, or a file."""
    batches: Annotated[Resolved[int], default_is("100; for networks 2000")] = UNSET
    """Minibatches that are learnt from, for each goal."""
    batch_size: Annotated[Resolved[int], default_is("20; for networks 64")] = UNSET
    """Transitions in a minibatch, drawn with replacement."""
    learning_rate: Annotated[Resolved[float], default_is("0.1; for networks 0.003", "FLOAT")] = UNSET
    """Step size of Q-learning, or of the networks' Adam at first: it falls to 0."""
    discount: float = 0.99
    """Discount factor."""
    attempts: int = 10
    """Episodes in which the greedy policy tries to reach its goal."""
    max_steps: int = 200
    """Actions in such an episode."""
    goals: Annotated[Resolved[int], default_is("36")] = UNSET
    """In a maze: about how many goals there are, in the middle of equal cells."""
    goal_radius: Annotated[float | None, default_is("half the size of such a cell", "FLOAT")] = None
    """In a maze: how near to come to a goal."""
    seeds: tuple[int, ...] = PAPER_SEEDS
    """One independent repetition of all learning each."""

    def __post_init__(self) -> None:
        for name in ("batches", "batch_size", "attempts", "max_steps", "goals"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, whole_number(name, getattr(self, name)))
        for name in ("learning_rate", "goal_radius"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        check_share("discount", self.discount)
        object.__setattr__(self, "seeds", whole_seeds(self.seeds))

    def settled(self, *, has_vectors: bool) -> "OfflineLearning":
        """The same, with what was left open put in its place."""
        if not has_vectors:
            for name in ("goals", "goal_radius"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} is for mazes: the dataset has finitely many states, of which each is a goal")
        left_open = {name: value for name, value in _LEARNING[has_vectors].items() if getattr(self, name) is None}
        return replace(self, **left_open)


def check_dataset_id(name: str) -> None:
    """Raises ValueError unless Minari takes this as the id of a dataset."""
    if not re.fullmatch(r"([-\w]{2,}/)*[-\w]+-v\d+", name):
        raise ValueError(f"a dataset's id looks like farflung/maze-v0 or maze-v0, not {name!r}")
