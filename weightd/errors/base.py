"""What every error has: a code, a sentence, its figures."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import ClassVar, NamedTuple, Self


class HolderFigures(NamedTuple):
    """Who keeps bytes from being evicted; times are in seconds since the epoch."""

    holder: str
    key: str
    bytes: int
    since: float | None
    until: float | None


@dataclass(eq=False)
class WeightdError(Exception):
    """Anything weightd refuses or fails, with a sentence that says what to do."""

    code: ClassVar[str]
    retryable: ClassVar[bool] = False
    retry_after: ClassVar[int | None] = None

    @property
    def detail(self) -> str:
        """What happened, with the figures, and what to do next."""
        raise NotImplementedError

    def figures(self) -> dict[str, object]:
        """The figures by name, as an answer carries them."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def __str__(self) -> str:
        return self.detail

    def __copy__(self) -> Self:
        """The same for another caller: an exception copies only what it was given by position."""
        return replace(self)


class RootUnusable(Exception):
    """The daemon cannot own this root; the message is one line that says why and what to do."""
