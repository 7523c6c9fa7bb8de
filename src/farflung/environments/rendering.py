"""A map with an agent on it: as text, as a picture, in a window."""

from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Float, UInt8

from farflung.environments.gridworld import GOAL, START, WALL, Cell

_AGENT_MARK = "@"
_MOST_PIXELS_PER_CELL, _MOST_PIXELS = 48, 960
_LEAST_PIXELS_WITH_LINES = 8
_WALL, _FREE, _LINE = (95, 99, 104), (255, 255, 255), (217, 217, 217)
_START, _GOAL, _AGENT = (232, 89, 12), (47, 143, 91), (37, 99, 168)

Picture = UInt8[np.ndarray, "height width 3"]


def draw_text(cells: np.ndarray, agent: Cell) -> str:
    """The map as it is written in a file, with the agent as `@`.

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
    radius = max(0.27, 1.5 / size)  # no less than some pixels, however large the map
    _paint(picture, size, agent, radius - np.hypot(*_from_centre(size)), _AGENT)
    return picture


def _from_centre(size: int) -> Float[np.ndarray, "2 size size"]:
    """How far each pixel lies below and right of its cell's centre, in cells."""
    return (np.indices((size, size)) + 0.5) / size - 0.5


def _paint(
    picture: Picture, size: int, cell: Cell, depth: Float[np.ndarray, "size size"], colour: tuple[int, int, int]
) -> None:
    """Colours the pixels of a cell that lie inside a shape, where `depth` is positive; its edge is smooth."""
    row, column = cell
    pixels = picture[row * size : (row + 1) * size, column * size : (column + 1) * size]
    share = np.clip(depth * size + 0.5, 0, 1)[..., None]
    pixels[:] = np.round(share * colour + (1 - share) * pixels)


class Window:
    """A window that shows one picture after another, until its user or its owner closes it."""

    def __init__(self, title: str, frames_per_second: int) -> None:
        try:
            import pygame
        except ImportError:
            raise gymnasium.error.DependencyNotInstalled(
                "a window needs pygame, which is not installed: pip install 'farflung[play]'"
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
        if self._pygame.event.get(self._pygame.QUIT):  # leaves the keys to whom they concern
            self.close()

    def close(self) -> None:
        if self._screen is not None:
            self._pygame.display.quit()
        self._screen = None
        self.is_closed = True
