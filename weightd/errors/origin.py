"""What an origin did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from weightd.errors.base import WeightdError


@dataclass(eq=False)
class OriginFailed(WeightdError):
    """The origin refused, broke off or lied.

    ``source`` is the reference without credentials, ``words`` the origin's own
    words (at most some hundred characters, no credentials), ``http_status`` its
    status where it speaks HTTP.  Here it depends on what happened whether a
    retry can help, and ``retry_after`` is what the origin asked for, in seconds.
    ``ranges`` is False when it was asked for a part and gives only the whole.
    """

    source: str
    words: str
    http_status: int | None = None
    # One class, in which it depends on the case.
    retryable: bool = field(default=True, kw_only=True)  # type: ignore[misc]
    retry_after: int | None = field(default=None, kw_only=True)  # type: ignore[misc]
    ranges: bool = True
    code: ClassVar[str] = "origin-failed"

    @property
    def detail(self) -> str:
        what = f"{self.source}: {self.words}."
        return what + (" Try again later." if self.retryable else " Trying again will not help.")

    def figures(self) -> dict[str, object]:
        return {"source": self.source, "words": self.words, "http_status": self.http_status}


@dataclass(eq=False)
class OriginChanged(OriginFailed):
    """What is there is no longer what was listed; list it anew."""

    code: ClassVar[str] = "origin-changed"

    @property
    def detail(self) -> str:
        return f"{self.source} changed while it was fetched ({self.words}). Fetch it again."


@dataclass(eq=False)
class OriginTimeout(WeightdError, TimeoutError):
    """``retry_after`` is for how many seconds more the origin is let be."""

    source: str
    what: str
    seconds: float
    retry_after: int | None = field(default=None, kw_only=True)  # type: ignore[misc]
    code: ClassVar[str] = "origin-timeout"
    retryable: ClassVar[bool] = True

    @property
    def detail(self) -> str:
        return f"{self.source}: {self.what} took more than {self.seconds:g} s. Try again later."

    def figures(self) -> dict[str, object]:
        return {"source": self.source, "what": self.what, "seconds": self.seconds}
