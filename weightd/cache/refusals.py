"""The last refusals, for those who look at the node and did not see them happen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from weightd.errors import Blocked, DiskFull, TooLarge
from weightd.model import Key

REFUSALS_KEPT: Final = 50


@dataclass(frozen=True, slots=True)
class Refusal:
    """A key that got no room, and what its caller was told the last time of ``count`` times.

    ``bytes`` is what was asked for; times are seconds since the epoch.
    """

    key: Key
    code: str
    detail: str
    retryable: bool
    bytes: int
    first_at: float
    last_at: float
    count: int


class Refusals:
    """Each key and kind of refusal once, however often it is tried: the last `REFUSALS_KEPT`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._kept: dict[tuple[Key, str], Refusal] = {}

    def note(self, key: Key, error: TooLarge | Blocked | DiskFull) -> None:
        """Somebody was refused.  The words are kept and not the error, which holds its frames."""
        now = self._now()
        new = Refusal(key, error.code, error.detail, error.retryable, error.bytes, now, now, 1)
        before = self._kept.pop((key, error.code), None)
        if before is not None:
            new = replace(new, first_at=before.first_at, count=before.count + 1)
        self._kept[key, error.code] = new
        if len(self._kept) > REFUSALS_KEPT:
            del self._kept[next(iter(self._kept))]

    def forget(self, key: Key) -> None:
        """It has come since: nothing is left to do about them."""
        for one in [kept for kept in self._kept if kept[0] == key]:
            del self._kept[one]

    def newest_first(self) -> list[Refusal]:
        return list(reversed(self._kept.values()))
