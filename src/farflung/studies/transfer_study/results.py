"""What a transfer study has measured in one world, and its file."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from farflung.config.reading import read_arrays
from farflung.runs.files import archive

KINDS = {
    "team": "best of a team that explored together",
    "independent": "best of agents that explored independently",
    "single": "one policy that explored with as many trajectories",
    "archive": "best of an archive of MAP-Elites",
    "random": "best of as many random policies",
    "scratch": "PPO from scratch",
    "entropy": "PPO from scratch with an entropy bonus (as in RE3)",
    "curious": "PPO from scratch with curiosity (RND)",
}
"""The ways to begin, with what they are."""
EXPLORED = ("team", "independent", "single", "archive")
"""Those that spend steps on exploration before the first goal."""
SOLVED = 0.8
"""The success rate with which a goal counts as solved."""


class Learning(NamedTuple):
    """How one way to begin learns all goals, seed by seed."""

    steps: Float[np.ndarray, " record"]
    """Environment steps in total, for all goals, with exploration and the choice of agents."""
    success: Float[np.ndarray, "seed goal record"]
    """The share of episodes that reach the goal, averaged over a few records."""
    before: Float[np.ndarray, "seed goal"]
    """The success rate of the chosen agent before it learns, in other episodes than those by which it was chosen."""
    steps_per_goal: Float[np.ndarray, " record"]
    """Environment steps for one goal alone, without exploration."""

    @property
    def solved(self) -> Float[np.ndarray, "seed record"]:
        """The share of goals that are solved."""
        return (self.success >= SOLVED).mean(axis=1)

    @property
    def final(self) -> Float[np.ndarray, " seed"]:
        return self.solved[:, -1]

    @property
    def ever_solved(self) -> Float[np.ndarray, "seed goal"]:
        return (self.success >= SOLVED).any(axis=-1).astype(float)

    @property
    def steps_to_solve(self) -> Float[np.ndarray, "seed goal"]:
        """Steps for a goal until it is solved; all that there were, if it never is."""
        is_solved = self.success >= SOLVED
        first = np.where(is_solved.any(axis=-1), is_solved.argmax(axis=-1), len(self.steps) - 1)
        return self.steps_per_goal[first]

    def area(self, most: float) -> Float[np.ndarray, " seed"]:
        """The mean share of solved goals over all steps from 0 to `most`: 0 before the first record."""
        grid = np.linspace(0, most, 401)
        index = np.searchsorted(self.steps, grid, side="right") - 1
        return np.where(index >= 0, self.solved[:, index.clip(0)], 0.0).mean(axis=1)


class Diversity(NamedTuple):
    """How different the agents are among which one is chosen."""

    routes: Float[np.ndarray, " seed"]
    """Distinct routes to a goal, in as many episodes for every way to begin, averaged over all goals: 0 if none is reached."""
    coverage: Float[np.ndarray, " seed"]
    """The share of cells in which an agent ends, of those of MAP-Elites' grid that can be reached."""
    quality: Float[np.ndarray, " seed"]
    """The QD score: the sum over these cells of how reliably an agent ends there, from 0 to 1."""


@dataclass(frozen=True)
class WorldStudy:
    """The results of one world."""

    name: str
    goals: np.ndarray
    explored_steps: int
    """Environment steps of exploration, for one seed."""
    learning: Mapping[str, Learning]
    diversity: Mapping[str, Diversity]

    @property
    def most_steps(self) -> float:
        return float(min(each.steps[-1] for each in self.learning.values()))

    def saved_per_goal(self, kind: str = "scratch") -> Float[np.ndarray, "seed goal"]:
        """Steps that the team saves against another way to begin; its own steps are lost where it does not solve a goal."""
        team = self.learning["team"]
        return np.where(
            team.ever_solved > 0, self.learning[kind].steps_to_solve - team.steps_to_solve, -team.steps_per_goal[-1]
        )

    def goals_to_pay(self, kind: str = "scratch") -> float:
        """After how many goals exploration has paid for itself against another way to begin; infinite if never."""
        saved = float(self.saved_per_goal(kind).mean())
        return self.explored_steps / saved if saved > 0 else math.inf

    def saved(self, kind: str = "scratch") -> Float[np.ndarray, " seed"]:
        """Steps that the team saves over all goals, minus those of exploration."""
        return self.saved_per_goal(kind).sum(axis=1) - self.explored_steps

    def to_bytes(self) -> bytes:
        """A file from which `read_world` reads the results."""
        arrays: dict[str, Any] = {"goals": self.goals, "explored_steps": np.array(self.explored_steps)}
        for part, found in (("learning", self.learning), ("diversity", self.diversity)):
            arrays |= {f"{part}/{kind}/{name}": column for kind, own in found.items() for name, column in own._asdict().items()}
        return archive(arrays)


def read_world(name: str, content: bytes, num_seeds: int) -> WorldStudy:
    """The results that `WorldStudy.to_bytes` has written; raises ValueError if they are something else or of other seeds."""
    arrays = read_arrays(content)
    try:
        goals, explored_steps = arrays["goals"], int(arrays["explored_steps"])
        found: dict[str, dict[str, Any]] = {"learning": {}, "diversity": {}}
        for part, kind_of in (("learning", Learning), ("diversity", Diversity)):
            for kind in KINDS:
                names = {column: f"{part}/{kind}/{column}" for column in kind_of._fields}
                if names[kind_of._fields[-1]] in arrays:
                    found[part][kind] = kind_of(**{column: arrays[path] for column, path in names.items()})
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the results of {name} are not as farflung writes them: {error}") from None
    shapes = {own.success.shape == (num_seeds, len(goals), len(own.steps)) for own in found["learning"].values()}
    if shapes != {True} or not {"team", "scratch"} <= found["learning"].keys():
        raise ValueError(f"the results of {name} have other seeds or goals")
    return WorldStudy(name, goals, explored_steps, found["learning"], found["diversity"])
