"""What `farflung film` can be asked for."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from farflung.config.checks import check_positive, whole_number


@dataclass(frozen=True)
class Film:
    """Show how a trained team explores: all agents move over the map, and the cells that they have visited light up.

    RUN is a directory that `farflung explore` has written, in a world that is a map or whose states are vectors.
    """

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """The directory of a run."""
    element: int = 0
    """Which batch element is shown, counted from 0."""
    seconds: float = 8.0
    """How long the film is at most."""
    fps: int = 12
    """Pictures per second at most: there are no more of them than steps in an episode."""

    def __post_init__(self) -> None:
        if not isinstance(self.element, int) or self.element < 0:
            raise ValueError(f"element must be a whole number from 0 on, not {self.element!r}")
        check_positive("seconds", self.seconds)
        object.__setattr__(self, "fps", whole_number("fps", self.fps))
