"""Signals that ask for an end: the work goes on to the next good place, and who asks twice is not kept waiting."""

import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing import util
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SECONDS_TO_HEED = 2.0
_SECONDS_TO_TIDY = 1.0
_listener: "_Listener | None" = None


class Stopped(KeyboardInterrupt):
    """Work was stopped by a signal, where nothing is lost by that."""

    def __init__(self, *notes: str) -> None:
        super().__init__(*notes)
        self.code = 128 + (asked() or signal.SIGINT)
        """With which the process exits."""


def asked() -> int | None:
    """The signal that has asked for an end, if any has."""
    return None if _listener is None else _listener.asked


def check() -> None:
    """Raises `Stopped` if somebody has asked for an end."""
    if asked() is not None:
        raise Stopped


@contextlib.contextmanager
def ending(say: Callable[[], None]) -> Iterator[None]:
    """Has Ctrl-C and SIGTERM raise `Stopped` in a program, but for what is `stoppable` in it.

    Whoever cannot do that or doesn't get to it soon, as in an import or in long compiled code, is ended all the same; as
    everybody is by a second signal.

    Args:
        say: the last words of a process that is ended so.
    """
    if not _can_listen():
        yield
        return
    with _listening(_Listener(num_blocks=0, say=say)) as listener:
        shown = sys.unraisablehook

        def show(unraisable: Any) -> None:
            if isinstance(unraisable.exc_value, Stopped):  # raised where that stops nobody, such as in a garbage collection
                listener.end(unraisable.exc_value.code)
            shown(unraisable)

        sys.unraisablehook = show
        try:
            yield
        finally:
            sys.unraisablehook = shown


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Lets one find out with `asked` about Ctrl-C and SIGTERM, which end nothing; the second of them ends the process at once.

    It does so whatever the process is at, even compiling. Signals that somebody else handles are left alone. After SIGTERM the
    process exits at the end of the block, unless that is part of a program in `ending`, which sees to it.
    """
    if _can_listen():
        with _listening(_Listener(num_blocks=1)) as listener:
            yield
        if listener.asked == signal.SIGTERM:
            raise SystemExit(128 + listener.asked)
    elif _listener is None or not _is_main_thread():
        yield
    else:
        _listener.num_blocks += 1
        try:
            yield
        finally:
            _listener.num_blocks -= 1


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Puts off an interrupt (Ctrl-C) until the block is done."""
    before, number = asked(), None
    with stoppable():
        yield
        number = asked()
    if number != before and _is_main_thread() and (_listener is None or _listener.num_blocks == 0):
        raise Stopped


def leave(code: int) -> None:
    """Has the process, whose work is done, end with the exit code of that if a signal comes while Python tidies up."""
    for number in _unhandled():
        signal.signal(number, lambda *_: os._exit(code))


class _Listener(threading.Thread):
    """Hears of signals in a thread of its own, as Python's own handlers have to wait for compiled code of the main thread."""

    def __init__(self, num_blocks: int, say: Callable[[], None] = lambda: None) -> None:
        super().__init__(daemon=True)
        self.asked: int | None = None
        self.num_blocks = num_blocks
        """That are stoppable and that the main thread is in."""
        self.before = {number: signal.getsignal(number) for number in _unhandled()}
        """The handlers that are taken over."""
        self._say = say
        self._is_heeded = False
        self.told, self.tell = socket.socketpair()
        self.tell.setblocking(False)

    def heed(self, number: int, frame: FrameType | None) -> None:
        """What the main thread does when it gets to it."""
        self.asked = self.asked or number
        is_new, self._is_heeded = not self._is_heeded, True
        if is_new and self.num_blocks == 0:
            if _is_importing(frame):  # where exceptions are swallowed, or made others of; and not much has been begun
                self.end(128 + number)
            raise Stopped

    def run(self) -> None:
        num_heard = 0
        while True:
            try:
                numbers = self.told.recv(16)
            except TimeoutError:
                if not self._is_heeded:
                    self.end(128 + (self.asked or signal.SIGINT))
                self.told.settimeout(None)
                continue
            if not numbers:
                return
            for number in numbers:
                if number in self.before:
                    self.asked, num_heard = self.asked or number, num_heard + 1
                    if num_heard > 1:
                        self.end(128 + number)
                    if self.num_blocks == 0:
                        self.told.settimeout(_SECONDS_TO_HEED)

    def end(self, code: int) -> None:
        """Ends the process, and its workers before they notice that."""
        try:
            self._say()
            # Semaphores would be called leaked; as others may have more to tidy up, that doesn't have all the time.
            tidying = threading.Thread(target=util._run_finalizers, daemon=True)  # type: ignore[attr-defined]
            tidying.start()
            tidying.join(_SECONDS_TO_TIDY)
            for worker in multiprocessing.active_children():
                worker.kill()
        finally:
            os._exit(code)


@contextlib.contextmanager
def _listening(listener: _Listener) -> Iterator[_Listener]:
    global _listener
    previous = signal.set_wakeup_fd(listener.tell.fileno(), warn_on_full_buffer=False)
    _listener = listener
    for number in listener.before:
        signal.signal(number, listener.heed)
    listener.start()
    try:
        yield listener
    finally:
        for number, handler in listener.before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(previous)
        listener.tell.close()
        listener.join()
        listener.told.close()
        _listener = None


def _can_listen() -> bool:
    return _listener is None and _is_main_thread()


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _unhandled() -> list[signal.Signals]:
    """The signals that nobody else has taken care of."""
    return [number for number in _SIGNALS if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)]
