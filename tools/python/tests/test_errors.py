"""Bad input is a clear exception; nothing is lost, and the cards work on."""

import copy
import ctypes
import gc
import pickle
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
from numpy._core._rational_tests import rational

import fpga
from conftest import IN_PROCESS, PATIENCE

ONES = numpy.ones((4, 64), "f4")


@pytest.fixture
def cards(cards: fpga.Cards) -> Iterator[fpga.Cards]:
    """After each test, the same cards do an allreduce."""
    yield cards
    assert (cards.allreduce(ONES).wait() == 4).all()


def read_only() -> numpy.ndarray[Any, Any]:
    array = numpy.empty_like(ONES)
    array.flags.writeable = False
    return array


def objects(*shape: int) -> numpy.ndarray[Any, Any]:
    return numpy.full(shape, None, object)


class Colons(ctypes.Structure):
    """The names of fields are between colons in the format, too."""

    _fields_ = [("x:y", ctypes.c_int), ("object", ctypes.py_object), ("z:i", ctypes.c_int)]


DAYS = numpy.zeros(4, "M8[D]")
OVERLAPPING = numpy.dtype({"names": ["a", "b"], "formats": ["i4", "f8"], "offsets": [0, 0], "itemsize": 8})


def rationals(count: int) -> numpy.ndarray[Any, Any]:
    """Numbers of a type of which NumPy gives no view."""
    return numpy.array([rational(1, 2)] * count)


class Opaque(ctypes.Union):
    _fields_ = [("obj", ctypes.py_object)]


class Squeezed(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("byte", ctypes.c_byte), ("parts", Opaque * 2)]


BAD: list[tuple[Callable[[fpga.Cards], Any], str]] = [
    (lambda cards: cards.allreduce(ONES, out=read_only()), "out is read-only"),
    (lambda cards: cards.send(b"abc", out=b"abc"), "out is read-only"),
    (lambda cards: cards.allreduce(numpy.ones((64, 4), "f4").T), "the input is not C-contiguous"),
    (lambda cards: cards.allreduce(ONES, out=numpy.ones((4, 128), "f4")[:, ::2]), "out is not C-contiguous"),
    (lambda cards: cards.allreduce(ONES, out=numpy.ones((4, 64), "f8")), 'format "d": expected "f"'),
    (lambda cards: cards.allreduce(ONES, out=numpy.ones((4, 64), "i4")), 'format "[il]": expected "f"'),
    (lambda cards: cards.allreduce(ONES, out=numpy.ones((4, 63), "f4")), r"shape \[4, 63\]: expected \[4, 64\]"),
    (lambda cards: cards.allreduce(ONES, out=numpy.ones(256, "f4")), "out has shape"),
    (lambda cards: cards.allreduce(ONES[:3]), r"4 cards takes an array of shape \(4, ...\), not \[3, 64\]"),
    (lambda cards: cards.alltoall(ONES), r"shape \(4, 4, ...\)"),
    (lambda cards: cards.allreduce(numpy.float32(1)), r"shape \(4, ...\), not \[\]"),
    (lambda cards: cards.reduce(ONES[:, 0].copy(), out=numpy.float32(0)), "out is read-only"),
    (lambda cards: cards.reduce(ONES[:, 0].copy(), out=ONES[0, :1].copy()), r"out has shape \[1\]: expected \[\]"),
    (lambda cards: cards.allgather(objects(4)), "the input has references to objects: expected numbers"),
    (lambda cards: cards.send(objects()), "the input has references to objects"),
    (lambda cards: cards.send(bytes(8), out=objects(1)), "out has references to objects"),
    (lambda cards: cards.scatter(numpy.zeros(4, [("a", "f4"), ("b", "O")])), "the input has references to objects"),
    (lambda cards: cards.send((Colons * 2)()), "the input has references to objects"),
    (lambda cards: cards.send(memoryview((Colons * 2)())), "the input has references to objects"),
    (lambda cards: cards[0].read(0, Colons()), "out has references to objects"),
    (lambda cards: cards[0].read(0, (ctypes.py_object * 2)()), "out has references to objects"),
    (lambda cards: cards.send((Opaque * 2)()), "the input has references to objects"),
    (lambda cards: cards.send(memoryview((Opaque * 2)())), "the input has references to objects"),
    (lambda cards: cards[0].read(0, Squeezed()), "out has references to objects"),
    (lambda cards: cards.send(numpy.zeros(4, [("a", "M8[s]"), ("b", "O")])), "the input has references to objects"),
    (lambda cards: cards.send(numpy.zeros((4, 2), "M8[s]")[:, :1]), "the input is not C-contiguous"),
    (lambda cards: cards.send(numpy.zeros(4, "M8[s]"), out=numpy.zeros(4, "f8")), 'format "d": expected "[lq]"'),
    (lambda cards: cards.sendrecv(DAYS, out=numpy.zeros(4, "M8[s]")), r"\[s\]: expected datetime64\[D\], as the input"),
    (lambda cards: cards.sendrecv(DAYS, out=numpy.zeros(4, "m8[D]")), r"out has dtype timedelta64\[D\]"),
    (lambda cards: cards.sendrecv(DAYS, out=DAYS.astype(">M8[D]")), "out has dtype >M8"),
    (lambda cards: cards.sendrecv(numpy.zeros(4, "M8[s],i4"), out=numpy.zeros(4, "i4,M8[s]")), "out has dtype"),
    (lambda cards: cards.sendrecv(rationals(4), out=numpy.zeros(4, "i4,i4")), "out has elements of format"),
    (lambda cards: cards.sendrecv(rationals(4), out=numpy.zeros(4, OVERLAPPING)), "expected rational"),
    (lambda cards: cards.send(rationals(1)[0], out=rationals(1)[0]), "out is read-only"),
    (lambda cards: cards.allreduce(numpy.zeros(4, ">m8[s]")), 'elements of format ">[lq]" are in another byte order'),
    (lambda cards: cards[0].write(0, objects(4)), "the array has references to objects"),
    (lambda cards: cards[0].read(0, objects(4)), "out has references to objects"),
    (lambda cards: cards.allreduce(b""), "takes an array of shape"),
    (lambda cards: cards.allreduce(ONES.astype(">f4")), 'elements of format ">f" are in another byte order'),
    (lambda cards: cards.allreduce(ONES.astype("c8")), 'elements of format "Zf" are not reduced'),
    (lambda cards: cards.allreduce(ONES.astype("?")), 'elements of format "[?]" are not reduced'),
    (lambda cards: cards.allreduce(ONES, element="i32"), 'element "i32" is dtype "i4", and the array'),
    (lambda cards: cards.allreduce(ONES, element="bf16"), 'element "bf16" has 2 bytes'),
    (lambda cards: cards.allreduce(ONES, element="float"), "unknown element type"),
    (lambda cards: cards.allreduce(ONES, "mean"), "unknown reduction"),
    (lambda cards: cards.allreduce(ONES, algorithm="fast"), "unknown algorithm"),
    (lambda cards: cards.plan("allgatherv"), "unknown collective"),
    (lambda cards: cards.plan("allreduce", 64), "needs a reduction"),
    (lambda cards: cards.plan("barrier", 5), "barrier has no data: 5 bytes are given"),
    (lambda cards: cards.plan("barrier").launch(ONES), "barrier takes no array"),
    (lambda cards: cards.plan("barrier").launch(out=bytearray(4)), "no output"),
    (lambda cards: cards.plan("broadcast", 64).launch(), "broadcast takes an array"),
    (lambda cards: cards.plan("broadcast", 64).launch(ONES), "1024 bytes: the plan is for 64"),
    (lambda cards: cards.plan("broadcast", 64).input_bytes(4), "no rank 4"),
    (lambda cards: cards.plan("broadcast", 64).output_bytes(-1), r"no rank -1 \(the last is 3\)"),
    (lambda cards: cards.broadcast(ONES, root=-1), r"root -1 is not a rank \(the last is 3\)"),
    (lambda cards: cards.broadcast(ONES, root=2**64), "root 18446744073709551616 is not a rank"),
    (lambda cards: cards.reduce(ONES, root=-(2**200)), "root -.* is not a rank"),
    (lambda cards: cards.send(ONES, peer=-1), r"peer -1 is not a rank \(the last is 3\)"),
    (lambda cards: cards.plan("send", 64, peer=2**32), "peer 4294967296 is not a rank"),
    (lambda cards: cards.plan("broadcast", -1), "invalid bytes -1: expected 0 to"),
    (lambda cards: cards.plan("broadcast", 2**64), "invalid bytes 18446744073709551616: expected 0 to"),
    (lambda cards: cards[0].write(-1, ONES), "invalid address -1: expected 0 to"),
    (lambda cards: cards[0].read(2**64, bytearray(4)), "invalid address 18446744073709551616: expected 0 to"),
    (lambda cards: cards.memory(-1), "invalid nbytes -1: expected 0 to"),
    (lambda cards: cards.memory(1 << 63), "invalid nbytes 9223372036854775808: expected 0 to"),
]


@pytest.mark.parametrize(("call", "text"), BAD, ids=[text for _, text in BAD])
def test_bad_arguments_are_usage_errors(cards: fpga.Cards, call: Callable[[fpga.Cards], Any], text: str) -> None:
    with pytest.raises(fpga.UsageError, match=text) as raised:
        call(cards)
    assert raised.value.kind == "usage" and isinstance(raised.value, ValueError)


def test_what_the_planner_refuses(cards: fpga.Cards) -> None:
    with pytest.raises(fpga.RefusedError, match="root 4 is not a rank") as raised:
        cards.broadcast(ONES, root=4)
    assert raised.value.kind == "refused" and raised.value.reason is not None
    with pytest.raises(fpga.RefusedError):
        cards.allreduce(ONES.astype("f2"), "and")
    assert cards.allreduce(numpy.empty((4, 0), "f4")).wait().shape == (4, 0)


def test_wrong_types_are_type_errors(cards: fpga.Cards) -> None:
    for call in (
        lambda: cards.allreduce([1, 2, 3, 4]),
        lambda: cards.allreduce(None),
        lambda: cards.allreduce(ONES, out=[0.0] * 256),
        lambda: cards.allreduce(ONES, 3),
        lambda: cards[0].write("0", ONES),
        lambda: cards[0].write(0, "text"),
    ):
        with pytest.raises(TypeError):
            call()


PAIRS = {
    "i16i32": numpy.dtype("i2,i4", align=True),
    "i32i32": numpy.dtype("i4,i4"),
    "i64i32": numpy.dtype("i8,i4", align=True),
    "f32i32": numpy.dtype("f4,i4"),
    "f64i32": numpy.dtype("f8,i4", align=True),
}


def others_of(dtype: numpy.dtype[Any]) -> list[numpy.dtype[Any]]:
    """Types with other fields at the same places."""
    value, index, size = dtype["f0"], dtype["f1"], dtype.itemsize
    foreign, wrong = index.newbyteorder(">"), numpy.dtype(f"u{value.itemsize}")
    pairs = [(value.newbyteorder(">"), foreign), (value, foreign), (wrong, index), (value, numpy.dtype("f4"))]
    # Swapped.
    pairs += [(index, value)] if value != index else []
    places = {"names": ["f0", "f1"], "offsets": [0, size // 2], "itemsize": size}
    return [numpy.dtype({**places, "formats": pair}) for pair in pairs]


@pytest.mark.parametrize("element", PAIRS)
def test_pairs_are_records_with_their_fields(mock: fpga.Cards, element: str) -> None:
    dtype = PAIRS[element]
    x = numpy.array([(1, 0), (2, 1), (1, 2), (1, 3)], dtype).reshape(4, 1)
    raw = x.view(f"V{dtype.itemsize}")
    for given in (None, element):
        assert mock.allreduce(x, "maxloc", element=given).wait().tolist() == [[(2, 1)]] * 4
    assert mock.allreduce(raw, "maxloc", element=element).wait().view(dtype).tolist() == [[(2, 1)]] * 4
    plan = mock.plan("allreduce", dtype.itemsize, reduction="maxloc", element=element)
    assert plan.launch(x).wait().tolist() == [[(2, 1)]] * 4
    for other in others_of(dtype):
        wrong = numpy.zeros((4, 1), other)
        for call in (lambda: mock.allreduce(wrong, "maxloc", element=element), lambda: plan.launch(wrong)):
            with pytest.raises(fpga.UsageError, match=f'element "{element}" is dtype|another byte order'):
                call()
    with pytest.raises(fpga.UsageError, match="another byte order"):
        mock.allreduce(numpy.ones((4, 1), ">u2"), element="bf16")


class Pair(ctypes.Structure):
    """The format has no padding before the index."""

    _fields_ = [("value", ctypes.c_short), ("index", ctypes.c_int)]


def test_pairs_of_ctypes(mock: fpga.Cards) -> None:
    x = (Pair * 4)(Pair(1, 0), Pair(7, 1), Pair(7, 2), Pair(2, 3))
    assert [tuple(one) for one in mock.allreduce(x, "maxloc").wait().tolist()] == [(7, 1)] * 4


HINTS = [
    ("?", 'x.view("u1")', "u1"),
    ("c8", 'x.view("f4")', "c8"),
    ("c16", 'x.view("f8")', "c16"),
    (">f4", 'x.astype(x.dtype.newbyteorder("="))', "f4"),
]


@pytest.mark.parametrize(("dtype", "hint", "result"), HINTS)
def test_hints_to_types_work(mock: fpga.Cards, dtype: str, hint: str, result: str) -> None:
    x = numpy.ones((4, 2), dtype)
    with pytest.raises(fpga.UsageError) as raised:
        mock.allreduce(x)
    assert raised.value.message.endswith(hint)
    assert (mock.allreduce(eval(hint, {"x": x})).wait().view(result) == 4).all()


def test_hints_to_pairs_and_contiguous_arrays_work(mock: fpga.Cards) -> None:
    expected = r'records of a value \(i2, i4, i8, f4 or f8\) and an index \(i4\), such as numpy.dtype\("f8,i4", align=True\)$'
    for dtype, reduction in (("i4,f4", "maxloc"), ("f4,f4", "sum"), ("?", "minloc"), ("c8", "minloc")):
        with pytest.raises(fpga.UsageError, match=expected):
            mock.allreduce(numpy.ones((4, 2), dtype), reduction)
    with pytest.raises(fpga.UsageError, match="element=.bf16.$"):
        mock.allreduce(numpy.ones((4, 2), "V2"))
    with pytest.raises(fpga.UsageError, match="the input is not C-contiguous: pass a contiguous copy of it, such as"):
        mock.allreduce(ONES[:, ::2])
    # A copy of the output would be written in its place.
    with pytest.raises(fpga.UsageError, match="out is not C-contiguous: pass a contiguous array, and copy the result"):
        mock.allreduce(ONES, out=numpy.empty((64, 4), "f4").T)


def test_no_room_for_memory_is_no_failure_of_the_bus(mock: fpga.Cards) -> None:
    with pytest.raises(fpga.FailedError, match="^No room for"):
        mock.memory(1 << 60)


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf"), 1e300])
def test_invalid_timeouts(mock: fpga.Cards, seconds: float) -> None:
    operation = mock.allreduce(ONES)
    with pytest.raises(fpga.UsageError, match="invalid timeout"):
        operation.wait(seconds)
    with pytest.raises(fpga.UsageError, match="invalid timeout"):
        mock.timeout = seconds
    with pytest.raises(fpga.UsageError, match="invalid timeout"):
        fpga.open(IN_PROCESS, timeout=seconds)
    assert (operation.wait(10) == 4).all()


def test_selectors() -> None:
    for selector, kind, text in [
        ("moc:optweb:4", fpga.UsageError, "invalid selector"),
        ("mock:optweb:65", fpga.NoCardError, "invalid fabric"),
        ("vfio-user:/nowhere/0.sock", fpga.NoCardError, "cannot open"),
        ("mock:alveo-xdma:1", fpga.FailedError, "no command sequencer"),
    ]:
        with pytest.raises(kind, match=text) as raised:
            fpga.open(selector)
        assert raised.value.message in str(raised.value)


def test_a_link_that_is_cut() -> None:
    with fpga.open("mock:optweb:4+cut=0-1") as cards:
        operation = cards.allreduce(ONES, algorithm="ring")
        with pytest.raises(fpga.GoneError, match="link") as raised:
            operation.wait()
        assert raised.value.rank is not None and raised.value.instruction is not None
        assert operation.status == "over" and operation.times is None
        with pytest.raises(fpga.RefusedError, match="launch it again"):
            operation.wait()


def test_a_timeout_leaves_the_launch_in_flight() -> None:
    with fpga.open("mock:optweb:4+stop=2@1.0.65536") as cards:
        operation = cards.allgather(numpy.ones((4, 1 << 18), "f4"))
        for _ in range(2):
            with pytest.raises(fpga.TimeoutError, match="Waited") as raised:
                operation.wait(0.12)
            error = raised.value
            assert (error.kind, error.rank, error.timeout) == ("timeout", 2, 0.12)
            assert isinstance(error, TimeoutError)
            assert operation.status == "in flight" and not operation.test()
        with pytest.raises(fpga.RefusedError, match="in flight"):
            cards.barrier()
        # The stopped card does not stop, and says so.
        with pytest.raises(fpga.Error):
            operation.abort()
        assert operation.status == "over"


def test_an_output_that_is_not_copied_in_time_stays(slow: str) -> None:
    """The cards are done, and the copy of the output has a limit of its own: that of the cards."""
    with fpga.open(slow, timeout=PATIENCE) as cards:
        barrier = cards.plan("barrier")
        operation = cards.allreduce(ONES)
        cards.timeout = 1e-6
        for _ in range(2):
            with pytest.raises(fpga.TimeoutError, match="copy out") as raised:
                operation.wait(PATIENCE)
            assert raised.value.timeout == 1e-6
            assert operation.status == "in flight" and operation.times is None
        # Another one would overwrite it.
        with pytest.raises(fpga.RefusedError, match="in flight: wait for it, or abort it"):
            cards.allreduce(ONES)
        with pytest.raises(fpga.RefusedError, match="in flight: wait for it, or abort it"):
            barrier.launch()
        cards.timeout = PATIENCE
        assert (operation.wait() == 4).all() and operation.times is not None
        assert (cards.allreduce(ONES).wait() == 4).all()


def test_exceptions_are_copied_and_pickled() -> None:
    with pytest.raises(fpga.NoCardError) as raised:
        fpga.open("vfio-user:/nowhere/0.sock")
    for other in (pickle.loads(pickle.dumps(raised.value)), copy.copy(raised.value)):
        assert type(other) is fpga.NoCardError
        assert str(other) == str(raised.value) and other.causes == raised.value.causes


def test_a_foreign_buffer_cannot_be_resized_in_flight(cards: fpga.Cards) -> None:
    out = bytearray(4 * 64 * 4)
    operation = cards.allreduce(ONES, out=memoryview(out).cast("f", (4, 64)))
    with pytest.raises(BufferError):
        out.extend(b"more")
    operation.wait()
    assert (numpy.frombuffer(out, "f4") == 4).all()
    del operation
    # The input was copied to the cards before the launch: it is free at once.
    source = bytearray(64)
    operation = cards.broadcast(source)
    source.extend(b"more")
    assert operation.wait().nbytes == 4 * 64


@pytest.mark.parametrize("way", ["close", "release", "abort"])
def test_what_ends_an_operation_lets_go_of_its_output(way: str) -> None:
    with fpga.open(IN_PROCESS) as cards:
        plan = cards.plan("send", 64)
        out = bytearray(64)
        operation = plan.launch(bytes(64), out=out)
        with pytest.raises(BufferError):
            out.extend(b"more")
        assert operation.status == "in flight"
        {"close": cards.close, "release": plan.release, "abort": operation.abort}[way]()
        assert operation.status == "over" and operation.times is None
        out.extend(b"more")
        expected = {"close": "closed", "release": "released", "abort": "aborted"}[way]
        for call in (operation.wait, operation.test, lambda: operation.wait(0)):
            with pytest.raises(fpga.RefusedError if way == "abort" else fpga.UsageError, match=expected):
                call()
        operation.abort()
        if way != "close":
            assert (cards.allreduce(ONES).wait() == 4).all()


class Holder(numpy.ndarray[Any, Any]):
    """An array with attributes."""

    operation: fpga.Operation


@pytest.mark.parametrize("is_done", [True, False])
def test_an_operation_in_a_cycle_is_collected(mock: fpga.Cards, is_done: bool) -> None:
    out = numpy.zeros_like(ONES).view(Holder)
    out.operation = mock.allreduce(ONES, out=out)
    if is_done:
        out.operation.wait()
    left = weakref.ref(out)
    del out
    gc.collect()
    assert left() is None
    assert (mock.allreduce(ONES).wait() == 4).all()


class Node:
    """Part of a cycle."""


def test_a_cycle_is_collected_in_any_order(mock: fpga.Cards) -> None:
    for is_older in (True, False):
        out = numpy.zeros_like(ONES).view(Holder)
        node = Node()
        operation = mock.allreduce(ONES, out=out)
        # The collector begins with what is older.
        node = node if is_older else Node()
        node.operation, node.own, out.operation = operation, node, node  # type: ignore[attr-defined]
        left = weakref.ref(node)
        del out, operation, node
        gc.collect()
        assert left() is None
        assert (mock.allreduce(ONES).wait() == 4).all()
    # A memoryview in a cycle is not collected until the operation is done, and crashes nothing.
    memory = memoryview(bytearray(ONES.nbytes)).cast("f", ONES.shape)
    node = Node()
    node.operation, node.own, node.memory = mock.allreduce(ONES, out=memory), node, memory  # type: ignore[attr-defined]
    node.operation.wait()  # type: ignore[attr-defined]
    del memory, node
    gc.collect()


def test_a_plan_that_is_released_ends_no_other_operation(cards: fpga.Cards) -> None:
    plan = cards.plan("send", 64)
    done = plan.launch(bytes(64))
    done.wait()
    operation = cards.allreduce(ONES)
    plan.release()
    assert (operation.wait() == 4).all()
    assert done.status == "done" and done.wait().tobytes() == bytes(64)


def test_one_operation_at_a_time(cards: fpga.Cards) -> None:
    first = cards.allreduce(ONES)
    with pytest.raises(fpga.RefusedError, match="in flight: wait for it, or abort it"):
        cards.allreduce(ONES * 2)
    assert (first.wait() == 4).all()
    cards.allreduce(ONES)
    # Nobody holds it, so it was aborted.
    second = cards.allreduce(ONES * 2)
    second.abort()
    with pytest.raises(fpga.RefusedError, match="was aborted"):
        second.wait()


def test_a_second_thread_is_told() -> None:
    """One thread waits, without the interpreter's lock. The others run; those that use the same cards get an exception."""
    with fpga.open("mock:optweb:4+stop=2@1.0.65536") as cards:
        operation = cards.allgather(numpy.ones((4, 1 << 18), "f4"))
        raised: list[BaseException] = []

        def wait() -> None:
            while not raised:
                try:
                    operation.wait(2.0)
                except fpga.BusyError:
                    continue
                except fpga.Error as error:
                    raised.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        busy = 0
        counted = 0
        while waiting.is_alive():
            counted += 1
            try:
                cards[0].status()
            except fpga.BusyError as error:
                assert error.kind == "busy"
                busy += 1
            time.sleep(0.001)
        assert counted > 10 and busy > 10
        assert [type(error) for error in raised] == [fpga.TimeoutError]


def test_a_failed_close_keeps_the_exception_of_the_body() -> None:
    with fpga.open("mock:optweb:4+stop=2@1.0.65536") as cards:
        operation = cards.allgather(numpy.ones((4, 1 << 18), "f4"))

        def wait() -> None:
            while True:
                try:
                    operation.wait(2.0)
                except fpga.BusyError:
                    continue
                except fpga.TimeoutError:
                    return

        waiting = threading.Thread(target=wait)
        waiting.start()
        try:
            while True:
                cards[0].status()
                time.sleep(0.001)
        except fpga.BusyError:
            pass
        with pytest.raises(KeyError, match="of the body") as raised:
            with cards:
                raise KeyError("of the body")
        [note] = raised.value.__notes__
        assert note.startswith("the close failed: ") and "another thread" in note
        # Without one it is that of the close.
        with pytest.raises(fpga.BusyError), cards:
            pass
        waiting.join()
        assert not cards.closed


def test_many_threads_on_one_handle(cards: fpga.Cards) -> None:
    """Each call works or says that the cards are busy or that an operation is in flight, and no result is wrong."""
    done = []

    def work(seed: int) -> None:
        x = numpy.full((4, 256), seed, "i4")
        for _ in range(50):
            try:
                y = cards.allreduce(x).wait()
                assert (y == 4 * seed).all()
                done.append(seed)
            except (fpga.BusyError, fpga.RefusedError):
                pass

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done


def test_a_halt_that_a_write_finds_ends_the_operation() -> None:
    over = 0
    for read in range(12):
        with fpga.open(f"mock:optweb:3+poisoned=1@{read}", timeout=PATIENCE) as cards:
            x = numpy.ones((3, 64), "i4")
            operation = None
            try:
                operation = cards.allreduce(x)
                cards[1].write(1 << 24, b"x" * 64)
            except fpga.FailedError as error:
                assert error.rank == 1 and cards[1].status().queue == "running"
                if operation:
                    over += operation.status == "over"
                    operation.abort()
                assert (cards.allreduce(x).wait() == 3).all()
    assert over
