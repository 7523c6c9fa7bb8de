r"""The paper's theorems as functions, and sharper bounds from the literature.

Entropies are in nats. `docs/theory.md` discusses the proofs.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

from farflung.config.checks import check_positive, check_probability, whole_number

_TOLERANCE = 1e-6

Distribution = Sequence[float] | Float[np.ndarray, " state"]


def variance(distribution: Distribution) -> float:
    r"""$\mathrm{Var}(d) = \sum_s d(s) (1 - d(s))$, as Theorem 4.1 uses it.

    >>> variance([0.5, 0.5])
    0.5
    """
    shares = check_distribution(distribution)
    return float(np.sum(shares * (1 - shares)))


def deviation_probability(distribution: Distribution, num_samples: int, epsilon: float) -> float:
    r"""Theorem 4.1: an upper bound on the probability that the entropy of n independent samples of d is more than ε too low.

    $2 S \exp\left(-\frac{n \epsilon^2 \mathrm{Var}(d)}{2 S^3 \mathcal{H}(d)^2}\right)$, and at most 1.
    """
    shares = check_distribution(distribution)
    check_positive("epsilon", epsilon)
    entropy = stats.entropy(shares)
    if entropy == 0:
        return 0.0  # the limit: the samples have entropy 0 too
    exponent = _whole_samples(num_samples) * epsilon**2 * variance(shares) / (2 * len(shares) ** 3 * entropy**2)
    return min(1.0, 2 * len(shares) * math.exp(-exponent))


def samples_needed(distribution: Distribution, epsilon: float, delta: float) -> int:
    r"""Theorem 4.1 solved for n: the samples after which the entropy is at most ε too low, with probability 1 - δ.

    $\frac{2 S^3 \mathcal{H}(d)^2}{\epsilon^2 \mathrm{Var}(d)} \ln \frac{2 S}{\delta}$
    """
    shares = check_distribution(distribution)
    check_positive("epsilon", epsilon)
    check_probability("delta", delta)
    entropy = stats.entropy(shares)
    if entropy == 0:
        return 1
    factor = 2 * len(shares) ** 3 * entropy**2 / (epsilon**2 * variance(shares))
    return max(1, math.ceil(factor * math.log(2 * len(shares) / delta)))


def bias_bound(num_states: int, num_samples: int) -> float:
    r"""An upper bound on how much n samples underestimate the entropy on average: $\log(1 + \frac{S - 1}{n})$.

    Paninski, "Estimation of Entropy and Mutual Information", Neural Computation 15, 2003, Proposition 1.
    """
    return math.log1p((whole_number("num_states", num_states) - 1) / _whole_samples(num_samples))


def largest_change(num_samples: int) -> float:
    r"""The largest change of the entropy of n samples when one sample changes: the entropy of a coin with odds 1 : n - 1.

    Moving a sample from a state seen k times to one seen j times changes the entropy by $g(j) - g(k - 1)$, where
    $g(j) = h(\frac{j + 1}{n}) - h(\frac{j}{n})$ falls with j. So the change is largest for j = 0 and k = n.

    >>> largest_change(2) == math.log(2)
    True
    """
    share = 1 / _whole_samples(num_samples)
    return float(stats.entropy([share, 1 - share]))


def sharper_deviation_probability(num_states: int, num_samples: int, epsilon: float) -> float:
    r"""A sharper bound on the probability of Theorem 4.1, for any distribution over S states, by bounded differences.

    $\exp\left(-\frac{2 (\epsilon - b)^2}{n c^2}\right)$ with the bias b of `bias_bound` and the change c of `largest_change`; 1
    if ε is at most b. McDiarmid, "On the method of bounded differences", 1989; for entropies Antos and Kontoyiannis,
    "Convergence properties of functional estimates for discrete distributions", Random Structures & Algorithms 19, 2001.
    """
    check_positive("epsilon", epsilon)
    margin = epsilon - bias_bound(num_states, num_samples)
    change = largest_change(num_samples)
    if margin <= 0:
        return 1.0
    return math.exp(-2 * margin**2 / (num_samples * change**2)) if change > 0 else 0.0


def sharper_samples_needed(num_states: int, epsilon: float, delta: float) -> int:
    """The smallest n such that `sharper_deviation_probability` is at most δ for n and all larger numbers."""
    check_positive("epsilon", epsilon)
    check_probability("delta", delta)

    def is_enough(number: int) -> bool:
        return sharper_deviation_probability(num_states, number, epsilon) <= delta

    high = 4  # the probability decreases from here on
    while not is_enough(high):
        high *= 2
    number = bisect_left(range(high), True, lo=high // 2 + 1 if high > 4 else 4, key=is_enough)
    while number > 1 and is_enough(number - 1):
        number -= 1
    return number


class Decomposition(NamedTuple):
    """The entropy of a mixture, and its two summands (section 4 of the paper)."""

    mixture: float
    individual: float
    """The mean entropy of the agents' own distributions."""
    diversity: float
    """The mean KL divergence of the agents' distributions from their mixture."""


def mixture_decomposition(distributions: Float[np.ndarray, "agent state"]) -> Decomposition:
    r"""$\mathcal{H}(\bar d) = \frac1m \sum_i \mathcal{H}(d_i) + \frac1m \sum_i D_{KL}(d_i \| \bar d)$ (section 4)."""
    shares = np.stack([check_distribution(each) for each in distributions])
    mixture = shares.mean(axis=0)
    individual = float(np.mean(stats.entropy(shares, axis=1)))
    return Decomposition(
        float(stats.entropy(mixture)), individual, float(np.mean(stats.entropy(shares, mixture[None], axis=1)))
    )


def disjoint_mixture_entropy(entropies: Sequence[float]) -> float:
    r"""The entropy of a team whose agents share no state: $\frac1m \sum_i \mathcal{H}(d_i) + \log m$ (section 4 of the paper).

    >>> disjoint_mixture_entropy([0.0, 0.0]) == math.log(2)
    True
    """
    return float(np.mean(entropies)) + math.log(len(entropies))


class SmoothedEntropy(NamedTuple):
    r"""$\mathcal{H}_\sigma(d) = -\sum_s (d(s) + \sigma) \log(d(s) + \sigma)$, a smooth entropy for the convergence theorem.

    The entropy itself is not smooth at the edge of the simplex, and its gradient is unbounded there.
    """

    smoothing: float

    @property
    def smoothness(self) -> float:
        r"""β: $|\partial^2 \mathcal{H}_\sigma| = \frac{1}{d(s) + \sigma} \le \frac{1}{\sigma}$."""
        return 1 / self.smoothing

    @property
    def gradient_bound(self) -> float:
        r"""B: $|\partial \mathcal{H}_\sigma| = |1 + \log(d(s) + \sigma)| \le B$."""
        return max(abs(1 + math.log(self.smoothing)), 1 + math.log1p(self.smoothing))

    @property
    def price_range(self) -> float:
        """The largest difference between two components of the gradient."""
        return math.log1p(1 / self.smoothing)


def density_samples(num_states: int, tolerance: float, delta: float = 0.05) -> int:
    r"""The trajectories that estimate a state distribution up to ε in every state, with probability 1 - δ.

    $\frac{1}{2 \epsilon^2} \ln \frac{2 S}{\delta}$, by Hoeffding's inequality for each state and the union bound.
    """
    check_positive("tolerance", tolerance)
    check_probability("delta", delta)
    return math.ceil(math.log(2 * num_states / delta) / (2 * tolerance**2))


def planning_samples(
    num_states: int, num_actions: int, horizon: int, price_range: float, tolerance: float, delta: float = 0.05
) -> int:
    r"""The samples of each state and action from which a model loses at most ε in planning, with probability 1 - δ.

    $\frac{(2 T R)^2}{2 \epsilon^2} \ln \frac{2 S A T}{\delta}$, where R bounds the range of the mean price of an episode's
    states. Each of T steps of backward induction adds an error of at most $R \sqrt{\ln(2 S A T / \delta) / 2n}$ (Hoeffding)
    to the values, and a plan loses at most twice the error of the values.
    """
    check_positive("tolerance", tolerance)
    check_probability("delta", delta)
    times = (2 * horizon * price_range) ** 2 / (2 * tolerance**2)
    return math.ceil(times * math.log(2 * num_states * num_actions * horizon / delta))


def frank_wolfe_step_size(num_states: int, num_agents: int, epsilon: float, objective: SmoothedEntropy) -> float:
    r"""The step size of the theorem "Convergence Rate": $\eta = 0.1 N \epsilon / (|S| \beta)$."""
    check_positive("epsilon", epsilon)
    return 0.1 * num_agents * epsilon / (num_states * objective.smoothness)


def frank_wolfe_iterations(num_states: int, num_agents: int, epsilon: float, objective: SmoothedEntropy) -> int:
    r"""The iterations of the theorem "Convergence Rate": $10 \beta |S| N^{-1} \epsilon^{-1} \log(10 B / \epsilon)$."""
    step_size = frank_wolfe_step_size(num_states, num_agents, epsilon, objective)
    return max(1, math.ceil(math.log(10 * objective.gradient_bound / epsilon) / step_size))


def frank_wolfe_gap(
    iteration: int,
    step_size: float,
    num_states: int,
    num_agents: int,
    objective: SmoothedEntropy,
    *,
    density_error: float = 0.0,
    planning_error: float = 0.0,
) -> float:
    r"""The theorem's bound on the distance of the mixture from the optimum after some iterations.

    $B e^{-\eta T} + 2 \beta \epsilon_0 + \epsilon_1 + \frac{\eta \beta |S|}{N}$. The last term shrinks with 1/N only if
    the agents' plans deviate from the mixture independently of each other, not if all agents plan the same (`docs/theory.md`).
    """
    beta = objective.smoothness
    start = objective.gradient_bound * math.exp(-step_size * iteration)
    return start + 2 * beta * density_error + planning_error + step_size * beta * num_states / num_agents


def check_distribution(distribution: Distribution) -> Float[np.ndarray, " state"]:
    """The distribution as an array; raises ValueError if it is none."""
    shares = np.asarray(distribution, dtype=np.float64)
    if shares.ndim != 1 or len(shares) == 0:
        raise ValueError(f"a distribution must be a list of probabilities, not an array of shape {shares.shape}")
    if not np.isfinite(shares).all() or (shares < 0).any():
        raise ValueError("the probabilities of a distribution must be finite and not negative")
    if abs(shares.sum() - 1) > _TOLERANCE:
        raise ValueError(f"probabilities must add up to one, not {shares.sum():.6g}: divide them by their sum")
    return np.asarray(shares / shares.sum())


def _whole_samples(number: int) -> int:
    """The number itself, without the usual upper limit: samples of a bound are never drawn."""
    return whole_number("num_samples", number, math.inf)
