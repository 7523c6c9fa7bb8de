"""Processes that train one team together: the first one decides what is done next, and the others follow."""

import contextlib
import io
import re
import weakref
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils

HEARTBEAT_SECONDS = 20
"""A process that gives no sign of life for so long is taken for dead, and JAX ends all others."""
_CONNECT_SECONDS = 300
_MOST_NUMBERS = 128


class LostError(ValueError):
    """Another process has ended."""


class Kind(IntEnum):
    """What the processes do together."""

    SET_UP = 1
    ADVANCE = 2
    GATHER = 3
    END = 4


class Message(NamedTuple):
    kind: Kind
    numbers: list[int]


def connect(coordinator: str | None, num_processes: int | None, process_id: int | None) -> "Processes":
    """Joins the other processes; Slurm, Open MPI or Kubernetes say where they are, unless the arguments do."""
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            initialization_timeout=_CONNECT_SECONDS,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=HEARTBEAT_SECONDS,
        )
    except (ValueError, RuntimeError) as error:
        if coordinator is None:
            raise ValueError(
                "--distributed found no Slurm, Open MPI or Kubernetes: give --coordinator, --num-processes and --process-id"
            ) from error
        reason = " ".join(str(error).split())
        raise ValueError(f"the processes cannot be connected through {coordinator}: {reason[:200]}") from error
    return Processes()


class Processes:
    """The processes that `jax.distributed.initialize` has connected.

    They send each other messages by collectives, in one order, so that all of them run the same programs. If one ends, the
    collectives of the others fail, or JAX ends them when its heartbeat has stopped.
    """

    def __init__(self) -> None:
        self.number, self.count = jax.process_index(), jax.process_count()
        self._serial = 0
        self._kept: dict[int, Any] = {}

    @property
    def leads(self) -> bool:
        """Whether this process decides, and writes."""
        return self.number == 0

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Lets the others end as well."""
        if self.leads and (kind is None or not issubclass(kind, LostError)):
            self.send(Kind.END)

    def send(self, kind: Kind, *numbers: int) -> None:
        content = np.zeros(_MOST_NUMBERS, np.int32)
        content[: 2 + len(numbers)] = (kind, len(numbers), *numbers)
        self._broadcast(content)

    def receive(self) -> Message:
        kind, size, *numbers = self._broadcast(np.zeros(_MOST_NUMBERS, np.int32)).tolist()
        return Message(Kind(kind), numbers[:size])

    def share(self, arrays: dict[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
        """Arrays of the first process, in all processes."""
        content = b""
        if arrays is not None:
            file = io.BytesIO()
            np.savez(file, allow_pickle=False, **arrays)
            content = file.getvalue()
        billions, rest = self._broadcast(np.array(divmod(len(content), 2**30), np.int32)).tolist()
        data = np.frombuffer(content, np.uint8) if content else np.zeros(billions * 2**30 + rest, np.uint8)
        with np.load(io.BytesIO(self._broadcast(data).tobytes()), allow_pickle=False) as found:
            return dict(found)

    def remember(self, arrays: Any) -> None:
        """Numbers arrays that all processes have, so that messages can name them."""
        # The first process keeps them only as long as its training does; the others are told which ones that are.
        self._kept[self._serial] = weakref.ref(arrays.keys) if self.leads else arrays
        self._serial += 1

    def naming(self, arrays: Any) -> list[int]:
        """The number of the arrays, and then the numbers of all arrays that are still in use."""
        self._kept = {number: kept for number, kept in self._kept.items() if kept() is not None}
        (number,) = [number for number, kept in self._kept.items() if kept() is arrays.keys]
        return [number, len(self._kept), *self._kept]

    def named(self, numbers: Sequence[int]) -> tuple[Any, Sequence[int]]:
        """The arrays that another process has named, and the remaining numbers of the message."""
        number, size = numbers[:2]
        in_use = numbers[2 : 2 + size]
        self._kept = {number: kept for number, kept in self._kept.items() if number in in_use}
        return self._kept[number], numbers[2 + size :]

    def _broadcast(self, content: np.ndarray) -> np.ndarray:
        with lost_if_failed():
            return np.asarray(multihost_utils.broadcast_one_to_all(content, is_source=self.leads))


@contextlib.contextmanager
def lost_if_failed() -> Iterator[None]:
    """Raises `LostError` if a collective fails, because another process has ended."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        # Where an array is read, the error of the program that should have made it is a ValueError.
        if isinstance(error, LostError) or not re.match("(?!RESOURCE_EXHAUSTED)[A-Z_]+: ", str(error)):
            raise
        raise LostError("another process of this training has ended or cannot be reached, so training stopped") from error


def on_host(leaf: Any) -> np.ndarray:
    """An array of which each process has all rows, on one device or another."""
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
        return np.asarray(leaf)
    whole = np.empty(leaf.shape, leaf.dtype)
    for shard in leaf.addressable_shards:
        whole[shard.index] = np.asarray(shard.data)
    return whole
