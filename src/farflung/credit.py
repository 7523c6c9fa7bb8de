"""How the team's entropy becomes a weight for each action.

The policy gradient is the mean over the batch of the sum of weight times score over all actions.
"""

from collections.abc import Callable

import jax
from jaxtyping import Array, Float, Int

from farflung.entropy import Entropy

Credit = Callable[[Entropy, Int[Array, "batch agent trajectory times"]], Float[Array, "batch #agent #trajectory #time"]]


def total(
    entropy: Entropy, states: Int[Array, "batch agent trajectory times"]
) -> Float[Array, "batch #agent #trajectory #time"]:
    """The paper's: every action weighs the entropy of all that the team has visited in its batch element."""
    return jax.vmap(entropy.value)(states)[:, None, None, None]


CREDITS: dict[str, Credit] = {"total": total}
