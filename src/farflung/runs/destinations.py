"""Destinations: one process at a time writes to a destination, and results appear there only when all of them are complete.

What is not finished lies in one folder: `unfinished` in a directory of results, `.NAME-unfinished` beside a single file. It
holds the lock, the checkpoints or parts from which a command continues, and new results until they are published. The next
command with the same destination continues what a killed process has begun, or cleans it up.
"""

import contextlib
import json
import os
import shutil
import socket
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from farflung.config.reading import check_version, file_size, read_object
from farflung.runs.files import FORMAT_VERSION, sync, write_atomically, write_errors, write_results
from farflung.runs.interrupts import uninterrupted

UNFINISHED = "unfinished"
_RESULT_SUFFIXES = {".json", ".csv", ".npz", ".png", ".svg", ".html"}
_RESULT_FOLDERS = {"data", "figures", "jobs", "runs", "worlds"}
"""What results consist of: `--force` removes nothing else."""
LOCK = "lock"
"""The lock file, which names the process that holds the lock."""
CONFIG, CONTENTS = "config.json", "contents.json"
_HEADERS = (CONFIG, CONTENTS)
"""They say what a folder holds: they are removed first and published last. In the folder of what is unfinished, they say which
command can continue."""
_NEW, _COMPLETE, _OLD, _JOURNAL = "new", "complete", "old", "journal.json"
_LONGEST_NAME = 64
"""No file in the folder of what is unfinished has a longer name."""
_ATTEMPTS = 20


@dataclass(frozen=True)
class Destination:
    """A place for results, locked by this process."""

    name: str
    """As the user gave it, for messages."""
    folder: Path
    """Where the results will lie. It is absolute, since an environment may change the current directory."""
    unfinished: Path
    only: frozenset[str] | None = None
    """The names that may be published or removed; None for all."""

    @property
    def is_begun(self) -> bool:
        """Whether there is something to continue."""
        return any((self.unfinished / header).is_file() for header in _HEADERS)

    def others(self) -> set[str]:
        """The names in the folder, without what is unfinished; what killed processes have left is removed."""
        for path in self.folder.glob(".*-unfinished"):
            if _is_folder(path) and (path / LOCK).is_file():
                with claimed_file(self.folder / path.name[1:].removesuffix("-unfinished")):
                    pass
        return {path.name for path in self.folder.iterdir()} - {UNFINISHED}

    def begin(self, contents: Mapping[str, Any], *, force: bool = False) -> None:
        """Records what will be published here, so that only a command with the same contents continues it.

        Raises ValueError if something else has begun, which `force` discards.
        """
        header = self.unfinished / CONTENTS
        if self.is_begun and (different := differences(header, contents)):
            self.check_unbegun(f", {different}", force=force)
            self.discard()
        if not header.exists():
            write_atomically(header, contents_text(contents))

    @property
    def path(self) -> Path:
        """The path of a single file."""
        return self.folder / Path(self.name).name

    def check_new(self, *, force: bool = False) -> None:
        """Raises ValueError if a file of this name exists, unless `force` may replace it."""
        if _is_folder(self.path):
            raise ValueError(f"{self.name} is a directory, not a file")
        if os.path.lexists(self.path) and not force:
            raise ValueError(f"{self.name} exists already: choose another file, or replace it with --force")

    def check_unbegun(self, about: str = "", *, force: bool = False) -> None:
        """Raises ValueError if another command has begun something here, unless `force` may discard it."""
        if self.is_begun and not force:
            advice = "continue with the command that began it, or discard it with --force"
            raise ValueError(f"{self.name} is unfinished{about}: {advice}")

    def discard(self) -> None:
        """Removes what was begun: the headers first, without which nothing is continued."""
        for header in _HEADERS:
            (self.unfinished / header).unlink(missing_ok=True)
        for path in self.unfinished.iterdir():
            if path.name != LOCK:
                _remove(path)

    def fresh(self) -> Path:
        """An empty folder for new results, which `publish` moves to their place."""
        _remove(self.unfinished / _NEW)
        (self.unfinished / _NEW).mkdir()
        return self.unfinished / _NEW

    def publish(self, replaced: Collection[str] = (), removed: Collection[str] = (), *, is_final: bool = True) -> None:
        """Moves the results in the `fresh` folder to their place, all of them, even if the process is killed on the way.

        Args:
            replaced: the names that may be there already.
            removed: what is removed, unless there is a new result of the same name.
            is_final: whether nothing remains to be continued.
        """
        new = self.unfinished / _NEW
        names = {path.name for path in new.iterdir()}
        for name in names - {*replaced}:
            if os.path.lexists(self.folder / name):
                raise ValueError(f"{self.folder / name} has appeared in the meantime, so it is not replaced")
        journal = {"replaced": sorted(replaced), "removed": sorted({*removed} - names), "is_final": is_final}
        (new / _JOURNAL).write_text(json.dumps(journal | {"inode": new.stat().st_ino}), encoding="utf-8")
        for path in (new, *new.rglob("*")):
            sync(path)
        with uninterrupted():
            new.rename(self.unfinished / _COMPLETE)
            sync(self.unfinished)
            self._install()

    def recover(self) -> None:
        """Finishes what a killed process was publishing, and removes what cannot be continued."""
        self._install()
        if not self.is_begun:
            self.discard()
        for path in (self.unfinished / _NEW, *self.unfinished.glob(".*")):
            _remove(path)

    def _install(self) -> None:
        """Moves complete results to their place; each step can be repeated."""
        complete = self.unfinished / _COMPLETE
        if (journal := self._journal(complete)) is not None:
            replaced, removed, is_final = journal
            names = {path.name for path in complete.iterdir()} - {_JOURNAL}
            for header in _HEADERS:
                if is_final:
                    (self.unfinished / header).unlink(missing_ok=True)
                if header in names:
                    (self.folder / header).unlink(missing_ok=True)
            for name in removed:
                _remove(self.folder / name)
            for name in sorted(names, key=_HEADERS.__contains__):
                place = self.folder / name
                if name not in replaced and os.path.lexists(place):
                    continue  # it has appeared since the process was killed
                if _is_folder(place):
                    _remove(self.unfinished / _OLD)
                    place.rename(self.unfinished / _OLD)
                elif _is_folder(complete / name):  # a folder replaces no link
                    place.unlink(missing_ok=True)
                (complete / name).replace(place)
            sync(self.folder)
            (complete / _JOURNAL).unlink()
        for path in (complete, self.unfinished / _OLD):
            _remove(path)

    def _journal(self, complete: Path) -> tuple[set[str], list[str], bool] | None:
        """What `publish` has recorded; None if there is nothing to publish, or if the journal came from elsewhere."""
        try:
            found = read_object(complete / _JOURNAL)
            touched = {path.name for path in complete.iterdir()} - {_JOURNAL} | {*found["removed"]}
            is_ours = found["inode"] == complete.stat().st_ino  # nobody can write that into an archive
            is_ours &= all(Path(name).name == name and name not in ("..", UNFINISHED) for name in touched)
            is_ours &= self.only is None or touched <= self.only
            return ({*found["replaced"]}, found["removed"], found["is_final"]) if is_ours else None
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None


@contextlib.contextmanager
def claimed(out: str | Path | Destination) -> Iterator[Destination]:
    """A directory for results, locked until the end of the block; a destination that is locked already stays as it is."""
    if isinstance(out, Destination):
        yield out
        return
    folder = _resolved(Path(out), out)
    with write_errors(out):
        if folder.is_file():
            raise ValueError(f"{out} is a file, not a directory")
    with _held(Destination(str(out), folder, folder / UNFINISHED)) as place:
        yield place


@contextlib.contextmanager
def claimed_file(path: str | Path | Destination, *, more: Collection[str] = ()) -> Iterator[Destination]:
    """A single file, or a folder that is published as a whole, locked until the end of the block.

    Args:
        more: names of further files in the same folder that are published with it.
    """
    if isinstance(path, Destination):
        yield path
        return
    path = Path(path)
    folder = _resolved(path.parent, path)
    unfinished = folder / f".{path.name}-{UNFINISHED}"
    with _held(Destination(str(path), folder, unfinished, frozenset({path.name, *more}))) as place:
        yield place


def _resolved(path: Path, shown: str | Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # Python 3.11 raises RuntimeError for a link to itself
        raise ValueError(f"cannot write to {shown}: {getattr(error, 'strerror', None) or error}") from None


@contextlib.contextmanager
def _held(place: Destination) -> Iterator[Destination]:
    folder = place.unfinished
    with write_errors(place.name):
        _check_ours(folder)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            (folder / ("-" * _LONGEST_NAME)).lstat()  # raises OSError if the path is too long
        made = [path for path in folder.parents if not path.exists()]
    try:
        with locked(folder, place.name):
            with write_errors(place.name):
                place.recover()
            try:
                yield place
            finally:
                with contextlib.suppress(OSError):  # the folder may be gone or read-only
                    place.recover()
    finally:
        for path in (folder, *made):
            with contextlib.suppress(OSError):
                path.rmdir()  # fails unless it is empty


def _check_ours(unfinished: Path) -> None:
    """Raises ValueError unless farflung has made the folder, since it will be emptied."""
    if unfinished.is_symlink():
        raise ValueError(f"{unfinished} is a symbolic link, which is never followed: choose another directory")
    names: set[str] = set()
    with contextlib.suppress(FileNotFoundError):
        names |= {path.name for path in unfinished.iterdir()}
    for name in names:
        with contextlib.suppress(FileNotFoundError):  # another process is at work here
            mode = (unfinished / name).lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # writing would have effects elsewhere
                raise ValueError(f"{unfinished / name} is a link or a pipe: choose another directory")
    if names and not names & {LOCK, *_HEADERS}:
        raise ValueError(f"{unfinished} is not farflung's: choose another directory")


@contextlib.contextmanager
def locked(folder: Path, shown: str | Path | None = None) -> Iterator[None]:
    """Exclusive lock on a folder, which is made if necessary; a second process gets a ValueError that names the first.

    A killed process holds no lock.
    """
    path = folder / LOCK
    own: list[os.stat_result] = []

    def sign(handle: int) -> None:
        own.append(os.fstat(handle))
        with contextlib.suppress(OSError):  # a full disk
            os.truncate(handle, 0)
            # After a blank: on Windows no other process can read the first byte, which is the locked one.
            os.write(handle, f" process {os.getpid()} on {socket.gethostname()}\n".encode())

    # The short timeout allows for a retry if the previous holder removes the file in the same moment.
    lock = FileLock(path, timeout=0.1, thread_local=False, on_acquired=sign)
    with write_errors(shown or folder):
        for attempt in range(_ATTEMPTS):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                lock.acquire()
                break
            except Timeout:
                raise ValueError(f"{shown or folder} is in use by {_holder(path)}") from None
            except (FileExistsError, FileNotFoundError):  # the previous holder has removed the folder in the same moment
                if attempt == _ATTEMPTS - 1:
                    raise
    try:
        yield
    finally:
        try:
            if os.path.samestat(own[-1], path.lstat()):  # otherwise the folder is a new one, with the lock of another holder
                path.unlink()
        except OSError:  # the folder may be gone or read-only; without a holder the file locks nothing
            pass
        finally:
            lock.release()


def is_held(folder: Path) -> bool:
    """Whether a process holds the lock of a folder, without taking it; on another machine or system, it counts as held."""
    path = folder / LOCK
    try:
        import fcntl

        with path.open("rb") as file:
            if not file.read(64).decode(errors="replace").rstrip().endswith(f" on {socket.gethostname()}"):
                return True
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except (ImportError, OSError):
        return True


def _holder(path: Path) -> str:
    """The process that holds a lock, as far as its file can be read."""
    with contextlib.suppress(OSError, ValueError):
        file_size(path)  # raises ValueError unless it is a regular file
        with path.open("rb", buffering=0) as file:
            file.seek(1)
            if words := file.read(64).decode(errors="replace").split():
                return " ".join(words)
    return "another process"


def open_collection(out: str | Path | Destination, contents: Mapping[str, Any], *, force: bool = False) -> None:
    """Creates a folder for many results of the same settings, or opens one that was created with these settings.

    The folder records `contents`, so that results of another version or other settings are never added to it. With `force`,
    results of other contents are removed.
    """
    with claimed(out) as place, write_errors(place.name):
        replaced, removed = _replaceable(place, contents, force)
        if removed or not replaced:
            (place.fresh() / CONTENTS).write_text(contents_text(contents), encoding="utf-8")
            place.publish(replaced, removed)


@contextlib.contextmanager
def open_results(
    out: str | Path | Destination, command: str, settings: Mapping[str, Any], *, force: bool = False
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A folder for the results of one command, locked until the end of the block.

    Yields a function that saves results, as `write_results` takes them: all of them, in place of results of the same settings.
    """
    contents = {"farflung": version("farflung"), "command": command, **settings}
    with claimed(out) as place:
        with write_errors(place.name):
            replaced, removed = _replaceable(place, contents, force)

        def save(results: Mapping[str, Any]) -> None:
            with write_errors(place.name):
                write_results(new := place.fresh(), results)
                (new / CONTENTS).write_text(contents_text(contents), encoding="utf-8")
                place.publish(replaced, removed)

        yield save


def _replaceable(place: Destination, contents: Mapping[str, Any], force: bool) -> tuple[set[str], set[str]]:
    """The names in a folder that results with these contents may replace, and those that are removed first.

    Raises ValueError if the folder holds anything else than such results.
    """
    others = place.others()
    if place.is_begun:
        raise ValueError(f"{place.name} holds an unfinished training: choose another directory")
    if others and CONTENTS not in others:
        raise ValueError(f"{place.name} is not empty and holds no results: choose another directory")
    if others and not _is_header(place.folder / CONTENTS):
        raise ValueError(f"{place.name} holds no results of farflung: choose another directory")
    different = differences(place.folder / CONTENTS, contents) if others else ""
    if different and not force:
        advice = "choose another directory, or discard them with --force"
        raise ValueError(f"{place.name} holds results {different}: {advice}")
    for name in sorted(others) if different else ():
        path = place.folder / name
        if not (path.suffix in _RESULT_SUFFIXES and path.is_file()) and name not in _RESULT_FOLDERS:
            raise ValueError(
                f"{place.name} holds more than results ({name}), so they are not replaced: choose another directory"
            )
    return others, others if different else set()


def _is_header(path: Path) -> bool:
    """Whether a file is farflung's description of results, or a damaged one."""
    try:
        return "farflung" in read_object(path)
    except (OSError, ValueError):
        return True


def is_results_of(path: Path, command: str) -> bool:
    """Whether a folder holds the results of a command."""
    try:
        return read_object(path / CONTENTS).get("command") == command
    except (OSError, ValueError):
        return False


def contents_text(contents: Mapping[str, Any]) -> str:
    """The content of `contents.json`."""
    return json.dumps({"format_version": FORMAT_VERSION, **contents}, indent=2) + "\n"


def differences(header: Path, contents: Mapping[str, Any]) -> str:
    """In what a header differs from the contents that are wanted, in words; empty if it does not."""
    wanted = json.loads(json.dumps(contents))  # as it is read back: no tuples
    try:
        found = read_object(header)
        check_version(found.pop("format_version", None), FORMAT_VERSION, found.get("farflung"))
    except (OSError, ValueError) as error:
        return f"that cannot be read ({error})"
    keys = sorted(key for key in wanted.keys() | found.keys() if found.get(key) != wanted.get(key))
    return "with " + ", ".join(f"{key} {found.get(key)} instead of {wanted.get(key)}" for key in keys) if keys else ""


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _remove(path: Path) -> None:
    """Removes a file, a link or a folder, if it is there."""
    if _is_folder(path):
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
