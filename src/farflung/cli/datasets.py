"""`farflung collect` and `farflung offline`: datasets, and what can be learnt from them."""

import contextlib
import dataclasses
import json
import math
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from farflung.cli import terminal
from farflung.cli.terminal import Printing, one_line_warnings, out_option, print_saved, progress_bar, switch, table
from farflung.config import Collect, OfflineLearning

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rich.console import Console

    from farflung.data import Dataset
    from farflung.data.episodes import Contents
    from farflung.data.offline import Reached
    from farflung.data.rewards import Learned
    from farflung.runs.destinations import Destination

_MOST_ROWS, _ROWS_AT_ENDS = 60, 15
_SUFFIXES = {"npz": ".npz", "parquet": ".parquet", "d3rlpy": ".h5"}
_EPISODES_AT_ONCE = 1000


def collect(
    config: Collect,
    printing: Printing,
    out: Annotated[
        Path | None,
        out_option(
            "File for the dataset. (Minari's datasets lie in $MINARI_DATASETS_PATH or ~/.minari instead.)",
            "the run's name",
            "FILE",
        ),
    ] = None,
    force: Annotated[bool, switch("Replace a dataset of the same name.")] = False,
) -> None:
    """Play episodes with a trained team and save them as a dataset for offline RL."""
    if config.format not in _SUFFIXES and out is not None:
        raise ValueError("--out is for a file: name a Minari dataset with --dataset, or choose another --format")
    if config.format in _SUFFIXES and config.dataset is not None:
        raise ValueError(f"--dataset is the id of a Minari dataset: name the {config.format} file with --out")
    terminal.use_all_cores()
    from farflung.data.collecting import begun_parts, finish_parts, play_parts, resumed_parts  # imports JAX
    from farflung.data.episodes import in_pieces
    from farflung.data.sources import size_of
    from farflung.runs.destinations import CONFIG
    from farflung.runs.interrupts import Stopped
    from farflung.runs.run import digest, load_run, typical_seed

    terminal.import_world(config.world, config.reward)
    trained = load_run(config.run)
    seed = typical_seed(trained) if config.seed is None else config.seed
    trained.team(seed)  # raises ValueError if there is none
    began = time.perf_counter()
    name, destination, write = _writer(config, out, force)
    aim = (config.goal, config.goal_radius, config.reward)
    how = {name: getattr(config, name) for name in ("random_seed", "random", "epsilon", "temperature", "checkpoints")}
    played = partial(play_parts, trained, config.episodes, *aim, **how)
    about = {"farflung": version("farflung"), "command": "collect", **dataclasses.asdict(config)}
    about |= {"seed": seed, "fingerprint": digest(Path(config.run, CONFIG))}  # the config has the checksums of all files
    del about["world"]  # the run's own
    with (
        one_line_warnings(),
        progress_bar(printing.quiet) as show,
        destination as place,
        begun_parts(place, about, force=force) as folder,
    ):
        parts = resumed_parts(folder, lambda first, before: played(seed=seed, first_part=first, before=before))
        parts = finish_parts(parts, *aim)
        if config.format not in _SUFFIXES:
            parts = in_pieces(parts, _EPISODES_AT_ONCE)  # Minari takes a second for so many

        def watched() -> Iterator["Dataset"]:
            done = 0
            for part in parts:
                show(name, done, config.episodes, f"{done:,} episodes")
                yield part
                done += len(part)
            show(name, done, config.episodes, f"{done:,} episodes")

        try:
            contents = write(watched(), place)
        except KeyboardInterrupt:
            raise Stopped("the episodes so far are saved: the same command continues") from None
    seconds = time.perf_counter() - began
    summary = {
        "farflung": version("farflung"),
        "run": config.run,
        "dataset": name,
        "format": config.format,
        "path": place.name,
        "environment": None if contents.source.environment is None else json.loads(contents.source.environment)["id"],
        "seed": seed,
        **how,
        "agents": trained.policies.num_agents,
        **size_of(contents),
        "possible_pairs": None if contents.pairs is None else len(contents.pairs),
        "normalized_entropy": None if contents.entropy is None else contents.entropy / math.log(trained.world.num_states),
        "seconds": seconds,
    }
    printing.report(summary, partial(_print_dataset, summary, contents, config.world), beside_json=True)


def _writer(
    config: Collect, out: Path | None, force: bool
) -> "tuple[str, AbstractContextManager[Destination], Callable[[Iterator[Dataset], Destination], Contents]]":
    """The dataset's name, its destination, which raises ValueError if no dataset may be written there, and what writes it."""
    from farflung.data import save_dataset, to_minari
    from farflung.data.archives import check_file
    from farflung.data.minari import check_is_new, claimed_dataset
    from farflung.runs.destinations import claimed_file

    stem = Path(config.run).absolute().name

    @contextlib.contextmanager
    def checked(destination: "AbstractContextManager[Destination]", check: Callable[..., None]) -> "Iterator[Destination]":
        with destination as place:
            check(place=place, force=force)
            yield place

    if config.format in _SUFFIXES:
        path = out or Path(stem + _SUFFIXES[config.format])
        if path.suffix in _SUFFIXES.values() and path.suffix != _SUFFIXES[config.format]:
            raise ValueError(f"a file of the format {config.format} ends with {_SUFFIXES[config.format]}, not as {path}")
        return str(path), checked(claimed_file(path), check_file), partial(save_dataset, force=force)
    name = config.dataset or f"farflung/{re.sub(r'[^-_a-zA-Z0-9]', '-', stem)}-v0"
    data_format = "arrow" if config.format == "minari-arrow" else "hdf5"

    about = {name: getattr(config, name) for name in ("author", "author_email", "code_permalink")}

    def write(parts: "Iterator[Dataset]", place: "Destination") -> "Contents":
        return to_minari(parts, name, data_format=data_format, force=force, place=place, **about)

    return name, checked(claimed_dataset(name), partial(check_is_new, name)), write


def _print_dataset(summary: dict[str, Any], contents: "Contents", world_option: str | None, console: "Console") -> None:
    players = f"{summary['agents']} agents" if summary["agents"] > 1 else "one policy"
    players = "random actions" if summary["random"] else f"{players} (seed {summary['seed']})"
    if summary["checkpoints"] is not None:
        players += f" at {summary['checkpoints']} stages of training"
    lines = [
        f"{summary['episodes']:,} episodes of {players}, {summary['transitions']:,} transitions in {summary['seconds']:.1f} s"
    ]
    has_vectors = contents.latest.has_vectors
    if summary["entropy"] is not None:
        states = "the cells of a grid" if has_vectors else "states"
        lines.append(f"state entropy {summary['entropy']:.4f} nats, {summary['normalized_entropy']:.4f} of log({states})")
    if summary["states"] is not None:
        cells = "grid cells" if has_vectors else "states"
        line = f"{summary['states']:,} {cells}"
        if summary["pairs"] is not None:
            line += f" and {summary['pairs']:,} of {summary['possible_pairs']:,} pairs of state and action"
        lines.append(f"{line} occur")
    if summary["environment"] is None:
        numbers = "" if has_vectors else ": its observations are farflung's own numbers of the states"
        lines.append(f"the dataset has no environment to recover{numbers}")
    else:
        lines.append(f"environment {summary['environment']}")
    lines.append(f"written to {summary['path']}")
    world = contents.source.world  # where a policy that is learnt from the dataset can be tested
    can_reach = world is not None and (world.table is not None or world.starts)
    if summary["format"] != "d3rlpy" and (can_reach or (contents.has_rewards and summary["environment"] is not None)):
        reward = contents.source.metadata.get("reward")  # a file's function is called only if the user names it again
        named = "".join(f" --{option} {name}" for option, name in (("world", world_option), ("reward", reward)) if name)
        lines.append(f"next: farflung offline {summary['dataset']}{named}")
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False)


def offline(
    config: OfflineLearning,
    printing: Printing,
    out: Annotated[Path | None, out_option("Directory for the numbers and the figure.", "offline-NAME, of the dataset")] = None,
    force: Annotated[bool, switch("Replace results with other settings that are in the output directory.")] = False,
) -> None:
    """Learn from a dataset, from its rewards or to reach every state, and report how well that works."""
    terminal.use_all_cores()
    from farflung.data.offline import Reached, learn_offline  # imports JAX
    from farflung.figures.reached import earned, reached
    from farflung.runs.destinations import open_results

    terminal.import_world(config.world, config.reward)
    settings = dataclasses.asdict(config)
    name = Path(config.dataset).name.removesuffix(".npz").removesuffix(".parquet")
    out = out or Path(f"offline-{name}")
    with open_results(out, "offline", settings, force=force) as save:
        with progress_bar(printing.quiet) as show:
            found = learn_offline(**settings, on_progress=lambda done, total: show(name, done, total, "policies"))
        show_table: Callable[..., None]
        if isinstance(found, Reached):
            summary, show_table = _goals_summary(found), _print_goals
            names = ("observation", "row", "column") if found.radius is None else ("x", "y")
            header = (*names, "success", "low", "high", "random_actions")
            rows = [(*where, mean, *(interval or (None, None)), random) for where, mean, interval, random in _rows(found)]
            results = {"goals.csv": [header, *rows], "goals": reached(found, name)}
        else:
            summary, show_table = _rewards_summary(found), _print_returns
            returns = zip(config.seeds, found.returns.tolist(), strict=True)
            rows = [(seed, number, value) for seed, row in returns for number, value in enumerate(row)]
            results = {"returns.csv": [("seed", "attempt", "return"), *rows], "returns": earned(found, name)}
        save({"summary.json": summary, **results})
    printing.report(summary, partial(show_table, found, summary, out), beside_json=True)


def _places(found: "Reached") -> list[tuple[Any, ...]]:
    """The position of each goal: observation, row and column, or x and y."""
    import numpy as np

    world = found.world.table
    if world is None:
        return [(round(x, 4), round(y, 4)) for x, y in found.goals.tolist()]
    labels = np.asarray(world.labels)[found.goals].tolist()
    positions = [(None, None)] * len(labels)
    if world.positions is not None:
        positions = np.asarray(world.positions)[found.goals].tolist()
    return [(label, *position) for label, position in zip(labels, positions, strict=True)]


def _rows(found: "Reached") -> list[tuple[Any, ...]]:
    """For each goal, from the easiest to the hardest: position, mean success rate, the ends of its 95% interval, and the mean
    success rate of learning from random actions."""
    from farflung.runs.statistics import wilson_interval

    means, interval = found.success.mean(axis=0), wilson_interval(found.success)
    ends = [None] * len(means) if interval is None else list(zip(*(end.tolist() for end in interval), strict=True))
    rows = zip(_places(found), means.tolist(), ends, found.random_success.mean(axis=0).tolist(), strict=True)
    return sorted(rows, key=lambda row: -row[1])


def _estimate(values: Any, low: float = -math.inf, high: float = math.inf) -> dict[str, Any]:
    """The mean over seeds with its 95% interval (Student's t) within the possible values, and the values."""
    from farflung.runs.statistics import mean_and_interval

    mean, half_width = mean_and_interval(values)
    ends = (None, None) if half_width is None else (max(low, float(mean - half_width)), min(high, float(mean + half_width)))
    return {"mean": float(mean), "low": ends[0], "high": ends[1], "seeds": values.tolist()}


def _goals_summary(found: "Reached") -> dict[str, Any]:
    return {
        "farflung": version("farflung"),
        **dataclasses.asdict(found.config),
        "task_name": found.task_name,
        "transitions": found.num_transitions,
        "goals": len(found.goals),
        "goal_radius": found.radius,
        "untrained_success": found.untrained,
        "success": _estimate(found.success.mean(axis=1), 0.0, 1.0),
        "random_actions_success": _estimate(found.random_success.mean(axis=1), 0.0, 1.0),
    }


def _rewards_summary(found: "Learned") -> dict[str, Any]:
    return {
        "farflung": version("farflung"),
        **dataclasses.asdict(found.config),
        "task_name": found.task_name,
        "environment": found.environment,
        "transitions": found.num_transitions,
        "reference": found.reference,
        "return": _estimate(found.returns.mean(axis=1)),
        "score": None if found.scores is None else _estimate(found.scores),
        "random_actions_return": float(found.random_returns.mean()),
        "dataset_return": {"mean": float(found.data_returns.mean()), "max": float(found.data_returns.max())},
    }


_METHODS = {"q-learning": "Q-learning", "iql": "implicit Q-learning", "td3-bc": "TD3+BC", "bc": "behaviour cloning"}


def _print_goals(found: "Reached", summary: dict[str, Any], out: Path, console: "Console") -> None:
    config, is_maze = found.config, found.radius is not None
    rows = _rows(found)
    is_map = rows[0][0][-1] is not None
    goal = "goal (x, y)" if is_maze else "goal (row, column)" if is_map else "goal"
    how, number = _METHODS[config.method], f"{found.num_transitions:,}"
    title = f"{config.dataset}: how often {how} from {number} transitions reaches each goal"
    shown = table(title, goal, "success", "95% CI", "random actions", left=())
    for row in rows if len(rows) <= _MOST_ROWS else [*rows[:_ROWS_AT_ENDS], None, *rows[-_ROWS_AT_ENDS:]]:
        if row is None:
            shown.add_row("...", "", "", "")
            continue
        where, mean, interval, random = row
        label = f"({where[-2]:g}, {where[-1]:g})" if is_map else str(where[0])
        shown.add_row(label, f"{mean:.3f}", _interval(interval), f"{random:.3f}")
    shown.add_section()
    whole = summary["success"]
    random = summary["random_actions_success"]["mean"]
    shown.add_row(f"all {len(rows)} goals", f"{whole['mean']:.3f}", _interval((whole["low"], whole["high"])), f"{random:.3f}")
    console.print(shown)
    console.print(
        f"seeds: {len(config.seeds)}; random actions: a dataset of as many episodes; without data: {found.untrained:.3f}"
    )
    print_saved(console, out, "goals.png")


def _print_returns(found: "Learned", summary: dict[str, Any], out: Path, console: "Console") -> None:
    config, learnt, score = found.config, summary["return"], summary["score"]
    title = f"{config.dataset}: returns in {found.environment} ({found.task}) after {found.num_transitions:,} transitions"
    shown = table(title, "policy", "mean return", "95% CI", "score")
    random = summary["random_actions_return"]

    def normalised(value: float) -> str:
        return "" if score is None else f"{(value - random) / (found.reference - random):.3f}"

    mean = f"{learnt['mean']:.4g}"
    shown.add_row(_METHODS[config.method], mean, _interval((learnt["low"], learnt["high"])), normalised(learnt["mean"]))
    for name, each in {"the dataset's episodes": "mean", "the dataset's best episode": "max"}.items():
        value = summary["dataset_return"][each]
        shown.add_row(name, f"{value:.4g}", "", normalised(value))
    shown.add_row("random actions", f"{random:.4g}", "", normalised(random))
    if found.reference is not None:
        shown.add_row("reference", f"{found.reference:.4g}", "", normalised(found.reference))
    console.print(shown)
    unknown = "" if found.reference is not None else "; no reference is known: --reference gives one, for normalised scores"
    console.print(f"number of seeds: {len(config.seeds)}, with {config.attempts} test episodes each{unknown}")
    print_saved(console, out, "returns.png")


def _interval(ends: tuple[float | None, float | None] | None) -> str:
    if ends is None or ends[0] is None:
        return ""
    low, high = (f"{end:.4g}" if abs(ends[0]) > 1 else f"{end:.3f}" for end in ends)
    return f"{low} to {high}" if low.startswith("-") else f"{low}\N{EN DASH}{high}"
