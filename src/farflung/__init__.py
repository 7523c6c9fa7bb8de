"""Maximum state entropy exploration with parallel agents."""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from farflung.registration import register_worlds

if TYPE_CHECKING:
    from farflung.algorithms import PGPSE, FrankWolfe
    from farflung.ceilings import Ceiling, ceiling, infinite_trials_optimum
    from farflung.comparison import Comparison, compare
    from farflung.config import Ablate, Collect, Explore, OfflineLearning, Reproduce
    from farflung.datasets import (
        Dataset,
        collect,
        from_minari,
        load_dataset,
        relabel,
        save_dataset,
        to_d3rlpy,
        to_minari,
    )
    from farflung.entropy import Entropy, decompose, plug_in, shannon
    from farflung.environments import (
        MAZE,
        ROOM,
        ContinuousWorld,
        Environment,
        TabularMDP,
        from_gymnasium,
        from_kernel,
        gridworld,
        make_continuous,
        make_world,
        point_map,
        point_maze,
        tabular_mdp,
    )
    from farflung.experiments.ablation import ablate
    from farflung.experiments.explore import explore, resume
    from farflung.experiments.offline import learn_offline
    from farflung.experiments.reproduce import reproduce
    from farflung.films import film
    from farflung.hosting.vectors import VectorWorld
    from farflung.hosting.world import HostedWorld, hosted
    from farflung.metrics import Metrics, measure, occupancy
    from farflung.policies import TabularSoftmax, softmax_team, uniform_team
    from farflung.rollout import Trajectories, play
    from farflung.runs import Run, load_run, save_run
    from farflung.training import train

__all__ = [
    "MAZE",
    "PGPSE",
    "ROOM",
    "Ablate",
    "Ceiling",
    "Collect",
    "Comparison",
    "ContinuousWorld",
    "Dataset",
    "Entropy",
    "Environment",
    "Explore",
    "FrankWolfe",
    "HostedWorld",
    "Metrics",
    "OfflineLearning",
    "Reproduce",
    "Run",
    "TabularMDP",
    "TabularSoftmax",
    "Trajectories",
    "VectorWorld",
    "ablate",
    "ceiling",
    "collect",
    "compare",
    "decompose",
    "explore",
    "film",
    "from_gymnasium",
    "from_kernel",
    "from_minari",
    "gridworld",
    "hosted",
    "infinite_trials_optimum",
    "learn_offline",
    "load_dataset",
    "load_run",
    "make_continuous",
    "make_world",
    "measure",
    "occupancy",
    "play",
    "plug_in",
    "point_map",
    "point_maze",
    "relabel",
    "reproduce",
    "resume",
    "save_dataset",
    "save_run",
    "shannon",
    "softmax_team",
    "tabular_mdp",
    "to_d3rlpy",
    "to_minari",
    "train",
    "uniform_team",
]

_MODULES = {
    "algorithms": ("PGPSE", "FrankWolfe"),
    "ceilings": ("Ceiling", "ceiling", "infinite_trials_optimum"),
    "comparison": ("Comparison", "compare"),
    "config": ("Ablate", "Collect", "Explore", "OfflineLearning", "Reproduce"),
    "datasets": ("Dataset", "collect", "from_minari", "load_dataset", "relabel", "save_dataset", "to_d3rlpy", "to_minari"),
    "entropy": ("Entropy", "decompose", "plug_in", "shannon"),
    "environments": (
        "MAZE",
        "ROOM",
        "ContinuousWorld",
        "Environment",
        "TabularMDP",
        "from_gymnasium",
        "from_kernel",
        "gridworld",
        "make_continuous",
        "make_world",
        "point_map",
        "point_maze",
        "tabular_mdp",
    ),
    "experiments.ablation": ("ablate",),
    "experiments.explore": ("explore", "resume"),
    "experiments.offline": ("learn_offline",),
    "experiments.reproduce": ("reproduce",),
    "films": ("film",),
    "hosting.vectors": ("VectorWorld",),
    "hosting.world": ("HostedWorld", "hosted"),
    "metrics": ("Metrics", "measure", "occupancy"),
    "policies": ("TabularSoftmax", "softmax_team", "uniform_team"),
    "rollout": ("Trajectories", "play"),
    "runs": ("Run", "load_run", "save_run"),
    "training": ("train",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

register_worlds()


def __getattr__(name: str) -> Any:
    # Names are imported when they are first used, so that `farflung --help` need not wait for JAX.
    if name == "loggers":
        return importlib.import_module("farflung.loggers")
    if name not in _HOME:
        raise AttributeError(f"module 'farflung' has no attribute {name!r}")
    module = importlib.import_module(f"farflung.{_HOME[name]}")
    return getattr(module, name)


def __dir__() -> list[str]:
    return __all__


if "IPython" in sys.modules:
    from farflung.notebook import show_richly

    show_richly()
