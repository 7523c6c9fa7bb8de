r"""Ceilings for worlds of any size: Frank-Wolfe on the expected visits, with a valid bound after every step.

Let Y be the set of expected visits $y$ of policies, and $f(y) = \sum_s f_s(y_s)$ concave. For any prices $g$ of the states

$$\max_{y \in Y} f(y) \le \max_{y \in Y} \langle g, y \rangle + \sum_s \max_{x \ge 0} (f_s(x) - g_s x).$$

Backward induction solves the first term; the second has a closed form. If $g$ is the gradient of f at some y, the right side is
$f(y)$ plus the Frank-Wolfe gap at y.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from farflung.bounds.flows import Flows

Visits = Float[np.ndarray, " state"]
_LEAST = 1e-300
_LEAST_WIDTH = 0.05


class TeamEntropy:
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

    def conjugate(self, prices: Visits) -> float:
        r"""$\sum_s \max_x (f_s(x) - g_s x)$."""
        counts = np.minimum(np.searchsorted(-self.gains, -prices), self.most_visits)
        return float(np.sum(self.terms[counts] - prices * counts))

    def _interpolated(self, visits: Visits) -> Visits:
        last = len(self.gains)
        within = np.interp(visits, self._counts, self.terms)
        return within + self.gains[0] * np.minimum(visits, 0) + self.gains[-1] * np.maximum(visits - last, 0)


class MixtureEntropy:
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

    def conjugate(self, prices: Visits) -> float:
        return float(np.sum(np.exp(-1 - prices * self.num_samples)[self.is_reachable]))


class Climbed(NamedTuple):
    """The best visits that were found, their value, and an upper bound on the value of all visits."""

    visits: Visits
    value: float
    bound: float


def climb(
    flows: Flows,
    objective: TeamEntropy | MixtureEntropy,
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
        bound = min(bound, num_agents * earned + objective.conjugate(prices))
        value, now = objective.value(visits), time.perf_counter()
        if on_progress is not None and now - reported_at > 0.25:
            on_progress(value, bound)
            reported_at = now
        bracket = bound - value
        is_stuck = step == checked_at and bracket > 0.9 * last_bracket
        if bracket <= tolerance * (value if is_relative else 1) or now > ends_at or is_stuck:
            return Climbed(visits, value, bound)
        if step == checked_at:
            checked_at, last_bracket = 2 * step, bracket
        visits = _line_search(objective, visits, num_agents * own_visits, width)
        step += 1


def _line_search(objective: TeamEntropy | MixtureEntropy, visits: Visits, target: Visits, width: float) -> Visits:
    """The best point between visits and target: the slope changes its sign there."""
    direction = target - visits
    slope = lambda share: objective.prices(visits + share * direction, width) @ direction  # noqa: E731
    if slope(1.0) >= 0:
        return target
    from scipy.optimize import brentq

    return visits + brentq(slope, 0.0, 1.0, xtol=1e-8) * direction if slope(0.0) > 0 else visits
