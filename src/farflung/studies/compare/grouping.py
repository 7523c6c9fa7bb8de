"""Which runs are of one algorithm, and which of one task."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from farflung.config import Explore
from farflung.runs.run import Run

Grouped = dict[str, dict[str, Run]]
"""The run of each algorithm on each task."""

_SIZES = {"agents": "m", "trajectories": "K"}
_BASELINES = ("single", "independent")
_NOT_OF_THE_METHOD = {"world", "horizon", "slip", "seeds", "log_every", "preset", *_SIZES, *_BASELINES}
_SAYS_WHAT_IT_IS = ("credit", "optimizer")
_FOLLOWS_FROM = {"learning_rate": "optimizer", "bonus_decay": "updates"}


def by_algorithm_and_task(runs: Mapping[str, Sequence[Run]] | Sequence[Run]) -> Grouped:
    """The runs by algorithm and, within it, by task.

    An algorithm is a name or, where there are no names, what the runs' settings differ in. A task is a world with its horizon;
    if algorithms were run in one world with several numbers of agents or trajectories, each of these is a task.
    """
    if isinstance(runs, Mapping):
        names = [name for name, group in runs.items() for _ in group]
        runs = [run for group in runs.values() for run in group]
    else:
        names = _algorithm_names([run.config for run in runs])
    tasks = _world_names(runs)
    if _repeated(names, tasks):
        sizes = _sizes([run.config for run in runs])
        tasks = [_joined(task, size) for task, size in zip(tasks, sizes, strict=True)]
    for name, task in _repeated(names, tasks):
        raise ValueError(
            f"{name or 'one algorithm'} was run more than once on {task}: leave runs out, or give them other names"
        )
    grouped: Grouped = {name: {} for name in names}
    for name, task, run in zip(names, tasks, runs, strict=True):
        grouped[name][task] = run
    return grouped


def _repeated(names: Sequence[str], tasks: Sequence[str]) -> list[tuple[str, str]]:
    return [pair for pair, number in Counter(zip(names, tasks, strict=True)).items() if number > 1]


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _algorithm_names(configs: Sequence[Explore]) -> list[str]:
    """What the configs differ in, in a few words; the size of the team only if it isn't the same choice of sizes for all."""
    names, sizes = _method_names(configs), _sizes(configs)
    sizes_of = {name: {size for size, its in zip(sizes, names, strict=True) if its == name} for name in names}
    if len(sizes_of) > 1 and all(found == sizes_of[names[0]] for found in sizes_of.values()):
        return names
    return [_joined(name, size) for name, size in zip(names, sizes, strict=True)]


def _method_names(configs: Sequence[Explore]) -> list[str]:
    """The one setting that the configs differ in or, if there are several, those that aren't as the preset has them."""
    others = [field.name for field in fields(Explore) if field.name not in _NOT_OF_THE_METHOD]
    shown = [name for name in others if _distinguishes(name, configs)]
    kinds, presets = [_kind(config) for config in configs], [config.preset for config in configs]
    has_kinds, has_presets = len(set(kinds)) > 1, len(set(presets)) > 1
    is_the_only_one = has_kinds + has_presets + len(shown) == 1
    names = []
    for config, kind, preset in zip(configs, kinds, presets, strict=True):
        said = [kind] * has_kinds + [preset] * has_presets
        said += [_phrase(config, name) for name in shown if is_the_only_one or not _is_usual(config, name)]
        names.append(_joined(*(said or [preset] * bool(shown))))
    return names


def _distinguishes(name: str, configs: Sequence[Explore]) -> bool:
    """Whether a setting differs between configs, and not just because it follows from another that does."""
    choices = {(getattr(config, name), _is_usual(config, name)) for config in configs}
    return len(choices) > 1 and not all(is_usual for _, is_usual in choices)


def _is_usual(config: Explore, name: str) -> bool:
    given: dict[str, Any] = {"preset": config.preset}
    if name in _FOLLOWS_FROM:
        given[_FOLLOWS_FROM[name]] = getattr(config, _FOLLOWS_FROM[name])
    usual = Explore(config.world, **given)
    return bool(getattr(config, name) == getattr(usual.with_networks() if config.is_neural else usual, name))


def _kind(config: Explore) -> str:
    return next((name for name in _BASELINES if getattr(config, name)), "parallel")


def _phrase(config: Explore, name: str) -> str:
    words, value = name.replace("_", " "), getattr(config, name)
    if isinstance(value, bool):
        return words if value else f"no {words}"
    if name in _SAYS_WHAT_IT_IS:
        return str(value)
    return f"{words} {value:g}" if isinstance(value, float) else f"{words} {value}"


def _sizes(configs: Sequence[Explore]) -> list[str]:
    """The size of each config's team, as far as the sizes differ."""
    shown = [name for name in _SIZES if len({getattr(config, name) for config in configs}) > 1]
    return [_joined(*(f"{_SIZES[name]} = {getattr(config, name)}" for name in shown)) for config in configs]


def _world_names(runs: Sequence[Run]) -> list[str]:
    """The name of each run's world: the same for worlds that are the same, whatever they were called, and for no others."""
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
        name, number = _joined(*parts), 1
        while name in names.values():
            number += 1
            name = f"{_joined(*parts)} ({number})"
        names[identity] = name
    return [names[run.world.identity] for run in runs]
