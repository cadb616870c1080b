"""Refusals that only the edge makes: they are about HTTP, and no other floor knows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from weightd.errors import InvalidRequest, Unauthorized, WeightdError


@dataclass(eq=False)
class InvalidRequests(InvalidRequest):
    """Everything that is wrong with one request, for one answer."""

    faults: tuple[InvalidRequest, ...] = ()

    @property
    def detail(self) -> str:
        return " ".join(fault.detail for fault in self.faults)


@dataclass(eq=False)
class AskForPassword(Unauthorized):
    """No token, told to a browser: it asks its user for a name and the token, as a password."""


@dataclass(eq=False)
class UnknownRoute(WeightdError):
    path: str
    code: ClassVar[str] = "not-found"

    @property
    def detail(self) -> str:
        return (
            f"There is nothing at {self.path!r}. Models are at /v1/models/{{key}}; "
            "the admin socket lists every route at /openapi.json."
        )


@dataclass(eq=False)
class WrongMethod(WeightdError):
    method: str
    allowed: tuple[str, ...]
    code: ClassVar[str] = "method-not-allowed"

    @property
    def detail(self) -> str:
        return f"This route takes {', '.join(self.allowed)}, not {self.method}."


@dataclass(eq=False)
class UnsupportedMediaType(WeightdError):
    header: str
    value: str
    code: ClassVar[str] = "unsupported-media-type"

    @property
    def detail(self) -> str:
        return f"{self.header}: {self.value!r} is not taken. Send the bytes as they are."


@dataclass(eq=False)
class RangeNotSatisfiable(WeightdError):
    """``bytes`` is the whole file's length."""

    range: str
    bytes: int
    code: ClassVar[str] = "range-not-satisfiable"

    @property
    def detail(self) -> str:
        return (
            f"Range: {self.range!r} is not one range within the file's {self.bytes} bytes. "
            "Ask for one range at a time, such as bytes=0-1023 or bytes=-1024."
        )


@dataclass(eq=False)
class PreconditionFailed(WeightdError):
    """``sha256`` is that of the file as it is."""

    sha256: str
    code: ClassVar[str] = "precondition-failed"

    @property
    def detail(self) -> str:
        return f"The file's ETag is {self.sha256}, none that If-Match names. Look the key up anew."


@dataclass(eq=False)
class Unhealthy(WeightdError):
    """The cache did not answer in time, or ``trouble`` says what else is wrong with it."""

    seconds: float
    trouble: str | None = None
    code: ClassVar[str] = "unhealthy"
    retryable: ClassVar[bool] = True
    retry_after: ClassVar[int | None] = 5

    @property
    def detail(self) -> str:
        if self.trouble is not None:
            return self.trouble
        return f"The cache did not answer within {self.seconds:g} s; its disk may be hanging."

    def figures(self) -> dict[str, object]:
        figures = super().figures()
        del figures["trouble"]
        return figures


@dataclass(eq=False)
class Internal(WeightdError):
    """A fault of weightd itself; the log has the traceback."""

    code: ClassVar[str] = "internal"

    @property
    def detail(self) -> str:
        return "weightd failed in a way it does not know. Its log has the traceback; report it."
