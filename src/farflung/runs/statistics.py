"""Means over seeds with their intervals, and verdicts on claims."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

from farflung.runs.run import Run

Verdict = Literal["holds", "does not hold", "undecided"]


class Difference(NamedTuple):
    """An estimate with its 95% bootstrap interval over seeds."""

    value: float
    low: float
    high: float

    @property
    def verdict(self) -> Verdict:
        """The verdict on the claim that the difference is positive."""
        if self.low > 0:
            return "holds"
        return "does not hold" if self.high < 0 else "undecided"


def mean_and_interval(
    values: Float[np.ndarray, "seed *axes"],
) -> tuple[Float[np.ndarray, "*axes"], Float[np.ndarray, "*axes"] | None]:
    """The mean over the seeds and the half-width of its 95% confidence interval (Student's t); None with a single seed."""
    mean = np.asarray(values.mean(axis=0, dtype=np.float64))
    if len(values) < 2:
        return mean, None
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
    num, z, mean = len(rates), stats.norm.ppf(0.975), rates.mean(axis=0, dtype=np.float64)
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
    table = []
    for name, values, random, decimals in rows:
        mean, half_width = mean_and_interval(np.asarray(values))
        interval = "" if half_width is None else f"± {half_width:.{decimals}f}"
        table.append((name, f"{mean:.{decimals}f}", interval, "" if random is None else f"{random:.{decimals}f}"))
    return table


def bootstrap(statistic: Callable[..., Any], *samples: Float[np.ndarray, "_ *axes"]) -> Difference:
    """A statistic of independent samples [seed, ...] with its percentile bootstrap interval, which resamples whole seeds.

    The statistic takes the samples and `axis`, as NumPy's reductions do, and reduces all axes of a sample.
    """
    from scipy import stats  # takes long to import

    axes = tuple(range(-samples[0].ndim, 0))
    value = float(statistic(*samples, axis=axes))
    if min(len(sample) for sample in samples) < 2:
        return Difference(value, -np.inf, np.inf)

    def of_drawn(*drawn: np.ndarray, axis: int) -> Any:
        return statistic(*(sample[rows] for sample, rows in zip(samples, drawn, strict=True)), axis=axes)

    rows = [np.arange(len(sample)) for sample in samples]
    found = stats.bootstrap(
        rows, of_drawn, n_resamples=4999, vectorized=True, method="percentile", rng=np.random.default_rng(0)
    )
    return Difference(value, float(found.confidence_interval.low), float(found.confidence_interval.high))


def mean_difference(higher: Float[np.ndarray, "_ *axes"], lower: Float[np.ndarray, "_ *axes"]) -> Difference:
    """By how much the mean of the first exceeds the mean of the second."""
    return bootstrap(lambda one, other, axis: np.mean(one, axis) - np.mean(other, axis), higher, lower)


def spread_difference(wider: Float[np.ndarray, "_ *axes"], narrower: Float[np.ndarray, "_ *axes"]) -> Difference:
    """By how much the standard deviation of the first exceeds the standard deviation of the second."""
    return bootstrap(lambda one, other, axis: np.std(one, axis, ddof=1) - np.std(other, axis, ddof=1), wider, narrower)
