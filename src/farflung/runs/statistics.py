"""Means over seeds with their intervals, and verdicts on claims."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float

from farflung.runs.run import Run

Verdict = Literal["holds", "does not hold", "undecided"]
_Claim = TypeVar("_Claim", bound=Any)


LEVEL = 0.05
"""The probability with which a true null hypothesis may be rejected."""


class Difference(NamedTuple):
    """An estimate with its 95% confidence interval over seeds, and the p-value (two-sided) of the hypothesis that it is 0."""

    value: float
    low: float
    high: float
    p_value: float

    @property
    def verdict(self) -> Verdict:
        """The verdict on the claim that the difference is positive."""
        return self.verdict_at(self.p_value)

    def verdict_at(self, p_value: float) -> Verdict:
        """The verdict if the p-value is this one, as after a correction for several claims."""
        if p_value >= LEVEL or self.value == 0:
            return "undecided"
        return "holds" if self.value > 0 else "does not hold"


def mean_and_interval(
    values: Float[np.ndarray, "seed *axes"],
) -> tuple[Float[np.ndarray, "*axes"], Float[np.ndarray, "*axes"] | None]:
    """The mean over the seeds and the half-width of its 95% confidence interval (Student's t); None with a single seed."""
    mean = np.asarray(values.mean(axis=0, dtype=np.float64))
    if len(values) < 2:
        return mean, None
    from scipy.special import stdtrit  # scipy.stats takes long to import

    standard_error = values.std(axis=0, ddof=1, dtype=np.float64) / np.sqrt(len(values))
    return mean, np.asarray(stdtrit(len(values) - 1, 0.975) * standard_error)


def wilson_interval(
    rates: Float[np.ndarray, "seed *axes"],
) -> tuple[Float[np.ndarray, "*axes"], Float[np.ndarray, "*axes"]] | None:
    """Wilson's 95% interval of success rates, within [0, 1]; None with a single seed.

    Each seed counts as one trial. That is conservative: a seed's rate of several attempts varies less than a single success.
    """
    if len(rates) < 2:
        return None
    from scipy.special import ndtri

    num, z, mean = len(rates), ndtri(0.975), rates.mean(axis=0, dtype=np.float64)
    middle = (mean + z**2 / (2 * num)) / (1 + z**2 / num)
    half_width = z / (1 + z**2 / num) * np.sqrt(mean * (1 - mean) / num + z**2 / (4 * num**2))
    return np.asarray((middle - half_width).clip(0, 1)), np.asarray((middle + half_width).clip(0, 1))


def final_table(run: Run) -> list[tuple[str, str, str, str]]:
    """The rows of a run's final table: metric, mean over the seeds, 95% interval, value with random actions."""
    randoms = run.summary.get("random", {})
    rows = [(name.replace("_", " "), values, randoms.get(name), 4) for name, values in run.summary["final"].items()]
    if "ceiling" in run.summary:
        bound = run.summary["ceiling"]["bound"]
        share = 100 * (randoms["entropy"] / bound if bound else 1.0) if randoms else None
        rows.append(("% of the ceiling", run.summary["percent_of_ceiling"], share, 2))
    if "below_bound" in (objective := run.summary.get("objective", {})):
        below = objective["bound"] - randoms["objective"] if "objective" in randoms else None
        rows.append(("objective: below its ceiling", objective["below_bound"], below, 4))
    table = []
    for name, values, random, decimals in rows:
        mean, half_width = mean_and_interval(np.asarray(values))
        interval = "" if half_width is None else f"± {half_width:.{decimals}f}"
        table.append((name, f"{mean:.{decimals}f}", interval, "" if random is None else f"{random:.{decimals}f}"))
    return table


def contrast(weights: Sequence[int], *samples: Float[np.ndarray, "_ *axes"]) -> Difference:
    """A weighted sum of the means of independent samples [seed, ...], by Welch's t-test.

    Values of one seed are averaged first. The samples may differ in their number of seeds and in their variance. With five
    seeds each, intervals of normal values cover the truth in 95 to 96% of the cases; bootstrap percentiles cover it in 88%.
    """
    by_seed = [np.asarray(sample, np.float64).reshape(len(sample), -1).mean(axis=1) for sample in samples]
    value = float(sum(weight * values.mean() for weight, values in zip(weights, by_seed, strict=True)))
    if min(map(len, by_seed)) < 2:
        return Difference(value, -np.inf, np.inf, 1.0)
    parts = np.array([weight**2 * values.var(ddof=1) / len(values) for weight, values in zip(weights, by_seed, strict=True)])
    error = float(np.sqrt(parts.sum()))
    if error <= 1e-12 * abs(value) or error == 0:
        return exact(value)
    from scipy.special import stdtr, stdtrit

    freedom = parts.sum() ** 2 / np.sum(parts**2 / np.array([len(values) - 1 for values in by_seed]))
    half_width = float(stdtrit(freedom, 1 - LEVEL / 2)) * error
    return Difference(value, value - half_width, value + half_width, float(2 * stdtr(freedom, -abs(value) / error)))


def exact(value: float) -> Difference:
    """A difference that was computed without sampling."""
    return Difference(value, value, value, float(value == 0))


def mean_difference(higher: Float[np.ndarray, "_ *axes"], lower: Float[np.ndarray, "_ *axes"]) -> Difference:
    """By how much the mean of the first exceeds the mean of the second."""
    return contrast((1, -1), higher, lower)


def spread_difference(wider: Float[np.ndarray, " _"], narrower: Float[np.ndarray, " _"]) -> Difference:
    """By how many powers of two the standard deviation of the first exceeds that of the second.

    Welch's t-test on the jackknife's pseudo-values of the logarithm (Miller, "Jackknifing variances", Annals of Mathematical
    Statistics 39, 1968), which unlike the F-test does not rely on normal values.
    """
    return mean_difference(_log_deviations(wider), _log_deviations(narrower))


def _log_deviations(values: Float[np.ndarray, " seed"]) -> Float[np.ndarray, " pseudo"]:
    """One pseudo-value per seed of the binary logarithm of the standard deviation."""
    number = len(values)
    if number < 3:
        return np.zeros(min(number, 1))

    def log_deviation(sample: np.ndarray) -> float:
        return float(np.log2(max(sample.std(ddof=1), np.finfo(float).tiny)))

    values = np.asarray(values, np.float64)
    others = np.array([log_deviation(np.delete(values, row)) for row in range(number)])
    return number * log_deviation(values) - (number - 1) * others


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of several hypotheses, corrected so that any wrong rejection among them stays as unlikely as one.

    Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6, 1979.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(order), 0, -1)
    corrected = np.empty(len(order))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(factors * np.asarray(p_values, np.float64)[order]))
    return corrected.tolist()


def corrected(claims: Iterable[_Claim]) -> list[_Claim]:
    """Claims by their statements, with p-values corrected within each statement by Holm's method.

    Args:
        claims: named tuples with a `statement`, a `difference` and its `p_holm`.
    """
    by_statement: dict[str, list[_Claim]] = {}
    for claim in claims:
        by_statement.setdefault(claim.statement, []).append(claim)
    return [
        claim._replace(p_holm=p_value)
        for own in by_statement.values()
        for claim, p_value in zip(own, holm([claim.difference.p_value for claim in own]), strict=True)
    ]
