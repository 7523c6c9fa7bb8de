"""Ways to train a team, and what `farflung.train` and `farflung.explore` ask of one."""

from typing import Any, Protocol, runtime_checkable

from jaxtyping import PRNGKeyArray

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
        """The first state of the training: any pytree with an attribute `team`, the policies that play.

        `softmax_team` makes policies for numbered states, `neural_team` for observations that are vectors.

        Args:
            world: offers `horizon`, `actions`, `num_states`, `num_actions` and `entropy`; where observations are vectors, also
                `projection`, `observation_center` and `observation_scale`.
        """

    def learn(self, world: Any, state: Any, trajectories: Trajectories) -> Any:
        """The next state, learned from a batch that `state.team` has played."""
