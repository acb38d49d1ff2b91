"""Operations in an event loop."""

import asyncio
from typing import Any

from fpga._fpga import Operation

# A card that is gone raises no event.
_TEST_EVERY = 1.0


async def finished(operation: Operation) -> Any:
    """Waits for an operation by the cards' descriptor, and returns its output. No thread waits. A cancelled wait aborts it."""
    if not operation.test():
        loop = asyncio.get_running_loop()
        event = asyncio.Event()
        descriptor = operation.fileno()
        loop.add_reader(descriptor, event.set)
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
            loop.remove_reader(descriptor)
    return operation.wait()
