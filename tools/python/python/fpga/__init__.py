"""FPGA cards on a network of their own: memory and collectives.

>>> import fpga, numpy
>>> with fpga.open("mock:optweb:4") as cards:
...     rows = numpy.ones((4, 256), numpy.float32)
...     total = cards.allreduce(rows, "sum").wait()
>>> float(total[3, 0])
4.0

In a coroutine, ``await cards.allreduce(rows, "sum")`` does the same. Errors are subclasses of ``fpga.Error``.
"""

from fpga._errors import (
    BusyError,
    Error,
    FailedError,
    GoneError,
    InternalError,
    NoCardError,
    RefusedError,
    TimeoutError,
    UsageError,
)
from fpga._fpga import Card, Cards, Memory, Operation, Plan, Status, Times, __version__, open

__all__ = [
    "BusyError",
    "Card",
    "Cards",
    "Error",
    "FailedError",
    "GoneError",
    "InternalError",
    "Memory",
    "NoCardError",
    "Operation",
    "Plan",
    "RefusedError",
    "Status",
    "TimeoutError",
    "Times",
    "UsageError",
    "__version__",
    "open",
]
