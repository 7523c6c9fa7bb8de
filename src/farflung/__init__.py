"""Maximum state entropy exploration with parallel agents."""

import ast
import contextlib
import importlib
import inspect
import sys
import types
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium

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

# The imports above are for type checkers. At run time a name is imported when it is first used, so that `farflung --help` need
# not wait for JAX; the list of public names is read from these imports, so that it exists once.
_HOME = {
    alias.name: node.module
    for node in ast.walk(ast.parse(inspect.getsource(sys.modules[__name__])))
    if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("farflung.")
    for alias in node.names
}
__all__ = sorted(_HOME)

_AS_GYMNASIUM = "farflung.worlds.as_gymnasium"
_EPISODE_STEPS = {"Room": 8, "Maze": 10, "Grid": None}


def __getattr__(name: str) -> Any:
    if name == "loggers":
        return importlib.import_module("farflung.loggers")
    if name not in _HOME:
        raise AttributeError(f"module 'farflung' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__


def _register_worlds() -> None:
    """Makes farflung's worlds known to Gymnasium; JAX is imported when one of them is made."""
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


def _alias(old: str, new: str) -> None:
    """Lets datasets that were written before the modules moved still recover their environment."""
    module = types.ModuleType(old)
    module.__getattr__ = lambda name: getattr(importlib.import_module(new), name)  # type: ignore[method-assign]
    sys.modules.setdefault(old, module)


def _show_richly() -> None:
    """Registers the HTML of worlds, teams and runs with IPython, if this runs in IPython; JAX is imported when one is shown."""
    find_shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    if (shell := find_shell()) is not None:
        formatter = shell.display_formatter.formatters["text/html"]
        formatter.for_type_by_name("farflung.worlds.world", "World", partial(_html, "world_html"))
        formatter.for_type_by_name("farflung.policies.tabular", "TabularSoftmax", partial(_html, "team_html"))
        formatter.for_type_by_name("farflung.runs.run", "Run", partial(_html, "run_html"))


def _html(function: str, thing: Any) -> str | None:
    with contextlib.suppress(Exception):  # such as for a pytree of shapes: IPython then shows plain text
        return getattr(importlib.import_module("farflung.figures.notebook"), function)(thing)
    return None


_register_worlds()
_alias("farflung.environments.playable", f"{_AS_GYMNASIUM}.grid")
_alias("farflung.environments.playable_vector", f"{_AS_GYMNASIUM}.grid_vector")
_alias("farflung.environments.playable_point", f"{_AS_GYMNASIUM}.point")
_show_richly()
