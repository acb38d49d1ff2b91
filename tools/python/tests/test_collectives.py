"""Every collective gives what NumPy gives, for every type, place and bus."""

import array
import ctypes
import itertools
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from numpy._core._rational_tests import rational

import fpga
from conftest import PATIENCE

Array = numpy.ndarray[Any, Any]
N = 4

FOLDS: dict[str, Callable[[Array, Array], Array]] = {
    "sum": numpy.add,
    "prod": numpy.multiply,
    "min": numpy.minimum,
    "max": numpy.maximum,
    "and": numpy.bitwise_and,
    "or": numpy.bitwise_or,
    "xor": numpy.bitwise_xor,
}
INTEGERS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]
FLOATS = ["f2", "f4", "f8"]


def data(shape: tuple[int, ...], dtype: str, seed: int = 1) -> Array:
    """Small numbers, the sums and products of which are exact in every type."""
    return numpy.random.default_rng(seed).integers(0, 4, shape).astype(dtype)


def fold(rows: Array, reduction: str) -> Array:
    total = rows[0]
    for row in rows[1:]:
        total = FOLDS[reduction](total, row)
    return total.astype(rows.dtype)


def moved(operation: str, x: Array, root: int) -> Array:
    """What an operation that does not reduce gives."""
    return {
        "sendrecv": lambda: numpy.roll(x, 1, axis=0),
        "scatter": lambda: x,
        "gather": lambda: x,
        "broadcast": lambda: numpy.stack([x] * N),
        "alltoall": lambda: x.swapaxes(0, 1),
        "allgather": lambda: numpy.stack([x] * N),
    }[operation]().astype(x.dtype)


SHAPES: dict[str, tuple[int, ...]] = {
    "sendrecv": (N, 5, 8),
    "scatter": (N, 40),
    "gather": (N, 40),
    "broadcast": (40,),
    "alltoall": (N, N, 16),
    "allgather": (N, 40),
}


@pytest.mark.parametrize("operation", SHAPES)
def test_data_arrives_unchanged(cards: fpga.Cards, operation: str) -> None:
    for dtype, root in itertools.product(["f4", "u1", "c16", ">i4", "?", "S3"], [0, 3]):
        if root and operation not in ("scatter", "gather", "broadcast"):
            continue
        x = numpy.arange(numpy.prod(SHAPES[operation])).reshape(SHAPES[operation]).astype(dtype)
        named = {"root": root} if root else {}
        y = getattr(cards, operation)(x, **named).wait()
        expected = moved(operation, x, root)
        assert y.dtype == x.dtype and y.shape == expected.shape
        assert y.tobytes() == expected.tobytes(), (dtype, root)


def test_a_send_goes_from_root_to_peer(cards: fpga.Cards) -> None:
    x = data((7, 9), "i4")
    assert (cards.send(x).wait() == x).all()
    assert (cards.send(x, root=2, peer=1).wait() == x).all()


def test_a_barrier_has_no_data(cards: fpga.Cards) -> None:
    operation = cards.barrier()
    assert operation.wait() is None
    assert operation.times is not None and operation.times.t2_cycles > 0


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
def test_reductions_are_those_of_numpy(cards: fpga.Cards, dtype: str) -> None:
    for reduction in FOLDS:
        if dtype in FLOATS and reduction in ("and", "or", "xor"):
            continue
        x = data((N, 3, 16), dtype)
        y = cards.allreduce(x, reduction=reduction).wait()
        assert y.dtype == x.dtype and (y == numpy.stack([fold(x, reduction)] * N)).all(), reduction


@pytest.mark.parametrize("reduction", ["sum", "max"])
def test_every_kind_of_reduction(cards: fpga.Cards, reduction: str) -> None:
    x = data((N, 48), "f4")
    prefixes = numpy.stack([fold(x[: rank + 1], reduction) for rank in range(N)])
    assert (cards.reduce(x, reduction).wait() == fold(x, reduction)).all()
    assert (cards.reduce(x, reduction, root=3).wait() == fold(x, reduction)).all()
    assert (cards.scan(x, reduction).wait() == prefixes).all()
    y = cards.exscan(x, reduction).wait()
    assert (y[1:] == prefixes[:-1]).all() and (y[0] == 0).all()
    blocks = data((N, N, 16), "i4")
    y = cards.reduce_scatter(blocks, reduction).wait()
    assert (y == fold(blocks, reduction)).all()


def test_types_that_numpy_lacks(mock: fpga.Cards) -> None:
    # 1.0 and 2.0 in bfloat16 are the upper halves of those in float32.
    x = numpy.array([[0x3F80], [0x3F80], [0x0000], [0x0000]], numpy.uint16)
    assert (mock.allreduce(x, "sum", element="bf16").wait() == 0x4000).all()
    pairs = numpy.zeros((N, 2), [("value", "f4"), ("index", "i4")])
    pairs["value"] = [[3, 1], [2, 1], [5, 1], [2, 1]]
    pairs["index"] = [[0, 0], [1, 1], [2, 2], [3, 3]]
    y = mock.allreduce(pairs, "minloc", element="f32i32").wait()
    assert y.dtype == pairs.dtype
    assert y[2].tolist() == [(2.0, 1), (1.0, 0)]


@pytest.mark.parametrize(
    "dtype",
    [
        numpy.dtype({"names": ["a", "b"], "formats": ["f4", "i4"], "offsets": [4, 0]}),
        [("a:b", ">f4"), ("c", ">i4")],
        [("v", "f4"), ("a:b", "f4")],
        [("t", "M8[s]")],
    ],
)
def test_records_without_a_format_are_no_pairs(mock: fpga.Cards, dtype: Any) -> None:
    for element in ("f32i32", None):
        with pytest.raises(fpga.UsageError):
            mock.allreduce(numpy.zeros((N, 1), dtype), "minloc", element=element)


def test_an_output_of_every_kind(cards: fpga.Cards) -> None:
    """Memory of the cards, at addresses that suit them and others, and memory of other objects."""
    x = data((N, 100), "i4")
    expected = numpy.stack([fold(x, "sum")] * N)
    inside = cards.zeros((2, N, 100), "i4")
    odd = cards.zeros(N * 100 + 1, "i4")
    for source in (x, inside[0], odd[1:].reshape(N, 100)):
        source[...] = x
        for out in (numpy.empty_like(x), inside[1], inside[0], odd[1:].reshape(N, 100), x.copy()):
            assert cards.allreduce(source, out=out).wait() is out
            assert (out == expected).all()
            source[...] = x
    assert odd[0] == 0


def test_objects_with_the_buffer_protocol(cards: fpga.Cards) -> None:
    numbers = array.array("f", range(N * 8))
    out = bytearray(N * 8 * 4)
    view = memoryview(numbers).cast("B").cast("f", (N, 8))
    target = memoryview(out).cast("f", (N, 8))
    assert cards.allreduce(view, out=target).wait() is target
    rows = numpy.array(numbers).reshape(N, 8)
    assert numpy.frombuffer(out, "f4").reshape(N, 8).tolist() == [rows.sum(axis=0).tolist()] * N
    received = cards.send(b"any bytes").wait()
    assert received.tobytes() == b"any bytes"


class Record(ctypes.Structure):
    _fields_ = [("a", ctypes.c_int), ("b", ctypes.c_float)]


class Either(ctypes.Union):
    _fields_ = [("a", ctypes.c_int), ("b", ctypes.c_double)]


OTHERS: dict[str, tuple[Callable[[], Any], tuple[int, ...], str]] = {
    "a view of characters": (lambda: memoryview(b"hello").cast("c"), (5,), "S1"),
    "array.array": (lambda: array.array("u", "abc"), (3,), "U1"),
    "numpy.bytes_": (lambda: numpy.bytes_(b"abc"), (3,), "u1"),
    "integers of ctypes": (lambda: (ctypes.c_int * 3)(1, 2, 3), (3,), "i4"),
    "rows of ctypes": (lambda: ((ctypes.c_int * 3) * 2)((1, 2, 3), (4, 5, 6)), (2, 3), "i4"),
    "a view of ctypes": (lambda: memoryview((ctypes.c_bool * 3)(1, 0, 1)).toreadonly(), (3,), "?"),
    "truths of ctypes": (lambda: (ctypes.c_bool * 3)(1, 0, 1), (3,), "?"),
    "records of ctypes": (lambda: (Record * 2)((1, 2.0), (3, 4.0)), (2,), "i4,f4"),
    "a pointer of ctypes": (lambda: ctypes.c_void_p(5), (), "V8"),
    "pointers of ctypes": (lambda: (ctypes.c_void_p * 2)(5, 6), (2,), "V8"),
    "dates": (lambda: numpy.array(["2020-01-01", "NaT"], "M8[s]"), (2,), "M8[s]"),
    "foreign dates": (lambda: numpy.array(["2020-01-01"], ">M8[ms]"), (1,), ">M8[ms]"),
    "a date": (lambda: numpy.datetime64("2020-01-01"), (), "M8[D]"),
    "a date in an array": (lambda: numpy.array("2020-01-01", "M8[D]"), (), "M8[D]"),
    "a time": (lambda: numpy.timedelta64(3, "s"), (), "m8[s]"),
    "records with dates": (lambda: numpy.ones(2, "i4,M8[s]"), (2,), "i4,M8[s]"),
    "a union of ctypes": (lambda: Either(1), (), "V8"),
    "unions of ctypes": (lambda: (Either * 2)(Either(1), Either(2)), (2,), "V8"),
    "a type that NumPy has no view of": (lambda: numpy.array([rational(1, 2), rational(1, 3)]), (2,), "V8"),
    "a scalar of such a type": (lambda: rational(1, 2), (), "V8"),
    "an element of such an array": (lambda: numpy.array([rational(1, 3)])[0], (), "V8"),
    "a record with a date": (lambda: numpy.ones(2, "i4,M8[s]")[0], (), "i4,M8[s]"),
}


def bytes_of(data: Any) -> bytes:
    return data.tobytes() if hasattr(data, "tobytes") else bytes(memoryview(data))


@pytest.mark.parametrize("name", OTHERS)
def test_other_contiguous_objects(mock: fpga.Cards, name: str) -> None:
    """Their bytes arrive, in an array of the nearest type of NumPy; also where they have an array of their own type to go to."""
    make, shape, dtype = OTHERS[name]
    source = make()
    plain = bytes_of(source)
    y = mock.send(source).wait()
    assert y.shape == shape and y.tobytes() == plain
    assert y.dtype.itemsize == numpy.dtype(dtype).itemsize and y.dtype.kind == numpy.dtype(dtype).kind
    assert mock.broadcast(source).wait().tobytes() == N * plain
    mock[1].write(4096, source)
    assert mock[1].read(4096, bytearray(len(plain))) == plain
    if isinstance(source, (numpy.generic, memoryview)):
        with pytest.raises(fpga.UsageError, match="out is read-only"):
            mock[1].read(4096, source)
    else:
        out = make()
        mock[1].write(4096, bytes(len(plain)))
        mock[1].read(4096, out)
        assert bytes_of(out) == bytes(len(plain))
        assert mock.send(source, out=out).wait() is out and bytes_of(out) == plain


def test_numpy_and_ctypes_spell_one_type_in_two_ways(mock: fpga.Cards) -> None:
    truths = numpy.empty((N, 3), "?")
    assert mock.broadcast((ctypes.c_bool * 3)(1, 0, 1), out=truths).wait() is truths
    assert truths.tolist() == [[True, False, True]] * N
    rows = ((ctypes.c_float * 2) * N)(*[(1, 2)] * N)
    assert mock.allreduce(rows).wait().tolist() == [[4, 8]] * N
    days = numpy.array(["2020-01-01"] * N, "M8[D]")
    assert (mock.sendrecv(days, out=numpy.zeros(N, "i8")).wait() == days.view("i8")).all()
    assert (mock.sendrecv(days, out=numpy.zeros(N, "M8[D]")).wait() == days).all()
    assert mock.allreduce(numpy.full((N, 1), 3, "m8[s]")).wait().tolist() == numpy.full((N, 1), 12, "m8[s]").tolist()


def test_arrays_without_axes(cards: fpga.Cards) -> None:
    x = data((N,), "f4")
    y = cards.reduce(x, "sum").wait()
    assert y.shape == () and y.dtype == x.dtype and y == x.sum()
    assert (cards.allreduce(x, "sum").wait() == x.sum()).all()
    assert cards.reduce_scatter(numpy.ones((N, N), "i4"), "sum").wait().tolist() == [N] * N
    places = (numpy.empty((), "f4"), cards.zeros((), "f4"), numpy.empty((), "f4").data)
    for out in places:
        assert cards.reduce(x, "sum", out=out).wait() is out
        assert numpy.asarray(out) == x.sum()
    three = numpy.array(3, "f4")
    for one in (three, three[()], three.data, ctypes.c_float(3)):
        y = cards.send(one).wait()
        assert y.shape == () and y.dtype == three.dtype and y == 3
        y = cards.broadcast(one).wait()
        assert y.tolist() == [3] * N and y.dtype == three.dtype
        cards[1].write(4096, one)
        for out in places:
            numpy.asarray(out)[()] = 0
            assert cards[1].read(4096, out) is out and numpy.asarray(out) == 3


def test_names_of_fields_are_no_types(mock: fpga.Cards) -> None:
    x = numpy.ones(N, [("Offset", "f4"), ("O", "i4")])
    assert (mock.scatter(x).wait() == x).all()

    class Offset(ctypes.Structure):
        _fields_ = [("Offset", ctypes.c_int), ("O", ctypes.c_float)]

    assert mock.broadcast(Offset(1, 2)).wait().tolist() == [(1, 2.0)] * N


@pytest.mark.parametrize("algorithm", ["ring", "direct"])
def test_a_plan_is_launched_again_and_again(cards: fpga.Cards, algorithm: str) -> None:
    plan = cards.plan("allreduce", 4096, reduction="sum", element="f32", algorithm=algorithm)
    assert (plan.operation, plan.algorithm, plan.ranks, plan.bytes) == ("allreduce", algorithm, N, 4096)
    assert plan.predicted_us > 0 and plan.times is None
    assert (plan.input_bytes(0), plan.output_bytes(3)) == (4096, 4096)
    for seed in range(3):
        x = data((N, 1024), "f4", seed)
        operation = plan.launch(x)
        assert (operation.wait(PATIENCE) == fold(x, "sum")).all()
        assert operation.status == "done" and (operation.wait() == fold(x, "sum")).all()
        times = operation.times
        assert times is not None and plan.times is not None
        assert times.t2_cycles >= times.t1_cycles > 0 and times.arrival_cycles > 0
        assert times.t2_us == pytest.approx(times.t2_cycles * 1e3 / cards[0].clock_khz)
        assert plan.times.t2_cycles == times.t2_cycles
    plan.release()
    with pytest.raises(fpga.UsageError, match="released"):
        plan.launch(data((N, 1024), "f4"))


def test_more_sizes_than_cards_store(mock: fpga.Cards) -> None:
    """Plans of methods make room for each other; those that a program holds stay."""
    held = mock.plan("broadcast", 64)
    for count in [*range(1, 60), 1]:
        x = data((N, count), "i4")
        assert (mock.allreduce(x).wait() == x.sum(axis=0)).all()
    assert (held.launch(numpy.arange(64, dtype="u1")).wait() == numpy.arange(64)).all()
    plans = []
    with pytest.raises(fpga.RefusedError, match="all in use: release a program"):
        for count in range(1, 1000):
            plans.append(mock.plan("broadcast", 64 * count))
    assert len(plans) > 8


def test_plans_that_nobody_holds_make_room(cards: fpga.Cards) -> None:
    for count in range(1, 60):
        cards.plan("broadcast", 64 * count)
        x = numpy.full(64 * count, count, "u1")
        operation = cards.plan("broadcast", 64 * count).launch(x)
        # The operation keeps its plan.
        assert (operation.wait() == count).all()
    operation = cards.plan("broadcast", 64).launch(numpy.ones(64, "u1"))
    del operation
    assert cards.barrier().wait() is None
