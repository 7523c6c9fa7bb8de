"""Ways to train a team."""

from farflung.algorithms.frank_wolfe import FrankWolfe
from farflung.algorithms.pgpse import PGPSE

__all__ = ["PGPSE", "FrankWolfe"]
