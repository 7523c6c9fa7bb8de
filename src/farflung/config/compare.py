"""What `farflung compare` can be asked for."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from farflung.config.checks import check_name
from farflung.config.options import METRICS, one_of


@dataclass(frozen=True)
class Compare:
    """Compare runs over all their worlds and seeds, with the estimates and intervals of rliable.

    RUN is a directory that `farflung explore` has written, or NAME=DIRECTORY; runs of one name are one algorithm in several
    worlds. Without names, an algorithm is what the runs' settings differ in.
    """

    runs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN...", help_behavior_hint="")]
    """Directories of runs, each with a name before it or none."""
    metric: Annotated[str, one_of(METRICS)] = "normalized_entropy"
    """What is compared, averaged over the last 1% of the updates; more counts as better."""

    def __post_init__(self) -> None:
        check_name("metric", self.metric, METRICS)
        if len(self.runs) < 2:
            raise ValueError(f"at least 2 runs are needed for a comparison, not {len(self.runs)}")
