"""Compiled programs are kept in the user's cache folder, so that only the first of many equal trainings has to compile."""

import contextlib
import hashlib
import os
import platform
import sys
import warnings
from pathlib import Path
from typing import Any

import jax

_MOST_BYTES = 1_000_000_000
_CPUINFO = Path("/proc/cpuinfo")


def keep_programs() -> None:
    """Keeps compiled programs in the user's cache folder, where JAX finds them when it compiles the same program again.

    `JAX_ENABLE_COMPILATION_CACHE=0` turns this off, and a user's own `JAX_COMPILATION_CACHE_DIR` is left as it is. A program
    from the folder is the very program that was compiled, so results stay the same. A folder that is damaged, full, read-only
    or used by several processes costs time, never a result.
    """
    try:
        own = os.fspath(_user_cache() / "farflung" / "programs" / _kind_of_machine())
    except (OSError, RuntimeError):  # such as for a user without a home folder
        return
    settings: Any = jax.config
    if not settings.jax_enable_compilation_cache or settings.jax_compilation_cache_dir not in (None, own):
        return
    # JAX warns if it cannot read or write a program, and compiles it.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")
    if settings.jax_compilation_cache_dir is not None or not _is_usable(Path(own)):
        return
    _prune(Path(own))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")  # XLA's own files fail when they are damaged
    jax.config.update("jax_compilation_cache_dir", own)


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
        found = folder.stat()
    except OSError:
        return False
    return not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o022)


def _prune(folder: Path) -> None:
    """Removes the programs that were not used for longest if the folder has become large."""
    with contextlib.suppress(OSError):
        found = [(path.stat(), path) for path in folder.iterdir() if path.is_file()]
        excess = sum(stat.st_size for stat, _ in found) - _MOST_BYTES
        for stat, path in sorted(found, key=lambda each: max(each[0].st_atime, each[0].st_mtime)):
            if excess <= 0:
                return
            path.unlink()
            excess -= stat.st_size
