"""What a team maximises: a number for the states that its agents visit together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int

from farflung.numerics.spread import gathered, own_part

States = Int[Array, "agent trajectory times"] | Float[Array, "agent trajectory times observation"]


class Objective(NamedTuple):
    """What a team maximises, such as the entropy of its states, as two functions of all the states that it has visited.

    `gains` make every credit unbiased if, for each trajectory, they add up to `value` minus something that does not depend on
    the trajectory, and if a gain does not depend on what comes later in its own trajectory.
    """

    value: Callable[[States], Float[Array, ""]]
    """The value; for entropies in nats."""
    gains: Callable[[States], Float[Array, "agent trajectory times"]]
    """The contribution of each visited state, given the other trajectories and *its own past*, without its own future."""
    is_below_32: bool = False
    """Whether all values and all sums of gains lie between -32 and 32, which saves their largest magnitude being looked for."""
    across: "Callable[[str], Objective] | None" = None
    """Where agents are spread over devices: the same objective as functions of the states of the agents that are here, by the
    name of the mesh's axis. Without it, all states are exchanged, and each device computes the weights of all agents."""


ObjectiveIn = Callable[[Any, Any], Objective]
"""What makes the objective of a team in a world: a function of the world and of the team's policies as they are."""


def weighted(terms: Sequence[tuple[float, Objective]]) -> Objective:
    """A weighted sum of objectives: gains are linear, so the credit of a sum is the sum of the credits."""

    def value(states: States) -> Float[Array, ""]:
        return sum((weight * term.value(states) for weight, term in terms), start=jnp.zeros(()))

    def gains(states: States) -> Float[Array, "agent trajectory times"]:
        return sum((weight * term.gains(states) for weight, term in terms), start=jnp.zeros(()))

    return Objective(value, gains)


def seen_through(features: Callable[[Any], Any], objective: Objective) -> Objective:
    """An objective of the features of states; where agents are spread over devices, the devices exchange the features alone."""

    def across(mesh_axis: str) -> Objective:
        def value(states: States) -> Float[Array, ""]:
            return objective.value(gathered(features(states), mesh_axis, 0))

        def gains(states: States) -> Float[Array, "agent trajectory times"]:
            return own_part(objective.gains(gathered(features(states), mesh_axis, 0)), mesh_axis, 0)

        return Objective(value, gains, objective.is_below_32)

    return Objective(
        lambda states: objective.value(features(states)),
        lambda states: objective.gains(features(states)),
        objective.is_below_32,
        across,
    )


def of_each_agent(objective: Objective) -> Objective:
    """The mean over the agents of an objective of the agent's own states."""

    def value(states: States) -> Float[Array, ""]:
        return jnp.mean(jax.vmap(lambda own: objective.value(own[None]))(states))

    def gains(states: States) -> Float[Array, "agent trajectory times"]:
        return jax.vmap(lambda own: objective.gains(own[None])[0])(states) / states.shape[0]

    return Objective(value, gains)


@dataclass(frozen=True, eq=False)
class Utility:
    r"""An objective of your own: a function $U(d)$ of the shares of the team's visits, or of the mean of their features.

    It is called with the world and returns the `Objective`. A gain is a difference of two values of the function: with a visit
    and without it. If the function is concave and JAX can differentiate it, `farflung.ceiling` bounds it.

    >>> spread = Utility(lambda shares: 1 - jnp.sum(shares**2))  # Tsallis entropy of order 2
    >>> import farflung
    >>> world = farflung.make_tabular_world("room-det")
    >>> float(spread(world).value(jnp.array([[[0, 1, 2, 3]]])))
    0.75
    """

    function: Callable[[Float[Array, " share"]], Float[Array, ""]]
    """Of the share of the visits to each state, or to each grid cell where states are vectors; shares sum to 1."""
    features: Any = None
    """Where given, the function is one of the mean features of the visits: an array [state, feature], or where states are
    vectors a function from an observation to its features."""
    is_separable: bool = False
    """Whether the function is a sum over the states, in which each term depends on one share alone. If so, and if all terms are
    concave, the ceiling is that of the finite team, by the program of the entropy's: exact in deterministic worlds."""

    def __call__(self, world: Any, team: Any = None) -> Objective:
        """The objective in a world, the same for every team."""
        rows = self._rows(world)

        def value(states: States) -> Float[Array, ""]:
            seen, is_real = rows(states.reshape(-1, *states.shape[3:]))
            return self.function(jnp.sum(seen, axis=0) / jnp.maximum(jnp.sum(is_real), 1))

        def gains(states: States) -> Float[Array, "agent trajectory times"]:
            seen, is_real = rows(states)
            everything, everyone = jnp.sum(seen, axis=(0, 1, 2)), jnp.sum(is_real)

            def of_trajectory(own: tuple[Array, Array]) -> Float[Array, " times"]:
                own_rows, is_own = own
                total = (everything - jnp.sum(own_rows, axis=0))[None] + jnp.cumsum(own_rows, axis=0)
                number = everyone - jnp.sum(is_own) + jnp.cumsum(is_own)
                first, num_first = total[0] - own_rows[0], number[0] - is_own[0]
                # Without any other visit there is no share to start from, and the first gain is 0.
                start = jnp.where(num_first > 0, first / jnp.maximum(num_first, 1), total[0])
                means = jnp.concatenate([start[None], total / jnp.maximum(number, 1)[:, None]])
                return jnp.diff(jax.vmap(self.function)(means))

            found = jax.lax.map(of_trajectory, (_by_trajectory(seen), _by_trajectory(is_real)))
            return jnp.where(is_real, found.reshape(states.shape[:3]), 0.0)

        return Objective(value, gains)

    def _rows(self, world: Any) -> Callable[[Array], tuple[Array, Array]]:
        """A function from states to their features, zero after an episode's end, and whether they lie within an episode."""
        if world.projection is None:
            table = jnp.eye(world.num_states) if self.features is None else _table(self.features, world.num_states)

            def of_numbers(states: Array) -> tuple[Array, Array]:
                return jnp.take(table, states, axis=0, mode="fill", fill_value=0.0), states < world.num_states

            return of_numbers
        projection, features = world.projection, self.features

        def of_vectors(states: Array) -> tuple[Array, Array]:
            is_real = jnp.all(jnp.isfinite(states), axis=-1)
            if features is None:
                return jax.nn.one_hot(projection.cells(states), projection.num_cells), is_real
            found = features(jnp.where(is_real[..., None], states, 0.0))
            return jnp.where(is_real[..., None], found, 0.0), is_real

        return of_vectors


def _table(features: ArrayLike, num_states: int) -> Float[Array, "state feature"]:
    table = jnp.asarray(features, jnp.float32)
    if table.ndim != 2 or len(table) != num_states:
        raise ValueError(f"features: expected an array [state, feature] with {num_states} rows, got the shape {table.shape}")
    return table


def _by_trajectory(values: Array) -> Array:
    return values.reshape(-1, *values.shape[2:])
