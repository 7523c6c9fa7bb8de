"""Draws a map with an agent: as text, as a picture, in a window."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Float, UInt8

from farflung.config.checks import check_name
from farflung.worlds.gridworld import GOAL, START, WALL, Cell
from farflung.worlds.walls import Pair, Rectangle

_AGENT_MARK = "@"
_MOST_PIXELS_PER_CELL, _MOST_PIXELS = 48, 960
_LEAST_PIXELS_WITH_LINES = 8
_PLANE_PIXELS, _LEAST_WALL_PIXELS, _AGENT_PIXELS = 480, 4, 7
_WALL, _FREE, _LINE = (95, 99, 104), (255, 255, 255), (217, 217, 217)
_START, _GOAL, _AGENT = (232, 89, 12), (47, 143, 91), (37, 99, 168)

Picture = UInt8[np.ndarray, "height width 3"]


def draw_text(cells: np.ndarray, agent: Cell) -> str:
    """The map as text, with the agent as `@`.

    >>> print(draw_text(np.array([list("S.#"), list("..G")]), (1, 0)))
    S.#
    @.G
    """
    marked = cells.copy()
    marked[agent] = _AGENT_MARK
    return "\n".join("".join(line) for line in marked)


def draw_map(cells: np.ndarray) -> Picture:
    """The map without an agent: walls grey, free cells white, starts with an orange ring, goals green."""
    size = max(1, min(_MOST_PIXELS_PER_CELL, _MOST_PIXELS // max(cells.shape)))
    colours = np.where((cells == WALL)[..., None], _WALL, _FREE).astype(np.uint8)
    picture = colours.repeat(size, axis=0).repeat(size, axis=1)
    if size >= _LEAST_PIXELS_WITH_LINES:
        picture[::size] = picture[-1] = _LINE
        picture[:, ::size] = picture[:, -1:] = _LINE
    down, right = np.abs(_from_centre(size))
    radius = np.hypot(down, right)
    for row, column in np.argwhere(cells == START).tolist():
        _paint(picture, size, (row, column), np.minimum(0.42 - radius, radius - 0.34), _START)
    for row, column in np.argwhere(cells == GOAL).tolist():
        _paint(picture, size, (row, column), 0.42 - np.maximum(down, right), _GOAL)
    return picture


def draw_agent(background: Picture, cells: np.ndarray, agent: Cell) -> Picture:
    """The map's picture with a blue disc where the agent is."""
    size = background.shape[0] // cells.shape[0]
    picture = background.copy()
    radius = max(0.27, 1.5 / size)  # at least 1.5 pixels, so that the agent is visible on any map
    _paint(picture, size, agent, radius - np.hypot(*_from_centre(size)), _AGENT)
    return picture


def draw_plane(low: Pair, high: Pair, walls: Sequence[Rectangle]) -> Picture:
    """A rectangle of the plane with y upwards; walls are grey and at least a few pixels thick."""
    (left, bottom), (right, top) = low, high
    scale = _PLANE_PIXELS / max(right - left, top - bottom)
    picture = np.full((max(1, round((top - bottom) * scale)), max(1, round((right - left) * scale)), 3), _FREE, np.uint8)
    for x0, x1, y0, y1 in walls:
        (first_column, last_column), (first_row, last_row) = (
            _pixels(begin, end, scale) for begin, end in ((x0 - left, x1 - left), (top - y1, top - y0))
        )
        picture[first_row:last_row, first_column:last_column] = _WALL
    border = _LEAST_WALL_PIXELS // 2
    picture[:border] = picture[-border:] = picture[:, :border] = picture[:, -border:] = _WALL
    return picture


def draw_points(
    background: Picture, low: Pair, high: Pair, agent: Sequence[float], goal: Sequence[float] | None, goal_radius: float
) -> Picture:
    """The plane's picture with a blue disc where the agent is, and a green disc for the goal."""
    scale = background.shape[1] / (high[0] - low[0])
    across = low[0] + (np.arange(background.shape[1]) + 0.5) / scale
    down = high[1] - (np.arange(background.shape[0])[:, None] + 0.5) / scale
    picture = background.astype(float)
    for centre, radius, colour in ((goal, goal_radius * scale, _GOAL), (agent, _AGENT_PIXELS, _AGENT)):
        if centre is not None:
            distance = np.hypot(across - centre[0], down - centre[1]) * scale
            share = np.clip(radius - distance + 0.5, 0, 1)[..., None]
            picture = share * colour + (1 - share) * picture
    return np.round(picture).astype(np.uint8)


def _pixels(begin: float, end: float, scale: float) -> tuple[int, int]:
    first, last = round(begin * scale), round(end * scale)
    missing = max(0, _LEAST_WALL_PIXELS - (last - first))
    return max(0, first - missing // 2), max(0, last + missing - missing // 2)


def _from_centre(size: int) -> Float[np.ndarray, "2 size size"]:
    """The distance of each pixel below and right of its cell's centre, in cells."""
    return (np.indices((size, size)) + 0.5) / size - 0.5


def _paint(
    picture: Picture, size: int, cell: Cell, depth: Float[np.ndarray, "size size"], colour: tuple[int, int, int]
) -> None:
    """Colours the pixels of a cell where `depth` is positive, with a smooth edge."""
    row, column = cell
    pixels = picture[row * size : (row + 1) * size, column * size : (column + 1) * size]
    share = np.clip(depth * size + 0.5, 0, 1)[..., None]
    pixels[:] = np.round(share * colour + (1 - share) * pixels)


class Window:
    """A window that shows one picture after another, until the user or the program closes it."""

    def __init__(self, title: str, frames_per_second: int) -> None:
        try:
            import pygame
        except ImportError:
            raise gymnasium.error.DependencyNotInstalled(
                "a window needs pygame, which is not installed: pip install '.[play]', in a clone of farflung"
            ) from None
        self._pygame, self._title, self._frames_per_second = pygame, title, frames_per_second
        self._screen: Any = None
        self._clock = pygame.time.Clock()
        self.is_closed = False

    def show(self, picture: Picture) -> None:
        if self.is_closed:
            return
        if self._screen is None:
            self._pygame.display.init()
            self._pygame.display.set_caption(self._title)
            self._screen = self._pygame.display.set_mode(picture.shape[1::-1])
        self._pygame.surfarray.blit_array(self._screen, picture.swapaxes(0, 1))
        self._pygame.display.flip()
        self._clock.tick(self._frames_per_second)
        if self._pygame.event.get(self._pygame.QUIT):  # other events, such as keys, stay in the queue
            self.close()

    def close(self) -> None:
        if self._screen is not None:
            self._pygame.display.quit()
        self._screen = None
        self.is_closed = True


class DrawnEnv(gymnasium.Env[Any, Any]):
    """An environment that draws a picture of its state: on request, or in a window after each step."""

    def __init__(self, render_mode: str | None) -> None:
        check_render_mode(self, render_mode)
        self._window = Window("farflung", self.metadata["render_fps"]) if render_mode == "human" else None

    def render(self) -> Any:
        if self.render_mode is None:
            warn_of_no_render_mode()
        self._show()
        return self._picture() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        if self._window is not None:
            self._window.close()

    def _picture(self) -> Picture:
        raise NotImplementedError

    def _show(self) -> None:
        if self._window is not None:
            self._window.show(self._picture())


def check_render_mode(environment: Any, render_mode: str | None) -> None:
    """Sets an environment's render mode, which must be one of those that it has."""
    if render_mode is not None:
        check_name("render_mode", render_mode, environment.metadata["render_modes"])
    environment.render_mode = render_mode


def warn_of_no_render_mode() -> None:
    gymnasium.logger.warn("render() does nothing without a render_mode: choose one when you make the environment")
