"""Signals that ask for an end: the work goes on to the next good place, and who asks twice is not kept waiting."""

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_asked: list[int] = []
"""The signals that have come since somebody began to listen."""
_is_listening = False


class Stopped(KeyboardInterrupt):
    """Work was stopped by a signal, after what there was had been saved."""

    def __init__(self, *notes: str) -> None:
        super().__init__(*notes)
        self.code = 128 + (asked() or signal.SIGINT)
        """With which the process exits."""


def asked() -> int | None:
    """The signal that has asked for an end, if any has."""
    return _asked[0] if _asked else None


def check() -> None:
    """Raises `Stopped` if somebody has asked for an end."""
    if asked() is not None:
        raise Stopped


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Lets one find out with `asked` about Ctrl-C and SIGTERM, which end nothing; the second of them ends the process at once.

    It does so whatever the process is at, even compiling. Signals that somebody else handles are left alone. After SIGTERM the
    process exits at the end of the block.
    """
    global _is_listening
    if _is_listening or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    ours = [number for number in _SIGNALS if before[number] in (signal.SIG_DFL, signal.default_int_handler)]
    told, tell = socket.socketpair()
    tell.setblocking(False)
    previous = signal.set_wakeup_fd(tell.fileno(), warn_on_full_buffer=False)
    for number in ours:
        signal.signal(number, _ignore)
    listener = threading.Thread(target=_listen, args=(told, ours), daemon=True)
    listener.start()
    _is_listening = True
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])
        signal.set_wakeup_fd(previous)
        tell.close()
        listener.join()
        told.close()
        _is_listening = False
        last = asked()
        _asked.clear()
    if last == signal.SIGTERM:
        raise SystemExit(128 + last)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Puts off an interrupt (Ctrl-C) until the block is done."""
    is_listened_to, number = _is_listening, None
    with stoppable():
        yield
        number = asked()
    if number == signal.SIGINT and not is_listened_to:
        raise KeyboardInterrupt


def _listen(told: socket.socket, ours: list[signal.Signals]) -> None:
    # In a thread of its own: Python's own handlers have to wait for whatever compiled code the main thread is in.
    while numbers := told.recv(16):
        for number in numbers:
            if number in ours:
                if _asked:
                    os._exit(128 + number)
                _asked.append(number)


def _ignore(_: int, __: FrameType | None) -> None:
    """What has to be done is done by who listens."""
