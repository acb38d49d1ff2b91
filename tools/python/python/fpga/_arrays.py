"""NumPy arrays in memory of the cards."""

import math
from typing import Any

import numpy

from fpga._errors import UsageError
from fpga._fpga import Cards


def zeros(cards: Cards, shape: int | tuple[int, ...], dtype: Any) -> numpy.ndarray[Any, Any]:
    """Returns a zeroed array in new memory of the cards."""
    kind = numpy.dtype(dtype)
    if kind.hasobject:
        raise UsageError("usage", f"dtype {kind} has references to objects: expected numbers")
    axes = (shape,) if isinstance(shape, int) else tuple(shape)
    count = math.prod(axes)
    if count * kind.itemsize == 0:
        return numpy.zeros(axes, kind)
    memory = memoryview(cards.memory(count * kind.itemsize))
    array: numpy.ndarray[Any, Any] = numpy.frombuffer(memory, kind, count)
    return array.reshape(axes)
