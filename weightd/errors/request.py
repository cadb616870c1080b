"""What the caller wrote is wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from weightd.errors.base import WeightdError


@dataclass(eq=False)
class InvalidKey(WeightdError, ValueError):
    key: str
    reason: str
    code: ClassVar[str] = "invalid-key"

    @property
    def detail(self) -> str:
        return (
            f"{self.key!r} is not a key: {self.reason}. A key is 'name' or 'name@revision', "
            "a name being 1 to 6 segments joined by '/', in 200 bytes."
        )


@dataclass(eq=False)
class InvalidRequest(WeightdError, ValueError):
    """``what`` names the parameter, header or field."""

    what: str
    reason: str
    code: ClassVar[str] = "invalid-request"

    @property
    def detail(self) -> str:
        return f"{self.what}: {self.reason}."


@dataclass(eq=False)
class InvalidArchive(WeightdError, ValueError):
    """``member`` is the archive's name for the offending entry, or None for the whole."""

    reason: str
    member: str | None = None
    code: ClassVar[str] = "invalid-archive"

    @property
    def detail(self) -> str:
        where = "The archive" if self.member is None else f"Member {self.member!r} of the archive"
        return f"{where} was refused: {self.reason}. Nothing of it was kept."


@dataclass(eq=False)
class DigestMismatch(WeightdError, ValueError):
    expected: str
    actual: str
    file: str
    retry_after: int | None = field(default=None, kw_only=True)  # type: ignore[misc]
    code: ClassVar[str] = "digest-mismatch"

    @property
    def detail(self) -> str:
        return (
            f"The sha256 of {self.file!r} is {self.actual}, not {self.expected}. "
            "Nothing of it was kept; have it sent again, or correct the digest."
        )

    def figures(self) -> dict[str, object]:
        return {"expected": self.expected, "actual": self.actual, "file": self.file}
