"""Operations in an event loop."""

import asyncio
from typing import Any, TypeAlias

from fpga._fpga import Operation

# A card that is gone raises no event.
_TEST_EVERY = 1.0

_Key: TypeAlias = tuple[asyncio.AbstractEventLoop, int]

# The awaits that a descriptor wakes in a loop. A loop takes one reader of a descriptor, and all operations of the cards have the same.
_awaits: dict[_Key, set[asyncio.Event]] = {}


def _wake(key: _Key) -> None:
    for event in _awaits.get(key, ()):
        event.set()


async def _sleep(operation: Operation, loop: asyncio.AbstractEventLoop) -> None:
    descriptor = operation.fileno()
    key = (loop, descriptor)
    event = asyncio.Event()
    # Anew for each await: of cards that were closed while one slept, the loop still has the descriptor, by the same number.
    loop.remove_reader(descriptor)
    loop.add_reader(descriptor, _wake, key)
    _awaits.setdefault(key, set()).add(event)
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
    finally:
        _awaits[key].remove(event)
        if not _awaits[key]:
            del _awaits[key]
            loop.remove_reader(descriptor)


async def finished(operation: Operation) -> Any:
    """Waits for an operation by the cards' descriptor, and returns its output. No thread waits. A cancelled wait aborts it."""
    loop = asyncio.get_running_loop()
    try:
        if not operation.test():
            await _sleep(operation, loop)
    finally:
        # The tests may have taken the last event of an operation that others await, too, and an abort raises none.
        for key in list(_awaits):
            if key[0] is loop:
                _wake(key)
    return operation.wait()
