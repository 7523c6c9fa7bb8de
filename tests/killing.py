"""Kills a process at its N-th file event, which an audit hook sees: whenever a file is written, renamed or removed."""

import contextlib
import os
import sys
from pathlib import Path

_PATHS = {"open": 1, "os.mkdir": 1, "os.rename": 2, "os.remove": 1, "os.rmdir": 1, "os.link": 2, "os.truncate": 1}
"""The audit events that change files, with the number of paths among their arguments."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_watch = None


class Killed(BaseException):
    """Stands for the end of the process: nothing that runs after it changes a file."""


class _Watch:
    def __init__(self, folder, number):
        self.folder, self.number = str(folder), number
        self.events = []

    def see(self, event, arguments):
        if event not in _PATHS or (event == "open" and not _is_writing(*arguments[1:3])):
            return
        if not any(map(self._is_inside, arguments[: _PATHS[event]], _folders(event, arguments))):
            return
        self.events.append(f"{event} {arguments[0]}")
        if self.number is not None and len(self.events) >= self.number:
            raise Killed(self.events[self.number - 1])

    def _is_inside(self, path, folder):
        path = _of_descriptor(path) if isinstance(path, int) else os.fsdecode(path)
        return os.path.normpath(folder / path).startswith(self.folder)


def _is_writing(mode, flags):
    return any(letter in (mode or "") for letter in "wax+") or bool((flags or 0) & _WRITES)


def _folders(event, arguments):
    """The folder that each path is relative to."""
    descriptors = [each for each in arguments[_PATHS[event] :] if isinstance(each, int)] if event != "open" else []
    descriptors = descriptors[-_PATHS[event] :] if event != "os.truncate" else []
    folders = [_of_descriptor(each) if each >= 0 else Path.cwd() for each in descriptors]
    return folders + [Path.cwd()] * (_PATHS[event] - len(folders))


def _of_descriptor(number):
    return Path(f"/proc/self/fd/{number}").readlink()


def _hook(event, arguments):
    if _watch is not None:
        _watch.see(event, arguments)


sys.addaudithook(_hook)


@contextlib.contextmanager
def killed_at(folder: Path, number: int | None):
    """Ends the block at its N-th file event in a folder; yields the list of events. None only counts them."""
    global _watch
    _watch = _Watch(folder, number)
    try:
        yield _watch.events
    except Killed:
        pass
    finally:
        _watch = None
