"""The user's cache folder keeps compiled programs and ceilings: only the first of many equal trainings has to compute them."""

import contextlib
import hashlib
import json
import os
import platform
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, cast

import jax

from farflung.numerics import programs

_MOST_BYTES = 1_000_000_000
_DAY = 86_400
_UNFINISHED = "unfinished-"
_CPUINFO = Path("/proc/cpuinfo")


def keep_programs() -> None:
    """Keeps compiled programs in the user's cache folder, where JAX finds them when it compiles the same program again.

    `JAX_ENABLE_COMPILATION_CACHE=0` turns this off, and a user's own `JAX_COMPILATION_CACHE_DIR` is left as it is. A program
    from the folder is the very program that was compiled, so results stay the same. A folder that is damaged, full, read-only
    or used by several processes costs time, never a result.
    """
    if (folder := _folder()) is None:
        return
    own, settings = os.fspath(folder), cast(Any, jax.config)
    if settings.jax_compilation_cache_dir not in (None, own):
        return
    # JAX warns if it cannot read or write a program, and compiles it.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")
    if settings.jax_compilation_cache_dir is not None or not _is_usable(folder):
        return
    _prune(folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")  # XLA's own files fail when they are damaged
    jax.config.update("jax_compilation_cache_dir", own)
    programs.keep_in(_Folder())


def kept(name: str) -> Any:
    """The JSON value that `keep` has put into the folder; None if there is none, or if it is damaged."""
    content = _Folder().load(name)
    with contextlib.suppress(ValueError):
        return None if content is None else json.loads(content)
    return None


def keep(name: str, value: Any) -> None:
    """Puts a JSON value into the folder, if that is possible."""
    _Folder().keep(name, json.dumps(value).encode())


class _Folder(programs.Store):
    """Files with a checksum in the folder."""

    def load(self, name: str) -> bytes | None:
        with contextlib.suppress(OSError):
            if (folder := _folder()) is not None and _is_usable(folder):
                with (folder / name).open("rb") as file:
                    if _is_own(os.fstat(file.fileno())):
                        checksum, _, content = file.read().partition(b"\n")
                        return content if checksum == _checksum(content) else None
        return None

    def keep(self, name: str, content: bytes) -> None:
        with contextlib.suppress(OSError):
            if (folder := _folder()) is not None and _is_usable(folder):
                with tempfile.NamedTemporaryFile(prefix=_UNFINISHED, dir=folder, delete=False) as file:
                    unfinished = Path(file.name)
                    try:
                        file.write(_checksum(content) + b"\n" + content)
                        file.close()
                        unfinished.replace(folder / name)
                    except OSError:
                        unfinished.unlink()
                        raise


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _folder() -> Path | None:
    """farflung's own folder; None if there can be none, or if the user wants none."""
    settings: Any = jax.config
    if not settings.jax_enable_compilation_cache:
        return None
    try:
        return _user_cache() / "farflung" / "programs" / _kind_of_machine()
    except (OSError, RuntimeError):  # such as for a user without a home folder
        return None


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or "~/AppData/Local").expanduser()
    if sys.platform == "darwin":
        return Path("~/Library/Caches").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()


def _kind_of_machine() -> str:
    """A folder's name for this kind of processor: machines that share a home folder may not run each other's programs."""
    lines = _CPUINFO.read_text(errors="replace").splitlines() if _CPUINFO.exists() else []
    about = {line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))}
    return hashlib.sha256("\n".join([platform.machine(), *sorted(about)]).encode()).hexdigest()[:16]


def _is_usable(folder: Path) -> bool:
    """Whether the folder exists, or can be made, and nobody else can put programs into it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _is_own(folder.stat())
    except OSError:
        return False


def _is_own(found: os.stat_result) -> bool:
    """Whether a file or a folder is this user's, and nobody else can write to it."""
    return not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o022)


def _prune(folder: Path) -> None:
    """Removes what killed processes have left, and the programs that were not used for longest if the folder is large."""
    with contextlib.suppress(OSError):
        found = [(path.stat(), path) for path in folder.iterdir() if path.is_file()]
        for stat, path in found:
            if path.name.startswith(_UNFINISHED) and stat.st_mtime < time.time() - _DAY:
                path.unlink()
        found = [(stat, path) for stat, path in found if path.exists()]
        excess = sum(stat.st_size for stat, _ in found) - _MOST_BYTES
        for stat, path in sorted(found, key=lambda each: max(each[0].st_atime, each[0].st_mtime)):
            if excess <= 0:
                return
            path.unlink()
            excess -= stat.st_size
