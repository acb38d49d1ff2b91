"""Types of the extension module. ``help()`` of each item has shapes, types and errors."""

from collections.abc import Generator, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, SupportsFloat, SupportsIndex, TypeAlias, TypeVar, final

import numpy
from numpy.typing import DTypeLike
from typing_extensions import Buffer

# For Python 3.11, NumPy does not say that its arrays and scalars have the buffer protocol.
_Array: TypeAlias = Buffer | numpy.ndarray[Any, Any] | numpy.generic
_Out = TypeVar("_Out", bound=_Array)

__all__ = ["Card", "Cards", "Memory", "Operation", "Plan", "Status", "Times", "__version__", "open"]

__version__: str

def open(selector: str, *, timeout: SupportsFloat = 10.0) -> Cards: ...

@final
class Cards:
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Card]: ...
    def __getitem__(self, index: SupportsIndex, /) -> Card: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        _class: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> None: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def timeout(self) -> float: ...
    @timeout.setter
    def timeout(self, value: SupportsFloat, /) -> None: ...
    def memory(self, nbytes: SupportsIndex) -> Memory: ...
    def zeros(
        self, shape: SupportsIndex | Sequence[SupportsIndex], dtype: DTypeLike | None = None
    ) -> numpy.ndarray[Any, Any]: ...
    def plan(
        self,
        operation: str,
        bytes: SupportsIndex = 0,
        *,
        reduction: str | None = None,
        element: str | None = None,
        algorithm: str | None = None,
        root: SupportsIndex = 0,
        peer: SupportsIndex | None = None,
    ) -> Plan: ...
    def barrier(self, *, algorithm: str | None = None) -> Operation: ...
    def send(
        self,
        array: _Array,
        /,
        *,
        root: SupportsIndex = 0,
        peer: SupportsIndex | None = None,
        out: _Array | None = None,
        algorithm: str | None = None,
    ) -> Operation: ...
    def sendrecv(
        self, array: _Array, /, *, out: _Array | None = None, algorithm: str | None = None
    ) -> Operation: ...
    def scatter(
        self,
        array: _Array,
        /,
        *,
        root: SupportsIndex = 0,
        out: _Array | None = None,
        algorithm: str | None = None,
    ) -> Operation: ...
    def gather(
        self,
        array: _Array,
        /,
        *,
        root: SupportsIndex = 0,
        out: _Array | None = None,
        algorithm: str | None = None,
    ) -> Operation: ...
    def broadcast(
        self,
        array: _Array,
        /,
        *,
        root: SupportsIndex = 0,
        out: _Array | None = None,
        algorithm: str | None = None,
    ) -> Operation: ...
    def alltoall(
        self, array: _Array, /, *, out: _Array | None = None, algorithm: str | None = None
    ) -> Operation: ...
    def allgather(
        self, array: _Array, /, *, out: _Array | None = None, algorithm: str | None = None
    ) -> Operation: ...
    def reduce(
        self,
        array: _Array,
        /,
        reduction: str = "sum",
        *,
        root: SupportsIndex = 0,
        out: _Array | None = None,
        element: str | None = None,
        algorithm: str | None = None,
    ) -> Operation: ...
    def allreduce(
        self,
        array: _Array,
        /,
        reduction: str = "sum",
        *,
        out: _Array | None = None,
        element: str | None = None,
        algorithm: str | None = None,
    ) -> Operation: ...
    def reduce_scatter(
        self,
        array: _Array,
        /,
        reduction: str = "sum",
        *,
        out: _Array | None = None,
        element: str | None = None,
        algorithm: str | None = None,
    ) -> Operation: ...
    def scan(
        self,
        array: _Array,
        /,
        reduction: str = "sum",
        *,
        out: _Array | None = None,
        element: str | None = None,
        algorithm: str | None = None,
    ) -> Operation: ...
    def exscan(
        self,
        array: _Array,
        /,
        reduction: str = "sum",
        *,
        out: _Array | None = None,
        element: str | None = None,
        algorithm: str | None = None,
    ) -> Operation: ...

@final
class Card:
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def is_mock(self) -> bool: ...
    @property
    def node(self) -> int: ...
    @property
    def nodes(self) -> int: ...
    @property
    def ports(self) -> int: ...
    @property
    def lanes(self) -> int: ...
    @property
    def clock_khz(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def operations(self) -> frozenset[str]: ...
    @property
    def elements(self) -> frozenset[str]: ...
    @property
    def reductions(self) -> frozenset[str]: ...
    def status(self) -> Status: ...
    def write(self, address: SupportsIndex, array: _Array) -> None: ...
    def read(self, address: SupportsIndex, out: _Out) -> _Out: ...

@final
class Status:
    @property
    def queue(self) -> str: ...
    @property
    def cycles(self) -> int: ...
    @property
    def retired(self) -> int: ...

@final
class Memory:
    def __len__(self) -> int: ...
    # From Python 3.12 on also at run time.
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Plan:
    @property
    def operation(self) -> str: ...
    @property
    def algorithm(self) -> str: ...
    @property
    def ranks(self) -> int: ...
    @property
    def predicted_us(self) -> float: ...
    @property
    def bytes(self) -> int: ...
    @property
    def times(self) -> Times | None: ...
    def input_bytes(self, rank: SupportsIndex) -> int: ...
    def output_bytes(self, rank: SupportsIndex) -> int: ...
    def launch(self, array: _Array | None = None, /, *, out: _Array | None = None) -> Operation: ...
    def release(self) -> None: ...

@final
class Operation:
    def wait(self, timeout: SupportsFloat | None = None) -> Any: ...
    def test(self) -> bool: ...
    def abort(self) -> None: ...
    def fileno(self) -> int: ...
    @property
    def times(self) -> Times | None: ...
    @property
    def status(self) -> str: ...
    def __await__(self) -> Generator[Any, None, Any]: ...

@final
class Times:
    @property
    def t1_us(self) -> float: ...
    @property
    def t2_us(self) -> float: ...
    @property
    def arrival_us(self) -> float: ...
    @property
    def t1_cycles(self) -> int: ...
    @property
    def t2_cycles(self) -> int: ...
    @property
    def arrival_cycles(self) -> int: ...
