"""Comparisons of algorithms over several tasks with few seeds, as in rliable (Agarwal et al., NeurIPS 2021)."""

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Float

from farflung.config import METRICS, Explore
from farflung.config.checks import check_name
from farflung.config.options import OFFLINE_METRICS
from farflung.data.offline import OfflineScores, Reached
from farflung.data.rewards import Learned
from farflung.runs.pooling import check_seeds, settings_but_seeds
from farflung.runs.run import Run, final_values
from farflung.runs.statistics import mean_and_interval
from farflung.training.metrics import Metrics

_NUM_RESAMPLES = 2000
_NUM_THRESHOLDS = 101
_NUM_POINTS = 40
_OPTIMA = {"normalized_entropy": 1.0, "percent_of_ceiling": 100.0, "success": 1.0}
_SIZES = {"agents": "m", "trajectories": "K"}
_BASELINES = ("single", "independent")
_NOT_METHOD = {"world", "horizon", "slip", "seeds", "log_every", "preset", *_SIZES, *_BASELINES}
_SAME_TASK = {"world", "horizon", "slip", "log_every", "preset"}
"""Settings in which runs of one algorithm on one task may differ."""
_NAMED_BY_VALUE = ("objective", "credit", "optimizer")
_DEFAULT_DEPENDS_ON = {"learning_rate": "optimizer", "decay": "updates", "bonus_decay": "updates"}

Result = Run | Reached | Learned | OfflineScores
"""What can be compared."""
Grouped = dict[str, dict[str, list[Run]]]
"""The runs of each algorithm on each task, with different seeds: [algorithm][task]."""


class Estimate(NamedTuple):
    """A number or a curve with its 95% interval: a percentile bootstrap over seeds, stratified by task."""

    value: Float[np.ndarray, "*axes"]
    low: Float[np.ndarray, "*axes"]
    high: Float[np.ndarray, "*axes"]

    def as_json(self) -> dict[str, Any]:
        return {name: array.tolist() for name, array in self._asdict().items()}


@dataclass(frozen=True)
class Comparison:
    """The results of several algorithms on the same tasks."""

    metric: str
    tasks: tuple[str, ...]
    """The tasks that all algorithms were run on."""
    left_out: tuple[str, ...]
    """The tasks that only some algorithms were run on."""
    scores: dict[str, Float[np.ndarray, "seed task"]]
    """The final values of each algorithm."""
    aggregates: dict[str, dict[str, Estimate]]
    """For each algorithm the interquartile mean of all scores (`iqm`), `median` and `mean` of the tasks' means and, if the
    metric has an optimum, the mean distance of the scores from it (`optimality_gap`)."""
    thresholds: Float[np.ndarray, " threshold"]
    profiles: dict[str, Estimate]
    """The share of each algorithm's scores above each threshold."""
    improvements: dict[tuple[str, str], Estimate]
    """The probability that a run of the first algorithm scores above a run of the second, averaged over the tasks."""
    steps: dict[str, Float[np.ndarray, " point"]]
    """Environment steps of one team, over the range that all runs of an algorithm share; empty for offline results."""
    curves: dict[str, Estimate]
    """The interquartile mean of the metric after these steps."""

    def as_json(self) -> dict[str, Any]:
        """The comparison as lists, dicts, strings and numbers."""
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


def compare(runs: Mapping[str, Sequence[Result]] | Sequence[Result], metric: str | None = None) -> Comparison:
    """Compares algorithms by the final values of their runs, with rliable's estimates and intervals.

    Runs of the same settings and different seeds are pooled.

    Args:
        runs: the runs of each algorithm, by its name, or the results of `learn_offline`; runs without names are grouped by the
            settings in which they differ.
        metric: a field of `Metrics`, or `percent_of_ceiling`; of offline results `success`, `score` or `return`. Larger counts
            as better. By default `normalized_entropy`, or what the offline results have.
    """
    if not has_rliable():
        needed = "comparisons need rliable, and it needs pandas 2"
        raise ValueError(f"{needed}: pip install '.[compare]', in a clone of farflung")
    every = [run for group in runs.values() for run in group] if isinstance(runs, Mapping) else list(runs)
    are_runs = [isinstance(run, Run) for run in every]
    if any(are_runs) and not all(are_runs):
        raise ValueError("either all are runs or all are offline results: the two have no metric in common")
    if not all(are_runs):
        return _compare_offline(runs, metric)
    metric = metric or "normalized_entropy"
    check_name("metric", metric, METRICS)
    grouped = by_algorithm_and_task(cast(Any, runs))
    tasks, left_out = _shared_tasks(grouped)
    shared = {name: {task: runs[task] for task in tasks} for name, runs in grouped.items()}
    scores = {name: _scores(name, runs, metric) for name, runs in shared.items()}
    sampled = {name: _sampled(list(runs.values()), metric) for name, runs in shared.items()}
    return _compared(metric, tasks, left_out, scores, sampled)


def _compare_offline(results: Any, metric: str | None) -> Comparison:
    """Compares methods or datasets by what was learnt offline."""
    if isinstance(results, Mapping):
        named = [(name, OfflineScores.of(each)) for name, group in results.items() for each in group]
    else:
        found = [OfflineScores.of(each) for each in results]
        named = list(zip(_offline_names(found), found, strict=True))
    have = [name for name in OFFLINE_METRICS if all(name in each.values for _, each in named)]
    if not have:
        raise ValueError("some results are of goals and others of rewards: they have no metric in common")
    metric = metric or have[0]
    check_name("metric", metric, OFFLINE_METRICS)
    if metric not in have:
        raise ValueError(
            f"not all results have a {metric}: a score needs a reference, given with --reference; all have {have[0]}"
        )
    grouped: dict[str, dict[str, OfflineScores]] = {name: {} for name, _ in named}
    for name, each in named:
        if each.task in grouped[name]:
            raise ValueError(f"{name or 'one algorithm'} has several results on {each.task}: give them different names")
        grouped[name][each.task] = each
    tasks, left_out = _shared_tasks(grouped)
    scores = {}
    for name, by_task in grouped.items():
        columns = [np.asarray(by_task[task].values[metric], np.float64) for task in tasks]
        if min(map(len, columns)) < 2 or len(set(map(len, columns))) > 1:
            raise ValueError(f"{name} needs at least 2 seeds, and the same number on each task")
        scores[name] = np.stack(columns, axis=1)
    return _compared(metric, tasks, left_out, scores, {})


def _offline_names(found: Sequence[OfflineScores]) -> list[str]:
    """The methods and the datasets, as far as they differ."""
    has_methods, has_datasets = (len({getattr(each, name) for each in found}) > 1 for name in ("method", "dataset"))
    return [_joined(each.method * has_methods, each.dataset * has_datasets) for each in found]


def _compared(
    metric: str,
    tasks: tuple[str, ...],
    left_out: tuple[str, ...],
    scores: dict[str, Float[np.ndarray, "seed task"]],
    sampled: dict[str, tuple[Float[np.ndarray, " point"], Float[np.ndarray, "seed task point"]]],
) -> Comparison:
    every_score = np.concatenate([array.ravel() for array in scores.values()])
    low, high = every_score.min(), every_score.max()
    margin = 0.02 * (high - low) or 0.02 * abs(low) or 0.02
    thresholds = np.linspace(low - margin, high + margin, _NUM_THRESHOLDS)
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
    """The probability that a score is above another score of the same task, averaged over the tasks; ties count half.

    >>> probability_of_improvement(np.array([[2.0], [4.0]]), np.array([[1.0], [2.0]]))
    0.875
    """
    return float(np.mean(np.sign(scores[:, None] - others) + 1) / 2)


def _shared_tasks(grouped: Mapping[str, Mapping[str, Any]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tasks that all algorithms were run on, and the others."""
    if len(grouped) < 2:
        raise ValueError("the runs differ in nothing but their worlds and seeds: give them names to compare them anyway")
    tasks = list(dict.fromkeys(task for runs in grouped.values() for task in runs))
    shared = tuple(task for task in tasks if all(task in runs for runs in grouped.values()))
    if not shared:
        covered = "; ".join(f"{name} has {' and '.join(runs)}" for name, runs in grouped.items())
        raise ValueError(f"no task is common to all algorithms: {covered}")
    return shared, tuple(task for task in tasks if task not in shared)


def _scores(name: str, runs: dict[str, list[Run]], metric: str) -> Float[np.ndarray, "seed task"]:
    numbers = {task: sum(len(run.config.seeds) for run in own) for task, own in runs.items()}
    if len(set(numbers.values())) > 1:
        found = ", ".join(f"{number} on {task}" for task, number in numbers.items())
        raise ValueError(f"{name} must have the same number of seeds on each task, not {found}")
    if min(numbers.values()) < 2:
        raise ValueError(f"{name} has one seed only: intervals need at least 2")
    columns = []
    for task, own in runs.items():
        parts = []
        for run in own:
            field, unit = _recorded_as(run, metric)
            if getattr(run.metrics, field) is None:
                raise ValueError(
                    f"{metric} of {name} on {task} was not measured: it needs states that are vectors, and neighbours above 0"
                )
            parts.append(final_values(run.updates, run.metrics)[field] / unit)
        columns.append(np.concatenate(parts))
        if not np.all(np.isfinite(columns[-1])):
            raise ValueError(f"{metric} of {name} on {task} is not a number for every seed: choose another metric")
    return np.stack(columns, axis=1)


def _recorded_as(run: Run, metric: str) -> tuple[str, float]:
    """The field of a run's metrics that the metric is computed from, and the number to divide it by."""
    if metric in Metrics._fields:
        return metric, 1.0
    return "entropy", run.summary.get("ceiling", {}).get("bound", np.nan) / 100


def _sampled(
    runs: Sequence[Sequence[Run]], metric: str
) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, "seed task point"]]:
    """The learning curves of one algorithm on each task, interpolated at the same numbers of environment steps."""
    every = [run for own in runs for run in own]
    last = min(int(run.steps[-1]) for run in every)
    first = min(last, max(int(run.steps[0]) for run in every))
    steps = np.geomspace(first, last, _NUM_POINTS)

    def curves(run: Run) -> list[Float[np.ndarray, " point"]]:
        field, unit = _recorded_as(run, metric)
        records = np.asarray(getattr(run.metrics, field), dtype=np.float64)[:, run.is_spaced] / unit
        return [np.interp(steps, run.steps[run.is_spaced], record) for record in records]

    return steps, np.stack([[curve for run in own for curve in curves(run)] for own in runs], axis=1)


def _aggregates(scores: Float[np.ndarray, "seed task"], optimum: float | None) -> dict[str, Estimate]:
    from rliable import metrics

    # rliable's own functions call scipy for each sample, which spends most of the time on checks.
    functions = {"iqm": interquartile_mean, "median": metrics.aggregate_median, "mean": metrics.aggregate_mean}
    if optimum is not None:
        functions["optimality_gap"] = partial(metrics.aggregate_optimality_gap, gamma=optimum)
    found = _estimate(lambda drawn: np.array([function(drawn) for function in functions.values()]), scores)
    return {name: Estimate(*column) for name, column in zip(functions, np.stack(found, axis=1), strict=True)}


def interval_of_mean(scores: Float[np.ndarray, "seed task *axes"]) -> Estimate:
    """The mean over seeds and tasks with rliable's interval; without rliable, which is an extra, with Student's over seeds."""
    if has_rliable():
        found = _estimate(lambda drawn: np.atleast_1d(drawn.mean(axis=(0, 1))), scores)
        return Estimate(*(part.reshape(scores.shape[2:]) for part in found))
    mean, half_width = mean_and_interval(scores.mean(axis=1))
    half = np.full_like(mean, np.nan) if half_width is None else half_width
    return Estimate(mean, np.asarray(mean - half), np.asarray(mean + half))


def has_rliable() -> bool:
    """Whether rliable can be imported."""
    try:
        import rliable.library  # noqa: F401
    except (ImportError, TypeError):  # TypeError: arch, which rliable builds on, cannot be imported beside pandas 3
        return False
    return True


def _estimate(function: Callable[..., Any], *scores: Float[np.ndarray, "_ task *axes"]) -> Estimate:
    """A function of one or several algorithms' scores with its interval; independent of all other estimates."""
    from rliable.library import get_interval_estimates

    # rliable draws from NumPy's global generator, even if it gets a random state.
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(0)  # noqa: NPY002
    try:
        values, intervals = get_interval_estimates({"": list(scores)}, function, reps=_NUM_RESAMPLES)
    finally:
        np.random.set_state(before)  # noqa: NPY002
    value = np.asarray(values[""])
    return Estimate(value, *intervals[""].reshape(2, *value.shape))


def by_algorithm_and_task(runs: Mapping[str, Sequence[Run]] | Sequence[Run]) -> Grouped:
    """Groups runs by algorithm and task.

    An algorithm is a name or, without names, the settings in which the runs differ. A task is a world with its horizon; if
    algorithms were run in one world with several numbers of agents or trajectories, each of these numbers is a task.

    Raises ValueError if an algorithm has two runs of different settings on a task, or a seed twice.
    """
    if isinstance(runs, Mapping):
        names = [name for name, group in runs.items() for _ in group]
        runs = [run for group in runs.values() for run in group]
    else:
        names = _algorithm_names([run.config for run in runs])
    tasks = _world_names(runs)
    sizes_of: dict[tuple[str, str], set[tuple[int, ...]]] = {}
    for name, task, run in zip(names, tasks, runs, strict=True):
        sizes_of.setdefault((name, task), set()).add(tuple(getattr(run.config, size) for size in _SIZES))
    if any(len(found) > 1 for found in sizes_of.values()):
        sizes = _sizes([run.config for run in runs])
        tasks = [_joined(task, size) for task, size in zip(tasks, sizes, strict=True)]
    grouped: Grouped = {name: {} for name in names}
    for name, task, run in zip(names, tasks, runs, strict=True):
        grouped[name].setdefault(task, []).append(run)
    for name, own in grouped.items():
        for task, together in own.items():
            if len({settings_but_seeds(run.config, _SAME_TASK) for run in together}) > 1:
                raise ValueError(
                    f"{name or 'one algorithm'} has runs of different settings on {task}: "
                    "leave runs out, or give them different names"
                )
            numbers = range(1, len(together) + 1)
            check_seeds(together, [f"run {number} of {name or 'one algorithm'} on {task}" for number in numbers])
    return grouped


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _algorithm_names(configs: Sequence[Explore]) -> list[str]:
    """A name for each config: its differences from the others, with the team size unless all methods have the same sizes."""
    names, sizes = _method_names(configs), _sizes(configs)
    sizes_of = {name: {size for size, other in zip(sizes, names, strict=True) if other == name} for name in names}
    if len(sizes_of) > 1 and all(found == sizes_of[names[0]] for found in sizes_of.values()):
        return names
    return [_joined(name, size) for name, size in zip(names, sizes, strict=True)]


def _method_names(configs: Sequence[Explore]) -> list[str]:
    """The setting in which the configs differ or, if there are several, those that differ from the preset."""
    others = [field.name for field in fields(Explore) if field.name not in _NOT_METHOD]
    shown = [name for name in others if _distinguishes(name, configs)]
    kinds = [next((name for name in _BASELINES if getattr(config, name)), "parallel") for config in configs]
    presets = [config.preset for config in configs]
    has_kinds, has_presets = len(set(kinds)) > 1, len(set(presets)) > 1
    is_the_only_one = has_kinds + has_presets + len(shown) == 1
    names = []
    for config, kind, preset in zip(configs, kinds, presets, strict=True):
        parts = [kind] * has_kinds + [preset] * has_presets
        parts += [_phrase(config, name) for name in shown if is_the_only_one or not _is_default(config, name)]
        names.append(_joined(*(parts or [preset] * bool(shown))))
    return names


def _distinguishes(name: str, configs: Sequence[Explore]) -> bool:
    """Whether a setting differs between configs, and not only because its default depends on another setting."""
    choices = {(getattr(config, name), _is_default(config, name)) for config in configs}
    return len(choices) > 1 and not all(is_default for _, is_default in choices)


def _is_default(config: Explore, name: str) -> bool:
    """Whether a setting has the value that the preset gives it."""
    given: dict[str, Any] = {"preset": config.preset}
    if name in _DEFAULT_DEPENDS_ON:
        given[_DEFAULT_DEPENDS_ON[name]] = getattr(config, _DEFAULT_DEPENDS_ON[name])
    if name != "algorithm":
        given["algorithm"] = config.algorithm
    default = Explore(config.world, **given)
    return bool(getattr(config, name) == getattr(default.resolved(has_vectors=True) if config.is_neural else default, name))


def _phrase(config: Explore, name: str) -> str:
    words, value = name.replace("_", " "), getattr(config, name)
    if isinstance(value, bool):
        return words if value else f"no {words}"
    if name in _NAMED_BY_VALUE:
        return str(value)
    return f"{words} {value:g}" if isinstance(value, float) else f"{words} {value}"


def _sizes(configs: Sequence[Explore]) -> list[str]:
    """The size of each config's team: those of agents and trajectories that differ."""
    shown = [name for name in _SIZES if len({getattr(config, name) for config in configs}) > 1]
    return [_joined(*(f"{_SIZES[name]} = {getattr(config, name)}" for name in shown)) for config in configs]


def _world_names(runs: Sequence[Run]) -> list[str]:
    """A name for each run's world; two runs have the same name if and only if their worlds are the same task."""
    worlds: dict[Hashable, Run] = {}
    for run in runs:
        worlds.setdefault(run.world.identity, run)
    names: dict[Hashable, str] = {}
    for identity, run in worlds.items():
        namesakes = [other for other in worlds.values() if other.config.world == run.config.world]
        parts = [run.config.world]
        if len({other.world.horizon for other in namesakes}) > 1:
            parts.append(f"T = {run.world.horizon}")
        if len({other.config.slip for other in namesakes}) > 1 and run.config.slip is not None:
            parts.append(f"slip {run.config.slip:g}")
        name = _joined(*parts)
        numbered = (f"{name} ({number})" for number in itertools.count(2))
        names[identity] = next(each for each in itertools.chain([name], numbered) if each not in names.values())
    return [names[run.world.identity] for run in runs]
