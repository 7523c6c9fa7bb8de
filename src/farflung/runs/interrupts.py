"""Ctrl-C and SIGTERM: the first one stops the work at the next safe place, the second one ends the process at once."""

import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

_RESPONSE_SECONDS = 2.0
_watch: "_Watch | None" = None


class Stopped(KeyboardInterrupt):
    """A signal stopped the work at a safe place; `code` is the exit code for the process."""

    def __init__(self, *notes: str) -> None:
        super().__init__(*notes)
        self.code = 128 + (asked() or signal.SIGINT)


def asked() -> int | None:
    """The signal that asked the process to stop, or None."""
    return None if _watch is None else _watch.signal


def ask(number: int) -> None:
    """Asks the work to stop at the next safe place, as a signal would; in a `stoppable` block, which finds out with `asked`."""
    if _watch is not None:
        _watch.signal = _watch.signal or number


def check() -> None:
    """Raises `Stopped` if a signal asked the process to stop."""
    if asked() is not None:
        raise Stopped


@contextlib.contextmanager
def interruptible(last_words: Callable[[], None]) -> Iterator[None]:
    """Makes Ctrl-C and SIGTERM raise `Stopped` in a program, except in its `stoppable` blocks.

    The process calls `last_words` and ends at once if a second signal comes, if it does not respond within 2 s (in compiled
    code), or if an exception would be lost (in an import or a garbage collection).
    """
    if _watch is not None or not _is_main_thread():
        yield
        return
    with _Watch(0, last_words) as watch:
        show_others = sys.unraisablehook

        def show(unraisable: Any) -> None:
            if isinstance(unraisable.exc_value, Stopped):
                watch.end(unraisable.exc_value.code)
            show_others(unraisable)

        sys.unraisablehook = show
        try:
            yield
        finally:
            sys.unraisablehook = show_others


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """A block that continues after Ctrl-C or SIGTERM and finds out about it with `asked`; a second signal ends the process.

    Signals that have other handlers than Python's own are left alone. After SIGTERM the process exits at the end of the block,
    or, in an `interruptible` program, when the program ends.
    """
    if not _is_main_thread():
        yield
    elif _watch is None:
        with _Watch(1, lambda: None) as watch:
            yield
        if watch.signal == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
    else:
        _watch.num_blocks += 1
        try:
            yield
        finally:
            _watch.num_blocks -= 1


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Postpones the effect of Ctrl-C and SIGTERM to the end of the block."""
    before = after = asked()
    with stoppable():
        yield
        after = asked()
    if after != before and _is_main_thread() and (_watch is None or _watch.num_blocks == 0):
        raise Stopped


def keep_exit_code(code: int) -> None:
    """Lets signals that come while Python shuts down, after the work, end the process with the exit code of the work."""
    for number in _unhandled():
        signal.signal(number, lambda *_: os._exit(code))


class _Watch(threading.Thread):
    """Receives signals in a thread, because Python's handlers do not run while the main thread is in compiled code."""

    def __init__(self, num_blocks: int, last_words: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self.signal: int | None = None
        self.num_blocks = num_blocks
        """Number of `stoppable` blocks around the main thread."""
        self._last_words = last_words
        self._handlers = {number: signal.getsignal(number) for number in _unhandled()}
        self._is_handled = False
        self._receiver, self._sender = socket.socketpair()
        self._sender.setblocking(False)

    def __enter__(self) -> "_Watch":
        global _watch
        _watch = self
        self._descriptor = signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)
        for number in self._handlers:
            signal.signal(number, self._on_signal)
        # If the process ends at once, multiprocessing's resource tracker removes its semaphores, but would warn about them.
        self._warnings = os.environ.get("PYTHONWARNINGS")
        quiet = "ignore::UserWarning:multiprocessing.resource_tracker"
        os.environ["PYTHONWARNINGS"] = ",".join(filter(None, (self._warnings, quiet)))
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        global _watch
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._descriptor)
        os.environ.pop("PYTHONWARNINGS", None)
        if self._warnings is not None:
            os.environ["PYTHONWARNINGS"] = self._warnings
        self._sender.close()
        self.join()
        self._receiver.close()
        _watch = None

    def run(self) -> None:
        num_signals = 0
        while numbers := self._receiver.recv(16):  # nothing once the sender is closed
            for number in filter(self._handlers.__contains__, numbers):
                self.signal = self.signal or number
                num_signals += 1
                if num_signals > 1:
                    self.end(128 + number)
                if self.num_blocks == 0:
                    timer = threading.Timer(_RESPONSE_SECONDS, self._end_unless_handled, [128 + number])
                    timer.daemon = True
                    timer.start()

    def end(self, code: int) -> None:
        """Ends the process, and the worker processes before they complain about that."""
        try:
            self._last_words()
            for worker in multiprocessing.active_children():
                worker.kill()
        finally:
            os._exit(code)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Python's signal handler, in the main thread; since Python 3.13, a thread has an attribute `_handle` of its own."""
        self.signal = self.signal or number
        is_first, self._is_handled = not self._is_handled, True
        if is_first and self.num_blocks == 0:
            if any(each.f_code.co_filename == "<frozen importlib._bootstrap>" for each, _ in traceback.walk_stack(frame)):
                self.end(128 + number)
            raise Stopped

    def _end_unless_handled(self, code: int) -> None:
        if _watch is self and not self._is_handled:
            self.end(code)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _unhandled() -> list[signal.Signals]:
    """The signals without a handler of others."""
    default = (signal.SIG_DFL, signal.default_int_handler)
    return [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) in default]
