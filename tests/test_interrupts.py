import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from farflung.interrupts import Stopped, asked, stoppable, uninterrupted

WAITING = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from farflung.interrupts import asked, stoppable
with stoppable():
    print("ready", flush=True)
    while asked() is None:
        time.sleep(0.01)
    print("asked", asked(), flush=True)
    if sys.argv[1] == "slow":
        time.sleep(60)
"""


@pytest.fixture(autouse=True)
def as_in_a_terminal():
    """What runs in the background may have inherited that interrupts are ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def started(kind):
    with subprocess.Popen([sys.executable, "-c", WAITING, kind], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        yield process


def when_asked():
    while asked() is None:
        time.sleep(0.001)


def test_the_first_interrupt_is_asked_about_and_ends_nothing():
    with stoppable():
        assert asked() is None
        os.kill(os.getpid(), signal.SIGINT)
        when_asked()
        assert asked() == signal.SIGINT
        assert Stopped("why").code == 130
        with stoppable():  # that of an inner work is the same
            assert asked() == signal.SIGINT
    assert asked() is None
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_who_is_told_to_terminate_does_so_when_the_work_is_done():
    with started("quick") as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "asked 15\n"
        assert process.wait(30) == 143


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_one_ends_the_process_at_once(number):
    with started("slow") as process:
        process.send_signal(number)
        process.stdout.readline()
        process.send_signal(number)
        assert process.wait(30) == 128 + number


def test_handlers_of_others_and_other_threads_are_left_alone():
    def own(*_):
        pass

    before = signal.signal(signal.SIGTERM, own)
    try:
        with stoppable():
            assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)
    found = []

    def elsewhere():
        with stoppable():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


def test_an_interrupt_is_put_off_until_a_block_is_done():
    done = []

    def work():
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            when_asked()
            done.append(True)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done
