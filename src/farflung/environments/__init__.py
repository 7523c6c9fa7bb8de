"""The worlds that a team can explore."""

from farflung.environments.environment import Environment, Outline
from farflung.environments.gridworld import MAZE, ROOM, gridworld
from farflung.environments.gymnasium import NoTableError, from_gymnasium
from farflung.environments.named import World, find_world, make_world
from farflung.environments.tabular import TabularMDP, from_kernel, tabular_mdp

__all__ = [
    "MAZE",
    "ROOM",
    "Environment",
    "NoTableError",
    "Outline",
    "TabularMDP",
    "World",
    "find_world",
    "from_gymnasium",
    "from_kernel",
    "gridworld",
    "make_world",
    "tabular_mdp",
]
