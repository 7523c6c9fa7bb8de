"""Ways to train a team, and what `farflung.train` and `farflung.explore` ask of one."""

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax.random as jr
from jaxtyping import PRNGKeyArray

from farflung.policies import Team
from farflung.policies.rollout import Trajectories


@runtime_checkable
class Algorithm(Protocol):
    """A way to train a team: two pure functions and how much is played for an update.

    An algorithm is a pytree, such as an `equinox.Module`: its floats and arrays are traced, and all else is static. Training
    compiles `init` and `learn`, plays the batches, records metrics, writes checkpoints and notices divergence.
    """

    batch_size: int
    """Independent repetitions of the team's episodes in a batch."""
    num_trajectories: int
    """Episodes that each agent plays in one repetition."""

    def init(self, key: PRNGKeyArray, world: Any) -> Any:
        """The first state of the training: any pytree with an attribute `team`, the policies that play (a `farflung.Team`).

        `softmax_team` makes policies for numbered states, `neural_team` for observations that are vectors. All floats of the
        state are finite.

        Args:
            world: offers `horizon`, `actions`, `num_states`, `num_actions` and `entropy`; where observations are vectors, also
                `projection`, `observation_center` and `observation_scale`.
        """

    def learn(self, world: Any, state: Any, trajectories: Trajectories) -> Any:
        """The next state, learned from a batch that `state.team` has played."""


def team_shape(algorithm: Algorithm, world: Any) -> Any:
    """The team of an algorithm in a world, with shapes in place of arrays; raises ValueError if `init` returns no team."""
    state = eqx.filter_eval_shape(lambda: algorithm.init(jr.key(0), world.view()))
    if not isinstance(getattr(state, "team", None), Team):
        raise ValueError(
            f"init of {type(algorithm).__name__} must return a state with an attribute team, made with softmax_team or "
            "neural_team or with the attributes of farflung.Team"
        )
    return state.team
