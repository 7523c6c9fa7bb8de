"""Runs of the same settings and different seeds, which may come from several machines, as one run."""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from farflung.config import Explore
from farflung.config.options import PER_SEED
from farflung.runs.run import Run, final_values, load_run

_SUMS = ("environment_steps", "seconds", "compile_seconds", "broken_episodes")


def load_runs(*paths: str | Path) -> list[Run]:
    """Reads runs; runs of the same settings in the same world become one run with the seeds of all of them."""
    return pooled([load_run(path) for path in paths], [str(path) for path in paths])


def pooled(runs: Sequence[Run], names: Sequence[str] = ()) -> list[Run]:
    """One run for each combination of settings and world, in the order in which they first appear.

    Raises ValueError if a seed appears twice, or if runs of the same settings recorded different updates.

    Args:
        names: what an error calls the runs.
    """
    names = names or [f"run {number + 1} in {run.config.world}" for number, run in enumerate(runs)]
    alike: dict[Hashable, list[int]] = {}
    for number, run in enumerate(runs):
        alike.setdefault((settings_but_seeds(run.config), run.world.identity), []).append(number)
    for numbers in alike.values():
        check_seeds([runs[number] for number in numbers], [names[number] for number in numbers])
    return [_joined([runs[number] for number in numbers]) for numbers in alike.values()]


def settings_but_seeds(config: Explore, ignored: Collection[str] = ()) -> Hashable:
    """Equal for configs that differ in nothing but their seeds, and in the settings that are ignored."""
    values = {field.name: getattr(config, field.name) for field in fields(config) if field.name not in {"seeds", *ignored}}
    return tuple((name, "one per seed" if _is_per_seed(name, value) else value) for name, value in values.items())


def check_seeds(runs: Sequence[Run], names: Sequence[str]) -> None:
    """Raises ValueError if a seed is in two runs, since that would count as two independent trainings."""
    first: dict[int, str] = {}
    for run, name in zip(runs, names, strict=True):
        for seed in run.config.seeds:
            if seed in first:
                raise ValueError(f"seed {seed} of the same settings is in {first[seed]} and in {name}: leave one of them out")
            first[seed] = name


def _is_per_seed(name: str, value: Any) -> bool:
    return name in PER_SEED and isinstance(value, tuple)


def _joined(runs: Sequence[Run]) -> Run:
    if len(runs) == 1:
        return runs[0]
    first, world = runs[0], runs[0].config.world
    if not first.world.knows_all_states and first.world.projection is None:
        why = "the states were numbered in the order in which each training met them"
        raise ValueError(f"runs in {world} cannot become one run, since {why}: farflung compare pools their scores")
    if any(not np.array_equal(run.updates, first.updates) for run in runs):
        found = " and ".join(map(str, dict.fromkeys(int(run.updates[-1]) for run in runs)))
        advice = "finish them, or compare their scores"
        raise ValueError(f"runs of the same settings in {world} end after {found} updates: {advice}")
    together: dict[str, Any] = {"seeds": tuple(seed for run in runs for seed in run.config.seeds)}
    for name in PER_SEED:
        if isinstance(getattr(first.config, name), tuple):
            together[name] = tuple(value for run in runs for value in getattr(run.config, name))
    typical = _most_typical(runs)
    statistics = first.host_statistics
    if statistics is not None:
        each = [run.host_statistics for run in runs if run.host_statistics is not None]
        weights = [len(run.config.seeds) for run in runs]
        statistics = statistics._replace(
            steps=np.rint(np.average([one.steps for one in each], axis=0, weights=weights)).astype(np.int64),
            visits=np.concatenate([one.visits for one in each]),
            num_steps=sum(one.num_steps for one in each),
            features=None,
        )
    return replace(
        first,
        config=replace(first.config, **together),
        metrics=jax.tree.map(lambda *columns: np.concatenate(columns), *(run.metrics for run in runs)),
        policies=jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *(run.policies for run in runs)),
        summary=_summary(runs, together["seeds"]),
        host_statistics=statistics,
        paths=typical.paths,
        playback=typical.playback,
    )


def _most_typical(runs: Sequence[Run]) -> Run:
    """The run whose own typical seed, which its page plays, is the closest to the median of all seeds."""
    finals = [final_values(run.updates, run.metrics)["entropy"] for run in runs]
    median = np.median(np.concatenate(finals))
    distances = [np.abs(np.sort(own)[(len(own) - 1) // 2] - median) for own in finals]
    return runs[int(np.argmin(distances))]


def _summary(runs: Sequence[Run], seeds: tuple[int, ...]) -> dict[str, Any]:
    parts = [run.summary for run in runs]
    summary = {**parts[0], "seeds": list(seeds)}
    for name in _SUMS:
        if any(name in part for part in parts):
            summary[name] = sum(part.get(name, 0) for part in parts)
    if summary.get("seconds"):
        summary["steps_per_second"] = summary["environment_steps"] / summary["seconds"]
    if "final" in summary:
        names = [name for name in summary["final"] if all(name in part["final"] for part in parts)]
        summary["final"] = {name: [value for part in parts for value in part["final"][name]] for name in names}
    if all("percent_of_ceiling" in part for part in parts):
        summary["percent_of_ceiling"] = [value for part in parts for value in part["percent_of_ceiling"]]
    if all("below_bound" in part.get("objective", {}) for part in parts):
        below = [value for part in parts for value in part["objective"]["below_bound"]]
        summary["objective"] = {**summary["objective"], "below_bound": below}
    if "is_interrupted" in summary:
        summary["is_interrupted"] = any(part["is_interrupted"] for part in parts)
    return summary
