"""Loggers that send records to experiment trackers, which are optional dependencies."""

import contextlib
import contextvars
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from farflung.config import Explore
from farflung.config.checks import optional_package
from farflung.loggers.logger import Finals, Record, final, hyperparameters


class Wandb:
    """Logs to Weights & Biases: one run per seed, in one group; curves are drawn over environment steps.

    Args:
        group: the name of the group; by default the config's name.
        directory: the folder for wandb's own files; by default wandb's choice.
    """

    def __init__(self, project: str = "farflung", group: str | None = None, directory: str | Path | None = None) -> None:
        self._project, self._group = project, group
        self._directory = None if directory is None else Path(directory).absolute()
        self._runs: dict[int, Any] = {}

    def __str__(self) -> str:
        return f"Weights & Biases, project {self._project}"

    def start(self, config: Explore) -> None:
        wandb = optional_package("wandb", "'.[wandb]', in a clone of farflung")
        for seed in config.seeds:
            # A new run beside those of other seeds and the user's own.
            about = _about(config, seed, self._project, self._group)
            self._runs[seed] = wandb.init(**about, dir=self._directory, reinit="create_new")
            self._runs[seed].define_metric("*", step_metric="steps")

    def log(self, records: Sequence[Record]) -> None:
        for record in records:
            self._runs[record.seed].log({"steps": record.steps, "update": record.update, **record.metrics})

    def close(self, finals: Finals) -> None:
        for seed, run in self._runs.items():
            run.summary.update(final(finals.get(seed, {})))
            run.finish()


class Trackio:
    """Logs to trackio: one run per seed, in one group; its step is the policy update.

    Args:
        group: the name of the group; by default the config's name.
    """

    def __init__(self, project: str = "farflung", group: str | None = None) -> None:
        self._project, self._group = project, group
        self._runs: dict[int, Any] = {}

    def __str__(self) -> str:
        return f"trackio show --project {self._project}"

    def start(self, config: Explore) -> None:
        trackio = optional_package("trackio", "'.[trackio]', in a clone of farflung")
        for seed in config.seeds:
            about = _about(config, seed, self._project, self._group)
            # In an empty context: trackio ends the current run of a context, which is another seed's or the user's own.
            with contextlib.redirect_stdout(io.StringIO()):
                self._runs[seed] = contextvars.Context().run(trackio.init, **about, embed=False)

    def log(self, records: Sequence[Record]) -> None:
        for record in records:
            self._runs[record.seed].log({"steps": record.steps, **record.metrics}, step=record.update)

    def close(self, finals: Finals) -> None:
        for seed, run in self._runs.items():
            if seed in finals:
                run.log(final(finals[seed]))
            with contextlib.redirect_stdout(io.StringIO()):
                run.finish()


def _about(config: Explore, seed: int, project: str, group: str | None) -> dict[str, Any]:
    """The arguments of `init` that both trackers share."""
    group = group or config.name
    return {"project": project, "group": group, "name": f"{group}-seed-{seed}", "config": hyperparameters(config, seed)}
