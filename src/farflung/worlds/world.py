"""What every world offers: one copy of it, as pure functions of uniform noise."""

import abc
from typing import Protocol, runtime_checkable

import equinox as eqx
from jaxtyping import Array, Float, PyTree

from farflung.entropy.counts import Entropy


@runtime_checkable
class Outline(Protocol):
    """What it takes to learn from trajectories in a world with finitely many states, whoever has played them."""

    @property
    def num_states(self) -> int: ...
    @property
    def num_actions(self) -> int: ...
    @property
    def horizon(self) -> int: ...
    @property
    def entropy(self) -> Entropy:
        """How the entropy of the states that a team has visited is estimated."""


class Environment(eqx.Module):
    """One copy of a world without reward, in which an episode lasts exactly `horizon` actions.

    Randomness comes in as uniform numbers in [0, 1), not as keys, so that a rollout draws all the noise of an update in one
    call; an environment says how many it needs, and a deterministic one needs none.
    """

    horizon: eqx.AbstractVar[int]

    @property
    @abc.abstractmethod
    def num_reset_uniforms(self) -> int: ...

    @property
    @abc.abstractmethod
    def num_step_uniforms(self) -> int: ...

    @property
    def is_reproducible(self) -> bool:
        """Whether its steps come out the same every time, to the last bit, on whatever they are computed."""
        return True

    @abc.abstractmethod
    def reset(self, noise: Float[Array, " {self.num_reset_uniforms}"]) -> PyTree[Array]:
        r"""The first state, $s_0 \sim \mu$."""

    @abc.abstractmethod
    def step(self, noise: Float[Array, " {self.num_step_uniforms}"], state: PyTree[Array], action: Array) -> PyTree[Array]:
        r"""The next state, $s_{t+1} \sim P(\cdot \mid s_t, a_t)$."""
