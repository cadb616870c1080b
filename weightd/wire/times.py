"""Times as they are written on the wire."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


# One answer, and one after another, tell the same times.
@lru_cache(maxsize=1024)
def rfc3339(seconds: float) -> str:
    """Write seconds since the epoch as RFC 3339 in UTC, to the millisecond.

    >>> rfc3339(0.5)
    '1970-01-01T00:00:00.500Z'
    """
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def rfc3339_or_none(seconds: float | None) -> str | None:
    """The same, for a time that may be unknown or never."""
    return None if seconds is None else rfc3339(seconds)
