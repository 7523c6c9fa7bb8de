"""Loggers that hand over to experiment trackers, where these are installed."""

import contextlib
import contextvars
import importlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from farflung.config import Explore
from farflung.loggers.logger import Finals, Record, final, hyperparameters


class Wandb:
    """A run of Weights & Biases for each seed, in one group; curves are drawn over environment steps.

    Args:
        group: by default the config's name.
        directory: for the files that wandb keeps; by default where wandb wants them.
    """

    def __init__(self, project: str = "farflung", group: str | None = None, directory: str | Path | None = None) -> None:
        self._project, self._group, self._directory = project, group, directory
        self._runs: dict[int, Any] = {}

    def __str__(self) -> str:
        return f"Weights & Biases, project {self._project}"

    def start(self, config: Explore) -> None:
        wandb = _imported("wandb")
        group = self._group or config.name
        for seed in config.seeds:
            self._runs[seed] = wandb.init(
                project=self._project,
                group=group,
                name=f"{group}-seed-{seed}",
                config=hyperparameters(config, seed),
                dir=self._directory,
                reinit="create_new",  # side by side with the other seeds, and with a run of the user's own
            )
            self._runs[seed].define_metric("*", step_metric="steps")

    def log(self, records: Sequence[Record]) -> None:
        for record in records:
            self._runs[record.seed].log({"steps": record.steps, "update": record.update, **record.metrics})

    def close(self, finals: Finals) -> None:
        for seed, run in self._runs.items():
            run.summary.update(final(finals.get(seed, {})))
            run.finish()


class Trackio:
    """A run of trackio for each seed, in one group; its step is the policy update.

    Args:
        group: by default the config's name.
    """

    def __init__(self, project: str = "farflung", group: str | None = None) -> None:
        self._project, self._group = project, group
        self._runs: dict[int, Any] = {}

    def __str__(self) -> str:
        return f"trackio show --project {self._project}"

    def start(self, config: Explore) -> None:
        trackio = _imported("trackio")
        group = self._group or config.name
        for seed in config.seeds:
            # A context of its own: trackio ends the run that it finds open, which would be another seed's or the user's.
            with contextlib.redirect_stdout(io.StringIO()):
                self._runs[seed] = contextvars.Context().run(
                    trackio.init,
                    project=self._project,
                    group=group,
                    name=f"{group}-seed-{seed}",
                    config=hyperparameters(config, seed),
                    embed=False,
                )

    def log(self, records: Sequence[Record]) -> None:
        for record in records:
            self._runs[record.seed].log({"steps": record.steps, **record.metrics}, step=record.update)

    def close(self, finals: Finals) -> None:
        for seed, run in self._runs.items():
            if seed in finals:
                run.log(final(finals[seed]))
            with contextlib.redirect_stdout(io.StringIO()):
                run.finish()


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ValueError(f"{error.name} is not installed: pip install 'farflung[{name}]'") from None
