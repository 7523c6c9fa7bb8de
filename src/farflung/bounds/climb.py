r"""Ceilings for worlds of any size: Frank-Wolfe on the expected visits, with a valid bound after every step.

Let Y be the set of expected visits $y$ of policies, and $f(y) = \sum_s f_s(y_s)$ concave. For any prices $g$ of the states

$$\max_{y \in Y} f(y) \le \max_{y \in Y} \langle g, y \rangle + \sum_s \max_{x \ge 0} (f_s(x) - g_s x).$$

Backward induction solves the first term; the second has a closed form. If $g$ is the gradient of f at some y, the right side is
$f(y)$ plus the Frank-Wolfe gap at y.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from farflung.bounds.flows import Flows
from farflung.entropy.objective import Utility

Visits = Float[np.ndarray, " state"]
_LEAST, _LEAST_SHARE = 1e-300, 1e-12
_HALVINGS = 40
_LEAST_WIDTH = 0.05


class _Entropy:
    """A concave objective whose gradient is cheap."""

    def prices(self, visits: Visits, width: float) -> Visits:
        raise NotImplementedError

    def line_search(self, visits: Visits, target: Visits, width: float) -> Visits:
        """The best point between visits and target: the slope changes its sign there."""
        direction = target - visits
        slope = lambda share: self.prices(visits + share * direction, width) @ direction  # noqa: E731
        if slope(1.0) >= 0:
            return target
        from scipy.optimize import brentq

        return visits + brentq(slope, 0.0, 1.0, xtol=1e-8) * direction if slope(0.0) > 0 else visits


class TeamEntropy(_Entropy):
    r"""The largest expected entropy of n samples, given the expected visits to each state.

    Visits $N_s$ are whole numbers. With $h(c) = -\frac{c}{n} \log \frac{c}{n}$, interpolated linearly between whole numbers,
    the mean of $h(N_s)$ is therefore at most h at the mean of $N_s$.
    """

    def __init__(self, num_samples: int, most_visits: Int[np.ndarray, " state"]) -> None:
        counts = np.arange(num_samples + 1)
        self.most_visits = most_visits
        self.terms = -counts / num_samples * np.log(np.maximum(counts, 1) / num_samples)
        self.gains = np.diff(self.terms)
        self._counts = counts

    def value(self, visits: Visits) -> float:
        return float(np.sum(self._interpolated(visits)))

    def prices(self, visits: Visits, width: float) -> Visits:
        """The gradient, smoothed over `width` visits because the function has kinks."""
        return (self._interpolated(visits + width) - self._interpolated(visits - width)) / (2 * width)

    def conjugate(self, prices: Visits, visits: Visits) -> float:
        r"""$\sum_s \max_x (f_s(x) - g_s x)$."""
        counts = np.minimum(np.searchsorted(-self.gains, -prices), self.most_visits)
        return float(np.sum(self.terms[counts] - prices * counts))

    def _interpolated(self, visits: Visits) -> Visits:
        last = len(self.gains)
        within = np.interp(visits, self._counts, self.terms)
        return within + self.gains[0] * np.minimum(visits, 0) + self.gains[-1] * np.maximum(visits - last, 0)


class MixtureEntropy(_Entropy):
    r"""The entropy $\mathcal{H}(d)$ of the state distribution $d = y / (T + 1)$: the limit of infinitely many samples."""

    def __init__(self, num_samples: int, is_reachable: Bool[np.ndarray, " state"]) -> None:
        self.num_samples = num_samples
        self.is_reachable = is_reachable

    def value(self, visits: Visits) -> float:
        shares = visits / self.num_samples
        return float(-np.sum(shares * np.log(np.maximum(shares, _LEAST))))

    def prices(self, visits: Visits, width: float) -> Visits:
        logs = np.log(np.maximum(visits / self.num_samples, _LEAST))
        return np.where(self.is_reachable, -(1 + logs) / self.num_samples, 0.0)

    def conjugate(self, prices: Visits, visits: Visits) -> float:
        return float(np.sum(np.exp(-1 - prices * self.num_samples)[self.is_reachable]))


def separate_terms(
    utility: Utility, num_samples: int, num_states: int, most: int
) -> tuple[Float[np.ndarray, "state visits"], float]:
    """The terms of a separable utility after 0, 1, ... visits to a state, less its value without any visit; and that value."""
    shares = np.arange(most + 1) / num_samples

    def of_state(state: Array, shares: Array) -> Array:
        return jax.vmap(lambda share: utility.function(jnp.zeros(num_states).at[state].set(share)))(shares)

    with jax.enable_x64(True):
        found = np.asarray(jax.lax.map(partial(of_state, shares=jnp.asarray(shares)), jnp.arange(num_states)), np.float64)
    return found - found[:, :1], float(found[0, 0])


class MixtureUtility:
    """A concave utility of the state distribution, or of the mean of its features, with its gradient by JAX.

    The gradient at any point bounds a concave function everywhere; it is taken where no reachable state has the share 0, since
    many utilities are not differentiable there.
    """

    def __init__(self, utility: Utility, num_samples: int, is_reachable: Bool[np.ndarray, " state"]) -> None:
        self.num_samples = num_samples
        self.is_reachable = is_reachable
        features = None if utility.features is None else np.asarray(utility.features, np.float64)
        of_shares = utility.function if features is None else lambda shares: utility.function(shares @ jnp.asarray(features))
        gradient = jax.grad(of_shares)

        def best_share(shares: Array, direction: Array) -> Array:
            def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
                middle = (ends[0] + ends[1]) / 2
                here = jnp.where(is_reachable, jnp.maximum(shares + middle * direction, _LEAST_SHARE), 0.0)
                is_uphill = jnp.sum(jnp.where(is_reachable, gradient(here) * direction, 0.0)) > 0
                return jnp.where(is_uphill, middle, ends[0]), jnp.where(is_uphill, ends[1], middle)

            return jax.lax.fori_loop(0, _HALVINGS, halve, (jnp.zeros(()), jnp.ones(())))[0]

        self._value, self._gradient, self._best_share = map(jax.jit, (of_shares, gradient, best_share))

    def value(self, visits: Visits) -> float:
        return float(self._in_double(self._value, visits / self.num_samples))

    def prices(self, visits: Visits, width: float) -> Visits:
        gradient = np.asarray(self._in_double(self._gradient, self._inner(visits)), np.float64)
        if not np.isfinite(gradient[self.is_reachable]).all():
            raise ValueError("the gradient of the utility is not finite where all states are visited: it has no ceiling")
        return np.where(self.is_reachable, gradient, 0.0) / self.num_samples

    def conjugate(self, prices: Visits, visits: Visits) -> float:
        shares = self._inner(visits)
        return float(self._in_double(self._value, shares) - self.num_samples * prices @ shares)

    def line_search(self, visits: Visits, target: Visits, width: float) -> Visits:
        """The best point between visits and target, by bisection in compiled code."""
        direction = target - visits
        share = self._in_double(self._best_share, visits / self.num_samples, direction / self.num_samples)
        return visits + float(share) * direction

    def _inner(self, visits: Visits) -> Visits:
        shares = np.where(self.is_reachable, np.maximum(visits / self.num_samples, _LEAST_SHARE), 0.0)
        return np.asarray(shares / shares.sum())

    def _in_double(self, function: Callable[..., Any], *shares: Visits) -> Any:
        with jax.enable_x64(True):
            return jax.device_get(function(*(jnp.asarray(each, jnp.float64) for each in shares)))


class Climbed(NamedTuple):
    """The best visits that were found, their value, and an upper bound on the value of all visits."""

    visits: Visits
    value: float
    bound: float


Concave = TeamEntropy | MixtureEntropy | MixtureUtility


def climb(
    flows: Flows,
    objective: Concave,
    num_agents: int,
    *,
    tolerance: float,
    is_relative: bool = True,
    time_limit: float | int,
    on_progress: Callable[[float, float], None] | None = None,
) -> Climbed:
    """Maximises the objective over the expected visits of all policies; stops early if the bound no longer improves.

    Args:
        tolerance: largest accepted difference between bound and value, relative to the value or in nats.
        time_limit: in seconds; at least one step is taken.
        on_progress: called with value and bound a few times a second.
    """
    ends_at = time.perf_counter() + time_limit
    reported_at, checked_at, last_bracket = 0.0, 1000, np.inf
    visits, bound, step = num_agents * flows.uniform_visits(), np.inf, 0
    while True:
        width = max(_LEAST_WIDTH, 1 / (1 + step / 20))
        prices = objective.prices(visits, width)
        earned, own_visits = flows.best_response(prices)
        bound = min(bound, num_agents * earned + objective.conjugate(prices, visits))
        value, now = objective.value(visits), time.perf_counter()
        if on_progress is not None and now - reported_at > 0.25:
            on_progress(value, bound)
            reported_at = now
        bracket = bound - value
        is_stuck = step == checked_at and bracket > 0.9 * last_bracket
        if bracket <= tolerance * (abs(value) if is_relative else 1) or now > ends_at or is_stuck:
            return Climbed(visits, value, bound)
        if step == checked_at:
            checked_at, last_bracket = 2 * step, bracket
        visits = objective.line_search(visits, num_agents * own_visits, width)
        step += 1
