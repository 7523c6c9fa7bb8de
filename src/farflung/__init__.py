"""Maximum state entropy exploration with parallel agents."""

import importlib.util
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from farflung import loggers as loggers
    from farflung.algorithms import Algorithm as Algorithm
    from farflung.algorithms.frank_wolfe import FrankWolfe as FrankWolfe
    from farflung.algorithms.pgpse import PGPSE as PGPSE
    from farflung.bounds.ceilings import Ceiling as Ceiling
    from farflung.bounds.ceilings import ceiling as ceiling
    from farflung.bounds.ceilings import infinite_trials_optimum as infinite_trials_optimum
    from farflung.config import Ablate as Ablate
    from farflung.config import Collect as Collect
    from farflung.config import Explore as Explore
    from farflung.config import OfflineLearning as OfflineLearning
    from farflung.config import Reproduce as Reproduce
    from farflung.data import Dataset as Dataset
    from farflung.data import collect as collect
    from farflung.data import from_minari as from_minari
    from farflung.data import load_dataset as load_dataset
    from farflung.data import relabel as relabel
    from farflung.data import save_dataset as save_dataset
    from farflung.data import to_d3rlpy as to_d3rlpy
    from farflung.data import to_minari as to_minari
    from farflung.data.offline import learn_offline as learn_offline
    from farflung.entropy.counts import Entropy as Entropy
    from farflung.entropy.counts import decompose as decompose
    from farflung.entropy.counts import plug_in as plug_in
    from farflung.entropy.counts import shannon as shannon
    from farflung.figures.film import film as film
    from farflung.policies import NeuralPolicy as NeuralPolicy
    from farflung.policies import TabularSoftmax as TabularSoftmax
    from farflung.policies import neural_team as neural_team
    from farflung.policies import softmax_team as softmax_team
    from farflung.policies import uniform_team as uniform_team
    from farflung.policies.rollout import Trajectories as Trajectories
    from farflung.policies.rollout import play as play
    from farflung.runs.run import Run as Run
    from farflung.runs.run import load_run as load_run
    from farflung.runs.run import save_run as save_run
    from farflung.studies.ablate.experiment import ablate as ablate
    from farflung.studies.compare.comparison import Comparison as Comparison
    from farflung.studies.compare.comparison import compare as compare
    from farflung.studies.explore import explore as explore
    from farflung.studies.explore import resume as resume
    from farflung.studies.reproduce.experiment import reproduce as reproduce
    from farflung.training.loop import train as train
    from farflung.training.metrics import Metrics as Metrics
    from farflung.training.metrics import measure as measure
    from farflung.training.metrics import occupancy as occupancy
    from farflung.worlds.gridworld import MAZE as MAZE
    from farflung.worlds.gridworld import ROOM as ROOM
    from farflung.worlds.gridworld import gridworld as gridworld
    from farflung.worlds.gymnasium_table import from_gymnasium as from_gymnasium
    from farflung.worlds.hosted.tables import HostedTable as HostedTable
    from farflung.worlds.hosted.tables import hosted as hosted
    from farflung.worlds.hosted.vectors import HostedVectors as HostedVectors
    from farflung.worlds.jax_world import from_jax as from_jax
    from farflung.worlds.named import make_tabular_world as make_tabular_world
    from farflung.worlds.named import make_world as make_world
    from farflung.worlds.named_vectors import make_vector_world as make_vector_world
    from farflung.worlds.point_maze import point_map as point_map
    from farflung.worlds.point_maze import point_maze as point_maze
    from farflung.worlds.projection import Box as Box
    from farflung.worlds.projection import Discrete as Discrete
    from farflung.worlds.tabular import TabularMDP as TabularMDP
    from farflung.worlds.tabular import from_kernel as from_kernel
    from farflung.worlds.tabular import tabular_mdp as tabular_mdp
    from farflung.worlds.vectors import VectorWorld as VectorWorld
    from farflung.worlds.world import World as World

_MODULES = {
    "algorithms": ("Algorithm",),
    "algorithms.frank_wolfe": ("FrankWolfe",),
    "algorithms.pgpse": ("PGPSE",),
    "bounds.ceilings": ("Ceiling", "ceiling", "infinite_trials_optimum"),
    "config": ("Ablate", "Collect", "Explore", "OfflineLearning", "Reproduce"),
    "data": ("Dataset", "collect", "from_minari", "load_dataset", "relabel", "save_dataset", "to_d3rlpy", "to_minari"),
    "data.offline": ("learn_offline",),
    "entropy.counts": ("Entropy", "decompose", "plug_in", "shannon"),
    "figures.film": ("film",),
    "policies": ("NeuralPolicy", "TabularSoftmax", "neural_team", "softmax_team", "uniform_team"),
    "policies.rollout": ("Trajectories", "play"),
    "runs.run": ("Run", "load_run", "save_run"),
    "studies.ablate.experiment": ("ablate",),
    "studies.compare.comparison": ("Comparison", "compare"),
    "studies.explore": ("explore", "resume"),
    "studies.reproduce.experiment": ("reproduce",),
    "training.loop": ("train",),
    "training.metrics": ("Metrics", "measure", "occupancy"),
    "worlds.gridworld": ("MAZE", "ROOM", "gridworld"),
    "worlds.gymnasium_table": ("from_gymnasium",),
    "worlds.hosted.tables": ("HostedTable", "hosted"),
    "worlds.hosted.vectors": ("HostedVectors",),
    "worlds.jax_world": ("from_jax",),
    "worlds.named": ("make_tabular_world", "make_world"),
    "worlds.named_vectors": ("make_vector_world",),
    "worlds.point_maze": ("point_map", "point_maze"),
    "worlds.projection": ("Box", "Discrete"),
    "worlds.tabular": ("TabularMDP", "from_kernel", "tabular_mdp"),
    "worlds.vectors": ("VectorWorld",),
    "worlds.world": ("World",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_HOME)

_AS_GYMNASIUM = "farflung.worlds.as_gymnasium"
_EPISODE_STEPS = {"Room": 8, "Maze": 10, "Grid": None}


def __getattr__(name: str) -> Any:
    # Names are imported when they are first used, so that `farflung --help` need not wait for JAX.
    if name == "loggers":
        return importlib.import_module("farflung.loggers")
    if name not in _HOME:
        raise AttributeError(f"module 'farflung' has no attribute {name!r}")
    return getattr(importlib.import_module(f"farflung.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__


def _register_worlds() -> None:
    """Makes farflung's worlds known to Gymnasium; JAX is imported when one of them is made."""
    import gymnasium

    for name, max_episode_steps in _EPISODE_STEPS.items():
        if f"farflung/{name}-v0" not in gymnasium.registry:
            gymnasium.register(
                f"farflung/{name}-v0",
                entry_point=f"{_AS_GYMNASIUM}.grid:{name}Env",
                vector_entry_point=f"{_AS_GYMNASIUM}.grid_vector:{name}VectorEnv",
                max_episode_steps=max_episode_steps,
            )
    if "farflung/PointMaze-v0" not in gymnasium.registry:
        gymnasium.register("farflung/PointMaze-v0", entry_point=f"{_AS_GYMNASIUM}.point:PointMazeEnv")


class _OnImportOfGymnasium:
    """Registers farflung's worlds as soon as Gymnasium is imported, for which `farflung --help` need not wait."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec: Any = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def execute_and_register(module: types.ModuleType) -> None:
            execute(module)
            _register_worlds()

        spec.loader.exec_module = execute_and_register
        return spec


def _alias(old: str, new: str) -> None:
    """Lets datasets that were written before the modules moved still recover their environment."""
    module = types.ModuleType(old)
    module.__getattr__ = lambda name: getattr(importlib.import_module(new), name)  # type: ignore[method-assign]
    sys.modules.setdefault(old, module)


if "gymnasium" in sys.modules:
    _register_worlds()
else:
    sys.meta_path.insert(0, _OnImportOfGymnasium())
_alias("farflung.environments.playable", f"{_AS_GYMNASIUM}.grid")
_alias("farflung.environments.playable_vector", f"{_AS_GYMNASIUM}.grid_vector")
_alias("farflung.environments.playable_point", f"{_AS_GYMNASIUM}.point")

if "IPython" in sys.modules:
    from farflung.figures.notebook import show_richly

    show_richly()
