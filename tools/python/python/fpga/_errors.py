"""The exceptions. The extension module raises them by ``exception``."""

import builtins


class Error(Exception):
    """A failed call: what is wrong, and where."""

    kind: str
    """``failed``, ``usage``, ``no-card``, ``timeout``, ``gone``, ``refused``, ``busy`` or ``internal``."""
    message: str
    """What is wrong, and what fixes it."""
    causes: tuple[str, ...]
    """The causes, the nearest first."""
    rank: int | None
    """The rank that failed, if it was one."""
    instruction: int | None
    """Index of the instruction in the program of that rank."""
    reason: str | None
    """Why the planner or the verifier refused."""
    timeout: float | None
    """The time limit that expired, seconds."""

    def __init__(
        self,
        kind: str,
        message: str,
        causes: tuple[str, ...] = (),
        rank: int | None = None,
        instruction: int | None = None,
        reason: str | None = None,
        timeout: float | None = None,
    ) -> None:
        # All fields, so that the exception can be pickled for another process.
        super().__init__(kind, message, causes, rank, instruction, reason, timeout)
        self.kind = kind
        self.message = message
        self.causes = causes
        self.rank = rank
        self.instruction = instruction
        self.reason = reason
        self.timeout = timeout

    def __str__(self) -> str:
        return ": ".join((self.message, *self.causes))


class FailedError(Error):
    """The operation failed."""


class UsageError(Error, ValueError):
    """An argument is invalid, or the cards were closed."""


class NoCardError(Error):
    """A card does not exist, or this user may not open it."""


class TimeoutError(Error, builtins.TimeoutError):
    """A time limit expired."""


class GoneError(Error):
    """A card or a link is gone."""


class RefusedError(Error):
    """Refused before any launch."""


class BusyError(Error):
    """Another thread is using the cards. Nothing was done."""


class InternalError(Error):
    """An error of the library itself: close the cards, and report the text."""


_CLASSES: dict[str, type[Error]] = {
    "failed": FailedError,
    "usage": UsageError,
    "no-card": NoCardError,
    "timeout": TimeoutError,
    "gone": GoneError,
    "refused": RefusedError,
    "busy": BusyError,
    "internal": InternalError,
}


def exception(
    kind: str,
    message: str,
    causes: list[str],
    rank: int | None,
    instruction: int | None,
    reason: str | None,
    timeout: float | None,
) -> Error:
    """Makes the exception of an error."""
    return _CLASSES[kind](kind, message, tuple(causes), rank, instruction, reason, timeout)
