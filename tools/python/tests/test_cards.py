"""Cards: capabilities, memory, closing."""

import gc
import re
from pathlib import Path
from typing import Any

import numpy
import pytest

import fpga
from conftest import IN_PROCESS


def test_capabilities_are_attributes(cards: fpga.Cards) -> None:
    assert len(cards) == 4 and not cards.closed
    nodes = [card.node for card in cards]
    assert nodes == [0, 1, 2, 3] and cards[-1].node == 3
    card = cards[1]
    assert card.is_mock and card.nodes == 4 and card.ports > 0 and card.lanes == 1
    assert card.kind in ("mock", "vfio-user") and card.name.startswith(card.kind)
    assert card.clock_khz > 0 and card.memory_bytes >= 1 << 20
    assert "copy" in card.operations and "f32" in card.elements and "sum" in card.reductions
    status = card.status()
    assert status.queue == "running"
    assert card.read(0, bytearray(8)) == bytes(8)
    after = card.status()
    assert after.retired > status.retired and after.cycles >= status.cycles
    assert [card.node for card in list(cards)] == nodes and cards[numpy.int64(2)].node == 2
    for index in (4, -5, 2**70, -(2**70)):
        with pytest.raises(IndexError, match="the last is 3"):
            cards[index]
    name: Any = "0"
    with pytest.raises(TypeError):
        cards[name]


def test_card_memory_takes_any_array(cards: fpga.Cards) -> None:
    x = numpy.arange(1000, dtype="i8").reshape(10, 100)
    for address in (0, 4096, 4100):
        cards[2].write(address, x)
        assert (cards[2].read(address, numpy.empty_like(x)) == x).all()
        own = cards.zeros((10, 100), "i8")
        assert cards[2].read(address, own) is own
        assert (own == x).all()
        own += 1
        cards[3].write(address, own[5])
        assert (cards[3].read(address, numpy.empty(100, "i8")) == x[5] + 1).all()
    limit = cards[0].memory_bytes
    for act in (cards[0].write, cards[0].read):
        with pytest.raises(fpga.RefusedError, match="the card has"):
            act(limit - 4, bytearray(8))


def shared_bytes() -> int:
    """Shared memory of this process: buffers of cards are files."""
    status = Path("/proc/self/status").read_text()
    found = re.search(r"RssShmem:\s+(\d+) kB", status)
    assert found
    return int(found[1]) << 10


def test_large_transfers_leave_no_large_buffer(mock: fpga.Cards) -> None:
    x = numpy.zeros((20, 1 << 23), "u1")
    x[:, ::4096] = numpy.arange(20, dtype="u1").reshape(20, 1) + 1
    before = shared_bytes()
    with pytest.raises(fpga.RefusedError, match="the card has"):
        mock[0].write(mock[0].memory_bytes - 4, x)
    # Refused before anything was copied.
    assert shared_bytes() - before < 1 << 20
    mock[0].write(4096, x)
    assert (mock[0].read(4096, numpy.empty_like(x)) == x).all()
    # Of 160 MiB at most 32, which the process has mapped twice.
    assert shared_bytes() - before < 100 << 20


def mapped_bytes() -> int:
    """Address space of this process that shows memory files: buffers of cards, each of them twice."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    ends = [line.split()[0].split("-") for line in lines if "/memfd:" in line]
    return sum(int(end, 16) - int(begin, 16) for begin, end in ends)


def test_the_buffer_of_a_collective_is_as_large_as_its_data(mock: fpga.Cards) -> None:
    x = numpy.ones((4, 33 << 18), "u1")
    before = mapped_bytes()
    assert (mock.allreduce(x).wait() == 4).all()
    assert 2 * x.nbytes <= mapped_bytes() - before < 3 * x.nbytes


def test_a_card_that_halted_is_not_running() -> None:
    """Until a call finds out, and aborts it."""
    seen = 0
    for read in range(8):
        with fpga.open(f"mock:optweb:4+unanswered=1@{read}") as cards:
            try:
                operation = cards.barrier()
            except fpga.FailedError:
                assert cards[1].status().queue == "running"
                continue
            if cards[1].status().queue == "halted":
                with pytest.raises(fpga.FailedError):
                    operation.wait()
                assert cards[1].status().queue == "running"
                seen += 1
    assert seen


def test_numpy_sees_the_memory_of_the_cards(cards: fpga.Cards) -> None:
    memory = cards.memory(4096)
    assert len(memory) >= 4096
    one, other = numpy.frombuffer(memory, "u1"), numpy.frombuffer(memory, "f4")
    assert numpy.shares_memory(one, other) and one.flags.writeable and not one.any()
    # The card writes to the array itself: no call copies to it.
    cards[0].write(0, b"\x01" * 4096)
    cards[0].read(0, memory)
    assert (one[:4096] == 1).all()
    assert memoryview(memory).nbytes == len(memory)


def test_memory_outlives_the_cards() -> None:
    with fpga.open(IN_PROCESS) as cards:
        array = cards.zeros((4, 1 << 20), "f4")
        array[...] = 1
        y = cards.allreduce(array, out=array).wait()
    del cards
    gc.collect()
    assert y is array and (array == 4).all()
    array[...] = 5
    assert array.sum() == 5 * 4 * (1 << 20)


def test_shapes_of_zeros(mock: fpga.Cards) -> None:
    assert mock.zeros(3).dtype == numpy.float64
    assert mock.zeros((), "i4").shape == ()
    assert mock.zeros((0, 4)).shape == (0, 4)
    shapes: list[tuple[Any, Any]] = [
        (numpy.int64(3), "f4"),
        ([numpy.int32(2), 3], "u1"),
        (numpy.array([2, 3]), "i8"),
        ((2,), "(3,)f4"),
        (0, "(3,)f4"),
        (2, "M8[s]"),
    ]
    for shape, dtype in shapes:
        own, expected = mock.zeros(shape, dtype), numpy.zeros(shape, dtype)
        assert own.shape == expected.shape and own.dtype == expected.dtype and (own == expected).all()
    for negative in (-1, (-1, 4), (-1, -4)):
        with pytest.raises(fpga.UsageError, match="negative"):
            mock.zeros(negative, "f4")
    with pytest.raises(fpga.UsageError, match="references to objects"):
        mock.zeros(3, object)
    with pytest.raises(fpga.Error):
        mock.memory(1 << 60)


def test_use_after_close(cards: fpga.Cards) -> None:
    x = numpy.ones((4, 8), "f4")
    plan = cards.plan("allreduce", 32, reduction="sum", element="f32")
    operation = cards.allreduce(x)
    card, done = cards[0], plan.launch
    operation.wait()
    cards.close()
    cards.close()
    assert cards.closed and "closed" in repr(cards)
    calls = [
        lambda: cards.allreduce(x),
        lambda: cards.zeros(3),
        lambda: cards.plan("barrier"),
        lambda: cards[0],
        lambda: cards.timeout,
        lambda: card.status(),
        lambda: card.write(0, x),
        lambda: card.read(0, x),
        lambda: done(x),
        plan.release,
        lambda: plan.times,
        operation.fileno,
    ]
    for call in calls:
        with pytest.raises(fpga.UsageError, match="closed"):
            call()
    # What is known stays.
    assert operation.wait() is not None and operation.test() and card.nodes == 4
    with fpga.open(IN_PROCESS) as again:
        assert (again.allreduce(x).wait() == 4).all()


def test_closing_ends_what_is_in_flight(served: str) -> None:
    with fpga.open(served) as cards:
        operation = cards.allgather(numpy.ones((4, 1 << 18), "f4"))
    assert operation.status == "over"
    with pytest.raises(fpga.UsageError, match="closed"):
        operation.wait()
    with fpga.open(served) as cards:
        assert (cards.allreduce(numpy.ones((4, 8), "f4")).wait() == 4).all()
