"""`farflung collect`."""

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
from farflung.cli.terminal import Printing, one_line_warnings, out_option, progress_bar, switch
from farflung.config import Collect

if TYPE_CHECKING:
    from rich.console import Console

    from farflung.data import Dataset
    from farflung.data.episodes import Contents

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
) -> int:
    """Play episodes with a trained team and save them as a dataset for offline RL."""
    if config.format not in _SUFFIXES and out is not None:
        raise ValueError("--out is for a file: name a Minari dataset with --dataset, or choose another --format")
    if config.format in _SUFFIXES and config.dataset is not None:
        raise ValueError(f"--dataset is the id of a Minari dataset: name the {config.format} file with --out")
    terminal.use_all_cores()
    from farflung.data.collecting import finish_parts, parts_folder, play_parts, resumed_parts  # imports JAX
    from farflung.data.episodes import in_pieces
    from farflung.runs.contents import fingerprint
    from farflung.runs.interrupts import Stopped
    from farflung.runs.run import load_run, typical_seed

    terminal.import_world(config.world)
    trained = load_run(config.run)
    seed = typical_seed(trained) if config.seed is None else config.seed
    trained.team(seed)  # raises ValueError if there is none
    began = time.perf_counter()
    write, name, path, staging = _writer(config, out, force)
    aim = (config.goal, config.goal_radius)
    played = partial(play_parts, trained, config.episodes, *aim, random_seed=config.random_seed, random=config.random)
    about = {"farflung": version("farflung"), "command": "collect", **dataclasses.asdict(config)}
    about |= {"seed": seed, "fingerprint": fingerprint(config.run)}
    del about["world"]  # the run's own
    with one_line_warnings(), progress_bar(printing.quiet) as show, parts_folder(staging, about) as folder:
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
            contents = write(watched(), folder)
        except KeyboardInterrupt:
            raise Stopped("the episodes so far are saved: the same command continues") from None
    seconds = time.perf_counter() - began
    summary = {
        "farflung": version("farflung"),
        "run": config.run,
        "dataset": name,
        "format": config.format,
        "path": str(path),
        "environment": _environment(contents),
        "seed": seed,
        "random_seed": config.random_seed,
        "random": config.random,
        "agents": trained.policies.num_agents,
        "episodes": contents.num_episodes,
        "transitions": contents.num_transitions,
        "entropy": contents.entropy,
        "normalized_entropy": None if contents.entropy is None else contents.entropy / math.log(trained.world.num_states),
        "seconds": seconds,
    }
    printing.report(summary, partial(_print, summary, contents), beside_json=True)
    return 0


def _writer(
    config: Collect, out: Path | None, force: bool
) -> tuple[Callable[[Iterator["Dataset"], Path], "Contents"], str, Path, Path]:
    """A function that writes the dataset, the dataset's name and path, and a folder for episodes until it is complete.

    Raises ValueError if the dataset exists already or cannot be written there.
    """
    from farflung.data import save_dataset, to_minari
    from farflung.data.archives import check_file
    from farflung.data.minari import check_is_new, minari_path

    stem = Path(config.run).resolve().name
    if config.format in _SUFFIXES:
        path = out or Path(stem + _SUFFIXES[config.format])
        check_file(path, force)
        if path.suffix != _SUFFIXES[config.format]:
            raise ValueError(f"a file of the format {config.format} ends with {_SUFFIXES[config.format]}, not as {path}")
        staging = path.parent / f".{path.name}-unfinished"
        return lambda parts, folder: save_dataset(parts, path, force=force, staging=folder), str(path), path, staging
    name = config.dataset or f"farflung/{re.sub(r'[^-_a-zA-Z0-9]', '-', stem)}-v0"
    check_is_new(name, force)
    data_format = "arrow" if config.format == "minari-arrow" else "hdf5"
    staging = minari_path("any-v0").parent / f".{name.replace('/', '-')}-unfinished"

    def write(parts: Iterator["Dataset"], folder: Path) -> "Contents":
        return to_minari(parts, name, data_format=data_format, force=force, staging=folder)

    return write, name, minari_path(name), staging


def _environment(contents: "Contents") -> str | None:
    return None if contents.source.environment is None else json.loads(contents.source.environment)["id"]


def _print(summary: dict[str, Any], contents: "Contents", console: "Console") -> None:
    players = f"{summary['agents']} agents" if summary["agents"] > 1 else "one policy"
    players = "random actions" if summary["random"] else f"{players} (seed {summary['seed']})"
    lines = [
        f"{summary['episodes']:,} episodes of {players}, {summary['transitions']:,} transitions in {summary['seconds']:.1f} s"
    ]
    has_vectors = contents.latest.has_vectors
    if summary["entropy"] is not None:
        states = "the cells of a grid" if has_vectors else "states"
        lines.append(f"state entropy {summary['entropy']:.4f} nats, {summary['normalized_entropy']:.4f} of log({states})")
    if summary["environment"] is None:
        numbers = "" if has_vectors else ": its observations are farflung's own numbers of the states"
        lines.append(f"the dataset has no environment to recover{numbers}")
    else:
        lines.append(f"environment {summary['environment']}")
    lines.append(f"written to {summary['path']}")
    if summary["format"] != "d3rlpy" and contents.can_be_tried:
        lines.append(f"next: farflung offline {summary['dataset']}")
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False)
