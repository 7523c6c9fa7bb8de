"""Ways to train a team."""

from farflung.algorithms.pgpse import PGPSE

__all__ = ["PGPSE"]
