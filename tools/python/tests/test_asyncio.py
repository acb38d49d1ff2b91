"""Operations in an event loop: woken by a descriptor, not by threads; cancelled; side by side."""

import asyncio
import gc
import os
import socket
import threading
from typing import Any

import numpy
import pytest

import fpga
import fpga._asyncio
from conftest import IN_PROCESS, PATIENCE, SLOW

# A launch of an allgather of 1 MiB never ends.
STOPPED = "mock:optweb:4+stop=2@1.0.65536"
X = numpy.arange(4 << 14, dtype="i4").reshape(4, 1 << 14)


def test_await_gives_what_wait_gives(cards: fpga.Cards) -> None:
    async def work() -> None:
        for _ in range(20):
            operation = cards.allreduce(X)
            y = await operation
            assert (y == X.sum(axis=0)).all() and (await operation) is y
            assert operation.times is not None
        out = cards.zeros(X.shape, X.dtype)
        assert await cards.allreduce(X, out=out) is out
        assert (out == X.sum(axis=0)).all()
        assert await cards.barrier() is None

    asyncio.run(asyncio.wait_for(work(), PATIENCE))


def test_a_descriptor_wakes_the_loop(slow: str) -> None:
    """While cards work, the loop sleeps on the descriptor, other coroutines run, and no thread waits."""

    class Watched(asyncio.SelectorEventLoop):
        readers = 0

        def add_reader(self, *args: Any) -> None:
            Watched.readers += 1
            super().add_reader(*args)

    async def work(cards: fpga.Cards) -> None:
        steps = 0

        async def count() -> None:
            nonlocal steps
            while True:
                steps += 1
                await asyncio.sleep(0.005)

        operation = cards.allreduce(X)
        assert not operation.test()
        counting = asyncio.create_task(count())
        before = threading.active_count()
        assert ((await operation) == X.sum(axis=0)).all()
        assert steps > 5 and threading.active_count() == before
        counting.cancel()

    with fpga.open(slow, timeout=PATIENCE) as cards, asyncio.Runner(loop_factory=Watched) as runner:
        runner.run(asyncio.wait_for(work(cards), PATIENCE))
    assert Watched.readers == 1


def test_a_wait_that_is_cancelled_aborts(slow: str) -> None:
    async def work(cards: fpga.Cards) -> None:
        operation = cards.allreduce(X)
        task = asyncio.ensure_future(operation)
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert operation.status == "over"
        # The cards take the next one.
        assert ((await cards.allreduce(X)) == X.sum(axis=0)).all()

    with fpga.open(slow, timeout=PATIENCE) as cards:
        asyncio.run(asyncio.wait_for(work(cards), PATIENCE))


def test_a_wait_that_is_cancelled_before_it_begins_aborts_nothing() -> None:
    async def work(cards: fpga.Cards) -> None:
        operation = cards.allreduce(X)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(operation, 0)
        assert operation.status == "in flight"
        operation.abort()
        assert ((await cards.allreduce(X)) == X.sum(axis=0)).all()

    with fpga.open(SLOW, timeout=PATIENCE) as cards:
        asyncio.run(asyncio.wait_for(work(cards), PATIENCE))


def test_an_await_in_a_closed_loop_is_collected() -> None:
    async def work(cards: fpga.Cards) -> Any:
        return await cards.allreduce(X)

    with fpga.open(SLOW, timeout=PATIENCE) as cards:
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda *_: None)
        task = loop.create_task(work(cards))
        loop.call_later(0.05, loop.stop)
        loop.run_forever()
        assert len(fpga._asyncio._sleeping) == 1
        loop.close()
        del loop, task
        gc.collect()
        assert not fpga._asyncio._sleeping
        assert (cards.allreduce(X).wait() == X.sum(axis=0)).all()


@pytest.fixture
def events_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """An await that misses its event does not end in time."""
    monkeypatch.setattr(fpga._asyncio, "_TEST_EVERY", 10 * PATIENCE)


@pytest.mark.usefixtures("events_only")
def test_awaits_of_one_operation(slow: str) -> None:
    async def wait(operation: fpga.Operation) -> Any:
        return await operation

    async def work(cards: fpga.Cards) -> None:
        operation = cards.allreduce(X)
        first, second = await asyncio.gather(wait(operation), wait(operation))
        assert first is second and (first == X.sum(axis=0)).all()
        # One is cancelled and aborts the operation: the other ends, too.
        operation = cards.allreduce(X)
        cancelled, other = asyncio.ensure_future(operation), asyncio.ensure_future(operation)
        await asyncio.sleep(0.01)
        cancelled.cancel()
        with pytest.raises(fpga.RefusedError, match="was aborted"):
            await other
        assert cancelled.cancelled()

    with fpga.open(slow, timeout=PATIENCE) as cards:
        asyncio.run(asyncio.wait_for(work(cards), PATIENCE))


@pytest.mark.usefixtures("events_only")
@pytest.mark.parametrize("is_cancelled", [False, True])
def test_awaits_of_two_operations(slow: str, is_cancelled: bool) -> None:
    """The first was aborted, and its await still sleeps when that of the second begins."""

    async def work(cards: fpga.Cards) -> None:
        operation = cards.allreduce(X)
        first = asyncio.ensure_future(operation)
        await asyncio.sleep(0.01)
        operation.abort()
        second = asyncio.ensure_future(cards.allreduce(X))
        await asyncio.sleep(0.01)
        if is_cancelled:
            first.cancel()
        assert ((await second) == X.sum(axis=0)).all()
        with pytest.raises(asyncio.CancelledError if is_cancelled else fpga.RefusedError):
            await first

    with fpga.open(slow, timeout=PATIENCE) as cards:
        asyncio.run(asyncio.wait_for(work(cards), PATIENCE))


@pytest.mark.usefixtures("events_only")
def test_cards_opened_while_an_await_of_closed_ones_sleeps(slow: str) -> None:
    """The descriptor of the new ones may have the number of that of the closed ones."""

    async def work() -> None:
        with fpga.open(slow, timeout=PATIENCE) as cards:
            first = asyncio.ensure_future(cards.allreduce(X))
            await asyncio.sleep(0.01)
        with fpga.open(slow, timeout=PATIENCE) as cards:
            assert ((await cards.allreduce(X)) == X.sum(axis=0)).all()
        with pytest.raises(fpga.UsageError, match="closed"):
            await first

    asyncio.run(asyncio.wait_for(work(), PATIENCE))


def test_a_connection_with_the_number_of_the_descriptor_of_closed_cards() -> None:
    """The loop serves it, while an await of the cards still sleeps, and then the await says that they were closed."""

    async def work() -> None:
        with fpga.open(STOPPED) as cards:
            operation = cards.allgather(numpy.ones((4, 1 << 18), "f4"))
            descriptor = operation.fileno()
            sleeping = asyncio.ensure_future(operation)
            await asyncio.sleep(0.01)
        pairs = [socket.socketpair()]
        while descriptor not in [one.fileno() for one in pairs[-1]]:
            pairs.append(socket.socketpair())
        ours, other = sorted(pairs[-1], key=lambda one: one.fileno() != descriptor)
        reader, writer = await asyncio.open_connection(sock=ours)
        other.send(b"before\n")
        assert await reader.readline() == b"before\n"
        with pytest.raises(fpga.UsageError, match="closed"):
            await sleeping
        other.send(b"after\n")
        assert await reader.readline() == b"after\n"
        writer.close()
        await writer.wait_closed()
        for pair in pairs:
            for one in pair:
                one.close()

    asyncio.run(asyncio.wait_for(work(), PATIENCE))


def test_an_await_leaves_no_descriptor(slow: str) -> None:
    async def work(cards: fpga.Cards) -> None:
        counts = []
        for _ in range(3):
            await cards.allreduce(X)
            counts.append(len(os.listdir("/proc/self/fd")))
        assert counts[0] == counts[2] and not fpga._asyncio._sleeping[asyncio.get_running_loop()]

    with fpga.open(slow, timeout=PATIENCE) as cards:
        asyncio.run(asyncio.wait_for(work(cards), PATIENCE))


def test_a_time_limit_of_asyncio() -> None:
    async def work(cards: fpga.Cards) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await cards.allgather(numpy.ones((4, 1 << 18), "f4"))

    with fpga.open(STOPPED) as cards:
        asyncio.run(asyncio.wait_for(work(cards), PATIENCE))


def test_cards_side_by_side(served: str) -> None:
    async def one(cards: fpga.Cards) -> None:
        for _ in range(10):
            assert ((await cards.allreduce(X)) == X.sum(axis=0)).all()

    async def both() -> None:
        with fpga.open(served) as first, fpga.open(IN_PROCESS) as second:
            await asyncio.gather(one(first), one(second))

    asyncio.run(asyncio.wait_for(both(), PATIENCE))


def test_errors_reach_the_coroutine() -> None:
    async def work() -> None:
        with fpga.open("mock:optweb:4+cut=0-1") as cards:
            with pytest.raises(fpga.GoneError) as raised:
                await cards.allreduce(numpy.ones((4, 64), "f4"), algorithm="ring")
            assert raised.value.rank is not None

    asyncio.run(work())


def test_a_halt_that_the_descriptor_finds_ends_the_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is left to the garbage collector that it cannot take."""
    unraisable: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", unraisable.append)

    async def work(read: int) -> bool:
        with fpga.open(f"mock:optweb:3+poisoned=1@{read}", timeout=PATIENCE) as cards:
            x = numpy.ones((3, 64), "i4")
            try:
                operation = cards.allreduce(x)
            except fpga.FailedError:
                return False
            try:
                await operation
            except fpga.FailedError as error:
                assert error.rank == 1 and operation.status == "over" and cards[1].status().queue == "running"
                with pytest.raises(fpga.RefusedError):
                    operation.wait()
                assert (await cards.allreduce(x) == 3).all()
                return True
            return False

    assert any([asyncio.run(asyncio.wait_for(work(read), PATIENCE)) for read in range(12)])
    gc.collect()
    assert not unraisable
