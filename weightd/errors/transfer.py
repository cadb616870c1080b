"""What went wrong on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from weightd.errors.base import WeightdError


@dataclass(eq=False)
class Stalled(WeightdError, TimeoutError):
    what: str
    seconds: float
    code: ClassVar[str] = "stalled"
    retryable: ClassVar[bool] = True

    @property
    def detail(self) -> str:
        return (
            f"{self.what} came too slowly or not at all for {self.seconds:g} s and was given up; "
            "what was reserved for it is free again. Send it anew."
        )


@dataclass(eq=False)
class IncompleteBody(WeightdError, ValueError):
    """The peer closed before it had sent what it declared; nobody is left to answer."""

    received: int
    declared: int | None
    code: ClassVar[str] = "invalid-request"
    retryable: ClassVar[bool] = True

    @property
    def detail(self) -> str:
        declared = "a complete body" if self.declared is None else f"the {self.declared} declared"
        return f"The body ended after {self.received} bytes instead of {declared}. Send it anew."


@dataclass(eq=False)
class IoError(WeightdError):
    """``call`` is the system call and its object, ``error`` the system's own words."""

    call: str
    error: str
    code: ClassVar[str] = "io-error"
    retryable: ClassVar[bool] = True

    @property
    def detail(self) -> str:
        return f"{self.call} failed: {self.error}. Nothing was acknowledged; see to the disk."


@dataclass(eq=False)
class StateUnwritable(WeightdError):
    """``act`` is what could not be brought to stable storage and therefore was not done."""

    error: str
    act: Literal["pin", "unpin", "accept-loss"] = "pin"
    code: ClassVar[str] = "state-unwritable"
    retryable: ClassVar[bool] = True
    retry_after: ClassVar[int | None] = 5

    @property
    def detail(self) -> str:
        undone = {
            "pin": "the pin was not taken, or not renewed",
            "unpin": "the pin was not let go and still stands",
            "accept-loss": "the loss of pins was not accepted and nothing is evicted yet",
        }
        return (
            f"state.db could not be brought to stable storage ({self.error}), so "
            f"{undone[self.act]}. Free space on the filesystem, or see to the disk, and try again."
        )


@dataclass(eq=False)
class FetchCancelled(WeightdError):
    """The job was ended by a DELETE, or because nobody wanted it any more."""

    key: str
    reason: str
    code: ClassVar[str] = "fetch-cancelled"
    retryable: ClassVar[bool] = True

    @property
    def detail(self) -> str:
        return f"The fetch of {self.key} was ended: {self.reason}. Ask again if it is wanted."
