"""Times of the wire as numbers."""

from __future__ import annotations

from datetime import datetime


def epoch(text: str) -> float:
    """Read RFC 3339 into seconds since the epoch.

    >>> epoch("1970-01-01T00:00:00.500Z")
    0.5
    """
    return datetime.fromisoformat(text).timestamp()


def epoch_or_none(text: str | None) -> float | None:
    """The same, for a time that may be unknown or never."""
    return None if text is None else epoch(text)
