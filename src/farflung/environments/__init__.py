"""The worlds that a team can explore."""

from farflung.environments.classic import MountainCar, Pendulum, mountain_car, pendulum
from farflung.environments.continuous import ContinuousWorld
from farflung.environments.environment import Environment, Outline
from farflung.environments.gridworld import MAZE, ROOM, gridworld
from farflung.environments.gymnasium import NoTableError, from_gymnasium
from farflung.environments.named import OfVectors, World, find_world, make_world
from farflung.environments.named_continuous import make_continuous
from farflung.environments.point_maze import PointMaze, point_map, point_maze
from farflung.environments.tabular import TabularMDP, from_kernel, tabular_mdp
from farflung.projection import Bounds, Choices, Projection

__all__ = [
    "MAZE",
    "ROOM",
    "Bounds",
    "Choices",
    "ContinuousWorld",
    "Environment",
    "MountainCar",
    "NoTableError",
    "OfVectors",
    "Outline",
    "Pendulum",
    "PointMaze",
    "Projection",
    "TabularMDP",
    "World",
    "find_world",
    "from_gymnasium",
    "from_kernel",
    "gridworld",
    "make_continuous",
    "make_world",
    "mountain_car",
    "pendulum",
    "point_map",
    "point_maze",
    "tabular_mdp",
]
