"""Algorithms compared over several tasks with few seeds, as rliable does (Agarwal et al., NeurIPS 2021)."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from farflung.config import METRICS
from farflung.config.checks import check_name
from farflung.runs.run import Run, final_values
from farflung.studies.compare.grouping import Grouped, by_algorithm_and_task
from farflung.training.metrics import Metrics

_NUM_RESAMPLES = 2000
_NUM_THRESHOLDS = 101
_NUM_POINTS = 40
_OPTIMA = {"normalized_entropy": 1.0, "percent_of_ceiling": 100.0}


class Estimate(NamedTuple):
    """A number or a curve with its 95% interval: a percentile bootstrap over seeds, stratified by task."""

    value: Float[np.ndarray, "*axes"]
    low: Float[np.ndarray, "*axes"]
    high: Float[np.ndarray, "*axes"]

    def as_json(self) -> dict[str, Any]:
        return {name: array.tolist() for name, array in self._asdict().items()}


@dataclass(frozen=True)
class Comparison:
    """What several algorithms reached on the same tasks."""

    metric: str
    tasks: tuple[str, ...]
    """Those that all algorithms were run on."""
    left_out: tuple[str, ...]
    """Those that only some of them were run on."""
    scores: dict[str, Float[np.ndarray, "seed task"]]
    """Each algorithm's final values."""
    aggregates: dict[str, dict[str, Estimate]]
    """For each algorithm the interquartile mean of all scores (`iqm`), `median` and `mean` of the tasks' means, and, where the
    metric has an optimum, by how much the scores miss it on average (`optimality_gap`)."""
    thresholds: Float[np.ndarray, " threshold"]
    profiles: dict[str, Estimate]
    """Which share of each algorithm's scores is above each threshold."""
    improvements: dict[tuple[str, str], Estimate]
    """How likely a run of the first algorithm ends above one of the second on the same task, averaged over the tasks."""
    steps: dict[str, Float[np.ndarray, " point"]]
    """Environment steps of one team, over the range that an algorithm's runs share."""
    curves: dict[str, Estimate]
    """The interquartile mean of the metric after so many steps."""

    def as_json(self) -> dict[str, Any]:
        """All of it in what JSON knows."""
        return {
            "metric": self.metric,
            "tasks": list(self.tasks),
            "left_out": list(self.left_out),
            "scores": {name: scores.tolist() for name, scores in self.scores.items()},
            "aggregates": {
                name: {measure: found.as_json() for measure, found in measures.items()}
                for name, measures in self.aggregates.items()
            },
            "probability_of_improvement": [
                {"better": better, "worse": worse, **found.as_json()} for (better, worse), found in self.improvements.items()
            ],
            "thresholds": self.thresholds.tolist(),
            "performance_profiles": {name: found.as_json() for name, found in self.profiles.items()},
            "sample_efficiency": {
                name: {"steps": self.steps[name].tolist(), **found.as_json()} for name, found in self.curves.items()
            },
        }


def compare(runs: Mapping[str, Sequence[Run]] | Sequence[Run], metric: str = "normalized_entropy") -> Comparison:
    """Compares algorithms by what their runs reached in the end, with rliable's estimates and intervals.

    Args:
        runs: those of each algorithm, by its name; without names, an algorithm is what the runs' settings differ in.
        metric: a field of `Metrics`, or `percent_of_ceiling`; more counts as better.
    """
    check_name("metric", metric, METRICS)
    _check_rliable()
    grouped = by_algorithm_and_task(runs)
    tasks, left_out = _shared_tasks(grouped)
    shared = {name: {task: its[task] for task in tasks} for name, its in grouped.items()}
    scores = {name: _scores(name, its, metric) for name, its in shared.items()}
    thresholds = _thresholds(np.concatenate([array.ravel() for array in scores.values()]))
    sampled = {name: _sampled(list(its.values()), metric) for name, its in shared.items()}
    return Comparison(
        metric=metric,
        tasks=tasks,
        left_out=left_out,
        scores=scores,
        aggregates={name: _aggregates(array, _OPTIMA.get(metric)) for name, array in scores.items()},
        thresholds=thresholds,
        profiles={
            name: _estimate(lambda drawn: np.mean(drawn[..., None] > thresholds, axis=(0, 1)), array)
            for name, array in scores.items()
        },
        improvements={
            (better, worse): _estimate(probability_of_improvement, scores[better], scores[worse])
            for better, worse in itertools.combinations(scores, 2)
        },
        steps={name: steps for name, (steps, _) in sampled.items()},
        curves={name: _estimate(interquartile_mean, values) for name, (_, values) in sampled.items()},
    )


def interquartile_mean(scores: Float[np.ndarray, "seed task *axes"]) -> Float[np.ndarray, "*axes"]:
    """The mean of the middle half of all scores.

    >>> float(interquartile_mean(np.array([[1.0, 2.0], [4.0, 100.0]])))
    3.0
    """
    ordered = np.sort(scores.reshape(-1, *scores.shape[2:]), axis=0)
    num_cut = len(ordered) // 4
    return np.asarray(ordered[num_cut : len(ordered) - num_cut].mean(axis=0))


def probability_of_improvement(scores: Float[np.ndarray, "seed task"], others: Float[np.ndarray, "other task"]) -> float:
    """How likely a score is above another of the same task, ties counted as half, averaged over the tasks.

    >>> probability_of_improvement(np.array([[2.0], [4.0]]), np.array([[1.0], [2.0]]))
    0.875
    """
    return float(np.mean(np.sign(scores[:, None] - others) + 1) / 2)


def _check_rliable() -> None:
    try:
        import rliable.library  # noqa: F401
    except (ImportError, TypeError):  # TypeError: arch, which rliable builds on, cannot be imported beside pandas 3
        raise ValueError("comparisons need rliable, and it needs pandas 2: pip install 'farflung[compare]'") from None


def _shared_tasks(grouped: Grouped) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tasks that all algorithms were run on, and the others."""
    if len(grouped) < 2:
        raise ValueError("the runs differ in nothing but their worlds and seeds: give them names to compare them nonetheless")
    tasks = list(dict.fromkeys(task for its in grouped.values() for task in its))
    shared = tuple(task for task in tasks if all(task in its for its in grouped.values()))
    if not shared:
        covered = "; ".join(f"{name} has {' and '.join(its)}" for name, its in grouped.items())
        raise ValueError(f"no task is common to all algorithms: {covered}")
    return shared, tuple(task for task in tasks if task not in shared)


def _scores(name: str, its: dict[str, Run], metric: str) -> Float[np.ndarray, "seed task"]:
    numbers = {task: len(run.config.seeds) for task, run in its.items()}
    if len(set(numbers.values())) > 1:
        found = ", ".join(f"{number} on {task}" for task, number in numbers.items())
        raise ValueError(f"{name} must have the same number of seeds on each task, not {found}")
    if min(numbers.values()) < 2:
        raise ValueError(f"{name} has one seed only: intervals need at least 2")
    columns = []
    for task, run in its.items():
        field, unit = _recorded_as(run, metric)
        if getattr(run.metrics, field) is None:
            raise ValueError(
                f"{metric} of {name} on {task} was not measured: it needs states that are vectors, and neighbours above 0"
            )
        columns.append(final_values(run.updates, run.metrics)[field] / unit)
        if not np.all(np.isfinite(columns[-1])):
            raise ValueError(f"{metric} of {name} on {task} is not a number for every seed: choose another metric")
    return np.stack(columns, axis=1)


def _recorded_as(run: Run, metric: str) -> tuple[str, float]:
    """The field of a run's metrics that holds the metric, and its unit there."""
    if metric in Metrics._fields:
        return metric, 1.0
    return "entropy", run.summary.get("ceiling", {}).get("bound", np.nan) / 100


def _thresholds(scores: Float[np.ndarray, " score"]) -> Float[np.ndarray, " threshold"]:
    low, high = scores.min(), scores.max()
    margin = 0.02 * (high - low) or 0.02 * abs(low) or 0.02
    return np.linspace(low - margin, high + margin, _NUM_THRESHOLDS)


def _sampled(runs: Sequence[Run], metric: str) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, "seed task point"]]:
    """The learning curves of one algorithm at the same numbers of environment steps, between the records interpolated."""
    last = min(int(run.steps[-1]) for run in runs)
    first = min(last, max(int(run.steps[0]) for run in runs))
    steps = np.geomspace(first, last, _NUM_POINTS)
    curves = []
    for run in runs:
        field, unit = _recorded_as(run, metric)
        records = np.asarray(getattr(run.metrics, field), dtype=np.float64)[:, run.is_spaced] / unit
        curves.append([np.interp(steps, run.steps[run.is_spaced], record) for record in records])
    return steps, np.stack(curves, axis=1)


def _aggregates(scores: Float[np.ndarray, "seed task"], optimum: float | None) -> dict[str, Estimate]:
    from rliable import metrics

    # Where rliable calls scipy for each sample, most of the time goes into checks and tests that nobody asked for.
    functions = {"iqm": interquartile_mean, "median": metrics.aggregate_median, "mean": metrics.aggregate_mean}
    if optimum is not None:
        functions["optimality_gap"] = partial(metrics.aggregate_optimality_gap, gamma=optimum)
    found = _estimate(lambda drawn: np.array([function(drawn) for function in functions.values()]), scores)
    return {name: Estimate(*column) for name, column in zip(functions, np.stack(found, axis=1), strict=True)}


def _estimate(function: Callable[..., Any], *scores: Float[np.ndarray, "_ task *axes"]) -> Estimate:
    """A function of one or several algorithms' scores with its interval; the same whatever else is estimated."""
    from rliable.library import get_interval_estimates

    with _fixed_randomness():
        values, intervals = get_interval_estimates({"": list(scores)}, function, reps=_NUM_RESAMPLES)
    value = np.asarray(values[""])
    return Estimate(value, *intervals[""].reshape(2, *value.shape))


@contextlib.contextmanager
def _fixed_randomness() -> Iterator[None]:
    # rliable draws from NumPy's global generator, whatever random state it is given.
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(0)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002
