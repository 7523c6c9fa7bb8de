import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from farflung.runs.interrupts import Stopped, asked, interruptible, stoppable, uninterrupted

WAITING = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from farflung.runs.interrupts import asked, stoppable
with stoppable():
    print("ready", flush=True)
    while asked() is None:
        time.sleep(0.01)
    print("asked", asked(), flush=True)
    if sys.argv[1] == "slow":
        time.sleep(60)
"""
PROGRAM = """
import gc, hashlib, multiprocessing, os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from farflung.runs import interrupts

def send(number, times=1):
    for _ in range(times):
        os.kill(os.getpid(), number)
        time.sleep(0.1)

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


def ended(code):
    """How a program ends, and what it says on stderr."""
    result = subprocess.run([sys.executable, "-c", PROGRAM + code], capture_output=True, text=True, check=False, timeout=60)
    return result.returncode, result.stderr


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


def test_sigterm_ends_the_process_after_the_block():
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_program_is_stopped_where_it_is(number):
    def work():
        os.kill(os.getpid(), number)
        time.sleep(60)

    with pytest.raises(Stopped) as stopped, interruptible(pytest.fail):
        work()
    assert stopped.value.code == 128 + number
    assert signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)


def test_a_stoppable_block_finishes_after_a_signal():
    with interruptible(pytest.fail):
        with stoppable():
            os.kill(os.getpid(), signal.SIGTERM)
            when_asked()
        assert Stopped().code == 143


def test_a_program_is_stopped_after_what_must_not_be_interrupted():
    done = []

    def work():
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGTERM)
            when_asked()
            done.append(True)
        done.append(False)

    with pytest.raises(Stopped) as stopped, interruptible(pytest.fail):
        work()
    assert done == [True]
    assert stopped.value.code == 143


def test_a_program_ends_even_if_a_garbage_collection_swallows_that():
    code = """
with interrupts.interruptible(lambda: print("ended", file=sys.stderr)):
    gc.callbacks.append(lambda *_: send(signal.SIGTERM))
    gc.collect()
    time.sleep(60)
"""
    assert ended(code) == (143, "ended\n")


def test_a_program_ends_even_if_it_is_in_compiled_code():
    code = """
interrupts._RESPONSE_SECONDS = 0.2
with interrupts.interruptible(lambda: print("ended", file=sys.stderr)):
    threading.Timer(0.5, send, args=(signal.SIGINT,)).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
"""
    assert ended(code) == (130, "ended\n")


def test_workers_are_ended_too_and_leave_nothing_to_complain_about():
    code = """
context = multiprocessing.get_context("forkserver")
with interrupts.stoppable():
    queue = context.Queue()
    context.Process(target=queue.get).start()
    send(signal.SIGINT, times=2)
"""
    assert ended(code) == (130, "")  # which is known once nobody is left who could say more


def test_whose_work_is_done_ends_with_its_own_code():
    assert ended("interrupts.keep_exit_code(3)\nsend(signal.SIGTERM)\nsend(signal.SIGINT)") == (3, "")
