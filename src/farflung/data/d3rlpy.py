"""Datasets in the terms of d3rlpy: one row for each step, and no observation after the last."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped

from farflung.config.checks import optional_package
from farflung.data.episodes import Contents, Dataset
from farflung.data.sources import to_json

_EXTRA = "'farflung[data]'"
_KEY = "farflung"
_MOST_NUMBERS = 2**22


def to_d3rlpy(dataset: Dataset, *, one_hot: bool = True) -> Any:
    """A dataset as d3rlpy's `MDPDataset`.

    Args:
        one_hot: whether an observation that is a number becomes a vector with a single one, which networks can learn from.
    """
    d3rlpy = optional_package("d3rlpy", "d3rlpy")
    columns = d3rlpy_columns(dataset)
    if not dataset.has_vectors:
        columns["observations"] = _vectors(columns["observations"], dataset.source.num_observations if one_hot else None)
    is_discrete = isinstance(dataset.source.actions, int)
    action_space = getattr(d3rlpy.constants.ActionSpace, "DISCRETE" if is_discrete else "CONTINUOUS")
    size = dataset.source.num_actions if is_discrete else dataset.actions.shape[-1]
    return d3rlpy.dataset.MDPDataset(**columns, action_space=action_space, action_size=size)


def d3rlpy_columns(dataset: Dataset) -> dict[str, Shaped[np.ndarray, "row *feature"]]:
    """The columns of an `MDPDataset`, observations that are numbers still as such.

    d3rlpy has no observation after the last action. Where the world has ended an episode none is needed; elsewhere it makes
    a row of its own, with an action and a reward that nobody looks at, or the last step would be lost.
    """
    has_own_row = ~dataset.terminated
    num_rows = dataset.lengths + has_own_row
    is_row = np.arange(dataset.observations.shape[1]) < num_rows[:, None]
    is_last = np.arange(dataset.observations.shape[1]) == num_rows[:, None] - 1

    def widened(column: np.ndarray) -> np.ndarray:
        return np.pad(column, ((0, 0), (0, 1), *((0, 0),) * (column.ndim - 2)))[is_row]

    return {
        "observations": dataset.observations[is_row],
        "actions": widened(dataset.actions),
        "rewards": widened(dataset.rewards).astype(np.float32),
        "terminals": (is_last & dataset.terminated[:, None])[is_row].astype(np.float32),
        "timeouts": (is_last & has_own_row[:, None])[is_row].astype(np.float32),
    }


def _vectors(observations: Int[np.ndarray, " row"], size: int | None) -> Float[np.ndarray, "row feature"]:
    if size is None:
        return observations[:, None].astype(np.float32)
    vectors = np.zeros((len(observations), size), np.float32)
    vectors[np.arange(len(observations)), observations] = 1
    return vectors


def write_d3rlpy(parts: Iterable[Dataset], path: Path) -> Contents:
    """Writes an `MDPDataset` to one HDF5 file, flat, as d3rlpy 1 did."""
    h5py = optional_package("h5py", _EXTRA)
    contents = Contents()
    with h5py.File(path, "w") as file:

        def append(name: str, values: np.ndarray) -> None:
            if name not in file:
                shape = (0, *values.shape[1:])
                file.create_dataset(
                    name, shape, values.dtype, chunks=True, maxshape=(None, *shape[1:]), compression="gzip", compression_opts=1
                )
            file[name].resize(len(file[name]) + len(values), axis=0)
            file[name][-len(values) :] = values

        for part in contents.counting(parts):
            columns = d3rlpy_columns(part)
            observations = columns.pop("observations")
            if part.has_vectors:
                append("observations", observations)
            else:
                size = part.source.num_observations
                at_once = max(1, _MOST_NUMBERS // size)
                for first in range(0, len(observations), at_once):
                    append("observations", _vectors(observations[first : first + at_once], size))
            for name in ("actions", "rewards"):
                values = columns.pop(name)
                append(name, values.reshape(len(values), -1))
            columns["episode_terminals"] = columns["terminals"] + columns["timeouts"]  # what files of d3rlpy 1 have
            for name, values in columns.items():
                append(name, values)
        file.create_dataset(_KEY, data=to_json(contents))
    return contents
