"""The entropy of states that are vectors, from the distances between them."""

from collections.abc import Sequence

from farflung.entropy import Entropy


def particles(neighbours: int = 4, *, scale: Sequence[float] = (), angles: Sequence[int] = ()) -> Entropy:
    raise NotImplementedError
