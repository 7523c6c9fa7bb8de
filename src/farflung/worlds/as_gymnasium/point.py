"""A point in a maze as a Gymnasium environment."""

from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Float

from farflung.config.checks import check_positive
from farflung.worlds.as_gymnasium.rendering import DrawnEnv, Picture, draw_plane, draw_points
from farflung.worlds.named_vectors import make_vector_world
from farflung.worlds.point_maze import Numbers, PointMaze
from farflung.worlds.walls import is_blocked, wall_table

Position = Float[np.ndarray, "2"]


class PointMazeEnv(DrawnEnv):
    """A point that moves in a plane with walls: a world of `farflung.worlds.make_vector_world`.

    An observation is the point's position; an action is the fraction of a step to move along each axis. Coming within
    `goal_radius` of the goal gives reward 1 and ends the episode; all other rewards are 0.

    Args:
        world: the name of a point maze, or its recipe.
        goal: x and y of the goal.
        goal_radius: distance at which the goal is reached (default: the size of a step).
        render_mode: `human` (a window) or `rgb_array`.
    """

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 15}  # noqa: RUF012
    state: Position

    def __init__(
        self,
        world: str = "point-gap",
        *,
        goal: Numbers | None = None,
        goal_radius: float | None = None,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        made = make_vector_world(world)
        if not isinstance(made, PointMaze):
            raise ValueError(f"{world} is not a point maze: choose one, such as point-gap")
        if goal_radius is not None:
            check_positive("goal_radius", goal_radius)
        self.world = made
        self.goal = None if goal is None else place_in(made, goal)
        self.goal_radius = made.step_size if goal_radius is None else float(goal_radius)
        self._low, self._high = np.array(made.low, np.float32), np.array(made.high, np.float32)
        self._walls, self._starts = wall_table(made.walls), np.array(made.starts)
        self._background = draw_plane(made.low, made.high, made.walls)
        self.observation_space = gymnasium.spaces.Box(self._low, self._high)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Position, dict[str, Any]]:
        super().reset(seed=seed)
        left, right, bottom, top = self.np_random.choice(self._starts)
        self.state = self.np_random.uniform((left, bottom), (right, top)).astype(np.float32)
        self._show()
        return self.state.copy(), {}

    def step(self, action: Numbers) -> tuple[Position, float, bool, bool, dict[str, Any]]:
        move = np.asarray(action, np.float32)
        if move.shape != (2,) or not np.isfinite(move).all():
            raise ValueError(f"an action is two finite numbers, not {action!r}")
        there = (self.state + np.float32(self.world.step_size) * move.clip(-1, 1)).clip(self._low, self._high)
        if not is_blocked(self._walls, self.state, there):
            self.state = there
        self._show()
        is_reached = self.goal is not None and bool(np.hypot(*(self.state - self.goal)) <= self.goal_radius)
        return self.state.copy(), float(is_reached), is_reached, False, {}

    def _picture(self) -> Picture:
        goal = None if self.goal is None else self.goal.tolist()
        return draw_points(self._background, self.world.low, self.world.high, self.state.tolist(), goal, self.goal_radius)


def place_in(world: PointMaze, goal: Numbers) -> Position:
    """The checked x and y of a goal."""
    try:
        place = np.asarray(goal, np.float32)
    except (TypeError, ValueError):
        place = np.empty(0, np.float32)
    if place.shape != (2,) or not ((world.low <= place) & (place <= world.high)).all():
        raise ValueError(f"goal is an x and a y in {world.low} to {world.high}, not {goal!r}")
    if is_blocked(wall_table(world.walls), place, place):
        raise ValueError(f"the goal {goal!r} is in a wall")
    return place
