"""Waits: the interpreter's lock is free meanwhile, and Ctrl-C ends them."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy
import pytest

import fpga
from conftest import PATIENCE

# Two cards never answer, so a wait lasts as long as its limit.
STOPPED = "mock:optweb:4+stop=2@1.0.65536"


def test_other_threads_run_during_a_wait() -> None:
    steps = 0
    is_waiting = True

    def count() -> None:
        nonlocal steps
        while is_waiting:
            steps += 1
            time.sleep(0)

    with fpga.open(STOPPED) as cards:
        operation = cards.allgather(numpy.ones((4, 1 << 18), "f4"))
        counting = threading.Thread(target=count)
        counting.start()
        before = steps
        try:
            operation.wait(0.5)
        except fpga.TimeoutError:
            pass
        after = steps
        is_waiting = False
        counting.join()
    # With the lock held, at most the thread's last step before the wait and its first after it.
    assert after - before > 10


@pytest.mark.parametrize("what", ["an operation", "cards"])
def test_other_threads_run_while_something_is_let_go(what: str) -> None:
    steps = 0
    is_going = True

    def count() -> None:
        nonlocal steps
        while is_going:
            steps += 1
            time.sleep(0)

    cards = fpga.open(STOPPED)
    held = [cards.allgather(numpy.ones((4, 1 << 18), "f4"))]
    counting = threading.Thread(target=count)
    counting.start()
    if what == "cards":
        # Their close alone is measured: the operation has ended before.
        held.clear()
    before = steps
    # The stopped card has its time to stop, each time.
    if what == "cards":
        del cards
    else:
        held.clear()
    after = steps
    is_going = False
    counting.join()
    assert after - before > 10


DAEMONS = """
import threading, time, numpy, fpga
cards = fpga.open("mock:optweb:4")
x = numpy.ones((4, 64), "f4")

def work():
    while True:
        try:
            cards.allreduce(x).wait()
        except fpga.Error:
            pass

class Index:
    def __index__(self):
        time.sleep(0.001)
        return 0

class Slow(numpy.ndarray):
    def __del__(self):
        time.sleep(0.001)

def index():
    while True:
        cards[Index()]

def drop():
    while True:
        try:
            cards.allreduce(x, out=numpy.zeros_like(x).view(Slow)).wait()
        except fpga.Error:
            pass

for target in (work, work, work, work, index, drop, drop):
    threading.Thread(target=target, daemon=True).start()
time.sleep(0.15)
"""


def test_a_program_ends_while_daemon_threads_use_cards() -> None:
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", DAEMONS], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr


INTERRUPTED = """
import sys, numpy, fpga
x = numpy.ones((4, 64), "f4")
with fpga.open(sys.argv[1]) as cards:
    operation = cards.allreduce(x)
    assert not operation.test()
    try:
        print("waiting", flush=True)
        while True:
            operation.wait(60)
            operation = cards.allreduce(x)
    except KeyboardInterrupt as interrupted:
        assert operation.status != "in flight" and not hasattr(interrupted, "__notes__")
    assert (cards.allreduce(x).wait() == 4).all()
    print("usable")
"""


def interrupt(script: str, *arguments: str) -> str:
    """Runs a script, sends SIGINT once it waits, and returns what it prints then."""
    command = [sys.executable, "-c", script, *arguments]
    # A shell without job control starts what runs in the background with Ctrl-C ignored, and children inherit that.
    program = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "waiting\n"
    time.sleep(0.2)
    program.send_signal(signal.SIGINT)
    printed, _ = program.communicate(timeout=PATIENCE)
    return f"{program.returncode}: {printed}"


def test_ctrl_c_ends_a_wait_and_leaves_the_cards_usable(slow: str) -> None:
    assert interrupt(INTERRUPTED, slow) == "0: usable\n"


STUCK = """
import sys, numpy, fpga
with fpga.open(sys.argv[1]) as cards:
    operation = cards.allgather(numpy.ones((4, 1 << 18), "f4"))
    try:
        print("waiting", flush=True)
        operation.wait(60)
    except KeyboardInterrupt as interrupted:
        # The stopped card does not stop, and the exception says so.
        print(operation.status, len(interrupted.__notes__))
"""


def test_ctrl_c_ends_a_wait_for_a_card_that_stopped() -> None:
    assert interrupt(STUCK, STOPPED) == "0: over 1\n"


HANDLED = """
import signal, sys, numpy, fpga
what, x = sys.argv[1], numpy.ones((4, 1 << 18), "f4")
cards = fpga.open("mock:optweb:4+stop=2@1.0.65536")
operation = cards.allgather(x)

def handle(*_):
    # The stopped card does not stop, and an abort says so.
    try:
        print(cards[0].status().queue)
        cards.close() if what == "close" else operation.abort()
    except fpga.FailedError as error:
        print("did not stop" in str(error))

signal.signal(signal.SIGINT, handle)
print("waiting", flush=True)
try:
    operation.wait(60)
except fpga.Error as error:
    print(type(error).__name__, operation.status, cards.closed)
"""


@pytest.mark.parametrize("what", ["close", "abort"])
def test_a_handler_of_a_signal_ends_the_wait_that_it_interrupts(what: str) -> None:
    ended = "UsageError over True" if what == "close" else "True\nRefusedError over False"
    command = HANDLED.replace("sys.argv[1]", repr(what))
    assert interrupt(command) == f"0: running\n{ended}\n"


AT_THE_END = """
import sys, numpy, fpga

class Engine:
    def __init__(self):
        self.cards = fpga.open("mock:optweb:4+late=40000")
        self.rows = numpy.ones((4, 64), "f4")
        if sys.argv[1] == "waited":
            self.cards.barrier().wait()
        self.pending = self.cards.allreduce(self.rows)

    def __del__(self):
        print(self.pending.wait()[0, 0])
        try:
            self.cards.allreduce(self.rows, "mean")
        except ValueError as error:
            print(error.kind)
        rows = self.cards.zeros(4, "f4")
        print(self.cards.scan(rows).wait()[0])

engine = Engine()
"""


@pytest.mark.parametrize("earlier", ["waited", "nothing"])
def test_cards_work_while_the_interpreter_ends(earlier: str) -> None:
    """Nothing can be imported then."""
    command = [sys.executable, "-c", AT_THE_END, earlier]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "4.0\nusage\n0.0\n", "")


FORKED = """
import atexit, os, resource, sys, threading

def switches():
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw

def after():
    if is_child:
        print(switches() - before, flush=True)

def first():
    global before
    before = switches()

# Functions that were registered last are called first: the package's is between these.
atexit.register(after)
import fpga
atexit.register(first)

cards = fpga.open("mock:optweb:4")
parent, is_child = os.getpid(), False
entered, is_over = threading.Event(), threading.Event()

class Stays:
    def __index__(self):
        entered.set()
        is_over.wait()
        return 0

class Forks:
    def __index__(self):
        fork()
        return 0

def fork():
    global is_child
    child = os.fork()
    is_child = child == 0
    if child:
        is_over.set()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

inside = threading.Thread(target=lambda: cards[Stays()], daemon=True)
inside.start()
entered.wait()
if sys.argv[1] == "outside":
    fork()
else:
    try:
        cards[Forks()]
    except fpga.Error:
        assert is_child
"""


@pytest.mark.parametrize("where", ["outside", "inside"])
def test_a_forked_child_waits_at_its_exit_for_no_thread_of_its_parent(where: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKED, where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    # A wait looks each millisecond whether the threads are out, for a second.
    assert int(done.stdout) < 300


FORKED_AT_THE_END = """
import atexit, os, signal, threading
ending, is_done = threading.Event(), threading.Event()

# Called after the package's function, with which the interpreter of the parent ends.
@atexit.register
def wait():
    ending.set()
    is_done.wait()

import fpga
cards = fpga.open("mock:optweb:4")

def fork():
    ending.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            cards.zeros(4)
        except fpga.Error:
            os._exit(3)
        finally:
            os._exit(4)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    is_done.set()

threading.Thread(target=fork, daemon=True).start()
"""


def test_a_child_that_is_forked_while_its_parent_ends_goes_on() -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKED_AT_THE_END]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


def test_a_forked_child_gets_an_exception(served: str) -> None:
    with fpga.open(served) as cards:
        array = cards.zeros((4, 64), "f4")
        operation = cards.allreduce(array)
        child = os.fork()
        if child == 0:
            code = 0
            calls = operation.test, operation.abort, operation.abort, operation.wait
            for call in (*calls, lambda: cards.allreduce(array), lambda: cards[0]):
                try:
                    call()
                    code = 1
                except fpga.Error as error:
                    code = code if "forked this one" in str(error) else 2
                except BaseException:
                    code = 3
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert (operation.wait() == 0).all()


FORKED_IN_FLIGHT = """
import os, signal, sys
import fpga, numpy
cards = fpga.open("mock:optweb:4+late=20000")
array = numpy.ones((4, 4096), "f4")
for _ in range(20):
    operation = cards.allgather(array)
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        sys.exit()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (operation.wait() == 1).all()
"""


def test_a_child_that_is_forked_in_flight_ends() -> None:
    """Whatever the parent's cards were doing at the fork, the child waits for none of their locks."""
    command = [sys.executable, "-W", "ignore", "-c", FORKED_IN_FLIGHT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
