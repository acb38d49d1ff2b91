"""NumPy arrays in memory of the cards."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import numpy

from fpga._errors import UsageError

if TYPE_CHECKING:
    # The extension module imports this one.
    from fpga._fpga import Cards


def _axes(shape: Any) -> tuple[int, ...]:
    """The axes of a shape as NumPy takes them: one number, or several."""
    try:
        return (operator.index(shape),)
    except TypeError:
        return tuple(operator.index(axis) for axis in shape)


def zeros(cards: Cards, shape: Any, dtype: Any) -> numpy.ndarray[Any, Any]:
    """Returns a zeroed array in new memory of the cards."""
    kind = numpy.dtype(dtype)
    if kind.hasobject:
        raise UsageError("usage", f"dtype {kind} has references to objects: expected numbers")
    # A type such as "(3,)f4" has axes of its own.
    axes, kind = _axes(shape) + kind.shape, kind.base
    if any(axis < 0 for axis in axes):
        raise UsageError("usage", f"shape {axes} has a negative axis")
    count = math.prod(axes)
    if count * kind.itemsize == 0:
        return numpy.zeros(axes, kind)
    memory = memoryview(cards.memory(count * kind.itemsize))
    array: numpy.ndarray[Any, Any] = numpy.frombuffer(memory, kind, count)
    return array.reshape(axes)
