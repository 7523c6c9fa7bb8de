"""Programs that are kept: a process that is asked for a program once more, or for one of an earlier process, traces nothing."""

import contextlib
import dataclasses
import functools
import hashlib
import math
import operator
import os
import pickle
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import equinox
import jax
import jaxlib
import numpy as np
import optax
from jax.experimental import serialize_executable
from jax.sharding import Mesh, PartitionSpec

from farflung.numerics.arrays import runs_on_cpu

_SOURCE = Path(__file__).parent.parent
_LIBRARIES = (jax, jaxlib, np, equinox, optax)
_KNOWN = ("farflung", "jax", "jaxlib", "numpy", "equinox", "optax", "builtins", "functools", "collections")
"""Whose functions and classes a name and a version describe; a user's own may change under the same name."""
_MOST_LOADED = 64
_IMPORTED, _FLAGS = time.time(), os.environ.get("XLA_FLAGS", "")

_tracing, _remembering, _hiding = threading.RLock(), threading.Lock(), threading.Lock()


@runtime_checkable
class Store(Protocol):
    """Where programs are kept; both functions do nothing where that is not possible."""

    def load(self, name: str) -> bytes | None: ...

    def keep(self, name: str, content: bytes) -> None: ...


class _UndescribedError(Exception):
    """What a program depends on cannot be described by names and numbers alone."""


_store: Store | None = None
_before: list[float] = []
"""The setting of JAX's cache before each of the programs that are being compiled."""
_loaded: dict[str, Callable[..., Any]] = {}
"""The programs of this process; the last was asked for last."""


def keep_in(store: Store | None) -> None:
    """Keeps programs in a store from now on, or nowhere."""
    global _store
    _store = store
    _loaded.clear()
    if store is not None:
        _source()  # reading many files takes long where other threads are at work


def program(
    function: Any, statics: Sequence[Any], arguments: Sequence[Any], devices: Sequence[jax.Device]
) -> Callable[..., Any]:
    """What a jitted function computes from arguments like these, as a function of the arguments.

    It is the very program that was compiled, so that results have the same bits wherever it comes from. Only programs for a CPU
    are kept, and only if nothing of a user's own is a part of them.

    Args:
        function: one of farflung's own that belongs to a module, so that the source says all about it.
        statics: the function's first arguments, for which it is compiled.
        devices: those that it is compiled for, in the order of its mesh.
    """
    key = _key_if_kept(function, statics, arguments)
    if key is None:
        _compiled(function, statics, arguments)
        return functools.partial(function, *statics)  # JAX finds what was compiled
    return _kept(key, function, statics, arguments, devices)


def computed(function: Any, statics: Sequence[Any], *arguments: Any) -> Any:
    """What a jitted function returns on this process's first device, by a `program` if it is kept."""
    device = jax.local_devices()[0]
    given = jax.device_put(arguments, device)
    key = _key_if_kept(function, statics, given)
    return function(*statics, *given) if key is None else _kept(key, function, statics, given, [device])(*given)


def _key_if_kept(function: Any, statics: Sequence[Any], arguments: Sequence[Any]) -> str | None:
    is_kept = _store is not None and _is_as_imported() and runs_on_cpu() and jax.process_count() == 1
    return _key(function, statics, arguments) if is_kept else None


def _kept(
    key: str, function: Any, statics: Sequence[Any], arguments: Sequence[Any], devices: Sequence[jax.Device]
) -> Callable[..., Any]:
    with _remembering:
        found = _loaded.pop(key, None)
    if found is None:
        assert _store is not None
        found = _read(_store.load(key), arguments, devices) or _compiled(function, statics, arguments, _store, key)
    with _remembering:
        _loaded[key] = found
        while len(_loaded) > _MOST_LOADED:
            del _loaded[next(iter(_loaded))]
    return found


def _compiled(
    function: Any, statics: Sequence[Any], arguments: Sequence[Any], store: Store | None = None, key: str = ""
) -> Callable[..., Any]:
    """Traces and compiles a function, and keeps the program if there is a store.

    Threads trace one after the other, since they share one interpreter, and compile side by side: so the first of many is
    ready long before the last.
    """
    with _tracing:
        lowered = function.lower(*statics, *arguments)
    if store is None or "callback" in lowered.as_text():  # Python's functions don't outlive the process
        return lowered.compile()
    with _hidden_from_jax() as was_found:
        compiled = lowered.compile()
    if not was_found() and _is_as_imported():  # tracing may have imported more
        with contextlib.suppress(Exception):  # what cannot be written is compiled by each process
            content, _, result = serialize_executable.serialize(compiled)
            # An example of the result, since not every pytree's structure outlives the process.
            store.keep(key, pickle.dumps((content, jax.tree.unflatten(result, range(result.num_leaves)))))
    return compiled


@contextlib.contextmanager
def _hidden_from_jax() -> Iterator[Callable[[], bool]]:
    """Lets JAX's own cache not keep what is compiled, and yields whether it came from there all the same.

    A program that has been read from there can be run, but no longer be written.
    """
    events, thread = [], threading.get_ident()

    def listen(event: str, **_: Any) -> None:
        if threading.get_ident() == thread:
            events.append(event.rpartition("/")[2])

    least, never = "jax_persistent_cache_min_compile_time_secs", 1e9
    jax.monitoring.register_event_listener(listen)
    with _hiding:
        _before.append(getattr(jax.config, least))
        jax.config.update(least, never)
    try:
        yield lambda: "cache_hits" in events or "compile_requests_use_cache" not in events
    finally:
        with _hiding:
            jax.config.update(least, _before.pop())
        jax.monitoring.unregister_event_listener(listen)


def _read(content: bytes | None, arguments: Sequence[Any], devices: Sequence[jax.Device]) -> Callable[..., Any] | None:
    if content is None:
        return None
    try:
        executable, result = pickle.loads(content)
        structures = jax.tree.structure((tuple(arguments), {})), jax.tree.structure(result)
        return serialize_executable.deserialize_and_load(executable, *structures, execution_devices=list(devices))
    except Exception:  # whatever is wrong with it, it can be compiled again
        return None


def _key(function: Any, statics: Sequence[Any], arguments: Sequence[Any]) -> str | None:
    """A name for all that a program depends on; None if that cannot be told."""
    try:
        parts = [
            _name(function),
            *_described(tuple(statics), is_static=True),
            *_described(tuple(arguments), is_static=False),
        ]
    except _UndescribedError:
        return None
    text = "\n".join([_surroundings(), *_settings(), *parts])
    return f"program-{hashlib.sha256(text.encode()).hexdigest()}"


def _source_files() -> list[Path]:
    return sorted(Path(folder, name) for folder, _, names in os.walk(_SOURCE) for name in names if name.endswith(".py"))


@functools.cache
def _source() -> str:
    """A name for the source of farflung."""
    source = hashlib.sha256()
    for path in _source_files():
        source.update(path.relative_to(_SOURCE).as_posix().encode() + b"\0" + path.read_bytes())
    return source.hexdigest()


def _is_as_imported() -> bool:
    """Whether the files and XLA's flags are surely those that this process computes with.

    Under a process that runs on, such as a notebook's, farflung may be edited or upgraded, and XLA's flags be set too late.
    """
    is_known = os.environ.get("XLA_FLAGS", "") == _FLAGS and (not _FLAGS or _FLAGS.lstrip().startswith("--"))
    newest = max((path.stat().st_ctime for path in _source_files()), default=math.inf)
    return is_known and newest < _IMPORTED


@functools.cache
def _surroundings() -> str:
    """The source of farflung, the versions of what it computes with, and the devices."""
    versions = [f"{library.__name__} {library.__version__}" for library in _LIBRARIES]
    devices = [f"{device.id} {device.device_kind}" for device in jax.local_devices()]
    return "\n".join([_source(), *versions, *devices, _FLAGS])


def _settings() -> Iterator[str]:
    """JAX's own settings, some of which change what is traced or compiled."""
    for name in sorted(jax.config.values):
        if "cache" not in name:
            yield f"{name} {getattr(jax.config, name, jax.config.values[name])!r}"


def _described(value: Any, *, is_static: bool) -> Iterator[str]:
    """What a program depends on.

    Args:
        is_static: whether the program is compiled for this very value; if not, for arrays of this shape and kind.
    """
    kind = type(value)
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        if is_static:
            raise _UndescribedError
        where = _placed(value) if isinstance(value, jax.Array) else "host"
        yield f"array {value.shape} {value.dtype} {getattr(value, 'weak_type', False)} {where}"
    elif value is None or isinstance(value, bool | int | float | str | bytes | np.dtype | PartitionSpec):
        yield f"{kind.__name__} {value!r}" if is_static else kind.__name__
    elif isinstance(value, Mesh):
        yield f"mesh {value.shape} {value.axis_types} {[each.id for each in np.asarray(value.devices).flat]}"
    elif isinstance(value, functools.partial):
        yield from _described(("partial", value.func, value.args, value.keywords), is_static=is_static)
    elif isinstance(value, tuple | list):
        yield f"{_name(kind)} {len(value)}"
        for each in value:
            yield from _described(each, is_static=is_static)
    elif kind is dict:
        yield f"dict {len(value)}"
        for key, each in value.items():
            yield from _described(key, is_static=True)
            yield from _described(each, is_static=is_static)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield _name(kind)
        for field in dataclasses.fields(value):
            yield field.name
            is_field_static = is_static or field.metadata.get("static", False)
            yield from _described(getattr(value, field.name, None), is_static=is_field_static)
    elif isinstance(value, types.FunctionType):
        # By its code: a decorator may give a user's function the name of another.
        yield f"{_known(value.__globals__.get('__name__'))} {value.__code__.co_qualname} {value.__code__.co_firstlineno}"
        cells = tuple(cell.cell_contents for cell in value.__closure__ or ())
        yield from _described((cells, value.__defaults__, value.__kwdefaults__), is_static=True)
    elif callable(value) and _is_global(value):
        yield _name(value)
    else:
        raise _UndescribedError


def _name(value: Any) -> str:
    """The name of a class, or of another function of a module."""
    return f"{_known(getattr(value, '__module__', None))} {value.__qualname__}"


def _known(module: Any) -> str:
    """The name of a module, if a version of farflung or of a library says what is behind it."""
    if str(module).partition(".")[0] not in _KNOWN:
        raise _UndescribedError
    return str(module)


def _is_global(value: Any) -> bool:
    """Whether something is found in its module under its name: then nothing else can be inside it."""
    try:
        return operator.attrgetter(value.__qualname__)(sys.modules[value.__module__]) is value
    except (AttributeError, KeyError, TypeError):
        return False


def _placed(array: jax.Array) -> str:
    sharding: Any = array.sharding
    devices = sorted(device.id for device in sharding.device_set)
    return f"{type(sharding).__name__} {getattr(sharding, 'spec', None)} {devices} {sharding.memory_kind}"
