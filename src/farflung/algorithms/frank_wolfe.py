"""Parallel Frank-Wolfe: Algorithm 2 of the paper, for the entropy of the state distribution itself."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from farflung.bounds import theorems as theory
from farflung.bounds.flows import flows_of
from farflung.config.checks import check_frank_wolfe, whole_number
from farflung.numerics.arrays import count_by_index
from farflung.policies import TabularSoftmax
from farflung.policies.rollout import play
from farflung.worlds.tabular import TabularMDP

_ITERATIONS_PER_CHUNK = 250
_BISECTIONS = 20
_MOST_STATES = 100_000_000
_LEAST = 1e-12


class Visits(NamedTuple):
    """The visits of one policy, or of each agent's mixture of policies: averaged over the policy drawn for an episode."""

    flows: Float[Array, "*agent time state action"]
    """The probability of each state and action at each time."""
    occupancies: Float[Array, "*agent state"]
    r"""The state distributions $d_{\pi_i}$."""

    @property
    def team(self) -> TabularSoftmax:
        """A team of time-dependent policies with the same visits as the mixtures.

        An agent of a mixture draws one policy per episode. An agent of this team draws each action instead, with the mixture's
        probability at that time in that state: the probability of each state at each time is the same.
        """
        flows = self.flows
        total = jnp.sum(flows, axis=-1, keepdims=True)
        shares = jnp.where(total > 0, flows / jnp.where(total > 0, total, 1.0), 1 / flows.shape[-1])
        return TabularSoftmax(jnp.log(jnp.maximum(shares, _LEAST)), is_time_dependent=True)


class Solution(NamedTuple):
    """The mixtures after some iterations, with their certificates."""

    entropies: Float[np.ndarray, " iteration"]
    """The smoothed entropy of the team's mixture before each iteration, in nats."""
    gaps: Float[np.ndarray, " iteration"]
    """The duality gap before each iteration: no policies exceed the mixture's entropy by more."""
    mixtures: Visits
    smoothing: float

    @property
    def mixture(self) -> Float[Array, " state"]:
        r"""The state distribution of the team, $d_{\pi_{mix}}$."""
        return jnp.mean(self.mixtures.occupancies, axis=0)

    @property
    def team(self) -> TabularSoftmax:
        return self.mixtures.team

    @property
    def objective(self) -> float:
        """The smoothed entropy of the mixture."""
        shares = np.asarray(self.mixture, np.float64) + self.smoothing
        return float(-np.sum(shares * np.log(np.maximum(shares, _LEAST))))

    @property
    def bound(self) -> float:
        """The best certified upper bound on the smoothed entropy of any policies."""
        return float(np.min(self.entropies + self.gaps))

    @property
    def gap(self) -> float:
        """An upper bound on the distance of the mixture from the optimum."""
        return self.bound - self.objective


class FrankWolfe(eqx.Module):
    """Agents repeatedly plan for the gradient of the entropy at the team's mixture, and add the plans to their mixtures."""

    num_agents: int = eqx.field(static=True)
    step_size: float | None = eqx.field(static=True, default=None)
    r"""The share $\eta$ of a new policy in its agent's mixture; None for a line search."""
    smoothing: float = eqx.field(static=True, default=0.0)
    r"""The $\sigma$ of the smoothed entropy $-\sum_s (d(s) + \sigma) \log(d(s) + \sigma)$."""
    is_in_turn: bool = eqx.field(static=True, default=True)
    """Whether agents plan one after the other, each on the updated mixture, instead of all on the same mixture."""
    density_tolerance: float = eqx.field(static=True, default=0.0)
    r"""$\epsilon_0$. If positive, agents plan on an estimate of the mixture from sampled trajectories; the error of each
    probability is at most this, with probability 0.95."""
    planning_tolerance: float = eqx.field(static=True, default=0.0)
    r"""$\epsilon_1$. If positive, agents plan in a model estimated from samples; the loss of the plan is at most this, with
    probability 0.95."""

    def __check_init__(self) -> None:
        whole_number("num_agents", self.num_agents)
        check_frank_wolfe(self)

    def check_samples(self, world: TabularMDP) -> None:
        """Raises ValueError if the estimates need more trajectories than fit into memory."""
        if self.density_tolerance > 0:
            needed = theory.density_samples(world.num_states, self.density_tolerance)
            if needed * self.num_agents * (world.horizon + 1) > _MOST_STATES:
                raise ValueError(
                    f"a density tolerance of {self.density_tolerance:g} takes {needed:,} trajectories for each agent and "
                    "iteration, which is too many: choose a larger tolerance, say 0.01"
                )

    def init(self, world: TabularMDP) -> Visits:
        """The first mixtures: every agent acts uniformly at random."""
        uniform = jnp.full((world.horizon, world.num_states, world.num_actions), 1 / world.num_actions)
        return jax.tree.map(lambda part: jnp.repeat(part[None], self.num_agents, axis=0), _follow(world, uniform))

    def iterate(
        self, key: PRNGKeyArray, world: TabularMDP, is_reachable: Bool[Array, " state"], mixtures: Visits
    ) -> tuple[Visits, Float[Array, ""], Float[Array, ""]]:
        """The mixtures after one iteration of all agents, and the entropy and the duality gap before."""
        mixture = jnp.mean(mixtures.occupancies, axis=0)
        prices = self._prices(mixture, is_reachable)
        best = best_response(world, prices)
        gap = jnp.dot(prices, best.occupancies - mixture)
        entropy = -jnp.sum((mixture + self.smoothing) * _log(mixture + self.smoothing))

        def act(mixtures: Visits, inputs: tuple[Int[Array, ""], PRNGKeyArray]) -> tuple[Visits, None]:
            agent, key = inputs
            plan = self._plan(key, world, is_reachable, mixtures)
            own = jax.tree.map(lambda part: part[agent], mixtures)
            direction = (plan.occupancies - own.occupancies) / self.num_agents
            step = self._step(jnp.mean(mixtures.occupancies, axis=0), direction, is_reachable)
            return jax.tree.map(lambda parts, part: parts.at[agent].set(part), mixtures, _mixed(own, plan, step)), None

        keys = jr.split(key, self.num_agents)
        if self.is_in_turn:
            return jax.lax.scan(act, mixtures, (jnp.arange(self.num_agents), keys))[0], entropy, gap
        if self.density_tolerance == 0 and self.planning_tolerance == 0:
            plans = jax.tree.map(lambda part: jnp.broadcast_to(part, (self.num_agents, *part.shape)), best)
        else:
            plans = jax.vmap(self._plan, (0, None, None, None))(keys, world, is_reachable, mixtures)
        step = self._step(mixture, jnp.mean(plans.occupancies, axis=0) - mixture, is_reachable)
        return _mixed(mixtures, plans, step), entropy, gap

    def _plan(self, key: PRNGKeyArray, world: TabularMDP, is_reachable: Bool[Array, " state"], mixtures: Visits) -> Visits:
        density_key, planning_key = jr.split(key)
        mixture = jnp.mean(mixtures.occupancies, axis=0)
        if self.density_tolerance > 0:
            needed = theory.density_samples(world.num_states, self.density_tolerance)
            states = play(density_key, mixtures.team, world, 1, -(-needed // self.num_agents)).states
            mixture = count_by_index(states, world.num_states) / states.size
        prices = self._prices(mixture, is_reachable)
        if self.planning_tolerance == 0 or world.num_successors == 1:
            return best_response(world, prices)
        largest = theory.SmoothedEntropy(self.smoothing).price_range
        sizes = (world.num_states, world.num_actions, world.horizon)
        needed = theory.planning_samples(*sizes, largest, self.planning_tolerance)
        counts = jr.multinomial(planning_key, jnp.float32(needed), world.probabilities)
        return best_response(world, prices, counts / needed)

    def _prices(self, mixture: Float[Array, " state"], is_reachable: Bool[Array, " state"]) -> Float[Array, " state"]:
        r"""The gradient $\nabla \mathcal{H}_\sigma$; 0 for unreachable states."""
        return jnp.where(is_reachable, -1 - _log(mixture + self.smoothing), 0.0)

    def _step(
        self, mixture: Float[Array, " state"], direction: Float[Array, " state"], is_reachable: Bool[Array, " state"]
    ) -> Float[Array, ""]:
        if self.step_size is not None:
            return jnp.float32(self.step_size)

        def halve(_: Array, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = bracket
            middle = (low + high) / 2
            is_rising = jnp.dot(self._prices(mixture + middle * direction, is_reachable), direction) > 0
            return jnp.where(is_rising, middle, low), jnp.where(is_rising, high, middle)

        return jax.lax.fori_loop(0, _BISECTIONS, halve, (jnp.float32(0), jnp.float32(1)))[0]


def best_response(
    world: TabularMDP,
    prices: Float[Array, " state"],
    probabilities: Float[Array, "state action successor"] | None = None,
) -> Visits:
    """The policy that earns most if each visit pays the state's price, by backward induction.

    Args:
        probabilities: of the model to plan in; None for those of the world.
    """
    model = world.probabilities if probabilities is None else probabilities

    def back(values: Float[Array, " state"], _: None) -> tuple[Array, Array]:
        of_actions = jnp.sum(model * values[world.successors], axis=-1)
        return prices + jnp.max(of_actions, axis=-1), jnp.argmax(of_actions, axis=-1)

    _, choices = jax.lax.scan(back, prices, None, length=world.horizon, reverse=True)
    return _follow(world, jax.nn.one_hot(choices, world.num_actions))


def solve(
    algorithm: FrankWolfe, world: TabularMDP, *, num_iterations: int = 20_000, tolerance: float = 1e-3, seed: int = 0
) -> Iterator[Solution]:
    """Iterates until the gap is below the tolerance, in nats; yields the solution so far a few times a second.

    >>> from farflung import make_tabular_world
    >>> *_, found = solve(FrankWolfe(num_agents=2), make_tabular_world("maze-stoc"), tolerance=0.01)
    >>> found.gap < 0.01, found.team.logits.shape
    (True, (2, 10, 43, 4))
    """
    whole_number("num_iterations", num_iterations)
    algorithm.check_samples(world)
    is_reachable = jnp.asarray(flows_of(world).is_reachable)
    mixtures, key = algorithm.init(world), jr.key(seed, impl="threefry2x32")
    entropies, gaps = np.zeros(0), np.zeros(0)
    while len(gaps) < num_iterations:
        window = jnp.int32(len(gaps)), jnp.int32(num_iterations)
        mixtures, *recorded = _advance(algorithm, world, is_reachable, key, *window, mixtures)
        records = zip((entropies, gaps), recorded, strict=True)
        entropies, gaps = (np.append(old, np.asarray(new))[:num_iterations] for old, new in records)
        found = Solution(entropies, gaps, mixtures, algorithm.smoothing)
        yield found
        if found.gap < tolerance:
            return


@eqx.filter_jit
def _advance(
    algorithm: FrankWolfe,
    world: TabularMDP,
    is_reachable: Bool[Array, " state"],
    key: PRNGKeyArray,
    first: Int[Array, ""],
    num_iterations: Int[Array, ""],
    mixtures: Visits,
) -> tuple[Visits, Float[Array, " iteration"], Float[Array, " iteration"]]:
    def iterate(mixtures: Visits, index: Int[Array, ""]) -> tuple[Visits, tuple[Array, Array]]:
        updated, entropy, gap = algorithm.iterate(jr.fold_in(key, index), world, is_reachable, mixtures)
        return jax.tree.map(partial(jnp.where, index < num_iterations), updated, mixtures), (entropy, gap)

    mixtures, (entropies, gaps) = jax.lax.scan(iterate, mixtures, first + jnp.arange(_ITERATIONS_PER_CHUNK))
    return mixtures, entropies, gaps


def _follow(world: TabularMDP, policy: Float[Array, "time state action"]) -> Visits:
    distributions = world.state_distributions(policy)
    return Visits(distributions[:-1, :, None] * policy, jnp.mean(distributions, axis=0))


def _mixed(mixtures: Visits, plans: Visits, step: Float[Array, ""]) -> Visits:
    return jax.tree.map(lambda old, new: old + step * (new - old), mixtures, plans)


def _log(values: Float[Array, " state"]) -> Float[Array, " state"]:
    return jnp.log(jnp.maximum(values, _LEAST))
