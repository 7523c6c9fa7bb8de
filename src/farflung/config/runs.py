"""Settings of the commands that work with finished runs and with datasets."""

import re
from dataclasses import dataclass, replace
from typing import Annotated, Any

import tyro

from farflung.config.checks import check_name, check_positive, check_share, whole_number, whole_seeds
from farflung.config.options import DATA_FORMATS, DERIVED, METRICS, PAPER_SEEDS, Derived, default_is, one_of

RunPath = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
WorldAgain = Annotated[str | None, default_is("the world that the run names", "MODULE:NAME")]


@dataclass(frozen=True)
class Resume:
    """Continue an interrupted training with its original settings.

    RUN is the directory that `farflung explore` was writing. On the same kind of device, the result is bit for bit the same as
    without the interruption.
    """

    run: RunPath
    """Directory of a run."""
    world: WorldAgain = None
    """Name the world again if its module lies in the current folder and the run came from you."""


@dataclass(frozen=True)
class Collect:
    """Play episodes with a trained team and save them as a dataset for offline RL.

    RUN is a directory that `farflung explore` has written. The agents take turns, one episode each.
    """

    run: RunPath
    """Directory of a run."""
    world: WorldAgain = None
    """Name the world again if its module lies in the current folder and the run came from you."""
    episodes: int = 1000
    """Episodes in the dataset."""
    dataset: Annotated[str | None, default_is("farflung/NAME-v0, with the name of the run's directory", "ID")] = None
    """Id of the dataset in Minari."""
    format: Annotated[str, one_of(DATA_FORMATS)] = "minari"
    """A Minari dataset of HDF5 or of Arrow files, or one file: NumPy's npz, Parquet, or HDF5 for d3rlpy's MDPDataset."""
    seed: Annotated[int | None, default_is("the one with the median final entropy")] = None
    """Seed of the run whose trained team plays."""
    random_seed: int = 0
    """Random seed for actions and transitions; the same seed gives the same data."""
    random: bool = False
    """Play random actions instead of the team's, for comparison."""
    goal: Annotated[tuple[float, ...], default_is("none: the world's own rewards, if it has any", "NUMBER ...")] = ()
    """Goal with reward 1 at which episodes end: row and column in a map, an observation, or features such as x and y."""
    goal_radius: Annotated[float | None, default_is("the size of a step in a point maze", "FLOAT")] = None
    """Distance at which a state that is a vector counts as the goal."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "episodes", whole_number("episodes", self.episodes))
        check_name("format", self.format, DATA_FORMATS)
        if self.dataset is not None:
            check_dataset_id(self.dataset)
        whole_seeds([self.random_seed] if self.seed is None else [self.random_seed, self.seed])
        if self.goal_radius is not None:
            check_positive("goal_radius", self.goal_radius)
            if not self.goal:
                raise ValueError("goal_radius needs a goal: give one with --goal")


_OFFLINE_DEFAULTS: dict[bool, dict[str, Any]] = {
    False: {"batches": 100, "batch_size": 20, "learning_rate": 0.1},
    True: {"batches": 2000, "batch_size": 64, "learning_rate": 0.003, "goals": 36},
}
"""Defaults of `farflung offline` for tables, as in the paper, and (True) for networks, where states are vectors."""


@dataclass(frozen=True)
class OfflineLearning:
    """Learn from a dataset to reach every state, and report which states are reached.

    DATASET is the id of a Minari dataset, or an .npz or .parquet file that `farflung collect` has written. With finitely many
    states the method is tabular Q-learning; in a point maze it is implicit Q-learning with networks, for goals spread over the
    maze.
    """

    dataset: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATASET")]
    """Id of a Minari dataset, or a file."""
    batches: Annotated[Derived[int], default_is("100; for networks 2000")] = DERIVED
    """Minibatches to learn from, for each goal."""
    batch_size: Annotated[Derived[int], default_is("20; for networks 64")] = DERIVED
    """Transitions in a minibatch, drawn with replacement."""
    learning_rate: Annotated[Derived[float], default_is("0.1; for networks 0.003", "FLOAT")] = DERIVED
    """Step size of tabular Q-learning, or the initial step size of Adam for networks, which decays to 0."""
    discount: float = 0.99
    """Discount factor."""
    attempts: int = 10
    """Episodes in which the greedy policy tries to reach its goal."""
    max_steps: int = 200
    """Actions in an episode in which the greedy policy tries to reach its goal."""
    goals: Annotated[Derived[int], default_is("36")] = DERIVED
    """Approximate number of goals in a point maze, at the centres of equal grid cells."""
    goal_radius: Annotated[float | None, default_is("half the size of a grid cell between goals", "FLOAT")] = None
    """Distance at which a goal in a point maze counts as reached."""
    seeds: tuple[int, ...] = PAPER_SEEDS
    """Random seeds, with one independent repetition of all learning each."""

    def __post_init__(self) -> None:
        for name in ("batches", "batch_size", "attempts", "max_steps", "goals"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, whole_number(name, getattr(self, name)))
        for name in ("learning_rate", "goal_radius"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        check_share("discount", self.discount)
        object.__setattr__(self, "seeds", whole_seeds(self.seeds))

    def resolved(self, *, has_vectors: bool) -> "OfflineLearning":
        """The config for a dataset whose states are vectors or not, filled in with the defaults for that kind."""
        if not has_vectors:
            for name in ("goals", "goal_radius"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} is for mazes: the dataset has finitely many states, of which each is a goal")
        return replace(
            self, **{name: value for name, value in _OFFLINE_DEFAULTS[has_vectors].items() if getattr(self, name) is None}
        )


@dataclass(frozen=True)
class Compare:
    """Compare runs over all their worlds and seeds, with the estimates and intervals of rliable.

    RUN is a directory that `farflung explore` has written, or NAME=DIRECTORY; runs of one name are one algorithm in several
    worlds. Without names, runs with the same settings are one algorithm.
    """

    runs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN...", help_behavior_hint="")]
    """Directories of runs, all as NAME=DIRECTORY or none."""
    metric: Annotated[str, one_of(METRICS)] = "normalized_entropy"
    """Score of a run, averaged over the last 1% of the updates; higher is better."""

    def __post_init__(self) -> None:
        check_name("metric", self.metric, METRICS)
        if len(self.runs) < 2:
            raise ValueError(f"at least 2 runs are needed for a comparison, not {len(self.runs)}")


@dataclass(frozen=True)
class Film:
    """Film a trained team: all agents move over the map, and the cells that they have visited light up.

    RUN is a directory that `farflung explore` has written, in a world that is a map or whose states are vectors.
    """

    run: RunPath
    """Directory of a run."""
    world: WorldAgain = None
    """Name the world again if its module lies in the current folder and the run came from you."""
    element: int = 0
    """Index of the batch element to show, from 0 on."""
    seconds: float = 8.0
    """Maximum length of the film in seconds."""
    fps: int = 12
    """Maximum number of frames per second; a film has at most one frame per step of an episode."""

    def __post_init__(self) -> None:
        if not isinstance(self.element, int) or self.element < 0:
            raise ValueError(f"element must be a whole number from 0 on, not {self.element!r}")
        check_positive("seconds", self.seconds)
        object.__setattr__(self, "fps", whole_number("fps", self.fps))


def check_dataset_id(name: str) -> None:
    """Raises ValueError unless Minari accepts the name as the id of a dataset."""
    if not re.fullmatch(r"([-\w]{2,}/)*[-\w]+-v\d+", name):
        raise ValueError(f"a dataset's id looks like farflung/maze-v0 or maze-v0, not {name!r}")
