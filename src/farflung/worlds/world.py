"""What farflung asks of a world, whatever kind it is."""

import abc
import math
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from farflung.config.checks import check_text
from farflung.entropy.objective import Objective
from farflung.numerics.noise import uniforms
from farflung.worlds.encoder import Image
from farflung.worlds.projection import Actions, Discrete, Projection
from farflung.worlds.walls import Rectangle

if TYPE_CHECKING:
    from farflung.worlds.hosted.world import HostedWorld
    from farflung.worlds.point_maze import PointMaze
    from farflung.worlds.tabular import TabularMDP

_KEY_UNIFORMS = 3
_UNIFORM_BITS = 24
_MOST_ARGUMENTS = 1000


class Limbs(NamedTuple):
    """A body in several poses: each limb is what a ball leaves that moves from one end to the other."""

    ends: Float[np.ndarray, "*axes limb 2 3"]
    radii: Float[np.ndarray, " limb"]


class World(abc.ABC):
    """A world without reward, of which every agent has a copy of its own.

    Training, metrics, figures, ceilings, datasets and files ask a world about itself; they never ask which kind it is.
    """

    horizon: int
    """Actions in an episode, at most."""
    actions: Actions
    """What an agent can do."""
    projection: Projection | None
    """Which numbers of a recorded state the entropy is about; None where states are numbered."""
    observation_center: tuple[float, ...]
    """Where observations are vectors: the centre of each number's range; networks see observations centred and scaled."""
    observation_scale: tuple[float, ...]
    num_unseen: int = 0
    """Numbers that a recorded state has after the observation: features for the entropy alone, which policies don't see."""
    image: Image | None = None
    """Rows, columns and channels of the image that an observation is, if it is one."""
    arguments: tuple[str, ...] = ()
    """What `farflung explore` is told of the world beside its name."""
    features_note: str = ""
    """Which features were taken although nobody has chosen any, and how to choose."""

    name = "custom"
    """Its name on the command line."""
    is_hosted = False
    """Whether copies are stepped on the host, one call at a time, instead of in compiled code."""
    is_reproducible = True
    """Whether steps give the same bits every time, on any device."""
    knows_all_states = True
    """Whether the number of states is known before training; otherwise states are numbered as they are met."""
    positions: Int[Array | np.ndarray, "state 2"] | None = None
    """Row and column of each state, where the states lie on a map; several states may lie in one cell."""
    ends: dict[str, Int[np.ndarray, " state"]] = {}  # noqa: RUF012
    """The states in which episodes end, as far as they are known: under G those that are rewarded, under x the others."""
    rows_point_down: bool = False
    """Whether the second feature counts rows from the top, for pictures."""
    start_states: Int[Array | np.ndarray, " start"] | tuple[()] = ()
    """The states in which episodes begin, as far as they are known."""
    walls: tuple[Rectangle, ...] = ()
    """Walls in the plane of the first two features, for pictures; on a map, of columns and of rows from the top."""
    shifting_walls: tuple[Rectangle, ...] = ()
    """Walls of some episodes, where each episode draws its own layout."""
    starts: tuple[Rectangle, ...] = ()
    """Where in that plane episodes begin, for pictures."""
    pose_size: int = 0
    """Numbers at the beginning of a recorded state that are the pose of a body in space; 0 if there is no body to draw."""

    @property
    @abc.abstractmethod
    def num_states(self) -> int:
        """The number of states; where states are vectors, the number of grid cells that can be reached."""

    @property
    def num_table_rows(self) -> int:
        """Rows of a table of policies."""
        return self.num_states

    @property
    def num_actions(self) -> int:
        """The number of discrete actions, or of choices or numbers in an action."""
        return self.actions.num if isinstance(self.actions, Discrete) else self.actions.size

    @property
    @abc.abstractmethod
    def entropy(self) -> Objective:
        """How the entropy of the states that a team has visited is estimated."""

    @property
    def observation_size(self) -> int:
        """Numbers in an observation, where observations are vectors."""
        return len(self.observation_center)

    @property
    def state_size(self) -> int:
        """Numbers in a recorded state, where states are vectors: an observation, then the features that policies don't see."""
        return self.observation_size + self.num_unseen

    @property
    def may_end_early(self) -> bool:
        """Whether an episode can end before `horizon` actions."""
        return False

    def limbs(self, poses: Float[np.ndarray, "*axes position"]) -> Limbs:
        """The limbs of a body in poses, to be drawn in space."""
        raise ValueError(f"{self.name} has no body")

    def frames(self, poses: Float[np.ndarray, "times position"]) -> list[np.ndarray]:
        """Pictures of a body in poses, as its simulator renders them; raises ValueError if it cannot."""
        raise ValueError(f"{self.name} has no body")

    @property
    def table(self) -> "TabularMDP | None":
        """The world with its transition table, if it has one."""
        return None

    @property
    def hosted(self) -> "HostedWorld | None":
        """The world with the means to step its copies on the host, if it is stepped there."""
        return None

    @property
    def maze(self) -> "PointMaze | None":
        """The world as a point maze, if it is one: goals can be placed and tested in it."""
        return None

    @property
    def environment(self) -> tuple[str, dict[str, Any]] | None:
        """The id and options of the Gymnasium environment with the same dynamics, if states are vectors and there is one.

        The environment may have rewards and early ends.
        """
        return None

    @property
    def free_area(self) -> float:
        """The area, or volume, that the features can cover, in their units; its logarithm bounds their entropy."""
        return math.inf

    @property
    def is_free(self) -> Bool[np.ndarray, " cell"]:
        """Which cells of the projection's grid can be reached, as far as that is known."""
        assert self.projection is not None
        return np.ones(self.projection.num_cells, bool)

    @property
    @abc.abstractmethod
    def identity(self) -> Hashable:
        """Equal for two worlds that are the same task."""

    @abc.abstractmethod
    def to_arrays(self) -> dict[str, np.ndarray]:
        """What a file keeps of the world; `farflung.worlds.kinds` reads it back."""

    @property
    def stepping(self) -> dict[str, Any]:
        """How copies are stepped on the host, such as the number of workers; empty for compiled worlds."""
        return {}

    def view(self) -> Any:
        """What an algorithm is given of the world; compiled code can take it as an argument."""
        return self

    def with_environment(self, **stepping: Any) -> "World":
        """The world ready to be played, where a file holds only its description."""
        return self

    def snapshot(self) -> "World":
        """The world with the states that are known by now: states met later are not added to it."""
        return self

    def add_states_of(self, other: "World") -> None:  # noqa: B027
        """Learns the states that the same world has met elsewhere, where states are numbered as they are met."""

    def add_states(self, features: Int[np.ndarray, "state feature"]) -> None:  # noqa: B027
        """Learns the states with these features, as `add_states_of` does."""

    def state_of(self, observation: Any) -> Any:
        """What a policy acts on for an observation of the world's environment: a state's number, or a vector.

        Raises ValueError if the world has no such observation.
        """
        assert self.projection is not None
        state = flattened(observation)
        if len(state) != self.observation_size or not np.isfinite(state).all():
            raise ValueError(
                f"an observation of {self.name} has {self.observation_size} finite numbers, not {observation!r:.80}"
            )
        return state

    def action_for_environment(self, action: np.ndarray) -> Any:
        """What the `step` of the world's environment takes for a policy's action."""
        return int(action) if action.ndim == 0 else action

    @property
    def notes(self) -> list[str]:
        """What a user should know of the world before the training."""
        return [self.features_note] if self.features_note else []

    def about_stepping(self, num_agents: int, num_episodes: int) -> dict[str, Any]:
        """How copies are stepped on the host by so many agents for so many episodes at a time, and what has failed."""
        return {}


class CompiledWorld(World, eqx.Module):
    """A world in JAX: pure functions for one copy.

    The public functions `reset` and `step` take random keys. A rollout calls `reset_from` and `step_from` instead, which take
    uniform numbers in [0, 1): all the noise of an update is then drawn in one call. A subclass implements either pair.
    """

    @property
    def num_reset_uniforms(self) -> int:
        """How many uniform numbers `reset_from` takes."""
        return _KEY_UNIFORMS

    @property
    def num_step_uniforms(self) -> int:
        """How many uniform numbers `step_from` takes; 0 for deterministic dynamics."""
        return _KEY_UNIFORMS

    def reset(self, key: PRNGKeyArray) -> PyTree[Array]:
        r"""The first state, $s_0 \sim \mu$."""
        return self.reset_from(uniforms(key, (self.num_reset_uniforms,)))

    def step(self, key: PRNGKeyArray, state: PyTree[Array], action: Array) -> PyTree[Array]:
        r"""The next state, $s_{t+1} \sim P(\cdot \mid s_t, a_t)$."""
        return self.step_from(uniforms(key, (self.num_step_uniforms,)), state, action)

    def reset_from(self, noise: Float[Array, " {self.num_reset_uniforms}"]) -> PyTree[Array]:
        return self.reset(key_from(noise))

    def step_from(self, noise: Float[Array, " {self.num_step_uniforms}"], state: PyTree[Array], action: Array) -> PyTree[Array]:
        return self.step(key_from(noise), state, action)


def read_arguments(arguments: Any) -> tuple[str, ...]:
    """The `arguments` of a world, from a file."""
    if not isinstance(arguments, list) or len(arguments) > _MOST_ARGUMENTS:
        raise ValueError(f"arguments is a list of at most {_MOST_ARGUMENTS} texts, not {str(arguments)[:80]}")
    for each in arguments:
        check_text("an argument", each)
    return tuple(arguments)


def flattened(observation: Any) -> Any:
    """An array, or a pytree of arrays in the order of `jax.tree.leaves`, as one vector of floats."""
    leaves = jax.tree.leaves(observation)
    xp: Any = jnp if any(isinstance(leaf, jax.Array) for leaf in leaves) else np
    return xp.concatenate([xp.ravel(xp.asarray(leaf, np.float32)) for leaf in leaves])


def key_from(noise: Float[Array, "3"]) -> PRNGKeyArray:
    """A random key from 64 bits of three uniform numbers."""
    first, second, rest = (noise * 2.0**_UNIFORM_BITS).astype(jnp.uint32)
    words = jnp.stack([first << 8 | rest & 0xFF, second << 8 | rest >> 8 & 0xFF])
    return jr.wrap_key_data(words, impl="threefry2x32")
