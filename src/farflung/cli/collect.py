"""`farflung collect`."""

import dataclasses
import json
import math
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from farflung.cli import terminal
from farflung.cli.terminal import Output, one_line_warnings, progress_bar
from farflung.config import Collect

if TYPE_CHECKING:
    from farflung.data import Dataset
    from farflung.data.episodes import Contents

_SUFFIXES = {"npz": ".npz", "parquet": ".parquet", "d3rlpy": ".h5"}
_EPISODES_AT_ONCE = 1000


@dataclass(frozen=True)
class CollectOutput(Output):
    """Where the data goes, and what is printed."""

    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: the run's name)")] = None
    """File for the formats that are one file; Minari's datasets lie below $MINARI_DATASETS_PATH, or else ~/.minari."""
    force: bool = False
    """Replace a dataset of the same name."""


def collect(config: Collect, output: CollectOutput) -> Callable[[], int]:
    """Let a trained team play, and keep its episodes as a dataset for offline RL."""

    def run() -> int:
        if config.format not in _SUFFIXES and output.out is not None:
            raise ValueError("--out names a file; a Minari dataset is named by --dataset, or choose another --format")
        if config.format in _SUFFIXES and config.dataset is not None:
            raise ValueError(f"--dataset is Minari's id of a dataset; name the {config.format} file by --out")
        terminal.use_all_cores()
        from farflung.data.collecting import finish_parts, play_parts  # JAX with it
        from farflung.data.episodes import in_pieces
        from farflung.data.unfinished import kept, unfinished
        from farflung.runs.contents import fingerprint
        from farflung.runs.files import to_json
        from farflung.runs.interrupts import Stopped
        from farflung.runs.run import load_run, typical_seed

        trained = load_run(config.run)
        seed = typical_seed(trained) if config.seed is None else config.seed
        trained.team(seed)  # raises ValueError if there is none
        began = time.perf_counter()
        write, name, path, staging = _writer(config, output)
        aim = (config.goal, config.goal_radius)
        played = partial(play_parts, trained, config.episodes, *aim, random_seed=config.random_seed, random=config.random)
        asked = {**dataclasses.asdict(config), "seed": seed, "fingerprint": fingerprint(config.run)}
        about = {"farflung": version("farflung"), "command": "collect", **asked}
        with one_line_warnings(), progress_bar(output.quiet) as show, unfinished(staging, about) as folder:
            parts = kept(folder, lambda first, before: played(seed=seed, first_part=first, before=before))
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
                raise Stopped("what was played is kept, the same command goes on from there") from None
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
        if not output.quiet:
            _print(summary, contents, is_on_stderr=output.json)
        if output.json:
            print(to_json(summary))
        return 0

    return run


def _writer(
    config: Collect, output: CollectOutput
) -> tuple[Callable[[Iterator["Dataset"], Path], "Contents"], str, Path, Path]:
    """A function that writes what comes, the dataset's name, where it will lie, and a place for what is not complete yet.

    It is told before the work if it cannot be written.
    """
    from farflung.data import save_dataset, to_minari
    from farflung.data.archives import check_file
    from farflung.data.minari import check_is_new, minari_path

    stem = Path(config.run).resolve().name
    if config.format in _SUFFIXES:
        path = output.out or Path(stem + _SUFFIXES[config.format])
        check_file(path, output.force)
        if path.suffix != _SUFFIXES[config.format]:
            raise ValueError(f"a file of the format {config.format} ends with {_SUFFIXES[config.format]}, unlike {path}")
        staging = path.parent / f".{path.name}-unfinished"
        return lambda parts, folder: save_dataset(parts, path, force=output.force, staging=folder), str(path), path, staging
    name = config.dataset or f"farflung/{re.sub(r'[^-_a-zA-Z0-9]', '-', stem)}-v0"
    check_is_new(name, output.force)
    data_format = "arrow" if config.format == "minari-arrow" else "hdf5"
    staging = minari_path("any-v0").parent / f".{name.replace('/', '-')}-unfinished"

    def write(parts: Iterator["Dataset"], folder: Path) -> "Contents":
        return to_minari(parts, name, data_format=data_format, force=output.force, staging=folder)

    return write, name, minari_path(name), staging


def _environment(contents: "Contents") -> str | None:
    return None if contents.source.environment is None else json.loads(contents.source.environment)["id"]


def _print(summary: dict[str, Any], contents: "Contents", is_on_stderr: bool) -> None:

    console = terminal.console(stderr=is_on_stderr, soft_wrap=True, highlight=False)
    players = f"{summary['agents']} agents" if summary["agents"] > 1 else "one policy"
    players = "random actions" if summary["random"] else f"{players} (seed {summary['seed']})"
    console.print(
        f"{summary['episodes']:,} episodes of {players}, {summary['transitions']:,} transitions in {summary['seconds']:.1f} s"
    )
    has_vectors = contents.latest.has_vectors
    if summary["entropy"] is not None:
        console.print(
            f"state entropy {summary['entropy']:.4f} nats, {summary['normalized_entropy']:.4f} of "
            f"log({'the cells of a grid' if has_vectors else 'states'})"
        )
    if summary["environment"] is None:
        numbers = "" if has_vectors else ": its observations are farflung's own numbers of the states"
        console.print(f"the dataset has no environment to recover{numbers}")
    else:
        console.print(f"environment {summary['environment']}")
    console.print(f"written to {summary['path']}")
    if summary["format"] != "d3rlpy" and contents.can_be_tried:
        console.print(f"next: farflung offline {summary['dataset']}")
