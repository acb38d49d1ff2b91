"""Operations in an event loop."""

import asyncio
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fpga._fpga import Operation

# A card that is gone raises no event.
_TEST_EVERY = 1.0

# For each loop, the events of the awaits that sleep. Held by their awaits alone: those that are left in a closed loop are garbage.
_sleeping: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, set[weakref.ref[asyncio.Event]]] = (
    weakref.WeakKeyDictionary()
)


@contextmanager
def _woken(operation: Operation, loop: asyncio.AbstractEventLoop) -> Iterator[asyncio.Event]:
    """Gives an event that is set when an operation may be done."""
    # Of its own: all operations of the cards have the same descriptor, of which a loop takes one reader. And once the cards are
    # closed, another file may have its number.
    descriptor = os.dup(operation.fileno())
    event = asyncio.Event()
    sleeping = _sleeping.setdefault(loop, set())
    own = weakref.ref(event, sleeping.discard)
    try:
        loop.add_reader(descriptor, event.set)
        sleeping.add(own)
        yield event
    finally:
        sleeping.discard(own)
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def _sleep(operation: Operation, loop: asyncio.AbstractEventLoop) -> None:
    with _woken(operation, loop) as event:
        try:
            while not operation.test():
                try:
                    async with asyncio.timeout(_TEST_EVERY):
                        await event.wait()
                except TimeoutError:
                    pass
                event.clear()
        except asyncio.CancelledError as cancelled:
            try:
                operation.abort()
            except Exception as error:
                cancelled.add_note(f"the abort failed: {error}")
            raise


async def finished(operation: Operation) -> Any:
    """Waits for an operation by the cards' descriptor, and returns its output. No thread waits. A cancelled wait aborts it, if it
    has begun: what is cancelled before never runs."""
    loop = asyncio.get_running_loop()
    try:
        if not operation.test():
            await _sleep(operation, loop)
    finally:
        # The tests may have taken the last event of an operation that others await, too, and an abort raises none.
        for sleeping in list(_sleeping.get(loop, ())):
            if event := sleeping():
                event.set()
    return operation.wait()
