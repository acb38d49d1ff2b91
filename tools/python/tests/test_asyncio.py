"""Operations in an event loop: woken by a descriptor, not by threads; cancelled; side by side."""

import asyncio
import threading
from typing import Any

import numpy
import pytest

import fpga
from conftest import IN_PROCESS, PATIENCE

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


def test_a_time_limit_of_asyncio() -> None:
    async def work(cards: fpga.Cards) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await cards.allgather(numpy.ones((4, 1 << 18), "f4"))

    with fpga.open("mock:optweb:4+stop=2@1.0.65536") as cards:
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
